/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers for GPUs, for machines without a GPU: OpenBLAS's layers in the memory and on a stream of the fake driver.
 * Their results equal the CPU's, bit for bit. The stream decides when they run, so a program that does not wait for a
 * result reads something else.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/device_private.h"
#include "examples/nn/nn.h"
#include "tests/fakes/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

struct fake_nn {
    struct pl_device *device;
    void *stream;
    void *blas;
    struct {
        void *memory;
        size_t bytes;
    } parts[NN_PARTS];
};

/* One call of a layer, or the arrival of a batch, on the stream. */
struct work {
    struct fake_nn *nn;
    enum { FORWARD, BACKWARD, LOSS, ARRIVAL } what;
    const struct nn_layer *layer;
    struct nn_pass pass;
    size_t samples, classes, bytes;
    const float *input;
    const uint8_t *labels;
    float *output_gradient, *input_gradient;
    double scale;
    void *to;
    char batch[]; /* [bytes] */
};

static void compute(const struct work *work)
{
    const struct nn_backend *blas = &nn_backend_blas;
    void *state = work->nn->blas;
    struct pl_error error;
    enum pl_status status = PL_OK;

    switch (work->what) {
    case FORWARD:
        status = blas->forward(state, work->layer, work->samples, work->input, &work->pass, &error);
        break;
    case BACKWARD:
        status = blas->backward(state, work->layer, work->samples, work->input, work->output_gradient,
                                work->input_gradient, &work->pass, &error);
        break;
    case LOSS:
        status = blas->loss(state, work->samples, work->classes, work->input, work->labels, work->scale,
                            work->output_gradient, &error);
        break;
    case ARRIVAL:
        memcpy(work->to, work->batch, work->bytes);
        break;
    }
    PL_BUG_IF(status != PL_OK);
}

static void perform(void *argument, bool runs)
{
    if (runs) {
        compute(argument);
    }
    free(argument);
}

static enum pl_status give(struct fake_nn *nn, const struct work *work, const void *batch, struct pl_error *reterr)
{
    struct work *kept = pl_memory_new(1, sizeof(*kept) + work->bytes, reterr);

    if (!kept) {
        return PL_MEMORY;
    }
    *kept = *work;
    kept->nn = nn;
    if (batch) {
        memcpy(kept->batch, batch, work->bytes);
    }
    return fake_cuda_run(nn->stream, perform, kept) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_LIBRARY, "the stream does not accept work any more");
}

static enum pl_status finish(struct fake_nn *nn, struct pl_error *reterr)
{
    return pl_device_stream_finish(nn->device, nn->stream, pl_clock_now_ns() + 60 * PL_NS_PER_S, reterr);
}

static void fake_close(void *state)
{
    struct fake_nn *nn = state;
    struct pl_error error;

    if (nn->stream) {
        (void)!finish(nn, &error);
        pl_device_stream_free(nn->device, nn->stream);
    }
    for (int part = 0; part < NN_PARTS; part++) {
        if (nn->parts[part].memory) {
            pl_device_release(nn->device, nn->parts[part].memory);
        }
    }
    if (nn->blas) {
        nn_backend_blas.close(nn->blas);
    }
    pl_device_close(nn->device);
    free(nn);
}

static enum pl_status open_parts(struct fake_nn *nn, const struct nn_backend_options *options,
                                 const struct nn_layer *layers, size_t layer_count, size_t max_samples,
                                 struct pl_error *reterr)
{
    const struct nn_backend_options on_cpu = {.precision = options->precision};

    nn->parts[NN_INPUT].bytes = max_samples * layers[0].in_elems * sizeof(float);
    nn->parts[NN_LABELS].bytes = max_samples;
    PL_TRY(nn_backend_blas.open(&on_cpu, layers, layer_count, max_samples, &nn->blas, reterr));
    PL_TRY(pl_device_open(options->device, &nn->device, reterr));
    PL_TRY(pl_device_stream_new(nn->device, &nn->stream, reterr));
    for (int part = 0; part < NN_PARTS; part++) {
        PL_TRY(pl_device_alloc(nn->device, nn->parts[part].bytes, &nn->parts[part].memory, reterr));
    }
    return PL_OK;
}

static enum pl_status fake_open(const struct nn_backend_options *options, const struct nn_layer *layers,
                                size_t layer_count, size_t max_samples, void **ret_state, struct pl_error *reterr)
{
    struct fake_nn *nn = pl_memory_new(1, sizeof(*nn), reterr);
    enum pl_status status;

    if (!nn) {
        return PL_MEMORY;
    }
    status = open_parts(nn, options, layers, layer_count, max_samples, reterr);
    if (status != PL_OK) {
        fake_close(nn);
        return status;
    }
    *ret_state = nn;
    return PL_OK;
}

static void *fake_allocate(void *state, size_t count, size_t item_bytes, struct pl_error *reterr)
{
    void *memory = NULL;

    return pl_device_alloc(((struct fake_nn *)state)->device, count * item_bytes, &memory, reterr) == PL_OK ? memory
                                                                                                            : NULL;
}

static void fake_release(void *state, void *memory)
{
    if (memory) {
        pl_device_release(((struct fake_nn *)state)->device, memory);
    }
}

/* A program that keeps its parameters in host memory would work slowly on a GPU: here it does not work. */
static bool fake_owns(void *state, const void *memory)
{
    PL_BUG_IF(!pl_device_owns(((struct fake_nn *)state)->device, memory));
    return true;
}

static void *fake_stream(void *state)
{
    return ((struct fake_nn *)state)->stream;
}

static enum pl_status fake_copy(void *state, void *to, const void *from, size_t bytes, struct pl_error *reterr)
{
    struct fake_nn *nn = state;

    PL_TRY(pl_device_copy(nn->device, to, from, bytes, nn->stream, reterr));
    return finish(nn, reterr);
}

static enum pl_status fake_bring(void *state, enum nn_part part, const void *host, size_t bytes,
                                 const void **ret_memory, struct pl_error *reterr)
{
    struct fake_nn *nn = state;
    const struct work work = {.what = ARRIVAL, .to = nn->parts[part].memory, .bytes = bytes};

    PL_BUG_IF(bytes > nn->parts[part].bytes);
    *ret_memory = nn->parts[part].memory;
    return give(nn, &work, host, reterr);
}

static enum pl_status fake_forward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                   const struct nn_pass *pass, struct pl_error *reterr)
{
    const struct work work = {.what = FORWARD, .layer = layer, .samples = samples, .input = input, .pass = *pass};

    return give(state, &work, NULL, reterr);
}

static enum pl_status fake_backward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                    float *output_gradient, float *input_gradient, const struct nn_pass *pass,
                                    struct pl_error *reterr)
{
    const struct work work = {.what = BACKWARD,
                              .layer = layer,
                              .samples = samples,
                              .input = input,
                              .output_gradient = output_gradient,
                              .input_gradient = input_gradient,
                              .pass = *pass};

    return give(state, &work, NULL, reterr);
}

static enum pl_status fake_loss(void *state, size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                                double gradient_scale, float *gradient, struct pl_error *reterr)
{
    const struct work work = {.what = LOSS,
                              .samples = samples,
                              .classes = classes,
                              .input = logits,
                              .labels = labels,
                              .scale = gradient_scale,
                              .output_gradient = gradient};

    return give(state, &work, NULL, reterr);
}

static enum pl_status fake_set_score(void *state, const struct nn_score *score, struct pl_error *reterr)
{
    PL_TRY(finish(state, reterr));
    return nn_backend_blas.set_score(((struct fake_nn *)state)->blas, score, reterr);
}

static enum pl_status fake_get_score(void *state, struct nn_score *ret_score, struct pl_error *reterr)
{
    PL_TRY(finish(state, reterr));
    return nn_backend_blas.get_score(((struct fake_nn *)state)->blas, ret_score, reterr);
}

__attribute__((visibility("default"))) extern const struct nn_backend nn_backend_cuda;

const struct nn_backend nn_backend_cuda = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .allocate = fake_allocate,
    .release = fake_release,
    .owns = fake_owns,
    .stream = fake_stream,
    .copy = fake_copy,
    .upload = fake_bring,
    .forward = fake_forward,
    .backward = fake_backward,
    .loss = fake_loss,
    .set_score = fake_set_score,
    .get_score = fake_get_score,
};
