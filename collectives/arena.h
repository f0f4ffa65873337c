/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that the ranks of a host share, so that collectives on it need no copies. Gradient buckets belong here.
 *
 * The allocation is collective and symmetric: every rank gets a piece of the same size and kind, mapped at an address
 * of its own. Only the rank itself writes and reads its piece outside collectives.
 */
#ifndef PL_COLLECTIVES_ARENA_H
#define PL_COLLECTIVES_ARENA_H

#include "base/status.h"
#include "collectives/collective.h"

struct pl_span {
    uint64_t bytes;
    enum pl_memory memory;
    void *data; /* this rank's own piece, zeroed; aligned to 4096 bytes, or to 256 in device memory */
};

/**
 * Allocate `bytes` (above 0) on every rank. If the ranks share no memory (several hosts, or no shared-memory backend),
 * the span is ordinary private memory and works in the same way. PL_MEMORY_PINNED is host memory that the rank's device
 * copies from and to directly. PL_MEMORY_DEVICE is memory of the rank's own device; the ranks of one host open each
 * other's memory if the driver allows that (pl_world_describe() tells).
 *
 * Collective  yes: all ranks of `world`, same order, same bytes and memory. No request of the world may be under way.
 * Errors      PL_INVALID; PL_MEMORY, PL_SYSTEM and PL_LIBRARY (of the device), which name the rank; PL_MISMATCH (ranks
 *             ask for different sizes or kinds); PL_UNSUPPORTED (pinned or device memory in a world without devices).
 *             PL_TIMEOUT, and PL_LIBRARY with MPI's text, make the world unusable. After a failure nothing is allocated
 *             on any rank.
 * Test        tests/unit/collectives/core/test_arena.c, tests/unit/collectives/gpu/test_device.c
 */
enum pl_status pl_arena_alloc(struct pl_world *world, uint64_t bytes, enum pl_memory memory, struct pl_span *ret_span,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Free the span. All ranks call it in the same order. It does not wait for them, except for device memory that other
 * processes have open. pl_world_free() frees the spans that are left, and waits at most two seconds for such device
 * memory. If pl_world_has_leaked(), host memory is not freed.
 */
void pl_arena_free(struct pl_world *world, struct pl_span *span);

#endif
