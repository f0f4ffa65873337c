/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Hierarchical collectives, over several hosts with several ranks on some; internal to hier/.
 *
 * Add up inside each host, exchange between hosts, broadcast inside. Inside is a world of the host's ranks (shared
 * memory), between is a world of one rank of each host, both made of the other backends. Where all hosts have as many
 * ranks, every local rank is a leader: it has a world between hosts of its own and reduces its share of the vector;
 * else local rank 0 reduces all.
 */
#ifndef PL_COLLECTIVES_HIER_STATE_H
#define PL_COLLECTIVES_HIER_STATE_H

#include "collectives/core/deferred_error.h"
#include "collectives/core/types.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/reduce/kernel.h"

enum {
    PL_HIER_AHEAD = 2,                    /* chunks scattered before the first is gathered */
    PL_HIER_CHUNK_MOST_BYTES = 8 << 20,   /* of the whole vector: long enough that a chunk's latencies vanish */
    PL_HIER_SPLIT_LEAST_BYTES = 64 << 10, /* below this one rank of each host carries the vector */
};

/** A chunk under way. Chunk number k uses slot k mod (PL_HIER_AHEAD + 1). */
struct pl_hier_chunk {
    struct pl_request *scatter;
    struct pl_request *sum;
    struct pl_request *gather;
    bool summed;
    uint64_t at; /* elements, of the whole vector */
    uint64_t count;
    uint64_t own_at; /* this rank's share */
    uint64_t own_count;
};

/** What is done in turn where the vector is not split into chunks. */
enum pl_hier_stage { PL_HIER_INSIDE, PL_HIER_BETWEEN, PL_HIER_SPREAD, PL_HIER_END };

struct pl_hier {
    struct pl_world *world;
    struct pl_world *inside;
    struct pl_world *between; /* NULL on ranks that are not in it */
    int *inside_ranks;        /* numbers in `world` */
    int *between_ranks;       /* by host */
    int local_rank;
    int local_size;
    int hosts;
    bool multi_leader; /* every local rank is a leader, with a world between hosts */
    bool exclusive;    /* the setting `backend` names this one: it takes all collectives */
    const struct pl_kernel *kernel;
    struct pl_check_calls check;
    uint64_t *shares; /* [local_size] */
    char *scratch;    /* sums of a REDUCE on their way to its root */
    size_t scratch_bytes;

    /* The collective under way: */
    struct pl_request *request;
    enum pl_hier_stage stage;
    struct pl_request *step; /* of a staged collective */
    bool split;              /* chunks and shares; else staged */
    struct pl_hier_chunk chunks[PL_HIER_AHEAD + 1];
    uint64_t chunk_elems;
    uint64_t chunk_count;
    uint64_t scattered;               /* chunks whose scatter was posted */
    uint64_t sent;                    /* chunks whose sum was posted */
    uint64_t gathered;                /* chunks whose gather was posted */
    struct pl_deferred_error failure; /* of a part */
};

/** Begin h->request: choose between chunks and stages. */
enum pl_status pl_hier_begin(struct pl_hier *h, struct pl_error *reterr) PL_MUST_CHECK;

/** Go on as far as it gets; true in `*ret_done` when all of it is done. */
enum pl_status pl_hier_advance(struct pl_hier *h, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel what is under way in the sub-worlds. */
void pl_hier_drop(struct pl_hier *h);

/** Broadcast or reduce. */
bool pl_hier_is_rooted(const struct pl_collective *c);

#endif
