/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Revoking a world (as MPI_Comm_revoke of ULFM does) where ranks have messages and no common memory: a rank whose world
 * has failed sends the others the number of the first collective that it takes no part in, and the error. It sends to
 * the ranks 1, 2, 4, ... above it, whose worlds fail by that and which relay it, so that all have received it after at
 * most ceil(log2 n) steps, also where some of them are dead. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_REVOKE_H
#define PL_COLLECTIVES_CORE_REVOKE_H

#include "base/status.h"

struct pl_world;

enum { PL_REVOKE_POLLS = 16 }; /* probing costs as much as a poll of a request or two */

/**
 * The world has ended by its `failure`: send that to others, and return when the messages have left, after 250 ms at
 * most.
 */
void pl_revoke_send(struct pl_world *world);

/**
 * While the world's first request waits: receive, at each PL_REVOKE_POLLS-th call, what has come. Returns the failure
 * to end the world with, once there is one.
 */
enum pl_status pl_revoke_receive(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel the receive under way, if there is one. */
void pl_revoke_done(struct pl_world *world);

#endif
