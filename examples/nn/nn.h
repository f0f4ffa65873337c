/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A small neural network: a chain of layers described by a list, run by a backend (OpenBLAS, or cuDNN and cuBLAS on a
 * GPU), with parameters whose memory belongs to the program, so that their gradients can lie in the buckets of a
 * gradient plan.
 *
 * Layouts  activations [samples][height][width][channels]; convolution kernels [out][kernel][kernel][in]; dense weights
 *          [out][in]: what cuDNN calls NHWC and KRSC, so that every backend shares checkpoints.
 * Threads  one thread a model; the backend may use more inside.
 * Test     tests/unit/examples/test_nn.c, and tests/gpu.sh on a GPU
 */
#ifndef EXAMPLES_NN_NN_H
#define EXAMPLES_NN_NN_H

#include "base/status.h"
#include "examples/nn/kernels.h"

#include <stddef.h>
#include <stdint.h>

enum nn_kind {
    NN_END,      /* closes a list of layers */
    NN_CONV,     /* square kernel, step 1, no padding, bias */
    NN_MAX_POOL, /* 2x2, step 2; an odd last row or column is left out; the first of those that are nearly equal wins */
    /* at training each value is dropped with probability `rate`, the others are scaled by 1 / (1 - rate) */
    NN_DROPOUT,
    NN_DENSE, /* all inputs of a sample to `outputs` sums, bias */
};

/** One layer of a description; fields that a kind does not use stay zero. */
struct nn_layer_spec {
    enum nn_kind kind;
    const char *name; /* "conv1"; parameters are called NAME.weight and NAME.bias */
    size_t outputs;   /* channels of a convolution, units of a dense layer */
    size_t kernel;    /* side of a convolution's kernel */
    bool relu;        /* max(0, x) after a convolution or dense layer */
    double rate;      /* of dropout */
};

struct nn_shape {
    size_t height;
    size_t width;
    size_t channels;
};

/** A layer with its shapes and memory; backends read it. */
struct nn_layer {
    struct nn_layer_spec spec;
    struct nn_shape in;
    struct nn_shape out;
    size_t in_elems; /* of one sample */
    size_t out_elems;
    uint32_t index; /* in the chain */

    float *weight; /* NULL in layers without parameters */
    float *bias;
    float *weight_gradient;
    float *bias_gradient;

    float *output;  /* [max_samples][out_elems]; dropout works in place on its input */
    uint8_t *where; /* max pooling: which of the four was largest */
};

enum { NN_PARAMETER_MAX_DIMS = 4, NN_PARAMETER_NAME_BYTES = 64 };

struct nn_parameter {
    char name[NN_PARAMETER_NAME_BYTES];
    unsigned dims;
    size_t shape[NN_PARAMETER_MAX_DIMS];
    size_t count_elems;
    size_t fan_in; /* inputs and outputs of one unit, for the initial values; 0 for a bias */
    size_t fan_out;
};

/**
 * What varies from one run over the model to the next. Dropout's choice depends on seed, step, layer, the element and
 * the sample's place in the whole job's step, which is first_sample + i * sample_stride for sample i: n ranks drop what
 * one rank with their samples together would drop.
 */
struct nn_pass {
    bool training;
    bool accumulate; /* add to the gradients instead of replacing them */
    uint64_t seed;
    uint64_t step;
    uint64_t first_sample;
    uint64_t sample_stride;
};

/** Summed over samples. */
struct nn_score {
    double loss_sum;
    uint64_t correct;
    uint64_t samples;
};

enum nn_precision {
    NN_FLOAT32,  /* everywhere */
    NN_TF32,     /* products of numbers rounded to 11 bits of mantissa, summed in float32; a GPU's */
    NN_BFLOAT16, /* products of numbers rounded to 8 bits, summed in float32; a GPU's */
};

/** Zero-initialise. */
struct nn_backend_options {
    int device; /* number of the GPU */
    enum nn_precision precision;
};

/** The parts of a batch. */
enum nn_part { NN_INPUT, NN_LABELS, NN_PARTS };

/**
 * A processor that can run layers. Memory it allocates is where activations and samples lie. Where it has a stream,
 * forward(), backward() and loss() return before their work is done: work given to that stream later runs after it.
 */
struct nn_backend {
    const char *name;
    /* PL_UNSUPPORTED when the processor or a precision is not there, in one sentence. */
    enum pl_status (*open)(const struct nn_backend_options *options, const struct nn_layer *layers, size_t layer_count,
                           size_t max_samples, void **ret_state, struct pl_error *reterr);
    void (*close)(void *state);
    void *(*allocate)(void *state, size_t count, size_t item_bytes, struct pl_error *reterr); /* zeroed */
    void (*release)(void *state, void *memory);
    bool (*owns)(void *state, const void *memory); /* whether layers can work on this memory */
    void *(*stream)(void *state);                  /* a CUstream; NULL when everything is done on return */
    /* Between any two of the host's and its own memory, after all work so far; done on return. */
    enum pl_status (*copy)(void *state, void *to, const void *from, size_t bytes, struct pl_error *reterr);
    /* Make a batch's `part` readable for layers until the next batch's; host memory that is not that already may change
     * on return. */
    enum pl_status (*upload)(void *state, enum nn_part part, const void *host, size_t bytes, const void **ret_memory,
                             struct pl_error *reterr);
    enum pl_status (*forward)(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                              const struct nn_pass *pass, struct pl_error *reterr);
    /* `output_gradient` may be changed; `input_gradient` is NULL when nobody needs it. In place for dropout. */
    enum pl_status (*backward)(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                               float *output_gradient, float *input_gradient, const struct nn_pass *pass,
                               struct pl_error *reterr);
    /* Softmax and cross-entropy, added to the score; `gradient` [samples][classes] gets d(loss_sum * gradient_scale)
     * unless NULL. Labels were uploaded and are below `classes`. */
    enum pl_status (*loss)(void *state, size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                           double gradient_scale, float *gradient, struct pl_error *reterr);
    enum pl_status (*set_score)(void *state, const struct nn_score *score, struct pl_error *reterr);
    enum pl_status (*get_score)(void *state, struct nn_score *ret_score, struct pl_error *reterr);
};

/** What kernels.h needs to know of a layer. */
static inline struct nn_dropout nn_layer_dropout(const struct nn_layer *layer, const struct nn_pass *pass)
{
    return (struct nn_dropout){.key = nn_mix(nn_mix(pass->seed, pass->step), layer->index),
                               .first_sample = pass->first_sample,
                               .sample_stride = pass->sample_stride,
                               .limit = (uint64_t)(layer->spec.rate * 65536.0),
                               .elems = layer->out_elems,
                               .scale = (float)(1.0 / (1.0 - layer->spec.rate))};
}

static inline struct nn_pool nn_layer_pool(const struct nn_layer *layer)
{
    return (struct nn_pool){.height = layer->in.height, .width = layer->in.width, .channels = layer->in.channels};
}

/** Layers on OpenBLAS; the number of its threads follows OPENBLAS_NUM_THREADS. */
extern const struct nn_backend nn_backend_blas;

struct nn_model;

/**
 * Build the chain `layers` (closed by NN_END) for inputs of shape `input` and at most `max_samples` at a time.
 * `options` NULL: all zero.
 *
 * Errors  PL_INVALID when a layer does not fit the shape before it, PL_MEMORY; PL_UNSUPPORTED from the backend.
 */
enum pl_status nn_model_new(const struct nn_backend *backend, const struct nn_backend_options *options,
                            const struct nn_layer_spec *layers, struct nn_shape input, size_t max_samples,
                            struct nn_model **ret_model, struct pl_error *reterr) PL_MUST_CHECK;
void nn_model_free(struct nn_model *model);

size_t nn_model_parameter_count(const struct nn_model *model);

/** In forward order; backward() finishes them in the opposite order. */
const struct nn_parameter *nn_model_parameter(const struct nn_model *model, size_t index);

/**
 * Where parameter `index` and its gradient lie; all must be bound before the first run. Either both in memory that the
 * backend can work on, or both in the host's: then a GPU works on copies, which every forward run and every completed
 * gradient costs a transfer.
 */
enum pl_status nn_model_bind(struct nn_model *model, size_t index, float *value, float *gradient,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Fill the bound values: uniform in +-sqrt(6 / (fan_in + fan_out)), biases zero; the same on every machine. */
enum pl_status nn_model_initialize(struct nn_model *model, uint64_t seed, struct pl_error *reterr) PL_MUST_CHECK;

/** The backend's stream, a CUstream, or NULL: gradients that are ready are complete for work that is given to it. */
void *nn_model_stream(const struct nn_model *model);

/** Classes, i.e. the elements of a sample's output. */
size_t nn_model_outputs(const struct nn_model *model);

/**
 * Run `samples` of `input` [samples][height][width][channels], in the host's memory, through the chain. It stays as it
 * is until the next run.
 */
enum pl_status nn_model_forward(struct nn_model *model, const float *input, size_t samples, const struct nn_pass *pass,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Copy the outputs of the last forward run, [samples][outputs], to the host's `ret_output`. */
enum pl_status nn_model_output(struct nn_model *model, float *ret_output, struct pl_error *reterr) PL_MUST_CHECK;

/** Count from `score` on; NULL: from zero, as a new model does. */
enum pl_status nn_model_set_score(struct nn_model *model, const struct nn_score *score,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** What was scored since, on top of that. Waits for a GPU, so not in every step. */
enum pl_status nn_model_score(struct nn_model *model, struct nn_score *ret_score,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Score the last forward run's samples. PL_INVALID: a label is not below nn_model_outputs(). */
enum pl_status nn_model_loss(struct nn_model *model, const uint8_t *labels, struct pl_error *reterr) PL_MUST_CHECK;

/** Called when the gradient of parameter `index` is complete, last parameter first. */
typedef enum pl_status nn_ready(void *context, size_t index, struct pl_error *reterr);

/**
 * Score the last forward run as nn_model_loss() and compute the gradients of the mean loss of its samples.
 * `ready` may be NULL.
 */
enum pl_status nn_model_backward(struct nn_model *model, const uint8_t *labels, const struct nn_pass *pass,
                                 nn_ready *ready, void *context, struct pl_error *reterr) PL_MUST_CHECK;

/** A well mixed word for each pair of words (the finalizer of SplitMix64 over key and counter). */
uint64_t nn_random(uint64_t key, uint64_t counter);

#endif
