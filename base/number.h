/* SPDX-License-Identifier: Apache-2.0 */
/** Whole numbers: the lesser of two, and counts rounded up to multiples. */
#ifndef PL_BASE_NUMBER_H
#define PL_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t pl_number_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/** Returns how many pieces of `step`, which is not 0, hold `count`. */
static inline uint64_t pl_number_divide_up(uint64_t count, uint64_t step)
{
    return count / step + (count % step != 0);
}

/** Returns the least multiple of `step` that is not below `count`; it must fit. */
static inline uint64_t pl_number_round_up(uint64_t count, uint64_t step)
{
    return pl_number_divide_up(count, step) * step;
}

#endif
