/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The values of a plan as a safetensors file: what a training program leaves behind.
 *
 * Threads  the plan's.
 * Test     tests/unit/runtime/checkpoint/test_plan_file.c
 */
#ifndef PL_RUNTIME_PLAN_FILE_H
#define PL_RUNTIME_PLAN_FILE_H

#include "runtime/plan.h"
#include "runtime/safetensors.h"

/**
 * The tensor `tensor` in `array`, which has the layout of the plan's values, to be stored as `name`. Name and data stay
 * their owner's.
 */
struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array);

/**
 * Write this rank's values of all tensors, in the order of registration, and `metadata` to `path`, atomically; a
 * missing directory is made. Not collective: one rank is enough, since all have the same values after a step.
 *
 * Errors  PL_INVALID before the seal, or where the directory is something else; those of pl_safetensors_write().
 */
enum pl_status pl_plan_file_write(const struct pl_plan *plan, const char *path, const struct pl_metadata *metadata,
                                  size_t metadata_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
