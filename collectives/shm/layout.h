/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The shared-memory backend inside a host, internal to collectives/; docs/internals/shared-memory.md draws algorithms.
 *
 * Every collective begins with each rank posting a header, which describes its call, and reading the headers of all
 * others. Headers alternate between two slots per rank: a rank posts number s+1 only after it has seen all headers of
 * s, so a slot is rewritten only when no rank needs its content any more. Small data is sent with the header, and then
 * the collective is done (eager). Otherwise ranks read data in place in the arena (zero-copy), or data goes round by
 * round through staging memory (staged, also called copy-in-copy-out).
 *
 * All progress counters are C11 atomics that only grow; each is written by its own rank. They order the data.
 */
#ifndef PL_COLLECTIVES_SHM_LAYOUT_H
#define PL_COLLECTIVES_SHM_LAYOUT_H

#include "collectives/core/backend.h"
#include "collectives/reduce/kernel.h"
#include "collectives/shm/region.h"

#include <stdatomic.h>

enum {
    PL_SHM_LINE_BYTES = 64,
    PL_SHM_EAGER_BYTES = 4096,      /* room for a rank's data that is sent with the header */
    PL_SHM_INLINE_BYTES = 40,       /* data up to this size is in the header's own cache line */
    PL_SHM_DEPTH = 4,               /* number of rounds that staging memory holds */
    PL_SHM_ROUND_BYTES = 256 << 10, /* least staging memory of a rank for one round */
    PL_SHM_PART_BYTES = 16 << 10,   /* least part of this memory for each rank */
    PL_SHM_STEP_BYTES = 4 << 20,    /* work after which a zero-copy reduction returns to its caller */
    PL_SHM_MAX_RANKS = 1024,
};

/** Every waiting rank reads this. A rank that begins to wait, or fails, writes it. It has cache lines of its own. */
struct pl_shm_control {
    _Alignas(128) _Atomic uint32_t waiters; /* number of ranks in the futex wait, or about to enter it */
    /* the futex; increased after each publication while there are waiters */
    _Atomic uint32_t wakeups;
    _Atomic uint32_t failure; /* 0, or the rank that has declared the first failure, plus one */
};

/** Progress counters of one rank; they never decrease. */
struct pl_shm_counters {
    _Alignas(128) _Atomic uint64_t staged; /* number of rounds whose data is in staging memory */
    _Atomic uint64_t consumed;             /* number of rounds in which the data of all others was used */
    /* zero-copy: number of the last collective whose buffers this rank does not access any more */
    _Atomic uint64_t done;
    _Atomic uint32_t left; /* whether the rank has freed its world */
    /* error that other ranks report if control->failure names this rank; written before that */
    struct pl_error received;
};

/** Positions of a rank's buffers, for data that is not sent with the header. */
struct pl_shm_buffers {
    uint32_t send_span; /* number of the span that holds the send buffer; 0: not in the arena */
    uint32_t recv_span;
    uint64_t send_offset;
    uint64_t recv_offset;
    uint64_t longest; /* alltoall: the rank's largest count to one rank */
};

/** A rank's description of one collective. */
struct pl_shm_descriptor {
    uint64_t hash;  /* hash of the signature */
    uint64_t bytes; /* number of bytes that this rank sends */
    union {
        unsigned char data[PL_SHM_INLINE_BYTES]; /* the data if bytes <= PL_SHM_INLINE_BYTES, except for alltoall */
        struct pl_shm_buffers at;
    } in;
};

/**
 * Header of one rank for one collective; its alltoall counts and its eager data follow. Number and descriptor share a
 * cache line.
 */
struct pl_shm_header {
    _Alignas(128) _Atomic uint64_t sequence; /* number of the collective; published last */
    struct pl_shm_descriptor descriptor;
    struct pl_signature signature;
};

_Static_assert(offsetof(struct pl_shm_header, signature) == PL_SHM_LINE_BYTES,
               "a small collective moves one line per rank");

/** A span: the memory of one pl_arena_alloc() call, with a piece for each rank. */
struct pl_shm_span {
    uint32_t number; /* number of the pl_arena_alloc() call, from 1, equal on all ranks */
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
    uint64_t hash;    /* hash of this rank's signature */
    uint64_t differs; /* not 0 if a header's hash differs from this rank's */
    uint64_t most;    /* largest data size in the headers read so far */
    size_t elem_bytes;
    uint64_t part_elems; /* staged: elements of one rank's part in a round; one-to-all kinds: elements of a round */
    uint64_t rounds;
    uint64_t staged, consumed, finished;
    uint64_t at_elems; /* zero-copy: number of elements of this rank's share that are done */
    bool worked;       /* zero-copy: this rank has done its share */
    int seen;          /* PL_SHM_HEADERS: lower ranks' headers were read; PL_SHM_ZERO_COPY: lower ranks are done */
    int waits_for;
};

struct pl_shm {
    struct pl_world *world;
    int rank, size;
    bool one_process;
    const struct pl_kernel *kernel;

    struct pl_shm_region region;
    struct pl_shm_control *control;
    uint64_t eager_bytes; /* data up to this size is sent with the header */
    size_t slot_bytes, eager_at, staging_at, round_bytes;

    uint64_t sequence;    /* number of posts to this backend so far; pl_signature.sequence counts the world's posts */
    uint64_t rounds_base; /* number of rounds of all staged collectives so far */
    struct pl_shm_op op;

    const void **sources; /* [size]: one address per rank */
    void **dests;         /* [size]: one address per rank */
    uint64_t *send_displ; /* [size + 1]: where each rank's block begins in the send buffer, in elements */
    uint64_t *recv_displ; /* [size + 1]: where each rank's block begins in the recv buffer, in elements */

    struct pl_shm_span *spans;
    size_t span_count, span_capacity;
    uint32_t span_number;
    int *pidfds; /* [size]: pidfd of each rank, or -1 */
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

/** Staging memory of `rank` for `round`, which counts the rounds of all collectives. */
static inline char *pl_shm_staging(const struct pl_shm *shm, int rank, uint64_t round)
{
    return shm->region.base + (size_t)rank * shm->region.piece_bytes + shm->staging_at +
           (round % PL_SHM_DEPTH) * shm->round_bytes;
}

/* ---- state.c: progress of the collective under way ---- */

/** Whether the collective under way can go on now. */
bool pl_shm_is_ready(const struct pl_shm *shm);

/** Whether `rank` has published everything that this rank needs from it for the collective under way. */
bool pl_shm_is_complete(const struct pl_shm *shm, int rank);

/** The first rank that has staged, or consumed, fewer than `rounds` rounds of this collective; -1 if there is none. */
int pl_shm_state_short_of_staged(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds);
int pl_shm_state_short_of_consumed(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds);

/** Whether this rank can do a step of a staged collective. If not, `*ret_waits_for` is a rank that it waits for. */
bool pl_shm_state_can_move(const struct pl_shm *shm, const struct pl_shm_op *op, int *ret_waits_for);

static inline bool pl_shm_is_root(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    return shm->rank == op->collective->root;
}

/* ---- eventcount.c: publishing, sleeping, failing ---- */

/**
 * Publish `value` in a counter of this rank and wake waiters. A rank that reads the value sees all earlier stores too.
 */
void pl_shm_publish(struct pl_shm *shm, _Atomic uint64_t *word, uint64_t value);

/** Wake all waiters. */
void pl_shm_wake(struct pl_shm *shm);

/** Returns the failure that a rank has declared, as an error for this rank to report; PL_OK if there is none. */
enum pl_status pl_shm_check(const struct pl_shm *shm, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Declare to all ranks that the world cannot go on because of `why`; they report it as `status`. Only the first failure
 * is kept.
 */
void pl_shm_declare_failure(struct pl_shm *shm, enum pl_status status, const struct pl_error *why);

/**
 * Checks the peers while no request runs. Returns the failure that a peer has declared, or PL_PEER if the process of a
 * peer has ended; only then `*ret_left` is set.
 */
enum pl_status pl_shm_check_peers(void *state, bool *ret_left, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sleep until a rank publishes something or until `until_ns`, unless the collective can go on already. Declares a
 * failure if a peer is dead.
 */
void pl_shm_sleep(struct pl_shm *shm, int64_t until_ns);

/** Open pidfds of the other processes, if the kernel has them. */
void pl_shm_open_pidfds(struct pl_shm *shm);

/* ---- run.c: headers, the choice of an algorithm, and the one for small transfers ---- */

enum pl_status pl_shm_post(void *state, struct pl_request *request, bool *ret_done,
                           struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_shm_advance(void *state, struct pl_request *request, bool *ret_done,
                              struct pl_error *reterr) PL_MUST_CHECK;

/* ---- rounds.c: the parts of buffers in each round ---- */

/** A piece of a buffer: `elems` elements from element `at`. */
struct pl_shm_piece {
    uint64_t at, elems;
};

/** Set op->part_elems and op->rounds. `longest` is the largest count of any rank. */
void pl_shm_plan(const struct pl_shm *shm, struct pl_shm_op *op, uint64_t longest);

/** The piece of this rank's send buffer that goes to rank `to` in `round`. */
struct pl_shm_piece pl_shm_sent(const struct pl_shm *shm, const struct pl_shm_op *op, int to, uint64_t round);

/** The piece of this rank's recv buffer that gets the data of `from` in `round`. Only for kinds that copy. */
struct pl_shm_piece pl_shm_received(const struct pl_shm *shm, const struct pl_shm_op *op, int from, uint64_t round);

/** Whether all ranks read the same part of staging memory: allgather, broadcast. */
bool pl_shm_is_one_to_all(enum pl_kind kind);

/* ---- zero_copy.c ---- */

/** Advance a zero-copy collective; true if this rank is done, otherwise it sets `waits_for`. */
bool pl_shm_zero_copy_advance(struct pl_shm *shm, struct pl_shm_op *op);

/* ---- staged.c ---- */

/** Advance a staged collective; true if this rank is done, otherwise it sets `waits_for`. */
bool pl_shm_staged_advance(struct pl_shm *shm, struct pl_shm_op *op);

/* ---- arena.c ---- */

enum pl_status pl_shm_arena_alloc(void *state, uint64_t bytes, struct pl_span *ret_span,
                                  struct pl_error *reterr) PL_MUST_CHECK;
void pl_shm_arena_free(void *state, struct pl_span *span);

/** Find the span that holds `bytes` at `data` in this rank's piece. If there is none, both results stay unchanged. */
void pl_shm_arena_find(const struct pl_shm *shm, const void *data, size_t bytes, uint32_t *ret_number,
                       uint64_t *ret_offset);

/** The address in this process of `offset` in `rank`'s piece of span `number`. */
char *pl_shm_arena_at(const struct pl_shm *shm, uint32_t number, int rank, uint64_t offset);

#endif
