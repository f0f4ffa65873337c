/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/spelling.c. */
#include "base/spelling.h"
#include "tests/support/unit.h"

START_TEST(a_distance_counts_inserted_removed_and_changed_characters)
{
    ck_assert_uint_eq(pl_spelling_distance("train", "train", 2), 0);
    ck_assert_uint_eq(pl_spelling_distance("train", "trains", 2), 1);
    ck_assert_uint_eq(pl_spelling_distance("train", "rain", 2), 1);
    ck_assert_uint_eq(pl_spelling_distance("train", "brain", 2), 1);
    ck_assert_uint_eq(pl_spelling_distance("trian", "train", 2), 2);
    ck_assert_uint_eq(pl_spelling_distance("", "ab", 2), 2);
    ck_assert_uint_eq(pl_spelling_distance("train", "plan", 2), 3); /* more than the limit */
}
END_TEST

START_TEST(the_nearest_candidate_is_asked_for)
{
    struct pl_spelling spelling = {.name = "sinc"};
    char text[64];

    pl_spelling_compare(&spelling, "stacks", PL_SPELLING_EDITS);
    ck_assert_str_eq(pl_spelling_question(&spelling, "", text, sizeof(text)), "");
    pl_spelling_compare(&spelling, "info", PL_SPELLING_EDITS);
    pl_spelling_compare(&spelling, "sync", PL_SPELLING_EDITS);
    pl_spelling_compare(&spelling, "since", 0);
    ck_assert_str_eq(pl_spelling_question(&spelling, "--", text, sizeof(text)), " (did you mean '--sync'?)");
    ck_assert_uint_eq(spelling.edits, 1);
}
END_TEST

UNIT_MAIN("base/spelling", a_distance_counts_inserted_removed_and_changed_characters, the_nearest_candidate_is_asked_for)
