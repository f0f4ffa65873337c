/* SPDX-License-Identifier: Apache-2.0 */
/** Kernels of collectives and optimizers. Internal to the library. */
#ifndef PL_DEVICE_KERNEL_PRIVATE_H
#define PL_DEVICE_KERNEL_PRIVATE_H

#include "device/kernel.h"
#include "device/step.h"

/**
 * Loads all kernels now; otherwise the first launch loads them. Loading may wait for work on the device, so call this
 * before any work there waits for another rank, as NCCL's kernels do.
 */
enum pl_status pl_device_load_kernels(struct pl_device *device, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes a list that is filled again and again with up to `most` pieces, of `most_elems` elements together, without
 * allocating anything.
 */
enum pl_status pl_device_pieces_reserve(struct pl_device *device, size_t most, uint64_t most_elems,
                                        struct pl_device_pieces **ret_pieces, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fills such a list, by a copy on `stream`. The caller ensures that all work with its earlier contents has ended.
 * Errors  PL_LIMIT: the list has too little room.
 */
enum pl_status pl_device_pieces_fill(struct pl_device_pieces *pieces, const struct pl_device_piece *list, size_t count,
                                     void *stream, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Computes dest[i] = post * op(pre * source[0][i], pre * source[1][i], ...) / divisor. The divisor is at least 1; SUM
 * and AVERAGE, which are the same here, use it. The sources are combined in their order. Half-width floats are added in
 * float32 and rounded once, as in collectives/reduce/kernel.h. dest may be one of the sources.
 */
enum pl_status pl_device_reduce(struct pl_device *device, void *dest, const void *const *source, int sources,
                                uint64_t count_elems, enum pl_dtype dtype, enum pl_op op, uint32_t divisor, double pre,
                                double post, void *stream, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores in *ret_sum (device or pinned memory) the sum of squares of `count_elems` elements of a floating type,
 * computed in double and in a fixed order. It is infinite or NaN if an element is. `scratch` is device memory of
 * PL_DEVICE_NORM_BYTES.
 */
enum { PL_DEVICE_NORM_BYTES = 16384 };
enum pl_status pl_device_squared_norm(struct pl_device *device, const void *values, enum pl_dtype dtype,
                                      uint64_t count_elems, void *scratch, double *ret_sum, void *stream,
                                      struct pl_error *reterr) PL_MUST_CHECK;

enum pl_device_step_kind { PL_DEVICE_SGD, PL_DEVICE_MOMENTUM, PL_DEVICE_NESTEROV, PL_DEVICE_ADAGRAD, PL_DEVICE_ADAM };

/**
 * One step of an optimizer over flat arrays: the arithmetic of runtime/optimizer.h, with unscaling, widening and
 * clipping in the same pass.
 */
struct pl_device_step {
    enum pl_device_step_kind kind;
    /* Device or pinned memory with the sum of squares of the whole gradient, before factors.gradient is applied; or
     * NULL. The gradient is then also multiplied by min(1, clip_norm / (sqrt(*squares) * factors.gradient)). The device
     * computes that, so the host need not know the norm. */
    const double *squares;
    double clip_norm; /* 0 means no clipping */
    /* with `squares`: change nothing if *squares is infinite or NaN, as loss scaling requires */
    bool skip_not_finite;
    struct pl_step_factors factors;
};

/**
 * Runs the step. `gradient` is of a floating type. `slot0` is the momentum, the mean or Adagrad's sum of squares,
 * `slot1` the variance; NULL if the optimizer has no such state.
 */
enum pl_status pl_device_optimize(struct pl_device *device, const struct pl_device_step *step, uint64_t count_elems,
                                  float *value, const void *gradient, enum pl_dtype gradient_dtype, float *slot0,
                                  float *slot1, void *stream, struct pl_error *reterr) PL_MUST_CHECK;

#endif
