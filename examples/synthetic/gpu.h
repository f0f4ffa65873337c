/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The simulated backward pass on a GPU: a kernel that takes a tensor's time, and a kernel that writes the tensor's
 * ends. All work goes to one stream, which is also the plan's.
 *
 * Test  tests/integration/synthetic.py, on the driver for tests
 */
#ifndef EXAMPLES_SYNTHETIC_GPU_H
#define EXAMPLES_SYNTHETIC_GPU_H

#include "runtime/paceline.h"

struct gpu;

enum pl_status gpu_new(struct pl_device *device, struct gpu **ret_gpu, struct pl_error *reterr) PL_MUST_CHECK;

/** Frees `gpu`, which may be NULL. The plan must have been freed or be idle (pl_plan_finish()). */
void gpu_free(struct gpu *gpu);

/** Returns the stream for `plan`. Call gpu_bind() once the plan is sealed. */
void *gpu_stream(const struct gpu *gpu);
enum pl_status gpu_bind(struct gpu *gpu, const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets the values that gpu_mark() writes from now on: [2 * tensors], the first and the last element of each tensor. The
 * device must be idle.
 */
enum pl_status gpu_set_ends(struct gpu *gpu, const float *ends, struct pl_error *reterr) PL_MUST_CHECK;

/** Keeps every multiprocessor, or without `busy` only one, occupied for `ns`. */
enum pl_status gpu_work(struct gpu *gpu, int64_t ns, bool busy, struct pl_error *reterr) PL_MUST_CHECK;

/** Write both ends of all tensors at once, or of tensor `index`. */
enum pl_status gpu_mark_all(struct gpu *gpu, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status gpu_mark(struct gpu *gpu, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/** Reads the ends of all tensors, in the form of gpu_set_ends(); waits for the device. */
enum pl_status gpu_get_ends(struct gpu *gpu, float *ret_ends, struct pl_error *reterr) PL_MUST_CHECK;

#endif
