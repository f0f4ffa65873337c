/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/json/text_place.c. */
#include "base/json/text_place.h"

#include "tests/support/unit.h"

#include <string.h>

START_TEST(what_stands_there_is_told_so_that_it_can_be_read)
{
    static const char text[] = "x\xF0\x9F\x9A\x80\t\n\x01\x7F";
    const char *end = text + sizeof(text) - 1;
    char found[PL_TEXT_PLACE_FOUND_BYTES];

    ck_assert_str_eq(pl_text_place_found(text, end, found), "'x'");
    ck_assert_str_eq(pl_text_place_found(text + 1, end, found), "'\xF0\x9F\x9A\x80'");
    ck_assert_str_eq(pl_text_place_found(text + 5, end, found), "a tab");
    ck_assert_str_eq(pl_text_place_found(text + 6, end, found), "a line break");
    ck_assert_str_eq(pl_text_place_found(text + 7, end, found), "the control character 0x01");
    ck_assert_str_eq(pl_text_place_found(text + 8, end, found), "the control character 0x7f");
    ck_assert_str_eq(pl_text_place_found(end, end, found), "the end of the text");
}
END_TEST

UNIT_MAIN("base/text_place", what_stands_there_is_told_so_that_it_can_be_read)
