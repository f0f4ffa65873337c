/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/gradient/optimizer.c, runtime/gradient/optimizer_rule.c. */
#include "runtime/optimizer.h"

#include "base/memory.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/schedule.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/ranks.h"

#include <math.h>
#include <string.h>

enum { ELEMS = 37, STEPS = 5 };

/* Plain double-precision forms of the published rules, for one element. */
struct reference {
    double value;
    double first;
    double second;
};

static void reference_step(struct reference *r, const struct pl_optimizer_options *o, double g, double rate, int step)
{
    double beta1 = o->beta1 > 0.0 ? o->beta1 : 0.9;
    double beta2 = o->beta2 > 0.0 ? o->beta2 : 0.999;

    if (o->kind == PL_SGD) {
        g += o->weight_decay * r->value;
        r->first = o->momentum * r->first + g;
        r->value -= rate * (o->momentum > 0.0 ? (o->nesterov ? g + o->momentum * r->first : r->first) : g);
        return;
    }
    if (o->kind == PL_ADAGRAD) {
        g += o->weight_decay * r->value;
        r->first += g * g;
        r->value -= rate * g / (sqrt(r->first) + (o->epsilon > 0.0 ? o->epsilon : 1e-8));
        return;
    }
    if (o->kind == PL_ADAMW) {
        r->value -= rate * o->weight_decay * r->value;
    } else {
        g += o->weight_decay * r->value;
    }
    r->first = beta1 * r->first + (1.0 - beta1) * g;
    r->second = beta2 * r->second + (1.0 - beta2) * g * g;
    r->value -= rate * (r->first / (1.0 - pow(beta1, step))) /
                (sqrt(r->second / (1.0 - pow(beta2, step))) + (o->epsilon > 0.0 ? o->epsilon : 1e-8));
}

static struct pl_plan *make_plan(struct pl_world *world)
{
    struct pl_plan_options options = {.bucket_bytes = 64};
    struct pl_plan *plan = NULL;
    uint64_t shape = ELEMS;
    size_t index;

    ck_ok(pl_plan_new, world, &options, &plan);
    ck_ok(pl_plan_add, plan, "w", 1, &shape, &index);
    ck_ok(pl_plan_seal, plan);
    return plan;
}

struct job {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    const struct pl_plan_tensor *tensor; /* its only tensor */
};

static struct job job_start(struct pl_world *world, const struct pl_optimizer_options *options)
{
    struct job job = {.plan = make_plan(world)};

    ck_ok(pl_optimizer_new, job.plan, options, &job.optimizer);
    job.tensor = pl_plan_tensor(job.plan, 0);
    return job;
}

static void job_step(const struct job *job, double rate)
{
    ck_ok(pl_plan_ready, job->plan, 0);
    ck_ok(pl_optimizer_step, job->optimizer, rate);
}

static void job_end(struct job *job)
{
    pl_optimizer_free(job->optimizer);
    pl_plan_free(job->plan);
}

static double gradient_of(int step, int e)
{
    return sin(step * 1.7 + e);
}

static void follows_reference(struct pl_world *world, void *context)
{
    const struct pl_optimizer_options *options = context;
    struct job job = job_start(world, options);
    struct reference reference[ELEMS];

    for (int e = 0; e < ELEMS; e++) {
        reference[e] = (struct reference){.value = cos(e)};
        job.tensor->value[e] = (float)cos(e);
    }
    for (int step = 1; step <= STEPS; step++) {
        double norm = 0.0;

        for (int e = 0; e < ELEMS; e++) {
            job.tensor->gradient[e] = (float)gradient_of(step, e);
            norm += gradient_of(step, e) * gradient_of(step, e);
        }
        norm = sqrt(norm);
        job_step(&job, 0.01 * step);
        for (int e = 0; e < ELEMS; e++) {
            double shorter = options->clip_norm > 0.0 && norm > options->clip_norm ? options->clip_norm / norm : 1.0;

            reference_step(&reference[e], options, gradient_of(step, e) * shorter, 0.01 * step, step);
            ck_assert_double_eq_tol((double)job.tensor->value[e], reference[e].value, 2e-6);
        }
        if (options->clip_norm > 0.0) {
            ck_assert_double_eq_tol(pl_optimizer_gradient_norm(job.optimizer), norm, 1e-5);
        }
    }
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).steps, STEPS);
    job_end(&job);
}

TEST(every_rule_follows_its_double_precision_form)
{
    struct pl_optimizer_options options[] = {
        {.kind = PL_SGD},
        {.kind = PL_SGD, .weight_decay = 0.1},
        {.kind = PL_SGD, .momentum = 0.9},
        {.kind = PL_SGD, .momentum = 0.9, .weight_decay = 0.1},
        {.kind = PL_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
        {.kind = PL_ADAM},
        {.kind = PL_ADAM, .weight_decay = 0.1},
        {.kind = PL_ADAMW, .weight_decay = 0.1},
        {.kind = PL_ADAM, .beta1 = 0.5, .beta2 = 0.8, .epsilon = 0.25},
        {.kind = PL_ADAMW, .beta1 = 0.75, .weight_decay = 0.1, .clip_norm = 1.5},
        {.kind = PL_SGD, .momentum = 0.9, .clip_norm = 1.5},
        {.kind = PL_SGD, .clip_norm = 1e6},
        {.kind = PL_ADAGRAD, .weight_decay = 0.1},
        {.kind = PL_ADAGRAD, .epsilon = 0.25, .clip_norm = 1.5},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(options); i++) {
        ranks_run(1, follows_reference, &options[i]);
        ranks_run(2, follows_reference, &options[i]);
    }
}

/* With equal gradients both means of Adam are that gradient after the correction: every step, even the first, is as
 * long as the rate. */
static void equal_steps(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = *(enum pl_optimizer_kind *)context};
    struct job job = job_start(world, &options);

    for (int step = 1; step <= STEPS; step++) {
        for (int e = 0; e < ELEMS; e++) {
            job.tensor->gradient[e] = (float)(e + 1);
        }
        job_step(&job, 1.0);
        for (int e = 0; e < ELEMS; e++) {
            ck_assert_double_eq_tol((double)job.tensor->value[e], -step, 2e-6 * step);
        }
    }
    job_end(&job);
}

TEST(adams_first_steps_are_as_long_as_the_rate)
{
    enum pl_optimizer_kind kinds[] = {PL_ADAM, PL_ADAMW};

    ranks_run(1, equal_steps, &kinds[0]);
    ranks_run(1, equal_steps, &kinds[1]);
}

/* Numbers for which the rule is not defined are refused by name. */
static void refused(struct pl_world *world, void *context)
{
    const struct {
        const char *name;
        struct pl_optimizer_options options;
    } cases[] = {
        {"4 is not a kind", {.kind = (enum pl_optimizer_kind)4}},
        {"momentum", {.momentum = (double)NAN}},
        {"weight_decay", {.weight_decay = -0.1}},
        {"beta1", {.kind = PL_ADAM, .beta1 = 1.0}},
        {"beta2", {.kind = PL_ADAM, .beta2 = 1.0 - 1e-12}}, /* it is 1 in float */
        {"epsilon", {.kind = PL_ADAM, .epsilon = HUGE_VAL}},
        {"clip_norm", {.clip_norm = (double)NAN}},
        {"loss_scale", {.loss_scale = -1.0}},
    };
    AUTO_PLAN struct pl_plan *plan = make_plan(world);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_optimizer *optimizer = NULL;
        struct pl_error error = PL_ERROR_NONE;

        ck_assert_int_eq(pl_optimizer_new(plan, &cases[i].options, &optimizer, &error), PL_INVALID);
        ck_assert_msg(strstr(error.cause, cases[i].name) == error.cause, "%s: %s", cases[i].name, error.cause);
    }
}

UNIT_TEST(options_that_no_rule_is_defined_for_are_refused, ranks_run(1, refused, NULL))

static void loss_scale(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = PL_SGD, .loss_scale = 1024.0, .growth_steps = 2};
    struct job job = job_start(world, &options);
    const double scales[] = {1024.0, 1024.0, 2048.0, 1024.0, 1024.0, 2048.0};

    for (int step = 0; step < 6; step++) {
        ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), scales[step]);
        for (int e = 0; e < ELEMS; e++) {
            job.tensor->gradient[e] = (float)pl_optimizer_loss_scale(job.optimizer);
        }
        if (step == 2 && pl_world_rank(world) == 0) {
            job.tensor->gradient[5] = HUGE_VALF; /* on one rank only: all ranks skip the step */
        }
        job_step(&job, 0.5);
    }
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).skipped, 1);
    for (int e = 0; e < ELEMS; e++) {
        ck_assert_double_eq((double)job.tensor->value[e], -2.5);
    }
    job_end(&job);
}

TEST(a_scaled_loss_is_undone_and_overflow_skips_the_step_on_all_ranks)
{
    ranks_run(1, loss_scale, NULL);
    ranks_run(3, loss_scale, NULL);
}

/* The loss scale is removed before gradients are clipped, and after an overflow the count of good steps begins
 * again. */
static void scaled_and_clipped(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = PL_SGD, .loss_scale = 1024.0, .growth_steps = 2, .clip_norm = 0.5};
    struct job job = job_start(world, &options);
    const double scales[] = {1024.0, 1024.0, 512.0, 512.0, 1024.0};

    for (int step = 0; step < 5; step++) {
        ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), scales[step]);
        memset(job.tensor->gradient, 0, ELEMS * sizeof(float));
        job.tensor->gradient[0] = step == 1 ? HUGE_VALF : 2.0F * (float)scales[step]; /* the norm is 2 */
        job_step(&job, 1.0);
        ck_assert(step == 1 ? isinf(pl_optimizer_gradient_norm(job.optimizer))
                            : fabs(pl_optimizer_gradient_norm(job.optimizer) - 2.0) < 1e-6);
    }
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).skipped, 1);
    ck_assert_double_eq_tol((double)job.tensor->value[0], -4 * 0.5, 1e-6);
    job_end(&job);
}

TEST(a_scaled_loss_is_undone_before_gradients_are_clipped)
{
    ranks_run(1, scaled_and_clipped, NULL);
    ranks_run(2, scaled_and_clipped, NULL);
}

/* An overflow never makes the factor larger. The state of a scaled run divides nothing in a run without scaling, and
 * the other way round. */
static void small_scale(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = PL_SGD, .loss_scale = 0.5};
    const struct pl_optimizer_state scaled = {.steps = 3, .good_steps = 2, .loss_scale = 1024.0};
    struct pl_optimizer_state unscaled;
    struct job job = job_start(world, &options);

    job.tensor->gradient[0] = HUGE_VALF;
    job_step(&job, 1.0);
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).skipped, 1);
    ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), 0.5);
    pl_optimizer_restore(job.optimizer, &scaled);
    ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), 1024.0);
    job_end(&job);

    options.loss_scale = 0.0;
    job = job_start(world, &options);
    pl_optimizer_restore(job.optimizer, &scaled);
    ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), 1.0);
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).steps, 3);
    memset(job.tensor->gradient, 0, ELEMS * sizeof(float));
    job.tensor->gradient[0] = 2.0F;
    job_step(&job, 1.0);
    ck_assert_double_eq((double)job.tensor->value[0], -2.0);
    unscaled = pl_optimizer_state(job.optimizer);
    job_end(&job);

    options.loss_scale = 256.0;
    job = job_start(world, &options);
    pl_optimizer_restore(job.optimizer, &unscaled);
    ck_assert_double_eq(pl_optimizer_loss_scale(job.optimizer), 256.0);
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).steps, 4);
    job_end(&job);
}

TEST(a_loss_scale_counts_only_where_the_loss_is_scaled_and_never_grows_by_an_overflow)
{
    ranks_run(1, small_scale, NULL);
    ranks_run(2, small_scale, NULL);
}

/* Zero does not overflow, whatever the factor is. */
static void zero_gradients(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = PL_SGD, .loss_scale = 1024.0, .growth_steps = 1};
    struct job job = job_start(world, &options);

    for (int step = 0; step < 1100; step++) {
        memset(job.tensor->gradient, 0, ELEMS * sizeof(float));
        job_step(&job, 1.0);
    }
    ck_assert(isfinite((float)pl_optimizer_loss_scale(job.optimizer)));
    job.tensor->gradient[0] = (float)pl_optimizer_loss_scale(job.optimizer);
    job_step(&job, 1.0);
    ck_assert_double_eq((double)job.tensor->value[0], -1.0);
    job_end(&job);
}

UNIT_TEST(a_loss_scale_stays_a_float_however_long_nothing_overflows, ranks_run(1, zero_gradients, NULL))

static void broadcast(struct pl_world *world, void *context)
{
    struct pl_optimizer_options options = {.kind = PL_ADAM};
    struct job job = job_start(world, &options);
    struct pl_optimizer_state state = {.steps = (uint64_t)pl_world_rank(world) + 7, .loss_scale = 1.0};

    pl_optimizer_restore(job.optimizer, &state);
    ck_assert_uint_eq(pl_optimizer_slots(job.optimizer), 2);
    ck_assert_str_eq(pl_optimizer_slot_name(job.optimizer, 1), "variance");
    pl_optimizer_slot(job.optimizer, 1)[3] = (float)pl_world_rank(world) + 1.0F;
    ck_ok(pl_optimizer_broadcast, job.optimizer, 1);
    ck_assert_uint_eq(pl_optimizer_state(job.optimizer).steps, 8);
    ck_assert_double_eq((double)pl_optimizer_slot(job.optimizer, 1)[3], 2.0);
    job_end(&job);
}

UNIT_TEST(broadcast_gives_all_ranks_the_roots_state, ranks_run(3, broadcast, NULL))

TEST(warm_up_goes_straight_from_the_base_to_the_full_rate)
{
    struct pl_schedule s = {.base_rate = 0.1, .scale = 4.0, .warmup_steps = 10};

    ck_assert_double_eq_tol(pl_schedule_rate(&s, 0), 0.1, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 5), 0.25, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 10), 0.4, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 1000000), 0.4, 1e-15);
}

TEST(a_zero_schedule_is_the_base_rate)
{
    struct pl_schedule s = {.base_rate = 0.1};

    ck_assert_double_eq(pl_schedule_rate(&s, 0), 0.1);
    ck_assert_double_eq(pl_schedule_rate(&s, 7), 0.1);
}

TEST(steps_multiply_by_gamma)
{
    struct pl_schedule s = {
        .kind = PL_SCHEDULE_STEP, .base_rate = 1.0, .warmup_steps = 2, .every_steps = 3, .gamma = 0.5};

    ck_assert_double_eq(pl_schedule_rate(&s, 4), 1.0);
    ck_assert_double_eq(pl_schedule_rate(&s, 5), 0.5);
    ck_assert_double_eq(pl_schedule_rate(&s, 8), 0.25);
}

TEST(cosine_and_polynomial_end_at_the_end_rate)
{
    struct pl_schedule s = {
        .kind = PL_SCHEDULE_COSINE, .base_rate = 1.0, .warmup_steps = 10, .total_steps = 110, .end_rate = 0.2};

    ck_assert_double_eq_tol(pl_schedule_rate(&s, 10), 1.0, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.6, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 110), 0.2, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 999), 0.2, 1e-12);
    s.kind = PL_SCHEDULE_POLYNOMIAL;
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.6, 1e-12);
    s.power = 2.0;
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 60), 0.4, 1e-12);
    ck_assert_double_eq_tol(pl_schedule_rate(&s, 110), 0.2, 1e-12);
}

UNIT_MAIN("runtime/optimizer")
