/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/json/json.c. */
#include "base/json/json.h"

#include "base/text.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_json *parsed(const char *text)
{
    struct pl_json *document = NULL;

    ck_ok(pl_json_parse, text, strlen(text), "F", &document);
    return document;
}

/* Check that the text is refused with PL_INVALID and exactly this cause. */
static void check_refused(const char *text, size_t bytes, const char *cause)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_json *document = NULL;

    ck_assert_msg(pl_json_parse(text, bytes, "F", &document, &error) == PL_INVALID, "%s was taken", text);
    ck_assert_str_eq(error.cause, cause);
    ck_assert_ptr_null(document);
}

static void refused(const char *text, const char *cause)
{
    check_refused(text, strlen(text), cause);
}

/* Returns the double that `text` is as a document. It must be the same in a list. */
static double number_of(const char *text)
{
    PL_AUTO_JSON struct pl_json *document = parsed(text);
    double value;

    ck_ok(pl_json_double, pl_json_root(document), &value);
    return value;
}

TEST(a_document_is_read_by_names_and_places)
{
    PL_AUTO_JSON struct pl_json *document = parsed(" {\"model\": \"m\\u00e9 \\ud83d\\ude80\\n\",\t\"list\": [1, "
                                                   "-2.5e-3, {}, []], \"yes\": true,\r\n\"no\": false, "
                                                   "\"none\": null} ");
    struct pl_json_value root = pl_json_root(document);
    struct pl_json_value list = pl_json_member(root, "list");
    struct pl_json_value item;
    const char *text;
    double number;
    int64_t whole;
    bool flag;

    ck_assert_uint_eq(pl_json_count(root), 5);
    ck_ok(pl_json_text, pl_json_member(root, "model"), &text);
    ck_assert_str_eq(text, "m\xC3\xA9 \xF0\x9F\x9A\x80\n");
    ck_ok(pl_json_bool, pl_json_member(root, "yes"), &flag);
    ck_assert(flag);
    ck_ok(pl_json_bool, pl_json_member(root, "no"), &flag);
    ck_assert(!flag);
    ck_assert_int_eq(pl_json_kind(pl_json_member(root, "none")), PL_JSON_NULL);
    ck_assert_uint_eq(pl_json_count(list), 4);
    item = pl_json_first(list);
    ck_assert_ptr_null(pl_json_name(item));
    ck_ok(pl_json_int64, item, 0, 9, &whole);
    ck_assert_int_eq(whole, 1);
    item = pl_json_next(item);
    ck_ok(pl_json_double, item, &number);
    ck_assert_double_eq(number, -0.0025);
    item = pl_json_next(item);
    ck_assert_int_eq(pl_json_kind(item), PL_JSON_OBJECT);
    item = pl_json_next(item);
    ck_ok(pl_json_expect, item, PL_JSON_LIST);
    ck_assert(!pl_json_exists(pl_json_first(item)));
    ck_assert(!pl_json_exists(pl_json_next(item)));
    ck_assert_str_eq(pl_json_name(pl_json_first(root)), "model");
}

TEST(syntax_errors_name_line_column_expected_and_found)
{
    refused("{not json", "F, line 1, column 2: expected a key (a name in double quotes) or '}', found 'n'");
    refused("{\"a\": 1,\n  \"b\" 2}", "F, line 2, column 7: expected ':' after a key, found '2'");
    refused("[1, 2", "F, line 1, column 6: expected ',' or ']', found the end of the text");
    refused("{\"a\": 1]", "F, line 1, column 8: expected ',' or '}', found ']'");
    refused("[1}", "F, line 1, column 3: expected ',' or ']', found '}'");
    refused("[1,]", "F, line 1, column 4: expected a value, found ']': remove the comma before it");
    refused("{\"a\":1,}",
            "F, line 1, column 8: expected a key (a name in double quotes), found '}': remove the comma before it");
    refused("{,}", "F, line 1, column 2: expected a key (a name in double quotes) or '}', found ','");
    refused("", "F, line 1, column 1: expected a value, found the end of the text");
    refused("\n ", "F, line 2, column 2: expected a value, found the end of the text");
    refused("[tru]", "F, line 1, column 2: expected a value, found 't'");
    refused("True", "F, line 1, column 1: expected a value, found 'T'");
    refused("\"abc", "F, line 1, column 5: expected a closing '\"', found the end of the text");
    refused("\"\\x\"", "F, line 1, column 3: expected one of \" \\ / b f n r t u after '\\', found 'x'");
    refused("\"\\", "F, line 1, column 3: expected one of \" \\ / b f n r t u after '\\', found the end of the text");
    refused("\"\\u12g4\"", "F, line 1, column 6: expected four hex digits after '\\u', found 'g'");
    refused("\"\\u12", "F, line 1, column 6: expected four hex digits after '\\u', found the end of the text");
}

TEST(nothing_may_follow_the_text)
{
    refused("{} x", "F, line 1, column 4: expected the end of the text, found 'x'");
    refused("1 2", "F, line 1, column 3: expected the end of the text, found '2'");
    refused("truefalse", "F, line 1, column 5: expected the end of the text, found 'f'");
    refused("\"\xC3\xA9\" {}", "F, line 1, column 5: expected the end of the text, found '{'");
    check_refused("{}\0", 3, "F, line 1, column 3: expected the end of the text, found the control character 0x00");
}

TEST(numbers_that_are_none_are_refused)
{
    refused("007", "F, line 1, column 1: expected a number, found '007'");
    refused("[1.]", "F, line 1, column 2: expected a number, found '1.'");
    refused("-", "F, line 1, column 1: expected a number, found '-'");
    refused("-01", "F, line 1, column 1: expected a number, found '-01'");
    refused("1-2", "F, line 1, column 1: expected a number, found '1-2'");
    refused("1e", "F, line 1, column 1: expected a number, found '1e'");
    refused("1e+", "F, line 1, column 1: expected a number, found '1e+'");
    refused("1.e5", "F, line 1, column 1: expected a number, found '1.e5'");
    refused("--1", "F, line 1, column 1: expected a number, found '--1'");
    refused("1.2.3", "F, line 1, column 1: expected a number, found '1.2.3'");
    refused("+1", "F, line 1, column 1: expected a value, found '+'");
    refused(".5", "F, line 1, column 1: expected a value, found '.'");
    refused("0x10", "F, line 1, column 2: expected the end of the text, found 'x'");
    refused("NaN", "F, line 1, column 1: expected a value, found 'N'");
    refused("[Infinity]", "F, line 1, column 2: expected a value, found 'I'");
    refused("-Infinity", "F, line 1, column 1: expected a number, found '-'");
    refused("nan", "F, line 1, column 1: expected a value, found 'n'");
}

TEST(numbers_that_a_double_cannot_hold_are_refused)
{
    refused("1e400", "F, line 1, column 1: expected a number that a double can hold, found '1e400'");
    refused("{\"a\":-1E+309}", "F, line 1, column 6: expected a number that a double can hold, found '-1E+309'");
    refused("9007199254740993", "F, line 1, column 1: expected an integer of at most 2^53 (larger ones are given as "
                                "text), found '9007199254740993'");
    refused("-9007199254740993", "F, line 1, column 1: expected an integer of at most 2^53 (larger ones are given as "
                                 "text), found '-9007199254740993'");
    refused("[18446744073709551615]", "F, line 1, column 2: expected an integer of at most 2^53 (larger ones are given "
                                      "as text), found '18446744073709551615'");
    ck_assert_double_eq(number_of("9007199254740992"), 9007199254740992.0);
    ck_assert_double_eq(number_of("-9007199254740992"), -9007199254740992.0);
    ck_assert_double_eq(number_of("1e17"), 1e17); /* not an integer, so no digit is lost */
    ck_assert_double_eq(number_of("1.7976931348623157e308"), 1.7976931348623157e308);
    ck_assert_double_eq(number_of("1e-400"), 0.0);
    ck_assert_double_eq(number_of("5e-324"), 5e-324);
    ck_assert_double_eq(number_of("0.30000000000000004"), 0.30000000000000004);
}

/* cJSON copies only the first 63 bytes of a number and continues after them. */
TEST(a_number_of_many_digits_is_whole_or_refused)
{
    static const char exact[] = "0.1000000000000000000000000000000000000000000000000000000000001"; /* 63 bytes */
    struct pl_json *document = NULL;
    char text[80];

    ck_assert_double_eq(number_of(exact), 0.1);
    snprintf(text, sizeof(text), "[%s1]", exact);
    ck_fails_as(PL_LIMIT, "F, line 1, column 2: expected at most 63 bytes in a number, found more", pl_json_parse, text,
                strlen(text), "F", &document);
}

TEST(strings_that_c_or_utf8_cannot_hold_are_refused)
{
    refused("{\"a\": \"a\\u0000b\"}", "F, line 1, column 9: expected no U+0000 in a string, found \\u0000");
    refused("{\"a\\u0000b\": 1}", "F, line 1, column 4: expected no U+0000 in a string, found \\u0000");
    refused("\"\\ud800\"", "F, line 1, column 2: expected both halves of a surrogate pair, found \\ud800");
    refused("\"\\udc00\"", "F, line 1, column 2: expected both halves of a surrogate pair, found \\udc00");
    refused("\"\\ud83dx\\ude80\"", "F, line 1, column 2: expected both halves of a surrogate pair, found \\ud83d");
    refused("\"\\ud83d\\u0041\"", "F, line 1, column 2: expected both halves of a surrogate pair, found \\ud83d");
    refused("\"\n\"", "F, line 1, column 2: expected no raw control character in a string, found a line break");
    check_refused(
        "\"a\0b\"", 5,
        "F, line 1, column 3: expected no raw control character in a string, found the control character 0x00");
    refused("\"\xFF\"", "F, line 1, column 2: expected UTF-8 text, found the byte 0xff");
    refused("\"\xC0\x80\"", "F, line 1, column 2: expected UTF-8 text, found the byte 0xc0");
    refused("\"\xED\xA0\x80\"", "F, line 1, column 2: expected UTF-8 text, found the byte 0xed");
    refused("\"\xE2\x82\"", "F, line 1, column 2: expected UTF-8 text, found the byte 0xe2");
}

TEST(blanks_are_those_of_json)
{
    PL_AUTO_JSON struct pl_json *document = parsed(" \t\r\n[ 1 , 2 ]\n");

    ck_ok(pl_json_expect, pl_json_root(document), PL_JSON_LIST);
    refused("\v1", "F, line 1, column 1: expected a value, found the control character 0x0b");
    refused("[\x7F]", "F, line 1, column 2: expected a value, found the control character 0x7f");
    refused("[\xF0\x9F\x9A\x80]", "F, line 1, column 2: expected a value, found '\xF0\x9F\x9A\x80'");
    refused("\"\t\"", "F, line 1, column 2: expected no raw control character in a string, found a tab");
    refused("[1,\f2]", "F, line 1, column 4: expected a value, found the control character 0x0c");
    check_refused("[1,\0 2]", 7, "F, line 1, column 4: expected a value, found the control character 0x00");
    refused("\xEF\xBB\xBF{}", "F, line 1, column 1: expected a value, found a byte order mark");
    refused("[1,\xC2\xA0 2]", "F, line 1, column 4: expected a value, found '\xC2\xA0'");
}

TEST(names_are_compared_with_their_case)
{
    PL_AUTO_JSON struct pl_json *document = parsed("{\"Prefix\": 1, \"prefix\": 2}");
    int64_t value;

    ck_ok(pl_json_int64, pl_json_member(pl_json_root(document), "prefix"), 0, 9, &value);
    ck_assert_int_eq(value, 2);
    ck_assert(!pl_json_exists(pl_json_member(pl_json_root(document), "PREFIX")));
}

TEST(a_name_that_is_listed_twice_is_refused)
{
    PL_AUTO_TEXT struct pl_text wide = PL_TEXT_NONE;

    refused("{\"a\": 1, \"a\": 1}", "F, line 1, column 10: expected each key once, found \"a\" twice");
    refused("{\"a\": 1, \"\\u0061\": 2}", "F, line 1, column 10: expected each key once, found \"\\u0061\" twice");
    refused("{\"x\": [{\"c\": \"\\\":\\\\\"}, {\"b\": {\"c\": \"c\", \"d\":\n 2,\n \"\u00e9\": 3, \"c\" : 3}}]}",
            "F, line 3, column 10: expected each key once, found \"c\" twice");
    pl_text_append_char(&wide, '{');
    for (int i = 0; i < 1000; i++) {
        pl_text_printf(&wide, "\"n%d\":0,", i);
    }
    pl_text_append(&wide, "\"n500\":1}");
    refused(pl_text_string(&wide), "F, line 1, column 8892: expected each key once, found \"n500\" twice");
}

TEST(whole_numbers_are_asked_for_where_they_are_meant)
{
    PL_AUTO_JSON struct pl_json *document =
        parsed("{\"one\": 1, \"half\": 1.5, \"exact\": 3.0, \"large\": 1e17, \"minus\": -4, \"text\": \"1\"}");
    struct pl_json_value root = pl_json_root(document);
    int64_t value = 77;

    ck_ok(pl_json_int64, pl_json_member(root, "one"), 1, 1, &value);
    ck_assert_int_eq(value, 1);
    ck_ok(pl_json_int64, pl_json_member(root, "exact"), 0, PL_JSON_MAX_INTEGER, &value);
    ck_assert_int_eq(value, 3);
    ck_ok(pl_json_int64, pl_json_member(root, "minus"), -PL_JSON_MAX_INTEGER, 0, &value);
    ck_assert_int_eq(value, -4);
    ck_fails_as(PL_INVALID, "F: half: expected a whole number from 0 to 9, found the number 1.5", pl_json_int64,
                pl_json_member(root, "half"), 0, 9, &value);
    ck_fails_as(PL_INVALID, "F: large: expected a whole number from 0 to 9007199254740992, found the number 1e+17",
                pl_json_int64, pl_json_member(root, "large"), 0, PL_JSON_MAX_INTEGER, &value);
    ck_fails_as(PL_INVALID, "F: minus: expected a whole number from 0 to 9, found the number -4", pl_json_int64,
                pl_json_member(root, "minus"), 0, 9, &value);
    ck_fails_as(PL_INVALID, "F: text: expected a whole number from 0 to 9, found a string", pl_json_int64,
                pl_json_member(root, "text"), 0, 9, &value);
    ck_assert_int_eq(value, -4); /* unchanged after the error */
}

TEST(wrong_kinds_are_told_with_their_path)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_JSON struct pl_json *document =
        parsed("{\"resources\": {\"hosts\": [\"a\", \"secret\", 7], \"odd name\\n\": [true], \"\": null}}");
    struct pl_json_value resources = pl_json_member(pl_json_root(document), "resources");
    struct pl_json_value hosts = pl_json_member(resources, "hosts");
    struct pl_json_value third = pl_json_next(pl_json_next(pl_json_first(hosts)));
    const char *text = NULL;
    double number;
    bool flag;

#define ck_wrong(expression, expected_cause)                                                                           \
    do {                                                                                                               \
        ck_assert_int_eq((expression), PL_INVALID);                                                                    \
        ck_assert_str_eq(error.cause, (expected_cause));                                                               \
    } while (0)
    ck_wrong(pl_json_text(third, &text, &error), "F: resources.hosts[2]: expected a string, found the number 7");
    ck_wrong(pl_json_double(pl_json_next(pl_json_first(hosts)), &number, &error),
             "F: resources.hosts[1]: expected a number, found a string"); /* the message does not show the text */
    ck_wrong(pl_json_text(pl_json_next(third), &text, &error),
             "F: resources.hosts[3]: expected a string, found nothing");
    ck_wrong(pl_json_bool(hosts, &flag, &error), "F: resources.hosts: expected true or false, found a list");
    ck_wrong(pl_json_text(pl_json_first(pl_json_member(resources, "odd name\n")), &text, &error),
             "F: resources[\"odd name\\n\"][0]: expected a string, found true");
    ck_wrong(pl_json_text(pl_json_member(resources, ""), &text, &error),
             "F: resources[\"\"]: expected a string, found null");
    ck_wrong(pl_json_text(pl_json_root(document), &text, &error), "F: expected a string, found an object");
    ck_wrong(pl_json_wrong(third, "a port", &error), "F: resources.hosts[2]: expected a port, found the number 7");
    /* values that are missing, and values that cannot exist */
    ck_wrong(pl_json_text(pl_json_member(resources, "name"), &text, &error),
             "F: resources.name: expected a string, found nothing");
    ck_wrong(pl_json_text(pl_json_member(pl_json_member(resources, "name"), "first"), &text, &error),
             "F: resources.name: expected an object, found nothing");
    ck_wrong(pl_json_text(pl_json_member(third, "first"), &text, &error),
             "F: resources.hosts[2]: expected an object, found the number 7");
    ck_wrong(pl_json_text(pl_json_first(third), &text, &error),
             "F: resources.hosts[2]: expected a list, found the number 7");
#undef ck_wrong
    ck_assert_ptr_null(text);
}

TEST(a_fallback_stands_for_nothing_and_null_only)
{
    PL_AUTO_JSON struct pl_json *document = parsed("{\"a\": \"x\", \"b\": null, \"c\": 1}");
    struct pl_json_value root = pl_json_root(document);
    const char *text;

    ck_ok(pl_json_text_or, pl_json_member(root, "a"), "f", &text);
    ck_assert_str_eq(text, "x");
    ck_ok(pl_json_text_or, pl_json_member(root, "b"), "f", &text);
    ck_assert_str_eq(text, "f");
    ck_ok(pl_json_text_or, pl_json_member(root, "z"), NULL, &text);
    ck_assert_ptr_null(text);
    ck_fails_as(PL_INVALID, "F: c: expected a string, found the number 1", pl_json_text_or, pl_json_member(root, "c"),
                "f", &text);
}

TEST(depth_values_and_bytes_are_bounded)
{
    char deep[2 * PL_JSON_MAX_DEPTH + 2];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_json *document = NULL;
    const char *text;
    struct pl_json_value value;

    memset(deep, '[', PL_JSON_MAX_DEPTH + 1);
    memset(deep + PL_JSON_MAX_DEPTH + 1, ']', PL_JSON_MAX_DEPTH + 1);
    ck_fails_as(PL_LIMIT, "F, line 1, column 129: expected at most 128 levels of nesting, found more", pl_json_parse,
                deep, sizeof(deep), "F", &document);
    deep[PL_JSON_MAX_DEPTH] = '0';
    ck_ok(pl_json_parse, deep, sizeof(deep) - 1, "F", &document);
    value = pl_json_root(document);
    while (pl_json_kind(value) == PL_JSON_LIST) {
        value = pl_json_first(value);
    }
    ck_assert_int_eq(pl_json_text(value, &text, &error), PL_INVALID); /* the longest path */
    ck_has(error.cause, "[0][0...: expected a string, found the number 0");
    pl_json_free(document);
    document = NULL;
    /* the text is not read, so it need not exist */
    ck_fails_as(PL_LIMIT, "F, line 1, column 1: expected at most 134217728 bytes, found more", pl_json_parse, deep,
                (size_t)PL_JSON_MAX_BYTES + 1, "F", &document);
}

TEST(too_many_values_are_refused_before_memory_is_taken)
{
    struct pl_json *document = NULL;
    size_t bytes = 2 * (size_t)PL_JSON_MAX_VALUES + 1;
    char *text = malloc(bytes);

    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = i % 2 == 0 ? ',' : '0';
    }
    text[0] = '[';
    text[bytes - 1] = ']';
    ck_fails(PL_LIMIT, "expected at most 16777216 values, found more", pl_json_parse, text, bytes, "F", &document);
    free(text);
}

TEST(a_file_is_read_with_its_own_bound)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_json *document = NULL;
    char path[PATH_MAX];

    scratch_write(&scratch, "f.json", "[1,\n 2]", 7);
    scratch_path(&scratch, "f.json", path);
    ck_ok(pl_json_read, path, 7, &document);
    ck_assert_uint_eq(pl_json_count(pl_json_root(document)), 2);
    pl_json_free(document);
    document = NULL;
    ck_fails(PL_LIMIT, "", pl_json_read, path, 6, &document);
    scratch_write(&scratch, "f.json", "[1,\n 2", 6);
    ck_fails(PL_INVALID, "f.json, line 2, column 3: expected ',' or ']'", pl_json_read, path, 7, &document);
    ck_fails(PL_NOT_FOUND, "", pl_json_read, "/nonexistent/f.json", 7, &document);
    ck_assert_ptr_null(document);
}

UNIT_MAIN("base/json")
