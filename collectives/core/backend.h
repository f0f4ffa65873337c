/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The interface of a backend, and the parts of a world and a request that it sees. Internal to collectives/.
 *
 * The world keeps posted requests in a queue and runs them one at a time, in order. A backend is given a request only
 * when all earlier ones of that world have ended on this rank (other ranks may be ahead or behind by one or more). A
 * streamed backend keeps the order itself, on the device: it is given a request as soon as all earlier ones that have
 * not ended are its own.
 */
#ifndef PL_COLLECTIVES_CORE_BACKEND_H
#define PL_COLLECTIVES_CORE_BACKEND_H

#include "base/status.h"
#include "collectives/arena.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/collective.h"
#include "collectives/world.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pl_text;
struct pl_world_backend;

enum {
    PL_BACKEND_REASON_BYTES = PL_PACKED_ERROR_TEXT_BYTES,
    PL_REQUEST_SCRATCH_WORDS = 16,
};

/**
 * The fields that ranks have to agree on, 64 bytes. They are compared as a whole: two ranks run the same collective if
 * and only if the bytes are equal. `sequence` counts the collectives of the world from 1.
 */
struct pl_signature {
    uint64_t sequence;
    uint64_t count;       /* elements; for ragged kinds the sum of counts */
    uint64_t counts_hash; /* hash of the counts if all ranks know them all (allgather, reduce_scatter), else 0 */
    /* hash of both factors and the divisor; 0 if the collective is not scaled and its divisor is n */
    uint64_t scale_hash;
    uint64_t name_hash;
    uint64_t what; /* kind, dtype, op, flags in a byte each from the lowest, then the root in 32 bits */
    char name[16]; /* start of the name, padded with NULs: for messages, but compared too */
};

/**
 * Write "rank 1: broadcast of 10 float32 'w' from root 0; rank 3: ..." as PL_MISMATCH to `reterr`. Both ranks of a
 * disagreeing pair, and each rank that gets the error from them, produce the same text: lower rank first.
 */
enum pl_status pl_signature_mismatch(const struct pl_signature *a, int a_rank, const struct pl_signature *b, int b_rank,
                                     struct pl_error *reterr);

bool pl_signature_equal(const struct pl_signature *a, const struct pl_signature *b);

/** State of a request. */
enum pl_request_phase { PL_REQUEST_QUEUED, PL_REQUEST_RUNNING, PL_REQUEST_DONE };

/**
 * A posted collective. `collective` is checked and normalised: its lists belong to the request; the factors are 1 if
 * not `scaled`; the divisor is the number that a sum is divided by, or 1. A started BROADCAST uses `recv` only (it has
 * the root's data), except in device memory.
 */
struct pl_request {
    struct pl_collective collective;
    struct pl_signature signature;
    struct pl_world *world;
    uint64_t scratch[PL_REQUEST_SCRATCH_WORDS]; /* for the backend; zero when posted */
    /* streamed backends: all work is queued on the device, and stream_wait() may be called */
    bool launched;
    /* how often a call may poll again before it returns, because the caller would only wait; usually 0 */
    unsigned poll_budget;
    /* increased by the backend when data has moved, so that a waiting rank stays awake */
    uint64_t progress_count;

    /* Fields that only the world uses: */
    bool is_persistent;     /* see pl_request_new() */
    struct pl_chain *chain; /* chain that has this request as a step; may be NULL */
    int step;
    const struct pl_world_backend *backend;
    struct pl_request *older;      /* next one in the list of all requests of the world */
    struct pl_request *next;       /* next one in the queue, or in the list of unused requests */
    uint64_t *counts;              /* memory that collective.counts points to */
    int64_t deadline_ns;           /* 0 until the deadline is set, when a wait first reads the clock */
    int64_t search_ns;             /* when to start the search for the rank that is late */
    int64_t posted_ns, started_ns; /* set only while an observer is installed */
    int64_t wait_began_ns;         /* when the present wait began; 0 while no call waits */
    int waited_for;                /* rank that this rank waited for when it last went to sleep; -1: none */
    enum pl_status status;
    enum pl_request_phase phase;
};

/** Whether the kind combines the ranks' data, element by element. */
static inline bool pl_kind_reduces(enum pl_kind kind)
{
    return kind == PL_ALLREDUCE || kind == PL_REDUCE || kind == PL_REDUCE_SCATTER;
}

/** Whether it is a 16-bit float: sums of these are rounded as seldom as possible. */
static inline bool pl_is_half(enum pl_dtype dtype)
{
    return dtype == PL_FLOAT16 || dtype == PL_BFLOAT16;
}

/**
 * Copy a structure whose fields were stored a moment ago, 8 bytes at a time. Compilers would use wider loads, which
 * wait until each pair of stores has reached the cache. That may take longer than all other work of a small collective.
 */
static inline void pl_copy_fresh(void *to, const void *from, size_t bytes)
{
    typedef uint64_t __attribute__((may_alias)) word;

    _Pragma("GCC unroll 16") for (size_t i = 0; i < bytes / sizeof(word); i++)
    {
        ((word *)to)[i] = ((const volatile word *)from)[i];
    }
}

/** Call between two polls of a word that another core is going to write. */
static inline void pl_pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* "yield" returns at once on most of these processors, so that a wait would only fill their buses. */
    __asm__ volatile("isb" ::: "memory");
#endif
}

/**
 * A way to run collectives. All functions but probe get the state that init has filled. There is one call at a time
 * for a world, from the program's thread or from the progress thread (core/types.h).
 */
struct pl_backend {
    const char *name;
    bool on_device; /* serves device memory (others: host memory); off, without a probe, unless every rank was given a
                     * device */
    bool always_on; /* stays on whatever the setting `backend` says */
    bool has_sub_worlds; /* runs on worlds of other backends; if it cannot run, the setting `backend` does not restrict
                          * those */
    bool streamed; /* post() never ends a request; progress() of any request advances all; stream_wait() is not NULL */

    /**
     * Whether the backend can run on this world; if not, `reason` tells people why. It is on only if all ranks answer
     * true.
     */
    bool (*probe)(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES]);

    /**
     * Collective over the world. `state` is zero. A failure that all ranks see turns the backend off, with the error's
     * text as the reason; free() is called then, too. NULL if there is no state.
     */
    enum pl_status (*init)(struct pl_world *world, void *state, struct pl_error *reterr);
    size_t state_bytes;

    /**
     * Whether the backend serves this collective, whose memory is of the right kind. It must decide by the fields of
     * the signature, so that all ranks give the same answer. NULL: it serves all.
     */
    bool (*serves)(void *state, const struct pl_collective *collective);

    /** Start the request. If it ends here, `*ret_done` is set. If all do, progress and cancel may be NULL. */
    enum pl_status (*post)(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

    /** Advance without blocking. Deadlines are checked by the world. */
    enum pl_status (*progress)(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

    /**
     * A waiting rank calls this when its spin budget is used up: block until something may have happened, at most until
     * `until_ns`. Checks for dead peers and reports them. NULL: the world sleeps.
     */
    enum pl_status (*block_until)(void *state, struct pl_request *request, int64_t until_ns, struct pl_error *reterr);

    /** Let work given to `stream` from now on wait for a launched request. Streamed backends only. */
    enum pl_status (*stream_wait)(void *state, struct pl_request *request, void *stream, struct pl_error *reterr);

    /**
     * End a request that will not be advanced any more (deadline, error, cancel). Must not access its buffers
     * afterwards. Reports the failure to peers if it can.
     */
    void (*cancel)(void *state, struct pl_request *request);

    /**
     * Called when this rank ends its world because of `why` while no request runs: makes the ranks that share memory
     * with this rank report the error. Other ranks get a message (core/types.h). NULL if ranks share no memory.
     */
    void (*abort)(void *state, const struct pl_error *why);

    /** The rank that `request` waits for, which messages name; -1 if unknown. May be NULL. */
    int (*waits_for)(void *state, const struct pl_request *request);

    /**
     * Check the peers without a request, for a world that another world uses. Returns the failure that a rank has
     * declared, or PL_PEER if a rank is gone; then `*ret_left` is set, since the rank may simply have finished. NULL if
     * the backend knows nothing about ranks between requests.
     */
    enum pl_status (*check_peers)(void *state, bool *ret_left, struct pl_error *reterr);

    /** Writes lines for pl_world_describe(): the algorithm for each size. May be NULL. */
    void (*describe)(void *state, struct pl_text *text);

    /**
     * Arena memory; NULL if the backend has none. As pl_arena_alloc(), but the world has checked the arguments and that
     * the ranks agree.
     */
    enum pl_status (*arena_alloc)(void *state, uint64_t bytes, struct pl_span *ret_span, struct pl_error *reterr);
    void (*arena_free)(void *state, struct pl_span *span);

    void (*free)(void *state); /* releases what the state has; NULL if there is no state */
};

/* Functions on a world for backends, besides world.h. */

/** For setting up: allgather and barrier over this world's ranks. Do not use it while a collective runs. */
struct pl_bootstrap *pl_world_bootstrap(const struct pl_world *world);

/** Make an internal sub-world for a backend's own use, without devices. Only the listed ranks call. */
enum pl_status pl_world_new_internal(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_collective_post(), for a backend. Its collectives are never adasum. */
enum pl_status pl_request_post(struct pl_world *world, const struct pl_collective *collective,
                               struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/** The rank of `world` that its running request waits for; -1 if there is no such request or the rank is unknown. */
int pl_late_waits_for(const struct pl_world *world);

/**
 * Block as a wait for the running request of `world` does, but not past `until_ns`; returns at once if no request runs.
 */
enum pl_status pl_request_wait_until(struct pl_world *world, int64_t until_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Call pl_backend.check_peers of all backends of `world`. */
enum pl_status pl_request_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Revoke `world` because of `why`: it ends here, and the other ranks get an error as soon as they can receive it. They
 * get PL_TIMEOUT or PL_MISMATCH if that is the status of `why`, otherwise PL_PEER.
 */
void pl_request_revoke_world(struct pl_world *world, const struct pl_error *why);

/**
 * Write the error that other ranks report, as `status`, when this rank sends them `why`: "rank 1 on host algo-2 has
 * given up: " and the text of `why`. If `why` came from another rank, its text is unchanged, so that all ranks report
 * the same. Domain and code name the rank that failed first.
 */
void pl_revoke_relay_error(const struct pl_world *world, enum pl_status status, const struct pl_error *why,
                           struct pl_error *ret_received);

/**
 * Sizes and offsets of the ranks' blocks. If `counts` is NULL, each block has `count` elements: see struct
 * pl_collective.
 */
static inline uint64_t pl_counts_get(const uint64_t *counts, uint64_t count, int rank)
{
    return counts ? counts[rank] : count;
}

static inline uint64_t pl_counts_max(const uint64_t *counts, uint64_t count, int size)
{
    uint64_t most = pl_counts_get(counts, count, 0);

    for (int r = 1; counts && r < size; r++) {
        most = counts[r] > most ? counts[r] : most;
    }
    return most;
}

/** Compute where each rank's block begins if the blocks follow each other, and the sum: `ret_starts` [size + 1]. */
static inline void pl_counts_starts(const uint64_t *counts, uint64_t count, int size, uint64_t *ret_starts)
{
    ret_starts[0] = 0;
    for (int r = 0; r < size; r++) {
        ret_starts[r + 1] = ret_starts[r] + pl_counts_get(counts, count, r);
    }
}

/**
 * A failure that is not reported yet. If ranks call different collectives, moving their data fails as well, but the
 * call check gives the better message, which names both calls.
 */
struct pl_deferred_error {
    bool failed;
    struct pl_error error; /* valid if `failed`; the caller writes it */
};

/**
 * Report the failure if `checked`: the calls are equal, or nobody waits for the call check any longer. Otherwise PL_OK.
 */
static inline enum pl_status pl_deferred_error_report(const struct pl_deferred_error *deferred, bool checked,
                                                      struct pl_error *reterr)
{
    if (!deferred->failed || !checked) {
        return PL_OK;
    }
    if (reterr) {
        *reterr = deferred->error;
    }
    return deferred->error.status;
}

/** Collectives of ranks on one host, by shared memory. */
extern const struct pl_backend pl_backend_shm;

/** Collectives by messages between two ranks. */
extern const struct pl_backend pl_backend_p2p;

/** Collectives of several hosts, at least one of which has several ranks. */
extern const struct pl_backend pl_backend_hier;

/** Collectives in device memory, in a world of one rank. */
extern const struct pl_backend pl_backend_self_gpu;

/** Collectives in device memory, by NCCL, with one device per rank; always off in a build without NCCL. */
extern const struct pl_backend pl_backend_nccl;

/** Collectives in device memory, by copies through host memory, for any devices. */
extern const struct pl_backend pl_backend_device;

/** The backends in order of preference: a collective gets the first that runs and serves it. Ends with NULL. */
extern const struct pl_backend *const pl_backends[];

#endif
