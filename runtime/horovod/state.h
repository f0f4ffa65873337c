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

/** The members of a job. All zero: the job's ranks, see pl_runtime_start(). */
struct pl_state_members {
    const void *communicator_at; /* address of an MPI communicator; NULL: `ranks` */
    const int *ranks;            /* [count], ranks of the job in their new order; the caller is one of them */
    int count;                   /* 0: all ranks */
};

/**
 * Joins, without a deadline unless one is set. Does nothing if this process has joined. The job itself is left at the
 * end of the process, so that this may be called again after pl_state_stop(). Collective over the members.
 */
enum pl_status pl_state_start(const struct pl_state_members *members, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Leave, see pl_service_shutdown() and pl_runtime_stop(); waits for calls that others are in. Collective. At the end of
 * a Python program that happens when the process's exit status is known: with another than 0 this rank waits for
 * nobody, and the others' operations fail, naming it; one that fails because of another rank ends two seconds later, so
 * that the launcher blames the other. A child of fork() has no part in it.
 */
void pl_state_stop(void);

/**
 * Returns the service, which exists until pl_state_release(). NULL if there is none; then there is nothing to release.
 */
struct pl_service *pl_state_hold(void);
void pl_state_release(void);

/** Call it between hold and release. */
const struct pl_runtime *pl_state_runtime(void);

#endif
