/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The simulated backward pass on a GPU: a kernel that takes a tensor's time, and one that writes the tensor's ends.
 * Everything is given to one stream, which is also the plan's.
 *
 * Test  tests/integration/synthetic.py, on the driver for tests
 */
#ifndef EXAMPLES_SYNTHETIC_GPU_H
#define EXAMPLES_SYNTHETIC_GPU_H

#include "runtime/paceline.h"

struct gpu;

enum pl_status gpu_new(struct pl_device *device, struct gpu **ret_gpu, struct pl_error *reterr) PL_MUST_CHECK;

/** The plan must have been freed or have come to rest (pl_plan_finish()). NULL is fine. */
void gpu_free(struct gpu *gpu);

/** The stream for `plan`, which gpu_bind() is told of once it is sealed. */
void *gpu_stream(const struct gpu *gpu);
enum pl_status gpu_bind(struct gpu *gpu, const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * What gpu_mark() writes from now on: [2 * tensors], the first and the last element of each. The device has come to
 * rest.
 */
enum pl_status gpu_set_ends(struct gpu *gpu, const float *ends, struct pl_error *reterr) PL_MUST_CHECK;

/** Take `ns`, on every multiprocessor or, not `busy`, on one. */
enum pl_status gpu_work(struct gpu *gpu, int64_t ns, bool busy, struct pl_error *reterr) PL_MUST_CHECK;

/** Write both ends of tensor `index`; of all tensors at once. */
enum pl_status gpu_mark_all(struct gpu *gpu, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status gpu_mark(struct gpu *gpu, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/** Read what gpu_set_ends() would be given; waits. */
enum pl_status gpu_get_ends(struct gpu *gpu, float *ret_ends, struct pl_error *reterr) PL_MUST_CHECK;

#endif
