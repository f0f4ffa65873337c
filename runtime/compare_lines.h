/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Compare a list of lines over all ranks, if ranks must have made the same calls, and report the difference on every
 * rank. Internal to runtime/.
 *
 * Test  tests/unit/runtime/gradient/test_plan.c
 */
#ifndef PL_RUNTIME_COMPARE_LINES_H
#define PL_RUNTIME_COMPARE_LINES_H

#include "collectives/world.h"

/**
 * Compare the `count` lines of every rank. If ranks differ, all return PL_MISMATCH with the first line in which the
 * lowest differing rank differs from rank 0: "<what>: rank 0 has <line>, rank 2 has <line>". Lines are cut at 150 bytes
 * in the message.
 *
 * A rank that has failed before must call this too, with its error in `own` (PL_OK on other ranks); its `lines` are
 * ignored. It returns that error; the others return the status of the lowest failed rank, and its text: "rank 2: <text>
 * (<what>)", with PL_DOMAIN_RANK. Without lines the call only exchanges failures.
 *
 * Collective  yes.
 */
enum pl_status pl_compare_lines(struct pl_world *world, const char *what, const struct pl_error *own,
                                const char *const *lines, size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gathers every rank's `bytes` of `send` in `*recv_at` [size * bytes], memory on the heap. If the gather fails while
 * messages may still arrive there (pl_world_has_leaked()), `*recv_at` becomes NULL and the memory is not freed.
 *
 * Collective  yes.
 */
enum pl_status pl_compare_gather(struct pl_world *world, const void *send, void **recv_at, size_t bytes,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
