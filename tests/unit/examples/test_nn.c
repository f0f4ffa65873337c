/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/nn/model.c, examples/nn/plan.c. */
#include "examples/nn/nn.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PARAMETERS = 16 };

/* A model with its own plain memory. */
struct fixture {
    struct nn_model *model;
    float *values[MAX_PARAMETERS];
    float *gradients[MAX_PARAMETERS];
};

static void setup_on(struct fixture *f, const struct nn_backend *backend, const struct nn_layer_spec *layers,
                     struct nn_shape input, size_t max_samples, uint64_t seed)
{
    memset(f, 0, sizeof(*f));
    ck_ok(nn_model_new, backend, NULL, layers, input, max_samples, &f->model);
    for (size_t i = 0; i < nn_model_parameter_count(f->model); i++) {
        f->values[i] = pl_memory_new(nn_model_parameter(f->model, i)->count_elems, sizeof(float), NULL);
        f->gradients[i] = pl_memory_new(nn_model_parameter(f->model, i)->count_elems, sizeof(float), NULL);
        ck_ok(nn_model_bind, f->model, i, f->values[i], f->gradients[i]);
    }
    ck_ok(nn_model_initialize, f->model, seed);
}

static void setup(struct fixture *f, const struct nn_layer_spec *layers, struct nn_shape input, size_t max_samples,
                  uint64_t seed)
{
    setup_on(f, &nn_backend_blas, layers, input, max_samples, seed);
}

static void teardown(struct fixture *f)
{
    for (size_t i = 0; i < nn_model_parameter_count(f->model); i++) {
        free(f->values[i]);
        free(f->gradients[i]);
    }
    nn_model_free(f->model);
}

static double unit_random(uint64_t key, uint64_t counter)
{
    return (double)(nn_random(key, counter) >> 11) * 0x1p-53;
}

static double mean_loss(struct fixture *f, const float *input, const uint8_t *labels, size_t samples,
                        const struct nn_pass *pass)
{
    struct nn_score score;

    ck_ok(nn_model_set_score, f->model, NULL);
    ck_ok(nn_model_forward, f->model, input, samples, pass);
    ck_ok(nn_model_loss, f->model, labels);
    ck_ok(nn_model_score, f->model, &score);
    return score.loss_sum / (double)samples;
}

static enum pl_status count_ready(void *context, size_t index, struct pl_error *reterr)
{
    size_t *expected = context;

    *expected -= 1;
    ck_assert_uint_eq(index, *expected);
    return PL_OK;
}

/* Compares backward() with the slope of the loss between value - h and value + h, for some elements of each
 * parameter. */
static void check_gradients(const struct nn_layer_spec *layers, struct nn_shape shape, size_t kinks_of_20)
{
    enum { SAMPLES = 5 };
    struct fixture f;
    struct nn_pass pass = {.training = true, .seed = 7, .step = 3, .first_sample = 1, .sample_stride = 2};
    size_t elems = shape.height * shape.width * shape.channels;
    float *input = pl_memory_new(SAMPLES * elems, sizeof(float), NULL);
    uint8_t labels[SAMPLES] = {0, 2, 1, 2, 0};
    struct nn_score score;
    size_t ready;
    size_t checked = 0;
    size_t kinks = 0; /* if the largest of four changes between the two values, there is no slope to compare */

    setup(&f, layers, shape, SAMPLES, 11);
    for (size_t i = 0; i < SAMPLES * elems; i++) {
        input[i] = (float)unit_random(5, i);
    }
    for (size_t p = 1; p < nn_model_parameter_count(f.model); p += 2) {
        for (size_t e = 0; e < nn_model_parameter(f.model, p)->count_elems; e++) {
            /* biases far enough from zero, where max(0, x) has no slope */
            f.values[p][e] = (float)(unit_random(p, e) * 0.2);
        }
    }
    ready = nn_model_parameter_count(f.model);
    ck_ok(nn_model_forward, f.model, input, SAMPLES, &pass);
    ck_ok(nn_model_backward, f.model, labels, &pass, count_ready, &ready);
    ck_ok(nn_model_score, f.model, &score);
    ck_assert_uint_eq(ready, 0);
    ck_assert_uint_eq(score.samples, SAMPLES);
    for (size_t p = 0; p < nn_model_parameter_count(f.model); p++) {
        size_t count = nn_model_parameter(f.model, p)->count_elems;
        double scale = 0.0;

        for (size_t e = 0; e < count; e++) {
            scale = fmax(scale, fabs((double)f.gradients[p][e]));
        }
        ck_assert_double_gt(scale, 1e-4);
        for (size_t e = 0; e < count; e += 1 + count / 40) {
            const float h = 1e-3F;
            float value = f.values[p][e];
            double above;
            double below;

            f.values[p][e] = value + h;
            above = mean_loss(&f, input, labels, SAMPLES, &pass);
            f.values[p][e] = value - h;
            below = mean_loss(&f, input, labels, SAMPLES, &pass);
            f.values[p][e] = value;
            checked++;
            if (fabs((above - below) / (2.0 * (double)h) - (double)f.gradients[p][e]) >= 0.02 * scale) {
                kinks++;
                fprintf(stderr, "%s[%zu]: slope %g, gradient %g\n", nn_model_parameter(f.model, p)->name, e,
                        (above - below) / (2.0 * (double)h), (double)f.gradients[p][e]);
            }
        }
    }
    ck_assert_uint_ge(checked, 10);
    ck_assert_uint_le(kinks * 20, checked * kinks_of_20);
    free(input);
    teardown(&f);
}

TEST(gradients_of_a_dense_layer_are_the_slopes_of_the_loss)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_DENSE, .name = "d", .outputs = 3}, {.kind = NN_END}};

    check_gradients(layers, (struct nn_shape){.height = 1, .width = 1, .channels = 6}, 0);
}

TEST(gradients_of_two_dense_layers_with_relu_are_the_slopes_of_the_loss)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_DENSE, .name = "d1", .outputs = 8, .relu = true},
                                           {.kind = NN_DENSE, .name = "d2", .outputs = 3},
                                           {.kind = NN_END}};

    check_gradients(layers, (struct nn_shape){.height = 1, .width = 1, .channels = 6}, 0);
}

TEST(gradients_of_convolutions_are_the_slopes_of_the_loss)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c1", .outputs = 4, .kernel = 3},
                                           {.kind = NN_CONV, .name = "c2", .outputs = 5, .kernel = 2},
                                           {.kind = NN_DENSE, .name = "d", .outputs = 3},
                                           {.kind = NN_END}};

    check_gradients(layers, (struct nn_shape){.height = 7, .width = 6, .channels = 2}, 0);
}

TEST(gradients_through_pooling_and_dropout_are_the_slopes_of_the_loss)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c1", .outputs = 4, .kernel = 3},
                                           {.kind = NN_MAX_POOL, .name = "p"},
                                           {.kind = NN_DROPOUT, .name = "o", .rate = 0.25},
                                           {.kind = NN_DENSE, .name = "d", .outputs = 3},
                                           {.kind = NN_END}};

    check_gradients(layers, (struct nn_shape){.height = 9, .width = 7, .channels = 1}, 2);
}

/* A convolution by its definition. */
TEST(convolution_equals_its_definition)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c", .outputs = 3, .kernel = 2, .relu = true},
                                           {.kind = NN_END}};
    struct nn_pass pass = {0};
    struct fixture f;
    float input[2 * 3 * 4 * 2];
    float output[2 * 2 * 3 * 3];

    setup(&f, layers, (struct nn_shape){.height = 3, .width = 4, .channels = 2}, 2, 3);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(input); i++) {
        input[i] = (float)unit_random(1, i);
    }
    f.values[1][0] = 0.5F;
    ck_ok(nn_model_forward, f.model, input, 2, &pass);
    ck_ok(nn_model_output, f.model, output);
    for (size_t at = 0; at < PL_ARRAY_ITEMS(output); at++) {
        size_t o = at % 3;
        size_t x = at / 3 % 3;
        size_t y = at / 9 % 2;
        size_t s = at / 18;
        double sum = (double)f.values[1][o];

        for (size_t ky = 0; ky < 2; ky++) {
            for (size_t kx = 0; kx < 2; kx++) {
                for (size_t c = 0; c < 2; c++) {
                    sum += (double)input[((s * 3 + y + ky) * 4 + x + kx) * 2 + c] *
                           (double)f.values[0][((o * 2 + ky) * 2 + kx) * 2 + c];
                }
            }
        }
        ck_assert_double_eq_tol((double)output[at], fmax(sum, 0.0), 1e-5);
    }
    teardown(&f);
}

TEST(dropout_of_four_ranks_together_is_that_of_one)
{
    enum { SAMPLES = 8, ELEMS = 1001, RANKS = 4 };
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c", .outputs = 1, .kernel = 1},
                                           {.kind = NN_DROPOUT, .name = "o", .rate = 0.5},
                                           {.kind = NN_END}};
    struct nn_pass pass = {.training = true, .seed = 9, .step = 4, .sample_stride = 1};
    struct fixture f;
    float *input = pl_memory_new((size_t)SAMPLES * ELEMS, sizeof(float), NULL);
    float *whole = pl_memory_new((size_t)SAMPLES * ELEMS, sizeof(float), NULL);
    float *part = pl_memory_new((size_t)SAMPLES * ELEMS, sizeof(float), NULL);
    size_t dropped = 0;

    setup(&f, layers, (struct nn_shape){.height = 1, .width = ELEMS, .channels = 1}, SAMPLES, 3);
    f.values[0][0] = 1.0F;
    for (size_t i = 0; i < (size_t)SAMPLES * ELEMS; i++) {
        input[i] = 1.0F;
    }
    ck_ok(nn_model_forward, f.model, input, SAMPLES, &pass);
    ck_ok(nn_model_output, f.model, whole);
    for (size_t i = 0; i < (size_t)SAMPLES * ELEMS; i++) {
        ck_assert(whole[i] == 0.0F || whole[i] == 2.0F);
        dropped += whole[i] == 0.0F;
    }
    ck_assert_double_eq_tol((double)dropped / (SAMPLES * ELEMS), 0.5, 0.03);
    pass.sample_stride = RANKS;
    for (size_t rank = 0; rank < RANKS; rank++) {
        pass.first_sample = rank;
        ck_ok(nn_model_forward, f.model, input, SAMPLES / RANKS, &pass);
        ck_ok(nn_model_output, f.model, part);
        for (size_t s = 0; s < SAMPLES / RANKS; s++) {
            ck_assert_mem_eq(part + s * ELEMS, whole + (s * RANKS + rank) * ELEMS, ELEMS * sizeof(float));
        }
    }
    pass.training = false;
    ck_ok(nn_model_forward, f.model, input, 1, &pass);
    ck_ok(nn_model_output, f.model, part);
    ck_assert_mem_eq(part, input, ELEMS * sizeof(float));
    free(input);
    free(part);
    free(whole);
    teardown(&f);
}

TEST(accumulating_two_halves_gives_the_gradient_of_the_whole)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c", .outputs = 3, .kernel = 2, .relu = true},
                                           {.kind = NN_DENSE, .name = "d", .outputs = 3},
                                           {.kind = NN_END}};
    struct nn_pass pass = {.training = true};
    struct fixture f;
    float input[4 * 9];
    uint8_t labels[4] = {0, 1, 2, 1};
    float whole[3];

    setup(&f, layers, (struct nn_shape){.height = 3, .width = 3, .channels = 1}, 4, 3);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(input); i++) {
        input[i] = (float)unit_random(1, i);
    }
    ck_ok(nn_model_forward, f.model, input, 4, &pass);
    ck_ok(nn_model_backward, f.model, labels, &pass, NULL, NULL);
    memcpy(whole, f.gradients[1], sizeof(whole));
    for (size_t half = 0; half < 2; half++) {
        pass.accumulate = half > 0;
        ck_ok(nn_model_forward, f.model, input + half * 18, 2, &pass);
        ck_ok(nn_model_backward, f.model, labels + half * 2, &pass, NULL, NULL);
    }
    for (size_t e = 0; e < 3; e++) {
        ck_assert_double_eq_tol((double)f.gradients[1][e] / 2.0, (double)whole[e], 1e-6);
    }
    teardown(&f);
}

/* A processor that, like a GPU, cannot work in the program's memory: it accepts only memory that it allocated. */
static void *own_memory[64];
static size_t own_count;

static void *own_allocate(void *state, size_t count, size_t item_bytes, struct pl_error *reterr)
{
    ck_assert_uint_lt(own_count, PL_ARRAY_ITEMS(own_memory));
    own_memory[own_count] = nn_backend_blas.allocate(state, count, item_bytes, reterr);
    return own_memory[own_count++];
}

static bool own_owns(void *state, const void *memory)
{
    for (size_t i = 0; i < own_count; i++) {
        if (own_memory[i] == memory) {
            return true;
        }
    }
    return false;
}

static enum pl_status own_forward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                  const struct nn_pass *pass, struct pl_error *reterr)
{
    ck_assert(!layer->weight || (own_owns(state, layer->weight) && own_owns(state, layer->bias)));
    ck_assert(!layer->weight_gradient ||
              (own_owns(state, layer->weight_gradient) && own_owns(state, layer->bias_gradient)));
    return nn_backend_blas.forward(state, layer, samples, input, pass, reterr);
}

TEST(parameters_in_memory_that_a_processor_cannot_use_are_copied_there_and_back)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_CONV, .name = "c", .outputs = 3, .kernel = 2, .relu = true},
                                           {.kind = NN_MAX_POOL, .name = "p"},
                                           {.kind = NN_DENSE, .name = "d", .outputs = 3},
                                           {.kind = NN_END}};
    struct nn_backend elsewhere = nn_backend_blas;
    const struct nn_backend *backends[] = {&nn_backend_blas, &elsewhere};
    struct nn_shape shape = {.height = 5, .width = 5, .channels = 1};
    struct nn_pass pass = {.training = true};
    uint8_t labels[2] = {2, 1};
    struct fixture f[2];
    float input[50];

    elsewhere.allocate = own_allocate;
    elsewhere.owns = own_owns;
    elsewhere.forward = own_forward;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(input); i++) {
        input[i] = (float)unit_random(1, i);
    }
    for (size_t which = 0; which < 2; which++) {
        setup_on(&f[which], backends[which], layers, shape, 2, 3);
        for (int step = 0; step < 2; step++) { /* the second step uses values that the program has changed */
            ck_ok(nn_model_forward, f[which].model, input, 2, &pass);
            ck_ok(nn_model_backward, f[which].model, labels, &pass, NULL, NULL);
            for (size_t p = 0; p < nn_model_parameter_count(f[which].model); p++) {
                for (size_t e = 0; e < nn_model_parameter(f[which].model, p)->count_elems; e++) {
                    f[which].values[p][e] -= f[which].gradients[p][e];
                }
            }
        }
    }
    for (size_t p = 0; p < nn_model_parameter_count(f[0].model); p++) {
        ck_assert_mem_eq(f[0].values[p], f[1].values[p],
                         nn_model_parameter(f[0].model, p)->count_elems * sizeof(float));
    }
    teardown(&f[0]);
    teardown(&f[1]);
}

TEST(a_score_goes_on_from_where_it_is_set)
{
    const struct nn_layer_spec layers[] = {{.kind = NN_DENSE, .name = "d", .outputs = 3}, {.kind = NN_END}};
    struct nn_score from = {.loss_sum = 100.0, .correct = 7, .samples = 20};
    struct nn_score once, score;
    struct nn_pass pass = {0};
    struct fixture f;
    float input[2] = {0.5F, -1.0F};
    uint8_t label = 1;

    setup(&f, layers, (struct nn_shape){.height = 1, .width = 1, .channels = 2}, 1, 1);
    ck_ok(nn_model_forward, f.model, input, 1, &pass);
    ck_ok(nn_model_loss, f.model, &label);
    ck_ok(nn_model_score, f.model, &once);
    ck_assert_uint_eq(once.samples, 1);
    ck_ok(nn_model_set_score, f.model, &from);
    for (int i = 0; i < 2; i++) {
        ck_ok(nn_model_loss, f.model, &label);
    }
    ck_ok(nn_model_score, f.model, &score);
    ck_assert_double_eq_tol(score.loss_sum, 100.0 + 2.0 * once.loss_sum, 1e-9);
    ck_assert_uint_eq(score.samples, 22);
    ck_assert_uint_eq(score.correct, 7 + 2 * once.correct);
    teardown(&f);
}

TEST(what_does_not_fit_is_refused)
{
    const struct nn_layer_spec too_large[] = {{.kind = NN_CONV, .name = "c", .outputs = 3, .kernel = 5},
                                              {.kind = NN_END}};
    const struct nn_layer_spec bad_rate[] = {{.kind = NN_DENSE, .name = "d", .outputs = 3},
                                             {.kind = NN_DROPOUT, .name = "o", .rate = 1.0},
                                             {.kind = NN_END}};
    const struct nn_layer_spec fine[] = {{.kind = NN_DENSE, .name = "d", .outputs = 3}, {.kind = NN_END}};
    struct nn_shape shape = {.height = 4, .width = 4, .channels = 1};
    struct nn_backend_options tf32 = {.precision = NN_TF32};
    struct nn_model *model = NULL;
    struct nn_pass pass = {0};
    struct fixture f;
    float input[16] = {0};
    uint8_t label = 3;

    ck_assert_int_eq(nn_model_new(&nn_backend_blas, NULL, too_large, shape, 1, &model, NULL), PL_INVALID);
    ck_assert_int_eq(nn_model_new(&nn_backend_blas, NULL, bad_rate, shape, 1, &model, NULL), PL_INVALID);
    ck_assert_int_eq(nn_model_new(&nn_backend_blas, NULL, fine, shape, 0, &model, NULL), PL_INVALID);
    ck_assert_int_eq(nn_model_new(&nn_backend_blas, &tf32, fine, shape, 1, &model, NULL), PL_UNSUPPORTED);
    setup(&f, fine, shape, 1, 1);
    ck_ok(nn_model_forward, f.model, input, 1, &pass);
    ck_fails(PL_INVALID, "", nn_model_loss, f.model, &label);
    teardown(&f);
}

UNIT_MAIN("examples/nn")
