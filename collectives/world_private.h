/* SPDX-License-Identifier: Apache-2.0 */
/** Functions on worlds for the library itself: making, asking, observing. Internal to collectives/ and runtime/. */
#ifndef PL_COLLECTIVES_WORLD_PRIVATE_H
#define PL_COLLECTIVES_WORLD_PRIVATE_H

#include "base/knob.h"
#include "base/status.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"
#include "collectives/world.h"
#include "device/device.h"

/** Zero-initialise; zero means the default everywhere. */
struct pl_world_options {
    /** Resolved settings; NULL: read from the process environment. All ranks use those of rank 0. */
    const struct pl_knobs *knobs;
    /**
     * TensorFlow's static ring order: the local ranks of a host in the order in which rings visit them, one list for
     * all hosts. NULL: 0, 1, 2, ... The list must be a permutation of the local ranks of every host.
     */
    const int *gpu_indices;
    size_t gpu_count;
    /**
     * This rank's GPU (device/device.h), which must live as long as the world; NULL: host memory only. Collectives
     * serve device memory if every rank has a GPU; several ranks may share one. Sub-worlds have it too.
     */
    struct pl_device *device;
    /** Set by pl_world_new_twin(): ranks have devices that the parent world does not know. */
    bool has_own_device;
    /** For tests: each `pretend_ranks_per_host` consecutive ranks act as one host. 0: use the real hosts. */
    int pretend_ranks_per_host;
};

/**
 * Make a world of all ranks of `bootstrap`: find out who shares a host (by trying to open each other's memory, never
 * by host name), agree on the settings of rank 0, start the backends. The world uses `bootstrap` until it is freed,
 * and does not own it. `options` may be NULL.
 *
 * Collective  yes, over the ranks of `bootstrap`.
 * Errors      PL_INVALID (options, or a world over `bootstrap` has failed before), PL_TIMEOUT (a rank did not come
 *             within the knob timeout_s), PL_MEMORY, PL_SYSTEM, PL_LIBRARY. A backend that cannot run is not an error:
 *             pl_world_describe() tells why it is off.
 */
enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The number of `rank` in the world made by pl_world_new(): `world` is that world or a sub-world of it at any depth.
 * Messages to users name ranks by this number.
 */
int pl_world_global_rank(const struct pl_world *world, int rank);

/** Write "rank 3 on host algo-2", with that number, for messages to users. Returns `text`. */
const char *pl_world_rank_name(const struct pl_world *world, int rank, char text[PL_RANK_NAME_BYTES]);

/**
 * Add this rank with its host and `device` (NULL: no device) to the error, unless its text has them: "rank 0 on host
 * algo-1, device 0, GPU-...".
 */
void pl_world_place_error(const struct pl_world *world, const struct pl_device *device, struct pl_error *error);

/**
 * Make a world of the same ranks as `parent`, in their order, in which this rank has `device` (NULL: none). `parent`
 * may run collectives and make sub-worlds meanwhile, in another thread if pl_world_any_thread(); no other twin of it is
 * made at the same time. Ranks wait for each other until `deadline_ns`, or the parent's own deadline if it is earlier.
 *
 * Collective  yes. Errors: those of pl_world_new_sub(), but `parent` goes on.
 */
enum pl_status pl_world_new_twin(struct pl_world *parent, struct pl_device *device, int64_t deadline_ns,
                                 struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_world_new_sub(); ranks wait for each other until `deadline_ns`, or the parent's own if it is earlier. */
enum pl_status pl_world_new_sub_until(struct pl_world *parent, const int *ranks, int count, int64_t deadline_ns,
                                      struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Look at the ranks of this host without a request. Returns the failure that one of them has declared, or PL_PEER if a
 * rank is gone; then `*ret_left` is set, since that rank may simply have finished.
 */
enum pl_status pl_world_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether the ranks' kernels do an allreduce between arena pieces in device memory: all ranks are on one host, NCCL
 * does not serve it, and every rank could open the others' pieces so far. Equal on all ranks.
 */
bool pl_world_shares_device_memory(const struct pl_world *world);

/**
 * Check `collective` as a post does: PL_INVALID or, if no backend could serve it, PL_UNSUPPORTED. Starts nothing and
 * sends nothing.
 */
enum pl_status pl_collective_check(const struct pl_world *world, const struct pl_collective *collective,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Make a request of `collective` that is started again and again (MPI: a persistent collective): it is checked and
 * described once. It must be an ALLREDUCE that is not adasum, or an ALLGATHER without counts. Starts nothing.
 *
 * Errors  PL_INVALID, PL_UNSUPPORTED, PL_MEMORY.
 */
enum pl_status pl_request_new(struct pl_world *world, const struct pl_collective *collective,
                              struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Post the collective of a persistent request with these buffers, which the caller has checked. If `*ret_done` is true,
 * it has succeeded already; otherwise wait for it, test it or cancel it like any request. None of these calls releases
 * it. Call this only when the request does not run.
 *
 * Errors  the failure of the world.
 */
enum pl_status pl_request_start(struct pl_request *request, const void *send, void *recv, bool *ret_done,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Release a persistent request that is not running. NULL is fine. */
void pl_request_free(struct pl_request *request);

/** Settings of the world, equal on all ranks. */
const struct pl_knobs *pl_world_knobs(const struct pl_world *world);

/**
 * Call after the caller's own work on the world's device has ended with `status`. If the device has failed, this
 * revokes the world and reports the device's error with rank, host and device. Ranks that wait for this one then fail
 * at once and not only when its process ends. In all other cases it returns `status`.
 */
enum pl_status pl_world_check_device(struct pl_world *world, enum pl_status status,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Lets the world call `failed` (NULL: nothing) once when it fails, before its requests are cancelled, in whichever
 * thread finds the failure. The call must not use this world.
 */
void pl_world_on_failure(struct pl_world *world, void (*failed)(void *context, const struct pl_error *error),
                         void *context);

/**
 * Call when this process leaves without its part in the collectives that are still to come. The world ends here, and
 * requests under way are cancelled. Ranks that wait for this one, now or later, fail with PL_PEER and `why` instead of
 * waiting until its process is gone. No effect on a world that has failed.
 */
void pl_world_revoke(struct pl_world *world, const struct pl_error *why);

/** The present time plus the world's timeout, on CLOCK_MONOTONIC. */
int64_t pl_world_deadline_ns(const struct pl_world *world);

/** The record of one collective on this rank. Times are on CLOCK_MONOTONIC. */
struct pl_event {
    enum pl_kind kind;
    const char *name;  /* first 16 bytes of the collective's name, "" if it has none; valid during the call */
    uint64_t sequence; /* number of the collective in its world, from 1 */
    /* 0: the collective is of a world made by pl_world_new(); otherwise the number of its sub-world, from 1 in the
     * order in which this process made them */
    unsigned part;
    uint64_t bytes; /* size of all elements that the counts name */
    int64_t posted_ns;
    int64_t started_ns; /* when all earlier collectives had ended */
    int64_t ended_ns;   /* when the collective ended; the present time if it has not ended */
    int64_t waited_ns;  /* how long this rank has waited for it */
    int rank;           /* global number of this rank: see pl_world_global_rank() */
    /* global number of the rank that this rank waited for when it last went to sleep; -1: it did not sleep, or
     * unknown */
    int waited_for;
    enum pl_status status;
    /* for `stalled` only: the operation of the collective and the late ranks; "" if `name` says all; valid during the
     * call */
    const char *about;
};

/** A collective that this rank has just posted to the world of all ranks. */
struct pl_posted {
    enum pl_kind kind;
    const char *name;  /* name of 16 bytes, the unused ones 0; valid during the call */
    uint64_t sequence; /* as in struct pl_event */
    int64_t at_ns;
};

/**
 * Callbacks that see what a world does. They run in the thread that uses the world or, `ended` only, in its progress
 * thread; they must not use the world.
 */
struct pl_observer {
    void *context;
    void (*ended)(void *context, const struct pl_event *event);    /* may be NULL */
    void (*posted)(void *context, const struct pl_posted *posted); /* may be NULL; needs `ended` */
    int64_t stall_ns;                                              /* 0: `stalled` is not called */
    /** Called when nothing has moved in a wait for stall_ns, again after twice that time, and so on. */
    void (*stalled)(void *context, const struct pl_event *event);
};

/**
 * Observe `world` from now on, and each sub-world that pl_world_new_sub() makes of it from now on, as long as each
 * lives. NULL stops the observation of `world`. The observer's context must outlive them.
 */
void pl_world_observe(struct pl_world *world, const struct pl_observer *observer);

/**
 * Report a wait that is not for one collective: this rank has waited for others for `waited_ns`. The observer is called
 * as for a collective's wait. The caller sets `*reported_ns` to 0 at first and then leaves it alone. If `about` is
 * NULL, that of the running collective counts.
 */
void pl_world_report_wait(struct pl_world *world, int64_t waited_ns, int64_t *reported_ns,
                          const struct pl_about *about);

/**
 * Check that the `count` ranks listed can be a set of ranks of a world of `size`: at least one, each in the world and
 * only once. `what` ("a process set") begins the message.
 */
enum pl_status pl_ranks_check(const char *what, const int *ranks, int count, int size,
                              struct pl_error *reterr) PL_MUST_CHECK;

/* A world in which every rank has a GPU if the hosts have GPUs. */

/**
 * As pl_world_new(), with a GPU for each rank: the ranks of a host choose (device/choose.h), each opens its GPU and
 * binds its process to the CPUs near it. `wanted` has the form of the setting `device`; NULL means this setting.
 * `*ret_device` is NULL if no device is used. The caller owns the device and closes it after the world.
 *
 * Collective  yes. If one rank fails, all fail.
 * Errors      those of pl_world_new() and pl_device_choose(); PL_MISMATCH (devices on some hosts only); a driver's
 *             error on its own rank, while the other ranks name that rank.
 * Test        tests/unit/runtime/test_start_device.c
 */
enum pl_status pl_world_new_on_device(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                      const char *wanted, struct pl_device **ret_device, struct pl_world **ret_world,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
