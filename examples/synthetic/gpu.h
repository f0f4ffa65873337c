/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The simulated backward pass on a GPU: one kernel takes a tensor's time, another writes the tensor's first and last
 * element. All work is on one stream, which is also the plan's.
 *
 * Test  tests/integration/synthetic.py, on the driver for tests
 */
#ifndef EXAMPLES_SYNTHETIC_GPU_H
#define EXAMPLES_SYNTHETIC_GPU_H

#include "runtime/paceline.h"

struct gpu;

enum pl_status gpu_new(struct pl_device *device, struct gpu **ret_gpu, struct pl_error *reterr) PL_MUST_CHECK;

/** Frees `gpu`, which may be NULL. The plan must be freed or idle (pl_plan_finish()). */
void gpu_free(struct gpu *gpu);

/** Returns the stream for `plan`. Call gpu_bind() after the plan is sealed. */
void *gpu_stream(const struct gpu *gpu);
enum pl_status gpu_bind(struct gpu *gpu, const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets the values that gpu_mark() writes from now on: [2 * tensors], the first and the last element of each tensor. The
 * device must be idle.
 */
enum pl_status gpu_set_ends(struct gpu *gpu, const float *ends, struct pl_error *reterr) PL_MUST_CHECK;

/** Keeps all multiprocessors busy for `ns`; without `busy`, only one. */
enum pl_status gpu_work(struct gpu *gpu, int64_t ns, bool busy, struct pl_error *reterr) PL_MUST_CHECK;

/** Write the first and last element of all tensors, or of tensor `index`. */
enum pl_status gpu_mark_all(struct gpu *gpu, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status gpu_mark(struct gpu *gpu, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/** Reads the first and last elements of all tensors, ordered as in gpu_set_ends(). Waits for the device. */
enum pl_status gpu_get_ends(struct gpu *gpu, float *ret_ends, struct pl_error *reterr) PL_MUST_CHECK;

#endif
