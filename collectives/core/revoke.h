/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank whose world has ended tells the others, where they have messages and no memory in common: from which
 * collective on it takes no part, and why. It tells the ranks 1, 2, 4, ... above it, whose worlds end by that and who
 * do the same, so that all hear of it in at most ceil(log2 n) steps, and whoever is dead among them stops nothing.
 * Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_REVOKE_H
#define PL_COLLECTIVES_CORE_REVOKE_H

#include "base/status.h"

struct pl_world;

enum { PL_NOTICE_POLLS = 16 }; /* a look costs as much as a poll of a request or two */

/**
 * The world has ended by its `failure`: tell others, and come back when the messages have left, after 250 ms at most.
 */
void pl_notice_tell(struct pl_world *world);

/**
 * While the world's first request waits: look, at each PL_NOTICE_POLLS-th call, what has come. The failure to end by,
 * once there is one.
 */
enum pl_status pl_notice_hear(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** No more is heard. */
void pl_notice_done(struct pl_world *world);

#endif
