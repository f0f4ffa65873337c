/* SPDX-License-Identifier: Apache-2.0 */
/** Integers: the lesser of two, and rounding up to multiples. */
#ifndef PL_BASE_NUMBER_H
#define PL_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t pl_number_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/** Returns `count` divided by `step`, which is not 0, rounded up. */
static inline uint64_t pl_number_divide_up(uint64_t count, uint64_t step)
{
    return count / step + (count % step != 0);
}

/** Returns the least multiple of `step` that is at least `count`; it must fit in 64 bits. */
static inline uint64_t pl_number_round_up(uint64_t count, uint64_t step)
{
    return pl_number_divide_up(count, step) * step;
}

#endif
