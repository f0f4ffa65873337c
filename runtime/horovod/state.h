/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The one state of a process that Horovod's Python uses: the C interface has no handles, and the modules of several
 * frameworks are one Horovod.
 *
 * Threads  any.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_STATE_H
#define PL_RUNTIME_HOROVOD_STATE_H

#include "runtime/service.h"
#include "runtime/start.h"

/** Who takes part. All zero: the job's ranks, see pl_runtime_start(). */
struct pl_state_members {
    const void *communicator_at; /* the MPI communicator there; NULL: `ranks` */
    const int *ranks;            /* [count] of the job, in their new order; the caller is one of them */
    int count;                   /* 0: all */
};

/**
 * Join, without a deadline unless one is set. Nothing happens where that was done. The job itself is left when the
 * process ends, so that this may follow pl_state_stop(). Collective, over the members.
 */
enum pl_status pl_state_start(const struct pl_state_members *members, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Leave, see pl_service_shutdown() and pl_runtime_stop(); waits for calls that others are in. Collective. At the end of
 * a Python program that happens when the process's exit status is known: with another than 0 this rank waits for
 * nobody, and the others' operations fail, naming it. A child of fork() has no part in it.
 */
void pl_state_stop(void);

/** The service, which stays until pl_state_release(); NULL where there is none, and nothing to release. */
struct pl_service *pl_state_hold(void);
void pl_state_release(void);

/** Between hold and release. */
const struct pl_runtime *pl_state_runtime(void);

#endif
