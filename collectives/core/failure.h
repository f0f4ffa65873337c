/* SPDX-License-Identifier: Apache-2.0 */
/**
 * How the failure of one rank reaches the others: which rank is late, a world that is revoked, the vote after a step.
 * Internal to collectives/.
 *
 * Finds the rank that is late. A rank knows only the rank that it waits for itself, and that one may wait for another:
 * a rank waits for the first one of its host, and that one for the first of another host. So a rank whose deadline is
 * near asks the rank that it waits for which rank is late. A rank that waits passes the query on and answers what it
 * knows so far. The rank that does not answer is late: it is in the program's code, stopped or dead. The error names
 * that one.
 *
 * Ranks ask only those whose messages they wait for, since MPI may have to connect to others, and a late rank does not
 * take part in that. Until a deadline is near nothing is sent, and deadlines do not change.
 */
#ifndef PL_COLLECTIVES_CORE_FAILURE_H
#define PL_COLLECTIVES_CORE_FAILURE_H

#include "base/status.h"

#include <stdint.h>

struct pl_world;

/** A query for the rank that is late, or the answer. It has the tag of revoke messages, but a different length. */
struct pl_late_message {
    int32_t answers; /* 0: this is a query */
    int32_t from;    /* the rank that sends it */
    int32_t late;    /* in an answer: the late rank; -1: not known */
};

/** When a rank with this deadline begins to ask: after half of the time, but at most 10 s before the deadline. */
int64_t pl_late_begin_ns(int64_t now_ns, int64_t deadline_ns);

/**
 * Ask for the late rank. Call when the deadline of the world's first request is near, or when a rank that waits for
 * this one asks.
 */
void pl_late_search(struct pl_world *world, int64_t now_ns);

/** Handle a message that has come while the world's first request waits. */
void pl_late_take(struct pl_world *world, const struct pl_late_message *message);

/** The rank of `world` that is late, as far as that is known; -1 if it is unknown which rank this one waits for. */
int pl_late_rank(const struct pl_world *world);

/** Cancel the messages under way. */
void pl_late_done(struct pl_world *world);

/**
 * Revoking a world (as MPI_Comm_revoke of ULFM does) whose ranks have messages but no common memory. A rank whose world
 * has failed sends the error to others, with the number of the first collective that it takes no part in. It sends to
 * the ranks 1, 2, 4, ... above it. Their worlds fail by that and they relay it, so that all ranks have received it
 * after at most ceil(log2 n) steps, even if some of them are dead.
 */
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
