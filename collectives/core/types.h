/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The inside of a world, for the files of core/ that make it up.
 * Backends use backend.h.
 */
#ifndef PL_COLLECTIVES_CORE_TYPES_H
#define PL_COLLECTIVES_CORE_TYPES_H

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/backend.h"
#include "collectives/core/lock.h"
#include "collectives/world_private.h"

enum {
    PL_WORLD_MAX_BACKENDS = 7,
    /* Before a wait first reads the clock, which costs about as much as 20 polls of a shared word; from then on the
     * clock is read after each poll, since a poll may take milliseconds where MPI or another process has the CPU. */
    PL_POLLS_BEFORE_CLOCK = 64,
};

/** A backend of the table as this world sees it. */
struct pl_world_backend {
    const struct pl_backend *backend;
    bool on;
    void *state;
    char reason[PL_BACKEND_REASON_BYTES]; /* why it is off */
};

struct pl_topology {
    int *host_of;                   /* [size] */
    int *local_of;                  /* [size]: rank among those of its host */
    pid_t *pid_of;                  /* [size]: 0 on other hosts */
    int *order;                     /* [size]: ring position -> rank */
    int *global_ranks;              /* [size]: see pl_world_global_rank() */
    struct pl_locality *localities; /* [size] */
    int hosts;
    int local_size; /* of this rank's host */
    bool homogeneous;
    bool one_process;
    /* more ranks of this host (in this job) than CPUs this process may run on: yield at once instead of spinning */
    bool oversubscribed;
};

/** How one rank fared in a step that all take together, and then how the step went. */
struct pl_vote {
    enum pl_status status;
    char text[PL_BACKEND_REASON_BYTES]; /* where the status is not PL_OK */
};

/** The revoke message that a world has received. */
struct pl_revoke {
    uint64_t sequence; /* the first collective that some rank takes no part in; 0: none received */
    struct pl_error received;
};

/** The search for the rank that is late: see late.h. */
struct pl_late {
    uint64_t sequence; /* of the collective that it is about; 0: there was none */
    int first;         /* whom this rank waits for */
    int rank;          /* the late one, as far as that is known */
    int64_t asked_ns;
    struct pl_transfer out[2]; /* a query, an answer */
};

/** A block of arena memory in device memory, or one of host memory that is pinned. */
struct pl_arena_gpu_block {
    struct pl_arena_gpu_block *next;
    uint32_t number; /* equal on all ranks, from 1 */
    bool pinned;     /* host memory: nothing but `data` and `bytes` counts */
    char *data;
    uint64_t bytes;
    /* [size]: where this rank has mapped each rank's block; NULL: it has not mapped all of them */
    struct pl_arena_gpu_mapping *mappings;
};

enum { PL_ARENA_GPU_OFFSET_BITS = 40 }; /* of an offset in a span's name: a terabyte */

struct pl_arena_gpu_mapping {
    char *data;
    bool imported;
};

/** A block of arena memory in a world whose ranks share none. */
struct pl_arena_private_block {
    struct pl_arena_private_block *next;
    void *data;
};

struct pl_world {
    struct pl_bootstrap *bootstrap;
    bool owns_bootstrap;
    int rank;
    int size;
    unsigned part; /* see pl_event */
    struct pl_device *device;
    struct pl_world *host_world; /* see pl_world_host_world() */
    struct pl_topology topology;
    struct pl_knobs knobs;
    const struct pl_backend *const *table; /* NULL ends it; sub-worlds have the same */
    struct pl_world_backend backends[PL_WORLD_MAX_BACKENDS];
    int backend_count;
    int64_t timeout_ns; /* negative: none */
    int64_t spin_ns;
    unsigned always_flags; /* of every collective, by the setting reproducible */
    unsigned wire_flag;    /* of float32 allreduces, by the setting wire_type */

    struct pl_progress *progress; /* NULL: none */
    const char *no_progress;      /* why */

    struct pl_arena_private_block *private_blocks;
    struct pl_arena_gpu_block *gpu_blocks;
    uint32_t gpu_block_number; /* of the last one */
    /* why ranks have not mapped each other's device memory; "" where they have, or never asked */
    char gpu_not_mapped[PL_BACKEND_REASON_BYTES];

    void *scratch; /* of the chain that runs */
    size_t scratch_bytes;

    uint64_t sequence;
    struct pl_request *first; /* the one that runs */
    struct pl_request *last;
    struct pl_request *unused;
    struct pl_request *newest;   /* of all that were made */
    struct pl_observer observer; /* all zero while nobody observes */
    struct pl_error failure;     /* sticky; status PL_OK while all is well */

    bool can_revoke; /* ranks receive each other's failures as messages */
    unsigned revoke_polls;
    struct pl_revoke revoke;
    struct pl_transfer revoke_in;
    struct pl_late late;
};

/**
 * Chooses this rank's device where options do not name it: called when the world's ranks, hosts and settings are known
 * and its backends are not started. Collective over pl_world_bootstrap(); all ranks or none choose one.
 */
struct pl_device_chooser {
    void *context;
    enum pl_status (*choose)(void *context, struct pl_world *world, struct pl_device **ret_device,
                             struct pl_error *reterr);
};

/**
 * pl_world_new() on the backends of `table`, in order of preference and NULL after the last; `chooser` NULL: none.
 */
enum pl_status pl_world_new_with_table(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                       const struct pl_backend *const *table, const struct pl_device_chooser *chooser,
                                       struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/** Find out who shares a host. A `parent` world knows that already: `parent_ranks` are our ranks' numbers there. */
enum pl_status pl_topology_init(struct pl_topology *topology, struct pl_bootstrap *bootstrap,
                                const struct pl_world_options *options, const struct pl_world *parent,
                                const int *parent_ranks, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;
void pl_topology_done(struct pl_topology *topology);

/** Check `collective` and copy it, normalised, with its signature, to `request`. */
enum pl_status pl_collective_check_request(struct pl_request *request, const struct pl_world *world,
                                           const struct pl_collective *collective,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Check `collective` as that does, and copy nothing. */
enum pl_status pl_request_check(const struct pl_world *world, const struct pl_collective *collective,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** The same as pl_collective_check_request() for a step of `of`'s chain, whose buffers are not known yet. */
enum pl_status pl_collective_sign_step(struct pl_request *request, const struct pl_world *world,
                                       const struct pl_collective *step, const struct pl_collective *of,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_request_post() under the lock, waking nobody. `poll_budget`: how often a call may look again before it returns,
 * because the caller would only wait.
 */
enum pl_status pl_request_enqueue(struct pl_world *world, const struct pl_collective *collective, unsigned poll_budget,
                                  struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Run the queue as far as it gets without waiting. Under the lock of lock.h, as is all of request.c and request_wait.c.
 */
void pl_request_advance(struct pl_world *world);

/** Wait until the request has ended and release it; its status. */
enum pl_status pl_request_wait_for(struct pl_request *request, struct pl_error *reterr) PL_MUST_CHECK;

/** Put the request back among the unused ones. */
void pl_request_release(struct pl_request *request);

/** The world cannot go on: everything queued ends with `error`. The first error stays, and its status is returned. */
enum pl_status pl_request_fail_all(struct pl_world *world, const struct pl_error *error);

/** The error that ended the world. */
enum pl_status pl_request_world_failure(const struct pl_world *world, struct pl_error *reterr);

/** What observers get about the request, as far as it is now; `name` becomes the event's. */
void pl_request_describe(const struct pl_request *request, char name[sizeof(request->signature.name) + 1],
                         struct pl_event *event);

/** Cancel and release all requests of a world that is going away. */
void pl_request_drop_all(struct pl_world *world);

/** What a rank votes that fared so. */
struct pl_vote pl_vote_from(const struct pl_error *own);

/** `*vote` becomes that of the lowest rank whose status is not PL_OK, where there is one. Collective. */
enum pl_status pl_world_vote(struct pl_world *world, struct pl_vote *vote, int64_t deadline_ns,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Whether every rank was given a device; else `reason` names one that was not. */
bool pl_world_has_devices(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES]);

/** Release arena memory that is still allocated. */
void pl_arena_drop_all(struct pl_world *world);

/** The device part of pl_arena_alloc() and pl_arena_free(). */
enum pl_status pl_arena_gpu_new(struct pl_world *world, uint64_t bytes, struct pl_span *ret_span,
                                struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_arena_gpu_pin(struct pl_world *world, const struct pl_span *host,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_arena_gpu_free(struct pl_world *world, struct pl_span *span);
void pl_arena_gpu_drop_all(struct pl_world *world);

/**
 * The span that holds `bytes` at `data`, and where in it; NULL when none does, or ranks have not mapped each other's
 * blocks of it.
 */
const struct pl_arena_gpu_block *pl_arena_gpu_find(const struct pl_world *world, const void *data, uint64_t bytes,
                                                   uint64_t *ret_offset);

/** The span of that number, NULL when there is none. */
const struct pl_arena_gpu_block *pl_arena_gpu_numbered(const struct pl_world *world, uint32_t number);

#endif
