/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/clock.c. */
#include "base/clock.h"
#include "tests/support/unit.h"

#include <limits.h>

TEST(time_does_not_run_backwards)
{
    int64_t before_ns = pl_clock_now_ns();

    ck_assert(before_ns > 0);
    for (int i = 0; i < 1000; i++) {
        int64_t now_ns = pl_clock_now_ns();

        ck_assert(now_ns >= before_ns);
        before_ns = now_ns;
    }
}

TEST(deadlines_saturate_at_never)
{
    ck_assert(pl_deadline_after_ns(-1) == PL_DEADLINE_NEVER);
    ck_assert(pl_deadline_after_ns(INT64_MIN) == PL_DEADLINE_NEVER);
    ck_assert(pl_deadline_after_ns(INT64_MAX) == PL_DEADLINE_NEVER);
    ck_assert(pl_deadline_after_ns(INT64_MAX - 1) == PL_DEADLINE_NEVER);
    ck_assert(pl_deadline_after_ns(100 * PL_NS_PER_S) > pl_clock_now_ns());
}

TEST(never_never_passes_and_zero_passes_at_once)
{
    ck_assert(!pl_deadline_passed(PL_DEADLINE_NEVER));
    ck_assert(pl_deadline_passed(pl_deadline_after_ns(0)));
    ck_assert(pl_deadline_passed(0));
    ck_assert(pl_deadline_passed(INT64_MIN));
    ck_assert(!pl_deadline_passed(pl_deadline_after_ns(100 * PL_NS_PER_S)));
}

TEST(poll_gets_milliseconds_rounded_up)
{
    int left_ms;

    ck_assert_int_eq(pl_deadline_poll_ms(PL_DEADLINE_NEVER), -1);
    ck_assert_int_eq(pl_deadline_poll_ms(0), 0);
    ck_assert_int_eq(pl_deadline_poll_ms(INT64_MIN), 0);
    ck_assert_int_eq(pl_deadline_poll_ms(pl_clock_now_ns()), 0);
    ck_assert_int_eq(pl_deadline_poll_ms(PL_DEADLINE_NEVER - 1), INT_MAX);
    left_ms = pl_deadline_poll_ms(pl_deadline_after_ns(100 * PL_NS_PER_S));
    ck_assert_int_gt(left_ms, 90 * 1000);
    ck_assert_int_le(left_ms, 100 * 1000);
    /* The time that is left before a deadline is never 0: otherwise poll(2) would spin. */
    for (int i = 0; i < 1000; i++) {
        int64_t deadline_ns = pl_deadline_after_ns(20 * PL_NS_PER_US);

        left_ms = pl_deadline_poll_ms(deadline_ns);
        ck_assert(left_ms == 1 || (left_ms == 0 && pl_deadline_passed(deadline_ns)));
    }
}

TEST(a_nap_ends_at_the_deadline_or_before)
{
    int64_t begin_ns = pl_clock_now_ns();
    int64_t deadline_ns;

    pl_clock_nap(3600 * PL_NS_PER_S, pl_deadline_after_ns(2 * PL_NS_PER_MS));
    pl_clock_nap(3600 * PL_NS_PER_S, 0);
    pl_clock_nap(INT64_MAX, INT64_MIN);
    pl_clock_nap(-1, PL_DEADLINE_NEVER);
    pl_clock_nap(0, PL_DEADLINE_NEVER);
    ck_assert(pl_clock_now_ns() - begin_ns < 60 * PL_NS_PER_S);
    begin_ns = pl_clock_now_ns();
    deadline_ns = pl_deadline_after_ns(3600 * PL_NS_PER_S);
    pl_clock_nap(2 * PL_NS_PER_MS, deadline_ns);
    ck_assert(pl_clock_now_ns() - begin_ns >= 2 * PL_NS_PER_MS);
    ck_assert(!pl_deadline_passed(deadline_ns));
}

TEST(a_wait_backs_off_by_a_64th_of_its_time_within_bounds)
{
    ck_assert_int_eq(pl_clock_backoff_ns(0, 20, 1000), 20);
    ck_assert_int_eq(pl_clock_backoff_ns(64 * 20, 20, 1000), 20);
    ck_assert_int_eq(pl_clock_backoff_ns(64 * 21, 20, 1000), 21);
    ck_assert_int_eq(pl_clock_backoff_ns(64 * 999, 20, 1000), 999);
    ck_assert_int_eq(pl_clock_backoff_ns(INT64_MAX, 20, 1000), 1000);
}

UNIT_MAIN("base/clock")
