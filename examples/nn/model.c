/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of layers: shapes, parameters, forward and backward runs over a backend. */
#include "examples/nn/nn.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A parameter that is bound to memory which the backend cannot use, and the copies that the backend uses. */
struct staged_parameter {
    float *value;
    float *gradient;
    float *own_value;
    float *own_gradient;
};

struct nn_model {
    const struct nn_backend *backend;
    void *state;
    struct nn_layer *layers;
    size_t layer_count;
    struct nn_parameter *parameters;
    struct staged_parameter *staged_parameter; /* [parameter_count]: copies for the backend */
    size_t parameter_count;
    size_t max_samples;
    float *gradients[2]; /* gradients of a layer's output and input, alternately */

    const float *input; /* input of the last forward run, in the backend's memory */
    size_t samples;
};

uint64_t nn_random(uint64_t key, uint64_t counter)
{
    return nn_mix(key, counter);
}

static bool has_parameters(const struct nn_layer *layer)
{
    return layer->spec.kind == NN_CONV || layer->spec.kind == NN_DENSE;
}

/* Computes the output shape of `layer`; its input shape must be set. */
static enum pl_status layer_shape(struct nn_layer *layer, struct pl_error *reterr)
{
    const struct nn_layer_spec *spec = &layer->spec;
    const char *name = spec->name ? spec->name : "(no name)";

    layer->out = layer->in;
    switch (spec->kind) {
    case NN_CONV:
        if (spec->outputs == 0 || spec->kernel == 0 || spec->kernel > layer->in.height ||
            spec->kernel > layer->in.width) {
            return pl_error_set(reterr, PL_INVALID, "layer '%s': a kernel of %zu does not fit an input of %zux%zu",
                                name, spec->kernel, layer->in.height, layer->in.width);
        }
        layer->out = (struct nn_shape){.height = layer->in.height - spec->kernel + 1,
                                       .width = layer->in.width - spec->kernel + 1,
                                       .channels = spec->outputs};
        break;
    case NN_MAX_POOL:
        layer->out.height = layer->in.height / 2;
        layer->out.width = layer->in.width / 2;
        break;
    case NN_DROPOUT:
        if (!(spec->rate >= 0.0 && spec->rate < 1.0)) {
            return pl_error_set(reterr, PL_INVALID, "layer '%s': dropout rate %g is not in [0, 1)", name, spec->rate);
        }
        break;
    case NN_DENSE:
        layer->out = (struct nn_shape){.height = 1, .width = 1, .channels = spec->outputs};
        break;
    case NN_END:
        break;
    }
    layer->in_elems = layer->in.height * layer->in.width * layer->in.channels;
    layer->out_elems = layer->out.height * layer->out.width * layer->out.channels;
    if (layer->out_elems == 0) {
        return pl_error_set(reterr, PL_INVALID, "layer '%s' has no outputs", name);
    }
    return PL_OK;
}

static void add_parameters(struct nn_model *model, const struct nn_layer *layer)
{
    const struct nn_layer_spec *spec = &layer->spec;
    struct nn_parameter *weight = &model->parameters[model->parameter_count++];
    struct nn_parameter *bias = &model->parameters[model->parameter_count++];
    size_t area = spec->kernel * spec->kernel;

    if (spec->kind == NN_CONV) {
        *weight =
            (struct nn_parameter){.dims = 4, .shape = {spec->outputs, spec->kernel, spec->kernel, layer->in.channels}};
        weight->fan_in = area * layer->in.channels;
        weight->fan_out = area * spec->outputs;
    } else {
        *weight = (struct nn_parameter){.dims = 2, .shape = {spec->outputs, layer->in_elems}};
        weight->fan_in = layer->in_elems;
        weight->fan_out = spec->outputs;
    }
    weight->count_elems = 1;
    for (unsigned d = 0; d < weight->dims; d++) {
        weight->count_elems *= weight->shape[d];
    }
    *bias = (struct nn_parameter){.dims = 1, .shape = {spec->outputs}, .count_elems = spec->outputs};
    snprintf(weight->name, sizeof(weight->name), "%s.weight", spec->name);
    snprintf(bias->name, sizeof(bias->name), "%s.bias", spec->name);
}

static enum pl_status allocate_outputs(struct nn_model *model, struct pl_error *reterr)
{
    size_t largest_elems = 0;

    for (size_t i = 0; i < model->layer_count; i++) {
        struct nn_layer *layer = &model->layers[i];

        if (layer->out_elems > largest_elems) {
            largest_elems = layer->out_elems;
        }
        if (layer->spec.kind == NN_DROPOUT && i > 0) {
            layer->output = model->layers[i - 1].output;
            continue;
        }
        layer->output =
            model->backend->allocate(model->state, model->max_samples, layer->out_elems * sizeof(float), reterr);
        if (!layer->output) {
            return PL_MEMORY;
        }
        if (layer->spec.kind == NN_MAX_POOL) {
            layer->where = model->backend->allocate(model->state, model->max_samples, layer->out_elems, reterr);
            if (!layer->where) {
                return PL_MEMORY;
            }
        }
    }
    for (size_t i = 0; i < 2; i++) {
        model->gradients[i] =
            model->backend->allocate(model->state, model->max_samples, largest_elems * sizeof(float), reterr);
        if (!model->gradients[i]) {
            return PL_MEMORY;
        }
    }
    return PL_OK;
}

static enum pl_status build(struct nn_model *model, const struct nn_backend_options *options,
                            const struct nn_layer_spec *layers, struct nn_shape input, struct pl_error *reterr)
{
    struct nn_backend_options none = {.device = 0};
    struct nn_shape shape = input;

    while (layers[model->layer_count].kind != NN_END) {
        model->layer_count++;
    }
    if (model->layer_count == 0 || model->max_samples == 0) {
        return pl_error_set(reterr, PL_INVALID, "a model needs at least one layer and room for one sample");
    }
    model->layers = pl_memory_new(model->layer_count, sizeof(*model->layers), reterr);
    model->parameters = pl_memory_new(2 * model->layer_count, sizeof(*model->parameters), reterr);
    model->staged_parameter = pl_memory_new(2 * model->layer_count, sizeof(*model->staged_parameter), reterr);
    if (!model->layers || !model->parameters || !model->staged_parameter) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < model->layer_count; i++) {
        struct nn_layer *layer = &model->layers[i];

        layer->spec = layers[i];
        layer->index = (uint32_t)i;
        layer->in = shape;
        PL_TRY(layer_shape(layer, reterr));
        shape = layer->out;
        if (has_parameters(layer)) {
            add_parameters(model, layer);
        }
    }
    if (layers[0].kind == NN_DROPOUT) {
        return pl_error_set(reterr, PL_INVALID, "dropout works on a layer before it and cannot be the first");
    }
    PL_TRY(model->backend->open(options ? options : &none, model->layers, model->layer_count, model->max_samples,
                                &model->state, reterr));
    return allocate_outputs(model, reterr);
}

enum pl_status nn_model_new(const struct nn_backend *backend, const struct nn_backend_options *options,
                            const struct nn_layer_spec *layers, struct nn_shape input, size_t max_samples,
                            struct nn_model **ret_model, struct pl_error *reterr)
{
    struct nn_model *model = pl_memory_new(1, sizeof(*model), reterr);
    enum pl_status status;

    if (!model) {
        return PL_MEMORY;
    }
    model->backend = backend;
    model->max_samples = max_samples;
    status = build(model, options, layers, input, reterr);
    if (status != PL_OK) {
        nn_model_free(model);
        return status;
    }
    *ret_model = model;
    return PL_OK;
}

void nn_model_free(struct nn_model *model)
{
    if (!model) {
        return;
    }
    if (model->state) {
        for (size_t i = 0; i < model->layer_count; i++) {
            if (model->layers[i].spec.kind != NN_DROPOUT) {
                model->backend->release(model->state, model->layers[i].output);
            }
            model->backend->release(model->state, model->layers[i].where);
        }
        model->backend->release(model->state, model->gradients[0]);
        model->backend->release(model->state, model->gradients[1]);
        for (size_t i = 0; i < model->parameter_count; i++) {
            model->backend->release(model->state, model->staged_parameter[i].own_value);
            model->backend->release(model->state, model->staged_parameter[i].own_gradient);
        }
        model->backend->close(model->state);
    }
    free(model->layers);
    free(model->parameters);
    free(model->staged_parameter);
    free(model);
}

size_t nn_model_parameter_count(const struct nn_model *model)
{
    return model->parameter_count;
}

const struct nn_parameter *nn_model_parameter(const struct nn_model *model, size_t index)
{
    PL_BUG_IF(index >= model->parameter_count);
    return &model->parameters[index];
}

/* Returns the layer to which parameter `index` belongs; a layer's weight precedes its bias. */
static struct nn_layer *layer_of(struct nn_model *model, size_t index, bool *ret_bias)
{
    size_t first = 0;

    PL_BUG_IF(index >= model->parameter_count);
    for (struct nn_layer *layer = model->layers;; layer++) {
        if (has_parameters(layer)) {
            if (index < first + 2) {
                *ret_bias = index > first;
                return layer;
            }
            first += 2;
        }
    }
}

enum pl_status nn_model_bind(struct nn_model *model, size_t index, float *value, float *gradient,
                             struct pl_error *reterr)
{
    bool is_bias;
    struct nn_layer *layer = layer_of(model, index, &is_bias);
    struct staged_parameter *staged_parameter = &model->staged_parameter[index];
    size_t count = model->parameters[index].count_elems;

    if (!model->backend->owns(model->state, value)) {
        if (!staged_parameter->own_value) {
            staged_parameter->own_value = model->backend->allocate(model->state, count, sizeof(float), reterr);
            staged_parameter->own_gradient = model->backend->allocate(model->state, count, sizeof(float), reterr);
            if (!staged_parameter->own_value || !staged_parameter->own_gradient) {
                return PL_MEMORY;
            }
        }
        staged_parameter->value = value;
        staged_parameter->gradient = gradient;
        value = staged_parameter->own_value;
        gradient = staged_parameter->own_gradient;
    } else {
        staged_parameter->value = NULL;
    }
    *(is_bias ? &layer->bias : &layer->weight) = value;
    *(is_bias ? &layer->bias_gradient : &layer->weight_gradient) = gradient;
    return PL_OK;
}

/* Draws the initial values of parameter `index`, in host memory. */
static void draw_values(const struct nn_parameter *parameter, size_t index, uint64_t seed, float *values)
{
    uint64_t key = nn_random(seed, index);
    double limit = sqrt(6.0 / (double)(parameter->fan_in + parameter->fan_out));

    if (parameter->fan_in == 0) {
        memset(values, 0, parameter->count_elems * sizeof(float));
        return;
    }
    for (size_t e = 0; e < parameter->count_elems; e++) {
        double unit = (double)(nn_random(key, e) >> 11) * 0x1p-53;

        values[e] = (float)((2.0 * unit - 1.0) * limit);
    }
}

enum pl_status nn_model_initialize(struct nn_model *model, uint64_t seed, struct pl_error *reterr)
{
    for (size_t i = 0; i < model->parameter_count; i++) {
        const struct nn_parameter *parameter = &model->parameters[i];
        PL_AUTO_FREE float *values = pl_memory_new(parameter->count_elems, sizeof(float), reterr);
        bool is_bias;
        const struct nn_layer *layer = layer_of(model, i, &is_bias);
        float *to = model->staged_parameter[i].value ? model->staged_parameter[i].value
                    : is_bias                        ? layer->bias
                                                     : layer->weight;

        if (!values) {
            return PL_MEMORY;
        }
        draw_values(parameter, i, seed, values);
        PL_TRY(model->backend->copy(model->state, to, values, parameter->count_elems * sizeof(float), reterr));
    }
    return PL_OK;
}

void *nn_model_stream(const struct nn_model *model)
{
    return model->backend->stream(model->state);
}

static const struct nn_layer *last_layer(const struct nn_model *model)
{
    return &model->layers[model->layer_count - 1];
}

size_t nn_model_outputs(const struct nn_model *model)
{
    return last_layer(model)->out_elems;
}

enum pl_status nn_model_output(struct nn_model *model, float *ret_output, struct pl_error *reterr)
{
    return model->backend->copy(model->state, ret_output, last_layer(model)->output,
                                model->samples * nn_model_outputs(model) * sizeof(float), reterr);
}

/* Copies the values that are not in the backend's memory, because they may have changed since the last run. */
static enum pl_status upload_values(struct nn_model *model, struct pl_error *reterr)
{
    for (size_t i = 0; i < model->parameter_count; i++) {
        struct staged_parameter *staged_parameter = &model->staged_parameter[i];

        if (staged_parameter->value) {
            PL_TRY(model->backend->copy(model->state, staged_parameter->own_value, staged_parameter->value,
                                        model->parameters[i].count_elems * sizeof(float), reterr));
        }
    }
    return PL_OK;
}

enum pl_status nn_model_forward(struct nn_model *model, const float *input, size_t samples, const struct nn_pass *pass,
                                struct pl_error *reterr)
{
    const void *uploaded;
    const float *from;

    PL_BUG_IF(samples > model->max_samples);
    PL_TRY(upload_values(model, reterr));
    PL_TRY(model->backend->upload(model->state, NN_INPUT, input, samples * model->layers[0].in_elems * sizeof(float),
                                  &uploaded, reterr));
    from = uploaded;
    model->input = from;
    model->samples = samples;
    for (size_t i = 0; i < model->layer_count; i++) {
        PL_TRY(model->backend->forward(model->state, &model->layers[i], samples, from, pass, reterr));
        from = model->layers[i].output;
    }
    return PL_OK;
}

enum pl_status nn_model_set_score(struct nn_model *model, const struct nn_score *score, struct pl_error *reterr)
{
    static const struct nn_score zero;

    return model->backend->set_score(model->state, score ? score : &zero, reterr);
}

enum pl_status nn_model_score(struct nn_model *model, struct nn_score *ret_score, struct pl_error *reterr)
{
    return model->backend->get_score(model->state, ret_score, reterr);
}

static enum pl_status add_loss(struct nn_model *model, const uint8_t *labels, double gradient_scale, float *gradient,
                               struct pl_error *reterr)
{
    size_t classes = nn_model_outputs(model);
    const void *uploaded;

    for (size_t s = 0; s < model->samples; s++) {
        if (labels[s] >= classes) {
            return pl_error_set(reterr, PL_INVALID, "sample %zu has label %u, but there are %zu classes", s,
                                (unsigned)labels[s], classes);
        }
    }
    PL_TRY(model->backend->upload(model->state, NN_LABELS, labels, model->samples, &uploaded, reterr));
    return model->backend->loss(model->state, model->samples, classes, last_layer(model)->output, uploaded,
                                gradient_scale, gradient, reterr);
}

enum pl_status nn_model_loss(struct nn_model *model, const uint8_t *labels, struct pl_error *reterr)
{
    return add_loss(model, labels, 0.0, NULL, reterr);
}

static enum pl_status tell_ready(struct nn_model *model, size_t index, nn_ready *ready, void *context,
                                 struct pl_error *reterr)
{
    struct staged_parameter *staged_parameter = &model->staged_parameter[index];

    if (staged_parameter->value) {
        PL_TRY(model->backend->copy(model->state, staged_parameter->gradient, staged_parameter->own_gradient,
                                    model->parameters[index].count_elems * sizeof(float), reterr));
    }
    return ready ? ready(context, index, reterr) : PL_OK;
}

enum pl_status nn_model_backward(struct nn_model *model, const uint8_t *labels, const struct nn_pass *pass,
                                 nn_ready *ready, void *context, struct pl_error *reterr)
{
    size_t parameter = model->parameter_count;
    float *output_gradient = model->gradients[0];
    float *input_gradient = model->gradients[1];

    PL_TRY(add_loss(model, labels, 1.0 / (double)model->samples, output_gradient, reterr));
    for (size_t i = model->layer_count; i-- > 0;) {
        const struct nn_layer *layer = &model->layers[i];
        const float *input = i > 0 ? model->layers[i - 1].output : model->input;

        PL_TRY(model->backend->backward(model->state, layer, model->samples, input, output_gradient,
                                        i > 0 ? input_gradient : NULL, pass, reterr));
        if (layer->spec.kind != NN_DROPOUT) {
            float *swap = output_gradient;

            output_gradient = input_gradient;
            input_gradient = swap;
        }
        if (has_parameters(layer)) {
            parameter -= 2;
            PL_TRY(tell_ready(model, parameter + 1, ready, context, reterr));
            PL_TRY(tell_ready(model, parameter, ready, context, reterr));
        }
    }
    return PL_OK;
}
