/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"
#include "s3io/s3_list.h"
#include "s3io/s3_xml.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static enum pl_status parse(const char *text, struct pl_s3_listing *listing, char **next, struct pl_error *error)
{
    return pl_s3_list_parse(text, strlen(text), listing, next, error);
}

START_TEST(a_page_is_read)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    ck_assert_ok(parse("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>p</Prefix>"
                       "<IsTruncated>true</IsTruncated><NextContinuationToken>a+b/&amp;=</NextContinuationToken>"
                       "<Contents><Key>a &lt;&#x31;&gt;</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
                       "<Size>123456789012</Size><Owner><ID>x</ID></Owner></Contents>"
                       "<Contents><Size>0</Size><Key>b</Key></Contents>"
                       "<CommonPrefixes><Prefix>dir/</Prefix></CommonPrefixes></ListBucketResult>",
                       &listing, &next, &error),
                 &error);
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
END_TEST

START_TEST(encoded_keys_are_decoded)
{
    static const char *const bad[] = {"%", "%4", "%zz", "a%00b"};
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    ck_assert_ok(parse("<ListBucketResult><Contents><Key>a%01+%2B%2f%E1%88%B4</Key><Size>1</Size></Contents>"
                       "<CommonPrefixes><Prefix>d%0A/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>",
                       &listing, &next, &error),
                 &error);
    ck_assert_str_eq(listing.items[0].key, "a\x01 +/\xe1\x88\xb4");
    ck_assert_str_eq(listing.items[1].key, "d\n/");
    /* A server that knows nothing of it says so by silence. */
    ck_assert_ok(parse("<ListBucketResult><Contents><Key>a%41+</Key><Size>1</Size></Contents></ListBucketResult>", &listing, &next, &error), &error);
    ck_assert_str_eq(listing.items[2].key, "a%41+");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(bad); i++) {
        char text[256];

        (void)snprintf(text, sizeof(text),
                       "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%s</Key><Size>1</Size></Contents></ListBucketResult>",
                       bad[i]);
        ck_assert_msg(parse(text, &listing, &next, &error) == PL_CORRUPT, "%s", bad[i]);
    }
}
END_TEST

START_TEST(an_empty_list_is_fine)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    ck_assert_ok(parse("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", &listing, &next, &error), &error);
    ck_assert_uint_eq(listing.count, 0);
    ck_assert_ptr_null(next);
}
END_TEST

START_TEST(broken_lists_are_refused)
{
    static const char *const bad[] = {"",
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
END_TEST

START_TEST(deep_nesting_is_refused)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    char text[400] = "";
    char *next = NULL;

    for (int i = 0; i < 100; i++) {
        strcat(text, "<a>");
    }
    ck_assert_int_eq(parse(text, &listing, &next, &error), PL_LIMIT);
}
END_TEST

START_TEST(error_documents_are_read)
{
    static const char text[] = "<Error><Code>PermanentRedirect</Code><Message>go</Message><Region>eu-west-1</Region></Error>";
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
END_TEST

UNIT_MAIN("s3io/s3_list", a_page_is_read, encoded_keys_are_decoded, an_empty_list_is_fine, broken_lists_are_refused, deep_nesting_is_refused,
          error_documents_are_read)
