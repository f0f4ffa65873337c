/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of messages: tf.Example's, and those of SageMaker's RecordIO-protobuf. Source: the protocol buffers encoding
 * guide (varints, wire types 0, 1, 2 and 5; groups are refused), TensorFlow's example.proto and feature.proto, the
 * record.proto in SageMaker's developer guide. */
#include "s3io/record/fields_private.h"

#include <string.h>

/* A part of the message. */
struct view {
    const unsigned char *data;
    size_t bytes;
};

/* The bytes of a message that are not read yet. */
struct cursor {
    const unsigned char *next;
    const unsigned char *end;
};

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value;   /* value of a varint */
    struct view view; /* the bytes of a BYTES field, or the 4 or 8 bytes of a fixed number */
};

static struct cursor message_of(struct view message)
{
    struct cursor whole = {message.data, message.data ? message.data + message.bytes : NULL};

    return whole;
}

static bool read_varint(struct cursor *cursor, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && cursor->next < cursor->end; shift += 7) {
        unsigned char byte = *cursor->next++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return shift < 63 || byte <= 1;
        }
    }
    return false;
}

static bool take(struct cursor *cursor, uint64_t bytes, struct view *ret_view)
{
    if (bytes > (uint64_t)(cursor->end - cursor->next)) {
        return false;
    }
    *ret_view = (struct view){.data = cursor->next, .bytes = (size_t)bytes};
    cursor->next += bytes;
    return true;
}

/* Reads the next field. Returns PL_END after the last one, and PL_CORRUPT without an error text. */
static enum pl_status next_field(struct cursor *cursor, struct field *ret_field)
{
    uint64_t key, bytes;
    bool good = false;

    if (cursor->next == cursor->end) {
        return PL_END;
    }
    if (!read_varint(cursor, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) {
        return PL_CORRUPT;
    }
    *ret_field = (struct field){.number = (uint32_t)(key >> 3)};
    switch (key & 7) {
    case WIRE_VARINT:
        ret_field->wire = WIRE_VARINT;
        good = read_varint(cursor, &ret_field->value);
        break;
    case WIRE_FIXED64:
        ret_field->wire = WIRE_FIXED64;
        good = take(cursor, 8, &ret_field->view);
        break;
    case WIRE_BYTES:
        ret_field->wire = WIRE_BYTES;
        good = read_varint(cursor, &bytes) && take(cursor, bytes, &ret_field->view);
        break;
    case WIRE_FIXED32:
        ret_field->wire = WIRE_FIXED32;
        good = take(cursor, 4, &ret_field->view);
        break;
    default:
        break;
    }
    return good ? PL_OK : PL_CORRUPT;
}

/* The kind of a field's values. Kinds up to INTEGER have the numbers of a Feature's lists. */
enum kind { KIND_NONE, KIND_BYTES, KIND_FLOAT32, KIND_INTEGER, KIND_FLOAT64 };

static const char *const kind_texts[] = {"no value", "bytes", "32-bit floats", "integers", "64-bit floats"};

/* A field of a record: a BytesList, FloatList or Int64List, or a tensor. Zero if it was not found. */
struct found {
    enum kind kind;
    struct view list;
};

/* Field numbers of the .proto files. */
enum {
    EXAMPLE_FEATURES = 1,
    FEATURES_FEATURE = 1,
    RECORD_FEATURES = 1,
    RECORD_LABEL = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    LIST_VALUE = 1, /* also the value of a tensor */
    TENSOR_KEYS = 2,
};

/* The kind of a value, by its field number in a Feature or in a Value. */
static const unsigned char feature_kinds[] = {[1] = KIND_BYTES, [2] = KIND_FLOAT32, [3] = KIND_INTEGER};
static const unsigned char tensor_kinds[] = {
    [2] = KIND_FLOAT32, [3] = KIND_FLOAT64, [7] = KIND_INTEGER, [9] = KIND_BYTES};

/* Reads a Feature or Value: the last of its one-of fields counts. */
static enum pl_status read_value(const struct pl_decoder *decoder, struct view message, struct found *found)
{
    bool is_example = decoder->source == PL_FIELDS_EXAMPLE;
    const unsigned char *kinds = is_example ? feature_kinds : tensor_kinds;
    size_t count = is_example ? sizeof(feature_kinds) : sizeof(tensor_kinds);
    struct cursor cursor = message_of(message);
    struct field field;
    enum pl_status status;

    while ((status = next_field(&cursor, &field)) == PL_OK) {
        if (field.number >= count || kinds[field.number] == KIND_NONE) {
            continue;
        }
        if (field.wire != WIRE_BYTES) {
            return PL_CORRUPT;
        }
        *found = (struct found){.kind = (enum kind)kinds[field.number], .list = field.view};
    }
    return status == PL_END ? PL_OK : status;
}

/* Returns the decoder's field with the name `name` of an entry, or NULL. Looks first at the field after `*at`, because
 * writers mostly keep an order; sets `*at`. */
static struct pl_decoder_field *field_of(const struct pl_decoder *decoder, struct view name, bool is_label, size_t *at)
{
    if (is_label) {
        if (name.bytes != strlen("values") || memcmp(name.data, "values", name.bytes) != 0) {
            return NULL;
        }
        name = (struct view){.data = (const unsigned char *)"label", .bytes = strlen("label")};
    }
    for (size_t i = 0; i < decoder->count; i++) {
        struct pl_decoder_field *field = &decoder->fields[*at];

        if (field->name_bytes == name.bytes && (name.bytes == 0 || memcmp(field->name, name.data, name.bytes) == 0)) {
            return field;
        }
        *at = *at + 1 == decoder->count ? 0 : *at + 1;
    }
    return NULL;
}

/* Reads an entry of the map of features or labels, and notes its value if the decoder has such a field. */
static enum pl_status read_entry(const struct pl_decoder *decoder, struct view message, bool is_label,
                                 struct found *found, size_t *at)
{
    struct cursor cursor = message_of(message);
    struct view name = {.data = NULL};
    struct found value = {.kind = KIND_NONE};
    struct field field;
    enum pl_status status;

    while ((status = next_field(&cursor, &field)) == PL_OK) {
        if (field.number != ENTRY_KEY && field.number != ENTRY_VALUE) {
            continue;
        }
        if (field.wire != WIRE_BYTES) {
            return PL_CORRUPT;
        }
        if (field.number == ENTRY_KEY) {
            name = field.view;
        } else {
            PL_TRY(read_value(decoder, field.view, &value));
        }
    }
    if (status == PL_END && field_of(decoder, name, is_label, at)) {
        found[*at] = value;
    }
    return status == PL_END ? PL_OK : status;
}

/* Finds the fields among the entries of a message: of a Record if `depth` is 0; of an Example, whose Features may come
 * in several pieces, if it is 1. */
static enum pl_status find_fields(const struct pl_decoder *decoder, struct view message, unsigned depth,
                                  struct found *found, size_t *at)
{
    bool is_record = decoder->source == PL_FIELDS_PROTOBUF;
    struct cursor cursor = message_of(message);
    struct field field;
    enum pl_status status;

    while ((status = next_field(&cursor, &field)) == PL_OK) {
        bool is_label = is_record && field.number == RECORD_LABEL;

        if (field.number != EXAMPLE_FEATURES && !is_label) {
            continue;
        }
        if (field.wire != WIRE_BYTES) {
            return PL_CORRUPT;
        }
        PL_TRY(depth ? find_fields(decoder, field.view, depth - 1, found, at)
                     : read_entry(decoder, field.view, is_label, found, at));
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status put_floats(struct pl_field_sink *sink, enum kind kind, struct view run, struct pl_error *reterr)
{
    unsigned char *at;

    if (run.bytes % (kind == KIND_FLOAT32 ? sizeof(float) : sizeof(double)) != 0) {
        return PL_CORRUPT;
    }
    if ((kind == KIND_FLOAT32) == (sink->field->type == PL_FLOAT32)) {
        return pl_field_put_bytes(sink, run.data, run.bytes, reterr);
    }
    PL_TRY(pl_field_room(sink, run.bytes / sizeof(float), &at, reterr));
    for (size_t i = 0; at && i < run.bytes / sizeof(float); i++) {
        double wide;
        float value;

        memcpy(&value, run.data + i * sizeof(value), sizeof(value));
        wide = (double)value;
        memcpy(at + i * sizeof(wide), &wide, sizeof(wide));
    }
    return PL_OK;
}

static enum pl_status put_integers(struct pl_field_sink *sink, struct view run, struct pl_error *reterr)
{
    struct cursor cursor = message_of(run);
    size_t count = 0, item_bytes = sink->field->item_bytes;
    unsigned char *at;

    for (size_t i = 0; i < run.bytes; i++) {
        count += !(run.data[i] & 0x80);
    }
    PL_TRY(pl_field_room(sink, count, &at, reterr));
    for (; cursor.next != cursor.end; at = at ? at + item_bytes : NULL) {
        uint64_t value;

        if (!read_varint(&cursor, &value)) {
            return PL_CORRUPT;
        }
        if (at) {
            PL_TRY(pl_field_put_integer(sink->field, (int64_t)value, at, reterr));
        }
    }
    return PL_OK;
}

static bool fits(enum kind kind, enum pl_dtype type)
{
    switch (kind) {
    case KIND_BYTES:
        return true;
    case KIND_INTEGER:
        return pl_field_is_integer(type);
    case KIND_FLOAT32:
        return type == PL_FLOAT32 || type == PL_FLOAT64;
    case KIND_FLOAT64:
        return type == PL_FLOAT64;
    case KIND_NONE:
        break;
    }
    return false;
}

/* Takes one value of a list, or a packed run of them. */
static enum pl_status put_value(struct pl_field_sink *sink, enum kind kind, const struct field *value,
                                struct pl_error *reterr)
{
    unsigned char *at;

    switch (kind) {
    case KIND_BYTES:
        return value->wire == WIRE_BYTES ? pl_field_put_bytes(sink, value->view.data, value->view.bytes, reterr)
                                         : PL_CORRUPT;
    case KIND_INTEGER:
        if (value->wire == WIRE_VARINT) {
            PL_TRY(pl_field_room(sink, 1, &at, reterr));
            return at ? pl_field_put_integer(sink->field, (int64_t)value->value, at, reterr) : PL_OK;
        }
        return value->wire == WIRE_BYTES ? put_integers(sink, value->view, reterr) : PL_CORRUPT;
    case KIND_FLOAT32:
    case KIND_FLOAT64:
        if (value->wire != WIRE_BYTES && value->wire != (kind == KIND_FLOAT32 ? WIRE_FIXED32 : WIRE_FIXED64)) {
            return PL_CORRUPT;
        }
        return put_floats(sink, kind, value->view, reterr);
    case KIND_NONE:
        break;
    }
    return PL_CORRUPT;
}

/* Takes the values of a field. PL_CORRUPT without an error text. */
static enum pl_status put_list(const struct pl_decoder *decoder, const struct found *found, struct pl_field_sink *sink,
                               struct pl_error *reterr)
{
    struct cursor cursor = message_of(found->list);
    struct field value;
    enum pl_status status;
    size_t values = 0;

    if (!fits(found->kind, sink->field->type)) {
        return pl_field_unexpected(sink->field, reterr, "%s", kind_texts[found->kind]);
    }
    while ((status = next_field(&cursor, &value)) == PL_OK) {
        if (value.number == TENSOR_KEYS && decoder->source == PL_FIELDS_PROTOBUF && found->kind != KIND_BYTES) {
            return pl_error_set(reterr, PL_UNSUPPORTED,
                                "field '%s' is a sparse tensor, which has keys: expected a dense one",
                                sink->field->name);
        }
        if (value.number == LIST_VALUE) {
            if (found->kind == KIND_BYTES && values > 0) {
                return pl_field_unexpected(sink->field, reterr, "several values of bytes");
            }
            values++;
            PL_TRY(put_value(sink, found->kind, &value, reterr));
        }
    }
    if (status == PL_END && found->kind == KIND_BYTES && values == 0) {
        return pl_field_unexpected(sink->field, reterr, "a list of bytes without a value");
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status corrupt(const struct pl_decoder *decoder, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "expected a %s message, found other or damaged data",
                        decoder->source == PL_FIELDS_EXAMPLE ? "tf.Example" : "RecordIO-protobuf");
}

enum pl_status pl_fields_message(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                                 struct pl_varying *varying, struct pl_error *reterr)
{
    struct found found[PL_FIELDS_MOST];
    size_t at = 0;

    memset(found, 0, decoder->count * sizeof(found[0]));
    if (find_fields(decoder, (struct view){.data = data, .bytes = bytes}, decoder->source == PL_FIELDS_EXAMPLE, found,
                    &at) != PL_OK) {
        return corrupt(decoder, reterr);
    }
    for (size_t i = 0; i < decoder->count; i++) {
        struct pl_field_sink sink = pl_field_sink_of(decoder, i, rows, varying);
        bool missing = found[i].kind == KIND_NONE;

        if (!missing) {
            enum pl_status status = put_list(decoder, &found[i], &sink, reterr);

            if (status != PL_OK) {
                return status == PL_CORRUPT ? corrupt(decoder, reterr) : status;
            }
        }
        PL_TRY(pl_field_end(&sink, missing, reterr));
    }
    return PL_OK;
}
