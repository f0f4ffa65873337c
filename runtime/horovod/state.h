/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The state of a process that uses Horovod's Python code. There is one, because the C interface has no handles and the
 * modules of several frameworks share it. Also process sets from communicators, the Python interpreter, the timeline.
 *
 * Threads  any.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_STATE_H
#define PL_RUNTIME_HOROVOD_STATE_H

#include "runtime/service.h"
#include "runtime/start.h"

#include <stdbool.h>

/** Which ranks join. All zero: all ranks of the job, see pl_runtime_start(). */
struct pl_state_members {
    const void *communicator_at; /* address of an MPI communicator; NULL if `ranks` is used */
    const int *ranks;            /* [count], ranks of the job in their new order; the caller must be one of them */
    int count;                   /* number of `ranks`; 0: all ranks join */
};

/**
 * Joins, without a deadline unless one is set. Does nothing if this process has joined. May be called again after
 * pl_state_stop(), because the process leaves the job only at its end. Collective over the members.
 */
enum pl_status pl_state_start(const struct pl_state_members *members, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Leaves, see pl_service_shutdown() and pl_runtime_stop(). Waits for calls of other threads. Collective. At the end of
 * a Python program it is delayed until the exit status is known. If the status is not 0, this rank does not wait for
 * the others, and their operations fail with an error that names this rank. If this rank fails because of another one,
 * it ends two seconds later, so that the launcher blames the other rank. Does nothing in a child of fork().
 */
void pl_state_stop(void);

/** Returns the service, which exists until pl_state_release(). NULL if there is none: do not release it then. */
struct pl_service *pl_state_hold(void);
void pl_state_release(void);

/** Returns why GPU tensors are copied to host memory, or NULL. Call this and the next between hold and release. */
const char *pl_state_why_copied(void);
const struct pl_runtime *pl_state_runtime(void);

/** HOROVOD_ENABLE_ASYNC_COMPLETION: a wait for GPU tensors only makes a stream wait, and returns. */
bool pl_state_follows(void);

/**
 * The `lost` of completions: ends the process, because an operation that a stream follows has failed, and the program
 * would use its result.
 */
void pl_state_lost(struct pl_completion *completion);

/*
 * communicators.c: makes process sets from MPI communicators, and stores the set of each communicator.
 *
 * Threads  one at a time: the caller holds the state while it is being started.
 * Test     tests/integration/horovod.py
 */

/**
 * Adds process sets for `communicators` [count], which are MPI_Comms. The first one has all ranks and is set 0. Each of
 * the others may have different members on different ranks, or be MPI_COMM_NULL: each group of members becomes a
 * process set, in the order of their lowest ranks. A set that exists already is not added again. Collective.
 */
enum pl_status pl_communicators_add(struct pl_service *service, const void *communicators, int count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the number of the set of `communicator`, an MPI_Comm; -1: it has none. */
int pl_communicators_find(const void *communicator);

/** Drops all communicators. */
void pl_communicators_forget(void);

/*
 * interpreter.c: the Python interpreter that has loaded the library, if there is one. Its functions are looked up at
 * run time, because the library is not linked with Python.
 *
 * Threads  any thread that does not hold another interpreter's lock; ctypes releases the lock before calls.
 * Test     tests/integration/horovod.py
 */

enum pl_interpreter {
    PL_INTERPRETER_RUNS,   /* also: there is no interpreter */
    PL_INTERPRETER_ENDS,   /* exit hooks run; the exit status is not known yet */
    PL_INTERPRETER_FAILED, /* exit hooks run after an uncaught exception of the program */
};

enum pl_interpreter pl_interpreter_state(void);

/**
 * Makes Horovod's Python calls that return less than 0 raise a ValueError with the text of horovod_paceline_error(), if
 * there is one. Returns false if Horovod's Python code is not loaded.
 */
bool pl_interpreter_install_check(void);

/*
 * Horovod's timeline: a file that rank 0 writes while the program runs, for chrome://tracing or Perfetto. It has a line
 * for each tensor: NEGOTIATE_ALLREDUCE from the first ready rank to the last one, with a tick for each rank, then
 * ALLREDUCE. CYCLE_START marks each round of announcements. A process has one timeline.
 *
 * Tensors in host memory are not fused (runtime/named/operation.c): the file has no span for a fusion buffer. The run's
 * trace (runtime/trace.h) has every collective of every rank.
 *
 * Threads  any.
 * Cost     a test of a flag if the timeline is off; else a line of text per event, which another thread writes.
 * Source   the trace event format of the Chromium project; Horovod's documentation, docs/timeline.rst.
 * Test     tests/unit/runtime/horovod/test_timeline.c
 */

/** Returns the observer for struct pl_named_options. */
const struct pl_named_observer *pl_timeline_observer(void);

/**
 * From now on writes events into a new file at `path`, with `mark_cycles` also the rounds. Closes the current file if
 * there is one. Errors: PL_SYSTEM with the path.
 */
enum pl_status pl_timeline_start(const char *path, bool mark_cycles, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the remaining events and closes the file. Does nothing if there is no file. */
void pl_timeline_stop(void);

#endif
