/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading safetensors files. */
#include "runtime/safetensors.h"

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER_BYTES = 100000000 }; /* limit of the reference implementation */

/* Indexed by enum pl_dtype. */
static const char *const codes[PL_DTYPE_COUNT] = {
    [PL_FLOAT32] = "F32", [PL_FLOAT64] = "F64", [PL_FLOAT16] = "F16", [PL_BFLOAT16] = "BF16", [PL_INT8] = "I8",
    [PL_INT16] = "I16",   [PL_INT32] = "I32",   [PL_INT64] = "I64",   [PL_UINT8] = "U8",      [PL_BOOL] = "BOOL",
};

/* A tensor of a file. */
struct entry {
    struct pl_tensor tensor;
    const char *code; /* dtype, as in the header */
    unsigned dims;    /* number of dimensions in the header */
    uint64_t offset;  /* offset from `data_at` */
    size_t in_header; /* index in the header */
};

struct pl_safetensors {
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t data_at; /* offset of the first tensor, after the length and the header */
    struct pl_json *header;
    struct entry *entries; /* [count], in the order of the data */
    size_t count;
};

static void put_u64(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get_u64(const unsigned char *from)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

static void print_tensor(struct pl_json_writer *writer, const struct pl_tensor *tensor, uint64_t offset)
{
    pl_json_write_object(writer, tensor->name);
    pl_json_write_text(writer, "dtype", codes[tensor->dtype]);
    pl_json_write_list(writer, "shape");
    for (unsigned d = 0; d < tensor->dims; d++) {
        pl_json_write_int64(writer, NULL, (int64_t)tensor->shape[d]);
    }
    pl_json_write_close(writer);
    pl_json_write_list(writer, "data_offsets");
    pl_json_write_int64(writer, NULL, (int64_t)offset);
    pl_json_write_int64(writer, NULL, (int64_t)(offset + tensor->bytes));
    pl_json_write_close(writer);
    pl_json_write_close(writer);
}

static enum pl_status print_header(const struct pl_tensor *tensors, size_t tensor_count,
                                   const struct pl_metadata *metadata, size_t metadata_count, struct pl_text *text,
                                   struct pl_error *reterr)
{
    struct pl_json_writer writer = PL_JSON_WRITER(text);
    uint64_t offset = 0;

    pl_json_write_object(&writer, NULL);
    pl_json_write_object(&writer, "__metadata__");
    for (size_t i = 0; i < metadata_count; i++) {
        pl_json_write_text(&writer, metadata[i].name, metadata[i].value);
    }
    pl_json_write_close(&writer);
    for (size_t i = 0; i < tensor_count; i++) {
        print_tensor(&writer, &tensors[i], offset);
        offset += tensors[i].bytes;
    }
    pl_json_write_close(&writer);
    while (text->length % 8 != 0 && !text->failed) {
        pl_text_append(text, " "); /* pads, so that the data is aligned */
    }
    return pl_json_write_end(&writer, reterr);
}

/* Checks what the reader would not take: a file with it would be whole, and of no use. */
static enum pl_status check_tensor(const struct pl_tensor *tensor, struct pl_error *reterr)
{
    uint64_t bytes;

    if (strcmp(tensor->name, "__metadata__") == 0) {
        return pl_error_set(reterr, PL_INVALID, "a tensor is called '__metadata__', which the format keeps for itself");
    }
    if ((unsigned)tensor->dtype >= PL_DTYPE_COUNT || tensor->dims > PL_TENSOR_MAX_DIMS) {
        return pl_error_set(reterr, PL_INVALID,
                            "the tensor '%s' has dtype %u and %u dimensions, expected a dtype of enum pl_dtype and at "
                            "most %d dimensions",
                            tensor->name, (unsigned)tensor->dtype, tensor->dims, PL_TENSOR_MAX_DIMS);
    }
    bytes = pl_dtype_bytes(tensor->dtype);
    for (unsigned d = 0; d < tensor->dims; d++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) {
            return pl_error_set(reterr, PL_INVALID, "the shape of the tensor '%s' has more bytes than 64 bits count",
                                tensor->name);
        }
    }
    return bytes == tensor->bytes
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID,
                              "the tensor '%s' has %llu bytes, expected %llu by its dtype and shape", tensor->name,
                              (unsigned long long)tensor->bytes, (unsigned long long)bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum pl_status check_tensors(const struct pl_tensor *tensors, size_t count, struct pl_error *reterr)
{
    PL_AUTO_FREE const char **names = NULL;

    PL_TRY(pl_memory_alloc(&names, count + 1, sizeof(*names), reterr));
    for (size_t i = 0; i < count; i++) {
        PL_TRY(check_tensor(&tensors[i], reterr));
        names[i] = tensors[i].name;
    }
    qsort(names, count, sizeof(*names), by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return pl_error_set(reterr, PL_INVALID, "two tensors are called '%s'", names[i]);
        }
    }
    return PL_OK;
}

enum pl_status pl_safetensors_write(const char *path, const struct pl_tensor *tensors, size_t tensor_count,
                                    const struct pl_metadata *metadata, size_t metadata_count, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text header = PL_TEXT_NONE;
    PL_AUTO_FREE struct iovec *parts = NULL;
    unsigned char length[8];

    PL_TRY(check_tensors(tensors, tensor_count, reterr));
    PL_TRY(pl_memory_alloc(&parts, tensor_count + 2, sizeof(*parts), reterr));
    PL_TRY(print_header(tensors, tensor_count, metadata, metadata_count, &header, reterr));
    put_u64(length, header.length);
    parts[0] = (struct iovec){.iov_base = length, .iov_len = sizeof(length)};
    parts[1] = (struct iovec){.iov_base = header.data, .iov_len = header.length};
    for (size_t i = 0; i < tensor_count; i++) {
        union {
            const void *constant;
            void *plain;
        } data = {.constant = tensors[i].data};

        parts[i + 2] = (struct iovec){.iov_base = data.plain, .iov_len = tensors[i].bytes};
    }
    return pl_file_write_atomic_parts(path, parts, tensor_count + 2, 0644, reterr);
}

static enum pl_status corrupt(const struct pl_safetensors *file, const char *why, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "'%s': %s", file->path, why);
}

/* Reads instead of mapping, because with a mapping a failure of the file system would be a SIGBUS. */
static enum pl_status read_at(const struct pl_safetensors *file, uint64_t at, void *to, uint64_t bytes,
                              struct pl_error *reterr)
{
    char *next = to;

    while (bytes > 0) {
        ssize_t got = pread(file->fd, next, bytes, (off_t)at);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return pl_error_errno(reterr, "read '%s'", file->path);
        }
        if (got == 0) {
            return corrupt(file, "the file became shorter while it was read", reterr);
        }
        next += got;
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return PL_OK;
}

static enum pl_status open_file(struct pl_safetensors *file, struct pl_error *reterr)
{
    struct stat info;

    /* O_NONBLOCK: does not wait for a FIFO, which is then too short */
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "cannot open '%s'", file->path);
    }
    if (fstat(file->fd, &info) != 0) {
        return pl_error_errno(reterr, "stat '%s'", file->path);
    }
    file->bytes = (uint64_t)info.st_size;
    return file->bytes < 8 ? corrupt(file, "too short for a safetensors file", reterr) : PL_OK;
}

/* Reads an integer of at least 0. */
static enum pl_status whole(struct pl_json_value value, uint64_t *ret_value, struct pl_error *reterr)
{
    int64_t number;

    PL_TRY(pl_json_int64(value, 0, PL_JSON_MAX_INTEGER, &number, reterr));
    *ret_value = (uint64_t)number;
    return PL_OK;
}

/*
 * Reads the tensor's shape, and computes its bytes if Paceline knows the dtype. Dimensions beyond PL_TENSOR_MAX_DIMS
 * are only counted, so that the file's other tensors can be read. Errors: as pl_json_wrong().
 */
static enum pl_status read_shape(struct pl_json_value shape, struct entry *entry, struct pl_error *reterr)
{
    struct pl_tensor *tensor = &entry->tensor;

    PL_TRY(pl_json_expect(shape, PL_JSON_LIST, reterr));
    tensor->bytes = pl_dtype_bytes(tensor->dtype);
    for (struct pl_json_value dim = pl_json_first(shape); pl_json_exists(dim); dim = pl_json_next(dim)) {
        uint64_t size;

        PL_TRY(whole(dim, &size, reterr));
        if (__builtin_mul_overflow(tensor->bytes, size, &tensor->bytes)) {
            return pl_json_wrong(dim, "a dimension of a tensor that 64 bits can count", reterr);
        }
        if (entry->dims < PL_TENSOR_MAX_DIMS) {
            tensor->shape[entry->dims] = size;
        }
        entry->dims++;
    }
    return PL_OK;
}

/* Reads one member of the header. Errors: as pl_json_wrong(). */
static enum pl_status read_entry(struct pl_json_value member, struct entry *entry, struct pl_error *reterr)
{
    struct pl_json_value offsets = pl_json_member(member, "data_offsets");
    struct pl_json_value begin = pl_json_first(offsets);
    struct pl_tensor *tensor = &entry->tensor;
    unsigned dtype = 0;
    uint64_t end;

    PL_TRY(pl_json_text(pl_json_member(member, "dtype"), &entry->code, reterr));
    while (dtype < PL_DTYPE_COUNT && strcmp(codes[dtype], entry->code) != 0) {
        dtype++;
    }
    tensor->name = pl_json_name(member);
    tensor->dtype = (enum pl_dtype)dtype;
    PL_TRY(read_shape(pl_json_member(member, "shape"), entry, reterr));
    PL_TRY(pl_json_expect(offsets, PL_JSON_LIST, reterr));
    PL_TRY(whole(begin, &entry->offset, reterr));
    PL_TRY(whole(pl_json_next(begin), &end, reterr));
    if (pl_json_count(offsets) != 2 || end < entry->offset ||
        (dtype != PL_DTYPE_COUNT && end - entry->offset != tensor->bytes)) {
        return pl_json_wrong(offsets, "begin and end of as many bytes as type and shape make", reterr);
    }
    tensor->bytes = end - entry->offset;
    tensor->dims = entry->dims;
    if (entry->dims > PL_TENSOR_MAX_DIMS) {
        tensor->dtype = PL_DTYPE_COUNT;
        tensor->dims = PL_TENSOR_MAX_DIMS;
    }
    return PL_OK;
}

/* Orders by offset; of two at the same offset, an empty tensor comes first. */
static int compare_places(const void *left_at, const void *right_at)
{
    const struct entry *left = left_at;
    const struct entry *right = right_at;
    const uint64_t keys[][2] = {
        {left->offset, right->offset}, {left->tensor.bytes, right->tensor.bytes}, {left->in_header, right->in_header}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(keys); i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

/*
 * Reads all tensors of the header, and checks that they follow each other without gaps. The header may have any order:
 * early versions of the reference implementation wrote it sorted by name, and its reader sorts the tensors.
 */
static enum pl_status read_entries(struct pl_safetensors *file, struct pl_error *reterr)
{
    struct pl_json_value root = pl_json_root(file->header);
    struct pl_error wrong = PL_ERROR_NONE;
    uint64_t at = 0;

    PL_TRY(pl_memory_alloc(&file->entries, pl_json_count(root) + 1, sizeof(*file->entries), reterr));
    for (struct pl_json_value member = pl_json_first(root); pl_json_exists(member); member = pl_json_next(member)) {
        if (strcmp(pl_json_name(member), "__metadata__") != 0) {
            file->entries[file->count].in_header = file->count;
            if (read_entry(member, &file->entries[file->count], &wrong) != PL_OK) {
                return corrupt(file, wrong.cause, reterr);
            }
            file->count++;
        }
    }
    qsort(file->entries, file->count, sizeof(*file->entries), compare_places);
    for (size_t i = 0; i < file->count; i++) {
        if (file->entries[i].offset != at) {
            return corrupt(file, "two tensors overlap, or there is a gap between them", reterr);
        }
        at += file->entries[i].tensor.bytes;
    }
    return at == file->bytes - file->data_at ? PL_OK
                                             : corrupt(file, "the file is not as long as its header says", reterr);
}

static enum pl_status read_header(struct pl_safetensors *file, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    struct pl_error wrong = PL_ERROR_NONE;
    unsigned char length[8];
    uint64_t header_bytes;
    enum pl_status status;

    PL_TRY(read_at(file, 0, length, sizeof(length), reterr));
    header_bytes = get_u64(length);
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > file->bytes - sizeof(length)) {
        return corrupt(file, "the header is longer than the file", reterr);
    }
    PL_TRY(pl_memory_alloc(&text, header_bytes, 1, reterr));
    PL_TRY(read_at(file, sizeof(length), text, header_bytes, reterr));
    status = pl_json_parse(text, header_bytes, "header", &file->header, &wrong);
    if (status == PL_OK) {
        status = pl_json_expect(pl_json_root(file->header), PL_JSON_OBJECT, &wrong);
    }
    if (status == PL_INVALID) {
        return corrupt(file, wrong.cause, reterr);
    }
    if (status != PL_OK) {
        return pl_error_set(reterr, status, "'%s': %s", file->path, wrong.cause);
    }
    file->data_at = sizeof(length) + header_bytes;
    return read_entries(file, reterr);
}

enum pl_status pl_safetensors_open(const char *path, struct pl_safetensors **ret_file, struct pl_error *reterr)
{
    struct pl_safetensors *file;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&file, 1, sizeof(*file), reterr));
    file->fd = -1;
    file->path = pl_memory_string(path, reterr);
    status = file->path ? open_file(file, reterr) : PL_MEMORY;
    if (status == PL_OK) {
        status = read_header(file, reterr);
    }
    if (status != PL_OK) {
        pl_safetensors_close(file);
        return status;
    }
    *ret_file = file;
    return PL_OK;
}

void pl_safetensors_close(struct pl_safetensors *file)
{
    if (!file) {
        return;
    }
    pl_file_close_at(&file->fd);
    pl_json_free(file->header);
    free(file->entries);
    free(file->path);
    free(file);
}

size_t pl_safetensors_count(const struct pl_safetensors *file)
{
    return file->count;
}

const struct pl_tensor *pl_safetensors_tensor(const struct pl_safetensors *file, size_t index)
{
    PL_BUG_IF(index >= file->count);
    return &file->entries[index].tensor;
}

const char *pl_safetensors_dtype(const struct pl_safetensors *file, size_t index)
{
    PL_BUG_IF(index >= file->count);
    return file->entries[index].code;
}

enum pl_status pl_safetensors_read(const struct pl_safetensors *file, size_t index, void *to, struct pl_error *reterr)
{
    const struct entry *entry = &file->entries[index];

    PL_BUG_IF(index >= file->count);
    if (entry->dims > PL_TENSOR_MAX_DIMS) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "'%s': tensor '%s' of dtype %s has %u dimensions: expected at most %d", file->path,
                            entry->tensor.name, entry->code, entry->dims, PL_TENSOR_MAX_DIMS);
    }
    if (entry->tensor.dtype == PL_DTYPE_COUNT) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "'%s': tensor '%s' is of dtype %s: expected F32, F64, F16, BF16, I8, I16, I32, I64, U8 or "
                            "BOOL",
                            file->path, entry->tensor.name, entry->code);
    }
    return read_at(file, file->data_at + entry->offset, to, entry->tensor.bytes, reterr);
}

const struct pl_tensor *pl_safetensors_find(const struct pl_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].tensor.name, name) == 0) {
            return &file->entries[i].tensor;
        }
    }
    return NULL;
}

const char *pl_safetensors_metadata(const struct pl_safetensors *file, const char *name)
{
    const char *text;

    return pl_json_text(pl_json_member(pl_json_member(pl_json_root(file->header), "__metadata__"), name), &text,
                        NULL) == PL_OK
               ? text
               : NULL;
}
