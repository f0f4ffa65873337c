/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/s3_list.c, s3io/s3/s3_reply.c. */
#include "base/clock.h"
#include "base/memory.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_reply.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum pl_status parse(const char *text, struct pl_s3_listing *listing, char **next, struct pl_error *error)
{
    return pl_s3_list_parse(text, strlen(text), listing, next, error);
}

TEST(a_page_is_read)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    char *next = NULL;

    ck_ok(parse,
          "<?xml version=\"1.0\"?><ListBucketResult "
          "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>p</Prefix>"
          "<IsTruncated>true</IsTruncated><NextContinuationToken>a+b/&amp;=</NextContinuationToken>"
          "<Contents><Key>a "
          "&lt;&#x31;&gt;</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
          "<Size>123456789012</Size><Owner><ID>x</ID></Owner></Contents>"
          "<Contents><Size>0</Size><Key>b</Key></Contents>"
          "<CommonPrefixes><Prefix>dir/</Prefix></CommonPrefixes></ListBucketResult>",
          &listing, &next);
    ck_assert_uint_eq(listing.count, 3);
    ck_assert_str_eq(listing.items[0].key, "a <1>");
    ck_assert_str_eq(listing.items[0].etag, "\"e\"");
    ck_assert_uint_eq(listing.items[0].size_bytes, 123456789012);
    ck_assert_int_eq(listing.items[0].modified_s, 1369353600);
    ck_assert_str_eq(listing.items[1].key, "b");
    ck_assert_ptr_null(listing.items[1].etag);
    ck_assert_int_eq(listing.items[1].modified_s, -1);
    ck_assert(listing.items[2].is_prefix);
    ck_assert_str_eq(next, "a+b/&=");
    free(next);
}

TEST(encoded_keys_are_decoded)
{
    static const char *const bad[] = {"%", "%4", "%zz", "a%00b"};
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    ck_ok(parse,
          "<ListBucketResult><Contents><Key>a%01+%2B%2f%E1%88%B4</Key><Size>1</Size></Contents>"
          "<CommonPrefixes><Prefix>d%0A/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></"
          "ListBucketResult>",
          &listing, &next);
    ck_assert_str_eq(listing.items[0].key, "a\x01 +/\xe1\x88\xb4");
    ck_assert_str_eq(listing.items[1].key, "d\n/");
    /* A server that does not support the encoding does not mention it. */
    ck_ok(parse, "<ListBucketResult><Contents><Key>a%41+</Key><Size>1</Size></Contents></ListBucketResult>", &listing,
          &next);
    ck_assert_str_eq(listing.items[2].key, "a%41+");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(bad); i++) {
        char text[256];

        snprintf(text, sizeof(text),
                 "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%s</Key><Size>1</Size></"
                 "Contents></ListBucketResult>",
                 bad[i]);
        ck_assert_msg(parse(text, &listing, &next, &error) == PL_CORRUPT, "%s", bad[i]);
    }
}

TEST(an_empty_list_is_fine)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    char *next = NULL;

    ck_ok(parse, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", &listing, &next);
    ck_assert_uint_eq(listing.count, 0);
    ck_assert_ptr_null(next);
}

TEST(broken_lists_are_refused)
{
    static const char *const bad[] = {
        "",
        "plain text",
        "<html><body/></html>",
        "<ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key><Size></Size></Contents></ListBucketResult>",
        "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult>&a;</ListBucketResult>"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
        struct pl_error error = PL_ERROR_NONE;
        char *next = NULL;

        ck_assert_msg(parse(bad[i], &listing, &next, &error) == PL_CORRUPT, "%s", bad[i]);
        ck_assert_ptr_null(next);
    }
}

TEST(deep_nesting_is_refused)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    char text[400] = "";
    char *next = NULL;

    for (int i = 0; i < 100; i++) {
        strcat(text, "<a>");
    }
    ck_fails(PL_LIMIT, "", parse, text, &listing, &next);
}

TEST(error_documents_are_read)
{
    static const char text[] =
        "<Error><Code>PermanentRedirect</Code><Message>go</Message><Region>eu-west-1</Region></Error>";
    static const char awake[] = " \r\n\t <?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>";
    struct pl_s3_error_document document;

    pl_s3_error_parse(text, strlen(text), &document);
    ck_assert_str_eq(document.code, "PermanentRedirect");
    ck_assert_str_eq(document.region, "eu-west-1");
    pl_s3_error_parse(awake, strlen(awake), &document);
    ck_assert_str_eq(document.code, "InternalError");
    pl_s3_error_parse("<CompleteMultipartUploadResult/>", 32, &document);
    ck_assert_str_eq(document.code, "");
    pl_s3_error_parse("<Error><Code>SlowDown</Code><Mess", 33, &document);
    ck_assert_str_eq(document.code, "SlowDown");
}

/* Takes a page with one key or none, and the token `next` of the next page; NULL: it is the last page. */
static enum pl_status take_page(struct pl_s3_pages *pages, const char *key, const char *next, int64_t now_s,
                                struct pl_error *error)
{
    char *copy = key ? pl_memory_string(key, NULL) : NULL;
    struct pl_s3_entry entry = {.key = copy};
    enum pl_status status =
        pl_s3_pages_take(pages, &entry, !!copy, next ? pl_memory_string(next, NULL) : NULL, now_s * PL_NS_PER_S, error);

    free(copy);
    return status;
}

static void find_circles(bool by_token, bool by_key)
{
    for (int begin = 0; begin < 20; begin++) {
        for (int length = 1; length < 20; length++) {
            PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.token = NULL};
            struct pl_error error = PL_ERROR_NONE;
            enum pl_status status = PL_OK;
            int at = 0, count = 0;

            for (; status == PL_OK && count < 200; count++, at = at == begin + length - 1 ? begin : at + 1) {
                char token[16], key[16];

                snprintf(token, sizeof(token), "%d", by_token ? at : count);
                snprintf(key, sizeof(key), "%d", at);
                status = take_page(&pages, by_key ? key : NULL, token, 0, &error);
            }
            ck_assert_msg(status == PL_CORRUPT, "a cycle of %d pages after %d", length, begin);
            ck_assert_msg(count > begin + length && count <= 3 * (begin + length) + 1,
                          "a cycle of %d pages after %d is found after %d", length, begin, count);
        }
    }
}

TEST(a_circle_of_pages_is_found)
{
    find_circles(true, true);
    find_circles(true, false);
}

UNIT_TEST(a_circle_of_pages_under_ever_new_tokens_is_found, find_circles(false, true))

TEST(pages_are_waited_for_while_keys_come)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.timeout_ns = 10 * PL_NS_PER_S};

    ck_ok(take_page, &pages, NULL, "1", 1000); /* even if this has taken long */
    ck_ok(take_page, &pages, NULL, "2", 1009);
    ck_ok(take_page, &pages, "b", "3", 1100);
    ck_ok(take_page, &pages, "b", "4", 1105);
    ck_ok(take_page, &pages, "c", "5", 1110);
    ck_ok(take_page, &pages, "a", "6", 1115);
    ck_ok(take_page, &pages, NULL, "7", 1120);
    ck_fails_as(PL_TIMEOUT, "the last 3 pages of a list had no new key in 10 s, and there are more pages", take_page,
                &pages, "ab", "8", 1121);
}

TEST(the_end_of_a_list_is_never_too_late)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.timeout_ns = 10 * PL_NS_PER_S};

    ck_ok(take_page, &pages, "a", "1", 1000);
    ck_ok(take_page, &pages, NULL, NULL, 2000);
    ck_assert_ptr_null(pages.token);
}

TEST(without_a_limit_pages_may_be_without_keys_for_ever)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.token = NULL};

    for (int i = 0; i < 1000; i++) {
        char token[16];

        snprintf(token, sizeof(token), "%d", i);
        ck_ok(take_page, &pages, NULL, token, 1000 * i);
        ck_assert_str_eq(pages.token, token);
    }
}

UNIT_MAIN("s3io/s3_list")
