/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A model whose parameters are in a gradient plan: the code that every training program here needs for that.
 *
 * Test  tests/integration/mnist.py, cifar10.py
 */
#ifndef EXAMPLES_NN_PLAN_H
#define EXAMPLES_NN_PLAN_H

#include "examples/nn/nn.h"
#include "runtime/paceline.h"

/**
 * Registers the model's parameters, seals the plan, binds values and gradients to the plan's memory, and makes every
 * rank start from the initial values that rank 0 draws with `seed`. `options` may be NULL; its `memory` and `stream`
 * are set from the model. The plan of a model on a GPU is on that GPU, so `world` must have it too (nn_device_start()).
 *
 * Collective  yes.
 */
enum pl_status nn_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct nn_model *model,
                           uint64_t seed, struct pl_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Registers the model's parameters: the first part of nn_plan_new(), for a plan that the caller makes and seals. */
enum pl_status nn_plan_add(struct pl_plan *plan, const struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** Binds values and gradients to the plan's memory: the part of nn_plan_new() that follows the seal. */
enum pl_status nn_plan_bind(const struct pl_plan *plan, struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** Calls pl_plan_ready() in the form that nn_model_backward() needs; `plan` is the struct pl_plan. */
enum pl_status nn_plan_ready(void *plan, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Calls nn_model_score() after all work that the plan's steps have begun: on a GPU the host waits here, and gets the
 * error of work that failed.
 */
enum pl_status nn_plan_score(struct pl_plan *plan, struct nn_model *model, struct nn_score *ret_score,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Rank 0 writes DIRECTORY/model.safetensors, with the accuracy and the layouts next to the values. An empty `directory`
 * means SM_MODEL_DIR; if that is not set either, a warning says that nothing was saved.
 */
enum pl_status nn_plan_save(const struct pl_runtime *runtime, const struct pl_plan *plan, const char *directory,
                            double accuracy, struct pl_error *reterr) PL_MUST_CHECK;

#endif
