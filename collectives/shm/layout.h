/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The shared-memory backend, inside a host. Internal to collectives/; docs/collectives.md draws the algorithms.
 *
 * Every collective begins with each rank posting a header (what it is about to do) and reading all others'. Headers
 * alternate between two slots a rank: a rank posts number s+1 only after it has seen all headers of s, so a slot is
 * rewritten only when all ranks have moved past what it held. Small data is sent with the header, and that is all
 * (eager). Otherwise data is read where it lies in the arena (zero-copy) or goes round by round through staging memory
 * (staged, also called copy-in-copy-out).
 *
 * All progress counters are C11 atomics that only grow; each is written by its own rank. Data is ordered by them.
 */
#ifndef PL_COLLECTIVES_SHM_LAYOUT_H
#define PL_COLLECTIVES_SHM_LAYOUT_H

#include "collectives/core/backend.h"
#include "collectives/reduce/kernel.h"
#include "collectives/shm/region.h"

#include <stdatomic.h>

enum {
    PL_SHM_LINE_BYTES = 64,
    PL_SHM_EAGER_BYTES = 4096,      /* room for bytes of a rank that are sent with the header */
    PL_SHM_INLINE_BYTES = 40,       /* up to this many in the header's own cache line */
    PL_SHM_DEPTH = 4,               /* rounds of staging memory */
    PL_SHM_ROUND_BYTES = 256 << 10, /* staging memory of a rank for one round, at least */
    PL_SHM_PART_BYTES = 16 << 10,   /* and at least this much for each rank */
    PL_SHM_STEP_BYTES = 4 << 20,    /* zero-copy reductions return from work after so much */
    PL_SHM_MAX_RANKS = 1024,
};

/** Read by every waiting rank, written on failures and by waiters: a cache line of its own. */
struct pl_shm_control {
    _Alignas(128) _Atomic uint32_t waiters; /* ranks inside the futex wait, or about to be */
    /* the futex; increased after each publication while there are waiters */
    _Atomic uint32_t wakeups;
    _Atomic uint32_t failure; /* 0, or one more than the rank that has declared the first failure */
};

/** One rank's progress counters, which never decrease. */
struct pl_shm_counters {
    _Alignas(128) _Atomic uint64_t staged; /* rounds whose data lies in staging memory */
    _Atomic uint64_t consumed;             /* rounds whose data from all others was used */
    /* zero-copy: number of the last collective whose buffers this rank no longer accesses */
    _Atomic uint64_t done;
    _Atomic uint32_t left; /* the rank has freed its world */
    /* what the others report when control->failure names this rank; written before, and once */
    struct pl_error received;
};

/** Where a rank's buffers lie, for data that is not sent with the header. */
struct pl_shm_buffers {
    uint32_t send_span; /* 0: not in the arena */
    uint32_t recv_span;
    uint64_t send_offset;
    uint64_t recv_offset;
    uint64_t longest; /* alltoall: the largest count to one rank */
};

/** A rank's descriptor of one collective. */
struct pl_shm_descriptor {
    uint64_t hash;  /* of the signature */
    uint64_t bytes; /* what this rank sends */
    union {
        unsigned char data[PL_SHM_INLINE_BYTES]; /* bytes <= PL_SHM_INLINE_BYTES, but for alltoall */
        struct pl_shm_buffers at;
    } in;
};

/**
 * One rank's header of one collective, followed by its alltoall counts and its eager data. Number and descriptor share
 * a cache line.
 */
struct pl_shm_header {
    _Alignas(128) _Atomic uint64_t sequence; /* published last */
    struct pl_shm_descriptor descriptor;
    struct pl_signature signature;
};

_Static_assert(offsetof(struct pl_shm_header, signature) == PL_SHM_LINE_BYTES,
               "a small collective moves one line a rank");

/** A region of pl_arena_alloc(). */
struct pl_shm_span {
    uint32_t number; /* from 1; equal on all ranks */
    struct pl_shm_region region;
};

enum pl_shm_mode { PL_SHM_HEADERS, PL_SHM_EAGER, PL_SHM_ZERO_COPY, PL_SHM_STAGED };

/** The collective under way. */
struct pl_shm_op {
    const struct pl_collective *collective;
    struct pl_request *request;
    enum pl_shm_mode mode;
    struct pl_reduction reduction;
    uint64_t sequence;
    uint64_t hash;    /* of this rank's descriptor */
    uint64_t differs; /* not 0: some header's hash is not this rank's */
    uint64_t most;    /* the most bytes of any header so far */
    size_t elem_bytes;
    uint64_t part_elems; /* staged: of one rank's part in a round; one-to-all kinds: of the round */
    uint64_t rounds;
    uint64_t staged, consumed, finished;
    uint64_t at_elems; /* zero-copy: done so far of this rank's share */
    bool worked;       /* zero-copy: this rank has done its share */
    int seen;          /* HEADS: headers of the ranks below were read; DIRECT: these ranks are done */
    int waits_for;
};

struct pl_shm {
    struct pl_world *world;
    int rank, size;
    bool one_process;
    const struct pl_kernel *kernel;

    struct pl_shm_region region;
    struct pl_shm_control *control;
    uint64_t eager_bytes; /* up to so many are sent with the header */
    size_t slot_bytes, eager_at, staging_at, round_bytes;

    uint64_t sequence;    /* collectives so far */
    uint64_t rounds_base; /* rounds of all staged collectives so far */
    struct pl_shm_op op;

    const void **sources; /* [size] */
    void **dests;         /* [size] */
    uint64_t *send_displ; /* [size + 1] */
    uint64_t *recv_displ; /* [size + 1] */

    struct pl_shm_span *spans;
    size_t span_count, span_capacity;
    uint32_t span_number;
    int *pidfds; /* [size], -1 where there is none */
};

/* ---- addresses in the region ---- */

static inline struct pl_shm_counters *pl_shm_counters(const struct pl_shm *shm, int rank)
{
    return (struct pl_shm_counters *)(void *)(shm->region.base + (size_t)rank * shm->region.piece_bytes +
                                              sizeof(struct pl_shm_control));
}

static inline struct pl_shm_header *pl_shm_header(const struct pl_shm *shm, int rank, uint64_t sequence)
{
    return (struct pl_shm_header *)(void *)(shm->region.base + (size_t)rank * shm->region.piece_bytes +
                                            sizeof(struct pl_shm_control) + sizeof(struct pl_shm_counters) +
                                            (sequence & 1) * shm->slot_bytes);
}

static inline uint64_t *pl_shm_alltoall_counts(struct pl_shm_header *header)
{
    return (uint64_t *)(void *)(header + 1);
}

static inline char *pl_shm_eager_data(const struct pl_shm *shm, struct pl_shm_header *header)
{
    return (char *)header + shm->eager_at;
}

/** Staging memory of `rank` for round `round`, counted over all collectives. */
static inline char *pl_shm_staging(const struct pl_shm *shm, int rank, uint64_t round)
{
    return shm->region.base + (size_t)rank * shm->region.piece_bytes + shm->staging_at +
           (round % PL_SHM_DEPTH) * shm->round_bytes;
}

/* ---- state.c: how far the collective under way has come ---- */

/** Whether the collective under way can go on now. */
bool pl_shm_is_ready(const struct pl_shm *shm);

/** Whether `rank` has published all that this rank needs from it for the collective under way. */
bool pl_shm_is_complete(const struct pl_shm *shm, int rank);

/** The first rank whose staged, or consumed, rounds of this collective are fewer than `rounds`; -1 when none. */
int pl_shm_state_short_of_staged(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds);
int pl_shm_state_short_of_consumed(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds);

/** Whether anything of a staged collective can go on; `*ret_waits_for` is a rank it waits for when not. */
bool pl_shm_state_can_move(const struct pl_shm *shm, const struct pl_shm_op *op, int *ret_waits_for);

static inline bool pl_shm_is_root(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    return shm->rank == op->collective->root;
}

/* ---- eventcount.c: publishing, sleeping, failing ---- */

/** Publish `value` in a counter of this rank and wake waiters. A rank that reads it sees what was written before. */
void pl_shm_publish(struct pl_shm *shm, _Atomic uint64_t *word, uint64_t value);

/** Wake all waiters. */
void pl_shm_wake(struct pl_shm *shm);

/** The failure that some rank declared, as this rank's report; PL_OK when there is none. */
enum pl_status pl_shm_check(const struct pl_shm *shm, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Declare to all ranks that the world cannot go on because of `why`, which they report as `status`. The first failure
 * stays.
 */
void pl_shm_declare_failure(struct pl_shm *shm, enum pl_status status, const struct pl_error *why);

/**
 * Check the peers without a request: the failure that one has declared, or PL_PEER and `*ret_left` when one is gone.
 */
enum pl_status pl_shm_check_peers(void *state, bool *ret_left, struct pl_error *reterr) PL_MUST_CHECK;

/** Sleep until something was published or `until_ns`, unless the collective can go on already. Declares dead peers. */
void pl_shm_sleep(struct pl_shm *shm, int64_t until_ns);

/** pidfds of the other processes, where the kernel gives them. */
void pl_shm_open_pidfds(struct pl_shm *shm);

/* ---- run.c: the algorithms ---- */

enum pl_status pl_shm_begin(void *state, struct pl_request *request, bool *ret_done,
                            struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_shm_advance(void *state, struct pl_request *request, bool *ret_done,
                              struct pl_error *reterr) PL_MUST_CHECK;

/* ---- rounds.c: what part of which buffer belongs to whom in which round ---- */

/** [elems] elements at element `at` of a buffer. */
struct pl_shm_piece {
    uint64_t at, elems;
};

/** Set part_elems and rounds. `longest` is the largest count of any rank. */
void pl_shm_plan(const struct pl_shm *shm, struct pl_shm_op *op, uint64_t longest);

/** What goes to rank `to` in `round`: a piece of this rank's send buffer. */
struct pl_shm_piece pl_shm_sent(const struct pl_shm *shm, const struct pl_shm_op *op, int to, uint64_t round);

/** Where what `from` sent in `round` belongs: a piece of this rank's recv buffer. Kinds that copy only. */
struct pl_shm_piece pl_shm_received(const struct pl_shm *shm, const struct pl_shm_op *op, int from, uint64_t round);

/** All ranks read the same part of staging memory: allgather, broadcast. */
bool pl_shm_is_one_to_all(enum pl_kind kind);

/* ---- zero_copy.c ---- */

/** Go on with a zero-copy collective; true when this rank is done. Sets `waits_for` otherwise. */
bool pl_shm_zero_copy_advance(struct pl_shm *shm, struct pl_shm_op *op);

/* ---- staged.c ---- */

/** Go on with a staged collective; true when this rank is done. Sets `waits_for` otherwise. */
bool pl_shm_staged_advance(struct pl_shm *shm, struct pl_shm_op *op);

/* ---- arena.c ---- */

enum pl_status pl_shm_arena_alloc(void *state, uint64_t bytes, struct pl_span *ret_span,
                                  struct pl_error *reterr) PL_MUST_CHECK;
void pl_shm_arena_free(void *state, struct pl_span *span);

/** Find the span that holds `bytes` at `data` in this rank's piece; where there is none both stay as they are. */
void pl_shm_arena_find(const struct pl_shm *shm, const void *data, size_t bytes, uint32_t *ret_number,
                       uint64_t *ret_offset);

/** The address here of `offset` in `rank`'s piece of span `number`. */
char *pl_shm_arena_at(const struct pl_shm *shm, uint32_t number, int rank, uint64_t offset);

#endif
