/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/pyrepr.c. */
#include "entrypoint/job/pyrepr.h"
#include "tests/support/unit.h"

#include <string.h>

static const char *rendered(const char *json, void (*append)(const struct pl_python_json *, struct pl_text *))
{
    static char result[1024];
    PL_AUTO_PYTHON_JSON struct pl_python_json *node = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_ok(pl_python_json_parse, json, strlen(json), "F", &node);
    append(node, &text);
    strcpy(result, pl_text_string(&text));
    return result;
}

TEST(arguments_are_pythons_str)
{
    ck_assert_str_eq(rendered("true", pl_pyrepr_append_argument), "True");
    ck_assert_str_eq(rendered("null", pl_pyrepr_append_argument), "");
    ck_assert_str_eq(rendered("NaN", pl_pyrepr_append_argument), "nan");
    ck_assert_str_eq(rendered("-Infinity", pl_pyrepr_append_argument), "-inf");
    ck_assert_str_eq(rendered("1E5", pl_pyrepr_append_argument), "100000.0");
    ck_assert_str_eq(rendered("-0", pl_pyrepr_append_argument), "0");
    ck_assert_str_eq(rendered("\"a b\"", pl_pyrepr_append_argument), "a b");
    ck_assert_str_eq(rendered("[]", pl_pyrepr_append_argument), "[]");
    ck_assert_str_eq(rendered("{}", pl_pyrepr_append_argument), "");
    ck_assert_str_eq(rendered("[1, 2.5, \"a b\", true, null, {\"k\": \"v\"}]", pl_pyrepr_append_argument),
                     "[1, 2.5, 'a b', True, None, {'k': 'v'}]");
    ck_assert_str_eq(
        rendered("{\"b\": 1, \"a\": \"x y\", \"c\": [1, 2], \"d\": {\"z\": null, \"y\": true}, \"e\": false}",
                 pl_pyrepr_append_argument),
        "a=x y,b=1,c=[1, 2],d={'z': None, 'y': True},e=False");
}

TEST(strings_are_quoted_as_pythons_repr_and_other_than_ascii_is_copied)
{
    ck_assert_str_eq(rendered("[\"it's\"]", pl_pyrepr_append), "[\"it's\"]");
    ck_assert_str_eq(rendered("[\"it's \\\"q\\\"\"]", pl_pyrepr_append), "['it\\'s \"q\"']");
    ck_assert_str_eq(rendered("[\"a\\\\b\\n\\r\\t\\u0001\\u007f\\u00a0\\u00ad\"]", pl_pyrepr_append),
                     "['a\\\\b\\n\\r\\t\\x01\\x7f\xC2\xA0\xC2\xAD']");
    ck_assert_str_eq(rendered("[\"\xC3\xA9\xE6\x97\xA5\xF0\x9F\x9A\x80\"]", pl_pyrepr_append),
                     "['\xC3\xA9\xE6\x97\xA5\xF0\x9F\x9A\x80']");
    ck_assert_str_eq(rendered("[\"\\u200b\\ud800\\udb40\\udc01\"]", pl_pyrepr_append),
                     "['\xE2\x80\x8B\\ud800\xF3\xA0\x80\x81']");
}

TEST(argument_names_get_dashes_by_their_length_in_characters)
{
    const char *json = "{\"k\": 1, \"\xC3\xBC\": 2, \"long\": 3, \"\": 4, \"K\": 5}";
    PL_AUTO_PYTHON_JSON struct pl_python_json *node = NULL;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    static const char *const expected[] = {"", "4", "-K", "5", "-k", "1", "--long", "3", "-\xC3\xBC", "2"};

    ck_ok(pl_python_json_parse, json, strlen(json), "F", &node);
    pl_pyrepr_arguments(node, &words);
    ck_assert_uint_eq(words.count, 10);
    for (size_t i = 0; i < words.count; i++) {
        ck_assert_str_eq(words.items[i], expected[i]);
    }
}

UNIT_MAIN("entrypoint/pyrepr")
