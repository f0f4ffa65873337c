/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/text.c. */
#include "base/memory.h"
#include "base/text.h"
#include "tests/support/unit.h"

#include <string.h>

TEST(pieces_come_together_in_order)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_str_eq(pl_text_string(&text), "");
    pl_text_append(&text, "a");
    pl_text_append_char(&text, 'b');
    pl_text_append_n(&text, "cdef", 1);
    pl_text_append_n(&text, NULL, 0);
    pl_text_printf(&text, "-%d-%s", 42, "x");
    pl_text_append(&text, "");
    ck_assert_str_eq(pl_text_string(&text), "abc-42-x");
    ck_assert_uint_eq(text.length, 8);
    ck_ok(pl_text_check, &text);
}

TEST(nul_bytes_are_bytes)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append_n(&text, "a\0b", 3);
    pl_text_append_char(&text, '\0');
    ck_assert_uint_eq(text.length, 4);
    ck_assert_mem_eq(text.data, "a\0b\0\0", 5);
}

TEST(taking_hands_over_and_empties)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *first = NULL;
    PL_AUTO_FREE char *second = NULL;

    ck_ok(pl_text_take, &text, &first);
    ck_assert_str_eq(first, "");
    ck_assert_uint_eq(text.length, 0);
    pl_text_append(&text, "again");
    ck_ok(pl_text_take, &text, &second);
    ck_assert_str_eq(second, "again");
    ck_assert_ptr_null(text.data);
    ck_assert_str_eq(first, "");
}

TEST(printf_longer_than_any_buffer)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append(&text, "head");
    for (int width = 1; width < 5000; width += 7) {
        size_t before = text.length;

        pl_text_printf(&text, "%0*d", width, 7);
        ck_assert_uint_eq(text.length, before + (size_t)width);
        ck_assert_uint_eq(strlen(text.data), text.length);
    }
    ck_assert_int_eq(strncmp(pl_text_string(&text), "head7", 5), 0);
}

TEST(running_out_is_remembered_and_said_once)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char *taken = NULL;

    pl_text_append(&text, "kept");
    pl_text_append_n(&text, "x", SIZE_MAX - 2); /* refused before a byte is read */
    pl_text_append(&text, "lost");
    ck_assert_str_eq(pl_text_string(&text), "kept");
    ck_fails(PL_MEMORY, "", pl_text_check, &text);
    ck_fails(PL_MEMORY, "", pl_text_take, &text, &taken);
    ck_assert_ptr_null(taken);
    pl_text_clear(&text);
    pl_text_append(&text, "new");
    ck_assert_str_eq(pl_text_string(&text), "new");
    ck_ok(pl_text_check, &text);
}

TEST(a_formatted_text_replaces_what_was_there)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append(&text, "a longer text");
    ck_assert_int_eq(pl_text_set(&text, NULL, "%s/%d", "x", 7), PL_OK);
    ck_assert_str_eq(text.data, "x/7");
    ck_assert_uint_eq(text.length, 3);
}

TEST(clear_keeps_the_memory)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *data;

    pl_text_clear(&text);
    ck_assert_str_eq(pl_text_string(&text), "");
    pl_text_append(&text, "something");
    data = text.data;
    pl_text_clear(&text);
    ck_assert_str_eq(pl_text_string(&text), "");
    pl_text_append(&text, "else");
    ck_assert_ptr_eq(text.data, data);
    pl_text_done(&text);
    pl_text_done(&text);
    ck_assert_str_eq(pl_text_string(&text), "");
}

TEST(hexadecimal_digits_have_a_value_and_nothing_else_has)
{
    static const char digits[] = "0123456789abcdefABCDEF";

    for (int byte = 0; byte < 256; byte++) {
        const char *at = byte ? strchr(digits, byte) : NULL;
        int expected = !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;

        ck_assert_int_eq(pl_text_hex_value((char)byte), expected);
    }
}

TEST(a_text_that_was_cut_is_whole_without_the_character_it_ends_in)
{
    static const char text[] = "a\u00e4\u20ac\U0001f600";
    /* by the number of bytes that are left */
    static const size_t whole[sizeof(text)] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    static const struct {
        const char *broken;
        size_t whole;
    } broken[] = {{"a\xff", 2}, {"\x80\x80\x80\x80", 4}, {"a\xc3\xa4\xa4", 4}, {"\xc0", 1}, {"\xf4\x80", 0}};

    for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
        ck_assert_uint_eq(pl_text_whole_bytes(text, bytes), whole[bytes]);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(broken); i++) {
        ck_assert_uint_eq(pl_text_whole_bytes(broken[i].broken, strlen(broken[i].broken)), broken[i].whole);
    }
}

TEST(a_text_to_show_holds_no_control_characters)
{
    /* Tab, line feed, ESC, DEL, U+009B, U+009D, U+0080, U+009F, U+00A0, U+20AC, and single bytes. */
    char text[] = "\t\n\x1b\x7f"
                  "a\xc2\x9b"
                  "b\xc2\x9d"
                  "c\xc2\x80"
                  "d\xc2\x9f"
                  "e\xc2\xa0\xe2\x82\xac\x9b"
                  "f\xc2";
    const char *end = text + sizeof(text) - 1;

    ck_assert_uint_eq(pl_text_control_bytes(text + 2, end), 1);
    ck_assert_uint_eq(pl_text_control_bytes(text + 5, end), 2);
    ck_assert_uint_eq(pl_text_control_bytes(text + 5, text + 6), 0);
    ck_assert_uint_eq(pl_text_control_bytes(end - 1, end), 0);
    pl_text_mask(text, sizeof(text) - 1);
    ck_assert_str_eq(text, "\t\n??a??b??c??d??e\xc2\xa0\xe2\x82\xac?f?");
}

TEST(numbers_of_a_status_are_found_by_their_whole_name)
{
    static const char status[] = "Name:\tx\nShdPnd:\t01\nSigCgt:\t0000000000000200\nTracerPid:\t42\n";

    ck_assert_uint_eq(pl_text_field_number(status, "SigCgt", 16, 0), 0x200);
    ck_assert_uint_eq(pl_text_field_number(status, "TracerPid", 10, 0), 42);
    ck_assert_uint_eq(pl_text_field_number(status, "Tracer", 10, 0), 0);
    ck_assert_uint_eq(pl_text_field_number("", "TracerPid", 10, 0), 0);
    ck_assert_uint_eq(pl_text_field_number(status, "CapEff", 16, UINT64_MAX), UINT64_MAX);
}

TEST(a_distance_counts_inserted_removed_and_changed_characters)
{
    ck_assert_uint_eq(pl_text_distance("train", "train", 2), 0);
    ck_assert_uint_eq(pl_text_distance("train", "trains", 2), 1);
    ck_assert_uint_eq(pl_text_distance("train", "rain", 2), 1);
    ck_assert_uint_eq(pl_text_distance("train", "brain", 2), 1);
    ck_assert_uint_eq(pl_text_distance("trian", "train", 2), 2);
    ck_assert_uint_eq(pl_text_distance("", "ab", 2), 2);
    ck_assert_uint_eq(pl_text_distance("train", "plan", 2), 3); /* more than the limit */
}

TEST(the_nearest_candidate_is_asked_for)
{
    struct pl_text_near spelling = {.name = "sinc"};
    char text[64];

    pl_text_near_compare(&spelling, "stacks", PL_TEXT_NEAR_EDITS);
    ck_assert_str_eq(pl_text_near_hint(&spelling, "", text, sizeof(text)), "");
    pl_text_near_compare(&spelling, "info", PL_TEXT_NEAR_EDITS);
    pl_text_near_compare(&spelling, "sync", PL_TEXT_NEAR_EDITS);
    pl_text_near_compare(&spelling, "since", 0);
    ck_assert_str_eq(pl_text_near_hint(&spelling, "--", text, sizeof(text)), " (did you mean '--sync'?)");
    ck_assert_uint_eq(spelling.edits, 1);
}

TEST(an_end_is_compared_as_a_whole)
{
    ck_assert(pl_text_ends_with("train.py", ".py"));
    ck_assert(pl_text_ends_with(".py", ".py"));
    ck_assert(pl_text_ends_with("a", ""));
    ck_assert(!pl_text_ends_with("py", ".py"));
    ck_assert(!pl_text_ends_with("train.pyc", ".py"));
}

UNIT_MAIN("base/text")
