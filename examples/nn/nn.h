/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A small neural network: a list describes a chain of layers, and a backend runs it (OpenBLAS, or cuDNN and cuBLAS on a
 * GPU). The program owns the parameters' memory, so gradients can be in the buckets of a gradient plan.
 *
 * Layouts  activations [samples][height][width][channels]; convolution kernels [out][kernel][kernel][in]; dense weights
 *          [out][in]. cuDNN calls these NHWC and KRSC; all backends use them, so they share checkpoints.
 * Threads  one thread per model; the backend may use more internally.
 * Test     tests/unit/examples/test_nn.c, and tests/gpu.sh on a GPU
 */
#ifndef EXAMPLES_NN_NN_H
#define EXAMPLES_NN_NN_H

#include "base/status.h"
#include "examples/nn/kernels.h"

#include <stddef.h>
#include <stdint.h>

enum nn_kind {
    NN_END,      /* end of a list of layers */
    NN_CONV,     /* square kernel, step 1, no padding, bias */
    NN_MAX_POOL, /* 2x2, step 2; an odd last row or column is left out; the first of nearly equal values wins */
    /* in training, each value becomes 0 with probability `rate`; the others are scaled by 1 / (1 - rate) */
    NN_DROPOUT,
    NN_DENSE, /* `outputs` units, each with all inputs of a sample and a bias */
};

/** Description of a layer. Fields that its kind does not use are zero. */
struct nn_layer_spec {
    enum nn_kind kind;
    const char *name; /* for example "conv1"; parameters are called NAME.weight and NAME.bias */
    size_t outputs;   /* channels of a convolution, units of a dense layer */
    size_t kernel;    /* side of a convolution's kernel */
    bool relu;        /* max(0, x) after a convolution or dense layer */
    double rate;      /* probability for NN_DROPOUT */
};

struct nn_shape {
    size_t height;
    size_t width;
    size_t channels;
};

/** A layer with its shapes and memory; backends read this struct. */
struct nn_layer {
    struct nn_layer_spec spec;
    struct nn_shape in;
    struct nn_shape out;
    size_t in_elems; /* number of elements of a sample */
    size_t out_elems;
    uint32_t index; /* position in the chain */

    float *weight; /* NULL in layers without parameters */
    float *bias;
    float *weight_gradient;
    float *bias_gradient;

    float *output;  /* [max_samples][out_elems]; for dropout this is the input, changed in place */
    uint8_t *where; /* max pooling: index of the largest of the four values */
};

enum { NN_PARAMETER_MAX_DIMS = 4, NN_PARAMETER_NAME_BYTES = 64 };

struct nn_parameter {
    char name[NN_PARAMETER_NAME_BYTES];
    unsigned dims;
    size_t shape[NN_PARAMETER_MAX_DIMS];
    size_t count_elems;
    size_t fan_in; /* number of inputs and outputs of one unit, for the initial values; 0 for a bias */
    size_t fan_out;
};

/**
 * Arguments that vary between runs of the model. Dropout depends on the seed, the step, the layer, the element, and the
 * number of the sample in the job's step. Sample i has the number first_sample + i * sample_stride, so n ranks drop the
 * same values as one rank with all their samples.
 */
struct nn_pass {
    bool training;
    bool accumulate; /* add to the gradients instead of replacing them */
    uint64_t seed;
    uint64_t step;
    uint64_t first_sample;
    uint64_t sample_stride;
};

/** Sums over samples. */
struct nn_score {
    double loss_sum;
    uint64_t correct;
    uint64_t samples;
};

enum nn_precision {
    NN_FLOAT32,  /* on all processors */
    NN_TF32,     /* only on a GPU: factors are rounded to 11 bits of mantissa, and products summed in float32 */
    NN_BFLOAT16, /* only on a GPU: factors are rounded to 8 bits of mantissa, and products summed in float32 */
};

/** Options of a backend; zero-initialise them. */
struct nn_backend_options {
    int device; /* number of the GPU */
    enum nn_precision precision;
};

/** The parts of a batch. */
enum nn_part { NN_INPUT, NN_LABELS, NN_PARTS };

/**
 * A processor that can run layers. It allocates the memory of activations and samples. If it has a stream, forward(),
 * backward() and loss() may return before their work is done; later work on that stream runs after it.
 */
struct nn_backend {
    const char *name;
    /* PL_UNSUPPORTED, with the reason in one sentence: there is no such processor, or it lacks the precision. */
    enum pl_status (*open)(const struct nn_backend_options *options, const struct nn_layer *layers, size_t layer_count,
                           size_t max_samples, void **ret_state, struct pl_error *reterr);
    void (*close)(void *state);
    void *(*allocate)(void *state, size_t count, size_t item_bytes, struct pl_error *reterr); /* zeroed */
    void (*release)(void *state, void *memory);
    bool (*owns)(void *state, const void *memory); /* whether layers can use this memory */
    void *(*stream)(void *state);                  /* a CUstream; NULL: all work is done on return */
    /* Copies between host memory and backend memory, in any direction, after all earlier work; done on return. */
    enum pl_status (*copy)(void *state, void *to, const void *from, size_t bytes, struct pl_error *reterr);
    /*
     * Makes a batch's `part` readable for layers, until the next batch. If host memory had to be copied, it may be
     * changed after the return.
     */
    enum pl_status (*upload)(void *state, enum nn_part part, const void *host, size_t bytes, const void **ret_memory,
                             struct pl_error *reterr);
    enum pl_status (*forward)(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                              const struct nn_pass *pass, struct pl_error *reterr);
    /* `output_gradient` may be changed; `input_gradient` is NULL if it is not needed. Dropout works in place. */
    enum pl_status (*backward)(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                               float *output_gradient, float *input_gradient, const struct nn_pass *pass,
                               struct pl_error *reterr);
    /*
     * Computes softmax and cross-entropy and adds them to the score; `gradient` [samples][classes] gets d(loss_sum *
     * gradient_scale) unless it is NULL. Labels have been uploaded and are below `classes`.
     */
    enum pl_status (*loss)(void *state, size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                           double gradient_scale, float *gradient, struct pl_error *reterr);
    enum pl_status (*set_score)(void *state, const struct nn_score *score, struct pl_error *reterr);
    enum pl_status (*get_score)(void *state, struct nn_score *ret_score, struct pl_error *reterr);
};

/** Returns the description of a dropout layer for kernels.h. */
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

/** Layers by OpenBLAS; OPENBLAS_NUM_THREADS sets its number of threads. */
extern const struct nn_backend nn_backend_blas;

struct nn_model;

/**
 * Builds the chain `layers`, which ends with NN_END, for inputs of shape `input`, at most `max_samples` at a time.
 * `options` NULL means all zero.
 *
 * Errors  PL_INVALID if a layer does not fit the shape before it; PL_MEMORY; PL_UNSUPPORTED from the backend.
 */
enum pl_status nn_model_new(const struct nn_backend *backend, const struct nn_backend_options *options,
                            const struct nn_layer_spec *layers, struct nn_shape input, size_t max_samples,
                            struct nn_model **ret_model, struct pl_error *reterr) PL_MUST_CHECK;
void nn_model_free(struct nn_model *model);

size_t nn_model_parameter_count(const struct nn_model *model);

/** Returns parameter `index`, counted in forward order; backward() completes the gradients in the opposite order. */
const struct nn_parameter *nn_model_parameter(const struct nn_model *model, size_t index);

/**
 * Sets the memory of parameter `index` and of its gradient. All parameters must be bound before the first run. Both
 * must be in memory that the backend can use, or both in host memory. In the second case a GPU works on copies, which
 * costs a transfer in every forward run and for every completed gradient.
 */
enum pl_status nn_model_bind(struct nn_model *model, size_t index, float *value, float *gradient,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Initialises the bound values: weights uniform in +-sqrt(6 / (fan_in + fan_out)), biases 0; equal on all machines. */
enum pl_status nn_model_initialize(struct nn_model *model, uint64_t seed, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the backend's stream, a CUstream, or NULL. Work that is queued on this stream after a gradient is ready sees
 * the complete gradient.
 */
void *nn_model_stream(const struct nn_model *model);

/** Returns the number of classes, which is the number of elements of a sample's output. */
size_t nn_model_outputs(const struct nn_model *model);

/**
 * Runs `samples` of `input` [samples][height][width][channels], in host memory, through the chain. `input` must not
 * change until the next run.
 */
enum pl_status nn_model_forward(struct nn_model *model, const float *input, size_t samples, const struct nn_pass *pass,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Copies the outputs of the last forward run, [samples][outputs], to the host's `ret_output`. */
enum pl_status nn_model_output(struct nn_model *model, float *ret_output, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets the score to `score`; NULL: to zero, as in a new model. */
enum pl_status nn_model_set_score(struct nn_model *model, const struct nn_score *score,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the score: the value of nn_model_set_score() plus all later scores. It waits for a GPU, so do not call it in
 * every step.
 */
enum pl_status nn_model_score(struct nn_model *model, struct nn_score *ret_score,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Scores the samples of the last forward run. Errors: PL_INVALID if a label is not below nn_model_outputs(). */
enum pl_status nn_model_loss(struct nn_model *model, const uint8_t *labels, struct pl_error *reterr) PL_MUST_CHECK;

/** Called when the gradient of parameter `index` is complete, last parameter first. */
typedef enum pl_status nn_ready(void *context, size_t index, struct pl_error *reterr);

/**
 * Scores the last forward run like nn_model_loss(), and computes the gradients of the mean loss of its samples. `ready`
 * may be NULL.
 */
enum pl_status nn_model_backward(struct nn_model *model, const uint8_t *labels, const struct nn_pass *pass,
                                 nn_ready *ready, void *context, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a mixed word for each pair of words (the finalizer of SplitMix64 over key and counter). */
uint64_t nn_random(uint64_t key, uint64_t counter);

#endif
