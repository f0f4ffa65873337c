/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/s3_headers.c. */
#include "base/memory.h"
#include "s3io/s3/s3_headers.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

TEST(what_cannot_be_encrypted_so_is_refused_by_name)
{
    static const struct {
        struct pl_s3_encryption encryption;
        const char *refused; /* NULL: it is accepted */
    } cases[] = {
        {{.algorithm = NULL}, NULL},
        {{.algorithm = "AES256"}, NULL},
        {{.algorithm = "aws:kms"}, NULL},
        {{.algorithm = "aws:kms", .key_id = "alias/mine", .bucket_key = true}, NULL},
        {{.algorithm = "aws:kms:dsse", .key_id = "1-2"}, NULL},
        {{.algorithm = ""}, "--sse is '': expected AES256, aws:kms or aws:kms:dsse"},
        {{.algorithm = "aes256"}, "--sse is 'aes256'"},
        {{.algorithm = "aws:kms", .key_id = ""}, "--sse-kms-key-id is '': expected the id, alias or ARN"},
        {{.algorithm = "aws:kms", .key_id = "a b"}, "--sse-kms-key-id is 'a b'"},
        {{.algorithm = "AES256", .key_id = "k"}, "--sse-kms-key-id needs --sse aws:kms or aws:kms:dsse, found AES256"},
        {{.key_id = "k"}, "found none"},
        {{.algorithm = "aws:kms:dsse", .bucket_key = true},
         "--bucket-key-enabled needs --sse aws:kms, found aws:kms:dsse"},
        {{.bucket_key = true}, "--bucket-key-enabled needs --sse aws:kms, found none"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status = pl_s3_encryption_check(&cases[i].encryption, &pl_s3_encryption_options, &error);

        ck_assert_int_eq(status, cases[i].refused ? PL_INVALID : PL_OK);
        ck_assert_msg(!cases[i].refused || strstr(error.cause, cases[i].refused), "%zu: %s", i, error.cause);
    }
}

/* Returns all lines of `headers`, each with a '|' after it. */
static const char *joined(const struct pl_s3_headers *headers, char *text, size_t bytes)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < headers->count; i++) {
        char line[512];

        snprintf(line, sizeof(line), "%s: %s", headers->items[i].name, headers->items[i].value);
        ck_assert_str_eq(line, headers->lines[i]);
        length += (size_t)snprintf(text + length, bytes - length, "%s|", line);
    }
    return text;
}

TEST(encryption_becomes_three_headers_at_most)
{
    PL_AUTO_S3_HEADERS struct pl_s3_headers headers = {.count = 0};
    struct pl_s3_encryption encryption = {.algorithm = NULL};
    char text[512];

    ck_ok(pl_s3_headers_add_encryption, &headers, &encryption);
    ck_assert_uint_eq(headers.count, 0);
    encryption = (struct pl_s3_encryption){.algorithm = "aws:kms", .key_id = "k", .bucket_key = true};
    ck_ok(pl_s3_headers_add_encryption, &headers, &encryption);
    ck_assert_str_eq(joined(&headers, text, sizeof(text)), "x-amz-server-side-encryption: aws:kms|"
                                                           "x-amz-server-side-encryption-aws-kms-key-id: k|"
                                                           "x-amz-server-side-encryption-bucket-key-enabled: true|");
}

TEST(of_a_head_only_what_the_object_carries_is_taken)
{
    PL_AUTO_S3_HEADERS struct pl_s3_headers headers = {.count = 0};
    char text[1024];

    ck_ok(pl_s3_headers_add_carried, &headers,
          "Content-Type:  text/plain; a=b \r\nContent-Length: 5\r\nETag: \"x\"\r\n"
          "X-Amz-Meta-Who: me: and you\r\nx-amz-meta-: empty\r\nno colon\r\n"
          "Cache-Control: no-store\r\nExpires:\r\nContent-Encoding: gzip\r\n"
          "x-amz-server-side-encryption: AES256\r\nContent-Language: de\r\n"
          "Content-Disposition: inline\r\n\r\n");
    ck_assert_str_eq(joined(&headers, text, sizeof(text)),
                     "content-type: text/plain; a=b|x-amz-meta-who: me: and you|cache-control: no-store|"
                     "content-encoding: gzip|content-language: de|content-disposition: inline|");
}

TEST(more_metadata_than_there_is_room_for_is_an_error)
{
    PL_AUTO_S3_HEADERS struct pl_s3_headers headers = {.count = 0};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = PL_OK;

    for (int i = 0; i <= PL_S3_MOST_HEADERS && status == PL_OK; i++) {
        char line[64];

        ck_assert_uint_eq(headers.count, (unsigned)i);
        snprintf(line, sizeof(line), "x-amz-meta-n%d: v\r\n", i);
        status = pl_s3_headers_add_carried(&headers, line, &error);
    }
    ck_assert_int_eq(status, PL_LIMIT);
    ck_assert_uint_eq(headers.count, PL_S3_MOST_HEADERS);
}

UNIT_MAIN("s3io/s3_headers")
