/* SPDX-License-Identifier: Apache-2.0 */
/* SGD, Adam, AdamW and Adagrad: options, the factors of a step, and the loops over host memory; learning rate
 * schedules. */
#include "runtime/gradient/optimizer_rule.h"

#include "base/memory.h"
#include "device/kernel_private.h"
#include "device/step.h"
#include "runtime/schedule.h"

#include <math.h>

/* Checks the values as floats, because the step uses floats: a beta just below 1 becomes 1. */
static enum pl_status check_ranges(const struct pl_optimizer_options *options, struct pl_error *reterr)
{
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {
        {"momentum", options->momentum, HUGE_VAL},
        {"weight_decay", options->weight_decay, HUGE_VAL},
        {"beta1", options->beta1, 1.0},
        {"beta2", options->beta2, 1.0},
        {"epsilon", options->epsilon, HUGE_VAL},
        {"clip_norm", options->clip_norm, HUGE_VAL},
        {"loss_scale", options->loss_scale, HUGE_VAL},
    };

    if ((unsigned)options->kind > PL_ADAGRAD) {
        return pl_error_set(reterr, PL_INVALID, "%d is not a kind of optimizer", (int)options->kind);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        double value = (double)(float)numbers[i].value;

        if (!(value >= 0.0 && value < numbers[i].below)) {
            return pl_error_set(reterr, PL_INVALID, "%s is %g, expected a number from 0 to below %g", numbers[i].name,
                                numbers[i].value, numbers[i].below);
        }
    }
    return PL_OK;
}

enum pl_status pl_optimizer_rule_check(struct pl_optimizer_options *options, struct pl_error *reterr)
{
    PL_TRY(check_ranges(options, reterr));
    if (options->kind != PL_SGD) {
        options->beta1 = options->beta1 > 0.0 ? options->beta1 : 0.9;
        options->beta2 = options->beta2 > 0.0 ? options->beta2 : 0.999;
        options->epsilon = options->epsilon > 0.0 ? options->epsilon : 1e-8;
    }
    options->growth_steps = options->growth_steps ? options->growth_steps : 2000;
    return PL_OK;
}

unsigned pl_optimizer_rule_slots(const struct pl_optimizer_options *options)
{
    switch (options->kind) {
    case PL_SGD:
        return options->momentum > 0.0 ? 1 : 0;
    case PL_ADAGRAD:
        return 1;
    case PL_ADAM:
    case PL_ADAMW:
        break;
    }
    return 2;
}

const char *pl_optimizer_rule_slot_name(const struct pl_optimizer_options *options, unsigned slot)
{
    switch (options->kind) {
    case PL_SGD:
        return "momentum";
    case PL_ADAGRAD:
        return "squares";
    case PL_ADAM:
    case PL_ADAMW:
        break;
    }
    return slot == 0 ? "mean" : "variance";
}

struct pl_device_step pl_optimizer_rule_step(const struct pl_optimizer_options *options, uint64_t number, double rate,
                                             double gradient_factor)
{
    double power = (double)number;
    struct pl_device_step step = {
        .kind = PL_DEVICE_ADAM,
        .factors = {.gradient = (float)gradient_factor,
                    .rate = (float)rate,
                    .decay = (float)options->weight_decay,
                    .momentum = (float)options->momentum,
                    .beta1 = (float)options->beta1,
                    .beta2 = (float)options->beta2,
                    .epsilon = (float)options->epsilon,
                    /* Uses the betas rounded to float, as the loops do: 1 - 0.999 is 0.0013 % smaller in float. */
                    .correct1 = (float)(1.0 / (1.0 - pow((double)(float)options->beta1, power))),
                    .correct2 = (float)(1.0 / (1.0 - pow((double)(float)options->beta2, power)))},
    };

    if (options->kind == PL_SGD) {
        step.kind = !(options->momentum > 0.0) ? PL_DEVICE_SGD
                    : options->nesterov        ? PL_DEVICE_NESTEROV
                                               : PL_DEVICE_MOMENTUM;
    } else if (options->kind == PL_ADAGRAD) {
        step.kind = PL_DEVICE_ADAGRAD;
    } else if (options->kind == PL_ADAMW) {
        step.factors.shrink = step.factors.rate * step.factors.decay;
        step.factors.decay = 0.0F;
    }
    return step;
}

/* One loop for each rule, so that the compiler vectorizes it. The device's kernels have the same loop bodies. */
static void step_plain(uint64_t count, float *restrict value, const float *restrict gradient,
                       const struct pl_step_factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        pl_step_sgd(f, &value[i], gradient[i]);
    }
}

static void step_momentum(uint64_t count, float *restrict value, const float *restrict gradient,
                          float *restrict velocity, const struct pl_step_factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        pl_step_momentum(f, &value[i], gradient[i], &velocity[i]);
    }
}

static void step_nesterov(uint64_t count, float *restrict value, const float *restrict gradient,
                          float *restrict velocity, const struct pl_step_factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        pl_step_nesterov(f, &value[i], gradient[i], &velocity[i]);
    }
}

static void step_adam(uint64_t count, float *restrict value, const float *restrict gradient, float *restrict mean,
                      float *restrict variance, const struct pl_step_factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        pl_step_adam(f, &value[i], gradient[i], &mean[i], &variance[i]);
    }
}

static void step_adagrad(uint64_t count, float *restrict value, const float *restrict gradient, float *restrict squares,
                         const struct pl_step_factors *f)
{
    for (uint64_t i = 0; i < count; i++) {
        pl_step_adagrad(f, &value[i], gradient[i], &squares[i]);
    }
}

void pl_optimizer_rule_apply(const struct pl_device_step *step, uint64_t count, float *value, const float *gradient,
                             float *const *slot)
{
    switch (step->kind) {
    case PL_DEVICE_SGD:
        step_plain(count, value, gradient, &step->factors);
        break;
    case PL_DEVICE_MOMENTUM:
        step_momentum(count, value, gradient, slot[0], &step->factors);
        break;
    case PL_DEVICE_NESTEROV:
        step_nesterov(count, value, gradient, slot[0], &step->factors);
        break;
    case PL_DEVICE_ADAGRAD:
        step_adagrad(count, value, gradient, slot[0], &step->factors);
        break;
    case PL_DEVICE_ADAM:
        step_adam(count, value, gradient, slot[0], slot[1], &step->factors);
        break;
    }
}

double pl_schedule_rate(const struct pl_schedule *schedule, uint64_t step)
{
    double scale = schedule->scale > 0.0 ? schedule->scale : 1.0;
    double full = schedule->base_rate * scale;
    uint64_t past_warmup;
    double way = 1.0;

    if (step < schedule->warmup_steps) {
        return schedule->base_rate * (1.0 + (scale - 1.0) * (double)step / (double)schedule->warmup_steps);
    }
    past_warmup = step - schedule->warmup_steps;
    if (schedule->total_steps > schedule->warmup_steps) {
        way = fmin((double)past_warmup / (double)(schedule->total_steps - schedule->warmup_steps), 1.0);
    }
    switch (schedule->kind) {
    case PL_SCHEDULE_CONSTANT:
        break;
    case PL_SCHEDULE_STEP:
        return schedule->every_steps > 0 ? full * pow(schedule->gamma, (double)(past_warmup / schedule->every_steps))
                                         : full;
    case PL_SCHEDULE_COSINE:
        return schedule->end_rate + (full - schedule->end_rate) * 0.5 * (1.0 + cos(acos(-1.0) * way));
    case PL_SCHEDULE_POLYNOMIAL:
        return schedule->end_rate +
               (full - schedule->end_rate) * pow(1.0 - way, schedule->power > 0.0 ? schedule->power : 1.0);
    }
    return full;
}
