/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/tail.c. */
#include "entrypoint/output/tail.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_tail tail;

static void add(const char *text)
{
    pl_tail_add(&tail, text, strlen(text));
}

START_TEST(the_last_lines_are_kept_in_order)
{
    char text[64], line[32];

    for (int i = 0; i < 5000; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        add(line);
    }
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 31), 30);
    ck_assert_str_eq(text, "line 4997\nline 4998\nline 4999\n");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 30), 20);
    ck_assert_str_eq(text, "line 4998\nline 4999\n");
}
END_TEST

START_TEST(a_line_without_an_end_counts)
{
    char text[64];

    add("one\n\n  \ntwo");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "one\ntwo\n");
}
END_TEST

START_TEST(a_progress_bar_keeps_its_last_state)
{
    char text[64];

    add("10%\r20%\r100%\r\ndone\r\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "100%\ndone\n");
}
END_TEST

START_TEST(colours_controls_and_broken_utf8_do_not_reach_the_text)
{
    char text[128];

    add("\033[31mred\033[0m \001x\xff\xc3\xa9\xc3 \xed\xa0\x80!\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "red x?\xc3\xa9? ?"
                           "?"
                           "?!\n");
}
END_TEST

START_TEST(eight_bit_controls_and_what_a_colour_between_two_bytes_makes_do_not_reach_the_text)
{
    char text[128];

    add("\xc2\x9b"
        "31mred\xc2\x9dx \xc2\033[m\x9b"
        "31m \xc2\xa0\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "redx ??31m \xc2\xa0\n");
}
END_TEST

START_TEST(a_long_line_is_cut_visibly)
{
    static char text[4096], line[3000];

    memset(line, 'a', sizeof(line) - 1);
    add(line);
    ck_assert_uint_eq(pl_tail_lines(&tail, text, sizeof(text)), PL_TAIL_LINE_BYTES + 1);
    ck_assert_str_eq(text + PL_TAIL_LINE_BYTES - 3, "...\n");
}
END_TEST

START_TEST(of_pips_long_list_of_versions_the_newest_stay)
{
    char text[PL_TAIL_LINE_BYTES + 2], version[32];

    add("ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: ");
    for (int i = 0; i < 200; i++) {
        snprintf(version, sizeof(version), "%s1.%d.0", i == 0 ? "" : ", ", i);
        add(version);
    }
    add(")\n");
    ck_assert_uint_le(pl_tail_lines(&tail, text, sizeof(text)), PL_TAIL_LINE_BYTES + 1);
    ck_assert_msg(
        strncmp(text,
                "ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: ..., 1.",
                94) == 0,
        "%s", text);
    ck_assert_ptr_nonnull(strstr(text, ", 1.198.0, 1.199.0)\n"));
}
END_TEST

START_TEST(nothing_fits_into_nothing)
{
    char text[4] = "xyz";

    add("a long line\n");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 4), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 0), 0);
}
END_TEST

UNIT_MAIN("entrypoint/tail", the_last_lines_are_kept_in_order, a_line_without_an_end_counts,
          a_progress_bar_keeps_its_last_state, colours_controls_and_broken_utf8_do_not_reach_the_text,
          eight_bit_controls_and_what_a_colour_between_two_bytes_makes_do_not_reach_the_text,
          a_long_line_is_cut_visibly, of_pips_long_list_of_versions_the_newest_stay, nothing_fits_into_nothing)
