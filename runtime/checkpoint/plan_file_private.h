/* SPDX-License-Identifier: Apache-2.0 */
/** Whether a file's tensors are those that a plan wants, for checkpoints too. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H
#define PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H

#include "runtime/plan_file.h"

/**
 * PL_MISMATCH, showing where both differ first, unless the file at `path` holds tensors of the names, types and shapes
 * of `wanted` [count], in their order, and no others.
 */
enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
