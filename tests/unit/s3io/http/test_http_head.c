/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/http/http_head.c. */
#include "s3io/http/http_head.h"
#include "tests/support/unit.h"

#include <string.h>

static struct pl_http_head read_head(const char *const *lines, size_t count)
{
    struct pl_http_head head;

    pl_http_head_init(&head);
    for (size_t i = 0; i < count; i++) {
        ck_ok(pl_http_head_line, &head, lines[i], strlen(lines[i]));
    }
    return head;
}

#define READ_HEAD(...)                                                                                                 \
    read_head((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static enum pl_status line_status(const char *line)
{
    struct pl_http_head head;

    pl_http_head_init(&head);
    return pl_http_head_line(&head, line, strlen(line), NULL);
}

TEST(fields_are_read)
{
    struct pl_http_head head =
        READ_HEAD("HTTP/1.1 206 Partial Content\r\n", "Content-Length: 10\r\n", "content-range:bytes 5-14/100 \r\n",
                  "ETag: \"abc\"\r\n", "Date: Fri, 24 May 2013 00:00:00 GMT\r\n", "x-amz-bucket-region: eu-west-1\r\n",
                  "Retry-After: 3\r\n", "x-amz-checksum-crc32c: 4waSgw==\r\n", "\r\n");

    ck_assert_int_eq(head.status, 206);
    ck_assert_int_eq(head.content_length, 10);
    ck_assert_int_eq(head.range_first, 5);
    ck_assert_int_eq(head.range_last, 14);
    ck_assert_int_eq(head.range_total, 100);
    ck_assert_str_eq(head.etag, "\"abc\"");
    ck_assert_str_eq(head.region, "eu-west-1");
    ck_assert_int_eq(head.date_s, 1369353600);
    ck_assert_int_eq(head.retry_after_s, 3);
    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_CRC32C);
    ck_assert_uint_eq(head.checksum.value, 0xe3069283); /* of "123456789" */
}

TEST(only_the_last_head_counts)
{
    struct pl_http_head head =
        READ_HEAD("HTTP/1.1 100 Continue\r\n", "ETag: \"old\"\r\n", "\r\n", "HTTP/1.1 200 OK\r\n", "\r\n");

    ck_assert_int_eq(head.status, 200);
    ck_assert_str_eq(head.etag, "");
}

TEST(unsatisfied_and_unknown_ranges)
{
    struct pl_http_head head = READ_HEAD("HTTP/1.1 416 Range\r\n", "Content-Range: bytes */0\r\n");

    ck_assert_int_eq(head.range_first, -1);
    ck_assert_int_eq(head.range_total, 0);
    head = READ_HEAD("HTTP/1.1 206 x\r\n", "Content-Range: bytes 0-9/*\r\n");
    ck_assert_int_eq(head.range_last, 9);
    ck_assert_int_eq(head.range_total, -1);
}

TEST(composite_checksum_is_not_taken_for_a_whole_one)
{
    struct pl_http_head head = READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-crc32c: 4waSgw==-3\r\n");

    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_NONE);
    ck_assert(head.composite && !head.full_object);
    head =
        READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-crc32c: 4waSgw==\r\n", "x-amz-checksum-type: FULL_OBJECT\r\n");
    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_CRC32C);
    ck_assert(head.full_object && !head.composite);
    head = READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-type: COMPOSITE\r\n");
    ck_assert(!head.full_object);
}

TEST(malformed_lines_are_refused)
{
    static const char *const bad[] = {"HTTP/1.1\r\n",
                                      "HTTP/1.1 abc\r\n",
                                      "HTTP/1.1 999 x\r\n",
                                      "no colon\r\n",
                                      ": no name\r\n",
                                      "Content-Length: -1\r\n",
                                      "Content-Length: 1x\r\n",
                                      "Content-Length: 99999999999999999999\r\n",
                                      "Content-Range: bytes 9-5/10\r\n",
                                      "Content-Range: bytes 0-10/10\r\n",
                                      "Content-Range: lines 0-9/10\r\n",
                                      "x-amz-checksum-crc32c: ????\r\n",
                                      "x-amz-checksum-crc64nvme: rosUhgp5mI==\r\n",
                                      "x-amz-checksum-crc64nvme: 4waSgw==\r\n"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(line_status(bad[i]) == PL_CORRUPT, "%s", bad[i]);
    }
}

TEST(two_lengths_are_refused)
{
    struct pl_http_head head = READ_HEAD("HTTP/1.1 200 OK\r\n", "Content-Length: 5\r\n", "Content-Length: 5\r\n");

    ck_assert_int_eq(pl_http_head_line(&head, "Content-Length: 6\r\n", 19, NULL), PL_CORRUPT);
}

TEST(endless_head_is_refused)
{
    struct pl_http_head head = READ_HEAD("HTTP/1.1 200 OK\r\n");
    char line[1000];
    enum pl_status status = PL_OK;

    memset(line, 'x', sizeof(line));
    line[10] = ':';
    for (int i = 0; i < 100 && status == PL_OK; i++) {
        status = pl_http_head_line(&head, line, sizeof(line), NULL);
    }
    ck_assert_int_eq(status, PL_LIMIT);
}

TEST(either_checksum_is_taken_the_cheaper_first)
{
    struct pl_http_head head = READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-crc64nvme: rosUhgp5mIg=\r\n");

    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_CRC64NVME);
    ck_assert_uint_eq(head.checksum.value, UINT64_C(0xae8b14860a799888)); /* of "123456789" */
    ck_assert(!head.composite);
    head = READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-crc32: y/Q5Jg==\r\n");
    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_CRC32);
    ck_assert_uint_eq(head.checksum.value, 0xcbf43926);
    head = READ_HEAD("HTTP/1.1 200 OK\r\n", "x-amz-checksum-crc32c: 4waSgw==\r\n",
                     "x-amz-checksum-crc64nvme: rosUhgp5mIg=\r\n");
    ck_assert_int_eq(head.checksum.kind, PL_CHECKSUM_CRC32C);
    ck_assert_uint_eq(head.checksum.value, 0xe3069283);
}

TEST(words_survive_base64)
{
    static const uint32_t words[] = {0, 1, 0x80000000, 0xffffffff, 0xe3069283, 0x12345678};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char text[9];
        uint64_t word = 7;

        pl_http_head_word_base64(words[i], text);
        ck_assert(pl_http_head_base64_number(text, 4, &word));
        ck_assert_uint_eq(word, words[i]);
    }
}

TEST(iso_times)
{
    int64_t time_s = 0;

    ck_assert(pl_http_head_iso_time("2013-05-24T00:00:00Z", &time_s));
    ck_assert_int_eq(time_s, 1369353600);
    ck_assert(pl_http_head_iso_time("2013-05-24T00:00:01.123456Z", &time_s));
    ck_assert_int_eq(time_s, 1369353601);
    ck_assert(!pl_http_head_iso_time("2013-05-24", &time_s));
    ck_assert(!pl_http_head_iso_time("2013-05-24T00:00:00+02:00", &time_s));
}

UNIT_MAIN("s3io/http_head")
