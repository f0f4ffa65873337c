/* SPDX-License-Identifier: Apache-2.0 */
/** Compares a file's tensors with those that a plan wants; checkpoints use it too. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H
#define PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H

#include "runtime/plan.h"
#include "runtime/safetensors.h"

/**
 * Returns PL_OK if the file at `path` holds exactly the tensors `wanted` [count], with equal names, types and shapes,
 * in their order. Else PL_MISMATCH shows the first difference.
 */
enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the tensor `tensor` in `array`, which has the layout of the plan's values, under the name `name`. Name and
 * data still belong to their owners.
 */
struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array);

#endif
