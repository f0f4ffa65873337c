/* SPDX-License-Identifier: Apache-2.0 */
/** A 64-bit hash, FNV-1a, for short inputs that no attacker chooses. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** The start value. A different start value gives a different hash function. */
#define PL_HASH_START UINT64_C(0xCBF29CE484222325)

/** Continues `hash` with `bytes` of `data`. */
static inline uint64_t pl_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

#endif
