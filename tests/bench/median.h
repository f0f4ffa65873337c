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
 * The median of `count` values, at least one; the upper of the two in the middle if `count` is even. Sorts the values.
 */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), median_compare);
    return values[count / 2];
}

#endif
