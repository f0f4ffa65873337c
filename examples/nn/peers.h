/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The processes with which a program trains: the other ranks of its world, or the other workers of parameter servers.
 * With these functions a program's flow is the same for both.
 *
 * Test  tests/integration/mnist.py
 */
#ifndef EXAMPLES_NN_PEERS_H
#define EXAMPLES_NN_PEERS_H

#include "examples/nn/nn.h"
#include "runtime/paceline.h"
#include "runtime/server.h"

struct nn_peers {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;     /* NULL: the servers have the optimizer */
    struct pl_server *server;           /* NULL: the processes are ranks */
    struct pl_shard all;                /* this process's number in the job, and the number of processes */
    struct pl_shard local;              /* this process's number on its host, and the number there */
    double rate;                        /* learning rate of the optimizer's next step */
    bool averages;                      /* a step is one update, by the average of all gradients */
    bool saves;                         /* checkpoints are written */
    char *job_checkpoints;              /* the job's directory for checkpoints; NULL: the program has another one */
    struct pl_checkpoints *checkpoints; /* NULL: another process has them, or checkpoints are not wanted */
};

/**
 * Gives every rank or worker the initial values that number 0 draws with `seed`. `options` is for ranks only and may be
 * NULL; its `memory` and `stream` are set from the model.
 *
 * Collective  yes.
 * Errors      PL_UNSUPPORTED for a model on a GPU with servers; the errors of nn_plan_new() or of runtime/server.h.
 */
enum pl_status nn_peers_open(const struct pl_runtime *runtime, const struct pl_plan_options *options,
                             const struct pl_optimizer_options *optimizer, struct nn_model *model, uint64_t seed,
                             struct nn_peers *ret_peers, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets up checkpoints in `directory`; "": in the job's, if that exists, else only in kept memory (for workers, number 0
 * decides). All processes load the newest checkpoint, if there is one, and get its state. Call before the first step.
 * Collective. Errors: those of runtime/checkpoint.h and runtime/server.h.
 */
enum pl_status nn_peers_resume(struct nn_peers *peers, const char *directory, bool *ret_found,
                               struct pl_checkpoint_state *ret_state, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Saves a checkpoint. Ranks call it after the same step. With servers, worker 0 saves the servers' values; the others
 * may continue. `is_last`: this process takes no more steps; with asynchronous servers the checkpoint then has the
 * values after all other workers have ended.
 */
enum pl_status nn_peers_save(struct nn_peers *peers, const struct pl_checkpoint_state *state, bool is_last,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Return whether the state is to be kept in memory after step `step`, for a job that may be started again, and keep it,
 * on rank 0. Not with servers, which have the state.
 */
bool nn_peers_keep_is_due(const struct nn_peers *peers, uint64_t step);
enum pl_status nn_peers_keep(struct nn_peers *peers, const struct pl_checkpoint_state *state,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns, after a step, whether all processes must stop because one was asked to. All get the same answer after the
 * same step, unless the servers are asynchronous. Only ranks use `stop`.
 */
enum pl_status nn_peers_stop_agreed(struct nn_peers *peers, struct pl_stop *stop, bool *ret_stop,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets the learning rate of the step of the next backward pass; call before, because servers apply gradients at once.
 */
void nn_peers_set_rate(struct nn_peers *peers, double rate);

/** Takes the step after the backward pass. Collective, unless the servers are asynchronous. */
enum pl_status nn_peers_step(struct nn_peers *peers, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Adds metrics of the whole run: pieces pulled, seconds of waiting for the servers, bytes sent by this host's server.
 * For ranks it adds nothing.
 */
void nn_peers_add_metrics(const struct nn_peers *peers, struct pl_metrics *metrics);

/** Add up each of `values` [count], or a score, over all ranks, or over all workers that have not left. Collective. */
enum pl_status nn_peers_sum(struct nn_peers *peers, double *values, size_t count,
                            struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status nn_peers_sum_score(struct nn_peers *peers, struct nn_score *score,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Finds the least `value` of all processes; each is below 2^53. Collective. */
enum pl_status nn_peers_least(struct nn_peers *peers, uint64_t *value, struct pl_error *reterr) PL_MUST_CHECK;

/** Gives all workers the same values: the values after all steps. Ranks always have the same values. Collective. */
enum pl_status nn_peers_meet(struct nn_peers *peers, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Ends training for this process: completes the last checkpoint. Number 0 also saves the newest values like
 * nn_plan_save(). Other processes need not call it.
 */
enum pl_status nn_peers_finish(struct nn_peers *peers, const struct pl_runtime *runtime, const char *directory,
                               double accuracy, struct pl_error *reterr) PL_MUST_CHECK;

void nn_peers_close(struct nn_peers *peers);

#endif
