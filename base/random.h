/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PL_BASE_RANDOM_H
#define PL_BASE_RANDOM_H

#include <stdint.h>

/**
 * Returns the next number of the sequence whose state is `*state`, which may have any value: splitmix64. Each bit of
 * the state affects about half of the result's bits, so the first number also serves as a hash. Not for secrets.
 */
static inline uint64_t pl_random_next(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

#endif
