/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/proto_tensor.c, s3io/record/protobuf.c. */
#include "s3io/proto_tensor.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/record/build.h"

static void put_tensor(struct build *record, unsigned part, const char *name, unsigned kind, struct build *tensor)
{
    struct build value = {.data = NULL}, entry = {.data = NULL};

    build_message(&value, kind, tensor);
    build_field(&entry, 1, name, strlen(name));
    build_message(&entry, 2, &value);
    build_message(record, part, &entry);
}

static void put_varints(struct build *tensor, unsigned number, bool packed, const uint64_t *values, size_t count)
{
    struct build run = {.data = NULL};

    for (size_t i = 0; i < count; i++) {
        if (!packed) {
            build_varint(tensor, number << 3);
        }
        build_varint(packed ? &run : tensor, values[i]);
    }
    if (packed) {
        build_message(tensor, number, &run);
    }
}

START_TEST(dense_tensors_of_every_type_become_floats)
{
    static const float singles[3] = {1.0F, -2.5F, 3.0F};
    static const double doubles[3] = {1.0, -2.5, 3.0};
    static const uint64_t integers[3] = {1, UINT64_MAX - 1, 3};
    struct pl_error error = PL_ERROR_NONE;

    for (int packed = 0; packed < 2; packed++) {
        struct build record = {.data = NULL}, tensor = {.data = NULL};
        struct pl_proto_tensor found;
        float values[3];
        uint64_t elements;

        if (packed) {
            build_field(&tensor, 1, singles, sizeof(singles));
        } else {
            for (int i = 0; i < 3; i++) {
                build_varint(&tensor, 1 << 3 | 5);
                build_bytes(&tensor, &singles[i], 4);
            }
        }
        put_tensor(&record, 1, "values", 2, &tensor);
        build_field(&tensor, 1, doubles, sizeof(doubles));
        put_tensor(&record, 1, "wide", 3, &tensor);
        put_varints(&tensor, 1, packed, integers, 3);
        put_tensor(&record, 2, "values", 7, &tensor);
        for (int i = 0; i < 3; i++) {
            ck_assert_ok(pl_proto_tensor_find(record.data, record.bytes,
                                              i == 2 ? PL_PROTO_TENSOR_LABEL : PL_PROTO_TENSOR_FEATURES,
                                              i == 1 ? "wide" : "values", &found, &error),
                         &error);
            ck_assert_ok(pl_proto_tensor_elements(&found, &elements, &error), &error);
            ck_assert_uint_eq(elements, 3);
            ck_assert_ok(pl_proto_tensor_float32(&found, values, 3, &error), &error);
            ck_assert(values[0] == 1.0F);
            ck_assert(values[1] == (i == 2 ? -2.0F : -2.5F));
            ck_assert(values[2] == 3.0F);
            ck_assert_int_eq(pl_proto_tensor_float32(&found, values, 2, &error), PL_INVALID);
        }
        ck_assert_int_eq(pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_LABEL, "wide", &found, &error),
                         PL_NOT_FOUND);
        build_done(&record);
    }
}
END_TEST

START_TEST(sparse_tensor_is_spread_over_its_shape)
{
    static const float singles[2] = {5.0F, 6.0F};
    static const uint64_t keys[2] = {1, 10}, shape[2] = {3, 4}, far[2] = {1, 12};
    struct pl_error error = PL_ERROR_NONE;

    for (int packed = 0; packed < 2; packed++) {
        struct build record = {.data = NULL}, tensor = {.data = NULL};
        struct pl_proto_tensor found;
        uint64_t elements, positions[2];
        float values[12], stored[2];

        build_field(&tensor, 1, singles, sizeof(singles));
        put_varints(&tensor, 2, packed, keys, 2);
        put_varints(&tensor, 3, packed, shape, 2);
        put_tensor(&record, 1, "values", 2, &tensor);
        build_field(&tensor, 1, singles, sizeof(singles));
        put_varints(&tensor, 2, packed, far, 2);
        put_varints(&tensor, 3, packed, shape, 2);
        put_tensor(&record, 1, "far", 2, &tensor);
        ck_assert_ok(
            pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "values", &found, &error),
            &error);
        ck_assert_ok(pl_proto_tensor_elements(&found, &elements, &error), &error);
        ck_assert_uint_eq(elements, 12);
        ck_assert_uint_eq(found.dims, 2);
        ck_assert_ok(pl_proto_tensor_float32(&found, values, 12, &error), &error);
        for (int i = 0; i < 12; i++) {
            ck_assert(values[i] == (i == 1 ? 5.0F : i == 10 ? 6.0F : 0.0F));
        }
        ck_assert_ok(pl_proto_tensor_keys(&found, positions, 2, &error), &error);
        ck_assert_mem_eq(positions, keys, sizeof(keys));
        ck_assert_ok(pl_proto_tensor_values(&found, stored, 2, &error), &error);
        ck_assert_mem_eq(stored, singles, sizeof(singles));
        ck_assert_ok(pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "far", &found, &error),
                     &error);
        ck_assert_int_eq(pl_proto_tensor_float32(&found, values, 12, &error), PL_CORRUPT);
        build_done(&record);
    }
}
END_TEST

START_TEST(sparse_tensor_without_shape_or_with_missing_keys_is_corrupt)
{
    static const float singles[2] = {5.0F, 6.0F};
    static const uint64_t keys[2] = {1, 10}, shape[3] = {UINT64_C(1) << 40, UINT64_C(1) << 40, 2};
    struct build record = {.data = NULL}, tensor = {.data = NULL};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_proto_tensor found;
    uint64_t elements;

    build_field(&tensor, 1, singles, sizeof(singles));
    put_varints(&tensor, 2, true, keys, 2);
    put_tensor(&record, 1, "no shape", 2, &tensor);
    build_field(&tensor, 1, singles, sizeof(singles));
    put_varints(&tensor, 2, true, keys, 1);
    put_varints(&tensor, 3, true, shape, 1);
    put_tensor(&record, 1, "few keys", 2, &tensor);
    build_field(&tensor, 1, singles, sizeof(singles));
    put_varints(&tensor, 2, true, keys, 2);
    put_varints(&tensor, 3, true, shape, 3);
    put_tensor(&record, 1, "huge", 2, &tensor);
    ck_assert_int_eq(
        pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "no shape", &found, &error),
        PL_CORRUPT);
    ck_assert_int_eq(
        pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "few keys", &found, &error),
        PL_CORRUPT);
    ck_assert_ok(pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "huge", &found, &error),
                 &error);
    ck_assert_int_eq(pl_proto_tensor_elements(&found, &elements, &error), PL_LIMIT);
    build_done(&record);
}
END_TEST

START_TEST(bytes_are_a_view_of_the_record)
{
    struct build record = {.data = NULL}, tensor = {.data = NULL};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_proto_tensor found;
    float value;

    build_field(&tensor, 1, "jpeg data", 9);
    build_field(&tensor, 2, "image/jpeg", 10);
    put_tensor(&record, 1, "image", 9, &tensor);
    ck_assert_ok(pl_proto_tensor_find(record.data, record.bytes, PL_PROTO_TENSOR_FEATURES, "image", &found, &error),
                 &error);
    ck_assert_int_eq(found.type, PL_PROTO_TENSOR_BYTES);
    ck_assert_uint_eq(found.message.bytes, 9);
    ck_assert_mem_eq(found.message.data, "jpeg data", 9);
    ck_assert_int_eq(pl_proto_tensor_float32(&found, &value, 1, &error), PL_INVALID);
    build_done(&record);
}
END_TEST

UNIT_MAIN("s3io/proto_tensor", dense_tensors_of_every_type_become_floats, sparse_tensor_is_spread_over_its_shape,
          sparse_tensor_without_shape_or_with_missing_keys_is_corrupt, bytes_are_a_view_of_the_record)
