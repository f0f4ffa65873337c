/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/manifest.c. */
#include "s3io/s3/manifest.h"
#include "tests/support/unit.h"

#include <string.h>

static enum pl_status parse(const char *text, struct pl_manifest *manifest, struct pl_error *error)
{
    return pl_manifest_parse(text, strlen(text), "m", manifest, error);
}

TEST(a_manifest_is_read_in_order)
{
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};

    ck_ok(parse, "[{\"prefix\": \"s3://bkt/some/pre-\"}, \"b\", \"a/\\u00e9\", \"b\"]", &manifest);
    ck_assert_str_eq(manifest.bucket, "bkt");
    ck_assert_str_eq(manifest.prefix, "some/pre-");
    ck_assert_uint_eq(manifest.count, 3);
    ck_assert_str_eq(manifest.keys[0], "b");
    ck_assert_str_eq(manifest.keys[1], "a/\xc3\xa9");
    ck_assert_str_eq(manifest.keys[2], "b");
}

TEST(broken_manifests_are_refused_with_a_place)
{
    static const char *const bad[] = {"",
                                      "{}",
                                      "[]",
                                      "[\"s3://bkt/a\"]",
                                      "[{\"prefix\": 1}]",
                                      "[{\"prefix\": \"http://bkt/\"}]",
                                      "[{\"prefix\": \"s3://b/\"}]",
                                      "[{\"prefix\": \"s3://bkt/\"}, 5]",
                                      "[{\"prefix\": \"s3://bkt/\"}, \"\"]",
                                      "[{\"prefix\": \"s3://bkt/\"}, \"a\\u0000b\"]",
                                      "[{\"prefix\": \"s3://bkt/\"}, \"a\""};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
        struct pl_error error = PL_ERROR_NONE;
        char text[1200];

        ck_assert_msg(parse(bad[i], &manifest, &error) == PL_INVALID, "%s", bad[i]);
        ck_assert_msg(strstr(pl_error_text(&error, text, sizeof(text)), "m, line 1, column "), "%s: %s", bad[i], text);
    }
}

static const char *const names[] = {"image-ref", "label"};

TEST(an_augmented_manifest_keeps_the_attributes_in_their_order)
{
    static const char text[] = "{\"label\": 3, \"image-ref\": \"s3://bkt/a b.jpg\", \"other\": null}\r\n\n"
                               "{\"image-ref\": \"s3://bkt2/c\", \"label\": {\"k\": [1, "
                               "2.50]}}\n{\"image-ref\":\"s3://bkt/d\",\"label\":\"x\\ny\"}";
    PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};

    ck_ok(pl_manifest_parse_augmented, text, strlen(text), "m", names, 2, &augmented);
    ck_assert_uint_eq(augmented.lines, 3);
    ck_assert_str_eq(augmented.values[0].bucket, "bkt");
    ck_assert_str_eq(augmented.values[0].text, "a b.jpg");
    ck_assert_ptr_null(augmented.values[1].bucket);
    ck_assert_str_eq(augmented.values[1].text, "3");
    ck_assert_str_eq(augmented.values[2].bucket, "bkt2");
    ck_assert_str_eq(augmented.values[3].text, "{\"k\": [1, 2.5]}");
    ck_assert_str_eq(augmented.values[5].text, "x\ny");
}

TEST(broken_lines_are_refused_with_their_number)
{
    static const char *const bad[] = {
        "{\"image-ref\":\"s3://bkt/a\",\"label\":1}\n[]", "{\"image-ref\":\"s3://bkt/a\",\"label\":1}\n{\"label\":1}",
        "\n{\"image-ref\":\"s3://bkt\",\"label\":1}", "\n{\"image-ref\":7,\"label\":1}", "\n{\"image-ref\":"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};
        struct pl_error error = PL_ERROR_NONE;

        ck_assert_msg(pl_manifest_parse_augmented(bad[i], strlen(bad[i]), "m", names, 2, &augmented, &error) ==
                          PL_INVALID,
                      "%s", bad[i]);
        ck_assert_msg(strstr(error.cause, "line 2"), "%s: %s", bad[i], error.cause);
    }
}

TEST(no_lines_are_no_manifest)
{
    static const char *const empty[] = {"", "\n", " \r\n\t\n"};

    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};

        ck_fails(PL_NOT_FOUND, "with at least one line, found none", pl_manifest_parse_augmented, empty[i],
                 strlen(empty[i]), "m", names, 2, &augmented);
    }
}

UNIT_MAIN("s3io/manifest")
