/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/report/series.c. */
/* A few values are kept as they are; of a million the lowest and the highest are, wherever they stand. */
#include "programs/report/report.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdlib.h>

enum { MANY = 1000000, LOWEST_AT = 123457, HIGHEST_AT = 876543 };

TEST(a_few_values_are_kept_as_they_are)
{
    struct pl_series *series = calloc(1, sizeof(*series));

    ck_assert_ptr_nonnull(series);
    for (int i = 0; i < PL_SERIES_STRETCHES; i++) {
        pl_series_add(series, 10 + i, i % 7);
    }
    ck_assert_uint_eq(series->used, PL_SERIES_STRETCHES);
    ck_assert_uint_eq(series->width, 1);
    for (int i = 0; i < PL_SERIES_STRETCHES; i++) {
        ck_assert_double_eq(series->stretches[i].first_x, 10 + i);
        ck_assert_double_eq(series->stretches[i].least, i % 7);
        ck_assert_double_eq(series->stretches[i].last, i % 7);
    }
    ck_assert_double_eq(series->last, (PL_SERIES_STRETCHES - 1) % 7);
    free(series);
}

TEST(of_a_million_values_the_extremes_stay_where_they_are)
{
    struct pl_series *series = calloc(1, sizeof(*series));
    uint64_t count = 0;
    int lowest = 0, highest = 0;

    ck_assert_ptr_nonnull(series);
    for (int i = 0; i < MANY; i++) {
        pl_series_add(series, i, i == LOWEST_AT ? -5 : i == HIGHEST_AT ? 50 : sin(i / 1e4));
    }
    ck_assert_uint_le(series->used, PL_SERIES_STRETCHES);
    ck_assert_uint_ge(series->used, PL_SERIES_STRETCHES / 4);
    ck_assert_double_eq(series->least, -5);
    ck_assert_double_eq(series->most, 50);
    for (size_t i = 0; i < series->used; i++) {
        const struct pl_series_stretch *stretch = &series->stretches[i];

        ck_assert_double_eq(stretch->first_x, (double)count);
        count += stretch->count;
        ck_assert_double_eq(stretch->last_x, (double)count - 1);
        ck_assert(i + 1 == series->used || stretch->count == series->width);
        ck_assert_double_le(stretch->least, stretch->last);
        ck_assert_double_ge(stretch->most, stretch->last);
        lowest += stretch->least == -5 && stretch->least_x == LOWEST_AT;
        highest += stretch->most == 50 && stretch->most_x == HIGHEST_AT;
    }
    ck_assert_uint_eq(count, MANY);
    ck_assert_int_eq(lowest, 1);
    ck_assert_int_eq(highest, 1);
    free(series);
}

TEST(what_is_not_finite_is_counted_alone)
{
    struct pl_series *series = calloc(1, sizeof(*series));

    ck_assert_ptr_nonnull(series);
    pl_series_add(series, 1, NAN);
    pl_series_add(series, 2, INFINITY);
    ck_assert_uint_eq(series->used, 0);
    pl_series_add(series, 3, 4);
    ck_assert_uint_eq(series->count, 1);
    ck_assert_uint_eq(series->not_finite, 2);
    ck_assert_double_eq(series->least, 4);
    ck_assert_double_eq(series->most, 4);
    free(series);
}

UNIT_MAIN("programs/report/series")
