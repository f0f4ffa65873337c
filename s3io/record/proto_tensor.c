/* SPDX-License-Identifier: Apache-2.0 */
/* Reads dense and sparse tensors of SageMaker's RecordIO-protobuf records. */
#include "s3io/proto_tensor.h"

#include <string.h>

/* Field numbers of SageMaker's record.proto. */
enum {
    RECORD_FEATURES = 1,
    RECORD_LABEL = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    VALUE_FLOAT32 = 2,
    VALUE_FLOAT64 = 3,
    VALUE_INT32 = 7,
    VALUE_BYTES = 9,
    TENSOR_VALUES = 1,
    TENSOR_KEYS = 2,
    TENSOR_SHAPE = 3,
};

static enum pl_status corrupt(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "not a RecordIO-protobuf record, or a damaged one");
}

static enum pl_wire value_wire(enum pl_proto_tensor_type type)
{
    switch (type) {
    case PL_PROTO_TENSOR_FLOAT32:
        return PL_WIRE_FIXED32;
    case PL_PROTO_TENSOR_FLOAT64:
        return PL_WIRE_FIXED64;
    case PL_PROTO_TENSOR_INT32:
        return PL_WIRE_VARINT;
    case PL_PROTO_TENSOR_BYTES:
        return PL_WIRE_BYTES;
    }
    return PL_WIRE_BYTES;
}

static enum pl_status count_scalars(struct pl_view message, uint32_t number, enum pl_wire wire, uint64_t *ret_count)
{
    struct pl_protobuf cursor = pl_protobuf_of(message);
    struct pl_protobuf_run run = {.packed = {.next = NULL}};
    enum pl_status status;
    uint64_t bits;

    *ret_count = 0;
    while ((status = pl_protobuf_scalar(&cursor, &run, number, wire, &bits)) == PL_OK) {
        ++*ret_count;
    }
    return status;
}

/* Counts and shape of a numeric tensor message. */
static enum pl_status describe(struct pl_proto_tensor *tensor, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of(tensor->message);
    struct pl_protobuf_run run = {.packed = {.next = NULL}};
    enum pl_status status;
    uint64_t extent;

    if (count_scalars(tensor->message, TENSOR_VALUES, value_wire(tensor->type), &tensor->value_count) != PL_END ||
        count_scalars(tensor->message, TENSOR_KEYS, PL_WIRE_VARINT, &tensor->key_count) != PL_END) {
        return corrupt(reterr);
    }
    while ((status = pl_protobuf_scalar(&cursor, &run, TENSOR_SHAPE, PL_WIRE_VARINT, &extent)) == PL_OK) {
        if (tensor->dims == PL_PROTO_TENSOR_MAX_DIMS) {
            return pl_error_set(reterr, PL_LIMIT, "a tensor has more than %d dimensions",
                                (int)PL_PROTO_TENSOR_MAX_DIMS);
        }
        tensor->shape[tensor->dims++] = extent;
    }
    if (status != PL_END) {
        return corrupt(reterr);
    }
    if (tensor->key_count && tensor->key_count != tensor->value_count) {
        return pl_error_set(reterr, PL_CORRUPT, "a sparse tensor has %llu keys for %llu values",
                            (unsigned long long)tensor->key_count, (unsigned long long)tensor->value_count);
    }
    if (tensor->key_count && tensor->dims == 0) {
        return pl_error_set(reterr, PL_CORRUPT, "a sparse tensor has no shape");
    }
    return PL_OK;
}

/* The one value of a Bytes message, whose field has the number of a tensor's values. */
static enum pl_status only_bytes(struct pl_view message, struct pl_proto_tensor *tensor)
{
    struct pl_protobuf cursor = pl_protobuf_of(message);
    struct pl_protobuf_field field;
    enum pl_status status;

    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        if (field.number == TENSOR_VALUES && field.wire == PL_WIRE_BYTES) {
            tensor->message = field.view;
            tensor->value_count++;
        }
    }
    return status == PL_END && tensor->value_count <= 1 ? PL_OK : PL_CORRUPT;
}

/* A Value: the last of its one-of fields counts. */
static enum pl_status read_value(struct pl_view message, struct pl_proto_tensor *tensor, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of(message);
    struct pl_protobuf_field field;
    enum pl_status status;
    bool found = false;

    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        enum pl_proto_tensor_type type;

        if (field.number == VALUE_FLOAT32) {
            type = PL_PROTO_TENSOR_FLOAT32;
        } else if (field.number == VALUE_FLOAT64) {
            type = PL_PROTO_TENSOR_FLOAT64;
        } else if (field.number == VALUE_INT32) {
            type = PL_PROTO_TENSOR_INT32;
        } else if (field.number == VALUE_BYTES) {
            type = PL_PROTO_TENSOR_BYTES;
        } else {
            continue;
        }
        if (field.wire != PL_WIRE_BYTES) {
            return corrupt(reterr);
        }
        *tensor = (struct pl_proto_tensor){.type = type, .message = field.view};
        found = true;
    }
    if (status != PL_END || !found) {
        return corrupt(reterr);
    }
    if (tensor->type == PL_PROTO_TENSOR_BYTES) {
        return only_bytes(tensor->message, tensor) == PL_OK ? PL_OK : corrupt(reterr);
    }
    return describe(tensor, reterr);
}

/* The value of a map entry when its key is `name`: PL_NOT_FOUND without a report otherwise. */
static enum pl_status match_entry(struct pl_view entry, const char *name, struct pl_view *ret_value)
{
    struct pl_protobuf cursor = pl_protobuf_of(entry);
    struct pl_protobuf_field field;
    struct pl_view key = {.data = NULL};
    enum pl_status status;

    *ret_value = (struct pl_view){.data = NULL};
    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        if ((field.number == ENTRY_KEY || field.number == ENTRY_VALUE) && field.wire != PL_WIRE_BYTES) {
            return PL_CORRUPT;
        }
        if (field.number == ENTRY_KEY) {
            key = field.view;
        } else if (field.number == ENTRY_VALUE) {
            *ret_value = field.view;
        }
    }
    if (status != PL_END) {
        return status;
    }
    return key.bytes == strlen(name) && (key.bytes == 0 || memcmp(key.data, name, key.bytes) == 0) ? PL_OK
                                                                                                   : PL_NOT_FOUND;
}

enum pl_status pl_proto_tensor_find(const void *data, size_t bytes, enum pl_proto_tensor_part part, const char *name,
                                    struct pl_proto_tensor *ret_tensor, struct pl_error *reterr)
{
    struct pl_protobuf cursor = pl_protobuf_of((struct pl_view){.data = data, .bytes = bytes});
    uint32_t number = part == PL_PROTO_TENSOR_FEATURES ? RECORD_FEATURES : RECORD_LABEL;
    struct pl_protobuf_field field;
    struct pl_view value, found = {.data = NULL};
    enum pl_status status;
    bool any = false;

    while ((status = pl_protobuf_next(&cursor, &field)) == PL_OK) {
        if (field.number != number) {
            continue;
        }
        status = field.wire == PL_WIRE_BYTES ? match_entry(field.view, name, &value) : PL_CORRUPT;
        if (status == PL_OK) {
            found = value;
            any = true;
        } else if (status != PL_NOT_FOUND) {
            return corrupt(reterr);
        }
    }
    if (status != PL_END) {
        return corrupt(reterr);
    }
    if (!any) {
        return pl_error_set(reterr, PL_NOT_FOUND, "the record has no %s '%s'",
                            part == PL_PROTO_TENSOR_FEATURES ? "feature" : "label", name);
    }
    return read_value(found, ret_tensor, reterr);
}

enum pl_status pl_proto_tensor_elements(const struct pl_proto_tensor *tensor, uint64_t *ret_elements,
                                        struct pl_error *reterr)
{
    uint64_t elements = 1;

    if (tensor->type == PL_PROTO_TENSOR_BYTES || tensor->dims == 0) {
        *ret_elements = tensor->type == PL_PROTO_TENSOR_BYTES ? tensor->message.bytes : tensor->value_count;
        return PL_OK;
    }
    for (unsigned dim = 0; dim < tensor->dims; dim++) {
        if (__builtin_mul_overflow(elements, tensor->shape[dim], &elements) || elements > INT64_MAX) {
            return pl_error_set(reterr, PL_LIMIT, "the shape of a tensor is too large");
        }
    }
    *ret_elements = elements;
    return PL_OK;
}

static float to_float32(enum pl_proto_tensor_type type, uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float single;
    double wide;

    switch (type) {
    case PL_PROTO_TENSOR_FLOAT32:
        memcpy(&single, &word, sizeof(single));
        return single;
    case PL_PROTO_TENSOR_FLOAT64:
        memcpy(&wide, &bits, sizeof(wide));
        return (float)wide;
    case PL_PROTO_TENSOR_INT32:
        return (float)(int32_t)word;
    case PL_PROTO_TENSOR_BYTES:
        break;
    }
    return 0.0F;
}

/* The next stored value and, for a sparse tensor, its key. */
struct walk {
    struct pl_protobuf values, keys;
    struct pl_protobuf_run value_run, key_run;
};

static enum pl_status step(const struct pl_proto_tensor *tensor, struct walk *walk, float *ret_value, uint64_t *key,
                           struct pl_error *reterr)
{
    uint64_t bits;

    /* Both were counted when the tensor was found. */
    if (pl_protobuf_scalar(&walk->values, &walk->value_run, TENSOR_VALUES, value_wire(tensor->type), &bits) != PL_OK ||
        (tensor->key_count &&
         pl_protobuf_scalar(&walk->keys, &walk->key_run, TENSOR_KEYS, PL_WIRE_VARINT, key) != PL_OK)) {
        return corrupt(reterr);
    }
    *ret_value = to_float32(tensor->type, bits);
    return PL_OK;
}

static struct walk walk_of(const struct pl_proto_tensor *tensor)
{
    return (struct walk){.values = pl_protobuf_of(tensor->message), .keys = pl_protobuf_of(tensor->message)};
}

static enum pl_status check_numeric(const struct pl_proto_tensor *tensor, struct pl_error *reterr)
{
    return tensor->type == PL_PROTO_TENSOR_BYTES ? pl_error_set(reterr, PL_INVALID, "a tensor of bytes has no numbers")
                                                 : PL_OK;
}

enum pl_status pl_proto_tensor_float32(const struct pl_proto_tensor *tensor, float *values, size_t elems,
                                       struct pl_error *reterr)
{
    struct walk walk = walk_of(tensor);
    uint64_t elements, key = 0;

    PL_TRY(check_numeric(tensor, reterr));
    PL_TRY(pl_proto_tensor_elements(tensor, &elements, reterr));
    if (elements != elems || (tensor->key_count == 0 && tensor->value_count != elements && tensor->value_count != 0)) {
        return pl_error_set(reterr, PL_INVALID, "a tensor has %llu elements and %llu values, expected %zu",
                            (unsigned long long)elements, (unsigned long long)tensor->value_count, elems);
    }
    if (tensor->key_count || tensor->value_count == 0) {
        memset(values, 0, elems * sizeof(*values));
    }
    for (uint64_t i = 0; i < tensor->value_count; i++) {
        float value = 0;

        key = i;
        PL_TRY(step(tensor, &walk, &value, &key, reterr));
        if (key >= elems) {
            return pl_error_set(reterr, PL_CORRUPT, "a sparse tensor of %zu elements has a value at %llu", elems,
                                (unsigned long long)key);
        }
        values[key] = value;
    }
    return PL_OK;
}

enum pl_status pl_proto_tensor_keys(const struct pl_proto_tensor *tensor, uint64_t *keys, size_t count,
                                    struct pl_error *reterr)
{
    struct walk walk = walk_of(tensor);
    float value;

    PL_TRY(check_numeric(tensor, reterr));
    if (count != tensor->key_count) {
        return pl_error_set(reterr, PL_INVALID, "a tensor has %llu keys, expected %zu",
                            (unsigned long long)tensor->key_count, count);
    }
    for (size_t i = 0; i < count; i++) {
        PL_TRY(step(tensor, &walk, &value, &keys[i], reterr));
    }
    return PL_OK;
}

enum pl_status pl_proto_tensor_values(const struct pl_proto_tensor *tensor, float *values, size_t count,
                                      struct pl_error *reterr)
{
    struct walk walk = walk_of(tensor);
    uint64_t key;

    PL_TRY(check_numeric(tensor, reterr));
    if (count != tensor->value_count) {
        return pl_error_set(reterr, PL_INVALID, "a tensor has %llu values, expected %zu",
                            (unsigned long long)tensor->value_count, count);
    }
    for (size_t i = 0; i < count; i++) {
        PL_TRY(step(tensor, &walk, &values[i], &key, reterr));
    }
    return PL_OK;
}
