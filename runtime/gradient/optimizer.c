/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers over a plan's buckets, gradient clipping, and the loss scale. */
#include "runtime/optimizer.h"

#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/kernel_private.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/gradient/plan_private.h"

#include <math.h>
#include <stdlib.h>

/* The scale and its inverse must be floats. Without a limit the scale would grow forever while gradients are zero. */
static const double most_loss_scale = 0x1p126;

struct pl_optimizer {
    struct pl_plan *plan;
    struct pl_optimizer_options options;
    struct pl_optimizer_state state;
    double norm;
    double factor; /* factor for the last step's gradients; it undoes the loss scale */
    unsigned slots;
    float *slot[PL_OPTIMIZER_MOST_SLOTS];

    /* in device memory only */
    struct pl_device *device;
    void *scratch;   /* [PL_DEVICE_NORM_BYTES], device memory */
    double *squares; /* pinned memory: the sum of squares of the last step's gradients */
};

/* Whether the step needs the norm of the gradients. */
static bool wants_norm(const struct pl_optimizer *optimizer)
{
    return optimizer->options.clip_norm > 0.0 || optimizer->options.loss_scale > 0.0;
}

static enum pl_status allocate(struct pl_optimizer *optimizer, struct pl_error *reterr)
{
    for (unsigned s = 0; s < optimizer->slots; s++) {
        optimizer->slot[s] = pl_plan_new_array(optimizer->plan, reterr);
        if (!optimizer->slot[s]) {
            return PL_MEMORY;
        }
    }
    if (optimizer->device && wants_norm(optimizer)) {
        void *squares;

        PL_TRY(pl_device_alloc(optimizer->device, PL_DEVICE_NORM_BYTES, &optimizer->scratch, reterr));
        PL_TRY(pl_device_alloc_pinned(optimizer->device, sizeof(double), &squares, reterr));
        optimizer->squares = squares;
    }
    return PL_OK;
}

enum pl_status pl_optimizer_new(struct pl_plan *plan, const struct pl_optimizer_options *options,
                                struct pl_optimizer **ret_optimizer, struct pl_error *reterr)
{
    struct pl_optimizer_options checked = *options;
    struct pl_optimizer *optimizer;
    enum pl_status status;

    PL_TRY(pl_plan_check_sealed(plan, reterr));
    PL_TRY(pl_optimizer_rule_check(&checked, reterr));
    PL_TRY(pl_memory_alloc(&optimizer, 1, sizeof(*optimizer), reterr));
    optimizer->plan = plan;
    optimizer->device = pl_plan_device(plan);
    optimizer->options = checked;
    optimizer->slots = pl_optimizer_rule_slots(&checked);
    optimizer->state.loss_scale = options->loss_scale;
    status = allocate(optimizer, reterr);
    if (status != PL_OK) {
        pl_optimizer_free(optimizer);
        return status;
    }
    *ret_optimizer = optimizer;
    return PL_OK;
}

void pl_optimizer_free(struct pl_optimizer *optimizer)
{
    if (optimizer) {
        for (unsigned s = 0; s < PL_OPTIMIZER_MOST_SLOTS; s++) {
            pl_plan_free_array(optimizer->plan, optimizer->slot[s]);
        }
        pl_device_release(optimizer->device, optimizer->scratch);
        pl_device_release_pinned(optimizer->device, optimizer->squares);
        /* if the world has leaked, a message of a broadcast may still write there */
        free(pl_world_has_leaked(pl_plan_world(optimizer->plan)) ? NULL : optimizer);
    }
}

/* Takes the step for the adjacent buckets `begin` to `end` - 1, on a device by one kernel launch. */
static enum pl_status step_buckets(struct pl_optimizer *optimizer, size_t begin, size_t end,
                                   const struct pl_device_step *step, struct pl_error *reterr)
{
    struct pl_plan *plan = optimizer->plan;
    uint64_t first, last;
    uint64_t count;
    float *value, *slot[PL_OPTIMIZER_MOST_SLOTS];
    const float *gradient = pl_plan_gradients(plan);

    pl_plan_bucket(plan, begin, &first, &count);
    pl_plan_bucket(plan, end - 1, &last, &count);
    count += last - first;
    value = pl_plan_values(plan) + first;
    for (unsigned s = 0; s < PL_OPTIMIZER_MOST_SLOTS; s++) {
        slot[s] = optimizer->slot[s] ? optimizer->slot[s] + first : NULL;
    }
    if (optimizer->device) {
        enum pl_dtype dtype = plan->options.gradient_dtype;

        return pl_device_optimize(optimizer->device, step, count, value,
                                  (const char *)gradient + first * pl_dtype_bytes(dtype), dtype, slot[0], slot[1],
                                  plan->options.stream, reterr);
    }
    pl_optimizer_rule_apply(step, count, value, gradient + first, slot);
    return PL_OK;
}

/* Sums in double and always in the same order, so that every rank gets the same bits. */
static double squared_norm(const struct pl_plan *plan)
{
    const float *gradient = pl_plan_gradients(plan);
    uint64_t elems = pl_plan_elems(plan);
    double sums[4] = {0.0};

    for (uint64_t i = 0; i < elems; i += 4) { /* `elems` is a multiple of 16 */
        for (size_t k = 0; k < 4; k++) {
            sums[k] += (double)gradient[i + k] * (double)gradient[i + k];
        }
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/* Returns true if the step must be skipped. */
static bool adapt_loss_scale(struct pl_optimizer *optimizer, double squares)
{
    if (!(optimizer->options.loss_scale > 0.0)) {
        return false;
    }
    if (!isfinite(squares)) {
        optimizer->state.loss_scale = fmax(optimizer->state.loss_scale / 2.0, fmin(optimizer->options.loss_scale, 1.0));
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
        optimizer->state.loss_scale = fmin(2.0 * optimizer->state.loss_scale, most_loss_scale);
        optimizer->state.good_steps = 0;
    }
}

/*
 * Computes the sum of squares of all gradients. In device memory the result stays in `optimizer->squares`. The host
 * waits for it only with a scaled loss, because it then decides whether to take the step.
 */
static enum pl_status find_norm(struct pl_optimizer *optimizer, double *ret_squares, struct pl_error *reterr)
{
    struct pl_plan *plan = optimizer->plan;

    PL_TRY(pl_plan_wait_bucket(plan, pl_plan_bucket_count(plan) - 1, reterr));
    if (!optimizer->device) {
        *ret_squares = squared_norm(plan);
        return PL_OK;
    }
    PL_TRY(pl_device_squared_norm(optimizer->device, pl_plan_gradients(plan), plan->options.gradient_dtype,
                                  pl_plan_elems(plan), optimizer->scratch, optimizer->squares, plan->options.stream,
                                  reterr));
    if (optimizer->options.loss_scale > 0.0) {
        PL_TRY(pl_device_stream_finish(optimizer->device, plan->options.stream,
                                       pl_world_deadline_ns(pl_plan_world(plan)), reterr));
        *ret_squares = *optimizer->squares;
    }
    return PL_OK;
}

static enum pl_status take_step(struct pl_optimizer *optimizer, double rate, struct pl_error *reterr)
{
    struct pl_plan *plan = optimizer->plan;
    struct pl_device_step step;

    optimizer->factor = 1.0 / pl_optimizer_loss_scale(optimizer);
    step = pl_optimizer_rule_step(&optimizer->options, optimizer->state.steps + 1, rate, optimizer->factor);
    if (wants_norm(optimizer)) {
        double squares = 0.0;

        PL_TRY(find_norm(optimizer, &squares, reterr));
        optimizer->norm = sqrt(squares) * optimizer->factor;
        if (adapt_loss_scale(optimizer, squares)) {
            return pl_plan_wait(plan, reterr);
        }
        if (optimizer->options.clip_norm > 0.0) {
            step.squares = optimizer->squares;
            step.clip_norm = optimizer->options.clip_norm;
            if (!optimizer->device && optimizer->norm > step.clip_norm) {
                step.factors.gradient = (float)(optimizer->factor * (step.clip_norm / optimizer->norm));
            }
        }
    }
    PL_TRY(pl_plan_await_copy(plan, reterr));
    for (size_t begin = 0, end; begin < pl_plan_bucket_count(plan); begin = end) {
        PL_TRY(pl_plan_wait_range(plan, begin, &end, reterr));
        PL_TRY(step_buckets(optimizer, begin, end, &step, reterr));
    }
    optimizer->state.steps++;
    grow_loss_scale(optimizer);
    return pl_plan_wait(plan, reterr);
}

enum pl_status pl_optimizer_step(struct pl_optimizer *optimizer, double rate, struct pl_error *reterr)
{
    return pl_world_check_device(pl_plan_world(optimizer->plan), take_step(optimizer, rate, reterr), reterr);
}

double pl_optimizer_loss_scale(const struct pl_optimizer *optimizer)
{
    return optimizer->options.loss_scale > 0.0 ? optimizer->state.loss_scale : 1.0;
}

double pl_optimizer_gradient_norm(const struct pl_optimizer *optimizer)
{
    return optimizer->squares ? sqrt(*optimizer->squares) * optimizer->factor : optimizer->norm;
}

struct pl_optimizer_state pl_optimizer_state(const struct pl_optimizer *optimizer)
{
    return optimizer->state;
}

void pl_optimizer_restore(struct pl_optimizer *optimizer, const struct pl_optimizer_state *state)
{
    optimizer->state = *state;
    /* only one of the two runs scales its loss: keep this optimizer's scale */
    if (!(optimizer->options.loss_scale > 0.0 && state->loss_scale > 0.0)) {
        optimizer->state.loss_scale = optimizer->options.loss_scale;
        optimizer->state.good_steps = 0;
    }
}

unsigned pl_optimizer_slots(const struct pl_optimizer *optimizer)
{
    return optimizer->slots;
}

const char *pl_optimizer_slot_name(const struct pl_optimizer *optimizer, unsigned slot)
{
    PL_BUG_IF(slot >= optimizer->slots);
    return pl_optimizer_rule_slot_name(&optimizer->options, slot);
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
        PL_TRY(pl_plan_broadcast_array(optimizer->plan, optimizer->slot[s], root, reterr));
    }
    return PL_OK;
}
