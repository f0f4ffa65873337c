/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/json/python_json.c, base/json/python_json_parse.c, base/json/python_json_print.c. */
#include "base/json/python_json.h"
#include "base/memory.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

/* Returns the printed form of `text`, or "!cause" if it is refused; valid until the next call. */
static const char *printed(const char *text, unsigned style)
{
    static char result[4096];
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text out = PL_TEXT_NONE;

    if (pl_python_json_parse(text, strlen(text), "F", &root, &error) != PL_OK) {
        snprintf(result, sizeof(result), "!%s", error.cause);
        return result;
    }
    pl_python_json_print(root, style, &out);
    snprintf(result, sizeof(result), "%s", pl_text_string(&out));
    return result;
}

#define ck_prints(text, expected)                                                                                      \
    ck_assert_str_eq(printed((text), PL_PYTHON_JSON_COMPACT | PL_PYTHON_JSON_SORTED), (expected))

TEST(numbers_keep_their_text_and_print_as_python)
{
    ck_prints("123456789012345678901234567890", "123456789012345678901234567890");
    ck_prints("-0", "0");
    ck_prints("-0.0", "-0.0");
    ck_prints("1e400", "Infinity");
    ck_prints("[NaN,Infinity,-Infinity]", "[NaN,Infinity,-Infinity]");
    ck_prints("[1e-3,1E5,1e16,1e22,1e-05,0.0001,123456789012345680.0,1e15]",
              "[0.001,100000.0,1e+16,1e+22,1e-05,0.0001,1.2345678901234568e+17,1000000000000000.0]");
    ck_prints("3.141592653589793238462643", "3.141592653589793");
    /* 2^-44: the nearest 16 digits do not read back, the next larger ones do. */
    ck_prints("5.6843418860808015e-14", "5.684341886080802e-14");
    ck_prints("[5e-324,1.7976931348623157e308,2.2250738585072014e-308,0.30000000000000004,9007199254740993.0]",
              "[5e-324,1.7976931348623157e+308,2.2250738585072014e-308,0.30000000000000004,9007199254740992.0]");
}

TEST(strings_keep_odd_characters)
{
    ck_prints("\"a\\u0000b\"", "\"a\\u0000b\"");
    ck_prints("\"\\ud800\"", "\"\\ud800\"");
    ck_prints("\"\\ud83d\\ude80\"", "\"\\ud83d\\ude80\"");
    ck_prints("\"\xF0\x9F\x9A\x80\"", "\"\\ud83d\\ude80\"");
    ck_prints("\"\\ud83dx\\ude80\"", "\"\\ud83dx\\ude80\"");
    ck_prints("\"\\/\\b\\f\\n\\r\\t\\\\\\\"\x7F\"", "\"/\\b\\f\\n\\r\\t\\\\\\\"\\u007f\"");
    ck_prints("\"\xC3\xA9\"", "\"\\u00e9\"");
}

/* The parser is json.h's with other rules for numbers, strings and names: test_json.c has its words, and
 * json_against_python.py what is refused. */
TEST(errors_name_line_column_expected_and_found)
{
    ck_assert_str_eq(printed("{\"a\": 1,\n  \"b\" 2}", 0), "!F, line 2, column 7: expected ':' after a key, found '2'");
    ck_assert_str_eq(printed("007", 0), "!F, line 1, column 2: expected the end of the text, found '0'");
}

TEST(names_sort_by_code_point_and_the_last_duplicate_wins_in_place)
{
    ck_prints("{\"b\":1,\"B\":2,\"\xC3\xA9\":3,\"a\\u0000\":4,\"a\":5,\"a\\u0001\":6}",
              "{\"B\":2,\"a\":5,\"a\\u0000\":4,\"a\\u0001\":6,\"b\":1,\"\\u00e9\":3}");
    ck_assert_str_eq(printed("{\"a\": 1, \"b\": [1,  2], \"a\": 3}", PL_PYTHON_JSON_SPACED),
                     "{\"a\": 3, \"b\": [1, 2]}");
}

TEST(depth_and_count_are_bounded)
{
    char deep[2 * PL_PYTHON_JSON_MAX_DEPTH + 64] = "";
    struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text wide = PL_TEXT_NONE;

    memset(deep, '[', PL_PYTHON_JSON_MAX_DEPTH + 2);
    ck_fails(PL_LIMIT, "", pl_python_json_parse, deep, strlen(deep), "F", &root);
    pl_text_append_char(&wide, '[');
    for (int i = 0; i < PL_PYTHON_JSON_MAX_NODES; i++) {
        pl_text_append(&wide, "0,");
    }
    pl_text_append(&wide, "0]");
    ck_fails(PL_LIMIT, "", pl_python_json_parse, wide.data, wide.length, "F", &root);
}

TEST(integers_longer_than_pythons_limit_are_refused)
{
    char digits[4402];
    struct pl_python_json *root = NULL;

    memset(digits, '7', sizeof(digits));
    digits[0] = '-';
    ck_fails(PL_INVALID, "", pl_python_json_parse, digits, 4302, "F", &root);
    ck_ok(pl_python_json_parse, digits, 4301, "F", &root);
    ck_assert_int_eq(pl_python_json_kind(root), PL_PYTHON_JSON_INT);
    pl_python_json_free(root);
}

TEST(large_objects_stay_fast_and_find_every_name)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    char name[32];

    pl_text_append_char(&text, '{');
    for (int i = 0; i < 100000; i++) {
        pl_text_printf(&text, "\"n%d\":%d,", i % 99999, i);
    }
    pl_text_append(&text, "\"last\":{\"x\":1}}");
    ck_ok(pl_python_json_parse, text.data, text.length, "F", &root);
    ck_assert_uint_eq(pl_python_json_count(root), 100000);
    for (int i = 1; i < 99999; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        ck_assert_int_eq(atoi(pl_python_json_text(pl_python_json_member(root, name))), i);
    }
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(root, "n0")), "99999");
    ck_assert_ptr_null(pl_python_json_member(root, "N5"));
}

TEST(a_replaced_large_object_is_still_found_by_name)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    pl_text_append(&text, "{\"o\":1,\"p\":2,\"o\":{");
    for (int i = 0; i < 50; i++) {
        pl_text_printf(&text, "%s\"k%d\":%d", i == 0 ? "" : ",", i, i);
    }
    pl_text_append(&text, "}}");
    ck_ok(pl_python_json_parse, text.data, text.length, "F", &root);
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(pl_python_json_member(root, "o"), "k49")), "49");
    ck_assert_str_eq(pl_python_json_name(pl_python_json_first(root)), "o");
}

TEST(trees_made_by_hand_print_and_copy)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *object = pl_python_json_new_object();
    struct pl_python_json *list = pl_python_json_new_array();
    PL_AUTO_PYTHON_JSON struct pl_python_json *copy = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_ok(pl_python_json_append, list, pl_python_json_new_string("a"));
    ck_ok(pl_python_json_append, list, pl_python_json_new_null());
    ck_ok(pl_python_json_set, object, "list", list);
    ck_ok(pl_python_json_set, object, "n", pl_python_json_new_int64(INT64_MIN));
    ck_ok(pl_python_json_set, object, "n", pl_python_json_new_bool(true));
    ck_fails(PL_MEMORY, "", pl_python_json_set, object, "x", NULL);
    copy = pl_python_json_copy(object);
    pl_python_json_print(copy, PL_PYTHON_JSON_COMPACT, &text);
    ck_assert_str_eq(pl_text_string(&text), "{\"list\":[\"a\",null],\"n\":true}");
}

TEST(the_content_of_a_string_parses_in_its_inner_form)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *outer = NULL;
    PL_AUTO_PYTHON_JSON struct pl_python_json *inner = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *source = "\"[\\\"\\ud800\\\", 1]\"";

    ck_ok(pl_python_json_parse, source, strlen(source), "F", &outer);
    ck_ok(pl_python_json_parse_inner, pl_python_json_text(outer), "F", &inner);
    pl_python_json_print(inner, PL_PYTHON_JSON_COMPACT, &text);
    ck_assert_str_eq(pl_text_string(&text), "[\"\\ud800\",1]");
    pl_text_clear(&text);
    pl_python_json_string_bytes(pl_python_json_first(inner), &text);
    ck_assert_str_eq(pl_text_string(&text), "\xEF\xBF\xBD");
}

TEST(nodes_know_where_they_stood)
{
    const char *text = "{\"\xC3\xA9\": 1,\n \"b\": [true]}";
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    const struct pl_python_json *item;
    int64_t value = 0;

    ck_ok(pl_python_json_parse, text, strlen(text), "F", &root);
    ck_assert_uint_eq(pl_python_json_column(pl_python_json_first(root)), 7);
    item = pl_python_json_first(pl_python_json_member(root, "b"));
    ck_assert_uint_eq(pl_python_json_line(item), 2);
    ck_assert_uint_eq(pl_python_json_column(item), 8);
    ck_assert(pl_python_json_bool(item));
    ck_ok(pl_python_json_int64, pl_python_json_first(root), &value);
    ck_assert_int_eq(value, 1);
    ck_fails(PL_INVALID, "", pl_python_json_int64, item, &value);
}

TEST(a_strict_text_is_json_to_the_letter_and_has_each_name_once)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"{\"a\": {\"b\": 1,\n \"b\": 2}}", "F, line 2, column 2: expected each key once, found \"b\" twice"},
        {"[NaN]", NULL},
        {"\"\\u0000\"", NULL},
        {"1e400", NULL},
        {"9007199254740993", NULL},
        {"{} {}", NULL},
    };
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    const char *fine = "{\"a\": 1.50, \"b\": {\"a\": 2}}";
    struct pl_error error = PL_ERROR_NONE;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        ck_assert_int_eq(pl_python_json_parse_strict(wrong[i].text, strlen(wrong[i].text), "F", &root, &error),
                         PL_INVALID);
        if (wrong[i].told) {
            ck_assert_str_eq(error.cause, wrong[i].told);
        }
    }
    ck_ok(pl_python_json_parse_strict, fine, strlen(fine), "F", &root);
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(root, "a")), "1.50");
}

UNIT_MAIN("base/python_json")
