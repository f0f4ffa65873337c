/* SPDX-License-Identifier: Apache-2.0 */
/** Launches the functions of kernels.h over whole batches, on `stream`. Each function returns cudaGetLastError(). */
#ifndef EXAMPLES_NN_LAUNCH_CUDA_H
#define EXAMPLES_NN_LAUNCH_CUDA_H

#include "examples/nn/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Sums to which nn_launch_loss() adds; same layout as struct nn_score. */
struct nn_device_score {
    double loss_sum;
    uint64_t correct;
    uint64_t samples;
};

cudaError_t nn_launch_pool_forward(struct nn_pool in, size_t samples, const float *input, float *output, uint8_t *where,
                                   cudaStream_t stream);
cudaError_t nn_launch_pool_backward(struct nn_pool in, size_t samples, const uint8_t *where,
                                    const float *output_gradient, float *input_gradient, cudaStream_t stream);
cudaError_t nn_launch_dropout(struct nn_dropout drop, size_t samples, float *values, cudaStream_t stream);

/** values[rows][units] = activate(values + bias). */
cudaError_t nn_launch_activate(size_t rows, size_t units, const float *bias, int relu, float *values,
                               cudaStream_t stream);

/** The same for bfloat16 `sums`. */
cudaError_t nn_launch_activate_bfloat16(size_t rows, size_t units, const uint16_t *sums, const float *bias, int relu,
                                        float *values, cudaStream_t stream);

/** Returns the number of doubles of scratch memory that nn_launch_bias_gradient() needs. */
size_t nn_bias_scratch_elems(size_t rows, size_t units);

/**
 * Runs nn_bias_part() over all rows, and sums the parts in a fixed order. The result replaces bias_gradient[units] or,
 * if `accumulate`, is added to it.
 */
cudaError_t nn_launch_bias_gradient(size_t rows, size_t units, const float *values, int relu, float *gradient,
                                    double *scratch, int accumulate, float *bias_gradient, cudaStream_t stream);

/** Runs nn_softmax() for each sample and adds the losses to *score in a fixed order. `gradient` may be NULL. */
cudaError_t nn_launch_loss(size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                           double gradient_scale, float *gradient, struct nn_device_score *score, cudaStream_t stream);

cudaError_t nn_launch_to_bfloat16(size_t count, const float *from, uint16_t *to, cudaStream_t stream);

/** to = from, or to += from if `accumulate`. */
cudaError_t nn_launch_from_bfloat16(size_t count, const uint16_t *from, int accumulate, float *to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
