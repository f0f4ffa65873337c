/* SPDX-License-Identifier: Apache-2.0 */
/** Whether a tensor of a file is the one that a plan wants, for checkpoints too. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H
#define PL_RUNTIME_CHECKPOINT_PLAN_FILE_PRIVATE_H

#include "runtime/plan_file.h"

/**
 * PL_MISMATCH, showing both, unless the file at `path` holds as `stored` a tensor of the name, type and shape of
 * `wanted`.
 */
enum pl_status pl_plan_file_compare(const char *path, const struct pl_tensor *stored, const struct pl_tensor *wanted,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
