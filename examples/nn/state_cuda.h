/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the GPU layers share. */
#ifndef EXAMPLES_NN_STATE_CUDA_H
#define EXAMPLES_NN_STATE_CUDA_H

#include "examples/nn/launch_cuda.h"
#include "examples/nn/nn.h"

#include <cublas_v2.h>
#include <cudnn.h>

/* A convolution's descriptors, and the algorithms for batches of `samples`. */
struct convolution {
    cudnnTensorDescriptor_t input, output;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t shape;
    size_t samples; /* 0: the algorithms are not chosen yet */
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdDataAlgo_t backward_data;
    cudnnConvolutionBwdFilterAlgo_t backward_filter;
};

enum { STAGES = 2 };

/* Batches pass through pinned memory: the host fills one buffer while the device reads the other. */
struct staging {
    void *pinned[STAGES];
    cudaEvent_t copied[STAGES];
    unsigned next;
    void *memory; /* the batch in device memory */
    size_t bytes;
};

struct cuda_state {
    int device;
    enum nn_precision precision;
    cudaStream_t stream;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    struct convolution *convolutions; /* [layer_count]; zero for layers that are not convolutions */
    size_t layer_count;
    void *workspace;
    size_t workspace_bytes;
    double *sums;           /* scratch memory for bias gradients */
    uint16_t *half_input;   /* bfloat16 copy of a convolution's input or of its gradient */
    uint16_t *half_output;  /* bfloat16 copy of a convolution's output or of its gradient */
    uint16_t *half_weight;  /* bfloat16 copy of a convolution's weights */
    uint16_t *half_weights; /* bfloat16 copy of the weights' gradient */
    struct staging parts[NN_PARTS];
    struct nn_device_score *score;
};

/* Each fills the report with the failed call and the device, and returns the corresponding status. */
enum pl_status nn_cuda_failed(int device, cudaError_t code, const char *call, struct pl_error *reterr);
enum pl_status nn_dnn_failed(int device, cudnnStatus_t code, const char *call, struct pl_error *reterr);
enum pl_status nn_blas_failed(int device, cublasStatus_t code, const char *call, struct pl_error *reterr);

#define CUDA_TRY(state, call)                                                                                          \
    do {                                                                                                               \
        cudaError_t cuda_code_ = (call);                                                                               \
        if (cuda_code_ != cudaSuccess) {                                                                               \
            return nn_cuda_failed((state)->device, cuda_code_, #call, reterr);                                         \
        }                                                                                                              \
    } while (0)

#define DNN_TRY(state, call)                                                                                           \
    do {                                                                                                               \
        cudnnStatus_t dnn_code_ = (call);                                                                              \
        if (dnn_code_ != CUDNN_STATUS_SUCCESS) {                                                                       \
            return nn_dnn_failed((state)->device, dnn_code_, #call, reterr);                                           \
        }                                                                                                              \
    } while (0)

#define BLAS_TRY(state, call)                                                                                          \
    do {                                                                                                               \
        cublasStatus_t blas_code_ = (call);                                                                            \
        if (blas_code_ != CUBLAS_STATUS_SUCCESS) {                                                                     \
            return nn_blas_failed((state)->device, blas_code_, #call, reterr);                                         \
        }                                                                                                              \
    } while (0)

static inline size_t nn_rows(const struct nn_layer *layer, size_t samples)
{
    return samples * layer->out.height * layer->out.width;
}

static inline size_t nn_weight_elems(const struct nn_layer *layer)
{
    return layer->spec.kernel * layer->spec.kernel * layer->in.channels * layer->out.channels;
}

/* Masks `output_gradient` by max(0, x), and sums its columns. */
enum pl_status nn_bias_backward(struct cuda_state *cuda, const struct nn_layer *layer, size_t rows,
                                float *output_gradient, bool accumulate, struct pl_error *reterr);

/* The functions of convolutions, in conv_cuda.c. */
enum pl_status nn_conv_open(struct cuda_state *cuda, const struct nn_layer *layer, struct convolution *convolution,
                            struct pl_error *reterr);
void nn_conv_close(struct convolution *convolution);
enum pl_status nn_conv_forward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                               const float *input, struct pl_error *reterr);
enum pl_status nn_conv_backward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                                const float *input, float *output_gradient, float *input_gradient, bool accumulate,
                                struct pl_error *reterr);

#endif
