/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/record.c, s3io/record/record_recordio.c, s3io/record/record_text.c,
 * s3io/record/record_tfrecord.c. */
#include "base/clock.h"
#include "s3io/fields.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

static void close_reader(struct pl_record_reader **reader)
{
    pl_record_reader_close(*reader);
}

#define AUTO_READER __attribute__((cleanup(close_reader)))

enum { COUNT = 40 };

static const size_t pieces[] = {1, 2, 3, 5, 13, 64, 1000, 1 << 20};

/* Makes record i, of i * i % 211 bytes; some are empty, some have magic words, aligned or not. */
static size_t make_record(unsigned i, unsigned char *data)
{
    static const unsigned char magic[4] = {0x0a, 0x23, 0xd7, 0xce};
    size_t bytes = i * i % 211;

    for (size_t at = 0; at < bytes; at++) {
        data[at] = (unsigned char)(at * 3 + i);
    }
    for (size_t at = i % 7; at + 4 <= bytes; at += 4 * (1 + i % 3)) {
        if (i % 4 == 0) {
            memcpy(data + at, magic, 4);
        }
    }
    return bytes;
}

static struct build make_stream(enum pl_record_format format)
{
    struct build build = {.data = NULL};
    unsigned char data[256];

    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes = make_record(i, data);

        if (format == PL_RECORD_TFRECORD) {
            build_tfrecord(&build, data, bytes);
        } else {
            build_recordio(&build, data, bytes);
        }
    }
    return build;
}

static struct pl_record_reader *open_reader(struct pl_source *source, const struct pl_record_options *options)
{
    struct pl_record_reader *reader;

    ck_ok(pl_record_reader_open, source, options, &reader);
    return reader;
}

static void check_all(enum pl_record_format format, struct pl_source *source, bool timeouts)
{
    struct pl_record_options options = {.format = format, .window_bytes = 64};
    AUTO_READER struct pl_record_reader *reader = open_reader(source, &options);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record record;
    unsigned char data[256];
    uint64_t total = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes = make_record(i, data);
        enum pl_status status;

        do {
            status = pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error);
        } while (timeouts && status == PL_TIMEOUT);
        ck_assert_ok(status, &error);
        ck_assert_uint_eq(record.index, i);
        ck_assert_uint_eq(record.bytes, bytes);
        if (bytes) {
            ck_assert_mem_eq(record.data, data, bytes);
        }
        total += bytes;
    }
    while (timeouts && pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error) == PL_TIMEOUT) {
    }
    ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
    ck_assert_uint_eq(pl_record_reader_counts(reader).records, COUNT);
    ck_assert_uint_eq(pl_record_reader_counts(reader).record_bytes, total);
    ck_assert_uint_eq(pl_record_reader_counts(reader).skipped, 0);
}

TEST(binary_records_come_back_whatever_the_read_sizes)
{
    for (int format = PL_RECORD_TFRECORD; format <= PL_RECORD_RECORDIO; format++) {
        struct build stream = make_stream((enum pl_record_format)format);
        struct pl_source *memory;

        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
            struct pl_source *drip = drip_new(stream.data, stream.bytes, pieces[i]);

            check_all((enum pl_record_format)format, drip, false);
            drip = drip_new(stream.data, stream.bytes, pieces[i]);
            ((struct drip *)drip)->timeouts = 1;
            check_all((enum pl_record_format)format, drip, true);
        }
        ck_ok(pl_source_open_memory, "memory", stream.data, stream.bytes, &memory);
        check_all((enum pl_record_format)format, memory, false);
        build_done(&stream);
    }
}

TEST(skipped_records_keep_their_numbers)
{
    for (int format = PL_RECORD_TFRECORD; format <= PL_RECORD_RECORDIO; format++) {
        struct build stream = make_stream((enum pl_record_format)format);
        struct pl_record_options options = {.format = (enum pl_record_format)format, .window_bytes = 64};
        struct pl_record_reader *reader = open_reader(drip_new(stream.data, stream.bytes, 50), &options);
        struct pl_record record;
        unsigned char data[256];

        for (unsigned i = 0; i < COUNT; i++) {
            if (i % 3) {
                ck_ok(pl_record_reader_skip, reader, PL_DEADLINE_NEVER);
                continue;
            }
            ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
            ck_assert_uint_eq(record.index, i);
            ck_assert_uint_eq(record.bytes, make_record(i, data));
        }
        ck_fails(PL_END, "", pl_record_reader_skip, reader, PL_DEADLINE_NEVER);
        pl_record_reader_close(reader);
        build_done(&stream);
    }
}

/* Whether a record ends there, so that the stream may end there too. */
static bool is_boundary(enum pl_record_format format, size_t cut)
{
    struct build build = {.data = NULL};
    unsigned char data[256];
    bool boundary = false;

    for (unsigned i = 0; i < COUNT && build.bytes < cut; i++) {
        size_t bytes = make_record(i, data);

        if (format == PL_RECORD_TFRECORD) {
            build_tfrecord(&build, data, bytes);
        } else {
            build_recordio(&build, data, bytes);
        }
        boundary = build.bytes == cut;
    }
    build_done(&build);
    return boundary || cut == 0;
}

static enum pl_status drain(struct pl_record_reader *reader, bool skip, struct pl_error *error)
{
    struct pl_record record;
    enum pl_status status = PL_OK;

    for (unsigned i = 0; status == PL_OK; i++) {
        status = skip && i % 2 ? pl_record_reader_skip(reader, PL_DEADLINE_NEVER, error)
                               : pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, error);
    }
    return status;
}

TEST(stream_cut_inside_a_record_is_an_error_with_source_and_offset_and_never_a_short_epoch)
{
    for (int format = PL_RECORD_TFRECORD; format <= PL_RECORD_RECORDIO; format++) {
        struct build stream = make_stream((enum pl_record_format)format);

        for (size_t cut = 0; cut < 700; cut++) {
            for (int skip = 0; skip < 2; skip++) {
                struct pl_record_options options = {.format = (enum pl_record_format)format, .window_bytes = 64};
                struct pl_record_reader *reader = open_reader(drip_new(stream.data, cut, 4096), &options);
                struct pl_error error = PL_ERROR_NONE;
                enum pl_status status = drain(reader, skip, &error);

                ck_assert_int_eq(status, is_boundary((enum pl_record_format)format, cut) ? PL_END : PL_CORRUPT);
                if (status == PL_CORRUPT) {
                    ck_has(error.cause, "'drip': record ");
                    ck_has(error.cause, " at byte ");
                    ck_assert_int_ne(drain(reader, skip, &error), PL_END);
                }
                pl_record_reader_close(reader);
            }
        }
        build_done(&stream);
    }
}

TEST(tfrecord_with_any_flipped_bit_is_found)
{
    struct build stream = {.data = NULL};

    build_tfrecord(&stream, "first", 5);
    build_tfrecord(&stream, "second record", 13);
    for (size_t bit = 0; bit < stream.bytes * 8; bit++) {
        struct pl_record_options options = {.format = PL_RECORD_TFRECORD};
        struct pl_record_reader *reader;

        stream.data[bit / 8] ^= (unsigned char)(1U << bit % 8);
        reader = open_reader(drip_new(stream.data, stream.bytes, 4096), &options);
        ck_fails(PL_CORRUPT, "", drain, reader, false);
        pl_record_reader_close(reader);
        stream.data[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    build_done(&stream);
}

/* If one byte is damaged anywhere, skipping loses that record (with RecordIO also neighbours that a damaged length
 * covers) and counts it. */
TEST(skipping_leaves_out_what_is_damaged_counts_it_and_goes_on)
{
    for (int format = PL_RECORD_TFRECORD; format <= PL_RECORD_RECORDIO; format++) {
        struct build stream = {.data = NULL};
        unsigned char data[20];

        for (unsigned i = 0; i < 12; i++) {
            memset(data, (int)i, sizeof(data));
            if (format == PL_RECORD_TFRECORD) {
                build_tfrecord(&stream, data, sizeof(data));
            } else {
                build_recordio(&stream, data, sizeof(data));
            }
        }
        for (size_t at = 0; at < stream.bytes; at++) {
            struct pl_record_options options = {
                .format = (enum pl_record_format)format, .skip_corrupt = true, .max_record_bytes = 1000};
            struct pl_record_reader *reader;
            struct pl_error error = PL_ERROR_NONE;
            struct pl_record record;
            enum pl_status status;
            unsigned whole = 0;

            stream.data[at] ^= 0x55;
            reader = open_reader(drip_new(stream.data, stream.bytes, 4096), &options);
            while ((status = pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error)) == PL_OK) {
                whole += record.bytes == sizeof(data) && record.data[0] == record.data[sizeof(data) - 1];
            }
            if (status == PL_LIMIT) {
                ck_assert_int_eq(format, PL_RECORD_RECORDIO); /* the length is not protected */
            } else {
                ck_assert_int_eq(status, PL_END);
                ck_assert_uint_ge(whole, 8); /* RecordIO: a larger length covers up to three neighbours */
                if (format == PL_RECORD_TFRECORD) {
                    ck_assert_uint_eq(whole, 11);
                    ck_assert_uint_eq(pl_record_reader_counts(reader).skipped, 1);
                    ck_assert_uint_ge(pl_record_reader_counts(reader).skipped_bytes, 30);
                }
            }
            pl_record_reader_close(reader);
            stream.data[at] ^= 0x55;
        }
        build_done(&stream);
    }
}

TEST(cut_end_is_counted_when_skipping)
{
    struct build stream = {.data = NULL};

    build_tfrecord(&stream, "first", 5);
    build_tfrecord(&stream, "second", 6);
    for (int skip = 0; skip < 2; skip++) {
        struct pl_record_options options = {.format = PL_RECORD_TFRECORD, .skip_corrupt = true};
        struct pl_record_reader *reader = open_reader(drip_new(stream.data, stream.bytes - 3, 4096), &options);

        ck_fails(PL_END, "", drain, reader, skip);
        ck_assert_uint_eq(pl_record_reader_counts(reader).skipped, 1);
        pl_record_reader_close(reader);
    }
    build_done(&stream);
}

TEST(length_beyond_the_limit_is_refused_without_memory_for_it)
{
    struct build stream = {.data = NULL};
    struct pl_record_options options = {.format = PL_RECORD_TFRECORD};
    struct pl_record_reader *reader;

    build_le(&stream, UINT64_C(1) << 60, 8);
    build_le(&stream, build_masked(stream.data, 8), 4);
    reader = open_reader(drip_new(stream.data, stream.bytes, 4096), &options);
    ck_fails(PL_LIMIT, "", drain, reader, false);
    pl_record_reader_close(reader);
    build_done(&stream);

    build_recordio(&stream, "0123456789", 10);
    options = (struct pl_record_options){.format = PL_RECORD_RECORDIO, .max_record_bytes = 9};
    reader = open_reader(drip_new(stream.data, stream.bytes, 4096), &options);
    ck_fails(PL_LIMIT, "", drain, reader, false);
    pl_record_reader_close(reader);
    build_done(&stream);
}

TEST(parts_are_joined_by_either_rule)
{
    static const unsigned char with_magic[] = {'a', 'b', 'c', 'd', 0x0a, 0x23, 0xd7, 0xce, 'e', 'f'};
    struct build stream = {.data = NULL};

    build_recordio_part(&stream, 1, "abcd", 4);
    build_recordio_part(&stream, 3, "ef", 2);
    for (int join = PL_RECORD_JOIN_DMLC; join <= PL_RECORD_JOIN_CONCAT; join++) {
        struct pl_record_options options = {.format = PL_RECORD_RECORDIO, .join = (enum pl_record_join)join};
        struct pl_record_reader *reader = open_reader(drip_new(stream.data, stream.bytes, 3), &options);
        struct pl_record record;

        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        if (join == PL_RECORD_JOIN_DMLC) {
            ck_assert_uint_eq(record.bytes, sizeof(with_magic));
            ck_assert_mem_eq(record.data, with_magic, sizeof(with_magic));
        } else {
            ck_assert_uint_eq(record.bytes, 6);
            ck_assert_mem_eq(record.data, "abcdef", 6);
        }
        ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        pl_record_reader_close(reader);
    }
    build_done(&stream);
}

TEST(parts_out_of_their_order_are_corrupt)
{
    static const unsigned orders[][3] = {{2, 3, 0}, {3, 0, 0}, {1, 0, 0}, {1, 1, 3}, {1, 2, 0}, {4, 0, 0}};

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct pl_record_options options = {.format = PL_RECORD_RECORDIO};
        struct build stream = {.data = NULL};
        struct pl_record_reader *reader;

        for (size_t part = 0; part < 3; part++) {
            build_recordio_part(&stream, orders[i][part], "abcd", 4);
        }
        reader = open_reader(drip_new(stream.data, stream.bytes, 4096), &options);
        ck_fails(PL_CORRUPT, "", drain, reader, false);
        pl_record_reader_close(reader);
        build_done(&stream);
    }
}

static void check_text(enum pl_record_format format, bool keep_empty, const char *text, const char *const *expected)
{
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct pl_record_options options = {.format = format, .window_bytes = 64, .keep_empty_lines = keep_empty};
        struct pl_record_reader *reader = open_reader(drip_new(text, strlen(text), pieces[i]), &options);
        struct pl_record record;

        for (const char *const *line = expected; *line; line++) {
            ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
            ck_assert_uint_eq(record.bytes, strlen(*line));
            if (record.bytes) {
                ck_assert_mem_eq(record.data, *line, record.bytes);
            }
        }
        ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        pl_record_reader_close(reader);
    }
}

TEST(lines_end_with_or_without_carriage_return_and_the_last_needs_none)
{
    char text[600] = "one\ntwo\r\n\n\r\nthr\ree\n", longest[501];
    const char *lines[] = {"one", "two", "thr\ree", longest, NULL};
    const char *all[] = {"one", "two", "", "", "thr\ree", longest, NULL};
    const char *nothing[] = {NULL};

    memset(longest, 'x', 500);
    longest[500] = '\0';
    strcat(text, longest);
    check_text(PL_RECORD_LINES, false, text, lines);
    check_text(PL_RECORD_LINES, true, text, all);
    strcat(text, "\n");
    check_text(PL_RECORD_LINES, true, text, all);
    check_text(PL_RECORD_LINES, true, "", nothing);
}

TEST(csv_records_keep_line_ends_inside_quotes)
{
    const char *records[] = {"a,\"b\nc\",d", "\"say \"\"\n\"\"\",2", "3,4", NULL};
    struct pl_record_options options = {.format = PL_RECORD_CSV};
    AUTO_READER struct pl_record_reader *reader = NULL;

    check_text(PL_RECORD_CSV, false, "a,\"b\nc\",d\r\n\"say \"\"\n\"\"\",2\n3,4", records);
    reader = open_reader(drip_new("a,\"b\nc", 6, 2), &options);
    ck_fails(PL_CORRUPT, "", drain, reader, false);
}

/* Python's csv module reads the same records, byte by byte. */
TEST(csv_quotes_open_only_where_a_field_begins)
{
    const char *inside[] = {"1,5\" disk", "2,a\"\"b", "3,\"c\"d\"e", "4, \"f", "5,\"\",\"g\n\"\"\"", "6", NULL};
    const char *marked[] = {"\xef\xbb\xbf\"h\ni\",7", "8", NULL};
    const char *tabs[] = {"9\t\"j\nk\"", "l,\"m", NULL};
    struct pl_record_options options = {.format = PL_RECORD_CSV, .delimiter = '\t'};
    AUTO_READER struct pl_record_reader *reader = NULL;
    struct pl_record record;

    check_text(PL_RECORD_CSV, false, "1,5\" disk\n2,a\"\"b\n3,\"c\"d\"e\n4, \"f\n5,\"\",\"g\n\"\"\"\n6\n", inside);
    check_text(PL_RECORD_CSV, false, "\xef\xbb\xbf\"h\ni\",7\n8\n", marked);
    reader = open_reader(drip_new("9\t\"j\nk\"\nl,\"m\n", 13, 2), &options);
    for (size_t i = 0; tabs[i]; i++) {
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.bytes, strlen(tabs[i]));
        ck_assert_mem_eq(record.data, tabs[i], record.bytes);
    }
}

/* Checks the error in pieces of every size, after `records` correct records. */
static void check_no_csv(const char *text, size_t bytes, char delimiter, unsigned records, const char *cause)
{
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        for (int skip = 0; skip < 4; skip++) {
            struct pl_record_options options = {
                .format = PL_RECORD_CSV, .delimiter = delimiter, .window_bytes = 64, .skip_corrupt = skip & 1};
            struct pl_record_reader *reader = open_reader(drip_new(text, bytes, pieces[i]), &options);

            ck_fails_as(PL_UNSUPPORTED, cause, drain, reader, (skip & 2) != 0);
            ck_assert_uint_eq(pl_record_reader_counts(reader).records, records);
            pl_record_reader_close(reader);
        }
    }
}

/* pandas' to_csv() and spreadsheets write such text if another dialect is chosen. */
TEST(csv_of_another_dialect_is_refused_at_the_byte_that_shows_it)
{
    static const struct {
        const char *text;
        size_t bytes;
        unsigned records;
        const char *cause;
    } cases[] = {
        {"\xff\xfe"
         "a\0,\0b\0\n\0",
         10, 0, "'drip': record 0 is not CSV as in RFC 4180: at byte 0 is UTF-16's byte order mark: expected UTF-8"},
        {"\xfe\xff\0a\0\n", 6, 0,
         "'drip': record 0 is not CSV as in RFC 4180: at byte 0 is UTF-16's byte order mark: expected UTF-8"},
        {"a\0\n\0b\0\n\0", 8, 0,
         "'drip': record 0 is not CSV as in RFC 4180: at byte 1 is a NUL byte: expected UTF-8, not UTF-16"},
        {"1,\"x\0y\"\n", 8, 0,
         "'drip': record 0 is not CSV as in RFC 4180: at byte 4 is a NUL byte: expected UTF-8, not UTF-16"},
        {"a,b\r1,2\r", 8, 0,
         "'drip': record 0 is not CSV as in RFC 4180: at byte 3 is a carriage return without a line feed after it"},
        {"a,b\n1,2\r", 8, 1,
         "'drip': record 1 is not CSV as in RFC 4180: at byte 7 is a carriage return without a line feed after it"},
        {"a,b\n1,\"2\"\r3,4\n", 15, 1,
         "'drip': record 1 is not CSV as in RFC 4180: at byte 9 is a carriage return without a line feed after it"},
        {"a,b\n1,\"say \\\"hi\\\", he\nsaid\"\n", 29, 1,
         "'drip': record 1 is not CSV as in RFC 4180: at byte 11 is a backslash before a quote: RFC 4180 writes two "
         "quotes instead"},
        {"a,b\n1,say \\\"hi\\\"\n", 17, 1,
         "'drip': record 1 is not CSV as in RFC 4180: at byte 10 is a backslash before a quote: RFC 4180 writes two "
         "quotes instead"},
        {"\\\"hi\\\"\n", 7, 0,
         "'drip': record 0 is not CSV as in RFC 4180: at byte 0 is a backslash before a quote: RFC 4180 writes two "
         "quotes instead"},
    };
    char long_text[601];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        check_no_csv(cases[i].text, cases[i].bytes, 0, cases[i].records, cases[i].cause);
    }
    check_no_csv("1;\"a\\\",b\"\n", 10, ';', 0,
                 "'drip': record 0 is not CSV as in RFC 4180: at byte 4 is a backslash before a quote: RFC 4180 writes "
                 "two quotes instead");
    memset(long_text, 'x', 600); /* the reader keeps nothing until the end of such a file */
    long_text[500] = '\r';
    check_no_csv(
        long_text, 600, 0, 0,
        "'drip': record 0 is not CSV as in RFC 4180: at byte 500 is a carriage return without a line feed after "
        "it");
}

TEST(csv_as_in_rfc_4180_may_have_backslashes_and_carriage_returns)
{
    const char *records[] = {
        "1,\"C:\\\"", "2,\"C:\\\",\"D:\\\"", "3,\"\\\"\"x\\\"\"\"", "4,\"a\rb\r\"", "5,\"a\r\nb\",\\,\\n", "6,\"E:\\\"",
        NULL};

    check_text(PL_RECORD_CSV, false,
               "1,\"C:\\\"\n2,\"C:\\\",\"D:\\\"\r\n3,\"\\\"\"x\\\"\"\"\n4,\"a\rb\r\"\r\n5,\"a\r\nb\",\\,\\n\r\n"
               "6,\"E:\\\"",
               records);
}

TEST(whole_source_is_one_record_even_when_empty)
{
    const char *text[] = {"all of\nit", NULL}, *empty[] = {"", NULL};

    check_text(PL_RECORD_WHOLE, false, "all of\nit", text);
    check_text(PL_RECORD_WHOLE, false, "", empty);
}

/*
 * Written by other software: MXNet 1.9.1's MXRecordIOWriterWriteRecord(); write_spmatrix_to_sparse_tensor([[0, 1.5, 0,
 * -2]], [3]) of SageMaker's SDK 2.257; TensorFlow 2.21's TFRecordWriter with GZIP, an Example and a record without
 * bytes.
 */
static const unsigned char mxnet[] = {0x0a, 0x23, 0xd7, 0xce, 0x02, 0x00, 0x00, 0x00, 0x61, 0x62, 0x00, 0x00, 0x0a,
                                      0x23, 0xd7, 0xce, 0x00, 0x00, 0x00, 0x20, 0x0a, 0x23, 0xd7, 0xce, 0x04, 0x00,
                                      0x00, 0x40, 0x63, 0x64, 0x65, 0x66, 0x0a, 0x23, 0xd7, 0xce, 0x00, 0x00, 0x00,
                                      0x40, 0x0a, 0x23, 0xd7, 0xce, 0x00, 0x00, 0x00, 0x60, 0x0a, 0x23, 0xd7, 0xce,
                                      0x06, 0x00, 0x00, 0x00, 0x67, 0x68, 0x0a, 0x23, 0xd7, 0xce, 0x00, 0x00};
static const unsigned char sagemaker[] = {
    0x0a, 0x23, 0xd7, 0xce, 0x30, 0x00, 0x00, 0x00, 0x0a, 0x1d, 0x0a, 0x06, 0x76, 0x61, 0x6c, 0x75, 0x65, 0x73, 0x12,
    0x13, 0x12, 0x11, 0x0a, 0x08, 0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x12, 0x02, 0x01, 0x03, 0x1a, 0x01,
    0x04, 0x12, 0x0f, 0x0a, 0x06, 0x76, 0x61, 0x6c, 0x75, 0x65, 0x73, 0x12, 0x05, 0x3a, 0x03, 0x0a, 0x01, 0x03};
static const unsigned char tensorflow[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x33, 0x67, 0x80, 0x80, 0xe7, 0x2f, 0x4e, 0x45,
    0x72, 0x99, 0x72, 0xf1, 0x72, 0x31, 0x26, 0x09, 0x71, 0x70, 0xb1, 0x71, 0x31, 0x55, 0x54, 0x72, 0x31, 0x80,
    0xb8, 0x69, 0x42, 0x1c, 0x42, 0x6c, 0x5c, 0x2c, 0x0c, 0x0c, 0x07, 0xec, 0xb9, 0x44, 0xb9, 0x18, 0x33, 0x85,
    0x04, 0xa4, 0xf8, 0xb8, 0x78, 0xfe, 0xc3, 0x00, 0xe3, 0x1a, 0x26, 0x69, 0xb6, 0x9a, 0x19, 0x50, 0x53, 0x18,
    0x34, 0x99, 0x67, 0xb0, 0xdf, 0x78, 0xd5, 0xb4, 0x08, 0x00, 0xa9, 0x6a, 0x87, 0x6f, 0x57, 0x00, 0x00, 0x00};

TEST(magic_words_inside_records_that_mxnet_wrote_come_back)
{
    static const struct {
        const char *data;
        size_t bytes;
    } expected[] = {{"ab", 2},
                    {"\x0a\x23\xd7\xce"
                     "cdef\x0a\x23\xd7\xce\x0a\x23\xd7\xce",
                     16},
                    {"gh\x0a\x23\xd7\xce", 6}};
    struct pl_record_options options = {.format = PL_RECORD_RECORDIO};
    AUTO_READER struct pl_record_reader *reader = open_reader(drip_new(mxnet, sizeof(mxnet), 3), &options);
    struct pl_record record;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(expected); i++) {
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.bytes, expected[i].bytes);
        ck_assert_mem_eq(record.data, expected[i].data, record.bytes);
    }
    ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
}

TEST(a_record_that_sagemakers_sdk_wrote_is_read)
{
    struct pl_record_options options = {.format = PL_RECORD_RECORDIO};
    AUTO_READER struct pl_record_reader *reader = open_reader(drip_new(sagemaker, sizeof(sagemaker), 7), &options);
    struct pl_record record;

    ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
    ck_assert_uint_eq(record.bytes, sizeof(sagemaker) - 8);
    ck_assert_mem_eq(record.data, sagemaker + 8, record.bytes);
    ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
}

TEST(packed_examples_that_tensorflow_wrote_are_read)
{
    static const struct pl_field fields[] = {
        {.name = "i", .type = PL_INT64, .dims = 1, .shape = {2}},
        {.name = "f", .type = PL_FLOAT32},
    };
    struct pl_record_options options = {.format = PL_RECORD_TFRECORD};
    AUTO_READER struct pl_record_reader *reader = NULL;
    struct pl_decoder *decoder;
    struct pl_source *source;
    struct pl_record record;
    int64_t integers[2];
    float floats[1];
    void *rows[] = {integers, floats};

    ck_ok(pl_source_open_inflate, drip_new(tensorflow, sizeof(tensorflow), 11), PL_COMPRESSION_AUTO, &source);
    reader = open_reader(source, &options);
    ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
    ck_ok(pl_decoder_new, PL_FIELDS_EXAMPLE, fields, 2, 0, &decoder);
    ck_ok(pl_decode, decoder, record.data, record.bytes, rows, NULL);
    ck_assert(integers[0] == -1 && integers[1] == 300 && floats[0] == 1.5F);
    pl_decoder_free(decoder);
    ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
    ck_assert_uint_eq(record.bytes, 0);
    ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
}

TEST(checksum_that_was_left_is_compared_later)
{
    struct pl_record_options options = {.format = PL_RECORD_TFRECORD, .leave_checksum = true};
    struct build build = {.data = NULL};

    build_tfrecord(&build, "good", 4);
    build_tfrecord(&build, "bad", 3);
    build.data[build.bytes - 5] ^= 1;
    for (int skip = 0; skip < 2; skip++) {
        struct pl_record record;
        AUTO_READER struct pl_record_reader *reader = NULL;

        options.skip_corrupt = skip;
        reader = open_reader(drip_new(build.data, build.bytes, 7), &options);
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert(record.is_unchecked == !skip);
        ck_ok(pl_record_check, &record);
        if (skip) { /* a damaged record gets no place in a batch */
            ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        } else {
            ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
            ck_fails(PL_CORRUPT, "the checksum of the data is ", pl_record_check, &record);
        }
    }
    build_done(&build);
}

TEST(reader_begins_another_source_in_its_memory)
{
    struct pl_record_options options = {.format = PL_RECORD_LINES};
    AUTO_READER struct pl_record_reader *reader = open_reader(drip_new("a\nbc\n", 5, 2), &options);
    struct pl_record record;

    for (int i = 0; i < 2; i++) {
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.index, 0);
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert(record.bytes == 2 && record.number == 1 && record.offset_bytes == 2);
        ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        pl_record_reader_end(reader);
        ck_ok(pl_record_reader_begin, reader, drip_new("d\nef\n", 5, 3), i ? 64 << 20 : 0);
    }
}

TEST(reader_of_a_cancelled_source_says_so)
{
    struct pl_record_options options = {.format = PL_RECORD_LINES};
    struct pl_source *source = drip_new("a\n", 2, 1);
    AUTO_READER struct pl_record_reader *reader = open_reader(source, &options);

    pl_source_cancel(source);
    ck_fails(PL_CANCELLED, "", drain, reader, false);
}

UNIT_MAIN("s3io/record")
