/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that all ranks of a bootstrap map. It is a memfd: the size of /dev/shm does not matter, no name outlives a
 * killed rank, and ranks need no permission to read other processes (only the search for ranks of one host needs it).
 * Internal to shm/.
 */
#ifndef PL_COLLECTIVES_SHM_REGION_H
#define PL_COLLECTIVES_SHM_REGION_H

#include "collectives/bootstrap.h"

#include <stddef.h>

struct pl_shm_region {
    char *base; /* rank r's piece is at base + r * piece_bytes */
    size_t piece_bytes;
    size_t bytes;
    bool huge_pages;
    _Atomic int *users; /* threads: number of ranks that still use their one mapping; processes: NULL */
};

/**
 * Make a zeroed region of one piece per rank. Pages exist when this returns (fallocate), so that a lack of memory is an
 * error here and not a SIGBUS later; each rank allocates its own piece. The size is sealed. A forked child does not
 * inherit the mapping.
 *
 * Rank 0 makes the memfd and sends it over an abstract unix socket with a random name, only to processes of its own
 * user.
 *
 * Collective  yes, over the ranks of `bootstrap`: all succeed, or all fail with the text of the lowest rank that
 *             failed.
 * Errors      PL_SYSTEM, PL_MEMORY, PL_TIMEOUT.
 */
enum pl_status pl_shm_region_new(struct pl_bootstrap *bootstrap, bool one_process, size_t piece_bytes,
                                 int64_t deadline_ns, struct pl_shm_region *ret_region,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Unmap the region in this process; the memory is freed when the last rank has done so. Fine on a zeroed region. */
void pl_shm_region_free(struct pl_shm_region *region);

#endif
