/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/memory.c, base/number.h. */
#include "base/memory.h"
#include "base/number.h"
#include "tests/support/unit.h"

#include <string.h>

TEST(new_memory_is_zero_and_never_null_for_no_items)
{
    PL_AUTO_FREE unsigned char *bytes = pl_memory_new(1000, 7, NULL);
    PL_AUTO_FREE void *none = pl_memory_new(0, 0, NULL);
    PL_AUTO_FREE void *aligned_none = pl_memory_new_aligned(0, 8, 64, NULL);

    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < 7000; i++) {
        ck_assert_uint_eq(bytes[i], 0);
    }
    ck_assert_ptr_nonnull(none);
    ck_assert_ptr_nonnull(aligned_none);
}

TEST(overflowing_products_are_refused)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE char *items = NULL;
    size_t capacity = 0;

    ck_assert_ptr_null(pl_memory_new(SIZE_MAX / 2, 3, &error));
    ck_assert_int_eq(error.status, PL_MEMORY);
    error = PL_ERROR_NONE;
    ck_assert_ptr_null(pl_memory_new_aligned(SIZE_MAX / 2, 3, 64, &error));
    ck_assert_int_eq(error.status, PL_MEMORY);
    error = PL_ERROR_NONE;
    ck_assert_int_eq(pl_memory_grow(&items, &capacity, SIZE_MAX / 2, 3, &error), PL_MEMORY);
    ck_assert_int_eq(error.status, PL_MEMORY);
    ck_assert_int_eq(pl_memory_grow(&items, &capacity, SIZE_MAX, 1, &error), PL_MEMORY);
    ck_assert_ptr_null(items);
    ck_assert_uint_eq(capacity, 0);
}

TEST(every_power_of_two_is_an_alignment)
{
    for (size_t align_bytes = 1; align_bytes <= 1 << 16; align_bytes *= 2) {
        PL_AUTO_FREE unsigned char *memory = pl_memory_new_aligned(3, 5, align_bytes, NULL);

        ck_assert_msg(memory, "alignment %zu", align_bytes);
        ck_assert_uint_eq((uintptr_t)memory % align_bytes, 0);
        for (size_t i = 0; i < 15; i++) {
            ck_assert_uint_eq(memory[i], 0);
        }
    }
}

TEST(growing_keeps_items_and_doubles)
{
    PL_AUTO_FREE uint32_t *items = NULL;
    size_t capacity = 0, moves = 0;

    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = capacity;

        ck_ok(pl_memory_grow, &items, &capacity, i + 1, sizeof(*items));
        moves += capacity != before;
        items[i] = i;
    }
    ck_assert_uint_lt(moves, 20);
    for (uint32_t i = 0; i < 100000; i++) {
        ck_assert_uint_eq(items[i], i);
    }
}

TEST(a_failed_growth_changes_nothing)
{
    PL_AUTO_FREE uint32_t *items = NULL;
    uint32_t *before;
    size_t capacity = 0, capacity_before;

    ck_ok(pl_memory_grow, &items, &capacity, 4, sizeof(*items));
    items[3] = 42;
    before = items;
    capacity_before = capacity;
    ck_fails(PL_MEMORY, "", pl_memory_grow, &items, &capacity, SIZE_MAX / 4, sizeof(*items));
    ck_assert_ptr_eq(items, before);
    ck_assert_uint_eq(capacity, capacity_before);
    ck_assert_uint_eq(items[3], 42);
}

TEST(strings_are_copied_with_a_nul)
{
    PL_AUTO_FREE char *whole = pl_memory_string("whole", NULL);
    PL_AUTO_FREE char *part = pl_memory_string_n("partial", 4, NULL);
    PL_AUTO_FREE char *none = pl_memory_string_n("x", 0, NULL);
    PL_AUTO_FREE char *zeros = pl_memory_string_n("a\0b", 3, NULL);

    ck_assert_str_eq(whole, "whole");
    ck_assert_str_eq(part, "part");
    ck_assert_str_eq(none, "");
    ck_assert_mem_eq(zeros, "a\0b\0", 4);
}

TEST(take_leaves_null_behind)
{
    PL_AUTO_FREE char *text = pl_memory_string("x", NULL);
    PL_AUTO_FREE char *taken = PL_TAKE(text);

    ck_assert_ptr_null(text);
    ck_assert_str_eq(taken, "x");
}

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

UNIT_MAIN("base/memory")
