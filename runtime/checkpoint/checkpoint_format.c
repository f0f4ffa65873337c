/* SPDX-License-Identifier: Apache-2.0 */
/* Printing and reading the JSON file of a checkpoint, which is protected by a CRC-32C. */
#include "runtime/checkpoint/checkpoint_format.h"

#include "base/checksum.h"
#include "base/json/python_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RECORD_BYTES = 65536 };

/* The whole numbers of a record: field of the struct, name. */
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

/*
 * Prints in the form of pl_python_json_print(PL_PYTHON_JSON_COMPACT), so that the checksum can be computed again from
 * the parsed JSON.
 */
static void print_state(const struct pl_checkpoint_record *record, struct pl_text *text)
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

void pl_checkpoint_record_print(const struct pl_checkpoint_record *record, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text state = PL_TEXT_NONE;

    print_state(record, &state);
    if (pl_text_check(&state, NULL) != PL_OK) {
        text->failed = true;
        return;
    }
    pl_text_printf(text, "{\"crc32c\": %lu, \"state\": %s}\n",
                   (unsigned long)pl_checksum_crc32c(0, state.data, state.length), state.data);
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

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_extra(const struct pl_python_json *node, struct pl_checkpoint_state *state)
{
    const char *hex = node && pl_python_json_kind(node) == PL_PYTHON_JSON_STRING ? pl_python_json_text(node) : NULL;
    size_t length = hex ? strlen(hex) : 1;

    if (length % 2 != 0 || length / 2 > PL_CHECKPOINT_EXTRA_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i += 2) {
        if (digit(hex[i]) < 0 || digit(hex[i + 1]) < 0) {
            return false;
        }
        state->extra[i / 2] = (unsigned char)(digit(hex[i]) * 16 + digit(hex[i + 1]));
    }
    state->extra_bytes = length / 2;
    return true;
}

enum pl_status pl_checkpoint_record_read(const char *path, struct pl_checkpoint_record *ret_record,
                                         struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    enum pl_status status = pl_python_json_read(path, MAX_RECORD_BYTES, &root, reterr);
    struct pl_checkpoint_record record = {.data_crc32c = 0};
    const struct pl_python_json *state;
    const struct pl_python_json *scale;
    uint64_t crc = 0;
    uint64_t value;
    bool whole = true;

    if (status == PL_INVALID || status == PL_LIMIT) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' is not a record of a checkpoint", path);
    }
    PL_TRY(status);
    state = pl_python_json_member(root, "state");
    whole = read_number(root, "crc32c", UINT32_MAX, &crc) && state;
    if (whole) {
        pl_python_json_print(state, PL_PYTHON_JSON_COMPACT, &text);
        PL_TRY(pl_text_check(&text, reterr)); /* without memory it is unknown whether the record is correct */
        whole = pl_checksum_crc32c(0, text.data, text.length) == crc;
    }
#define READ_NUMBER(field, name)                                                                                       \
    whole = whole && read_number(state, name, UINT64_MAX, &value);                                                     \
    record.field = (__typeof__(record.field))(whole ? value : 0);
    RECORD_NUMBERS(READ_NUMBER)
#undef READ_NUMBER
    scale = whole ? pl_python_json_member(state, "loss_scale") : NULL;
    if (!scale || pl_python_json_kind(scale) != PL_PYTHON_JSON_FLOAT ||
        !read_extra(pl_python_json_member(state, "extra"), &record.state)) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' is not as it was written", path);
    }
    record.optimizer.loss_scale = pl_python_json_double(scale);
    *ret_record = record;
    return PL_OK;
}
