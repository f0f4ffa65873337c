/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/optimizer.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SLOTS = 2 };

struct pl_optimizer {
    struct pl_plan *plan;
    struct pl_optimizer_options options;
    struct pl_optimizer_state state;
    double norm;
    unsigned slots;
    float *slot[MAX_SLOTS];
};

/* What one loop over a bucket needs, as floats. */
struct factors {
    float gradient; /* undoes loss scale, applies clipping */
    float rate;
    float decay;
    float momentum;
    float beta1;
    float beta2;
    float epsilon;
    float correct1; /* 1 / (1 - beta^step) */
    float correct2;
};

enum pl_status pl_optimizer_new(struct pl_plan *plan, const struct pl_optimizer_options *options, struct pl_optimizer **ret_optimizer,
                                struct pl_error *reterr)
{
    struct pl_optimizer *optimizer = pl_memory_new(1, sizeof(*optimizer), reterr);

    if (!optimizer) {
        return PL_MEMORY;
    }
    optimizer->plan = plan;
    optimizer->options = *options;
    if (options->kind != PL_SGD) {
        optimizer->options.beta1 = options->beta1 > 0.0 ? options->beta1 : 0.9;
        optimizer->options.beta2 = options->beta2 > 0.0 ? options->beta2 : 0.999;
        optimizer->options.epsilon = options->epsilon > 0.0 ? options->epsilon : 1e-8;
        optimizer->slots = 2;
    } else {
        optimizer->slots = options->momentum > 0.0 ? 1 : 0;
    }
    optimizer->options.growth_steps = options->growth_steps ? options->growth_steps : 2000;
    optimizer->state.loss_scale = options->loss_scale > 0.0 ? options->loss_scale : 1.0;
    for (unsigned s = 0; s < optimizer->slots; s++) {
        optimizer->slot[s] = pl_memory_new_aligned(pl_plan_elems(plan), sizeof(float), 4096, reterr);
        if (!optimizer->slot[s]) {
            pl_optimizer_free(optimizer);
            return PL_MEMORY;
        }
    }
    *ret_optimizer = optimizer;
    return PL_OK;
}

void pl_optimizer_free(struct pl_optimizer *optimizer)
{
    if (optimizer) {
        for (unsigned s = 0; s < MAX_SLOTS; s++) {
            free(optimizer->slot[s]);
        }
        free(optimizer);
    }
}

static void step_plain(uint64_t count, float *restrict value, const float *restrict gradient, const struct factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        value[i] -= f->rate * (gradient[i] * f->gradient + f->decay * value[i]);
    }
}

static void step_momentum(uint64_t count, float *restrict value, const float *restrict gradient, float *restrict velocity, const struct factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        velocity[i] = f->momentum * velocity[i] + (gradient[i] * f->gradient + f->decay * value[i]);
        value[i] -= f->rate * velocity[i];
    }
}

static void step_nesterov(uint64_t count, float *restrict value, const float *restrict gradient, float *restrict velocity, const struct factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        float g = gradient[i] * f->gradient + f->decay * value[i];

        velocity[i] = f->momentum * velocity[i] + g;
        value[i] -= f->rate * (g + f->momentum * velocity[i]);
    }
}

/* `shrink` is AdamW's decay of the weights, `f->decay` Adam's part of the gradient; one of them is zero. */
static void step_adam(uint64_t count, float *restrict value, const float *restrict gradient, float *restrict mean, float *restrict variance,
                      const struct factors *f, float shrink)
{
    for (uint64_t i = 0; i < count; i++) {
        float g = gradient[i] * f->gradient + f->decay * value[i];

        mean[i] = f->beta1 * mean[i] + (1.0F - f->beta1) * g;
        variance[i] = f->beta2 * variance[i] + (1.0F - f->beta2) * g * g;
        value[i] -= shrink * value[i] + f->rate * (mean[i] * f->correct1) / (sqrtf(variance[i] * f->correct2) + f->epsilon);
    }
}

static void step_bucket(struct pl_optimizer *optimizer, size_t bucket, const struct factors *f)
{
    const struct pl_optimizer_options *options = &optimizer->options;
    uint64_t first;
    uint64_t count;
    float *value;
    const float *gradient;

    pl_plan_bucket(optimizer->plan, bucket, &first, &count);
    value = pl_plan_values(optimizer->plan) + first;
    gradient = pl_plan_gradients(optimizer->plan) + first;
    if (options->kind != PL_SGD) {
        struct factors adam = *f;
        float shrink = 0.0F;

        if (options->kind == PL_ADAMW) {
            shrink = f->rate * f->decay;
            adam.decay = 0.0F;
        }
        step_adam(count, value, gradient, optimizer->slot[0] + first, optimizer->slot[1] + first, &adam, shrink);
    } else if (optimizer->slots == 0) {
        step_plain(count, value, gradient, f);
    } else if (options->nesterov) {
        step_nesterov(count, value, gradient, optimizer->slot[0] + first, f);
    } else {
        step_momentum(count, value, gradient, optimizer->slot[0] + first, f);
    }
}

/* In double and always in the same order, so that every rank gets the same bits. */
static double squared_norm(const struct pl_plan *plan)
{
    const float *gradient = pl_plan_gradients(plan);
    uint64_t elems = pl_plan_elems(plan);
    double sums[4] = {0.0};

    for (uint64_t i = 0; i < elems; i += 4) { /* elems is a multiple of 16 */
        for (size_t k = 0; k < 4; k++) {
            sums[k] += (double)gradient[i + k] * (double)gradient[i + k];
        }
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

static struct factors factors(const struct pl_optimizer *optimizer, double rate, double gradient_factor)
{
    const struct pl_optimizer_options *options = &optimizer->options;
    double step = (double)(optimizer->state.steps + 1);

    return (struct factors){
        .gradient = (float)gradient_factor,
        .rate = (float)rate,
        .decay = (float)options->weight_decay,
        .momentum = (float)options->momentum,
        .beta1 = (float)options->beta1,
        .beta2 = (float)options->beta2,
        .epsilon = (float)options->epsilon,
        .correct1 = (float)(1.0 / (1.0 - pow(options->beta1, step))),
        .correct2 = (float)(1.0 / (1.0 - pow(options->beta2, step))),
    };
}

/* True when the step is to be left out. */
static bool adapt_loss_scale(struct pl_optimizer *optimizer, double squares)
{
    if (!(optimizer->options.loss_scale > 0.0)) {
        return false;
    }
    if (!isfinite(squares)) {
        optimizer->state.loss_scale = fmax(optimizer->state.loss_scale / 2.0, 1.0);
        optimizer->state.good_steps = 0;
        optimizer->state.skipped++;
        return true;
    }
    optimizer->state.good_steps++;
    return false;
}

static void grow_loss_scale(struct pl_optimizer *optimizer)
{
    if (optimizer->options.loss_scale > 0.0 && optimizer->state.good_steps >= optimizer->options.growth_steps) {
        optimizer->state.loss_scale *= 2.0;
        optimizer->state.good_steps = 0;
    }
}

enum pl_status pl_optimizer_step(struct pl_optimizer *optimizer, double rate, struct pl_error *reterr)
{
    struct pl_plan *plan = optimizer->plan;
    double gradient_factor = 1.0 / optimizer->state.loss_scale;
    struct factors f;

    if (optimizer->options.clip_norm > 0.0 || optimizer->options.loss_scale > 0.0) {
        double squares;

        PL_TRY(pl_plan_wait_bucket(plan, pl_plan_bucket_count(plan) - 1, reterr));
        squares = squared_norm(plan);
        if (adapt_loss_scale(optimizer, squares)) {
            return pl_plan_wait(plan, reterr);
        }
        optimizer->norm = sqrt(squares) * gradient_factor;
        if (optimizer->options.clip_norm > 0.0 && optimizer->norm > optimizer->options.clip_norm) {
            gradient_factor *= optimizer->options.clip_norm / optimizer->norm;
        }
    }
    f = factors(optimizer, rate, gradient_factor);
    for (size_t b = 0; b < pl_plan_bucket_count(plan); b++) {
        PL_TRY(pl_plan_wait_bucket(plan, b, reterr));
        step_bucket(optimizer, b, &f);
    }
    optimizer->state.steps++;
    grow_loss_scale(optimizer);
    return pl_plan_wait(plan, reterr);
}

double pl_optimizer_loss_scale(const struct pl_optimizer *optimizer)
{
    return optimizer->state.loss_scale;
}

double pl_optimizer_gradient_norm(const struct pl_optimizer *optimizer)
{
    return optimizer->norm;
}

struct pl_optimizer_state pl_optimizer_state(const struct pl_optimizer *optimizer)
{
    return optimizer->state;
}

void pl_optimizer_restore(struct pl_optimizer *optimizer, const struct pl_optimizer_state *state)
{
    optimizer->state = *state;
}

unsigned pl_optimizer_slots(const struct pl_optimizer *optimizer)
{
    return optimizer->slots;
}

const char *pl_optimizer_slot_name(const struct pl_optimizer *optimizer, unsigned slot)
{
    PL_BUG_IF(slot >= optimizer->slots);
    if (optimizer->options.kind == PL_SGD) {
        return "momentum";
    }
    return slot == 0 ? "mean" : "variance";
}

float *pl_optimizer_slot(const struct pl_optimizer *optimizer, unsigned slot)
{
    PL_BUG_IF(slot >= optimizer->slots);
    return optimizer->slot[slot];
}

enum pl_status pl_optimizer_broadcast(struct pl_optimizer *optimizer, int root, struct pl_error *reterr)
{
    struct pl_world *world = pl_plan_world(optimizer->plan);

    PL_TRY(pl_broadcast(world, &optimizer->state, sizeof(optimizer->state), PL_UINT8, root, reterr));
    for (unsigned s = 0; s < optimizer->slots; s++) {
        PL_TRY(pl_broadcast(world, optimizer->slot[s], pl_plan_elems(optimizer->plan), PL_FLOAT32, root, reterr));
    }
    return PL_OK;
}
