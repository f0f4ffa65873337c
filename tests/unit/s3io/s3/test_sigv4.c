/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/sigv4.c. */
/* AWS's published test suite (sigv4_suite.json names its origin), and the examples of S3's documentation. */
#include "base/json/python_json.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/sigv4.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_HEADERS = 16, SUITE_CASES = 38, MAX_SUITE_BYTES = 1 << 20 };

struct suite_case {
    const struct pl_python_json *node;
    const char *name;
    struct pl_sigv4_key key;
    bool normalize, sign_body, late_token;
    char *text; /* the text of the request, which is split into its parts */
    const char *method, *path, *query, *body;
    struct pl_sigv4_header headers[MAX_HEADERS];
    size_t header_count;
    char date[PL_SIGV4_DATE_BYTES];
    char body_hash[PL_SIGV4_HEX_BYTES];
};

static const struct pl_sigv4_scope suite_scope = {"us-east-1", "service", 1440938160}; /* 2015-08-30T12:36:00Z */

static const char *text_of(const struct pl_python_json *node, const char *name)
{
    const struct pl_python_json *member = pl_python_json_member(node, name);

    ck_assert_msg(member, "no '%s'", name);
    return pl_python_json_text(member);
}

static bool flag_of(const struct pl_python_json *node, const char *name)
{
    const struct pl_python_json *member = pl_python_json_member(node, name);

    return member && pl_python_json_bool(member);
}

static void add_header(struct suite_case *suite_case, const char *name, const char *value)
{
    ck_assert_uint_lt(suite_case->header_count, MAX_HEADERS);
    suite_case->headers[suite_case->header_count++] = (struct pl_sigv4_header){name, value};
}

/*
 * Splits "METHOD TARGET HTTP/1.1
 * Name:value
 * folded
 *
 * body" in place.
 */
static void parse_request(struct suite_case *suite_case)
{
    char *line = suite_case->text, *end, *version;

    end = strchr(line, '\n');
    if (end) {
        *end = '\0';
    }
    suite_case->method = line;
    line = strchr(line, ' ');
    *line++ = '\0';
    suite_case->path = line;
    version = strstr(line, " HTTP/1.1");
    ck_assert_ptr_nonnull(version);
    *version = '\0';
    suite_case->query = strchr(line, '?');
    if (suite_case->query) {
        *strchr(line, '?') = '\0';
        suite_case->query++;
    }
    suite_case->body = "";
    for (line = end ? end + 1 : version; *line; line = end + 1) {
        char *colon;

        /* A folded line belongs to the line before it. */
        for (end = strchr(line, '\n'); end && (end[1] == ' ' || end[1] == '\t');) {
            end = strchr(end + 1, '\n');
        }
        if (end == line) {
            suite_case->body = line + 1;
            return;
        }
        if (end) {
            *end = '\0';
        }
        colon = strchr(line, ':');
        ck_assert_ptr_nonnull(colon);
        *colon = '\0';
        add_header(suite_case, line, colon + 1);
        if (!end) {
            return;
        }
    }
}

static void open_case(const struct pl_python_json *node, struct suite_case *suite_case)
{
    const struct pl_python_json *context = pl_python_json_member(node, "context");
    const struct pl_python_json *credentials = pl_python_json_member(context, "credentials");
    const struct pl_python_json *token = pl_python_json_member(credentials, "token");

    memset(suite_case, 0, sizeof(*suite_case));
    suite_case->node = node;
    suite_case->name = text_of(node, "name");
    suite_case->key =
        (struct pl_sigv4_key){text_of(credentials, "access_key_id"), text_of(credentials, "secret_access_key"),
                              token ? pl_python_json_text(token) : NULL};
    suite_case->normalize = flag_of(context, "normalize");
    suite_case->sign_body = flag_of(context, "sign_body");
    suite_case->late_token = flag_of(context, "omit_session_token");
    ck_assert_str_eq(text_of(context, "timestamp"), "2015-08-30T12:36:00Z");
    ck_assert_str_eq(text_of(context, "region"), suite_scope.region);
    ck_assert_str_eq(text_of(context, "service"), suite_scope.service);
    suite_case->text = pl_memory_string(text_of(node, "request"), NULL);
    ck_assert_ptr_nonnull(suite_case->text);
    parse_request(suite_case);
    pl_sigv4_date(suite_scope.time_s, suite_case->date);
    ck_ok(pl_sigv4_hash, suite_case->body, strlen(suite_case->body), suite_case->body_hash);
}

static struct pl_sigv4_request request_of(const struct suite_case *suite_case)
{
    return (struct pl_sigv4_request){.method = suite_case->method,
                                     .path = suite_case->path,
                                     .query = suite_case->query,
                                     .headers = suite_case->headers,
                                     .header_count = suite_case->header_count,
                                     .payload_hash =
                                         suite_case->sign_body ? suite_case->body_hash : PL_SIGV4_EMPTY_HASH,
                                     .normalize_path = suite_case->normalize};
}

static void check_header_mode(struct suite_case *suite_case)
{
    const struct pl_python_json *want = pl_python_json_member(suite_case->node, "header");
    PL_AUTO_TEXT struct pl_text canonical = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text string_to_sign = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text authorization = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    struct pl_sigv4_request request;
    char hex[PL_SIGV4_HEX_BYTES];

    add_header(suite_case, "X-Amz-Date", suite_case->date);
    if (suite_case->key.session_token && !suite_case->late_token) {
        add_header(suite_case, "X-Amz-Security-Token", suite_case->key.session_token);
    }
    if (suite_case->sign_body) {
        add_header(suite_case, "x-amz-content-sha256", suite_case->body_hash);
    }
    request = request_of(suite_case);
    ck_ok(pl_sigv4_canonical, &request, &canonical);
    ck_assert_msg(strcmp(canonical.data, text_of(want, "canonical_request")) == 0, "%s:\n%s\nshould be\n%s",
                  suite_case->name, canonical.data, text_of(want, "canonical_request"));
    ck_ok(pl_sigv4_string_to_sign, &suite_scope, canonical.data, &string_to_sign);
    ck_assert_str_eq(string_to_sign.data, text_of(want, "string_to_sign"));
    ck_ok(pl_sigv4_signature, &suite_case->key, &suite_scope, string_to_sign.data, hex);
    ck_assert_str_eq(hex, text_of(want, "signature"));
    ck_ok(pl_sigv4_authorize, &suite_case->key, &suite_scope, &request, &authorization);
    pl_text_printf(&line, "\nAuthorization:%s\n", authorization.data);
    ck_assert_msg(strstr(text_of(want, "signed_request"), line.data), "%s: %s is not in\n%s", suite_case->name,
                  line.data, text_of(want, "signed_request"));
}

TEST(published_suite_signs_headers_alike)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    const struct pl_python_json *cases;
    size_t count = 0;

    ck_ok(pl_python_json_read, SIGV4_SUITE, MAX_SUITE_BYTES, &root);
    cases = pl_python_json_member(root, "cases");
    for (const struct pl_python_json *node = pl_python_json_first(cases); node; node = pl_python_json_next(node)) {
        struct suite_case suite_case;

        open_case(node, &suite_case);
        check_header_mode(&suite_case);
        free(suite_case.text);
        count++;
    }
    ck_assert_uint_eq(count, SUITE_CASES);
}

static const struct pl_sigv4_key s3_key = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};
static const struct pl_sigv4_scope s3_scope = {"us-east-1", "s3", 1369353600}; /* 2013-05-24T00:00:00Z */

static void check_s3_example(struct pl_sigv4_request request, const char *signature)
{
    PL_AUTO_TEXT struct pl_text authorization = PL_TEXT_NONE;

    ck_ok(pl_sigv4_authorize, &s3_key, &s3_scope, &request, &authorization);
    ck_has(authorization.data, signature);
}

TEST(documented_s3_examples_sign_alike)
{
    static const char host[] = "examplebucket.s3.amazonaws.com", date[] = "20130524T000000Z";
    char hash[PL_SIGV4_HEX_BYTES];
    const struct pl_sigv4_header get[] = {
        {"Host", host}, {"Range", "bytes=0-9"}, {"x-amz-content-sha256", PL_SIGV4_EMPTY_HASH}, {"x-amz-date", date}};
    const struct pl_sigv4_header put[] = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                          {"Host", host},
                                          {"x-amz-content-sha256", hash},
                                          {"x-amz-date", date},
                                          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    const struct pl_sigv4_header list[] = {
        {"Host", host}, {"x-amz-content-sha256", PL_SIGV4_EMPTY_HASH}, {"x-amz-date", date}};

    ck_ok(pl_sigv4_hash, "Welcome to Amazon S3.", 21, hash);
    check_s3_example((struct pl_sigv4_request){"GET", "/test.txt", NULL, get, 4, PL_SIGV4_EMPTY_HASH, false},
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    check_s3_example((struct pl_sigv4_request){"PUT", "/test$file.text", NULL, put, 5, hash, false},
                     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    check_s3_example((struct pl_sigv4_request){"GET", "/", "lifecycle", list, 3, PL_SIGV4_EMPTY_HASH, false},
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check_s3_example((struct pl_sigv4_request){"GET", "/", "max-keys=2&prefix=J", list, 3, PL_SIGV4_EMPTY_HASH, false},
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

UNIT_MAIN("s3io/sigv4")
