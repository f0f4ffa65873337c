/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/nn/launch_cuda.h"

enum {
    THREADS = 256,
    MOST_BLOCKS = 4096, /* more than any device runs at once; a thread loops over the further indices */
    LANES = 32,         /* columns that a block sums */
};

static unsigned blocks_for(size_t count)
{
    size_t blocks = (count + THREADS - 1) / THREADS;

    return (unsigned)(blocks < 1 ? 1 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

#define FOR_EACH(index, count)                                                                                         \
    for (size_t index = (size_t)blockIdx.x * THREADS + threadIdx.x; index < (count);                                   \
         index += (size_t)gridDim.x * THREADS)

static __global__ void pool_forward(nn_pool in, size_t count, const float *input, float *output, uint8_t *where)
{
    FOR_EACH(i, count)
    {
        nn_pool_forward_at(&in, i, input, output, where);
    }
}

static __global__ void pool_backward(nn_pool in, size_t count, const uint8_t *where, const float *output_gradient,
                                     float *input_gradient)
{
    FOR_EACH(i, count)
    {
        nn_pool_backward_at(&in, i, where, output_gradient, input_gradient);
    }
}

static __global__ void dropout(nn_dropout drop, size_t count, float *values)
{
    FOR_EACH(i, count)
    {
        nn_dropout_at(&drop, i, values);
    }
}

static __global__ void activate(size_t count, size_t units, const float *bias, int relu, float *values)
{
    FOR_EACH(i, count)
    {
        values[i] = nn_activate(values[i], bias[i % units], relu);
    }
}

static __global__ void activate_bfloat16(size_t count, size_t units, const uint16_t *sums, const float *bias, int relu,
                                         float *values)
{
    FOR_EACH(i, count)
    {
        values[i] = nn_activate(nn_from_bfloat16(sums[i]), bias[i % units], relu);
    }
}

static __global__ void to_bfloat16(size_t count, const float *from, uint16_t *to)
{
    FOR_EACH(i, count)
    {
        to[i] = nn_to_bfloat16(from[i]);
    }
}

static __global__ void from_bfloat16(size_t count, const uint16_t *from, int accumulate, float *to)
{
    FOR_EACH(i, count)
    {
        to[i] = nn_from_bfloat16(from[i]) + (accumulate ? to[i] : 0.0F);
    }
}

/* Block (b, c) sums rows of block b of the columns [c * LANES, ...) into scratch[b][column]. */
static __global__ void bias_parts(size_t rows, size_t units, const float *values, int relu, float *gradient,
                                  double *scratch)
{
    __shared__ double sums[NN_SUM_GROUPS][LANES];
    size_t unit = (size_t)blockIdx.y * LANES + threadIdx.x;
    double sum = 0.0;

    for (size_t part = 0; unit < units && part < NN_SUM_PARTS; part++) {
        size_t first = nn_bias_first_row(blockIdx.x, threadIdx.y, part);
        size_t end = first + NN_SUM_ROWS < rows ? first + NN_SUM_ROWS : rows;

        sum += (double)nn_bias_part(values, gradient, units, unit, first, end, relu);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && unit < units) {
        for (int group = 1; group < NN_SUM_GROUPS; group++) {
            sum += sums[group][threadIdx.x];
        }
        scratch[blockIdx.x * units + unit] = sum;
    }
}

static __global__ void bias_finish(size_t parts, size_t units, const double *scratch, int accumulate,
                                   float *bias_gradient)
{
    __shared__ double sums[NN_SUM_GROUPS][LANES];
    size_t unit = (size_t)blockIdx.x * LANES + threadIdx.x;
    double sum = 0.0;

    for (size_t part = threadIdx.y; unit < units && part < parts; part += NN_SUM_GROUPS) {
        sum += scratch[part * units + unit];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && unit < units) {
        for (int group = 1; group < NN_SUM_GROUPS; group++) {
            sum += sums[group][threadIdx.x];
        }
        bias_gradient[unit] = (float)sum + (accumulate ? bias_gradient[unit] : 0.0F);
    }
}

/* Runs in one block: there are few samples, and their sum has a fixed order. */
static __global__ void loss(size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                            double gradient_scale, float *gradient, nn_device_score *score)
{
    __shared__ double losses[THREADS];
    __shared__ unsigned hits[THREADS];
    double sum = 0.0;
    unsigned correct = 0;

    for (size_t s = threadIdx.x; s < samples; s += THREADS) {
        int hit;

        sum += nn_softmax(logits + s * classes, classes, labels[s], gradient_scale,
                          gradient ? gradient + s * classes : NULL, &hit);
        correct += (unsigned)hit;
    }
    losses[threadIdx.x] = sum;
    hits[threadIdx.x] = correct;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            hits[threadIdx.x] += hits[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        score->loss_sum += losses[0];
        score->correct += hits[0];
        score->samples += samples;
    }
}

extern "C" cudaError_t nn_launch_pool_forward(nn_pool in, size_t samples, const float *input, float *output,
                                              uint8_t *where, cudaStream_t stream)
{
    size_t count = samples * (in.height / 2) * (in.width / 2) * in.channels;

    pool_forward<<<blocks_for(count), THREADS, 0, stream>>>(in, count, input, output, where);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_pool_backward(nn_pool in, size_t samples, const uint8_t *where,
                                               const float *output_gradient, float *input_gradient, cudaStream_t stream)
{
    size_t count = samples * in.height * in.width * in.channels;

    pool_backward<<<blocks_for(count), THREADS, 0, stream>>>(in, count, where, output_gradient, input_gradient);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_dropout(nn_dropout drop, size_t samples, float *values, cudaStream_t stream)
{
    size_t count = samples * nn_dropout_groups(&drop);

    dropout<<<blocks_for(count), THREADS, 0, stream>>>(drop, count, values);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_activate(size_t rows, size_t units, const float *bias, int relu, float *values,
                                          cudaStream_t stream)
{
    activate<<<blocks_for(rows * units), THREADS, 0, stream>>>(rows * units, units, bias, relu, values);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_activate_bfloat16(size_t rows, size_t units, const uint16_t *sums, const float *bias,
                                                   int relu, float *values, cudaStream_t stream)
{
    activate_bfloat16<<<blocks_for(rows * units), THREADS, 0, stream>>>(rows * units, units, sums, bias, relu, values);
    return cudaGetLastError();
}

extern "C" size_t nn_bias_scratch_elems(size_t rows, size_t units)
{
    return nn_bias_blocks(rows) * units;
}

extern "C" cudaError_t nn_launch_bias_gradient(size_t rows, size_t units, const float *values, int relu,
                                               float *gradient, double *scratch, int accumulate, float *bias_gradient,
                                               cudaStream_t stream)
{
    size_t parts = nn_bias_blocks(rows);
    unsigned columns = (unsigned)((units + LANES - 1) / LANES);
    dim3 threads(LANES, NN_SUM_GROUPS);

    bias_parts<<<dim3((unsigned)parts, columns), threads, 0, stream>>>(rows, units, values, relu, gradient, scratch);
    bias_finish<<<columns, threads, 0, stream>>>(parts, units, scratch, accumulate, bias_gradient);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_loss(size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                                      double gradient_scale, float *gradient, nn_device_score *score,
                                      cudaStream_t stream)
{
    loss<<<1, THREADS, 0, stream>>>(samples, classes, logits, labels, gradient_scale, gradient, score);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_to_bfloat16(size_t count, const float *from, uint16_t *to, cudaStream_t stream)
{
    to_bfloat16<<<blocks_for(count), THREADS, 0, stream>>>(count, from, to);
    return cudaGetLastError();
}

extern "C" cudaError_t nn_launch_from_bfloat16(size_t count, const uint16_t *from, int accumulate, float *to,
                                               cudaStream_t stream)
{
    from_bfloat16<<<blocks_for(count), THREADS, 0, stream>>>(count, from, accumulate, to);
    return cudaGetLastError();
}
