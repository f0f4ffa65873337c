/* SPDX-License-Identifier: Apache-2.0 */
/** What the library itself asks of a world, and how one is made. Internal to collectives/ and runtime/. */
#ifndef PL_COLLECTIVES_WORLD_PRIVATE_H
#define PL_COLLECTIVES_WORLD_PRIVATE_H

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/world.h"

/** Zero-initialise; zero means the default everywhere. */
struct pl_world_options {
    /** Resolved settings; NULL: from the process environment. Rank 0's are used on all ranks. */
    const struct pl_knobs *knobs;
    /**
     * TensorFlow's static ring order: the local ranks of a host in the order in which rings visit them, the same list
     * for every host. NULL: 0, 1, 2, ... The list must be a permutation of the local ranks of every host.
     */
    const int *gpu_indices;
    size_t gpu_count;
    /**
     * This rank's GPU (device/device.h), which must live as long as the world; NULL: host memory only. Device memory is
     * taken where every rank has one; several ranks may share one. Sub-worlds have it too.
     */
    struct pl_device *device;
    /**
     * For tests: pretend that each `pretend_ranks_per_host` consecutive ranks share a host and others do not. 0: find
     * out.
     */
    int pretend_ranks_per_host;
};

/**
 * Make a world of all ranks of `bootstrap`: find out who shares a host (by trying to open each other's memory, never
 * by host name), agree on the settings of rank 0, start the backends. The world uses `bootstrap` until it is freed
 * and does not own it. `options` may be NULL.
 *
 * Collective  yes, over the ranks of `bootstrap`.
 * Errors      PL_INVALID (options, or a world over `bootstrap` has failed before), PL_TIMEOUT (a rank did not come
 *             within the knob timeout_s), PL_MEMORY, PL_SYSTEM, PL_LIBRARY. A backend that cannot run is no error:
 *             pl_world_describe() tells why it is off.
 */
enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The global number of `rank`: the one that it has in the world made by pl_world_new(), of which this one is that world
 * or a sub-world at any depth. Messages to users name ranks by it.
 */
int pl_world_global_rank(const struct pl_world *world, int rank);

/** The settings in force, equal on all ranks. */
const struct pl_knobs *pl_world_knobs(const struct pl_world *world);

/**
 * After work of the caller's own on the world's device, which ended with `status`: when the device has failed, revoke
 * the world, so that ranks that wait for this one fail now and not when it is gone, and report the device's error with
 * rank, host and device. Returns `status` in all other cases.
 */
enum pl_status pl_world_check_device(struct pl_world *world, enum pl_status status,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * This process leaves without its part in the collectives that are still to come, because of `why`: the world ends
 * here, and ranks that wait for this one, now or later, get that as PL_PEER instead of waiting until it is gone. What
 * is under way is cancelled. Without effect on a world that has failed.
 */
void pl_world_revoke(struct pl_world *world, const struct pl_error *why);

/** Now plus the world's timeout, on CLOCK_MONOTONIC. */
int64_t pl_world_deadline_ns(const struct pl_world *world);

/** End the whole job at once with exit status `code`; does not return. */
void pl_world_abort(struct pl_world *world, int code) __attribute__((noreturn));

/** What became of one collective on this rank. Times are on CLOCK_MONOTONIC. */
struct pl_event {
    enum pl_kind kind;
    const char *name;  /* its first 16 bytes, "" without a name; valid during the call */
    uint64_t sequence; /* of the world, from 1 */
    /* 0: not of a sub-world; else its number, from 1 in the order in which this process made them */
    unsigned part;
    uint64_t bytes; /* of the elements counted */
    int64_t posted_ns;
    int64_t started_ns; /* when the ones before it had ended */
    int64_t ended_ns;   /* or now, where it has not */
    int64_t waited_ns;  /* how long this rank has been inside a wait for it */
    int rank;           /* this one, as pl_world_global_rank() numbers it */
    /* the rank, numbered likewise, that it waited for when the wait went to sleep; -1: it did not, or unknown */
    int waited_for;
    enum pl_status status;
    /* `stalled` only: what the collective is part of and which ranks are late, "" where `name` says all; valid during
     * the call */
    const char *about;
};

/**
 * Callbacks that see what a world does. Called in the thread that uses the world or, `ended` only, in its progress
 * thread; they must not use the world.
 */
struct pl_observer {
    void *context;
    void (*ended)(void *context, const struct pl_event *event); /* NULL: not called */
    int64_t stall_ns;                                           /* 0: `stalled` is not called */
    /** In a wait nothing has moved for stall_ns; again after twice that time, and so on. */
    void (*stalled)(void *context, const struct pl_event *event);
};

/**
 * Observe `world` from now on, as well as the sub-worlds that pl_world_new_sub() makes of it from now on, each as long
 * as it lives; NULL ends it for `world`. The observer's context must outlive them.
 */
void pl_world_observe(struct pl_world *world, const struct pl_observer *observer);

/**
 * For waits that are not for one collective: this rank has waited for others for `waited_ns`. Reported to the observer
 * as a collective's wait is; `*reported_ns` is 0 at first, then the caller's. `about` NULL: the running collective's.
 */
void pl_world_report_wait(struct pl_world *world, int64_t waited_ns, int64_t *reported_ns,
                          const struct pl_about *about);

#endif
