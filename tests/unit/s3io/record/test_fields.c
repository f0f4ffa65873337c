/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/fields.c, s3io/record/fields_sink.c, s3io/record/fields_message.c, s3io/record/fields_csv.c. */
#include "s3io/fields.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/record/build.h"

#include <stdio.h>

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

/* Decodes one field of `data`, as it is or with a default. Returns the status; the row or the elements are in `row`. */
static enum pl_status decode(enum pl_field_source source, const struct pl_field *field, const void *data, size_t bytes,
                             void *row, size_t *ret_bytes, struct pl_error *error)
{
    struct pl_varying varying = {.data = NULL};
    struct pl_decoder *decoder;
    enum pl_status status;

    ck_ok(pl_decoder_new, source, field, 1, 0, &decoder);
    ck_assert_uint_eq(pl_decoder_count(decoder), 1);
    ck_assert(pl_decoder_is_varying(decoder, 0) == field->is_varying);
    *ret_bytes = pl_decoder_row_bytes(decoder, 0);
    status = pl_decode(decoder, data, bytes, &row, &varying, error);
    if (field->is_varying) {
        *ret_bytes = varying.bytes;
        if (varying.bytes) {
            memcpy(row, varying.data, varying.bytes);
        }
    }
    free(varying.data);
    pl_decoder_free(decoder);
    return status;
}

#define expect_fails(want, words, source, data, bytes, ...)                                                            \
    do {                                                                                                               \
        struct pl_field field_ = {__VA_ARGS__};                                                                        \
        unsigned char row_[4096];                                                                                      \
        struct pl_error error_ = PL_ERROR_NONE;                                                                        \
        size_t bytes_;                                                                                                 \
                                                                                                                       \
        ck_assert_int_eq(decode(source, &field_, data, bytes, row_, &bytes_, &error_), want);                          \
        ck_has(error_.cause, words);                                                                                   \
    } while (0)

#define expect_row(source, data, bytes, expected, ...)                                                                 \
    do {                                                                                                               \
        struct pl_field field_ = {__VA_ARGS__};                                                                        \
        unsigned char row_[4096];                                                                                      \
        struct pl_error error_ = PL_ERROR_NONE;                                                                        \
        size_t bytes_;                                                                                                 \
                                                                                                                       \
        ck_assert_ok(decode(source, &field_, data, bytes, row_, &bytes_, &error_), &error_);                           \
        ck_assert_uint_eq(bytes_, sizeof(expected));                                                                   \
        ck_assert_mem_eq(row_, expected, bytes_);                                                                      \
    } while (0)

TEST(features_of_all_kinds_are_rows_packed_or_not)
{
    static const float floats[3] = {1.5F, -2.0F, 1e30F};
    static const double wide[3] = {1.5, -2.0, (double)1e30F};
    static const int64_t integers[3] = {7, -5, INT64_C(1) << 62};
    struct build e = make_example();

    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, floats, .name = "weights", .type = PL_FLOAT32, .dims = 1,
               .shape = {3});
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, floats, .name = "loose", .type = PL_FLOAT32, .is_varying = true);
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, wide, .name = "loose", .type = PL_FLOAT64, .dims = 2,
               .shape = {1, 3});
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, integers, .name = "label", .type = PL_INT64, .dims = 1,
               .shape = {3});
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, ((char[]){'h', 'e', 'l', 'l', 'o'}), .name = "image",
               .type = PL_UINT8, .dims = 1, .shape = {5});
    build_done(&e);
}

TEST(field_that_differs_is_named_with_what_was_found_and_expected)
{
    struct build e = make_example();

    expect_fails(PL_INVALID, "field 'image': found 5 elements, expected uint8 [2, 3]", PL_FIELDS_EXAMPLE, e.data,
                 e.bytes, .name = "image", .type = PL_UINT8, .dims = 2, .shape = {2, 3});
    expect_fails(PL_INVALID, "field 'image': found 5 bytes, expected float32, any number", PL_FIELDS_EXAMPLE, e.data,
                 e.bytes, .name = "image", .type = PL_FLOAT32, .is_varying = true);
    expect_fails(PL_INVALID, "field 'words': found several values of bytes, expected uint8", PL_FIELDS_EXAMPLE, e.data,
                 e.bytes, .name = "words", .type = PL_UINT8, .is_varying = true);
    expect_fails(PL_INVALID, "field 'weights': found 32-bit floats, expected int64 [3]", PL_FIELDS_EXAMPLE, e.data,
                 e.bytes, .name = "weights", .type = PL_INT64, .dims = 1, .shape = {3});
    expect_fails(PL_INVALID, "field 'weights': found 3 elements, expected float32 [2]", PL_FIELDS_EXAMPLE, e.data,
                 e.bytes, .name = "weights", .type = PL_FLOAT32, .dims = 1, .shape = {2});
    expect_fails(PL_INVALID, "field 'label': found integers, expected float32", PL_FIELDS_EXAMPLE, e.data, e.bytes,
                 .name = "label", .type = PL_FLOAT32, .is_varying = true);
    expect_fails(PL_INVALID, "field 'label': found the integer -5, expected uint8, any number", PL_FIELDS_EXAMPLE,
                 e.data, e.bytes, .name = "label", .type = PL_UINT8, .is_varying = true);
    expect_fails(PL_INVALID, "field 'label': found the integer 7, expected bool", PL_FIELDS_EXAMPLE, e.data, e.bytes,
                 .name = "label", .type = PL_BOOL, .is_varying = true);
    expect_fails(PL_INVALID, "field 'empty': found a list of bytes without a value", PL_FIELDS_EXAMPLE, e.data, e.bytes,
                 .name = "empty", .type = PL_UINT8, .is_varying = true);
    expect_fails(PL_NOT_FOUND, "field 'absent' is missing and has no default, expected int16", PL_FIELDS_EXAMPLE,
                 e.data, e.bytes, .name = "absent", .type = PL_INT16);
    build_done(&e);
}

TEST(default_fills_a_row_or_is_one)
{
    static const int32_t four[4] = {9, 9, 9, 9}, row[2] = {1, 2};
    struct build e = make_example();

    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, four, .name = "absent", .type = PL_INT32, .dims = 2, .shape = {2, 2},
               .has_default = true, .default_data = four, .default_bytes = 4);
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, row, .name = "absent", .type = PL_INT32, .dims = 1, .shape = {2},
               .has_default = true, .default_data = row, .default_bytes = 8);
    expect_row(PL_FIELDS_EXAMPLE, e.data, e.bytes, row, .name = "absent", .type = PL_INT32, .is_varying = true,
               .has_default = true, .default_data = row, .default_bytes = 8);
    build_done(&e);
}

TEST(one_walk_finds_all_fields_in_any_order_and_the_last_of_one_name_counts)
{
    static const struct pl_field fields[] = {
        {.name = "label", .type = PL_INT64, .dims = 1, .shape = {3}},
        {.name = "text", .type = PL_UINT8, .is_varying = true},
        {.name = "weights", .type = PL_FLOAT32, .dims = 1, .shape = {3}},
        {.name = "image", .type = PL_UINT8, .is_varying = true},
    };
    struct build e = make_example(), features = {.data = NULL}, list = {.data = NULL};
    struct pl_varying varying[4] = {{.data = NULL}};
    struct pl_decoder *decoder;
    int64_t labels[3];
    float weights[3];
    void *rows[4] = {labels, NULL, weights, NULL};

    build_field(&list, 1, "newer", 5); /* another piece of the message, as merged messages have */
    put_feature(&features, "image", 1, &list);
    build_field(&list, 1, "ok", 2);
    put_feature(&features, "text", 1, &list);
    build_message(&e, 1, &features);
    ck_ok(pl_decoder_new, PL_FIELDS_EXAMPLE, fields, 4, 0, &decoder);
    for (int i = 0; i < 2; i++) {
        ck_ok(pl_decode, decoder, e.data, e.bytes, rows, varying);
    }
    ck_assert(labels[1] == -5 && weights[2] == 1e30F);
    ck_assert_uint_eq(varying[3].bytes, 10);
    ck_assert_mem_eq(varying[3].data, "newernewer", 10);
    ck_assert_mem_eq(varying[1].data, "okok", 4);
    free(varying[1].data);
    free(varying[3].data);
    pl_decoder_free(decoder);
    build_done(&e);
}

TEST(cut_message_is_corrupt_at_every_length)
{
    struct build example = make_example();

    for (size_t cut = 1; cut < example.bytes; cut++) {
        unsigned char *copy = malloc(cut);

        memcpy(copy, example.data, cut);
        expect_fails(PL_CORRUPT, "expected a tf.Example message", PL_FIELDS_EXAMPLE, copy, cut, .name = "absent",
                     .type = PL_UINT8);
        free(copy);
    }
    build_done(&example);
}

/* Adds the tensor `values` of kind `kind` to a map of a Record: 1 the features, 2 the label. */
static void put_tensor(struct build *record, unsigned map, unsigned kind, const void *values, size_t bytes, bool sparse)
{
    struct build tensor = {.data = NULL}, value = {.data = NULL}, entry = {.data = NULL};

    build_field(&tensor, 1, values, bytes);
    if (sparse) {
        build_field(&tensor, 2, "\x05", 1);
    }
    build_message(&value, kind, &tensor);
    build_field(&entry, 1, "values", 6);
    build_message(&entry, 2, &value);
    build_message(record, map, &entry);
}

TEST(tensors_of_sagemakers_records_are_rows_and_sparse_ones_are_refused)
{
    static const float floats[2] = {0.5F, 3};
    static const double label[1] = {4};
    static const int32_t whole[2] = {1, 300};
    struct build r = {.data = NULL}, s = {.data = NULL};

    put_tensor(&r, 1, 2, floats, sizeof(floats), false);
    put_tensor(&r, 2, 3, label, sizeof(label), false);
    expect_row(PL_FIELDS_PROTOBUF, r.data, r.bytes, floats, .name = "values", .type = PL_FLOAT32, .dims = 1,
               .shape = {2});
    expect_row(PL_FIELDS_PROTOBUF, r.data, r.bytes, label, .name = "label", .type = PL_FLOAT64);
    expect_fails(PL_INVALID, "found 64-bit floats, expected float32", PL_FIELDS_PROTOBUF, r.data, r.bytes,
                 .name = "label", .type = PL_FLOAT32);
    put_tensor(&s, 1, 7, "\x01\xac\x02", 3, false);
    expect_row(PL_FIELDS_PROTOBUF, s.data, s.bytes, whole, .name = "values", .type = PL_INT32, .is_varying = true);
    build_done(&s);
    put_tensor(&s, 1, 9, "jpeg", 4, false);
    expect_row(PL_FIELDS_PROTOBUF, s.data, s.bytes, ((char[]){'j', 'p', 'e', 'g'}), .name = "values", .type = PL_UINT8,
               .is_varying = true);
    build_done(&s);
    put_tensor(&s, 1, 2, floats, sizeof(floats), true);
    expect_fails(PL_UNSUPPORTED, "field 'values' is a sparse tensor", PL_FIELDS_PROTOBUF, s.data, s.bytes,
                 .name = "values", .type = PL_FLOAT32, .is_varying = true);
    expect_fails(PL_CORRUPT, "expected a RecordIO-protobuf message", PL_FIELDS_PROTOBUF, s.data, s.bytes - 1,
                 .name = "values", .type = PL_FLOAT32, .is_varying = true);
    build_done(&s);
    build_done(&r);
}

static void csv(const char *line, const char *column, enum pl_dtype type, const void *expected, size_t bytes)
{
    struct pl_field field = {.name = column, .type = type};
    struct pl_error error = PL_ERROR_NONE;
    unsigned char row[8];
    size_t got;

    ck_assert_ok(decode(PL_FIELDS_CSV, &field, line, strlen(line), row, &got, &error), &error);
    ck_assert_msg(got == bytes && memcmp(row, expected, bytes) == 0, "column %s of %s", column, line);
}

TEST(numbers_of_csv_are_those_of_strtod)
{
    static const char *const texts[] = {"0",       "-0",
                                        "1",       "3.25",
                                        "-17.5e3", "1e22",
                                        "1e-22",   "123456789012345",
                                        "0.1",     "1e23",
                                        "5e-324",  "1e308",
                                        "inf",     "nan",
                                        ".5",      "5.",
                                        "+7",      "1234567890123456789",
                                        "1E+05",   "0x1p3",
                                        "1e00005", "2e-05",
                                        " 4 ",     "\"2.5\"",
                                        "1.0e-3",  "0.30000000000000004"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char line[80];
        double wide = strtod(texts[i] + (texts[i][0] == '"'), NULL);
        float narrow = (float)wide;

        snprintf(line, sizeof(line), "a,%s,b", texts[i]);
        csv(line, "1", PL_FLOAT64, &wide, sizeof(wide));
        csv(line, "1", PL_FLOAT32, &narrow, sizeof(narrow));
    }
    csv("9223372036854775807,-9223372036854775808", "0", PL_INT64, &(int64_t){INT64_MAX}, 8);
    csv("9223372036854775807,-9223372036854775808", "1", PL_INT64, &(int64_t){INT64_MIN}, 8);
    csv("\xef\xbb\xbf-128", "0", PL_INT8, &(int8_t){-128}, 1);
    csv("255,x", "0", PL_UINT8, &(uint8_t){255}, 1);
}

TEST(columns_of_csv_are_rows_and_texts)
{
    static const float row[3] = {1, 7, 3};
    static const char line[] = "x,1,,3,\"say \"\"hi\"\", you\",";

    expect_row(PL_FIELDS_CSV, line, strlen(line), row, .name = "1", .type = PL_FLOAT32, .dims = 1, .shape = {3},
               .has_default = true, .default_data = &row[1], .default_bytes = 4);
    expect_row(PL_FIELDS_CSV, line, strlen(line),
               ((char[]){'s', 'a', 'y', ' ', '"', 'h', 'i', '"', ',', ' ', 'y', 'o', 'u'}), .name = "4",
               .type = PL_UINT8, .is_varying = true);
    expect_row(PL_FIELDS_CSV, line, strlen(line), ((char[]){'-'}), .name = "5", .type = PL_UINT8, .is_varying = true,
               .has_default = true, .default_data = "-", .default_bytes = 1);
    expect_fails(PL_NOT_FOUND, "field '1': column 2 is empty", PL_FIELDS_CSV, line, strlen(line), .name = "1",
                 .type = PL_FLOAT32, .dims = 1, .shape = {3});
    expect_fails(PL_INVALID, "field '0': found 'x', expected float64", PL_FIELDS_CSV, line, strlen(line), .name = "0",
                 .type = PL_FLOAT64);
    expect_fails(PL_INVALID, "found 6 columns, expected at least 8", PL_FIELDS_CSV, line, strlen(line), .name = "7",
                 .type = PL_INT32);
    expect_fails(PL_INVALID, "found '9223372036854775808', expected int64", PL_FIELDS_CSV, "9223372036854775808", 19,
                 .name = "0", .type = PL_INT64);
    expect_row(PL_FIELDS_CSV, "\"1\" \t,2", 7, ((int32_t[]){1, 2}), .name = "0", .type = PL_INT32, .dims = 1,
               .shape = {2});
    expect_fails(PL_INVALID, "column 1 has text after its closing quote, expected the delimiter ','", PL_FIELDS_CSV,
                 "1,\"2\"3,4", 8, .name = "2", .type = PL_INT32);
    expect_fails(PL_INVALID, "found '1.5', expected int64", PL_FIELDS_CSV, "1.5", 3, .name = "0", .type = PL_INT64);
}

TEST(record_itself_is_a_field)
{
    static const int16_t pair[2] = {1, -2};

    expect_row(PL_FIELDS_RECORD, pair, sizeof(pair), pair, .name = "any", .type = PL_INT16, .dims = 1, .shape = {2});
    expect_row(PL_FIELDS_RECORD, pair, sizeof(pair), pair, .type = PL_UINT8, .is_varying = true);
    expect_fails(PL_INVALID, "found 2 elements, expected int16", PL_FIELDS_RECORD, pair, sizeof(pair),
                 .type = PL_INT16);
}

TEST(fields_that_cannot_be_are_refused)
{
    static const struct {
        enum pl_field_source source;
        struct pl_field fields[2];
        size_t count;
        const char *words;
    } cases[] = {
        {PL_FIELDS_EXAMPLE, {{.name = "a"}}, 0, "0 fields: expected 1 to 256"},
        {PL_FIELDS_RECORD, {{.name = "a"}, {.name = "b"}}, 2, "2 fields: expected 1, the record itself"},
        {PL_FIELDS_EXAMPLE, {{.name = "a"}, {.name = "a"}}, 2, "field 'a': two fields have this name"},
        {PL_FIELDS_EXAMPLE, {{.name = "a", .type = PL_DTYPE_COUNT}}, 1, "field 'a': unknown type 10"},
        {PL_FIELDS_EXAMPLE, {{.name = "a", .dims = 9}}, 1, "field 'a': at most 8 dimensions"},
        {PL_FIELDS_EXAMPLE, {{.name = "a", .dims = 1, .is_varying = true}}, 1, "a varying field has no shape"},
        {PL_FIELDS_EXAMPLE, {{.name = "a", .dims = 1}}, 1, "the shape has no elements"},
        {PL_FIELDS_EXAMPLE, {{.name = "a", .dims = 2, .shape = {1U << 31, 1U << 31}}}, 1, "larger than 1 TiB"},
        {PL_FIELDS_EXAMPLE,
         {{.name = "a", .has_default = true, .default_data = "abc", .default_bytes = 3}},
         1,
         "the default is not one element, or a whole row"},
        {PL_FIELDS_CSV, {{.name = "a"}}, 1, "field 'a': the name of a field of CSV is the number of its first column"},
        {PL_FIELDS_CSV, {{.name = "0", .is_varying = true}}, 1, "field '0': CSV gives numbers"},
        {PL_FIELDS_CSV, {{.name = "0", .type = PL_FLOAT16}}, 1, "field '0': CSV gives numbers"},
        {PL_FIELDS_CSV,
         {{.name = "0", .dims = 1, .shape = {3}}, {.name = "2"}},
         2,
         "column 2 belongs to field '0', too"},
        {PL_FIELDS_CSV, {{.name = "0", .dims = 1, .shape = {2000000}}}, 1, "more than a million columns"},
        {(enum pl_field_source)9, {{.name = "a"}}, 1, "unknown source of fields 9"},
    };
    struct pl_decoder *decoder;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_fails(PL_INVALID, cases[i].words, pl_decoder_new, cases[i].source, cases[i].fields, cases[i].count, 0,
                 &decoder);
    }
}

UNIT_MAIN("s3io/fields")
