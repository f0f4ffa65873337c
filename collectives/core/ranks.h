/* SPDX-License-Identifier: Apache-2.0 */
/** Lists of ranks. Internal to collectives/ and runtime/. */
#ifndef PL_COLLECTIVES_CORE_RANKS_H
#define PL_COLLECTIVES_CORE_RANKS_H

#include "base/status.h"

/**
 * Check that the `count` ranks listed can be a set of ranks of a world of `size`: at least one, each in the world and
 * only once. `what` ("a process set") begins the message.
 */
enum pl_status pl_ranks_check(const char *what, const int *ranks, int count, int size,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
