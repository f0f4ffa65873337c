/* SPDX-License-Identifier: Apache-2.0 */
/**
 * With whom a program trains: the other ranks of its world, or the other workers of the parameter servers beside one of
 * which it was started. What the two ways have in common, so that a program's flow is the same with both.
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
    struct pl_optimizer *optimizer;     /* NULL: the servers have it */
    struct pl_server *server;           /* NULL: ranks */
    struct pl_shard all;                /* this process among all of the job */
    struct pl_shard local;              /* and among those of its host */
    double rate;                        /* of the optimizer's next step */
    bool averages;                      /* a step is one update, by the average of all gradients */
    bool saves;                         /* checkpoints are wanted */
    struct pl_checkpoints *checkpoints; /* NULL: another one has them, or none are wanted */
};

/**
 * Start on every rank or worker from the initial values that number 0 draws with `seed`. `options` may be NULL, and is
 * ranks' alone; its `memory` and `stream` are the model's.
 *
 * Collective  yes.
 * Errors      PL_UNSUPPORTED: a model on a GPU, with servers; those of nn_plan_new() or of runtime/server.h.
 */
enum pl_status nn_peers_open(const struct pl_runtime *runtime, const struct pl_plan_options *options,
                             const struct pl_optimizer_options *optimizer, struct nn_model *model, uint64_t seed,
                             struct nn_peers *ret_peers, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Checkpoints are wanted, as `options` say; NULL: none are, which number 0 decides for all workers. The newest one that
 * is there becomes everybody's, with its state. Before the first step. Collective. Errors of runtime/checkpoint.h, and
 * of runtime/server.h.
 */
enum pl_status nn_peers_load(struct nn_peers *peers, const struct pl_checkpoints_options *options, bool *ret_found,
                             struct pl_checkpoint_state *ret_state, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Save one. Ranks do it after the same step; of workers number 0 gets what the servers have, while the others may go
 * on. `is_last`: this one takes no more steps; with asynchronous servers the checkpoint is of the moment when all
 * others have ended.
 */
enum pl_status nn_peers_save(struct nn_peers *peers, const struct pl_checkpoint_state *state, bool is_last,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After a step: whether all are to stop, because one was asked to. The same answer after the same step for all, unless
 * the servers are asynchronous. `stop` is ranks' alone.
 */
enum pl_status nn_peers_stop_agreed(struct nn_peers *peers, struct pl_stop *stop, bool *ret_stop,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Of the step whose backward pass comes next: servers apply a gradient as soon as it is there. */
void nn_peers_set_rate(struct nn_peers *peers, double rate);

/** After the backward pass: take the step. Collective, unless the servers are asynchronous. */
enum pl_status nn_peers_step(struct nn_peers *peers, struct pl_error *reterr) PL_MUST_CHECK;

/** Of the whole run: pieces pulled, seconds waited for the servers, bytes this host's has sent. Ranks have none. */
void nn_peers_add_metrics(const struct nn_peers *peers, struct pl_metrics *metrics);

/** Add up each of `values` [count], or a score, over all ranks, or over all workers that have not left. Collective. */
enum pl_status nn_peers_sum(struct nn_peers *peers, double *values, size_t count,
                            struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status nn_peers_sum_score(struct nn_peers *peers, struct nn_score *score,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** The least `value` of them, below 2^53. Collective. */
enum pl_status nn_peers_least(struct nn_peers *peers, uint64_t *value, struct pl_error *reterr) PL_MUST_CHECK;

/** Give all of them the same values, as ranks always have: those after every step that was taken. Collective. */
enum pl_status nn_peers_meet(struct nn_peers *peers, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The last checkpoint is on disk, and number 0 saves the newest values, as nn_plan_save(); then this one is done.
 * Others need not come.
 */
enum pl_status nn_peers_finish(struct nn_peers *peers, const struct pl_runtime *runtime, const char *directory,
                               double accuracy, struct pl_error *reterr) PL_MUST_CHECK;

void nn_peers_close(struct nn_peers *peers);

#endif
