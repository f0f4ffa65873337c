/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the rank that is late. A rank knows only the rank that it waits for itself, and that one may wait for another:
 * a rank waits for the first one of its host, and that one for the first of another host. So a rank whose deadline is
 * near asks the rank that it waits for which rank is late. A rank that waits passes the query on and answers what it
 * knows so far. The rank that does not answer is late: it is in the program's code, stopped or dead. The error names
 * that one.
 *
 * Ranks ask only those whose messages they wait for, since MPI may have to connect to others, and a late rank does not
 * take part in that. Until a deadline is near nothing is sent, and deadlines do not change. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_LATE_H
#define PL_COLLECTIVES_CORE_LATE_H

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

#endif
