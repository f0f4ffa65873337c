/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/strv.c. */
#include "entrypoint/job/strv.h"
#include "tests/support/unit.h"

#include <string.h>

/* Returns the words of `text` between '<' and '>', or "!cause". */
static const char *split(const char *text)
{
    static char result[1024];
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    result[0] = '\0';
    if (pl_strv_split(text, "options", &words, &error) != PL_OK) {
        strcat(strcpy(result, "!"), error.cause);
        return result;
    }
    for (size_t i = 0; i < words.count; i++) {
        strcat(strcat(strcat(result, "<"), words.items[i]), ">");
    }
    return result;
}

START_TEST(words_split_as_in_a_shell)
{
    ck_assert_str_eq(split(""), "");
    ck_assert_str_eq(split("  -x  A=1\t-verbose\n"), "<-x><A=1><-verbose>");
    ck_assert_str_eq(split("-x \"A B=c d\" 'e \"f\"'"), "<-x><A B=c d><e \"f\">");
    ck_assert_str_eq(split("a'b c'\"d e\"f"), "<ab cd ef>");
    ck_assert_str_eq(split("'' \"\""), "<><>");
    ck_assert_str_eq(split("a\\ b \\\"c \"\\$x \\y \\\\\""), "<a b><\"c><$x \\y \\>");
    ck_assert_str_eq(split("a\\\nb \"c\\\nd\""), "<ab><cd>");
}
END_TEST

START_TEST(nothing_is_expanded)
{
    ck_assert_str_eq(split("$HOME `id` $(id) * ; | &"), "<$HOME><`id`><$(id)><*><;><|><&>");
}
END_TEST

START_TEST(open_quotes_and_a_last_backslash_are_errors)
{
    ck_assert_str_eq(split("a 'b c"), "!options: the quote ' at column 3 is not closed");
    ck_assert_str_eq(split("\"a\\\""), "!options: the quote \" at column 1 is not closed");
    ck_assert_str_eq(split("a\\"), "!options: expected a character after the backslash at column 2, found the end");
}
END_TEST

START_TEST(a_list_ends_in_null_and_finds_its_words)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    for (int i = 0; i < 20; i++) {
        ck_assert_ok(pl_strv_printf(&words, &error, "w%d", i), &error);
    }
    ck_assert_uint_eq(words.count, 20);
    ck_assert_ptr_null(words.items[20]);
    ck_assert_int_eq(pl_strv_find(&words, "w19"), 19);
    ck_assert_int_eq(pl_strv_find(&words, "w20"), -1);
}
END_TEST

UNIT_MAIN("entrypoint/strv", words_split_as_in_a_shell, nothing_is_expanded,
          open_quotes_and_a_last_backslash_are_errors, a_list_ends_in_null_and_finds_its_words)
