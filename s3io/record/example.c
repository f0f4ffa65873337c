/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tf.Example messages in place. */
#include "s3io/record/protobuf.h"

#include <string.h>

/* Field numbers of the .proto files. */
enum { EXAMPLE_FEATURES = 1, FEATURES_FEATURE = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2, LIST_VALUE = 1 };

static enum pl_status corrupt(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "expected a tf.Example message, found other or damaged data");
}

/* Whether the field is a message: a BYTES field. Other wire types mean damage. */
static bool is_message(const struct pl_protobuf_field *field)
{
    return field->wire == PL_PROTOBUF_BYTES;
}

/* Reads a Feature: the last of its one-of fields counts. */
static enum pl_status read_feature(struct pl_view message, struct pl_example_feature *feature)
{
    struct pl_protobuf cursor = pl_protobuf_of(message);
    struct pl_protobuf_field field;
    enum pl_status status;

    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        if (field.number < PL_EXAMPLE_BYTES || field.number > PL_EXAMPLE_INT64) {
            continue;
        }
        if (!is_message(&field)) {
            return PL_CORRUPT;
        }
        feature->kind = (enum pl_example_kind)field.number;
        feature->list = field.view;
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status read_entry(struct pl_view message, struct pl_example_feature *feature)
{
    struct pl_protobuf cursor = pl_protobuf_of(message);
    struct pl_protobuf_field field;
    enum pl_status status;

    *feature = (struct pl_example_feature){.kind = PL_EXAMPLE_EMPTY};
    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        if (field.number != ENTRY_KEY && field.number != ENTRY_VALUE) {
            continue;
        }
        if (!is_message(&field)) {
            return PL_CORRUPT;
        }
        if (field.number == ENTRY_KEY) {
            feature->name = field.view;
        } else {
            PL_TRY(read_feature(field.view, feature));
        }
    }
    return status == PL_END ? PL_OK : status;
}

/* Finds the next field `number` of `cursor`, and returns it as a message. */
static enum pl_status next_message(struct pl_protobuf *cursor, uint32_t number, struct pl_view *ret_message)
{
    struct pl_protobuf_field field;

    for (;;) {
        PL_TRY(pl_protobuf_next(cursor, &field));
        if (field.number != number) {
            continue;
        }
        *ret_message = field.view;
        return is_message(&field) ? PL_OK : PL_CORRUPT;
    }
}

enum pl_status pl_example_next(struct pl_example_walk *walk, const void *data, size_t bytes,
                               struct pl_example_feature *ret_feature, struct pl_error *reterr)
{
    if (!walk->started) {
        walk->started = true;
        walk->example = pl_protobuf_of((struct pl_view){.data = data, .bytes = bytes});
    }
    for (;;) {
        struct pl_view message = {.data = NULL};
        enum pl_status status = next_message(&walk->features, FEATURES_FEATURE, &message);

        if (status == PL_OK) {
            status = read_entry(message, ret_feature);
            return status == PL_OK ? PL_OK : corrupt(reterr);
        }
        if (status == PL_END) {
            /* A message that was merged from several ones may have its features in several pieces. */
            status = next_message(&walk->example, EXAMPLE_FEATURES, &message);
            walk->features = pl_protobuf_of(message);
        }
        if (status != PL_OK) {
            walk->features = (struct pl_protobuf){.next = NULL};
            return status == PL_END ? PL_END : corrupt(reterr);
        }
    }
}

enum pl_status pl_example_find(const void *data, size_t bytes, const char *name, struct pl_example_feature *ret_feature,
                               struct pl_error *reterr)
{
    struct pl_example_walk walk = {.started = false};
    struct pl_example_feature feature;
    size_t name_bytes = strlen(name);
    enum pl_status status;
    bool found = false;

    while ((status = pl_example_next(&walk, data, bytes, &feature, reterr)) == PL_OK) {
        if (feature.name.bytes == name_bytes && (name_bytes == 0 || memcmp(feature.name.data, name, name_bytes) == 0)) {
            *ret_feature = feature;
            found = true;
        }
    }
    if (status != PL_END) {
        return status;
    }
    return found ? PL_OK : pl_error_set(reterr, PL_NOT_FOUND, "the tf.Example has no feature '%s'", name);
}

static const char *kind_text(enum pl_example_kind kind)
{
    switch (kind) {
    case PL_EXAMPLE_EMPTY:
        return "no value";
    case PL_EXAMPLE_BYTES:
        return "bytes";
    case PL_EXAMPLE_FLOAT32:
        return "floats";
    case PL_EXAMPLE_INT64:
        return "integers";
    }
    return "an unknown kind";
}

static enum pl_status check_kind(const struct pl_example_feature *feature, enum pl_example_kind kind,
                                 struct pl_error *reterr)
{
    if (feature->kind == kind) {
        return PL_OK;
    }
    return pl_error_set(reterr, PL_INVALID, "feature '%.*s' has %s, expected %s",
                        (int)(feature->name.bytes < 100 ? feature->name.bytes : 100),
                        feature->name.data ? (const char *)feature->name.data : "", kind_text(feature->kind),
                        kind_text(kind));
}

static enum pl_status too_many(size_t room, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_LIMIT, "a feature has more than %zu values", room);
}

enum pl_status pl_example_bytes_list(const struct pl_example_feature *feature, struct pl_view *values, size_t room,
                                     size_t *ret_count, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of(feature->list);
    struct pl_view value;
    enum pl_status status;
    size_t count = 0;

    PL_TRY(check_kind(feature, PL_EXAMPLE_BYTES, reterr));
    while ((status = next_message(&cursor, LIST_VALUE, &value)) == PL_OK) {
        if (count == room) {
            return too_many(room, reterr);
        }
        values[count++] = value;
    }
    *ret_count = count;
    return status == PL_END ? PL_OK : corrupt(reterr);
}

enum pl_status pl_example_bytes(const struct pl_example_feature *feature, struct pl_view *ret_value,
                                struct pl_error *reterr)
{
    size_t count;

    PL_TRY(pl_example_bytes_list(feature, ret_value, 1, &count, reterr));
    return count == 1 ? PL_OK : pl_error_set(reterr, PL_INVALID, "expected one value in a bytes feature, found none");
}

enum pl_status pl_example_float32(const struct pl_example_feature *feature, float *values, size_t room,
                                  size_t *ret_count, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of(feature->list);
    struct pl_protobuf_run run = {.packed = {.next = NULL}};
    enum pl_status status;
    uint64_t bits;
    size_t count = 0;

    PL_TRY(check_kind(feature, PL_EXAMPLE_FLOAT32, reterr));
    while ((status = pl_protobuf_scalar(&cursor, &run, LIST_VALUE, PL_PROTOBUF_FIXED32, &bits)) == PL_OK) {
        uint32_t word = (uint32_t)bits;

        if (count == room) {
            return too_many(room, reterr);
        }
        memcpy(&values[count++], &word, sizeof(word));
    }
    *ret_count = count;
    return status == PL_END ? PL_OK : corrupt(reterr);
}

enum pl_status pl_example_int64(const struct pl_example_feature *feature, int64_t *values, size_t room,
                                size_t *ret_count, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of(feature->list);
    struct pl_protobuf_run run = {.packed = {.next = NULL}};
    enum pl_status status;
    uint64_t bits;
    size_t count = 0;

    PL_TRY(check_kind(feature, PL_EXAMPLE_INT64, reterr));
    while ((status = pl_protobuf_scalar(&cursor, &run, LIST_VALUE, PL_PROTOBUF_VARINT, &bits)) == PL_OK) {
        if (count == room) {
            return too_many(room, reterr);
        }
        values[count++] = (int64_t)bits;
    }
    *ret_count = count;
    return status == PL_END ? PL_OK : corrupt(reterr);
}
