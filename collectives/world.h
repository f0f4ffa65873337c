/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A world: a fixed set of ranks that run collectives together. It is a handle, so that N ranks can be N processes or N
 * threads of one, and sub-worlds are worlds. The child of a fork has no part in it and neither uses nor frees it.
 */
#ifndef PL_COLLECTIVES_WORLD_H
#define PL_COLLECTIVES_WORLD_H

#include "base/knob.h"
#include "base/status.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"

#include <stddef.h>
#include <stdint.h>

struct pl_world;
struct pl_device;
struct pl_text;

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
 * A world of the `count` ranks of `parent` listed, ascending or not; rank i of the new world is ranks[i]. Only those
 * ranks call. The two worlds are independent of each other, need not be freed in any order, and may be used by
 * different threads if the bootstrap allows that (MPI: with MPI_THREAD_MULTIPLE).
 *
 * Under MPI a sub-world should be idle on all its ranks before any rank frees it: end its use with a barrier there.
 * Otherwise a rank may fail in it after others have freed it, and its error message may reach a sub-world that those
 * make later: that one then fails, although nothing is wrong in it.
 *
 * Errors      PL_INVALID (empty list, rank out of range or twice, caller not in it) and those of pl_world_new(). Where
 *             a rank has not come, under MPI, `parent` has failed as well: its ranks are desynchronised.
 */
enum pl_status pl_world_new_sub(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Release on this rank; does not wait for others. Outstanding requests are cancelled and released too. NULL is fine.
 */
void pl_world_free(struct pl_world *world);
void pl_world_free_at(struct pl_world **world_at);

#define PL_AUTO_WORLD __attribute__((cleanup(pl_world_free_at)))

int pl_world_rank(const struct pl_world *world);
int pl_world_size(const struct pl_world *world);

/** Rank among, and number of, the ranks on this host. */
int pl_world_local_rank(const struct pl_world *world);
int pl_world_local_size(const struct pl_world *world);

/** This host's number, from 0 in order of the lowest rank on it, and the number of hosts. */
int pl_world_cross_rank(const struct pl_world *world);
int pl_world_cross_size(const struct pl_world *world);

/** True when every host has the same number of ranks. */
bool pl_world_is_homogeneous(const struct pl_world *world);

/** True when several threads of the program may use its ranks' way to each other at once (MPI_THREAD_MULTIPLE). */
bool pl_world_any_thread(const struct pl_world *world);

/** The host number of `rank`. */
int pl_world_host_of(const struct pl_world *world, int rank);

/**
 * The global number of `rank`: the one that it has in the world made by pl_world_new(), of which this one is that world
 * or a sub-world at any depth. Messages to users name ranks by it.
 */
int pl_world_global_rank(const struct pl_world *world, int rank);
#define pl_world_label pl_world_global_rank /* its former name, for one release */

/** The settings in force, equal on all ranks. */
const struct pl_knobs *pl_world_knobs(const struct pl_world *world);

/** This rank's device, NULL without one. */
struct pl_device *pl_world_device(const struct pl_world *world);

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

/** The first failure that made the world unusable, or PL_OK. */
enum pl_status pl_world_failure(const struct pl_world *world, struct pl_error *reterr);

/**
 * Whether a message of a failed collective could not be cancelled. The memory that collectives of this world were given
 * may then be read and written until the process ends: do not release it (leak it), as the world does with its arena.
 */
bool pl_world_has_leaked(const struct pl_world *world);
#define pl_world_is_stranded pl_world_has_leaked /* its former name, for one release */

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
#define pl_world_tell_waited pl_world_report_wait /* its former name, for one release */

/** Append topology, backends (and why each is off) and which algorithm serves which size, as lines for people. */
void pl_world_describe(const struct pl_world *world, struct pl_text *text);

#endif
