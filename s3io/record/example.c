/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tf.Example messages in place: the wire format of protocol buffers, and the messages. Source: the protocol
 * buffers encoding guide (varints, wire types 0, 1, 2 and 5; groups are refused). */
#include "s3io/record/record_formats.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value;      /* value of a varint */
    struct pl_view view; /* the bytes of a BYTES field, or the 4 or 8 bytes of a fixed number */
};

static struct pl_protobuf message_of(struct pl_view message)
{
    struct pl_protobuf whole = {message.data, message.data ? message.data + message.bytes : NULL};

    return whole;
}

static bool read_varint(struct pl_protobuf *protobuf, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && protobuf->next < protobuf->end; shift += 7) {
        unsigned char byte = *protobuf->next++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return shift < 63 || byte <= 1;
        }
    }
    return false;
}

static bool take(struct pl_protobuf *protobuf, uint64_t bytes, struct pl_view *ret_view)
{
    if (bytes > (uint64_t)(protobuf->end - protobuf->next)) {
        return false;
    }
    *ret_view = (struct pl_view){.data = protobuf->next, .bytes = (size_t)bytes};
    protobuf->next += bytes;
    return true;
}

/* Reads the next field. Returns PL_END after the last one, and PL_CORRUPT without an error text. */
static enum pl_status next_field(struct pl_protobuf *protobuf, struct field *ret_field)
{
    uint64_t key, bytes;
    bool good = false;

    if (protobuf->next == protobuf->end) {
        return PL_END;
    }
    if (!read_varint(protobuf, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) {
        return PL_CORRUPT;
    }
    *ret_field = (struct field){.number = (uint32_t)(key >> 3)};
    switch (key & 7) {
    case WIRE_VARINT:
        ret_field->wire = WIRE_VARINT;
        good = read_varint(protobuf, &ret_field->value);
        break;
    case WIRE_FIXED64:
        ret_field->wire = WIRE_FIXED64;
        good = take(protobuf, 8, &ret_field->view);
        break;
    case WIRE_BYTES:
        ret_field->wire = WIRE_BYTES;
        good = read_varint(protobuf, &bytes) && take(protobuf, bytes, &ret_field->view);
        break;
    case WIRE_FIXED32:
        ret_field->wire = WIRE_FIXED32;
        good = take(protobuf, 4, &ret_field->view);
        break;
    default:
        break;
    }
    return good ? PL_OK : PL_CORRUPT;
}

static bool packed_scalar(struct pl_protobuf *packed, enum wire wire, uint64_t *ret_value)
{
    struct pl_view view;

    if (wire == WIRE_VARINT) {
        return read_varint(packed, ret_value);
    }
    if (!take(packed, 4, &view)) {
        return false;
    }
    *ret_value = pl_record_load_le32(view.data);
    return true;
}

/* Reads the raw bits of the next value of a repeated scalar field, packed or not, whose wire type is `wire`. `packed`,
 * zeroed at first, is the rest of a packed run. PL_END after the last value. */
static enum pl_status next_scalar(struct pl_protobuf *message, struct pl_protobuf *packed, uint32_t number,
                                  enum wire wire, uint64_t *ret_value)
{
    for (;;) {
        struct field field;

        if (packed->next != packed->end) {
            return packed_scalar(packed, wire, ret_value) ? PL_OK : PL_CORRUPT;
        }
        PL_TRY(next_field(message, &field));
        if (field.number != number) {
            continue;
        }
        if (field.wire == WIRE_BYTES) {
            *packed = message_of(field.view);
        } else if (field.wire != wire) {
            return PL_CORRUPT;
        } else if (wire == WIRE_VARINT) {
            *ret_value = field.value;
            return PL_OK;
        } else {
            *ret_value = pl_record_load_le32(field.view.data);
            return PL_OK;
        }
    }
}

/* Field numbers of the .proto files. */
enum { EXAMPLE_FEATURES = 1, FEATURES_FEATURE = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2, LIST_VALUE = 1 };

static enum pl_status corrupt(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "expected a tf.Example message, found other or damaged data");
}

/* Whether the field is a message: a BYTES field. Other wire types mean damage. */
static bool is_message(const struct field *field)
{
    return field->wire == WIRE_BYTES;
}

/* Reads a Feature: the last of its one-of fields counts. */
static enum pl_status read_feature(struct pl_view message, struct pl_example_feature *feature)
{
    struct pl_protobuf cursor = message_of(message);
    struct field field;
    enum pl_status status;

    while ((status = next_field(&cursor, &field)) == PL_OK) {
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
    struct pl_protobuf cursor = message_of(message);
    struct field field;
    enum pl_status status;

    *feature = (struct pl_example_feature){.kind = PL_EXAMPLE_EMPTY};
    while ((status = next_field(&cursor, &field)) == PL_OK) {
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
    struct field field;

    for (;;) {
        PL_TRY(next_field(cursor, &field));
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
        walk->example = message_of((struct pl_view){.data = data, .bytes = bytes});
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
            walk->features = message_of(message);
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
    struct pl_protobuf cursor = message_of(feature->list);
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

/* Stores the scalars of a feature, `bytes` each, which is the size of the low bits that count. */
static enum pl_status take_scalars(const struct pl_example_feature *feature, enum pl_example_kind kind, enum wire wire,
                                   void *values, size_t bytes, size_t room, size_t *ret_count, struct pl_error *reterr)
{
    struct pl_protobuf cursor = message_of(feature->list);
    struct pl_protobuf packed = {.next = NULL};
    enum pl_status status;
    uint64_t bits;
    size_t count = 0;

    PL_TRY(check_kind(feature, kind, reterr));
    while ((status = next_scalar(&cursor, &packed, LIST_VALUE, wire, &bits)) == PL_OK) {
        if (count == room) {
            return too_many(room, reterr);
        }
        memcpy((char *)values + bytes * count++, &bits, bytes); /* little-endian, as all machines are */
    }
    *ret_count = count;
    return status == PL_END ? PL_OK : corrupt(reterr);
}

enum pl_status pl_example_float32(const struct pl_example_feature *feature, float *values, size_t room,
                                  size_t *ret_count, struct pl_error *reterr)
{
    return take_scalars(feature, PL_EXAMPLE_FLOAT32, WIRE_FIXED32, values, sizeof(*values), room, ret_count, reterr);
}

enum pl_status pl_example_int64(const struct pl_example_feature *feature, int64_t *values, size_t room,
                                size_t *ret_count, struct pl_error *reterr)
{
    return take_scalars(feature, PL_EXAMPLE_INT64, WIRE_VARINT, values, sizeof(*values), room, ret_count, reterr);
}
