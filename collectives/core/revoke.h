/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Revoking a world (as MPI_Comm_revoke of ULFM does) whose ranks have messages but no common memory. A rank whose world
 * has failed sends the error to others, with the number of the first collective that it takes no part in. It sends to
 * the ranks 1, 2, 4, ... above it. Their worlds fail by that and they relay it, so that all ranks have received it
 * after at most ceil(log2 n) steps, even if some of them are dead. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_REVOKE_H
#define PL_COLLECTIVES_CORE_REVOKE_H

#include "base/status.h"

struct pl_world;

enum { PL_REVOKE_POLLS = 16 }; /* a probe costs as much as one or two polls of a request */

/** Send the world's `failure` to others. Returns when the messages have left, after 250 ms at most. */
void pl_revoke_send(struct pl_world *world);

/**
 * Receive, at each PL_REVOKE_POLLS-th call, the messages that have come; call while the world's first request waits.
 * Returns the failure that must end the world if one has come.
 */
enum pl_status pl_revoke_receive(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel the receive under way, if there is one. */
void pl_revoke_done(struct pl_world *world);

#endif
