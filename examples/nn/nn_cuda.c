/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers on a GPU: convolutions by cuDNN, dense layers by cuBLAS, the rest by launch_cuda.cu. All work is on one
 * stream. Only copy(), get_score() and uploads wait: an upload waits until the upload before the previous one is done.
 */
#include "examples/nn/nn.h"

#include "base/memory.h"
#include "examples/nn/state_cuda.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct nn_device_score) == sizeof(struct nn_score) &&
                   offsetof(struct nn_device_score, correct) == offsetof(struct nn_score, correct) &&
                   offsetof(struct nn_device_score, samples) == offsetof(struct nn_score, samples),
               "a score is copied byte by byte");

/* Returns the length of the function's name in `call`, because its arguments are useful only in a debugger. */
static int name_length(const char *call)
{
    return (int)strcspn(call, "(");
}

enum pl_status nn_cuda_failed(int device, cudaError_t code, const char *call, struct pl_error *reterr)
{
    enum pl_status status = code == cudaErrorMemoryAllocation ? PL_MEMORY
                            : code == cudaErrorInsufficientDriver || code == cudaErrorNoKernelImageForDevice
                                ? PL_UNSUPPORTED
                                : PL_LIBRARY;

    return pl_error_raise(reterr, status, PL_DOMAIN_CUDA, code, "GPU %d: %.*s: %s (%s)", device, name_length(call),
                          call, cudaGetErrorName(code), cudaGetErrorString(code));
}

enum pl_status nn_dnn_failed(int device, cudnnStatus_t code, const char *call, struct pl_error *reterr)
{
    char more[200] = "";

    cudnnGetLastErrorString(more, sizeof(more));
    return pl_error_set(reterr, code == CUDNN_STATUS_ALLOC_FAILED ? PL_MEMORY : PL_LIBRARY, "GPU %d: %.*s: %s (%s)",
                        device, name_length(call), call, cudnnGetErrorString(code), more);
}

enum pl_status nn_blas_failed(int device, cublasStatus_t code, const char *call, struct pl_error *reterr)
{
    return pl_error_set(reterr, code == CUBLAS_STATUS_ALLOC_FAILED ? PL_MEMORY : PL_LIBRARY, "GPU %d: %.*s: %s", device,
                        name_length(call), call, cublasGetStatusString(code));
}

static void staging_done(struct staging *part)
{
    for (unsigned i = 0; i < STAGES; i++) {
        if (part->copied[i]) {
            cudaEventDestroy(part->copied[i]);
        }
        cudaFreeHost(part->pinned[i]);
    }
    cudaFree(part->memory);
}

static void cuda_close(void *state)
{
    struct cuda_state *cuda = state;

    cudaSetDevice(cuda->device);
    if (cuda->stream) {
        cudaStreamSynchronize(cuda->stream);
    }
    for (size_t i = 0; cuda->convolutions && i < cuda->layer_count; i++) {
        nn_conv_close(&cuda->convolutions[i]);
    }
    for (int part = 0; part < NN_PARTS; part++) {
        staging_done(&cuda->parts[part]);
    }
    cudaFree(cuda->workspace);
    cudaFree(cuda->sums);
    cudaFree(cuda->half_input);
    cudaFree(cuda->half_output);
    cudaFree(cuda->half_weight);
    cudaFree(cuda->half_weights);
    cudaFree(cuda->score);
    if (cuda->dnn) {
        cudnnDestroy(cuda->dnn);
    }
    if (cuda->blas) {
        cublasDestroy(cuda->blas);
    }
    if (cuda->stream) {
        cudaStreamDestroy(cuda->stream);
    }
    free(cuda->convolutions);
    free(cuda);
}

/* Allocates memory that is zeroed before any later work on the stream. */
static enum pl_status allocate(struct cuda_state *cuda, size_t count, size_t item_bytes, void *ret_memory,
                               struct pl_error *reterr)
{
    void *memory = NULL;
    size_t bytes;

    if (__builtin_mul_overflow(count ? count : 1, item_bytes, &bytes)) {
        return pl_error_set(reterr, PL_MEMORY, "GPU %d: %zu items of %zu bytes", cuda->device, count, item_bytes);
    }
    CUDA_TRY(cuda, cudaMalloc(&memory, bytes));
    memcpy(ret_memory, &memory, sizeof(memory));
    CUDA_TRY(cuda, cudaMemsetAsync(memory, 0, bytes, cuda->stream));
    return PL_OK;
}

static void *cuda_allocate(void *state, size_t count, size_t item_bytes, struct pl_error *reterr)
{
    void *memory = NULL;

    if (allocate(state, count, item_bytes, &memory, reterr) != PL_OK) {
        cudaFree(memory);
        return NULL;
    }
    return memory;
}

static void cuda_release(void *state, void *memory)
{
    (void)state;
    cudaFree(memory);
}

static bool cuda_owns(void *state, const void *memory)
{
    struct cudaPointerAttributes attributes;

    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeDevice && attributes.device == ((struct cuda_state *)state)->device;
}

static void *cuda_stream(void *state)
{
    return ((struct cuda_state *)state)->stream;
}

static enum pl_status cuda_copy(void *state, void *to, const void *from, size_t bytes, struct pl_error *reterr)
{
    struct cuda_state *cuda = state;

    CUDA_TRY(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->stream));
    CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
    return PL_OK;
}

static enum pl_status cuda_bring(void *state, enum nn_part which, const void *host, size_t bytes,
                                 const void **ret_memory, struct pl_error *reterr)
{
    struct cuda_state *cuda = state;
    struct staging *part = &cuda->parts[which];
    unsigned stage = part->next++ % STAGES;

    PL_BUG_IF(bytes > part->bytes);
    CUDA_TRY(cuda, cudaEventSynchronize(part->copied[stage]));
    memcpy(part->pinned[stage], host, bytes);
    CUDA_TRY(cuda, cudaMemcpyAsync(part->memory, part->pinned[stage], bytes, cudaMemcpyHostToDevice, cuda->stream));
    CUDA_TRY(cuda, cudaEventRecord(part->copied[stage], cuda->stream));
    *ret_memory = part->memory;
    return PL_OK;
}

static enum pl_status open_staging(struct cuda_state *cuda, struct staging *part, size_t bytes, struct pl_error *reterr)
{
    part->bytes = bytes;
    PL_TRY(allocate(cuda, bytes, 1, &part->memory, reterr));
    for (unsigned i = 0; i < STAGES; i++) {
        CUDA_TRY(cuda, cudaMallocHost(&part->pinned[i], bytes));
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&part->copied[i], cudaEventDisableTiming));
    }
    return PL_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static enum pl_status open_memory(struct cuda_state *cuda, const struct nn_layer *layers, size_t max_samples,
                                  struct pl_error *reterr)
{
    size_t sums = 1, input = 1, output = 1, weight = 1;

    for (size_t i = 0; i < cuda->layer_count; i++) {
        const struct nn_layer *layer = &layers[i];

        sums = larger(sums, nn_bias_scratch_elems(nn_rows(layer, max_samples), layer->out.channels));
        if (layer->spec.kind == NN_CONV) {
            PL_TRY(nn_conv_open(cuda, layer, &cuda->convolutions[i], reterr));
            input = larger(input, max_samples * layer->in_elems);
            output = larger(output, max_samples * layer->out_elems);
            weight = larger(weight, nn_weight_elems(layer));
        }
    }
    PL_TRY(allocate(cuda, sums, sizeof(double), &cuda->sums, reterr));
    PL_TRY(allocate(cuda, 1, sizeof(*cuda->score), &cuda->score, reterr));
    if (cuda->precision == NN_BFLOAT16) {
        PL_TRY(allocate(cuda, input, sizeof(uint16_t), &cuda->half_input, reterr));
        PL_TRY(allocate(cuda, output, sizeof(uint16_t), &cuda->half_output, reterr));
        PL_TRY(allocate(cuda, weight, sizeof(uint16_t), &cuda->half_weight, reterr));
        PL_TRY(allocate(cuda, weight, sizeof(uint16_t), &cuda->half_weights, reterr));
    }
    PL_TRY(open_staging(cuda, &cuda->parts[NN_INPUT], max_samples * layers[0].in_elems * sizeof(float), reterr));
    return open_staging(cuda, &cuda->parts[NN_LABELS], max_samples, reterr);
}

static enum pl_status open_device(struct cuda_state *cuda, struct pl_error *reterr)
{
    int major = 0;

    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    CUDA_TRY(cuda, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device));
    if (cuda->precision != NN_FLOAT32 && major < 8) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "GPU %d has compute capability %d.x; TF32 and bfloat16 need 8.0 or later", cuda->device,
                            major);
    }
    CUDA_TRY(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    DNN_TRY(cuda, cudnnCreate(&cuda->dnn));
    DNN_TRY(cuda, cudnnSetStream(cuda->dnn, cuda->stream));
    BLAS_TRY(cuda, cublasCreate(&cuda->blas));
    BLAS_TRY(cuda, cublasSetStream(cuda->blas, cuda->stream));
    return PL_OK;
}

static enum pl_status cuda_open(const struct nn_backend_options *options, const struct nn_layer *layers,
                                size_t layer_count, size_t max_samples, void **ret_state, struct pl_error *reterr)
{
    struct cuda_state *cuda = pl_memory_new(1, sizeof(*cuda), reterr);
    enum pl_status status;

    if (!cuda) {
        return PL_MEMORY;
    }
    cuda->device = options->device;
    cuda->precision = options->precision;
    cuda->layer_count = layer_count;
    cuda->convolutions = pl_memory_new(layer_count, sizeof(*cuda->convolutions), reterr);
    status = cuda->convolutions ? open_device(cuda, reterr) : PL_MEMORY;
    if (status == PL_OK) {
        status = open_memory(cuda, layers, max_samples, reterr);
    }
    if (status != PL_OK) {
        cuda_close(cuda);
        return status;
    }
    *ret_state = cuda;
    return PL_OK;
}

enum pl_status nn_bias_backward(struct cuda_state *cuda, const struct nn_layer *layer, size_t rows,
                                float *output_gradient, bool accumulate, struct pl_error *reterr)
{
    CUDA_TRY(cuda, nn_launch_bias_gradient(rows, layer->out.channels, layer->output, layer->spec.relu, output_gradient,
                                           cuda->sums, accumulate, layer->bias_gradient, cuda->stream));
    return PL_OK;
}

/* c[n][m] = a x b in cuBLAS's column order, in which a row-major matrix is its own transpose. */
static enum pl_status multiply(struct cuda_state *cuda, cublasOperation_t of_a, cublasOperation_t of_b, size_t m,
                               size_t n, size_t k, const float *a, size_t a_stride, const float *b, size_t b_stride,
                               float beta, float *c, size_t c_stride, struct pl_error *reterr)
{
    static const cublasComputeType_t types[] = {[NN_FLOAT32] = CUBLAS_COMPUTE_32F,
                                                [NN_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
                                                [NN_BFLOAT16] = CUBLAS_COMPUTE_32F_FAST_16BF};
    float one = 1.0F;

    BLAS_TRY(cuda, cublasGemmEx(cuda->blas, of_a, of_b, (int)m, (int)n, (int)k, &one, a, CUDA_R_32F, (int)a_stride, b,
                                CUDA_R_32F, (int)b_stride, &beta, c, CUDA_R_32F, (int)c_stride, types[cuda->precision],
                                CUBLAS_GEMM_DEFAULT));
    return PL_OK;
}

static enum pl_status dense_forward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                                    const float *input, struct pl_error *reterr)
{
    size_t inputs = layer->in_elems;
    size_t units = layer->out_elems;

    PL_TRY(multiply(cuda, CUBLAS_OP_T, CUBLAS_OP_N, units, samples, inputs, layer->weight, inputs, input, inputs, 0.0F,
                    layer->output, units, reterr));
    CUDA_TRY(cuda, nn_launch_activate(samples, units, layer->bias, layer->spec.relu, layer->output, cuda->stream));
    return PL_OK;
}

static enum pl_status dense_backward(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                                     const float *input, float *output_gradient, float *input_gradient, bool accumulate,
                                     struct pl_error *reterr)
{
    size_t inputs = layer->in_elems;
    size_t units = layer->out_elems;

    PL_TRY(nn_bias_backward(cuda, layer, samples, output_gradient, accumulate, reterr));
    PL_TRY(multiply(cuda, CUBLAS_OP_N, CUBLAS_OP_T, inputs, units, samples, input, inputs, output_gradient, units,
                    accumulate ? 1.0F : 0.0F, layer->weight_gradient, inputs, reterr));
    if (input_gradient) {
        PL_TRY(multiply(cuda, CUBLAS_OP_N, CUBLAS_OP_N, inputs, samples, units, layer->weight, inputs, output_gradient,
                        units, 0.0F, input_gradient, inputs, reterr));
    }
    return PL_OK;
}

static enum pl_status drop(struct cuda_state *cuda, const struct nn_layer *layer, size_t samples,
                           const struct nn_pass *pass, float *values, struct pl_error *reterr)
{
    if (pass->training && layer->spec.rate > 0.0) {
        CUDA_TRY(cuda, nn_launch_dropout(nn_layer_dropout(layer, pass), samples, values, cuda->stream));
    }
    return PL_OK;
}

static enum pl_status cuda_forward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                   const struct nn_pass *pass, struct pl_error *reterr)
{
    struct cuda_state *cuda = state;

    switch (layer->spec.kind) {
    case NN_CONV:
        return nn_conv_forward(cuda, layer, samples, input, reterr);
    case NN_MAX_POOL:
        CUDA_TRY(cuda, nn_launch_pool_forward(nn_layer_pool(layer), samples, input, layer->output, layer->where,
                                              cuda->stream));
        return PL_OK;
    case NN_DROPOUT:
        return drop(cuda, layer, samples, pass, layer->output, reterr);
    case NN_DENSE:
        return dense_forward(cuda, layer, samples, input, reterr);
    case NN_END:
        break;
    }
    return PL_OK;
}

static enum pl_status cuda_backward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                    float *output_gradient, float *input_gradient, const struct nn_pass *pass,
                                    struct pl_error *reterr)
{
    struct cuda_state *cuda = state;

    switch (layer->spec.kind) {
    case NN_CONV:
        return nn_conv_backward(cuda, layer, samples, input, output_gradient, input_gradient, pass->accumulate, reterr);
    case NN_MAX_POOL:
        if (input_gradient) {
            CUDA_TRY(cuda, nn_launch_pool_backward(nn_layer_pool(layer), samples, layer->where, output_gradient,
                                                   input_gradient, cuda->stream));
        }
        return PL_OK;
    case NN_DROPOUT:
        return drop(cuda, layer, samples, pass, output_gradient, reterr);
    case NN_DENSE:
        return dense_backward(cuda, layer, samples, input, output_gradient, input_gradient, pass->accumulate, reterr);
    case NN_END:
        break;
    }
    return PL_OK;
}

static enum pl_status cuda_loss(void *state, size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                                double gradient_scale, float *gradient, struct pl_error *reterr)
{
    struct cuda_state *cuda = state;

    CUDA_TRY(cuda,
             nn_launch_loss(samples, classes, logits, labels, gradient_scale, gradient, cuda->score, cuda->stream));
    return PL_OK;
}

static enum pl_status cuda_set_score(void *state, const struct nn_score *score, struct pl_error *reterr)
{
    return cuda_copy(state, ((struct cuda_state *)state)->score, score, sizeof(*score), reterr);
}

static enum pl_status cuda_get_score(void *state, struct nn_score *ret_score, struct pl_error *reterr)
{
    return cuda_copy(state, ret_score, ((struct cuda_state *)state)->score, sizeof(*ret_score), reterr);
}

__attribute__((visibility("default"))) extern const struct nn_backend nn_backend_cuda;

const struct nn_backend nn_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .owns = cuda_owns,
    .stream = cuda_stream,
    .copy = cuda_copy,
    .upload = cuda_bring,
    .forward = cuda_forward,
    .backward = cuda_backward,
    .loss = cuda_loss,
    .set_score = cuda_set_score,
    .get_score = cuda_get_score,
};
