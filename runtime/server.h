/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Training with parameter servers, asynchronous or with a bounded staleness: each host has one server process, which
 * shares memory with the workers of its host. `paceline train` starts the servers if the job's setting PACELINE_PS is
 * `native`. This header is the worker's side: gradients of a plan go to the servers, which apply the optimizer; the
 * plan's values come from them. A worker needs no MPI and no ranks; if one is lost, the others go on.
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
 *         none   each push is one update, applied at once: no worker waits for another
 *         N      the same, but no worker is more than N steps ahead of the slowest worker that has not left
 *         0      a step is one update by the average of all workers' gradients, in the order of their numbers: the same
 *                bits as a plan's allreduce with the setting reproducible and pl_optimizer_step(). Workers that have
 *                not joined yet are waited for
 * Wire    (setting ps_wire_type) gradients for another host's server are sent as they are, or rounded to float16,
 *         bfloat16 or int8; the rounding error is added to the next gradient. Values are sent as they are
 * Pieces  the plan's buckets (setting bucket_bytes); number p belongs to the server of host p modulo hosts. A pull
 *         never has half an update of a piece, but two pieces may be of different steps.
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

/** `paceline train` sets these for a worker: the socket of its host's server, and its number there (0 if unset). */
#define PL_SERVER_SOCKET_VARIABLE "PACELINE_PS_SOCKET"
#define PL_SERVER_WORKER_VARIABLE "PACELINE_PS_WORKER"

struct pl_server;

/** Options of a worker. Zero-initialise. Must be equal on all workers; joining checks this. */
struct pl_server_options {
    /* the servers' optimizer; clip_norm and loss_scale need all gradients at once: PL_UNSUPPORTED */
    struct pl_optimizer_options optimizer;
    const char *socket;     /* NULL: from the environment */
    int worker;             /* number of this worker on its host, if `socket` is set */
    const char *staleness;  /* "none" or a number; NULL: the setting ps_staleness */
    const char *wire_type;  /* type of gradients between hosts; NULL: the setting ps_wire_type */
    struct pl_trace *trace; /* trace for a span for each wait, pull and list of rows: pl_runtime_trace(), or NULL */
};

/** True if `paceline train` has started this process with a parameter server on the same host. */
bool pl_server_is_there(void);

/**
 * Makes a worker that has not joined yet, with an empty plan. `world` has one rank, and must outlive the worker.
 *
 * Errors  PL_INVALID: an option, or no server named; PL_UNSUPPORTED: clip_norm, loss_scale, a world of several ranks;
 *         PL_MEMORY.
 */
enum pl_status pl_server_new(struct pl_world *world, const struct pl_server_options *options,
                             struct pl_server **ret_server, struct pl_error *reterr) PL_MUST_CHECK;

/** Releases the handle. If the worker has not left, the servers count it as lost. NULL is fine. */
void pl_server_free(struct pl_server *server);

/** Returns the plan of the handle. Add tensors to it before pl_server_join(). */
struct pl_plan *pl_server_plan(const struct pl_server *server);

/**
 * Joins the job: seals the plan and waits for the server of this host, up to the setting timeout_s.
 *
 * Errors  PL_MISMATCH: another worker has different tensors or options, and the first difference is named; PL_TIMEOUT;
 *         PL_PEER: the server is gone; PL_INVALID: this worker has joined before; those of pl_plan_seal().
 */
enum pl_status pl_server_join(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** After joining: this worker's number in the job, and the number of workers; and both for its host. */
int pl_server_worker(const struct pl_server *server);
int pl_server_workers(const struct pl_server *server);
int pl_server_local_worker(const struct pl_server *server);
int pl_server_local_workers(const struct pl_server *server);

/**
 * Gives the servers the values of worker 0, unless they have values already, and gives every worker the values of the
 * servers. A worker that joins later starts with the current values.
 *
 * Errors  as pl_server_wait().
 */
enum pl_status pl_server_start(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets the learning rate from the next step on. Call it before the first pl_plan_ready() of that step, which may send
 * pieces. The rate is 0 before the first call. With staleness 0 all workers must set the same.
 */
void pl_server_set_rate(struct pl_server *server, double rate);

/**
 * Ends the gradients of the step: sends the pieces that pl_plan_ready() has not sent yet. A gradient that was never
 * ready counts as zero. Do not write gradients until pl_server_wait().
 */
enum pl_status pl_server_push(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits until the servers have applied the pushed gradients and, with a bounded staleness, until slower workers are
 * near enough; then pulls newer values. Gradients may be written again.
 *
 * Errors  PL_TIMEOUT after the setting timeout_s, with the progress so far; PL_PEER: the server is gone; a failure that
 *         the server reports. After that only pl_server_free() may be called.
 */
enum pl_status pl_server_wait(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** Calls pl_server_push() and pl_server_wait(). */
enum pl_status pl_server_step(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gets the newest values of all pieces from their owners, for a worker that evaluates. A piece is copied only if the
 * server has a newer one: so values that only the program has changed stay. With a bounded staleness, a worker that
 * only pulls counts as one that takes no steps. Errors as pl_server_wait().
 */
enum pl_status pl_server_pull(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gives the servers this worker's values, such as values of a checkpoint, between two steps. The state of the optimizer
 * does not change. Errors as pl_server_wait().
 */
enum pl_status pl_server_assign(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns this worker's copy of the servers' optimizer, for pl_checkpoints_open(). It belongs to the handle, and its
 * arrays take memory. pl_server_pull_state() and pl_server_assign_state() use it; it takes no steps.
 *
 * Errors  PL_INVALID before pl_server_join(); PL_MEMORY.
 */
enum pl_status pl_server_optimizer(struct pl_server *server, struct pl_optimizer **ret_optimizer,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copies the servers' values and optimizer to this worker, for pl_checkpoints_save(). Call it between two steps of this
 * worker; the others go on meanwhile. Each piece is consistent; the count of steps is the smallest of all pieces. With
 * staleness 0 all pieces are of this worker's last step.
 *
 * Cost    a second copy of values and optimizer in memory during the call.
 * Errors  as pl_server_wait().
 */
enum pl_status pl_server_pull_state(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The reverse, for one worker: gives the servers its values, optimizer state and counts of steps. If it is called after
 * pl_checkpoints_load() and before pl_server_start(), the job continues from the checkpoint. With staleness 0 and the
 * same number of workers the results are bit-identical, for any number of servers. Errors as pl_server_wait().
 */
enum pl_status pl_server_assign_state(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Asks all workers to stop; the request goes out with this worker's next step. pl_server_is_stopping() becomes true at
 * the end of a step: with staleness 0 at the same step on all workers, else perhaps at a later step.
 */
void pl_server_ask_stop(struct pl_server *server);
bool pl_server_is_stopping(const struct pl_server *server);

/**
 * Says that this worker takes no more steps, and waits until all others have left. After that the servers' values are
 * final: get them by pl_server_pull_state() or pl_server_pull(), then call pl_server_leave().
 *
 * Errors  PL_TIMEOUT: some workers have not left within the setting timeout_s; else as pl_server_wait().
 */
enum pl_status pl_server_outlast(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Replaces each of `values` [count] by its sum over all workers that have not left, in the order of their numbers. All
 * these workers must call it with the same count; 0 is a barrier. It waits for workers that have not joined yet.
 *
 * Errors  PL_MISMATCH: counts differ; else as pl_server_wait().
 */
enum pl_status pl_server_sum(struct pl_server *server, double *values, size_t count,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Leaves the job; the other workers go on. The values stay readable. A second call does nothing. */
enum pl_status pl_server_leave(struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/** Counts of the whole run. */
struct pl_server_counts {
    uint64_t steps;
    uint64_t pieces_pulled;
    int64_t waited_ns;   /* time in pl_server_wait() */
    uint64_t sent_bytes; /* bytes of gradients that this host's server has sent to other servers, for all its workers */
};

struct pl_server_counts pl_server_counts(const struct pl_server *server);

#endif
