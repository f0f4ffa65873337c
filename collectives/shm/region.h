/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that all ranks of a bootstrap map: one memfd, so neither /dev/shm's size nor ptrace permission matters, and
 * nothing with a name outlives a killed rank. Internal to shm/.
 */
#ifndef PL_COLLECTIVES_SHM_REGION_H
#define PL_COLLECTIVES_SHM_REGION_H

#include "collectives/bootstrap.h"

#include <stddef.h>

struct pl_shm_region {
    char *base; /* rank r's piece lies at base + r * piece_bytes */
    size_t piece_bytes;
    size_t bytes;
    bool huge_pages;
    _Atomic int *users; /* threads as ranks use one mapping: how many still do; NULL for processes */
};

/**
 * Make a zeroed region of one piece a rank. Pages exist when this returns (fallocate, so a full machine is an error
 * here and no SIGBUS later), each rank's piece allocated by that rank. The size is sealed. A fork's child does not get
 * it.
 *
 * Rank 0 makes the memfd and hands it out over an abstract unix socket with a random name, to processes of its own user
 * only.
 *
 * Collective  yes, over the ranks of `bootstrap`: all succeed or all fail, each with the text of the first that failed.
 * Errors      PL_SYSTEM, PL_MEMORY, PL_TIMEOUT.
 */
enum pl_status pl_shm_region_new(struct pl_bootstrap *bootstrap, bool one_process, size_t piece_bytes,
                                 int64_t deadline_ns, struct pl_shm_region *ret_region,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Unmap here; the memory goes back when the last rank has. Fine on a zeroed region. */
void pl_shm_region_free(struct pl_shm_region *region);

#endif
