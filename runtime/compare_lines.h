/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Compare a list of lines over all ranks. Used where ranks must have made the same calls, to report on every rank what
 * differs.
 * Internal to runtime/.
 *
 * Test  tests/unit/runtime/gradient/test_plan.c
 */
#ifndef PL_RUNTIME_COMPARE_LINES_H
#define PL_RUNTIME_COMPARE_LINES_H

#include "collectives/world.h"

/**
 * Compare the `count` lines of every rank. When ranks differ, all return PL_MISMATCH with the first line in which the
 * lowest differing rank differs from rank 0: "<what>: rank 0 has <line>, rank 2 has <line>". Lines are cut at 150 bytes
 * in the message.
 *
 * A rank that has failed before calls all the same, with its error in `own`, whose status is PL_OK on the others; its
 * `lines` do not count then. It returns that error; the other ranks return the status of the lowest rank that has
 * failed: "rank 2: <its text> (<what>)", with PL_DOMAIN_RANK. Without lines this is a vote and no more.
 *
 * Collective  yes.
 */
enum pl_status pl_compare_lines(struct pl_world *world, const char *what, const struct pl_error *own,
                                const char *const *lines, size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Every rank's `bytes` of `send` in `*recv_at` [size * bytes], which is memory of the heap. NULL is left in its place
 * where the gather fails and messages may still come to it, see pl_world_has_leaked().
 *
 * Collective  yes.
 */
enum pl_status pl_compare_gather(struct pl_world *world, const void *send, void **recv_at, size_t bytes,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
