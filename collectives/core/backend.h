/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a backend is, and what it sees of a world and a request. Internal to collectives/.
 *
 * The world keeps posted requests in a queue and runs them one at a time, in order: a backend is given a request only
 * when all earlier ones of that world have ended on this rank (other ranks may be ahead by one, or later). A streamed
 * backend keeps the order itself, on the device: it is given a request as soon as all earlier ones that have not ended
 * are its own.
 */
#ifndef PL_COLLECTIVES_CORE_BACKEND_H
#define PL_COLLECTIVES_CORE_BACKEND_H

#include "base/status.h"
#include "collectives/arena.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"
#include "collectives/world.h"

#include <sys/types.h>

struct pl_text;
struct pl_world_backend;

enum {
    PL_BACKEND_REASON_BYTES = 200,
    PL_REQUEST_SCRATCH_WORDS = 16,
};

/**
 * What ranks have to agree on, 64 bytes. Compared whole: two ranks run the same collective if and only if the bytes are
 * equal. `sequence` counts the collectives of the world from 1.
 */
struct pl_signature {
    uint64_t sequence;
    uint64_t count;       /* elements; for ragged kinds the sum of counts */
    uint64_t counts_hash; /* of the counts where all ranks know all of them (allgather, reduce_scatter), else 0 */
    /* of both factors and the divisor, 0 when not scaled and not divided by another number than n */
    uint64_t scale_hash;
    uint64_t name_hash;
    uint64_t what; /* kind, dtype, op, flags in a byte each from the lowest, then the root in 32 bits */
    char name[16]; /* the start of the name, NUL-padded: for messages only, though compared like the rest */
};

/**
 * Write "rank 1: broadcast of 10 float32 'w' from root 0; rank 3: ..." as PL_MISMATCH to `reterr`.
 * Both ranks of a disagreeing pair, and each rank that it is relayed to, produce the same text: lower rank first.
 */
enum pl_status pl_signature_mismatch(const struct pl_signature *a, int a_rank, const struct pl_signature *b, int b_rank,
                                     struct pl_error *reterr);

bool pl_signature_equal(const struct pl_signature *a, const struct pl_signature *b);

/** Where a rank runs, as all ranks of its world know it. */
struct pl_locality {
    char host[64];   /* the host's name: for messages only, names do not tell hosts apart */
    char device[48]; /* "GPU-xxxxxxxx-...", "" where the rank was given no device */
    int32_t ordinal; /* of the device in its process */
};

/** How far a request is. */
enum pl_request_phase { PL_REQUEST_QUEUED, PL_REQUEST_RUNNING, PL_REQUEST_DONE };

/**
 * A posted collective. `collective` is checked and normalised: its lists are the request's own, the factors are 1 when
 * not `scaled`, the divisor is what a sum is divided by (1 where none is), and BROADCAST, once started, has recv only
 * (the root's data is there, device memory apart).
 */
struct pl_request {
    struct pl_collective collective;
    struct pl_signature signature;
    struct pl_world *world;
    uint64_t scratch[PL_REQUEST_SCRATCH_WORDS]; /* scratch of the backend, zero when posted */
    /* a streamed backend's: everything is given to the device, order() may be called */
    bool launched;
    /* poll budget: how often a call may poll again before it returns, because the caller would only wait; else 0 */
    unsigned poll_budget;
    /* progress count: a backend increases it whenever something moved, so that a waiting rank stays awake */
    uint64_t progress_count;

    /* The world's: */
    struct pl_chain *chain; /* of which this is a step; NULL: of none */
    int step;
    const struct pl_world_backend *backend;
    struct pl_request *older;      /* among all of the world, for its end */
    struct pl_request *next;       /* in the queue, or in the list of unused ones */
    uint64_t *counts;              /* after collective.counts */
    int64_t deadline_ns;           /* 0 until a wait looks at the clock */
    int64_t search_ns;             /* from when on to search for the rank that is late */
    int64_t posted_ns, started_ns; /* these four only while the world is observed */
    int64_t wait_began_ns;         /* 0 while nobody waits */
    int waited_for;                /* -1: nobody */
    enum pl_status status;
    enum pl_request_phase phase;
};

/** Kinds that bring the ranks' data together, element by element. */
static inline bool pl_kind_reduces(enum pl_kind kind)
{
    return kind == PL_ALLREDUCE || kind == PL_REDUCE || kind == PL_REDUCE_SCATTER;
}

/** Floats of 16 bits: sums of them are rounded as seldom as can be. */
static inline bool pl_is_half(enum pl_dtype dtype)
{
    return dtype == PL_FLOAT16 || dtype == PL_BFLOAT16;
}

/**
 * Copy a structure whose fields were stored a moment ago, 8 bytes at a time. Wider loads, as compilers use, would wait
 * until each pair of stores has reached the cache, which may take longer than all else that a small collective does.
 */
static inline void pl_copy_fresh(void *to, const void *from, size_t bytes)
{
    typedef uint64_t __attribute__((may_alias)) word;

    _Pragma("GCC unroll 16") for (size_t i = 0; i < bytes / sizeof(word); i++)
    {
        ((word *)to)[i] = ((const volatile word *)from)[i];
    }
}

/** Between two polls of a word that another core will write. */
static inline void pl_pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* "yield" ends at once on most of these processors, so that a wait would only fill their buses. */
    __asm__ volatile("isb" ::: "memory");
#endif
}

/**
 * A way of running collectives. All functions but probe get what init stored. The calls for one world come one at a
 * time, from the program's thread or from the progress thread (progress.h).
 */
struct pl_backend {
    const char *name;
    bool on_device;      /* takes device memory only: off, without a probe, unless every rank was given a device */
    bool always_on;      /* the setting `backend` does not turn it off */
    bool has_sub_worlds; /* it runs on worlds of other backends: where it cannot, the setting leaves those free */
    bool streamed; /* post never ends a request, progress of any request looks after all of them, order() is there */

    /**
     * True when it can run on this world; else `reason` says why not, for people. Same answer needed on all ranks: the
     * world ands them.
     */
    bool (*probe)(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES]);

    /** Collective over the world. A failure that all ranks see turns the backend off with its text as the reason. */
    enum pl_status (*init)(struct pl_world *world, void **ret_state, struct pl_error *reterr);

    /**
     * Whether it takes this collective; decided from what the signature covers and `memory`, so that all ranks answer
     * alike.
     */
    bool (*serves)(void *state, const struct pl_collective *collective);

    /** Begin; small ones may end here (`*ret_done`). */
    enum pl_status (*post)(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

    /** Advance without blocking. Deadlines are checked by the world. */
    enum pl_status (*progress)(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

    /**
     * Called by a waiting rank when its spin budget is used up: block until something may have happened, at most until
     * `until_ns`. NULL: the world sleeps. Checks for dead peers and reports them.
     */
    enum pl_status (*block_until)(void *state, struct pl_request *request, int64_t until_ns, struct pl_error *reterr);

    /** Of a launched request: let work given to `stream` from now on wait for it. Streamed backends only. */
    enum pl_status (*stream_wait)(void *state, struct pl_request *request, void *stream, struct pl_error *reterr);

    /**
     * The request will not be advanced any more: deadline, error, cancel. Must not access its buffers afterwards;
     * reports the failure to peers if it can.
     */
    void (*cancel)(void *state, struct pl_request *request);

    /**
     * While no request runs: this rank ends its world because of `why`; make the ranks that share memory with it report
     * that. Other ranks receive it as a message (revoke.h). NULL where no rank shares memory.
     */
    void (*abort)(void *state, const struct pl_error *why);

    /** The rank that `request` is waiting for, for messages; -1 when unknown. May be NULL. */
    int (*waits_for)(void *state, const struct pl_request *request);

    /**
     * Check the peers without a request, for a world that another world uses: the failure that a rank has declared, or
     * PL_PEER and `*ret_left` when one is gone, which may be because all is done there. NULL where nothing is known of
     * ranks between requests.
     */
    enum pl_status (*check_peers)(void *state, bool *ret_left, struct pl_error *reterr);

    /** Lines for pl_world_describe(): which algorithm for which size. May be NULL. */
    void (*describe)(void *state, struct pl_text *text);

    /**
     * Arena memory; NULL where the backend has none. As pl_arena_alloc(), the world has checked the arguments and, by
     * exchange, that ranks agree.
     */
    enum pl_status (*arena_alloc)(void *state, uint64_t bytes, struct pl_span *ret_span, struct pl_error *reterr);
    void (*arena_free)(void *state, struct pl_span *span);

    void (*free)(void *state);
};

/* What a backend may ask a world besides world.h. */

/** For setting up: allgather and barrier over this world's ranks. Not while a collective runs. */
struct pl_bootstrap *pl_world_bootstrap(const struct pl_world *world);

/** Process id of `rank` as seen from here; 0 when it is on another host. Threads as ranks share one. */
pid_t pl_world_pid_of(const struct pl_world *world, int rank);

/** Where `rank` runs. */
const struct pl_locality *pl_world_locality(const struct pl_world *world, int rank);

/**
 * The host world: the same ranks as a world without devices, for what the hosts have to exchange; NULL unless there are
 * several ranks and each has a device.
 */
struct pl_world *pl_world_host_world(const struct pl_world *world);

/** An internal sub-world for a backend's own use, without devices. Only the ranks listed call. */
enum pl_status pl_world_new_internal(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** pl_collective_post() for a backend, whose collectives are never adasum. */
enum pl_status pl_request_post(struct pl_world *world, const struct pl_collective *collective,
                               struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/** The rank of `world` that its running request waits for; -1 when there is none or that is unknown. */
int pl_late_waits_for(const struct pl_world *world);

/**
 * Block as a rank does that waits for the running request of `world`, but not past `until_ns`; returns at once when
 * there is none.
 */
enum pl_status pl_request_wait_until(struct pl_world *world, int64_t until_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** See pl_backend.look. */
enum pl_status pl_request_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Revoke `world` because of `why`: it ends here, and the other ranks get the error as soon as they can receive it:
 * PL_PEER, unless `why` is PL_TIMEOUT and they share the wait.
 */
void pl_request_revoke_world(struct pl_world *world, const struct pl_error *why);

/**
 * Relay an error: what a rank that receives `why` from this one reports, as `status`: "rank 1 has given up: " and the
 * text of `why`; or, where this rank itself has received it from another, that text unchanged, so that all ranks report
 * the same. Domain and code name the rank that failed first.
 */
void pl_revoke_relay_error(const struct pl_world *world, enum pl_status status, const struct pl_error *why,
                           struct pl_error *ret_received);

/** Local rank of `rank` on its host. */
int pl_world_local_of(const struct pl_world *world, int rank);

/** True when every rank is a thread of this process. */
bool pl_world_is_one_process(const struct pl_world *world);

/** The ring order: position i of a ring is held by rank order[i]. */
const int *pl_world_ring_order(const struct pl_world *world);

#endif
