/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A model whose parameters are in a gradient plan: functions that every training program here needs.
 *
 * Test  tests/integration/mnist.py, cifar10.py
 */
#ifndef EXAMPLES_NN_PLAN_H
#define EXAMPLES_NN_PLAN_H

#include "examples/nn/nn.h"
#include "runtime/paceline.h"

/**
 * Registers the model's parameters, seals the plan, binds values and gradients to the plan's memory, and gives every
 * rank the initial values that rank 0 draws with `seed`. `options` may be NULL; its `memory` and `stream` are set from
 * the model. The plan of a model on a GPU is on that GPU, so `world` must have it too (nn_device_start()).
 *
 * Collective  yes.
 */
enum pl_status nn_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct nn_model *model,
                           uint64_t seed, struct pl_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Adds the model's parameters to `plan`: the first part of nn_plan_new(), for a plan that the caller seals. */
enum pl_status nn_plan_add(struct pl_plan *plan, const struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** Binds values and gradients to the memory of the sealed plan: the second part of nn_plan_new(). */
enum pl_status nn_plan_bind(const struct pl_plan *plan, struct nn_model *model, struct pl_error *reterr) PL_MUST_CHECK;

/** Calls pl_plan_ready() in the form of nn_ready, for nn_model_backward(). `plan` is the struct pl_plan. */
enum pl_status nn_plan_ready(void *plan, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Calls nn_model_score() after all work of the plan's steps. On a GPU the host waits here, and gets the error of work
 * that failed.
 */
enum pl_status nn_plan_score(struct pl_plan *plan, struct nn_model *model, struct nn_score *ret_score,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Rank 0 writes DIRECTORY/model.safetensors, with the accuracy and the layouts as metadata. If `directory` is empty, it
 * is SM_MODEL_DIR; if that is not set either, a warning says that nothing was saved.
 */
enum pl_status nn_plan_save(const struct pl_runtime *runtime, const struct pl_plan *plan, const char *directory,
                            double accuracy, struct pl_error *reterr) PL_MUST_CHECK;

#endif
