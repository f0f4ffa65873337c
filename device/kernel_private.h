/* SPDX-License-Identifier: Apache-2.0 */
/** Kernels of collectives and optimizers. Internal to the library. */
#ifndef PL_DEVICE_KERNEL_PRIVATE_H
#define PL_DEVICE_KERNEL_PRIVATE_H

#include "device/kernel.h"
#include "device/step.h"

/**
 * Load all kernels now; otherwise the first launch does. The driver may make that wait for what runs on the device, so
 * do it before anything runs there that waits for another rank, as NCCL's kernels do.
 */
enum pl_status pl_device_load_kernels(struct pl_device *device, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * dest[i] = post * op(pre * source[0][i], pre * source[1][i], ...) / divisor (at least 1; of SUM and AVERAGE, which are
 * one here), added in the order of `sources`, half-width floats in float32 and rounded once, as
 * collectives/reduce/kernel.h does it on the host. dest may be one of the sources.
 */
enum pl_status pl_device_reduce(struct pl_device *device, void *dest, const void *const *source, int sources,
                                uint64_t count_elems, enum pl_dtype dtype, enum pl_op op, uint32_t divisor, double pre,
                                double post, void *stream, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * *ret_sum (device or pinned memory) = the sum of squares of `count_elems` elements of a floating type, in double and
 * in a fixed order; infinite or NaN when an element is. `scratch` is device memory of PL_DEVICE_NORM_BYTES.
 */
enum { PL_DEVICE_NORM_BYTES = 16384 };
enum pl_status pl_device_squared_norm(struct pl_device *device, const void *values, enum pl_dtype dtype,
                                      uint64_t count_elems, void *scratch, double *ret_sum, void *stream,
                                      struct pl_error *reterr) PL_MUST_CHECK;

enum pl_device_step_kind { PL_DEVICE_SGD, PL_DEVICE_MOMENTUM, PL_DEVICE_NESTEROV, PL_DEVICE_ADAGRAD, PL_DEVICE_ADAM };

/**
 * One step of an optimizer over flat arrays: runtime/optimizer.h's arithmetic, with unscaling, widening and clipping in
 * the same pass.
 */
struct pl_device_step {
    enum pl_device_step_kind kind;
    /* With `squares` (device or pinned memory, the sum of squares of the whole gradient before factors.gradient is
     * applied) the gradient is also multiplied by min(1, clip_norm / (sqrt(*squares) * factors.gradient)), worked out
     * on the device: the host need not know the norm. */
    const double *squares;
    double clip_norm; /* 0: not clipped */
    /* with `squares`: change nothing when *squares is infinite or NaN, as a scaled loss wants it */
    bool skip_not_finite;
    struct pl_step_factors factors;
};

/**
 * `gradient` is of a floating type; `slot0` is momentum, mean or Adagrad's sum of squares, `slot1` the variance; NULL
 * where the kind has none.
 */
enum pl_status pl_device_optimize(struct pl_device *device, const struct pl_device_step *step, uint64_t count_elems,
                                  float *value, const void *gradient, enum pl_dtype gradient_dtype, float *slot0,
                                  float *slot1, void *stream, struct pl_error *reterr) PL_MUST_CHECK;

#endif
