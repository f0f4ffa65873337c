/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/cpus.c. */
#include "base/cpus.h"

#include "base/text.h"
#include "tests/support/unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void expect_list(const char *expected, int count, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_cpus cpus;
    va_list numbers;

    memset(&cpus, 0, sizeof(cpus));
    va_start(numbers, count);
    for (int i = 0; i < count; i++) {
        CPU_SET_S((size_t)va_arg(numbers, int), sizeof(cpus), cpus.sets);
    }
    va_end(numbers);
    pl_cpus_print(&cpus, &text);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

TEST(a_set_is_written_as_the_kernel_does)
{
    expect_list("none", 0);
    expect_list("0", 1, 0);
    expect_list("0-1", 2, 0, 1);
    expect_list("0-3,8", 5, 0, 1, 2, 3, 8);
    expect_list("1,3,5-6", 4, 1, 3, 5, 6);
    expect_list("0,4095-4096,8191", 4, 0, 4095, 4096, 8191);
}

TEST(the_own_set_is_that_of_the_kernel)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_cpus own, first;
    char number[16];

    memset(&own, 0, sizeof(own));
    memset(&first, 0, sizeof(first));
    ck_assert_int_eq(sched_getaffinity(0, sizeof(own), own.sets), 0);
    for (int cpu = 0; cpu < PL_CPUS_MOST; cpu++) {
        if (CPU_ISSET_S((size_t)cpu, sizeof(own), own.sets)) {
            CPU_SET_S((size_t)cpu, sizeof(first), first.sets);
            snprintf(number, sizeof(number), "%d", cpu);
            break;
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof(first), first.sets), 0);
    pl_cpus_print_own(&text);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(own), own.sets), 0);
    ck_assert_str_eq(pl_text_string(&text), number);
}

static void expect_words(const char *expected, const struct pl_cpus_of *ranks, size_t count)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_cpus_describe(ranks, count, &text);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

TEST(ranks_of_equal_sets_are_named_together)
{
    const struct pl_cpus_of free_ranks[] = {{0, "0-1"}, {1, "0-1"}, {2, "0-1"}, {3, "0-1"}};
    const struct pl_cpus_of by_core[] = {{4, "0"}, {5, "1"}};
    const struct pl_cpus_of in_turn[] = {{0, "0-3"}, {1, "4-7"}, {2, "0-3"}, {3, "4-7"}, {4, "0-3"}};
    const struct pl_cpus_of one_core[] = {{0, "0"}, {1, "0"}, {3, "1,3"}};

    expect_words("ranks 0-3 run on CPUs 0-1", free_ranks, 4);
    expect_words("rank 0 runs on CPUs 0-1", free_ranks, 1);
    expect_words("rank 4 bound to CPU 0; rank 5 bound to CPU 1", by_core, 2);
    expect_words("ranks 0,2,4 run on CPUs 0-3; ranks 1,3 run on CPUs 4-7", in_turn, 5);
    expect_words("ranks 0-1 bound to CPU 0; rank 3 runs on CPUs 1,3", one_core, 3);
    expect_words("", NULL, 0);
}

TEST(sets_beyond_eight_are_counted)
{
    const struct pl_cpus_of ranks[] = {{0, "0"}, {1, "1"}, {2, "2"}, {3, "3"}, {4, "4"},
                                       {5, "5"}, {6, "6"}, {7, "7"}, {8, "8"}, {9, "9"}};

    expect_words("rank 0 bound to CPU 0; rank 1 bound to CPU 1; rank 2 bound to CPU 2; rank 3 bound to CPU 3; "
                 "rank 4 bound to CPU 4; rank 5 bound to CPU 5; rank 6 bound to CPU 6; rank 7 bound to CPU 7; "
                 "and 2 more sets of CPUs",
                 ranks, 10);
}

UNIT_MAIN("base/cpus")
