/* SPDX-License-Identifier: Apache-2.0 */
/** Whether a file's tensors are those that a plan wants, for checkpoints too. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H
#define PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H

#include "runtime/plan.h"
#include "runtime/safetensors.h"

/**
 * PL_MISMATCH, showing where both differ first, unless the file at `path` holds tensors of the names, types and shapes
 * of `wanted` [count], in their order, and no others.
 */
enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The tensor `tensor` in `array`, which has the layout of the plan's values, to be stored as `name`. Name and data stay
 * their owner's.
 */
struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array);

#endif
