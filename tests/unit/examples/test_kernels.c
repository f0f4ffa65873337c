/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/nn/kernels.h. */
#include "examples/nn/nn.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

/* Returns a value between -1 and 1. Every third value equals its neighbour, so that there are ties. */
static float value_at(uint64_t seed, size_t i)
{
    return (float)((double)(nn_mix(seed, i % 3 == 2 ? i - 1 : i) >> 11) * 0x1p-52 - 1.0);
}

static float *values(uint64_t seed, size_t count)
{
    float *made = pl_memory_new(count, sizeof(float), NULL);

    for (size_t i = 0; i < count; i++) {
        made[i] = value_at(seed, i);
    }
    return made;
}

/* Checks the CPU's loops over rows of pixels against single indices in order, as the threads of a GPU take them. */
static void check_pool(struct nn_shape in, size_t samples)
{
    struct nn_layer layer = {.spec = {.kind = NN_MAX_POOL, .name = "p"}, .in = in};
    struct nn_pass pass = {.training = true};
    struct nn_pool pool;
    size_t in_elems, out_elems;
    float *input, *output, *gradient, *backward, *expected;
    uint8_t *where;
    void *state = NULL;
    struct nn_backend_options none = {0};

    layer.out = (struct nn_shape){.height = in.height / 2, .width = in.width / 2, .channels = in.channels};
    layer.in_elems = in.height * in.width * in.channels;
    layer.out_elems = layer.out.height * layer.out.width * in.channels;
    in_elems = samples * layer.in_elems;
    out_elems = samples * layer.out_elems;
    pool = nn_layer_pool(&layer);
    input = values(1, in_elems);
    gradient = values(2, out_elems);
    layer.output = pl_memory_new(out_elems, sizeof(float), NULL);
    layer.where = pl_memory_new(out_elems, 1, NULL);
    output = values(3, out_elems);
    where = pl_memory_new(out_elems, 1, NULL);
    backward = values(4, in_elems);
    expected = values(5, in_elems);
    ck_assert_int_eq(nn_backend_blas.open(&none, &layer, 1, samples, &state, NULL), PL_OK);
    ck_assert_int_eq(nn_backend_blas.forward(state, &layer, samples, input, &pass, NULL), PL_OK);
    ck_assert_int_eq(nn_backend_blas.backward(state, &layer, samples, input, gradient, expected, &pass, NULL), PL_OK);
    for (size_t i = 0; i < out_elems; i++) {
        nn_pool_forward_at(&pool, i, input, output, where);
    }
    for (size_t i = 0; i < in_elems; i++) {
        nn_pool_backward_at(&pool, i, where, gradient, backward);
    }
    ck_assert_mem_eq(output, layer.output, out_elems * sizeof(float));
    ck_assert_mem_eq(where, layer.where, out_elems);
    ck_assert_mem_eq(backward, expected, in_elems * sizeof(float));
    nn_backend_blas.close(state);
    free(input);
    free(gradient);
    free(layer.output);
    free(layer.where);
    free(output);
    free(where);
    free(backward);
    free(expected);
}

TEST(pooling_by_index_is_pooling_by_rows)
{
    check_pool((struct nn_shape){.height = 2, .width = 2, .channels = 1}, 1);
    check_pool((struct nn_shape){.height = 24, .width = 24, .channels = 64}, 2);
    check_pool((struct nn_shape){.height = 7, .width = 4, .channels = 3}, 3);
    check_pool((struct nn_shape){.height = 4, .width = 9, .channels = 5}, 3);
    check_pool((struct nn_shape){.height = 5, .width = 5, .channels = 2}, 4);
}

TEST(of_nearly_equal_values_the_first_wins)
{
    struct nn_pool pool = {.height = 2, .width = 2, .channels = 1};
    float input[4] = {1.0F, 1.0F + 0x1p-20F, 1.0F + 0x1p-17F, 1.0F};
    float output;
    uint8_t where;

    nn_pool_forward_at(&pool, 0, input, &output, &where);
    ck_assert_uint_eq(where, 0);
    input[2] = 1.0F + 0x1p-15F;
    nn_pool_forward_at(&pool, 0, input, &output, &where);
    ck_assert_uint_eq(where, 2);
    ck_assert(output == input[2]);
}

/* Sums in the order of launch_cuda.cu: blocks, groups of a block, parts of a group. */
static double sum_column(size_t rows, size_t units, size_t unit, const float *output, float *gradient, bool relu,
                         unsigned *seen)
{
    double total = 0.0;

    for (size_t block = 0; block < nn_bias_blocks(rows); block++) {
        for (size_t group = 0; group < NN_SUM_GROUPS; group++) {
            for (size_t part = 0; part < NN_SUM_PARTS; part++) {
                size_t first = nn_bias_first_row(block, group, part);
                size_t end = first + NN_SUM_ROWS < rows ? first + NN_SUM_ROWS : rows;

                total += (double)nn_bias_part(output, gradient, units, unit, first, end, relu);
                for (size_t r = first; r < end; r++) {
                    seen[r]++;
                }
            }
        }
    }
    return total;
}

TEST(a_bias_gradient_takes_every_row_once_and_only_where_the_output_is_positive)
{
    const size_t rows_of[] = {1, 31, 33, 511, 512, 513, 3000};
    enum { UNITS = 5 };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(rows_of); i++) {
        size_t rows = rows_of[i];

        for (int relu = 0; relu < 2; relu++) {
            float *output = values(6, rows * UNITS);
            float *gradient = values(7, rows * UNITS);
            unsigned *seen = pl_memory_new(rows, sizeof(*seen), NULL);

            for (size_t unit = 0; unit < UNITS; unit++) {
                double expected = 0.0;

                for (size_t r = 0; r < rows; r++) {
                    expected += !relu || output[r * UNITS + unit] > 0.0F ? (double)gradient[r * UNITS + unit] : 0.0;
                }
                ck_assert_double_eq_tol(sum_column(rows, UNITS, unit, output, gradient, relu, seen), expected,
                                        1e-5 * (double)rows);
            }
            for (size_t at = 0; at < rows * UNITS; at++) {
                ck_assert_uint_eq(seen[at / UNITS], UNITS);
                ck_assert(gradient[at] == (relu && !(output[at] > 0.0F) ? 0.0F : value_at(7, at)));
            }
            free(output);
            free(gradient);
            free(seen);
        }
    }
}

TEST(softmax_is_stable_and_its_gradient_adds_up_to_nothing)
{
    const float logits[4] = {1000.0F, 999.0F, -1000.0F, 1000.5F};
    float gradient[4];
    double sum = 0.0;
    int hit;
    double loss = nn_softmax(logits, 4, 1, 2.0, gradient, &hit);

    ck_assert_double_eq_tol(loss, log(exp(0.0) + exp(-1.0) + exp(0.5)) + 1.0, 1e-12);
    ck_assert_int_eq(hit, 0);
    for (int c = 0; c < 4; c++) {
        double share = exp((double)logits[c] - 1000.0) / (exp(0.0) + exp(-1.0) + exp(0.5));

        ck_assert_double_eq_tol((double)gradient[c], 2.0 * (share - (c == 1)), 1e-6);
        sum += (double)gradient[c];
    }
    ck_assert_double_eq_tol(sum, 0.0, 1e-6);
    ck_assert_double_eq_tol(nn_softmax(logits, 4, 3, 0.0, NULL, &hit), loss - 1.5, 1e-12);
    ck_assert_int_eq(hit, 1);
}

TEST(bfloat16_is_rounded_to_the_nearest_even)
{
    for (uint32_t half = 0; half < 0x10000U; half++) {
        float value = nn_from_bfloat16((uint16_t)half);
        float next = nn_from_bfloat16((uint16_t)(half + 1));

        if (isnan(value)) {
            ck_assert(isnan(nn_from_bfloat16(nn_to_bfloat16(value))));
            continue;
        }
        ck_assert_uint_eq(nn_to_bfloat16(value), half);
        if (isfinite(value) && isfinite(next) && (half & 0x7FFFU) != 0x7FFFU) {
            float middle = (float)(((double)value + (double)next) / 2.0);

            ck_assert_uint_eq(nn_to_bfloat16(middle), half % 2 == 0 ? half : half + 1);
            ck_assert_uint_eq(nn_to_bfloat16(nextafterf(middle, value)), half);
            ck_assert_uint_eq(nn_to_bfloat16(nextafterf(middle, next)), half + 1);
        }
    }
}

UNIT_MAIN("examples/kernels")
