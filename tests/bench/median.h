/* SPDX-License-Identifier: Apache-2.0 */
/** The median that benchmarks print. */
#ifndef PL_TESTS_BENCH_MEDIAN_H
#define PL_TESTS_BENCH_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

static inline int median_compare(const void *left_at, const void *right_at)
{
    double left = *(const double *)left_at, right = *(const double *)right_at;

    return (left > right) - (left < right);
}

/**
 * Of `count` values, at least one, which are sorted by it; the upper of the two in the middle where their number is
 * even.
 */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), median_compare);
    return values[count / 2];
}

#endif
