/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/number.h. */
#include "base/number.h"
#include "tests/support/unit.h"

TEST(counts_are_rounded_up_to_whole_pieces_without_overflow)
{
    ck_assert_uint_eq(pl_number_divide_up(0, 7), 0);
    ck_assert_uint_eq(pl_number_divide_up(1, 7), 1);
    ck_assert_uint_eq(pl_number_divide_up(7, 7), 1);
    ck_assert_uint_eq(pl_number_divide_up(8, 7), 2);
    ck_assert_uint_eq(pl_number_divide_up(UINT64_MAX, 2), UINT64_C(1) << 63);
    ck_assert_uint_eq(pl_number_round_up(0, 64), 0);
    ck_assert_uint_eq(pl_number_round_up(65, 64), 128);
    ck_assert_uint_eq(pl_number_round_up(UINT64_MAX - 63, 64), UINT64_MAX - 63);
}

TEST(the_lesser_of_two_is_found_in_either_order)
{
    ck_assert_uint_eq(pl_number_min(3, 5), 3);
    ck_assert_uint_eq(pl_number_min(5, 3), 3);
    ck_assert_uint_eq(pl_number_min(UINT64_MAX, 0), 0);
}

UNIT_MAIN("base/number")
