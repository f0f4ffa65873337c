/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Arithmetic of layers that the libraries do not have, one element (or group, or sample) at a time. The same code runs
 * on the CPU and, compiled by nvcc, on a GPU, where each of n threads takes every n-th index. nn.h describes the
 * layouts. Each function's comment says what `index` counts.
 *
 * Test  tests/unit/examples/test_kernels.c
 */
#ifndef EXAMPLES_NN_KERNELS_H
#define EXAMPLES_NN_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NN_BOTH static __host__ __device__ __forceinline__
#else
#define NN_BOTH static inline
#endif

/** Returns a mixed word for each pair of words (the finalizer of SplitMix64 over key and counter). */
NN_BOTH uint64_t nn_mix(uint64_t key, uint64_t counter)
{
    uint64_t x = key + counter * UINT64_C(0x9E3779B97F4A7C15);

    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/** Returns `value` + `bias`; then max(0, x) if `relu`. */
NN_BOTH float nn_activate(float value, float bias, int relu)
{
    float sum = value + bias;

    return relu ? (sum > 0.0F ? sum : 0.0F) : sum;
}

/**
 * Whether `value` is larger by more than rounding. If the difference is only rounding, the first value wins; otherwise
 * noise in the last bit would choose the input that gets the gradient.
 */
NN_BOTH int nn_pool_larger(float value, float best)
{
    return value > best + fabsf(best) * 0x1p-16F;
}

/** The input of max pooling for one sample. */
struct nn_pool {
    size_t height;
    size_t width;
    size_t channels;
};

/** Pools one output; `index` counts outputs [samples][height / 2][width / 2][channels]. */
NN_BOTH void nn_pool_forward_at(const struct nn_pool *in, size_t index, const float *input, float *output,
                                uint8_t *where)
{
    size_t out_height = in->height / 2, out_width = in->width / 2;
    size_t c = index % in->channels;
    size_t x = index / in->channels % out_width;
    size_t y = index / in->channels / out_width % out_height;
    size_t sample = index / in->channels / out_width / out_height;
    const float *from = input + ((sample * in->height + 2 * y) * in->width + 2 * x) * in->channels + c;
    float best = *from;
    uint8_t at = 0;

    for (uint8_t k = 1; k < 4; k++) {
        float value = from[((k / 2U) * in->width + k % 2U) * in->channels];

        if (nn_pool_larger(value, best)) {
            best = value;
            at = k;
        }
    }
    output[index] = best;
    where[index] = at;
}

/** Sets one input's gradient: its output's, or 0; `index` counts inputs [samples][height][width][channels]. */
NN_BOTH void nn_pool_backward_at(const struct nn_pool *in, size_t index, const uint8_t *where,
                                 const float *output_gradient, float *input_gradient)
{
    size_t out_height = in->height / 2, out_width = in->width / 2;
    size_t c = index % in->channels;
    size_t x = index / in->channels % in->width;
    size_t y = index / in->channels / in->width % in->height;
    size_t sample = index / in->channels / in->width / in->height;
    size_t out = ((sample * out_height + y / 2) * out_width + x / 2) * in->channels + c;
    int inside = y / 2 < out_height && x / 2 < out_width;

    input_gradient[index] = inside && where[out] == y % 2 * 2 + x % 2 ? output_gradient[out] : 0.0F;
}

/**
 * Dropout of one layer in one step. Four elements share one random word, 16 bits each, so rates are multiples of
 * 1/65536. The backward pass draws the same numbers again. Sample s of the batch has the number first_sample + s *
 * sample_stride.
 */
struct nn_dropout {
    uint64_t key;
    uint64_t first_sample;
    uint64_t sample_stride;
    uint64_t limit;
    size_t elems; /* number of elements of a sample */
    float scale;
};

NN_BOTH size_t nn_dropout_groups(const struct nn_dropout *drop)
{
    return (drop->elems + 3) / 4;
}

/** Drops a group of elements; `index` counts groups [samples][nn_dropout_groups()]. */
NN_BOTH void nn_dropout_at(const struct nn_dropout *drop, size_t index, float *values)
{
    size_t groups = nn_dropout_groups(drop);
    size_t sample = index / groups;
    size_t e = index % groups * 4;
    size_t end = drop->elems - e < 4 ? drop->elems - e : 4;
    uint64_t word = nn_mix(nn_mix(drop->key, drop->first_sample + sample * drop->sample_stride), e / 4);

    values += sample * drop->elems + e;
    for (size_t i = 0; i < end; i++, word >>= 16) {
        values[i] = (word & 0xFFFFU) < drop->limit ? 0.0F : values[i] * drop->scale;
    }
}

/**
 * Computes softmax and cross-entropy of one sample and returns its loss. `gradient` [classes] gets the gradient unless
 * it is NULL; *ret_hit is whether the label's output is the largest.
 */
NN_BOTH double nn_softmax(const float *logits, size_t classes, size_t label, double gradient_scale, float *gradient,
                          int *ret_hit)
{
    size_t best = 0;
    double sum = 0.0;

    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - (double)logits[best]);
    }
    for (size_t c = 0; gradient && c < classes; c++) {
        double share = exp((double)logits[c] - (double)logits[best]) / sum;

        gradient[c] = (float)((share - (c == label ? 1.0 : 0.0)) * gradient_scale);
    }
    *ret_hit = best == label;
    return log(sum) - ((double)logits[label] - (double)logits[best]);
}

/**
 * A bias gradient is summed in float over a few rows, called a part, and these sums in double, because one float sum
 * would lose half of its digits. A block of the GPU sums groups of parts, one group per thread of a column.
 */
enum { NN_SUM_ROWS = 32, NN_SUM_PARTS = 2, NN_SUM_GROUPS = 8, NN_SUM_RUN = 8 };

NN_BOTH size_t nn_bias_blocks(size_t rows)
{
    size_t rows_a_block = (size_t)NN_SUM_GROUPS * NN_SUM_PARTS * NN_SUM_ROWS;

    return (rows + rows_a_block - 1) / rows_a_block;
}

/** Returns the first row of a part. The part ends NN_SUM_ROWS later or at the last row. */
NN_BOTH size_t nn_bias_first_row(size_t block, size_t group, size_t part)
{
    return ((block * NN_SUM_GROUPS + group) * NN_SUM_PARTS + part) * NN_SUM_ROWS;
}

/**
 * Returns `part` plus the sum of `count` rows of a column; `count` is a compile-time constant. All loads come before
 * the first store, because the compiler cannot move loads before a store that may overlap.
 */
NN_BOTH float nn_bias_run(const float *values, float *gradient, size_t units, size_t count, int relu, float part)
{
    float value[NN_SUM_RUN] = {0.0F}, slope[NN_SUM_RUN];

    for (size_t i = 0; i < count; i++) {
        slope[i] = gradient[i * units];
        if (relu) {
            value[i] = values[i * units];
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (relu && !(value[i] > 0.0F)) {
            slope[i] = 0.0F;
            gradient[i * units] = 0.0F;
        }
        part += slope[i];
    }
    return part;
}

/**
 * Returns the sum of one column of rows [first, end) of `gradient` [rows][units], at most NN_SUM_ROWS rows. With `relu`
 * it first converts the gradient of the output `values` to the gradient of the sums before max(0, x).
 */
NN_BOTH float nn_bias_part(const float *values, float *gradient, size_t units, size_t unit, size_t first, size_t end,
                           int relu)
{
    float part = 0.0F;
    size_t r = first;

    for (; r + NN_SUM_RUN <= end; r += NN_SUM_RUN) {
        part = nn_bias_run(values + r * units + unit, gradient + r * units + unit, units, NN_SUM_RUN, relu, part);
    }
    for (; r < end; r++) {
        part = nn_bias_run(values + r * units + unit, gradient + r * units + unit, units, 1, relu, part);
    }
    return part;
}

/** Rounds to nearest even; NaN stays NaN. */
NN_BOTH uint16_t nn_to_bfloat16(float value)
{
    union {
        float value;
        uint32_t bits;
    } word;

    word.value = value;
    if ((word.bits & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)(word.bits >> 16 | 0x40U);
    }
    return (uint16_t)((word.bits + 0x7FFFU + (word.bits >> 16 & 1U)) >> 16);
}

NN_BOTH float nn_from_bfloat16(uint16_t half)
{
    union {
        uint32_t bits;
        float value;
    } word;

    word.bits = (uint32_t)half << 16;
    return word.value;
}

#endif
