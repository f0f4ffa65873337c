/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers, by CBLAS. A convolution processes one sample at a time, so the gathered patches are still in the cache
 * for the matrix product, and a sample's outputs have the same bits in every batch.
 */
#include "examples/nn/nn.h"

#include "base/memory.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ALIGN_BYTES = 64,
};

struct blas_state {
    float *patches;  /* [positions][kernel * kernel * in channels]: gathered inputs */
    float *backward; /* gradients of the patches, the same shape */
    double *sums;    /* [most units of a layer], for bias gradients; zero between uses */
    float *part;
    struct nn_score score;
};

/*
 * Returns the name of better kernels than OpenBLAS's choice, or NULL. OpenBLAS treats an Intel or AMD processor that is
 * newer than OpenBLAS as a Prescott or a Barcelona, which have no AVX2. It is then four times as slow.
 */
static const char *better_core(void)
{
#ifdef __x86_64__
    const char *core = openblas_get_corename();

    if (strcmp(core, "Prescott") == 0 || strcmp(core, "Barcelona") == 0) {
        return __builtin_cpu_supports("avx512vl") ? "SkylakeX" : __builtin_cpu_supports("avx2") ? "Haswell" : NULL;
    }
#endif
    return NULL;
}

/*
 * Runs before main(): starts the program again with better kernels, unless the user has chosen kernels, because
 * OpenBLAS reads the variable only when it is loaded. If this fails, the program continues.
 */
static void __attribute__((constructor)) use_better_core(int argc, char **argv, char **environment)
{
    static const char variable[] = "OPENBLAS_CORETYPE=";
    const char *core = better_core();
    PL_AUTO_FREE char **changed = NULL;
    char path[PATH_MAX], setting[32];
    ssize_t length;
    size_t count;

    (void)argc;
    for (count = 0; core && environment[count]; count++) {
        if (strncmp(environment[count], variable, strlen(variable)) == 0) {
            return;
        }
    }
    length = core ? readlink("/proc/self/exe", path, sizeof(path) - 1) : -1;
    if (length > 0 && (changed = pl_memory_new(count + 2, sizeof(*changed), NULL))) {
        path[length] = '\0';
        snprintf(setting, sizeof(setting), "%s%s", variable, core);
        memcpy(changed, environment, count * sizeof(*changed));
        changed[count] = setting;
        execve(path, argv, changed);
    }
}

/* Return the number of output pixels of one sample, and the number of elements in the patch of one output pixel. */
static size_t positions(const struct nn_layer *layer)
{
    return layer->out.height * layer->out.width;
}

static size_t patch_elems(const struct nn_layer *layer)
{
    return layer->spec.kernel * layer->spec.kernel * layer->in.channels;
}

static void blas_close(void *state)
{
    struct blas_state *blas = state;

    free(blas->patches);
    free(blas->backward);
    free(blas->sums);
    free(blas->part);
    free(blas);
}

static enum pl_status blas_open(const struct nn_backend_options *options, const struct nn_layer *layers,
                                size_t layer_count, size_t max_samples, void **ret_state, struct pl_error *reterr)
{
    struct blas_state *blas;
    size_t elems = 1;
    size_t units = 1;

    (void)max_samples;
    if (options->precision != NN_FLOAT32) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the CPU works in float32 only");
    }
    blas = pl_memory_new(1, sizeof(*blas), reterr);
    if (!blas) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < layer_count; i++) {
        units = layers[i].out.channels > units ? layers[i].out.channels : units;
        if (layers[i].spec.kind == NN_CONV) {
            size_t want = positions(&layers[i]) * patch_elems(&layers[i]);

            elems = want > elems ? want : elems;
        }
    }
    blas->patches = pl_memory_new_aligned(elems, sizeof(float), ALIGN_BYTES, reterr);
    blas->backward = pl_memory_new_aligned(elems, sizeof(float), ALIGN_BYTES, reterr);
    blas->sums = pl_memory_new(units, sizeof(double), reterr);
    blas->part = pl_memory_new_aligned(units, sizeof(float), ALIGN_BYTES, reterr);
    if (!blas->patches || !blas->backward || !blas->sums || !blas->part) {
        blas_close(blas);
        return PL_MEMORY;
    }
    *ret_state = blas;
    return PL_OK;
}

static void *blas_allocate(void *state, size_t count, size_t item_bytes, struct pl_error *reterr)
{
    (void)state;
    return pl_memory_new_aligned(count, item_bytes, ALIGN_BYTES, reterr);
}

static void blas_release(void *state, void *memory)
{
    (void)state;
    free(memory);
}

static bool blas_owns(void *state, const void *memory)
{
    (void)state;
    (void)memory;
    return true;
}

static void *blas_stream(void *state)
{
    (void)state;
    return NULL;
}

static enum pl_status blas_copy(void *state, void *to, const void *from, size_t bytes, struct pl_error *reterr)
{
    (void)state;
    (void)reterr;
    memcpy(to, from, bytes);
    return PL_OK;
}

static enum pl_status blas_bring(void *state, enum nn_part part, const void *host, size_t bytes,
                                 const void **ret_memory, struct pl_error *reterr)
{
    (void)state;
    (void)part;
    (void)bytes;
    (void)reterr;
    *ret_memory = host;
    return PL_OK;
}

/* Gathers the patches of the output pixels, in order; each patch row by row. */
static void gather_patches(const struct nn_layer *layer, const float *sample, float *patches)
{
    size_t row = layer->spec.kernel * layer->in.channels;
    size_t line = layer->in.width * layer->in.channels;

    for (size_t y = 0; y < layer->out.height; y++) {
        for (size_t x = 0; x < layer->out.width; x++) {
            const float *from = sample + y * line + x * layer->in.channels;

            for (size_t k = 0; k < layer->spec.kernel; k++, from += line, patches += row) {
                for (size_t e = 0; e < row; e++) {
                    patches[e] = from[e];
                }
            }
        }
    }
}

/* The reverse of gather_patches(): adds to each input pixel its value in all patches. */
static void scatter_patches(const struct nn_layer *layer, const float *patches, float *sample)
{
    size_t row = layer->spec.kernel * layer->in.channels;
    size_t line = layer->in.width * layer->in.channels;

    memset(sample, 0, layer->in_elems * sizeof(float));
    for (size_t y = 0; y < layer->out.height; y++) {
        for (size_t x = 0; x < layer->out.width; x++) {
            float *to = sample + y * line + x * layer->in.channels;

            for (size_t k = 0; k < layer->spec.kernel; k++, to += line, patches += row) {
                for (size_t e = 0; e < row; e++) {
                    to[e] += patches[e];
                }
            }
        }
    }
}

/* Adds `bias` to values[rows][units]; then max(0, x) if the layer has it. */
static void add_bias(const struct nn_layer *layer, size_t rows, size_t units, float *values)
{
    const float *bias = layer->bias;

    for (size_t r = 0; r < rows; r++, values += units) {
        if (layer->spec.relu) {
            for (size_t u = 0; u < units; u++) {
                float value = values[u] + bias[u];

                values[u] = value > 0.0F ? value : 0.0F;
            }
        } else {
            for (size_t u = 0; u < units; u++) {
                values[u] += bias[u];
            }
        }
    }
}

/*
 * Converts the gradient of the output to the gradient of the sums before max(0, x), and adds its column sums to
 * `blas->sums`. Sums a few rows in float, and these sums in double, because a float sum over all pixels of a batch
 * would lose half of its digits.
 */
static void reduce_bias(struct blas_state *blas, const struct nn_layer *layer, size_t rows, size_t units,
                        const float *values, float *gradient)
{
    for (size_t first = 0; first < rows; first += NN_SUM_ROWS) {
        size_t end = rows - first < NN_SUM_ROWS ? rows : first + NN_SUM_ROWS;
        float *part = blas->part;

        memset(part, 0, units * sizeof(float));
        for (size_t r = first; r < end; r++, values += units, gradient += units) {
            if (layer->spec.relu) {
                for (size_t u = 0; u < units; u++) {
                    gradient[u] = values[u] > 0.0F ? gradient[u] : 0.0F;
                }
            }
            for (size_t u = 0; u < units; u++) {
                part[u] += gradient[u];
            }
        }
        for (size_t u = 0; u < units; u++) {
            blas->sums[u] += (double)part[u];
        }
    }
}

/* Adds the sums since the last call to the bias gradient. */
static void finish_bias(struct blas_state *blas, const struct nn_layer *layer, size_t units, bool accumulate)
{
    for (size_t u = 0; u < units; u++) {
        layer->bias_gradient[u] = (float)blas->sums[u] + (accumulate ? layer->bias_gradient[u] : 0.0F);
        blas->sums[u] = 0.0;
    }
}

static void conv_forward(struct blas_state *blas, const struct nn_layer *layer, size_t samples, const float *input)
{
    int rows = (int)positions(layer);
    int units = (int)layer->out.channels;
    int patch = (int)patch_elems(layer);
    float *output = layer->output;

    for (size_t i = 0; i < samples; i++, input += layer->in_elems, output += layer->out_elems) {
        gather_patches(layer, input, blas->patches);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, units, patch, 1.0F, blas->patches, patch,
                    layer->weight, patch, 0.0F, output, units);
        add_bias(layer, positions(layer), layer->out.channels, output);
    }
}

static void conv_backward(struct blas_state *blas, const struct nn_layer *layer, size_t samples, const float *input,
                          float *output_gradient, float *input_gradient, bool accumulate)
{
    int rows = (int)positions(layer);
    int units = (int)layer->out.channels;
    int patch = (int)patch_elems(layer);

    for (size_t i = 0; i < samples; i++) {
        float *gradient = output_gradient + i * layer->out_elems;

        reduce_bias(blas, layer, positions(layer), layer->out.channels, layer->output + i * layer->out_elems, gradient);
        gather_patches(layer, input + i * layer->in_elems, blas->patches);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, units, patch, rows, 1.0F, gradient, units, blas->patches,
                    patch, i > 0 || accumulate ? 1.0F : 0.0F, layer->weight_gradient, patch);
        if (input_gradient) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, patch, units, 1.0F, gradient, units,
                        layer->weight, patch, 0.0F, blas->backward, patch);
            scatter_patches(layer, blas->backward, input_gradient + i * layer->in_elems);
        }
    }
    finish_bias(blas, layer, layer->out.channels, accumulate);
}

static void dense_forward(const struct nn_layer *layer, size_t samples, const float *input)
{
    int inputs = (int)layer->in_elems;
    int units = (int)layer->out_elems;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)samples, units, inputs, 1.0F, input, inputs,
                layer->weight, inputs, 0.0F, layer->output, units);
    add_bias(layer, samples, layer->out_elems, layer->output);
}

static void dense_backward(struct blas_state *blas, const struct nn_layer *layer, size_t samples, const float *input,
                           float *output_gradient, float *input_gradient, bool accumulate)
{
    int inputs = (int)layer->in_elems;
    int units = (int)layer->out_elems;

    reduce_bias(blas, layer, samples, layer->out_elems, layer->output, output_gradient);
    finish_bias(blas, layer, layer->out_elems, accumulate);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, units, inputs, (int)samples, 1.0F, output_gradient, units,
                input, inputs, accumulate ? 1.0F : 0.0F, layer->weight_gradient, inputs);
    if (input_gradient) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)samples, inputs, units, 1.0F, output_gradient,
                    units, layer->weight, inputs, 0.0F, input_gradient, inputs);
    }
}

static void pool_forward(const struct nn_layer *layer, size_t samples, const float *input)
{
    size_t channels = layer->in.channels;
    size_t line = layer->in.width * channels;
    float *output = layer->output;
    uint8_t *where = layer->where;

    for (size_t s = 0; s < samples; s++, input += layer->in_elems) {
        for (size_t y = 0; y < layer->out.height; y++) {
            for (size_t x = 0; x < layer->out.width; x++, output += channels, where += channels) {
                const float *from = input + 2 * y * line + 2 * x * channels;

                for (size_t c = 0; c < channels; c++) {
                    float best = from[c];
                    uint8_t at = 0;

                    for (uint8_t k = 1; k < 4; k++) {
                        float value = from[(k / 2) * line + (k % 2) * channels + c];
                        bool larger = nn_pool_larger(value, best);

                        at = larger ? k : at;
                        best = larger ? value : best;
                    }
                    output[c] = best;
                    where[c] = at;
                }
            }
        }
    }
}

static void pool_backward(const struct nn_layer *layer, size_t samples, const float *output_gradient,
                          float *input_gradient)
{
    size_t channels = layer->in.channels;
    size_t line = layer->in.width * channels;
    const uint8_t *where = layer->where;

    if (layer->in.height % 2 != 0 || layer->in.width % 2 != 0) {
        /* rows or columns that pooling leaves out have no gradient */
        memset(input_gradient, 0, samples * layer->in_elems * sizeof(float));
    }
    for (size_t s = 0; s < samples; s++, input_gradient += layer->in_elems) {
        for (size_t y = 0; y < layer->out.height; y++) {
            for (size_t x = 0; x < layer->out.width; x++, output_gradient += channels, where += channels) {
                float *to = input_gradient + 2 * y * line + 2 * x * channels;

                for (size_t c = 0; c < channels; c++) {
                    float gradient = output_gradient[c];

                    to[c] = where[c] == 0 ? gradient : 0.0F;
                    to[channels + c] = where[c] == 1 ? gradient : 0.0F;
                    to[line + c] = where[c] == 2 ? gradient : 0.0F;
                    to[line + channels + c] = where[c] == 3 ? gradient : 0.0F;
                }
            }
        }
    }
}

static void dropout(const struct nn_layer *layer, size_t samples, const struct nn_pass *pass, float *values)
{
    struct nn_dropout drop = nn_layer_dropout(layer, pass);

    for (size_t i = 0; i < samples * nn_dropout_groups(&drop); i++) {
        nn_dropout_at(&drop, i, values);
    }
}

static enum pl_status blas_forward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                   const struct nn_pass *pass, struct pl_error *reterr)
{
    (void)reterr;
    switch (layer->spec.kind) {
    case NN_CONV:
        conv_forward(state, layer, samples, input);
        break;
    case NN_MAX_POOL:
        pool_forward(layer, samples, input);
        break;
    case NN_DROPOUT:
        if (pass->training && layer->spec.rate > 0.0) {
            dropout(layer, samples, pass, layer->output);
        }
        break;
    case NN_DENSE:
        dense_forward(layer, samples, input);
        break;
    case NN_END:
        break;
    }
    return PL_OK;
}

static enum pl_status blas_backward(void *state, const struct nn_layer *layer, size_t samples, const float *input,
                                    float *output_gradient, float *input_gradient, const struct nn_pass *pass,
                                    struct pl_error *reterr)
{
    (void)reterr;
    switch (layer->spec.kind) {
    case NN_CONV:
        conv_backward(state, layer, samples, input, output_gradient, input_gradient, pass->accumulate);
        break;
    case NN_MAX_POOL:
        if (input_gradient) {
            pool_backward(layer, samples, output_gradient, input_gradient);
        }
        break;
    case NN_DROPOUT:
        if (pass->training && layer->spec.rate > 0.0) {
            dropout(layer, samples, pass, output_gradient);
        }
        break;
    case NN_DENSE:
        dense_backward(state, layer, samples, input, output_gradient, input_gradient, pass->accumulate);
        break;
    case NN_END:
        break;
    }
    return PL_OK;
}

static enum pl_status blas_loss(void *state, size_t samples, size_t classes, const float *logits, const uint8_t *labels,
                                double gradient_scale, float *gradient, struct pl_error *reterr)
{
    struct blas_state *blas = state;

    (void)reterr;
    for (size_t s = 0; s < samples; s++) {
        int hit;

        blas->score.loss_sum += nn_softmax(logits + s * classes, classes, labels[s], gradient_scale,
                                           gradient ? gradient + s * classes : NULL, &hit);
        blas->score.correct += (uint64_t)hit;
    }
    blas->score.samples += samples;
    return PL_OK;
}

static enum pl_status blas_set_score(void *state, const struct nn_score *score, struct pl_error *reterr)
{
    (void)reterr;
    ((struct blas_state *)state)->score = *score;
    return PL_OK;
}

static enum pl_status blas_get_score(void *state, struct nn_score *ret_score, struct pl_error *reterr)
{
    (void)reterr;
    *ret_score = ((struct blas_state *)state)->score;
    return PL_OK;
}

const struct nn_backend nn_backend_blas = {
    .name = "blas",
    .open = blas_open,
    .close = blas_close,
    .allocate = blas_allocate,
    .release = blas_release,
    .owns = blas_owns,
    .stream = blas_stream,
    .copy = blas_copy,
    .upload = blas_bring,
    .forward = blas_forward,
    .backward = blas_backward,
    .loss = blas_loss,
    .set_score = blas_set_score,
    .get_score = blas_get_score,
};
