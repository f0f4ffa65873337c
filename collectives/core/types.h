/* SPDX-License-Identifier: Apache-2.0 */
/** The internals of a world, for the files of core/. Backends use backend.h. */
#ifndef PL_COLLECTIVES_CORE_TYPES_H
#define PL_COLLECTIVES_CORE_TYPES_H

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/world_private.h"

#include <pthread.h>
#include <semaphore.h>

enum {
    PL_WORLD_MAX_BACKENDS = 7,
    /* The number of polls before a wait first reads the clock. A reading costs about as much as 20 polls of a shared
     * word. From then on the wait reads the clock after each poll, since a poll may take milliseconds if MPI or another
     * process has the CPU. */
    PL_POLLS_BEFORE_CLOCK = 64,
};

/*
 * The lock of a world: only one of the program's threads and the progress thread works on the world at a time. A world
 * without a progress thread has no lock.
 */

struct pl_progress {
    struct pl_world *world;
    pthread_t thread;
    sem_t wake;
    pthread_mutex_t lock; /* guards `synced`, and the world's requests, backends and failure */
    struct {
        bool asleep; /* the thread waits for `wake` */
        bool stop;
    } synced;
};

/**
 * Wake the thread if it sleeps. Call with the lock held when a request is under way and the program goes on computing.
 * `progress` may be NULL.
 */
static inline void pl_core_wake_progress(struct pl_progress *progress)
{
    if (progress && progress->synced.asleep) {
        progress->synced.asleep = false;
        sem_post(&progress->wake);
    }
}

static inline struct pl_progress *pl_progress_hold(struct pl_progress *progress)
{
    if (progress) {
        pthread_mutex_lock(&progress->lock);
    }
    return progress;
}

static inline void pl_progress_release(struct pl_progress *const *held_at)
{
    if (*held_at) {
        pthread_mutex_unlock(&(*held_at)->lock);
    }
}

/** Hold the lock of `world`, if it has one, until the end of the block. */
#define PL_AUTO_HOLD(world)                                                                                            \
    __attribute__((cleanup(pl_progress_release), unused)) struct pl_progress *const held_ =                            \
        pl_progress_hold((world)->progress)

/*
 * The thread that advances a world's requests while the program computes.
 *
 * A message between hosts needs a call into MPI every now and then, or the link is idle. Setting `progress`: `auto`
 * gives a thread to each world of several hosts if several threads may use the bootstrap at once (MPI:
 * MPI_THREAD_MULTIPLE), `on` gives one to each world of more than one rank, `off` gives none. The internal worlds of
 * backends have no thread.
 *
 * Threads  the program's threads and this one take turns. Functions of collective.h, world.h, arena.h and
 *          pl_request_post() take the world's lock. The functions on requests in this file, from pl_request_advance()
 *          on, are called with the lock held. A waiting program keeps the lock and advances by itself.
 * Cost     20 ns per call for the lock. While requests are under way the thread advances them every 50 to 100 us, less
 *          often if nothing has moved for long; it sleeps while there are no requests.
 * Test     tests/unit/collectives/core/test_progress.c, examples/synthetic
 */

/**
 * Start the thread of `world`. If it has none, world->no_progress is the reason, for people. PL_UNSUPPORTED if the
 * setting is `on` and no thread can run.
 */
enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** End the thread. Call before anything of the world is released. */
void pl_progress_stop(struct pl_world *world);

/** A world's record of one backend of the table. */
struct pl_world_backend {
    const struct pl_backend *backend;
    bool on;
    void *state;
    char reason[PL_BACKEND_REASON_BYTES]; /* why the backend is off */
};

struct pl_topology {
    int *host_of;                   /* [size]: number of each rank's host */
    int *local_of;                  /* [size]: number of each rank among the ranks of its host */
    pid_t *pid_of;                  /* [size]: process of each rank; 0 on other hosts */
    int *order;                     /* [size]: order[i] is the rank at position i of a ring */
    int *global_ranks;              /* [size]: global rank of each rank, see pl_world_global_rank() */
    struct pl_locality *localities; /* [size]: where each rank runs */
    int hosts;
    int local_size; /* number of ranks on this rank's host */
    bool homogeneous;
    bool one_process;
    /* this host has more ranks of this job than CPUs for them: waits yield at once instead of spinning */
    bool oversubscribed;
};

/** The revoke message that a world has received. */
struct pl_revoke {
    uint64_t sequence; /* number of the first collective that some rank takes no part in; 0: no message has come */
    struct pl_error received;
};

/** The search for the rank that is late: see pl_late_search() below. */
struct pl_late {
    uint64_t sequence; /* number of the collective that the search is about; 0: no search yet */
    int first;         /* the rank that this rank waits for */
    int rank;          /* the late rank, as far as it is known */
    int64_t asked_ns;
    struct pl_transfer out[2]; /* messages under way: a query, an answer */
};

/** A block of arena memory that belongs to no backend: device memory, pinned host memory or private memory. */
struct pl_arena_block {
    struct pl_arena_block *next;
    enum pl_memory memory; /* PL_MEMORY_HOST: private memory, because the world's ranks share none */
    uint32_t number;       /* for device memory: number of the block, equal on all ranks, from 1 */
    char *data;
    uint64_t bytes;
    /* [size]: where this rank has mapped each rank's block; NULL: some block is not mapped */
    struct pl_arena_gpu_mapping *mappings;
};

enum { PL_ARENA_GPU_OFFSET_BITS = 40 }; /* bits for an offset in a block: a terabyte */

struct pl_arena_gpu_mapping {
    char *data;
    bool imported;
};

struct pl_world {
    struct pl_bootstrap *bootstrap;
    bool owns_bootstrap;
    int rank;
    int size;
    unsigned part;  /* number of the sub-world: see pl_event */
    bool is_subset; /* some ranks of the job are not in this world */
    struct pl_device *device;
    /* world of the same ranks without devices, for data that the hosts exchange; NULL unless there are several ranks
     * and each has a device */
    struct pl_world *host_world;
    struct pl_topology topology;
    struct pl_knobs knobs;
    const struct pl_backend *const *table; /* ends with NULL; sub-worlds use the same table */
    struct pl_world_backend backends[PL_WORLD_MAX_BACKENDS];
    int backend_count;
    int64_t timeout_ns; /* negative: no timeout */
    int64_t spin_ns;
    unsigned always_flags; /* flags added to every collective, by the setting reproducible */
    unsigned wire_flag;    /* flag added to float32 allreduces, by the setting wire_type */

    struct pl_progress *progress; /* NULL if the world has no progress thread */
    const char *no_progress;      /* why it has none */

    struct pl_arena_block *blocks; /* list of blocks, the newest first */
    uint32_t gpu_block_number;     /* number of the last block in device memory */
    /* why ranks have not mapped each other's device memory; "" if they have, or did not try */
    char gpu_not_mapped[PL_BACKEND_REASON_BYTES];

    void *scratch; /* memory for the running chain: see pl_chain.scratch_bytes */
    size_t scratch_bytes;

    uint64_t sequence;
    struct pl_request *first; /* head of the queue: the running request */
    struct pl_request *last;
    struct pl_request *unused;
    struct pl_request *newest;                                   /* newest of all requests that the world has made */
    struct pl_observer observer;                                 /* all zero if there is no observer */
    struct pl_error failure;                                     /* first failure of the world; PL_OK if none */
    void (*failed)(void *context, const struct pl_error *error); /* see pl_world_on_failure() */
    void *failed_context;

    bool can_revoke; /* ranks receive each other's failures as messages */
    unsigned revoke_polls;
    struct pl_revoke revoke;
    struct pl_transfer revoke_in;
    struct pl_late late;
};

/**
 * Chooses this rank's device if the options do not name it. It is called when the world's ranks, hosts and settings are
 * known and before its backends are started. Collective over pl_world_bootstrap(): all ranks choose a device, or none
 * does.
 */
struct pl_device_chooser {
    void *context;
    enum pl_status (*choose)(void *context, struct pl_world *world, struct pl_device **ret_device,
                             struct pl_error *reterr);
};

/** As pl_world_new(), with the backends of `table`: in order of preference, ended by NULL. `chooser` may be NULL. */
enum pl_status pl_world_new_with_table(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                       const struct pl_backend *const *table, const struct pl_device_chooser *chooser,
                                       struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Find out which ranks share a host. A sub-world copies this from `parent`; `parent_ranks` are the ranks in `parent`.
 */
enum pl_status pl_topology_init(struct pl_topology *topology, struct pl_bootstrap *bootstrap,
                                const struct pl_world_options *options, const struct pl_world *parent,
                                const int *parent_ranks, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;
void pl_topology_done(struct pl_topology *topology);

/** Check `collective` and copy it, normalised, with its signature, to `request`. */
enum pl_status pl_request_prepare(struct pl_request *request, const struct pl_world *world,
                                  const struct pl_collective *collective, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_request_prepare(), without copying. */
enum pl_status pl_request_check(const struct pl_world *world, const struct pl_collective *collective,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_request_prepare(), for a step of the chain of `of`. The step's buffers are not known yet. */
enum pl_status pl_request_sign_step(struct pl_request *request, const struct pl_world *world,
                                    const struct pl_collective *step, const struct pl_collective *of,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Does the work of pl_collective_post() with the lock held, without waking the progress thread. `poll_budget` is how
 * often a call may poll again before it returns, because the caller would only wait.
 */
enum pl_status pl_request_enqueue(struct pl_world *world, const struct pl_collective *collective, unsigned poll_budget,
                                  struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/** Run the queue as far as possible without waiting. Like the functions below, call it with the world's lock held. */
void pl_request_advance(struct pl_world *world);

/** Wait until the request has ended, release it unless it is persistent, and return its status. */
enum pl_status pl_request_wait_for(struct pl_request *request, struct pl_error *reterr) PL_MUST_CHECK;

/** Put the request into the list of unused ones, unless it is persistent: then it stays its owner's. */
void pl_request_release(struct pl_request *request);

/**
 * End the world: everything in the queue ends with `error`. The first error of a world stays, and its status is
 * returned.
 */
enum pl_status pl_request_fail_all(struct pl_world *world, const struct pl_error *error);

/** The error that ended the world. */
enum pl_status pl_request_world_failure(const struct pl_world *world, struct pl_error *reterr);

/** Fill `event` with the request's present state, for observers. `event->name` points to `name`. */
void pl_request_describe(const struct pl_request *request, char name[sizeof(request->signature.name) + 1],
                         struct pl_event *event);

/** Cancel and release all requests of a world that is being freed. */
void pl_request_drop_all(struct pl_world *world);

/**
 * Agree on the result of a step that all ranks take. `*vote` is this rank's result. It becomes the result of the lowest
 * rank that has failed, if a rank has failed. Collective.
 */
enum pl_status pl_world_vote(struct pl_world *world, struct pl_packed_error *vote, int64_t deadline_ns,
                             struct pl_error *reterr) PL_MUST_CHECK;

/*
 * How the failure of one rank reaches the others: search for the late rank, revoking a world, the vote after a step.
 *
 * The search: a rank knows only the rank that it waits for, and that rank may itself wait for another. For example, a
 * rank waits for the first rank of its host, which waits for the first rank of another host. So a rank whose deadline
 * is near asks the rank that it waits for which rank is late. A waiting rank passes the query on and answers what it
 * knows so far. A rank that does not answer is late: it computes, is stopped or dead. The error names it.
 *
 * Ranks ask only ranks whose messages they wait for. MPI may have to connect to any other rank, and a late rank does
 * not help with that. Nothing is sent until a deadline is near, and deadlines do not change.
 */

/** A query for the late rank, or the answer. It has the tag of revoke messages, but a different length. */
struct pl_late_message {
    int32_t answers; /* 0: this is a query */
    int32_t from;    /* the rank that sends it */
    int32_t late;    /* in an answer: the late rank; -1: unknown */
};

/** When a rank with this deadline begins to ask: after half of the time, and at most 10 s before the deadline. */
int64_t pl_late_begin_ns(int64_t now_ns, int64_t deadline_ns);

/**
 * Ask for the late rank. Call when the deadline of the world's first request is near, or when a rank that waits for
 * this one asks.
 */
void pl_late_search(struct pl_world *world, int64_t now_ns);

/** Handle a message that has come while the world's first request waits. */
void pl_late_take(struct pl_world *world, const struct pl_late_message *message);

/** The late rank of `world`, as far as it is known; -1 if it is unknown which rank this one waits for. */
int pl_late_rank(const struct pl_world *world);

/** Cancel the queries and answers under way. */
void pl_late_done(struct pl_world *world);

/**
 * Revoking a world (like MPI_Comm_revoke of ULFM) whose ranks have messages but no common memory. A rank whose world
 * has failed sends the error to the ranks whose numbers are 1, 2, 4, ... higher, with the number of the first
 * collective that it takes no part in. Their worlds fail too, and they relay the error. So all living ranks have
 * received it after at most ceil(log2 n) steps, even if some ranks are dead.
 */
enum { PL_REVOKE_POLLS = 16 }; /* a probe costs as much as one or two polls of a request */

/** Send the world's `failure` to others. Returns when the messages have left, after 250 ms at most. */
void pl_revoke_send(struct pl_world *world);

/**
 * Receive, at each PL_REVOKE_POLLS-th call, the messages that have come; call while the world's first request waits.
 * Returns the failure that must end the world if one has come.
 */
enum pl_status pl_revoke_receive(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel the receive of revoke messages, if it is under way. */
void pl_revoke_done(struct pl_world *world);

/** Whether every rank was given a device; if not, `reason` names a rank that has none. */
bool pl_world_has_devices(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES]);

/** Release arena memory that is still allocated. */
void pl_arena_drop_all(struct pl_world *world);

/** The parts of pl_arena_alloc() and pl_arena_free() for device and pinned memory. */
enum pl_status pl_arena_gpu_new(struct pl_world *world, uint64_t bytes, struct pl_span *ret_span,
                                struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_arena_gpu_pin(struct pl_world *world, const struct pl_span *host,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_arena_gpu_end(struct pl_world *world, struct pl_arena_block *block, int64_t deadline_ns);

/**
 * Find the block that holds `bytes` at `data`; `*ret_offset` is the offset in the block. NULL if there is no such block
 * or ranks have not mapped it.
 */
const struct pl_arena_block *pl_arena_gpu_find(const struct pl_world *world, const void *data, uint64_t bytes,
                                               uint64_t *ret_offset);

/** The block with that number; NULL if there is none. */
const struct pl_arena_block *pl_arena_gpu_numbered(const struct pl_world *world, uint32_t number);

/*
 * A collective that consists of several others: a chain of requests. All of them enter the world's queue at the post,
 * so that every rank has them in the same order. The program owns the last request, the queue the others. All carry the
 * signature of the program's call. Internal to collectives/: calls/adasum.c makes a chain.
 */

/** The code that makes a chain embeds this in its own struct and fills all fields but `requests`. */
struct pl_chain {
    int steps;            /* number of steps, at least 1 */
    size_t scratch_bytes; /* size of the world's memory for the steps; its content is lost when the chain ends */
    /* returns step `step` without its buffers; its counts are valid until the next call */
    struct pl_collective (*describe)(struct pl_chain *chain, int step);
    /* called before the step starts: computes what the step sends, and sets the buffers of `collective` */
    void (*start)(struct pl_chain *chain, int step, void *scratch, struct pl_collective *collective);
    void (*finish)(struct pl_chain *chain); /* called when the last step has succeeded: writes the result */
    void (*free)(struct pl_chain *chain);
    int requests; /* set by the queue: how many requests refer to the chain */
};

/** As pl_request_enqueue(), for the chain of `collective`, which has been checked. Frees the chain, also on failure. */
enum pl_status pl_request_enqueue_chain(struct pl_world *world, const struct pl_collective *collective,
                                        struct pl_chain *chain, struct pl_request **ret_request,
                                        struct pl_error *reterr) PL_MUST_CHECK;

#endif
