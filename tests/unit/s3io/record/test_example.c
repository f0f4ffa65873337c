/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/example.c. */
#include "s3io/record/record_formats.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/record/build.h"

/* Adds one entry of the feature map: a list of kind `kind` with the content `list`. */
static void put_feature(struct build *features, const char *name, unsigned kind, struct build *list)
{
    struct build feature = {.data = NULL}, entry = {.data = NULL};

    build_message(&feature, kind, list);
    build_field(&entry, 1, name, strlen(name));
    build_message(&entry, 2, &feature);
    build_message(features, 1, &entry);
}

static struct build make_example(void)
{
    static const float floats[3] = {1.5F, -2.0F, 1e30F};
    struct build example = {.data = NULL}, features = {.data = NULL}, list = {.data = NULL}, packed = {.data = NULL};

    build_field(&list, 1, "hello", 5);
    put_feature(&features, "image", 1, &list);
    build_field(&list, 1, "a", 1);
    build_field(&list, 1, "", 0);
    put_feature(&features, "words", 1, &list);
    build_field(&list, 1, floats, sizeof(floats));
    put_feature(&features, "weights", 2, &list);
    for (int i = 0; i < 3; i++) { /* not packed */
        build_varint(&list, 1 << 3 | 5);
        build_bytes(&list, &floats[i], 4);
    }
    put_feature(&features, "loose", 2, &list);
    build_varint(&packed, 7);
    build_varint(&packed, UINT64_MAX - 4);
    build_message(&list, 1, &packed);
    build_varint(&list, 1 << 3 | 0); /* and another value that is not packed */
    build_varint(&list, UINT64_C(1) << 62);
    put_feature(&features, "label", 3, &list);
    put_feature(&features, "empty", 1, &list);
    build_message(&example, 1, &features);
    return example;
}

TEST(features_are_found_and_decoded_packed_or_not)
{
    struct build example = make_example();
    struct pl_example_feature feature;
    struct pl_view value, values[2];
    int64_t integers[3];
    float floats[3];
    size_t count;

    ck_ok(pl_example_find, example.data, example.bytes, "image", &feature);
    ck_ok(pl_example_bytes, &feature, &value);
    ck_assert_uint_eq(value.bytes, 5);
    ck_assert_mem_eq(value.data, "hello", 5);
    ck_assert(value.data > example.data && value.data < example.data + example.bytes);
    ck_ok(pl_example_find, example.data, example.bytes, "words", &feature);
    ck_ok(pl_example_bytes_list, &feature, values, 2, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(values[1].bytes, 0);
    ck_fails(PL_LIMIT, "", pl_example_bytes, &feature, &value);
    for (int i = 0; i < 2; i++) {
        ck_ok(pl_example_find, example.data, example.bytes, i ? "weights" : "loose", &feature);
        ck_ok(pl_example_float32, &feature, floats, 3, &count);
        ck_assert_uint_eq(count, 3);
        ck_assert(floats[1] == -2.0F);
        ck_assert(floats[2] == 1e30F);
        ck_fails(PL_LIMIT, "", pl_example_float32, &feature, floats, 2, &count);
        ck_fails(PL_INVALID, "", pl_example_int64, &feature, integers, 3, &count);
    }
    ck_ok(pl_example_find, example.data, example.bytes, "label", &feature);
    ck_ok(pl_example_int64, &feature, integers, 3, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(integers[0], 7);
    ck_assert_int_eq(integers[1], -5);
    ck_assert_int_eq(integers[2], INT64_C(1) << 62);
    ck_ok(pl_example_find, example.data, example.bytes, "empty", &feature);
    ck_fails(PL_INVALID, "", pl_example_bytes, &feature, &value);
    ck_fails(PL_NOT_FOUND, "", pl_example_find, example.data, example.bytes, "absent", &feature);
    build_done(&example);
}

TEST(walk_gives_every_feature_in_order)
{
    static const char *const names[] = {"image", "words", "weights", "loose", "label", "empty"};
    struct build example = make_example();
    struct pl_example_walk walk = {.started = false};
    struct pl_example_feature feature;

    for (int i = 0; i < 6; i++) {
        ck_ok(pl_example_next, &walk, example.data, example.bytes, &feature);
        ck_assert_uint_eq(feature.name.bytes, strlen(names[i]));
        ck_assert_mem_eq(feature.name.data, names[i], feature.name.bytes);
    }
    ck_fails(PL_END, "", pl_example_next, &walk, example.data, example.bytes, &feature);
    build_done(&example);
}

TEST(last_of_several_with_one_name_counts)
{
    struct build example = {.data = NULL}, features = {.data = NULL}, list = {.data = NULL};
    struct pl_example_feature feature;
    struct pl_view value;

    build_field(&list, 1, "old", 3);
    put_feature(&features, "x", 1, &list);
    build_message(&example, 1, &features);
    build_field(&list, 1, "newer", 5);
    put_feature(&features, "x", 1, &list);
    build_message(&example, 1, &features);
    ck_ok(pl_example_find, example.data, example.bytes, "x", &feature);
    ck_ok(pl_example_bytes, &feature, &value);
    ck_assert_mem_eq(value.data, "newer", 5);
    build_done(&example);
}

TEST(cut_message_is_corrupt_at_every_length)
{
    struct build example = make_example();
    struct pl_example_feature feature;

    for (size_t cut = 1; cut < example.bytes; cut++) {
        unsigned char *copy = malloc(cut);

        memcpy(copy, example.data, cut);
        ck_fails(PL_CORRUPT, "", pl_example_find, copy, cut, "absent", &feature);
        free(copy);
    }
    build_done(&example);
}

UNIT_MAIN("s3io/example")
