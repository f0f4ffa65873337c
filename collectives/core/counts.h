/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sizes and offsets of the ranks' blocks. `counts` may be NULL; then each block has `count` elements: see struct
 * pl_collective. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_COUNTS_H
#define PL_COLLECTIVES_CORE_COUNTS_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t pl_counts_get(const uint64_t *counts, uint64_t count, int rank)
{
    return counts ? counts[rank] : count;
}

static inline uint64_t pl_counts_max(const uint64_t *counts, uint64_t count, int size)
{
    uint64_t most = pl_counts_get(counts, count, 0);

    for (int r = 1; counts && r < size; r++) {
        most = counts[r] > most ? counts[r] : most;
    }
    return most;
}

/** Compute where each rank's block begins if the blocks follow each other, and the sum: `ret_starts` [size + 1]. */
static inline void pl_counts_starts(const uint64_t *counts, uint64_t count, int size, uint64_t *ret_starts)
{
    ret_starts[0] = 0;
    for (int r = 0; r < size; r++) {
        ret_starts[r + 1] = ret_starts[r] + pl_counts_get(counts, count, r);
    }
}

#endif
