/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading safetensors files. */
#include "runtime/safetensors.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/python_json.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER_BYTES = 100000000 }; /* the limit that the reference implementation sets */

/* By pl_dtype. */
static const char *const codes[PL_DTYPE_COUNT] = {
    [PL_FLOAT32] = "F32", [PL_FLOAT64] = "F64", [PL_FLOAT16] = "F16", [PL_BFLOAT16] = "BF16", [PL_INT8] = "I8",
    [PL_INT16] = "I16",   [PL_INT32] = "I32",   [PL_INT64] = "I64",   [PL_UINT8] = "U8",      [PL_BOOL] = "BOOL",
};

struct pl_safetensors {
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t data_at; /* where the tensors begin, after length and header */
    struct pl_python_json *header;
    struct pl_tensor *tensors;
    uint64_t *offsets; /* [count], from `data_at` */
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

static void print_header(const struct pl_tensor *tensors, size_t tensor_count, const struct pl_metadata *metadata,
                         size_t metadata_count, struct pl_text *text)
{
    uint64_t offset = 0;

    pl_text_append(text, "{\"__metadata__\":{");
    for (size_t i = 0; i < metadata_count; i++) {
        pl_text_append(text, i > 0 ? "," : "");
        pl_python_json_print_string(metadata[i].name, text);
        pl_text_append(text, ":");
        pl_python_json_print_string(metadata[i].value, text);
    }
    pl_text_append(text, "}");
    for (size_t i = 0; i < tensor_count; i++) {
        pl_text_append(text, ",");
        pl_python_json_print_string(tensors[i].name, text);
        pl_text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[", codes[tensors[i].dtype]);
        for (unsigned d = 0; d < tensors[i].dims; d++) {
            pl_text_printf(text, "%s%llu", d > 0 ? "," : "", (unsigned long long)tensors[i].shape[d]);
        }
        pl_text_printf(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                       (unsigned long long)(offset + tensors[i].bytes));
        offset += tensors[i].bytes;
    }
    pl_text_append(text, "}");
    while (text->length % 8 != 0 && !text->failed) {
        pl_text_append(text, " "); /* so that the data begins aligned */
    }
}

enum pl_status pl_safetensors_write(const char *path, const struct pl_tensor *tensors, size_t tensor_count,
                                    const struct pl_metadata *metadata, size_t metadata_count, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text header = PL_TEXT_NONE;
    PL_AUTO_FREE struct iovec *parts = pl_memory_new(tensor_count + 2, sizeof(*parts), reterr);
    unsigned char length[8];

    if (!parts) {
        return PL_MEMORY;
    }
    print_header(tensors, tensor_count, metadata, metadata_count, &header);
    PL_TRY(pl_text_check(&header, reterr));
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

/* Read, not mapped: what a file system cannot give is an error then, and not a SIGBUS. */
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

    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is not waited for, but too short */
    if (file->fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno, "open '%s'",
                              file->path);
    }
    if (fstat(file->fd, &info) != 0) {
        return pl_error_errno(reterr, "stat '%s'", file->path);
    }
    file->bytes = (uint64_t)info.st_size;
    return file->bytes < 8 ? corrupt(file, "too short for a safetensors file", reterr) : PL_OK;
}

/* A whole number of an array, from 0. */
static bool whole(const struct pl_python_json *node, uint64_t *ret_value)
{
    int64_t value;

    if (!node || pl_python_json_kind(node) != PL_PYTHON_JSON_INT || pl_python_json_int64(node, &value, NULL) != PL_OK ||
        value < 0) {
        return false;
    }
    *ret_value = (uint64_t)value;
    return true;
}

static enum pl_status read_tensor(struct pl_safetensors *file, const struct pl_python_json *entry, uint64_t data_bytes,
                                  uint64_t *at, struct pl_error *reterr)
{
    struct pl_tensor *tensor = &file->tensors[file->count];
    const struct pl_python_json *code = pl_python_json_member(entry, "dtype");
    const struct pl_python_json *shape = pl_python_json_member(entry, "shape");
    const struct pl_python_json *offsets = pl_python_json_member(entry, "data_offsets");
    unsigned dtype = 0;
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;

    tensor->name = pl_python_json_name(entry);
    if (!code || pl_python_json_kind(code) != PL_PYTHON_JSON_STRING || !shape || !offsets ||
        pl_python_json_count(offsets) != 2) {
        return corrupt(file, "an entry lacks dtype, shape or data_offsets", reterr);
    }
    while (dtype < PL_DTYPE_COUNT && strcmp(codes[dtype], pl_python_json_text(code)) != 0) {
        dtype++;
    }
    if (dtype == PL_DTYPE_COUNT || pl_python_json_count(shape) > PL_TENSOR_MAX_DIMS) {
        return corrupt(file, "an entry has an unknown dtype or too many dimensions", reterr);
    }
    tensor->dtype = (enum pl_dtype)dtype;
    bytes = pl_dtype_bytes(tensor->dtype);
    for (const struct pl_python_json *dim = pl_python_json_first(shape); dim; dim = pl_python_json_next(dim)) {
        if (!whole(dim, &tensor->shape[tensor->dims]) ||
            __builtin_mul_overflow(bytes, tensor->shape[tensor->dims], &bytes)) {
            return corrupt(file, "a shape is no list of whole numbers", reterr);
        }
        tensor->dims++;
    }
    if (!whole(pl_python_json_first(offsets), &begin) ||
        !whole(pl_python_json_next(pl_python_json_first(offsets)), &end) || begin != *at || end < begin ||
        end > data_bytes || end - begin != bytes) {
        return corrupt(file, "a tensor's place does not fit its shape, its neighbour or the file's size", reterr);
    }
    tensor->bytes = bytes;
    file->offsets[file->count] = begin;
    *at = end;
    file->count++;
    return PL_OK;
}

static enum pl_status read_header(struct pl_safetensors *file, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    unsigned char length[8];
    uint64_t header_bytes;
    uint64_t data_bytes;
    uint64_t at = 0;
    enum pl_status status;

    PL_TRY(read_at(file, 0, length, sizeof(length), reterr));
    header_bytes = get_u64(length);
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > file->bytes - sizeof(length)) {
        return corrupt(file, "the header is longer than the file", reterr);
    }
    text = pl_memory_new(header_bytes, 1, reterr);
    if (!text) {
        return PL_MEMORY;
    }
    PL_TRY(read_at(file, sizeof(length), text, header_bytes, reterr));
    status = pl_python_json_parse(text, header_bytes, file->path, &file->header, reterr);
    if (status != PL_OK) {
        return status == PL_MEMORY ? PL_MEMORY : corrupt(file, "the header is not JSON", reterr);
    }
    if (pl_python_json_kind(file->header) != PL_PYTHON_JSON_OBJECT) {
        return corrupt(file, "the header is no JSON object", reterr);
    }
    file->data_at = sizeof(length) + header_bytes;
    data_bytes = file->bytes - file->data_at;
    file->tensors = pl_memory_new(pl_python_json_count(file->header) + 1, sizeof(*file->tensors), reterr);
    file->offsets =
        file->tensors ? pl_memory_new(pl_python_json_count(file->header) + 1, sizeof(*file->offsets), reterr) : NULL;
    if (!file->offsets) {
        return PL_MEMORY;
    }
    for (const struct pl_python_json *entry = pl_python_json_first(file->header); entry;
         entry = pl_python_json_next(entry)) {
        if (strcmp(pl_python_json_name(entry), "__metadata__") != 0) {
            PL_TRY(read_tensor(file, entry, data_bytes, &at, reterr));
        }
    }
    return at == data_bytes ? PL_OK : corrupt(file, "the file is longer than its header says", reterr);
}

enum pl_status pl_safetensors_open(const char *path, struct pl_safetensors **ret_file, struct pl_error *reterr)
{
    struct pl_safetensors *file = pl_memory_new(1, sizeof(*file), reterr);
    enum pl_status status;

    if (!file) {
        return PL_MEMORY;
    }
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
    pl_python_json_free(file->header);
    free(file->tensors);
    free(file->offsets);
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
    return &file->tensors[index];
}

enum pl_status pl_safetensors_read(const struct pl_safetensors *file, size_t index, void *to, struct pl_error *reterr)
{
    PL_BUG_IF(index >= file->count);
    return read_at(file, file->data_at + file->offsets[index], to, file->tensors[index].bytes, reterr);
}

const struct pl_tensor *pl_safetensors_find(const struct pl_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return &file->tensors[i];
        }
    }
    return NULL;
}

const char *pl_safetensors_metadata(const struct pl_safetensors *file, const char *name)
{
    const struct pl_python_json *metadata = pl_python_json_member(file->header, "__metadata__");
    const struct pl_python_json *value = metadata ? pl_python_json_member(metadata, name) : NULL;

    return value && pl_python_json_kind(value) == PL_PYTHON_JSON_STRING ? pl_python_json_text(value) : NULL;
}
