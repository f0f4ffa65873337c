/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which rank is late. A rank knows whom it waits for itself, which may wait for another: a rank for the first one of
 * its host, and that one for another host's. So a rank whose deadline is near asks the rank that it waits for which one
 * is late. A rank that waits asks on, and answers what it knows so far; the one that does not answer is late: it is in
 * the program's code, stopped or dead. The error names that one. Ranks ask none but those whose messages they await,
 * since MPI may have to connect to others, which a late rank does not take part in. Before, nothing is sent, and
 * deadlines stay what they are. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_LATE_H
#define PL_COLLECTIVES_CORE_LATE_H

#include <stdint.h>

struct pl_world;

/** A query which rank is late, or the answer to it. It has the tag of revoke messages, and another length. */
struct pl_late_message {
    int32_t answers; /* 0: it asks */
    int32_t from;    /* the rank that sends it */
    int32_t late;    /* of an answer; -1: not known */
};

/** When a rank that has so long until `deadline_ns` begins to ask: half of it before, at most 10 s. */
int64_t pl_late_begin_ns(int64_t now_ns, int64_t deadline_ns);

/** The deadline of the world's first request is near, or that of a rank that waits for this one: ask on. */
void pl_late_search(struct pl_world *world, int64_t now_ns);

/** A message has come, while the world's first request waits. */
void pl_late_take(struct pl_world *world, const struct pl_late_message *message);

/** The rank of `world` that is late, as far as that is known; -1 where it is not known for whom this one waits. */
int pl_late_rank(const struct pl_world *world);

/** Cancel the messages under way. */
void pl_late_done(struct pl_world *world);

#endif
