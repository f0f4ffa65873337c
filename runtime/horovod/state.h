/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The one state of a process that uses Horovod's Python: the C interface has no handles, and the modules of several
 * frameworks share one Horovod. And its process sets by communicators, its Python, its timeline.
 *
 * Threads  any.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_STATE_H
#define PL_RUNTIME_HOROVOD_STATE_H

#include "runtime/service.h"
#include "runtime/start.h"

#include <stdbool.h>

/** The members of a job. If it is zeroed, they are the job's ranks, see pl_runtime_start(). */
struct pl_state_members {
    const void *communicator_at; /* address of an MPI communicator; NULL if `ranks` is used */
    const int *ranks;            /* [count], ranks of the job in their new order; the caller must be one of them */
    int count;                   /* 0 for all ranks */
};

/**
 * Joins, without a deadline unless one is set. Does nothing if this process has joined. The process leaves the job
 * itself only at its end, so this may be called again after pl_state_stop(). Collective over the members.
 */
enum pl_status pl_state_start(const struct pl_state_members *members, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Leaves, see pl_service_shutdown() and pl_runtime_stop(). Waits for calls of other threads. Collective. At the end of
 * a Python program it runs when the process's exit status is known. If that is not 0, this rank waits for no other
 * rank, and the operations of the other ranks fail with an error that names it. If this rank fails because of another
 * rank, it ends two seconds later, so that the launcher names the other one. A child of fork() does nothing here.
 */
void pl_state_stop(void);

/**
 * Returns the service, which exists until pl_state_release(). NULL if there is none; then there is nothing to release.
 */
struct pl_service *pl_state_hold(void);
void pl_state_release(void);

/** Returns why tensors on a GPU are copied to host memory, or NULL. Call this and the next between hold and release. */
const char *pl_state_why_copied(void);
const struct pl_runtime *pl_state_runtime(void);

/** HOROVOD_ENABLE_ASYNC_COMPLETION: whether a wait for tensors on a GPU lets a stream follow, and returns. */
bool pl_state_follows(void);

/**
 * Ends the process: what a stream of the program follows has failed, and the program counts on the result. The `lost`
 * of a completion.
 */
void pl_state_lost(struct pl_completion *completion);

/*
 * communicators.c: process sets that are given as MPI communicators, and which communicator belongs to which set.
 *
 * Threads  one at a time: the caller holds the state while it is being started.
 * Test     tests/integration/horovod.py
 */

/**
 * Adds process sets for `communicators` [count], which are MPI_Comms. The first one has all ranks and is set 0. Each of
 * the others may have different members on different ranks, or may be MPI_COMM_NULL. Each of its groups becomes a
 * process set, in the order of their lowest ranks. A set that exists already is not added again. Collective.
 */
enum pl_status pl_communicators_add(struct pl_service *service, const void *communicators, int count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the set of `communicator`, an MPI_Comm, or -1. */
int pl_communicators_find(const void *communicator);

/** Drops all communicators. */
void pl_communicators_forget(void);

/*
 * interpreter.c: the Python interpreter that has loaded the library, if there is one. Its functions are looked up at
 * run time: the library serves the modules of several frameworks, and does not link Python.
 *
 * Threads  any thread that does not hold the lock of another interpreter; ctypes has released the lock.
 * Test     tests/integration/horovod.py
 */

enum pl_interpreter {
    PL_INTERPRETER_RUNS,   /* also if there is no interpreter */
    PL_INTERPRETER_ENDS,   /* its exit hooks run; they do not know the exit status */
    PL_INTERPRETER_FAILED, /* its exit hooks run after an exception that the program did not catch */
};

enum pl_interpreter pl_interpreter_state(void);

/**
 * Makes calls of Horovod's Python that return less than 0 raise a ValueError with the text of horovod_paceline_error(),
 * if there is one. Returns false if Horovod's Python is not loaded.
 */
bool pl_interpreter_install_check(void);

/*
 * Horovod's timeline: a file that rank 0 writes while the program runs, for chrome://tracing or Perfetto. It has a line
 * for each tensor: NEGOTIATE_ALLREDUCE from the first rank that is ready to the last one, with a tick for each rank,
 * then ALLREDUCE. CYCLE_START marks each round of announcements. A process has one timeline.
 *
 * Tensors in host memory are not fused (runtime/named/operation.c): nothing is copied into a fusion buffer, and the
 * file has no such span. The trace of the run (runtime/trace.h) has every collective under the tensors, on every rank.
 *
 * Threads  any.
 * Cost     a test of a flag if the timeline is off; else a line of text per event, which a thread of its own writes.
 * Source   the trace event format of the Chromium project; Horovod's documentation, docs/timeline.rst.
 * Test     tests/unit/runtime/horovod/test_timeline.c
 */

/** Returns the observer for struct pl_named_options. */
const struct pl_named_observer *pl_timeline_observer(void);

/**
 * Writes events from now on into a new file at `path`; with `mark_cycles` also the rounds. Closes the file that is
 * being written, if there is one. Errors: PL_SYSTEM with the path.
 */
enum pl_status pl_timeline_start(const char *path, bool mark_cycles, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the rest and closes the file. Has no effect if there is no file. */
void pl_timeline_stop(void);

#endif
