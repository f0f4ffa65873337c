/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/record_tar.c, s3io/record/fields_tar.c. */
#include "base/clock.h"
#include "s3io/fields.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

#include <stdio.h>

enum { BLOCK = 512, SIZE_AT = 124, SUM_AT = 148 };

/* Writes the checksum into the header at `at`. */
static void seal(struct build *build, size_t at)
{
    char *block = (char *)build->data + at;
    unsigned sum = 0;

    memset(block + SUM_AT, ' ', 8);
    for (unsigned i = 0; i < BLOCK; i++) {
        sum += (unsigned char)block[i];
    }
    snprintf(block + SUM_AT, 8, "%06o", sum & 0777777);
}

/* Appends a member; what stands before a '|' in the name goes into the header's prefix. Returns where its header is. */
static size_t put(struct build *build, const char *name, char type, const void *data, size_t bytes)
{
    static const char zeros[BLOCK];
    const char *bar = strchr(name, '|');
    size_t at = build->bytes;
    char block[BLOCK] = "";

    if (bar) {
        memcpy(block + 345, name, (size_t)(bar - name));
        name = bar + 1;
    }
    memcpy(block, name, strlen(name));
    snprintf(block + 100, 8, "%07o", 0644);
    snprintf(block + SIZE_AT, 12, "%011o", (unsigned)bytes);
    block[156] = type;
    memcpy(block + 257,
           "ustar\0"
           "00",
           8);
    build_bytes(build, block, sizeof(block));
    seal(build, at);
    build_bytes(build, data, bytes);
    build_bytes(build, zeros, -bytes % BLOCK);
    return at;
}

static size_t put_text(struct build *build, const char *name, const char *text)
{
    return put(build, name, '0', text, strlen(text));
}

static void put_end(struct build *build, unsigned blocks)
{
    static const char zeros[BLOCK];

    while (blocks-- > 0) {
        build_bytes(build, zeros, BLOCK);
    }
}

/* Two archives with all that is allowed. */
static struct build make_archives(void)
{
    static const char longer[] = "a/rather/long/folder/0003.seg.png";
    static const unsigned char binary[12] = {0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5};
    struct build build = {.data = NULL};
    size_t at;

    put(&build, "pax_global_header", 'g', "16 comment=text\n", 16);
    put(&build, "data/", '5', "", 0);
    put_text(&build, "README", "no sample");
    put_text(&build, "data/.hidden", "no sample");
    put_text(&build, "data/0001.txt", "one");
    put_text(&build, "data/0001.cls", "7\n");
    put_text(&build, "data/0002.txt", "");
    put(&build, "data/", '5', "", 0);
    put_text(&build, "data/0002.cls", "-8");
    put_text(&build, "data/000.txt", "a shorter key");
    put_text(&build, "data/000.cls", "3");
    put(&build, "././@LongLink", 'L', longer, sizeof(longer));
    put_text(&build, "a/rather/lo", "mask");
    put(&build, "x", 'x', "", 0); /* empty: nothing changes */
    put(&build, "x", 'x', "38 path=a/rather/long/folder/0003.txt\n9 size=5\n", 47);
    at = put(&build, "short", '\0', "three", 5);
    memset(build.data + at + SIZE_AT, '7', 11); /* the pax size counts */
    seal(&build, at);
    at = put(&build, "a/rather/long|folder/0003.cls", '7', "  9\r\n", 5);
    memcpy(build.data + at + SIZE_AT, binary, sizeof(binary));
    seal(&build, at);
    put_end(&build, 3);
    put_text(&build, "a/rather/long/folder/0003.txt", "of another archive");
    put_text(&build, "a/rather/long/folder/0003.cls", "10");
    put_end(&build, 20);
    return build;
}

static const struct {
    const char *key, *text, *mask;
    int64_t label;
} samples[] = {
    {"data/0001", "one", "", 7},
    {"data/0002", "", "", -8},
    {"data/000", "a shorter key", "", 3},
    {"a/rather/long/folder/0003", "three", "mask", 9},
    {"a/rather/long/folder/0003", "of another archive", "", 10},
};

static void expect_text(struct pl_varying *varying, const char *text)
{
    ck_assert_uint_eq(varying->bytes, strlen(text));
    if (varying->bytes) {
        ck_assert_mem_eq(varying->data, text, varying->bytes);
    }
    free(varying->data);
}

/* Decodes sample i of `samples`. */
static void expect_sample(const struct pl_decoder *decoder, const struct pl_record *record, size_t i)
{
    struct pl_varying varying[4] = {{.data = NULL}};
    int64_t label = 0;
    void *rows[4] = {NULL, NULL, NULL, &label};

    ck_ok(pl_decode, decoder, record->data, record->bytes, rows, varying);
    expect_text(&varying[0], samples[i].key);
    expect_text(&varying[1], samples[i].text);
    expect_text(&varying[2], samples[i].mask);
    ck_assert_int_eq(label, samples[i].label);
}

/* Reads all samples; those that `skip` says are skipped. */
static void expect_samples(struct pl_source *source, unsigned skip)
{
    static const struct pl_field fields[] = {
        {.name = "__key__", .type = PL_UINT8, .is_varying = true},
        {.name = "txt", .type = PL_UINT8, .is_varying = true},
        {.name = "seg.png", .type = PL_UINT8, .is_varying = true, .has_default = true},
        {.name = "cls", .type = PL_INT64},
    };
    struct pl_record_options options = {.format = PL_RECORD_TAR, .window_bytes = 64};
    struct pl_record record = {.data = NULL};
    struct pl_record_reader *reader;
    struct pl_decoder *decoder;
    enum pl_status status;
    size_t i = 0;

    ck_ok(pl_decoder_new, PL_FIELDS_TAR, fields, 4, 0, &decoder);
    ck_ok(pl_record_reader_open, source, &options, &reader);
    for (;;) {
        struct pl_error error = PL_ERROR_NONE;

        status = skip >> i & 1 ? pl_record_reader_skip(reader, PL_DEADLINE_NEVER, &error)
                               : pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error);
        if (status == PL_END) {
            break;
        }
        if (status != PL_TIMEOUT) {
            ck_assert_ok(status, &error);
            ck_assert_uint_lt(i, PL_ARRAY_ITEMS(samples));
            if (!(skip >> i & 1)) {
                ck_assert_uint_eq(record.index, i);
                ck_assert_uint_eq(record.offset_bytes % BLOCK, 0);
                expect_sample(decoder, &record, i);
            }
            i++;
        }
    }
    ck_assert_uint_eq(i, PL_ARRAY_ITEMS(samples));
    pl_record_reader_close(reader);
    pl_decoder_free(decoder);
}

TEST(samples_come_back_whatever_the_read_sizes)
{
    static const size_t pieces[] = {1, 7, 512, 513, 1000, 1 << 20};
    struct build build = make_archives();
    struct pl_source *memory;

    for (unsigned i = 0; i < PL_ARRAY_ITEMS(pieces); i++) {
        struct pl_source *drip = drip_new(build.data, build.bytes, pieces[i]);

        expect_samples(drip_new(build.data, build.bytes, pieces[i]), 5 + i);
        ((struct drip *)drip)->timeouts = 1;
        expect_samples(drip, 0);
    }
    ck_ok(pl_source_open_memory, "memory", build.data, build.bytes, &memory);
    expect_samples(memory, 0);
    build_done(&build);
}

/* Reads all of `build`. Returns the status at the end, and how many samples came before. */
static enum pl_status drain(const struct build *build, size_t bytes, size_t most, size_t *ret_samples,
                            struct pl_error *error)
{
    struct pl_record_options options = {.format = PL_RECORD_TAR, .window_bytes = 64, .max_record_bytes = most};
    enum pl_status status = PL_OK;
    struct pl_record_reader *reader;
    struct pl_record record;

    ck_ok(pl_record_reader_open, drip_new(build->data, bytes, 700), &options, &reader);
    for (*ret_samples = 0; status == PL_OK; *ret_samples += status == PL_OK) {
        status = pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, error);
    }
    pl_record_reader_close(reader);
    return status;
}

TEST(archive_cut_anywhere_but_behind_a_member_is_an_error_with_source_and_offset)
{
    static const char content[600] = "second";
    struct build build = {.data = NULL};
    size_t first, second, got;

    put_text(&build, "a.txt", "first");
    first = build.bytes;
    put(&build, "x", 'x', "12 size=600\n", 12);
    put(&build, "b.txt", '0', content, sizeof(content));
    second = build.bytes;
    put_end(&build, 2);
    for (size_t cut = 0; cut <= build.bytes; cut++) {
        bool whole = cut == 0 || cut == first || (cut >= second && cut % BLOCK == 0);
        struct pl_error error = PL_ERROR_NONE;

        ck_assert_int_eq(drain(&build, cut, 0, &got, &error), whole ? PL_END : PL_CORRUPT);
        if (whole) {
            ck_assert_uint_eq(got, cut >= second ? 2 : cut >= first ? 1 : 0);
        } else {
            char at[40];

            snprintf(at, sizeof(at), ", at byte %zu", cut);
            ck_has(error.cause, "'drip': record ");
            ck_has(error.cause, at);
        }
    }
    build_done(&build);
}

/* Expects an error of `build`, which is released. */
static void expect_error(struct build *build, enum pl_status status, const char *words)
{
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];
    size_t got;

    ck_assert_int_eq(drain(build, build->bytes, 0, &got, &error), status);
    pl_error_text(&error, text, sizeof(text));
    ck_has(text, words);
    ck_has(text, "'drip': record ");
    build_done(build);
}

TEST(members_that_are_no_files_are_refused_by_name)
{
    static const struct {
        char type;
        const char *words;
    } cases[] = {
        {'1', "'b.txt' at byte 1024 is a hard link"},
        {'2', "'b.txt' at byte 1024 is a symbolic link"},
        {'3', "'b.txt' at byte 1024 is a device"},
        {'4', "'b.txt' at byte 1024 is a device"},
        {'6', "'b.txt' at byte 1024 is a FIFO"},
        {'S', "'b.txt' at byte 1024 is a sparse file"},
        {'V', "'b.txt' at byte 1024 is of an unknown type"},
    };
    struct build build = {.data = NULL};

    for (unsigned i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        put_text(&build, "a.txt", "text");
        put(&build, "b.txt", cases[i].type, "", 0);
        expect_error(&build, PL_UNSUPPORTED, cases[i].words);
    }
    put(&build, "x", 'x', "22 GNU.sparse.major=1\n", 22);
    put_text(&build, "b.txt", "text");
    expect_error(&build, PL_UNSUPPORTED, "'b.txt' at byte 1024 is a sparse file");
    put(&build, "g", 'g', "16 path=all.txt\n", 16);
    expect_error(&build, PL_UNSUPPORTED, "the global tar header at byte 0 sets the path of all members");
}

TEST(damaged_headers_are_errors_with_offset)
{
    static const char *const pax[] = {"x path=a\n", "9 path=a\n9",  "9 path=a\n99999999999999999999 a=b\n",
                                      "7 path\n",   "9 path=ab",    "0 \n",
                                      "3 =",        "11 path=a\0\n"};
    char name[PL_RECORD_TAR_NAME_BYTES + 1];
    struct build build = {.data = NULL};
    size_t at;

    put_text(&build, "a.txt", "text");
    at = put_text(&build, "b.txt", "text");
    build.data[at + 3] ^= 1;
    expect_error(&build, PL_CORRUPT, "the tar header at byte 1024 has a wrong checksum");
    at = put_text(&build, "a.txt", "text");
    memcpy(build.data + at + SIZE_AT, "0000000000x", 11);
    seal(&build, at);
    expect_error(&build, PL_CORRUPT, "the tar header at byte 0 has a size that is not a number");
    at = put_text(&build, "a.txt", "text");
    memset(build.data + at + SIZE_AT, 0xff, 12);
    seal(&build, at);
    expect_error(&build, PL_CORRUPT, "the tar header at byte 0 has a size that is not a number");
    for (unsigned i = 0; i < PL_ARRAY_ITEMS(pax); i++) {
        put(&build, "x", 'x', pax[i], i == 7 ? 11 : strlen(pax[i]));
        put_text(&build, "a.txt", "text");
        expect_error(&build, PL_CORRUPT, "the tar header at byte 0 ");
    }
    put(&build, "x", 'x', "12 size=0x5\n", 12);
    expect_error(&build, PL_CORRUPT, "the tar header at byte 0 has the size '0x5'");
    put(&build, "x", 'x', "32 size=99999999999999999999999\n", 32);
    expect_error(&build, PL_CORRUPT, "the tar header at byte 0 ");
    memset(name, 'n', sizeof(name));
    put(&build, "././@LongLink", 'L', name, sizeof(name));
    expect_error(&build, PL_LIMIT, "the member at byte 0 has a name of more than 4094 bytes");
    for (int i = 0; i < 9; i++) {
        put(&build, "x", 'x', "", 0);
    }
    expect_error(&build, PL_CORRUPT, "the tar header at byte 4608 comes after 8 headers that extend it");
    put_end(&build, 2);
    put_text(&build, "a.txt", "text");
    put_end(&build, 1);
    put_text(&build, "b.txt", "text");
    expect_error(&build, PL_CORRUPT, "record 1 at byte 2048: a block of zeros, but not two");
    put(&build, "x", 'x', "", 0);
    put_end(&build, 2);
    expect_error(&build, PL_CORRUPT, "the tar header at byte 512 has a wrong checksum");
}

TEST(samples_with_a_repeated_extension_or_too_many_members_are_errors)
{
    struct build build = {.data = NULL};
    char name[40];
    size_t got;

    put_text(&build, "f/a.txt", "");
    put_text(&build, "f/a.seg.txt", "");
    put_text(&build, "g/a.txt", "");
    put_text(&build, "f/a.txt", "");
    ck_assert_int_eq(drain(&build, build.bytes, 0, &got, &(struct pl_error){.cause = ""}), PL_END);
    ck_assert_uint_eq(got, 3);
    put_text(&build, "f/a.txt", "");
    expect_error(&build, PL_CORRUPT, "record 2 at byte 1536: the sample has two members 'f/a.txt'");
    for (int i = 0; i <= 1024; i++) {
        snprintf(name, sizeof(name), "a.%d", i);
        put_text(&build, name, "");
    }
    expect_error(&build, PL_CORRUPT, "the sample has more than 1024 members");
}

TEST(sample_that_is_too_long_is_refused_before_it_is_read)
{
    static const char content[513] = "text";
    struct pl_error error = PL_ERROR_NONE;
    struct build build = {.data = NULL};
    size_t got;

    put_text(&build, "a.txt", "text");
    put(&build, "b.txt", '0', content, sizeof(content));
    ck_assert_int_eq(drain(&build, build.bytes, 1536, &got, &error), PL_END);
    ck_assert_int_eq(drain(&build, build.bytes, 1535, &got, &error), PL_LIMIT);
    ck_assert_uint_eq(got, 1);
    ck_has(error.cause, "record 1 at byte 1024 is longer than 1535 bytes");
    build_done(&build);
}

/* Decodes one field of a sample. */
static enum pl_status decode(const struct build *build, size_t bytes, struct pl_field field, void *row,
                             struct pl_error *error)
{
    struct pl_varying varying = {.data = NULL};
    struct pl_decoder *decoder;
    enum pl_status status;

    ck_ok(pl_decoder_new, PL_FIELDS_TAR, &field, 1, 0, &decoder);
    status = pl_decode(decoder, build->data, bytes, &row, &varying, error);
    free(varying.data);
    pl_decoder_free(decoder);
    return status;
}

#define expect_row(type, value, ...)                                                                                   \
    do {                                                                                                               \
        struct pl_error error_ = PL_ERROR_NONE;                                                                        \
        type row_[2] = {0};                                                                                            \
                                                                                                                       \
        ck_assert_ok(decode(&build, build.bytes, (struct pl_field){__VA_ARGS__}, row_, &error_), &error_);             \
        ck_assert(row_[0] == (value));                                                                                 \
    } while (0)

#define expect_fails(want, words, bytes, ...)                                                                          \
    do {                                                                                                               \
        struct pl_error error_ = PL_ERROR_NONE;                                                                        \
        char row_[64];                                                                                                 \
                                                                                                                       \
        ck_assert_int_eq(decode(&build, bytes, (struct pl_field){__VA_ARGS__}, row_, &error_), want);                  \
        ck_has(error_.cause, words);                                                                                   \
    } while (0)

TEST(one_element_is_a_number_as_text_and_a_shape_takes_the_bytes)
{
    static const float one_half = 0.5F;
    struct build build = {.data = NULL};
    struct pl_decoder *decoder;

    put_text(&build, "0012.cls", "12345678"); /* as long as an int64 */
    put(&build, "0012.w.bin", '0', &one_half, sizeof(one_half));
    put_text(&build, "0012.score", "1.5e3\n");
    put_text(&build, "0012.txt", "");
    expect_row(int64_t, 12345678, .name = "cls", .type = PL_INT64);
    expect_row(int64_t, INT64_C(0x3837363534333231), .name = "cls", .type = PL_INT64, .dims = 1, .shape = {1});
    expect_row(float, 0.5F, .name = "w.bin", .type = PL_FLOAT32, .dims = 1, .shape = {1});
    expect_row(double, 1500, .name = "score", .type = PL_FLOAT64);
    expect_row(int32_t, 12, .name = "__key__", .type = PL_INT32);
    expect_row(int16_t, 4, .name = "bin", .type = PL_INT16, .has_default = true, .default_data = "\4",
               .default_bytes = 2);
    expect_fails(PL_NOT_FOUND, "field 'bin' is missing and has no default, expected int16", build.bytes, .name = "bin",
                 .type = PL_INT16);
    expect_fails(PL_INVALID, "field 'cls': found the integer 12345678, expected uint8", build.bytes, .name = "cls",
                 .type = PL_UINT8);
    expect_fails(PL_INVALID, "field 'txt': found '', expected int32", build.bytes, .name = "txt", .type = PL_INT32);
    expect_fails(PL_INVALID, "field 'cls': found 2 elements, expected float32 [3]", build.bytes, .name = "cls",
                 .type = PL_FLOAT32, .dims = 1, .shape = {3});
    expect_fails(PL_INVALID, "field 'score': found 6 bytes, expected float32, any number", build.bytes, .name = "score",
                 .type = PL_FLOAT32, .is_varying = true);
    for (size_t cut = 1; cut < build.bytes; cut++) {
        expect_fails(cut % 1024 ? PL_CORRUPT : PL_NOT_FOUND, "", cut, .name = "none", .type = PL_INT16);
    }
    put_text(&build, "0013.cls", "1");
    expect_fails(PL_CORRUPT, "field 'cls': the sample has two members of this name", build.bytes, .name = "cls",
                 .type = PL_INT64);
    ck_fails(PL_INVALID, "field 'cls': a member as one element is a number as text", pl_decoder_new, PL_FIELDS_TAR,
             (&(struct pl_field){.name = "cls", .type = PL_BFLOAT16}), 1, 0, &decoder);
    build_done(&build);
}

UNIT_MAIN("s3io/tar")
