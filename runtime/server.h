/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Training with parameter servers, asynchronous or with a bounded staleness: one server process a host, with which the
 * host's workers share memory. `paceline train` starts the servers where the job's setting PACELINE_PS is `native`, and
 * this is a worker's side: a plan whose gradients go to the servers, which apply the optimizer, and whose values are
 * pulled from them. A worker needs no MPI and no ranks; it is lost without harm to the others.
 *
 *   pl_server_new()     pl_plan_add() of pl_server_plan()     pl_server_join()
 *   first values, by worker 0 at least                        pl_server_start()
 *   each step: gradients, pl_plan_ready()                     pl_server_step()
 *   a checkpoint of values and optimizer, by worker 0         pl_server_pull_state()
 *   at the end                                                pl_server_leave()
 *
 *   worker 0 ──gradients──► server of host 0 ◄── pieces by MPI ──► server of host 1 ◄──gradients── worker 2
 *   worker 1 ─────────────►   (shared memory)                        (shared memory)  ◄──────────── worker 3
 *
 * Staleness (setting ps_staleness)
 *         none   a push is an update of its own, at once: nobody waits for anybody
 *         N      the same, but no worker is more than N steps ahead of the slowest that has not left
 *         0      a step is one update by the average of all workers' gradients, in the order of their numbers: the same
 *                bits as a plan's allreduce with the setting reproducible and pl_optimizer_step(). Workers that have
 *                not joined yet are waited for
 * Wire    (setting ps_wire_type) gradients for another host's server are sent as they are, or rounded to float16,
 *         bfloat16 or int8, what rounding leaves being added to the next; values always as they are
 * Pieces  the plan's buckets (setting bucket_bytes); number p belongs to the server of host p modulo hosts. A pull
 *         never has half an update of a piece, but pieces may be of different moments.
 * Threads one thread a worker's server handle and its plan.
 * Source  Dean et al., "Large scale distributed deep networks", NIPS 2012; Ho et al., "More effective distributed ML
 *         via a stale synchronous parallel parameter server", NIPS 2013; Li et al., "Scaling distributed machine
 *         learning with the parameter server", OSDI 2014.
 * Test    tests/unit/runtime/server/test_server.c, tests/integration/native_server.sh
 */
#ifndef PL_RUNTIME_SERVER_H
#define PL_RUNTIME_SERVER_H

#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "runtime/trace.h"

/** What `paceline train` tells a worker: its host's server's socket, and its number on the host (0 when unset). */
#define PL_SERVER_SOCKET_VARIABLE "PACELINE_PS_SOCKET"
#define PL_SERVER_WORKER_VARIABLE "PACELINE_PS_WORKER"

struct pl_server;

/** Zero-initialise. All workers must have the same; joining checks it. */
struct pl_server_options {
    /* The servers'. clip_norm and loss_scale need all gradients at once, and are PL_UNSUPPORTED. */
    struct pl_optimizer_options optimizer;
    const char *socket;     /* NULL: from the environment */
    int worker;             /* with `socket`: this worker's number on its host */
    const char *staleness;  /* "none" or a number; NULL: the setting ps_staleness */
    const char *wire_type;  /* of gradients between hosts; NULL: the setting ps_wire_type */
    struct pl_trace *trace; /* gets a span for each wait, pull and list of rows; pl_runtime_trace(), or NULL */
};

/** Whether this process was started beside a parameter server. */
bool pl_server_is_there(void);

/**
 * A worker that has not joined yet, with an empty plan. `world` is of one rank, and outlives it.
 *
 * Errors  PL_INVALID: an option, or no server named; PL_UNSUPPORTED: clip_norm, loss_scale, a world of several ranks;
 *         PL_MEMORY.
 */
enum pl_status pl_server_new(struct pl_world *world, const struct pl_server_options *options,
                             struct pl_server **ret_server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Release it. A worker that has not left is lost, for the servers. NULL is fine.
 */
void pl_server_free(struct pl_server *server);

/** The plan, which belongs to it: tensors are registered there before pl_server_join(). */
struct pl_plan *pl_server_plan(const struct pl_server *server);

/**
 * Join the job: seals the plan and waits for the server of this host, up to the setting timeout_s.
 *
 * Errors  PL_MISMATCH: another worker has other tensors or options, whose first is named; PL_TIMEOUT; PL_PEER: the
 *         server is gone; PL_INVALID: this worker has joined before; those of pl_plan_seal().
 */
enum pl_status pl_server_join(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** After joining: this worker's number in the job, and how many there are; and the same on its host. */
int pl_server_worker(const struct pl_server *server);
int pl_server_workers(const struct pl_server *server);
int pl_server_local_worker(const struct pl_server *server);
int pl_server_local_workers(const struct pl_server *server);

/**
 * Worker 0's values become the servers', unless these have some already; every worker then has the servers'. A worker
 * that comes later goes on from what is there.
 *
 * Errors  as pl_server_wait().
 */
enum pl_status pl_server_start(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The learning rate of steps from the next on, before the first pl_plan_ready() of it: pieces may leave then. 0 before
 * the first call. With staleness 0 all workers have the same.
 */
void pl_server_set_rate(struct pl_server *server, double rate);

/**
 * The step's gradients are complete: what pl_plan_ready() has not sent yet is sent, what was never ready counts as
 * zero. Gradients stay as they are until pl_server_wait().
 */
enum pl_status pl_server_push(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait until the servers have applied what was pushed and, with a bounded staleness, for workers that are too far
 * after this one; then pull what is newer. Gradients may be written again.
 *
 * Errors  PL_TIMEOUT after the setting timeout_s, with how far it came; PL_PEER: the server is gone; a failure that the
 *         server tells. The handle is then good for pl_server_free() alone.
 */
enum pl_status pl_server_wait(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** pl_server_push() and pl_server_wait(). */
enum pl_status pl_server_step(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Get the newest values of all pieces from their owners, for a worker that evaluates. Only what the servers have newer
 * is copied: values that the program has changed itself stay. With a bounded staleness a worker that only pulls counts
 * as one that takes no step. Errors as pl_server_wait().
 */
enum pl_status pl_server_pull(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Make this worker's values those of the servers, such as a checkpoint's, between two steps. The optimizer's state
 * stays as it is. Errors as pl_server_wait().
 */
enum pl_status pl_server_assign(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * This worker's copy of the servers' optimizer, for pl_checkpoints_open(): it belongs to the handle and takes the
 * memory of its arrays. pl_server_pull_state() and pl_server_assign_state() move it; it takes no steps.
 *
 * Errors  PL_INVALID before pl_server_join(); PL_MEMORY.
 */
enum pl_status pl_server_optimizer(struct pl_server *server, struct pl_optimizer **ret_optimizer,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Between two of this worker's steps: its values and its copy of the optimizer become what the servers have, so that
 * pl_checkpoints_save() has all of it. The others go on meanwhile. Each piece is of one moment; the count of steps is
 * the least of the pieces'. With staleness 0 all are of the moment after this worker's last step.
 *
 * Cost    memory for values and optimizer once more, while it lasts.
 * Errors  as pl_server_wait().
 */
enum pl_status pl_server_pull_state(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The other way, for one worker: the servers' values, optimizer state and counts of steps become this worker's. Called
 * before pl_server_start(), after pl_checkpoints_load(), the job goes on from there; with staleness 0 and the same
 * number of workers bit for bit, whatever the number of servers. Errors as pl_server_wait().
 */
enum pl_status pl_server_assign_state(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Ask all workers to stop, with this worker's next step. pl_server_is_stopping() tells it from the end of a step on: of
 * the same step for all workers with staleness 0, else soon.
 */
void pl_server_ask_stop(struct pl_server *server);
bool pl_server_is_stopping(const struct pl_server *server);

/**
 * Take part no more, as if this worker had left, and wait until all others have left. Then nothing changes any more,
 * and pl_server_pull_state() and pl_server_pull() get the last of it; pl_server_leave() comes after.
 *
 * Errors  PL_TIMEOUT: some have not left within the setting timeout_s; else as pl_server_wait().
 */
enum pl_status pl_server_outlast(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The sum of each of `values` [count] over all workers that have not left, in the order of their numbers, for all of
 * them. They all call it, with the same count; 0 is a barrier. Workers that have not joined yet are waited for.
 *
 * Errors  PL_MISMATCH: counts differ; else as pl_server_wait().
 */
enum pl_status pl_server_sum(struct pl_server *server, double *values, size_t count,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** This worker is done; the others go on. Its values stay readable. Leaving once more does nothing. */
enum pl_status pl_server_leave(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** Of the whole run. */
struct pl_server_counts {
    uint64_t steps;
    uint64_t pieces_pulled;
    int64_t waited_ns;   /* in pl_server_wait() */
    uint64_t sent_bytes; /* gradients that this host's server has sent to others, of all its workers */
};

struct pl_server_counts pl_server_counts(const struct pl_server *server);

#endif
