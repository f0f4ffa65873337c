/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a checkpoint; prints and reads the JSON file, which a CRC-32C protects; file names; a plan's
 * values as a safetensors file, and the comparison of a file's tensors with a plan's. */
#include "runtime/checkpoint/checkpoint_format.h"

#include "base/checksum.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "base/text.h"
#include "runtime/gradient/plan_private.h"
#include "runtime/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RECORD_BYTES = 64 << 20 };

/* The integers of a record: field of the struct, name in the file. */
#define RECORD_NUMBERS(X)                                                                                              \
    X(state.step, "step")                                                                                              \
    X(state.world_size, "world_size")                                                                                  \
    X(state.sampler.count, "sampler_count")                                                                            \
    X(state.sampler.seed, "sampler_seed")                                                                              \
    X(state.sampler.epoch, "sampler_epoch")                                                                            \
    X(state.sampler.position, "sampler_position")                                                                      \
    X(optimizer.steps, "optimizer_steps")                                                                              \
    X(optimizer.skipped, "optimizer_skipped")                                                                          \
    X(optimizer.good_steps, "optimizer_good_steps")                                                                    \
    X(data_crc32c, "data_crc32c")

void pl_checkpoint_record_print(const struct pl_checkpoint_record *record, struct pl_text *text)
{
    pl_text_append(text, "{");
#define PRINT_NUMBER(field, name) pl_text_printf(text, "\"%s\":%llu,", name, (unsigned long long)record->field);
    RECORD_NUMBERS(PRINT_NUMBER)
#undef PRINT_NUMBER
    pl_text_append(text, "\"loss_scale\":");
    pl_python_json_print_double(record->optimizer.loss_scale, text);
    pl_text_append(text, ",\"extra\":\"");
    for (uint64_t i = 0; i < record->state.extra_bytes; i++) {
        pl_text_printf(text, "%02x", record->state.extra[i]);
    }
    pl_text_append(text, "\"}");
}

static bool read_number(const struct pl_python_json *object, const char *name, uint64_t most, uint64_t *ret_value)
{
    const struct pl_python_json *node = object ? pl_python_json_member(object, name) : NULL;

    if (!node || pl_python_json_kind(node) != PL_PYTHON_JSON_INT || *pl_python_json_text(node) == '-') {
        return false;
    }
    errno = 0;
    *ret_value = strtoull(pl_python_json_text(node), NULL, 10);
    return errno == 0 && *ret_value <= most;
}

static bool read_extra(const struct pl_python_json *node, struct pl_checkpoint_state *state)
{
    const char *hex = node && pl_python_json_kind(node) == PL_PYTHON_JSON_STRING ? pl_python_json_text(node) : NULL;
    size_t length = hex ? strlen(hex) : 1;

    if (length % 2 != 0 || length / 2 > PL_CHECKPOINT_EXTRA_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i += 2) {
        int high = pl_text_hex_value(hex[i]), low = pl_text_hex_value(hex[i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        state->extra[i / 2] = (unsigned char)(high * 16 + low);
    }
    state->extra_bytes = length / 2;
    return true;
}

static enum pl_status corrupt_record(const char *path, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "'%s' has changed since it was written", path);
}

/*
 * Reads the JSON file at `path`, and prints its state in the form whose checksum is in the file. Errors: as
 * pl_checkpoint_record_read().
 */
static enum pl_status read_state(const char *path, struct pl_python_json **ret_root, struct pl_text *text,
                                 struct pl_error *reterr)
{
    enum pl_status status = pl_python_json_read(path, MAX_RECORD_BYTES, ret_root, reterr);
    const struct pl_python_json *state;
    uint64_t crc = 0;

    if (status == PL_INVALID || status == PL_LIMIT) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' is not a record of a checkpoint", path);
    }
    PL_TRY(status);
    state = pl_python_json_member(*ret_root, "state");
    if (!state || !read_number(*ret_root, "crc32c", UINT32_MAX, &crc)) {
        return corrupt_record(path, reterr);
    }
    pl_python_json_print(state, PL_PYTHON_JSON_COMPACT, text);
    PL_TRY(pl_text_check(text, reterr)); /* if memory is out, it is unknown whether the record is correct */
    return pl_checksum_crc32c(0, text->data, text->length) == crc ? PL_OK : corrupt_record(path, reterr);
}

enum pl_status pl_checkpoint_record_read(const char *path, struct pl_checkpoint_record *ret_record,
                                         struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_checkpoint_record record = {.data_crc32c = 0};
    const struct pl_python_json *state;
    const struct pl_python_json *scale;
    uint64_t value;
    bool whole = true;

    PL_TRY(read_state(path, &root, &text, reterr));
    state = pl_python_json_member(root, "state");
#define READ_NUMBER(field, name)                                                                                       \
    whole = whole && read_number(state, name, UINT64_MAX, &value);                                                     \
    record.field = (__typeof__(record.field))(whole ? value : 0);
    RECORD_NUMBERS(READ_NUMBER)
#undef READ_NUMBER
    scale = whole ? pl_python_json_member(state, "loss_scale") : NULL;
    if (!scale || pl_python_json_kind(scale) != PL_PYTHON_JSON_FLOAT ||
        !read_extra(pl_python_json_member(state, "extra"), &record.state)) {
        return corrupt_record(path, reterr);
    }
    record.optimizer.loss_scale = pl_python_json_double(scale);
    *ret_record = record;
    return PL_OK;
}

enum pl_status pl_checkpoints_directory(char **ret_directory, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    *ret_directory = pl_memory_string(
        pl_environment_get_or(environment, "PACELINE_CHECKPOINT_DIR", PL_CHECKPOINT_DIRECTORY), reterr);
    return *ret_directory ? PL_OK : PL_MEMORY;
}

enum { STEP_DIGITS = 12 };

void pl_checkpoint_name(char name[PL_CHECKPOINT_NAME_BYTES], uint64_t step, const char *suffix)
{
    snprintf(name, PL_CHECKPOINT_NAME_BYTES, "checkpoint-%0*llu.%s", STEP_DIGITS, (unsigned long long)step, suffix);
}

enum pl_status pl_checkpoint_path(const char *directory, uint64_t step, const char *suffix, struct pl_text *text,
                                  struct pl_error *reterr)
{
    char name[PL_CHECKPOINT_NAME_BYTES];

    pl_checkpoint_name(name, step, suffix);
    return pl_text_set(text, reterr, "%s/%s", directory, name);
}

/*
 * Reads the step of a name: "checkpoint-000000000123.json" has step 123 and the suffix "json". Names with any other
 * form of the number belong to the program and are ignored.
 */
static bool step_of(const char *name, const char *suffix, uint64_t *ret_step)
{
    char ours[PL_CHECKPOINT_NAME_BYTES];

    if (strncmp(name, "checkpoint-", 11) != 0) {
        return false;
    }
    *ret_step = strtoull(name + 11, NULL, 10);
    pl_checkpoint_name(ours, *ret_step, suffix);
    return strcmp(name, ours) == 0;
}

/* Whether a data file has no JSON file: the run was killed while it wrote or removed the two files. */
static bool is_half(int dir_fd, const char *name)
{
    char record[PL_CHECKPOINT_NAME_BYTES];
    uint64_t step;

    if (!step_of(name, "safetensors", &step)) {
        return false;
    }
    pl_checkpoint_name(record, step, "json");
    return faccessat(dir_fd, record, F_OK, 0) != 0 && errno == ENOENT;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return left < right ? 1 : left > right ? -1 : 0;
}

enum pl_status pl_checkpoint_steps(const char *path, bool clean, uint64_t **ret_steps, size_t *ret_count,
                                   struct pl_error *reterr)
{
    DIR *directory = opendir(path);
    PL_AUTO_FREE uint64_t *steps = NULL;
    const struct dirent *entry;
    enum pl_status status = PL_OK;
    size_t count = 0, capacity = 0;

    if (!directory) {
        return pl_error_errno(reterr, "open directory '%s'", path);
    }
    while (status == PL_OK) {
        uint64_t step;

        errno = 0;
        entry = readdir(directory);
        if (!entry) {
            status = errno == 0 ? PL_OK : pl_error_errno(reterr, "read directory '%s'", path);
            break;
        }
        if (clean && (strncmp(entry->d_name, ".checkpoint-", 12) == 0 || is_half(dirfd(directory), entry->d_name))) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
        if (step_of(entry->d_name, "json", &step)) {
            status = pl_memory_grow(&steps, &capacity, count + 1, sizeof(*steps), reterr);
            if (status == PL_OK) {
                steps[count++] = step;
            }
        }
    }
    closedir(directory);
    if (status != PL_OK) {
        return status;
    }
    if (count > 0) {
        qsort(steps, count, sizeof(*steps), newest_first);
    }
    *ret_steps = PL_TAKE(steps);
    *ret_count = count;
    return PL_OK;
}

/*
 * Removes all but the `keep` newest checkpoints up to `step`. Later steps were skipped when the run began, or belong to
 * another run: they do not count.
 */
static void remove_old(const char *directory, uint64_t step, unsigned keep)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE uint64_t *steps = NULL;
    size_t count = 0, newest = 0;

    if (pl_checkpoint_steps(directory, false, &steps, &count, NULL) != PL_OK) {
        return; /* old files are harmless, and the next save tries again */
    }
    while (newest < count && steps[newest] > step) {
        newest++;
    }
    for (size_t i = newest + keep; i < count; i++) {
        /* removes the JSON file first: a half-removed checkpoint must not look complete */
        if (pl_checkpoint_path(directory, steps[i], "json", &path, NULL) == PL_OK) {
            unlink(pl_text_string(&path));
        }
        if (pl_checkpoint_path(directory, steps[i], "safetensors", &path, NULL) == PL_OK) {
            unlink(pl_text_string(&path));
        }
    }
}

uint32_t pl_checkpoint_checksum(const struct pl_tensor *tensors, size_t count)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < count; i++) {
        crc = pl_checksum_crc32c(crc, tensors[i].data, tensors[i].bytes);
    }
    return crc;
}

/* Prints {"crc32c": N, "state": {...}}. The state is printed as the reader prints it, so that checksums agree. */
static enum pl_status print_record(const char *state, struct pl_text *json, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_text_set(json, reterr, "{\"crc32c\": 0, \"state\": %s}", state));
    PL_TRY(pl_python_json_parse(json->data, json->length, "state", &root, reterr));
    pl_python_json_print(pl_python_json_member(root, "state"), PL_PYTHON_JSON_COMPACT, &text);
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_text_set(json, reterr, "{\"crc32c\": %lu, \"state\": %s}\n",
                       (unsigned long)pl_checksum_crc32c(0, text.data, text.length), pl_text_string(&text)));
    return json->length <= MAX_RECORD_BYTES
               ? PL_OK
               : pl_error_set(reterr, PL_LIMIT, "a state of %zu bytes: expected at most %d", json->length,
                              MAX_RECORD_BYTES);
}

enum pl_status pl_checkpoint_write(const char *directory, uint64_t step, unsigned keep, const struct pl_tensor *tensors,
                                   size_t count, const char *state, struct pl_error *reterr)
{
    struct pl_metadata metadata[] = {{"format", "paceline-checkpoint"}};
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;

    PL_TRY(print_record(state, &json, reterr));
    PL_TRY(pl_checkpoint_path(directory, step, "safetensors", &path, reterr));
    PL_TRY(pl_safetensors_write(pl_text_string(&path), tensors, count, metadata, PL_ARRAY_ITEMS(metadata), reterr));
    PL_TRY(pl_checkpoint_path(directory, step, "json", &path, reterr));
    PL_TRY(pl_file_write_atomic(pl_text_string(&path), json.data, json.length, 0644, reterr));
    remove_old(directory, step, keep);
    return PL_OK;
}

enum pl_status pl_checkpoint_read_state(const char *directory, uint64_t step, char **ret_state, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_checkpoint_path(directory, step, "json", &path, reterr));
    PL_TRY(read_state(pl_text_string(&path), &root, &text, reterr));
    return pl_text_take(&text, ret_state, reterr);
}

struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array)
{
    struct pl_tensor described = {
        .name = name, .dtype = PL_FLOAT32, .dims = tensor->dims, .data = array + tensor->offset_elems};

    _Static_assert(sizeof(described.shape) == sizeof(tensor->shape), "both take as many dimensions");
    memcpy(described.shape, tensor->shape, sizeof(described.shape));
    described.bytes = tensor->count_elems * sizeof(float);
    return described;
}

static void print_tensor(struct pl_text *text, const struct pl_tensor *tensor)
{
    pl_text_printf(text, "'%s', %s [", tensor->name, pl_dtype_text(tensor->dtype));
    for (unsigned d = 0; d < tensor->dims; d++) {
        pl_text_printf(text, "%s%llu", d > 0 ? ", " : "", (unsigned long long)tensor->shape[d]);
    }
    pl_text_append(text, "]");
}

static bool is_same(const struct pl_tensor *stored, const struct pl_tensor *wanted)
{
    return strcmp(stored->name, wanted->name) == 0 && stored->dtype == wanted->dtype && stored->dims == wanted->dims &&
           memcmp(stored->shape, wanted->shape, sizeof(stored->shape)) == 0;
}

enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    size_t stored_count = pl_safetensors_count(file), i = 0;

    while (i < count && i < stored_count && is_same(pl_safetensors_tensor(file, i), &wanted[i])) {
        i++;
    }
    if (i == count && i == stored_count) {
        return PL_OK;
    }
    if (i < stored_count) {
        print_tensor(&text, pl_safetensors_tensor(file, i));
    } else {
        pl_text_append(&text, "no further tensor");
    }
    pl_text_append(&text, ", and the program wants ");
    if (i < count) {
        print_tensor(&text, &wanted[i]);
    } else {
        pl_text_append(&text, "none");
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_error_set(reterr, PL_MISMATCH, "'%s' is of another model or optimizer: it has %s", path,
                        pl_text_string(&text));
}

enum pl_status pl_plan_file_write(const struct pl_plan *plan, const char *path, const struct pl_metadata *metadata,
                                  size_t metadata_count, struct pl_error *reterr)
{
    size_t count = pl_plan_tensor_count(plan);
    PL_AUTO_FREE struct pl_tensor *tensors = NULL;
    PL_AUTO_FREE float *copy = NULL;
    const float *values = pl_plan_values(plan);

    PL_TRY(pl_plan_check_sealed(plan, reterr));
    PL_TRY(pl_memory_alloc(&tensors, count, sizeof(*tensors), reterr));
    if (pl_plan_device(plan)) {
        PL_TRY(pl_memory_alloc_aligned(&copy, pl_plan_elems(plan), sizeof(float), 64, reterr));
        PL_TRY(pl_plan_read_array(plan, values, copy, reterr));
        values = copy;
    }
    for (size_t i = 0; i < count; i++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, i);

        tensors[i] = pl_plan_file_tensor(tensor, tensor->name, values);
    }
    PL_TRY(pl_file_make_parents(path, 0777, reterr));
    return pl_safetensors_write(path, tensors, count, metadata, metadata_count, reterr);
}
