/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A model whose parameters live in a gradient plan: what every training program here does with the two.
 *
 * Test  tests/integration/mnist.py, cifar10.py
 */
#ifndef EXAMPLES_NN_PLAN_H
#define EXAMPLES_NN_PLAN_H

#include "examples/nn/nn.h"
#include "runtime/paceline.h"

/**
 * Register the model's parameters, seal, let their values and gradients live in the plan, and start on every rank from
 * the initial values that rank 0 draws with `seed`. `options` may be NULL; its `memory` and `stream` are the model's: a
 * model on a GPU has its plan there, so `world` has to have that GPU (nn_device_start()).
 *
 * Collective  yes.
 */
enum pl_status nn_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct nn_model *model,
                           uint64_t seed, struct pl_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Its two parts, for a plan that something else makes and seals between them: register the model's parameters ... */
enum pl_status nn_plan_add(struct pl_plan *plan, const struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** ... and let their values and gradients live in the plan. */
enum pl_status nn_plan_bind(const struct pl_plan *plan, struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** pl_plan_ready() in the form that nn_model_backward() calls; `plan` is the struct pl_plan. */
enum pl_status nn_plan_ready(void *plan, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * nn_model_score() after everything that the plan's steps have begun: on a GPU the host waits here, and gets the error
 * of what failed.
 */
enum pl_status nn_plan_score(struct pl_plan *plan, struct nn_model *model, struct nn_score *ret_score,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Rank 0 writes DIRECTORY/model.safetensors, with the accuracy and the layouts next to the values. `directory` ""
 * stands for SM_MODEL_DIR; where that is not set either, a warning says that nothing was saved.
 */
enum pl_status nn_plan_save(const struct pl_runtime *runtime, const struct pl_plan *plan, const char *directory,
                            double accuracy, struct pl_error *reterr) PL_MUST_CHECK;

#endif
