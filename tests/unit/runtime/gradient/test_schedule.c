/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/gradient/optimizer_rule.c. */
#include "runtime/schedule.h"

#include "tests/support/unit.h"

TEST(warm_up_goes_straight_from_the_base_to_the_full_rate)
{
    struct pl_schedule s = {.base_rate = 0.1, .scale = 4.0, .warmup_steps = 10};

    ck_assert_double_eq_tol(pl_schedule_rate(&s, 0), 0.1, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 5), 0.25, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 10), 0.4, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 1000000), 0.4, 1e-15);
}

TEST(a_zero_schedule_is_the_base_rate)
{
    struct pl_schedule s = {.base_rate = 0.1};

    ck_assert_double_eq(pl_schedule_rate(&s, 0), 0.1);
    ck_assert_double_eq(pl_schedule_rate(&s, 7), 0.1);
}

TEST(steps_multiply_by_gamma)
{
    struct pl_schedule s = {
        .kind = PL_SCHEDULE_STEP, .base_rate = 1.0, .warmup_steps = 2, .every_steps = 3, .gamma = 0.5};

    ck_assert_double_eq(pl_schedule_rate(&s, 4), 1.0);
    ck_assert_double_eq(pl_schedule_rate(&s, 5), 0.5);
    ck_assert_double_eq(pl_schedule_rate(&s, 8), 0.25);
}

TEST(cosine_and_polynomial_end_at_the_end_rate)
{
    struct pl_schedule s = {
        .kind = PL_SCHEDULE_COSINE, .base_rate = 1.0, .warmup_steps = 10, .total_steps = 110, .end_rate = 0.2};

    ck_assert_double_eq_tol(pl_schedule_rate(&s, 10), 1.0, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.6, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 110), 0.2, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 999), 0.2, 1e-12);
    s.kind = PL_SCHEDULE_POLYNOMIAL;
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.6, 1e-12);
    s.power = 2.0;
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.4, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 110), 0.2, 1e-12);
}

UNIT_MAIN("runtime/schedule")
