/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Hierarchical collectives, for several hosts of which some have several ranks. Internal to hier/.
 *
 * They reduce inside each host, exchange between hosts, and broadcast inside. `inside` is a world of the host's ranks
 * (shared memory); `between` is a world of one rank of each host; both use the other backends. If all hosts have
 * equally many ranks, every local rank is a leader: it is in a world between hosts and reduces its share of the vector.
 * Otherwise local rank 0 reduces the whole vector.
 */
#ifndef PL_COLLECTIVES_HIER_STATE_H
#define PL_COLLECTIVES_HIER_STATE_H

#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/reduce/kernel.h"

enum {
    PL_HIER_AHEAD = 2,                    /* number of chunks scattered before the first is gathered */
    PL_HIER_CHUNK_MOST_BYTES = 8 << 20,   /* largest chunk: so long that its latency is negligible */
    PL_HIER_SPLIT_LEAST_BYTES = 64 << 10, /* below this, one rank of each host reduces the whole vector */
};

/** A chunk under way. Chunk number k uses slot k mod (PL_HIER_AHEAD + 1). */
struct pl_hier_chunk {
    struct pl_request *scatter;
    struct pl_request *sum;
    struct pl_request *gather;
    bool summed;
    uint64_t at; /* offset in elements of the whole vector */
    uint64_t count;
    uint64_t own_at; /* start of this rank's share */
    uint64_t own_count;
};

/** Stages of a collective that is not split into chunks, in this order. */
enum pl_hier_stage { PL_HIER_INSIDE, PL_HIER_BETWEEN, PL_HIER_SPREAD, PL_HIER_END };

struct pl_hier {
    struct pl_world *world;
    struct pl_world *inside;
    struct pl_world *between; /* NULL on ranks that are not in it */
    int *inside_ranks;        /* [local_size]: rank in `world` of each rank of `inside` */
    int *between_ranks;       /* [hosts]: rank in `world` of each rank of `between` */
    int local_rank;
    int local_size;
    int hosts;
    bool multi_leader; /* every local rank is a leader */
    bool exclusive;    /* the setting `backend` names this backend: it takes all collectives */
    const struct pl_kernel *kernel;
    struct pl_check_calls check;
    uint64_t *shares; /* [local_size]: elements of each local rank's share */
    char *scratch;    /* sums of a REDUCE on ranks other than the root */
    size_t scratch_bytes;

    /* The collective under way: */
    struct pl_request *request;
    enum pl_hier_stage stage;
    struct pl_request *step; /* request of the present stage */
    bool split;              /* whether the collective is split into chunks and shares; otherwise it has stages */
    struct pl_hier_chunk chunks[PL_HIER_AHEAD + 1];
    uint64_t chunk_elems;
    uint64_t chunk_count;
    uint64_t scattered;               /* number of chunks whose scatter was posted */
    uint64_t sent;                    /* number of chunks whose sum was posted */
    uint64_t gathered;                /* number of chunks whose gather was posted */
    struct pl_deferred_error failure; /* failure of a request in a sub-world */
};

/** Begin h->request: choose chunks or stages. */
enum pl_status pl_hier_begin(struct pl_hier *h, struct pl_error *reterr) PL_MUST_CHECK;

/** Advance as far as possible; `*ret_done` is set to true when the collective is done. */
enum pl_status pl_hier_advance(struct pl_hier *h, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel the requests in the sub-worlds. */
void pl_hier_drop(struct pl_hier *h);

/** Whether the kind is broadcast or reduce. */
bool pl_hier_is_rooted(const struct pl_collective *c);

#endif
