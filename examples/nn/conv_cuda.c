/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN's functions of version 7, whose choice of algorithms fits layers of a fixed shape. */
#include "examples/nn/state_cuda.h"

enum pl_status nn_conv_open(struct cuda_state *cuda, const struct nn_layer *layer, struct convolution *convolution,
                            struct pl_error *reterr)
{
    cudnnDataType_t type = cuda->precision == NN_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    /* cuDNN's default math allows TF32; CUDNN_FMA_MATH computes in float32. */
    cudnnMathType_t math = cuda->precision == NN_FLOAT32 ? CUDNN_FMA_MATH
                           : cuda->precision == NN_TF32  ? CUDNN_DEFAULT_MATH
                                                         : CUDNN_TENSOR_OP_MATH;
    int kernel = (int)layer->spec.kernel;

    DNN_TRY(cuda, cudnnCreateTensorDescriptor(&convolution->input));
    DNN_TRY(cuda, cudnnCreateTensorDescriptor(&convolution->output));
    DNN_TRY(cuda, cudnnCreateFilterDescriptor(&convolution->weight));
    DNN_TRY(cuda, cudnnCreateConvolutionDescriptor(&convolution->shape));
    DNN_TRY(cuda, cudnnSetFilter4dDescriptor(convolution->weight, type, CUDNN_TENSOR_NHWC, (int)layer->out.channels,
                                             (int)layer->in.channels, kernel, kernel));
    DNN_TRY(cuda, cudnnSetConvolution2dDescriptor(convolution->shape, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                                  CUDNN_DATA_FLOAT));
    DNN_TRY(cuda, cudnnSetConvolutionMathType(convolution->shape, math));
    return PL_OK;
}

void nn_conv_close(struct convolution *convolution)
{
    if (convolution->input) {
        cudnnDestroyTensorDescriptor(convolution->input);
    }
    if (convolution->output) {
        cudnnDestroyTensorDescriptor(convolution->output);
    }
    if (convolution->weight) {
        cudnnDestroyFilterDescriptor(convolution->weight);
    }
    if (convolution->shape) {
        cudnnDestroyConvolutionDescriptor(convolution->shape);
    }
}

/*
 * Chooses the algorithm that cuDNN estimates to be the fastest. It must give the same bits on every run, and cuDNN must
 * know its workspace size: cuDNN's list may have algorithms that this library was built without.
 */
#define CHOOSE_ALGORITHM(state, kind, perf_type, get_list, get_bytes, ret_algorithm, ret_bytes)                        \
    do {                                                                                                               \
        enum { MOST_ = 16 };                                                                                           \
        perf_type list_[MOST_];                                                                                        \
        int count_ = 0, at_ = 0;                                                                                       \
        DNN_TRY(state, get_list(MOST_, &count_, list_));                                                               \
        while (at_ < count_ &&                                                                                         \
               (list_[at_].status != CUDNN_STATUS_SUCCESS || list_[at_].determinism != CUDNN_DETERMINISTIC ||          \
                get_bytes(list_[at_].algo, (ret_bytes)) != CUDNN_STATUS_SUCCESS)) {                                    \
            at_++;                                                                                                     \
        }                                                                                                              \
        if (at_ == count_) {                                                                                           \
            return pl_error_set(reterr, PL_UNSUPPORTED,                                                                \
                                "GPU %d: cuDNN has no repeatable algorithm for layer '%s', " kind, (state)->device,    \
                                layer->spec.name);                                                                     \
        }                                                                                                              \
        *(ret_algorithm) = list_[at_].algo;                                                                            \
    } while (0)

static enum pl_status choose_algorithms(struct cuda_state *cuda, const struct nn_layer *layer, struct convolution *c,
                                        size_t *ret_bytes, struct pl_error *reterr)
{
    size_t bytes[3] = {0};

#define LIST(most, count, list)                                                                                        \
    cudnnGetConvolutionForwardAlgorithm_v7(cuda->dnn, c->input, c->weight, c->shape, c->output, most, count, list)
#define BYTES(algorithm, bytes)                                                                                        \
    cudnnGetConvolutionForwardWorkspaceSize(cuda->dnn, c->input, c->weight, c->shape, c->output, algorithm, bytes)
    CHOOSE_ALGORITHM(cuda, "forward", cudnnConvolutionFwdAlgoPerf_t, LIST, BYTES, &c->forward, &bytes[0]);
#undef LIST
#undef BYTES
#define LIST(most, count, list)                                                                                        \
    cudnnGetConvolutionBackwardDataAlgorithm_v7(cuda->dnn, c->weight, c->output, c->shape, c->input, most, count, list)
#define BYTES(algorithm, bytes)                                                                                        \
    cudnnGetConvolutionBackwardDataWorkspaceSize(cuda->dnn, c->weight, c->output, c->shape, c->input, algorithm, bytes)
    /* the first layer needs no input gradient, and its few channels may have no algorithm */
    if (layer->index > 0) {
        CHOOSE_ALGORITHM(cuda, "gradient of its input", cudnnConvolutionBwdDataAlgoPerf_t, LIST, BYTES,
                         &c->backward_data, &bytes[1]);
    }
#undef LIST
#undef BYTES
#define LIST(most, count, list)                                                                                        \
    cudnnGetConvolutionBackwardFilterAlgorithm_v7(cuda->dnn, c->input, c->output, c->shape, c->weight, most, count,    \
                                                  list)
#define BYTES(algorithm, bytes)                                                                                        \
    cudnnGetConvolutionBackwardFilterWorkspaceSize(cuda->dnn, c->input, c->output, c->shape, c->weight, algorithm,     \
                                                   bytes)
    CHOOSE_ALGORITHM(cuda, "gradient of its weights", cudnnConvolutionBwdFilterAlgoPerf_t, LIST, BYTES,
                     &c->backward_filter, &bytes[2]);
#undef LIST
#undef BYTES
    *ret_bytes = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    *ret_bytes = bytes[2] > *ret_bytes ? bytes[2] : *ret_bytes;
    return PL_OK;
}

/* Prepares descriptors, algorithms and workspace for batches of `samples`, unless they exist for that size. */
static enum pl_status prepare_convolution(struct cuda_state *cuda, const struct nn_layer *layer,
                                          struct convolution *convolution, size_t samples, struct pl_error *reterr)
{
    cudnnDataType_t type = cuda->precision == NN_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    size_t bytes;

    if (convolution->samples == samples) {
        return PL_OK;
    }
    DNN_TRY(cuda, cudnnSetTensor4dDescriptor(convolution->input, CUDNN_TENSOR_NHWC, type, (int)samples,
                                             (int)layer->in.channels, (int)layer->in.height, (int)layer->in.width));
    DNN_TRY(cuda, cudnnSetTensor4dDescriptor(convolution->output, CUDNN_TENSOR_NHWC, type, (int)samples,
                                             (int)layer->out.channels, (int)layer->out.height, (int)layer->out.width));
    PL_TRY(choose_algorithms(cuda, layer, convolution, &bytes, reterr));
    if (bytes > cuda->workspace_bytes) {
        CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
        CUDA_TRY(cuda, cudaFree(cuda->workspace));
        cuda->workspace = NULL;
        cuda->workspace_bytes = 0;
        CUDA_TRY(cuda, cudaMalloc(&cuda->workspace, bytes));
        cuda->workspace_bytes = bytes;
    }
    convolution->samples = samples;
    return PL_OK;
}

enum pl_status nn_conv_forward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                               const float *input, struct pl_error *reterr)
{
    struct convolution *c = &cuda->convolutions[layer->index];
    bool half = cuda->precision == NN_BFLOAT16;
    const void *x = half ? (const void *)cuda->half_input : input;
    const void *w = half ? (const void *)cuda->half_weight : layer->weight;
    void *y = half ? (void *)cuda->half_output : layer->output;
    float one = 1.0F, zero = 0.0F;

    PL_TRY(prepare_convolution(cuda, layer, c, samples, reterr));
    if (half) {
        CUDA_TRY(cuda, nn_launch_to_bfloat16(samples * layer->in_elems, input, cuda->half_input, cuda->stream));
        CUDA_TRY(cuda, nn_launch_to_bfloat16(nn_weight_elems(layer), layer->weight, cuda->half_weight, cuda->stream));
    }
    DNN_TRY(cuda, cudnnConvolutionForward(cuda->dnn, &one, c->input, x, c->weight, w, c->shape, c->forward,
                                          cuda->workspace, cuda->workspace_bytes, &zero, c->output, y));
    if (half) {
        CUDA_TRY(cuda, nn_launch_activate_bfloat16(nn_rows(layer, samples), layer->out.channels, cuda->half_output,
                                                   layer->bias, layer->spec.relu, layer->output, cuda->stream));
    } else {
        CUDA_TRY(cuda, nn_launch_activate(nn_rows(layer, samples), layer->out.channels, layer->bias, layer->spec.relu,
                                          layer->output, cuda->stream));
    }
    return PL_OK;
}

enum pl_status nn_conv_backward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                                const float *input, float *output_gradient, float *input_gradient, bool accumulate,
                                struct pl_error *reterr)
{
    struct convolution *c = &cuda->convolutions[layer->index];
    bool half = cuda->precision == NN_BFLOAT16;
    const void *x = half ? (const void *)cuda->half_input : input;
    const void *w = half ? (const void *)cuda->half_weight : layer->weight;
    const void *dy = half ? (const void *)cuda->half_output : output_gradient;
    void *dw = half ? (void *)cuda->half_weights : layer->weight_gradient;
    void *dx = half ? (void *)cuda->half_input : input_gradient; /* the input copy is no longer needed then */
    float one = 1.0F, zero = 0.0F;

    PL_TRY(prepare_convolution(cuda, layer, c, samples, reterr));
    PL_TRY(nn_bias_backward(cuda, layer, nn_rows(layer, samples), output_gradient, accumulate, reterr));
    if (half) {
        CUDA_TRY(cuda, nn_launch_to_bfloat16(samples * layer->in_elems, input, cuda->half_input, cuda->stream));
        CUDA_TRY(cuda,
                 nn_launch_to_bfloat16(samples * layer->out_elems, output_gradient, cuda->half_output, cuda->stream));
        CUDA_TRY(cuda, nn_launch_to_bfloat16(nn_weight_elems(layer), layer->weight, cuda->half_weight, cuda->stream));
    }
    DNN_TRY(cuda, cudnnConvolutionBackwardFilter(cuda->dnn, &one, c->input, x, c->output, dy, c->shape,
                                                 c->backward_filter, cuda->workspace, cuda->workspace_bytes,
                                                 accumulate && !half ? &one : &zero, c->weight, dw));
    if (half) {
        CUDA_TRY(cuda, nn_launch_from_bfloat16(nn_weight_elems(layer), cuda->half_weights, accumulate,
                                               layer->weight_gradient, cuda->stream));
    }
    if (input_gradient) {
        DNN_TRY(cuda,
                cudnnConvolutionBackwardData(cuda->dnn, &one, c->weight, w, c->output, dy, c->shape, c->backward_data,
                                             cuda->workspace, cuda->workspace_bytes, &zero, c->input, dx));
        if (half) {
            CUDA_TRY(cuda, nn_launch_from_bfloat16(samples * layer->in_elems, cuda->half_input, 0, input_gradient,
                                                   cuda->stream));
        }
    }
    return PL_OK;
}
