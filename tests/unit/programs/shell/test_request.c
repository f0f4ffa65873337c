/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/shell/request.c. */
#include "base/memory.h"
#include "base/text.h"
#include "programs/shell/request.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_request_comes_out_as_it_went_in)
{
    static const char *const words[] = {
        "sh", "-c", "echo \"$HOME\"; echo 'it''s'", "", " two\nlines\t", "'", "\\", "a\\'b'", "\xC3\xA4\xFF", NULL};
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE, read = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_strv_add_list(&command, words, &error), &error);
    ck_assert_ok(pl_shell_request_print(&command, &text, &error), &error);
    ck_assert_ok(pl_shell_request_parse(pl_text_string(&text), &read, &error), &error);
    ck_assert_uint_eq(read.count, command.count);
    for (size_t i = 0; i < read.count; i++) {
        ck_assert_str_eq(read.items[i], words[i]);
    }
}
END_TEST

START_TEST(only_what_the_client_makes_is_accepted)
{
    static const char *const accepted[] = {"shell ", "shell 'ls'", "shell 'top' '-b'"};
    static const char *const refused[] = {"",
                                          "shell",
                                          "shell  ",
                                          "shelly",
                                          "relay",
                                          "sh -c ls",
                                          "shell ls",
                                          "shell 'ls' ",
                                          "shell  'ls'",
                                          "shell 'ls",
                                          "shell 'ls'; rm",
                                          "shell \"ls\"",
                                          "shell\n'ls'",
                                          "'shell' 'ls'"};
    struct pl_error error = PL_ERROR_NONE;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(accepted); i++) {
        PL_AUTO_STRV struct pl_strv request = PL_STRV_NONE;

        ck_assert_ok(pl_shell_request_parse(accepted[i], &request, &error), &error);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(refused); i++) {
        PL_AUTO_STRV struct pl_strv request = PL_STRV_NONE;

        ck_assert_msg(pl_shell_request_parse(refused[i], &request, &error) == PL_INVALID, "'%s' was accepted",
                      refused[i]);
        ck_assert_str_ne(error.cause, "");
    }
}
END_TEST

START_TEST(a_command_that_is_too_long_is_refused_on_both_sides)
{
    static char word[PL_SHELL_REQUEST_MAX_BYTES], text[PL_SHELL_REQUEST_MAX_BYTES + 64];
    PL_AUTO_STRV struct pl_strv request = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv read = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text printed = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    memset(word, 'a', sizeof(word) - 1);
    ck_assert_ok(pl_strv_add(&request, word, &error), &error);
    ck_assert_int_eq(pl_shell_request_print(&request, &printed, &error), PL_LIMIT);
    snprintf(text, sizeof(text), "shell '%s'", word);
    ck_assert_int_eq(pl_shell_request_parse(text, &read, &error), PL_INVALID);
}
END_TEST

UNIT_MAIN("programs/shell/request", a_request_comes_out_as_it_went_in, only_what_the_client_makes_is_accepted,
          a_command_that_is_too_long_is_refused_on_both_sides)
