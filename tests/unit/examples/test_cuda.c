/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/nn/nn_cuda.c, examples/nn/conv_cuda.c, examples/nn/launch_cuda.cu. */
/* The layers on a GPU against those on the CPU. Skips if there is no GPU. */
#include "examples/nn/nn.h"

#include "base/memory.h"
#include "device/device.h"
#include "device/device_private.h"
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PARAMETERS = 16, SAMPLES = 48 };

static const struct nn_layer_spec digits[] = {
    {.kind = NN_CONV, .name = "conv1", .outputs = 32, .kernel = 3, .relu = true},
    {.kind = NN_CONV, .name = "conv2", .outputs = 64, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool"},
    {.kind = NN_DROPOUT, .name = "dropout1", .rate = 0.25},
    {.kind = NN_DENSE, .name = "dense1", .outputs = 128, .relu = true},
    {.kind = NN_DROPOUT, .name = "dropout2", .rate = 0.5},
    {.kind = NN_DENSE, .name = "dense2", .outputs = 10},
    {.kind = NN_END},
};

/* Odd sizes, three colours, no max(0, x) after the convolution. */
static const struct nn_layer_spec odd[] = {
    {.kind = NN_CONV, .name = "c1", .outputs = 5, .kernel = 2},
    {.kind = NN_MAX_POOL, .name = "p"},
    {.kind = NN_CONV, .name = "c2", .outputs = 40, .kernel = 3, .relu = true},
    {.kind = NN_DENSE, .name = "d", .outputs = 7},
    {.kind = NN_END},
};

static const struct nn_shape digits_shape = {.height = 28, .width = 28, .channels = 1};
static const struct nn_shape odd_shape = {.height = 14, .width = 12, .channels = 3};

/* Set by main(). */
static const struct nn_backend *cuda;

struct fixture {
    struct nn_model *model;
    size_t count;
    float *values[MAX_PARAMETERS], *gradients[MAX_PARAMETERS];
};

static void setup(struct fixture *f, const struct nn_backend *backend, enum nn_precision precision,
                  const struct nn_layer_spec *layers, struct nn_shape shape)
{
    struct nn_backend_options options = {.precision = precision};

    memset(f, 0, sizeof(*f));
    ck_ok(nn_model_new, backend, &options, layers, shape, SAMPLES, &f->model);
    f->count = nn_model_parameter_count(f->model);
    for (size_t i = 0; i < f->count; i++) {
        f->values[i] = pl_memory_new(nn_model_parameter(f->model, i)->count_elems, sizeof(float), NULL);
        f->gradients[i] = pl_memory_new(nn_model_parameter(f->model, i)->count_elems, sizeof(float), NULL);
        ck_ok(nn_model_bind, f->model, i, f->values[i], f->gradients[i]);
    }
    ck_ok(nn_model_initialize, f->model, 5);
}

static void teardown(struct fixture *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->values[i]);
        free(f->gradients[i]);
    }
    nn_model_free(f->model);
}

/* Returns |one - other| / |other| over all elements; a NaN counts as a large distance. */
static double distance(const float *one, const float *other, size_t count)
{
    double apart = 0.0, size = 0.0, found;

    for (size_t i = 0; i < count; i++) {
        apart += ((double)one[i] - (double)other[i]) * ((double)one[i] - (double)other[i]);
        size += (double)other[i] * (double)other[i];
    }
    found = sqrt(apart / (size > 0.0 ? size : 1.0));
    return isfinite(found) ? found : HUGE_VAL;
}

static void fill(float *input, size_t count, uint8_t *labels, size_t samples, size_t classes, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        input[i] = (float)((double)(nn_random(seed, i) >> 11) * 0x1p-53);
    }
    for (size_t i = 0; i < samples; i++) {
        labels[i] = (uint8_t)(nn_random(seed + 1, i) % classes);
    }
}

/* Runs forward and backward with the same batch on both; the gradients have wrong values before. */
static void step(struct fixture *f, const float *input, const uint8_t *labels, size_t samples, bool accumulate)
{
    struct nn_pass pass = {
        .training = true, .accumulate = accumulate, .seed = 3, .step = 9, .first_sample = 1, .sample_stride = 2};

    for (size_t p = 0; !accumulate && p < f->count; p++) {
        memset(f->gradients[p], 0xFF, nn_model_parameter(f->model, p)->count_elems * sizeof(float));
    }
    ck_ok(nn_model_forward, f->model, input, samples, &pass);
    ck_ok(nn_model_backward, f->model, labels, &pass, NULL, NULL);
}

/* Gradients differ by more than outputs: if a sum is almost zero, or if two of four values are almost equal, rounding
 * decides which one gets a gradient. */
static void compare(const struct nn_layer_spec *layers, struct nn_shape shape, enum nn_precision precision,
                    double tolerance, double gradient_tolerance)
{
    const size_t samples_of[] = {SAMPLES, 1, 33};
    struct fixture gpu, cpu;
    size_t elems = shape.height * shape.width * shape.channels;
    float *input = pl_memory_new(SAMPLES * elems, sizeof(float), NULL);
    uint8_t labels[SAMPLES];

    setup(&gpu, cuda, precision, layers, shape);
    setup(&cpu, &nn_backend_blas, NN_FLOAT32, layers, shape);
    for (size_t round = 0; round < PL_ARRAY_ITEMS(samples_of); round++) {
        size_t samples = samples_of[round], classes = nn_model_outputs(cpu.model);
        float gpu_output[SAMPLES * 10], cpu_output[SAMPLES * 10];
        struct nn_score gpu_score, cpu_score;

        fill(input, samples * elems, labels, samples, classes, 100 + round);
        ck_ok(nn_model_set_score, gpu.model, NULL);
        ck_ok(nn_model_set_score, cpu.model, NULL);
        step(&gpu, input, labels, samples, false);
        step(&cpu, input, labels, samples, false);
        ck_ok(nn_model_output, gpu.model, gpu_output);
        ck_ok(nn_model_output, cpu.model, cpu_output);
        ck_assert_double_le(distance(gpu_output, cpu_output, samples * classes), tolerance);
        for (size_t p = 0; p < cpu.count; p++) {
            const struct nn_parameter *parameter = nn_model_parameter(cpu.model, p);
            double apart = distance(gpu.gradients[p], cpu.gradients[p], parameter->count_elems);

            ck_assert_msg(apart <= gradient_tolerance, "%zu samples: the gradient of %s is %g apart", samples,
                          parameter->name, apart);
            ck_assert_mem_eq(gpu.values[p], cpu.values[p], parameter->count_elems * sizeof(float));
        }
        ck_ok(nn_model_score, gpu.model, &gpu_score);
        ck_ok(nn_model_score, cpu.model, &cpu_score);
        ck_assert_double_eq_tol(gpu_score.loss_sum, cpu_score.loss_sum, 10.0 * tolerance * cpu_score.loss_sum);
        ck_assert_uint_eq(gpu_score.samples, samples);
        ck_assert(precision != NN_FLOAT32 || gpu_score.correct == cpu_score.correct);
    }
    free(input);
    teardown(&gpu);
    teardown(&cpu);
}

UNIT_TEST(the_digit_classifier_computes_what_it_computes_on_the_cpu,
          compare(digits, digits_shape, NN_FLOAT32, 1e-5, 3e-3))

UNIT_TEST(odd_shapes_compute_what_they_compute_on_the_cpu, compare(odd, odd_shape, NN_FLOAT32, 1e-5, 3e-3))

TEST(reduced_precision_stays_near_the_cpu)
{
    compare(digits, digits_shape, NN_TF32, 5e-3, 5e-2);
    compare(digits, digits_shape, NN_BFLOAT16, 3e-2, 0.2);
    compare(odd, odd_shape, NN_BFLOAT16, 3e-2, 0.2);
}

TEST(two_runs_give_the_same_bits)
{
    struct fixture one, other;
    float *input = pl_memory_new((size_t)SAMPLES * 784, sizeof(float), NULL);
    uint8_t labels[SAMPLES];

    setup(&one, cuda, NN_FLOAT32, digits, digits_shape);
    setup(&other, cuda, NN_FLOAT32, digits, digits_shape);
    fill(input, (size_t)SAMPLES * 784, labels, SAMPLES, 10, 1);
    step(&one, input, labels, SAMPLES, false);
    step(&other, input, labels, SAMPLES, false);
    for (size_t p = 0; p < one.count; p++) {
        ck_assert_mem_eq(one.gradients[p], other.gradients[p],
                         nn_model_parameter(one.model, p)->count_elems * sizeof(float));
    }
    free(input);
    teardown(&one);
    teardown(&other);
}

/* Gradients are accumulated in the memory where the layers work; here this is the model's own copy. */
TEST(a_second_pass_adds_to_the_first)
{
    struct fixture f;
    float *once[MAX_PARAMETERS];
    float *input = pl_memory_new((size_t)SAMPLES * 504, sizeof(float), NULL);
    uint8_t labels[SAMPLES];

    for (enum nn_precision precision = NN_FLOAT32; precision <= NN_BFLOAT16; precision++) {
        setup(&f, cuda, precision, odd, odd_shape);
        fill(input, (size_t)SAMPLES * 504, labels, SAMPLES, 7, 1);
        step(&f, input, labels, SAMPLES, false);
        for (size_t p = 0; p < f.count; p++) {
            size_t count = nn_model_parameter(f.model, p)->count_elems;

            once[p] = pl_memory_new(count, sizeof(float), NULL);
            memcpy(once[p], f.gradients[p], count * sizeof(float));
        }
        step(&f, input, labels, SAMPLES, true);
        for (size_t p = 0; p < f.count; p++) {
            size_t count = nn_model_parameter(f.model, p)->count_elems;

            for (size_t e = 0; e < count; e++) {
                once[p][e] *= 2.0F;
            }
            ck_assert_double_le(distance(f.gradients[p], once[p], count), 1e-5);
            free(once[p]);
        }
        teardown(&f);
    }
    free(input);
}

TEST(parameters_in_device_memory_are_used_in_place)
{
    struct fixture f, host;
    struct pl_device *device = NULL;
    float *input = pl_memory_new((size_t)SAMPLES * 504, sizeof(float), NULL);
    uint8_t labels[SAMPLES];
    void *memory[2 * MAX_PARAMETERS] = {0};

    ck_ok(pl_device_open, 0, &device);
    setup(&f, cuda, NN_FLOAT32, odd, odd_shape);
    setup(&host, cuda, NN_FLOAT32, odd, odd_shape);
    for (size_t p = 0; p < f.count; p++) {
        uint64_t bytes = nn_model_parameter(f.model, p)->count_elems * sizeof(float);

        ck_ok(pl_device_alloc, device, bytes, &memory[2 * p]);
        ck_ok(pl_device_alloc, device, bytes, &memory[2 * p + 1]);
        ck_ok(nn_model_bind, f.model, p, memory[2 * p], memory[2 * p + 1]);
    }
    ck_ok(nn_model_initialize, f.model, 5);
    fill(input, (size_t)SAMPLES * 504, labels, SAMPLES, 7, 1);
    step(&f, input, labels, SAMPLES, false);
    step(&host, input, labels, SAMPLES, false);
    for (size_t p = 0; p < f.count; p++) {
        uint64_t bytes = nn_model_parameter(f.model, p)->count_elems * sizeof(float);
        float *copy = pl_memory_new(1, bytes, NULL);
        void *stream = nn_model_stream(f.model);

        ck_ok(pl_device_copy, device, copy, memory[2 * p + 1], bytes, stream);
        ck_ok(pl_device_stream_finish, device, stream, INT64_MAX);
        ck_assert_mem_eq(copy, host.gradients[p], bytes);
        free(copy);
    }
    teardown(&f);
    teardown(&host);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(memory); i++) {
        pl_device_release(device, memory[i]);
    }
    pl_device_close(device);
    free(input);
}

static int prepare(void)
{
    struct pl_error error = PL_ERROR_NONE;
    char text[PL_ERROR_CAUSE_BYTES];
    void *plugin;
    int count = 0;

    if (pl_device_count(&count, &error) != PL_OK) {
        printf("%s\n", pl_error_text(&error, text, sizeof(text)));
        return 77;
    }
    plugin = dlopen(NN_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cuda = plugin ? dlsym(plugin, "nn_backend_cuda") : NULL;
    if (!cuda) {
        printf("%s\n", dlerror());
        return EXIT_FAILURE;
    }
    return 0;
}

UNIT_MAIN_AFTER("examples/cuda", prepare())
