/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/gradient/plan.c, runtime/gradient/plan_seal.c, runtime/gradient/optimizer.c,
 * runtime/checkpoint/checkpoints.c. */
/* Plans, optimizers and checkpoints in device memory have the same results as in host memory. Runs on any driver that
 * is found: a GPU's or the tests' own. */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/checkpoint.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/gradient/plan_private.h"
#include "runtime/optimizer.h"
#include "runtime/safetensors.h"
#include "tests/support/device_ranks.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdlib.h>

enum { TENSORS = 5, STEPS = 4, LONGEST = 5000 };

static const uint64_t sizes[TENSORS] = {33, LONGEST, 1, 700, 64};
static _Thread_local struct pl_device *device; /* this rank's */

/* Returns a gradient that depends on rank, tensor, step and element; small numbers of few bits, so that sums are
 * exact. */
static float gradient_of(int rank, size_t t, int step, uint64_t e)
{
    return (float)((int)((e * 7 + t * 5 + (uint64_t)step * 3 + (uint64_t)rank * 11) % 17) - 8) * 0.125F;
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16); /* the gradients above need no more bits than that */
}

struct job {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    void *stream;
};

struct trial {
    struct pl_optimizer_options optimizer;
    struct pl_plan_options plan;
    bool leaves_one_out; /* tensor 2 is never ready */
    const char *directory;
};

static enum pl_status job_start(struct pl_world *world, const struct trial *trial, bool on_device, struct job *job,
                                struct pl_error *reterr)
{
    struct pl_plan_options options = trial->plan;
    size_t index;

    options.bucket_bytes = 4096;
    if (on_device) {
        PL_TRY(pl_device_stream_new(device, &job->stream, reterr));
        options.memory = PL_MEMORY_DEVICE;
        options.stream = job->stream;
    } else {
        options.gradient_dtype = PL_FLOAT32;
    }
    PL_TRY(pl_plan_new(world, &options, &job->plan, reterr));
    for (size_t t = 0; t < TENSORS; t++) {
        char name[16];

        snprintf(name, sizeof(name), "t%zu", t);
        PL_TRY(pl_plan_add(job->plan, name, 1, &sizes[t], &index, reterr));
    }
    PL_TRY(pl_plan_seal(job->plan, reterr));
    return pl_optimizer_new(job->plan, &trial->optimizer, &job->optimizer, reterr);
}

static void job_end(struct job *job)
{
    pl_optimizer_free(job->optimizer);
    pl_plan_free(job->plan);
    if (job->stream) {
        pl_device_stream_free(device, job->stream);
    }
}

static enum pl_status give_gradient(struct job *job, const struct pl_plan_tensor *tensor, const float *gradient,
                                    struct pl_error *reterr)
{
    uint16_t half[LONGEST];
    enum pl_dtype dtype = job->plan->options.gradient_dtype;

    for (uint64_t e = 0; e < tensor->count_elems; e++) {
        half[e] = to_bfloat16(gradient[e]);
    }
    if (!pl_plan_device(job->plan)) {
        memcpy(tensor->gradient, gradient, tensor->count_elems * sizeof(float));
        return PL_OK;
    }
    PL_TRY(pl_device_copy(device, tensor->gradient, dtype == PL_FLOAT32 ? (const void *)gradient : half,
                          tensor->count_elems * pl_dtype_bytes(dtype), job->stream, reterr));
    /* after this `gradient` does not exist any more */
    return pl_device_stream_finish(device, job->stream, PL_DEADLINE_NEVER, reterr);
}

static enum pl_status job_train(struct job *job, const struct trial *trial, int first, int end, struct pl_error *reterr)
{
    int rank = pl_world_rank(pl_plan_world(job->plan));

    for (int step = first; step < end; step++) {
        for (size_t t = TENSORS; t-- > 0;) {
            float gradient[LONGEST];

            for (uint64_t e = 0; e < sizes[t]; e++) {
                gradient[e] = gradient_of(rank, t, step, e) * (float)pl_optimizer_loss_scale(job->optimizer);
            }
            if (trial->leaves_one_out && t == 2) {
                continue;
            }
            PL_TRY(give_gradient(job, pl_plan_tensor(job->plan, t), gradient, reterr));
            PL_TRY(pl_plan_ready(job->plan, t, reterr));
        }
        PL_TRY(pl_optimizer_step(job->optimizer, 0.05 * (step + 1), reterr));
    }
    return pl_plan_finish(job->plan, reterr);
}

/* Returns the largest difference between the values of two plans, relative to 1. */
static enum pl_status difference(struct job *a, struct job *b, float *ret_difference, struct pl_error *reterr)
{
    uint64_t elems = pl_plan_elems(a->plan);
    PL_AUTO_FREE float *left = pl_memory_new(elems, sizeof(float), reterr);
    PL_AUTO_FREE float *right = pl_memory_new(elems, sizeof(float), reterr);

    if (!left || !right) {
        return PL_MEMORY;
    }
    *ret_difference = 0.0F;
    PL_TRY(pl_plan_read_array(a->plan, pl_plan_values(a->plan), left, reterr));
    PL_TRY(pl_plan_read_array(b->plan, pl_plan_values(b->plan), right, reterr));
    for (uint64_t e = 0; e < elems; e++) {
        float apart = fabsf(left[e] - right[e]);

        *ret_difference = apart > *ret_difference || isnan(apart) ? apart : *ret_difference;
    }
    return PL_OK;
}

static void same_as_host(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct job host = {0}, here = {0};
    bool exact = !(trial->optimizer.clip_norm > 0.0); /* the norm is added in another order */
    float apart = 0.0F;

    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, false, &host, &error));
    RANKS_OK(job_start(world, trial, true, &here, &error));
    RANKS_OK(job_train(&host, trial, 0, STEPS, &error));
    RANKS_OK(job_train(&here, trial, 0, STEPS, &error));
    RANKS_OK(difference(&host, &here, &apart, &error));
    RANKS_NEED(apart <= (exact ? 0.0F : 2e-6F), "values are %g apart", (double)apart);
    RANKS_NEED(fabs(pl_optimizer_gradient_norm(host.optimizer) - pl_optimizer_gradient_norm(here.optimizer)) < 1e-9,
               "norms %.17g and %.17g", pl_optimizer_gradient_norm(host.optimizer),
               pl_optimizer_gradient_norm(here.optimizer));
    RANKS_NEED(pl_plan_counts(here.plan).zeroed == (trial->leaves_one_out ? STEPS : 0),
               "%llu gradients counted as missing", (unsigned long long)pl_plan_counts(here.plan).zeroed);
    job_end(&here);
    job_end(&host);
}

static void run(int ranks, struct trial *trial, ranks_function *function)
{
    for (int devices = 1; devices > 0; devices = device_next(devices, ranks)) {
        ck_assert_ranks_on(ranks, devices, NULL, function, trial);
    }
}

TEST(every_optimizer_steps_as_in_host_memory)
{
    struct trial trials[] = {
        {.optimizer = {.kind = PL_SGD}},
        {.optimizer = {.kind = PL_SGD, .momentum = 0.9, .weight_decay = 0.1}},
        {.optimizer = {.kind = PL_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
        {.optimizer = {.kind = PL_ADAM, .weight_decay = 0.1}},
        {.optimizer = {.kind = PL_ADAMW, .weight_decay = 0.1}, .plan = {.sum = true}},
        {.optimizer = {.kind = PL_ADAGRAD, .weight_decay = 0.1}},
        {.optimizer = {.kind = PL_SGD, .momentum = 0.9, .clip_norm = 1.5}},
        {.optimizer = {.kind = PL_ADAM, .clip_norm = 0.5, .loss_scale = 256.0}},
        {.optimizer = {.kind = PL_SGD}, .leaves_one_out = true},
        {.optimizer = {.kind = PL_SGD, .momentum = 0.9, .clip_norm = 1.0},
         .plan = {.gradient_dtype = PL_BFLOAT16, .sum = true}},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(trials); i++) {
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            run(ranks, &trials[i], same_as_host);
        }
    }
}

static void not_finite(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct job here = {0};
    float infinite = HUGE_VALF, value = 1.0F;

    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, true, &here, &error));
    RANKS_OK(job_train(&here, trial, 0, 1, &error));
    RANKS_OK(pl_device_copy(device, &value, pl_plan_tensor(here.plan, 0)->value, sizeof(value), here.stream, &error));
    for (size_t t = TENSORS; t-- > 0;) {
        RANKS_OK(pl_device_copy(device, pl_plan_tensor(here.plan, t)->gradient, &infinite, sizeof(infinite),
                                here.stream, &error));
        RANKS_OK(pl_plan_ready(here.plan, t, &error));
    }
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    RANKS_OK(pl_plan_finish(here.plan, &error));
    /* NOLINT */
    RANKS_NEED(pl_optimizer_loss_scale(here.optimizer) == 512.0, "the loss scale is %g",
               pl_optimizer_loss_scale(here.optimizer));
    RANKS_NEED(pl_optimizer_state(here.optimizer).skipped == 1 && pl_optimizer_state(here.optimizer).steps == 1,
               "the step was taken");
    {
        float after = 0.0F;

        RANKS_OK(
            pl_device_copy(device, &after, pl_plan_tensor(here.plan, 0)->value, sizeof(after), here.stream, &error));
        RANKS_OK(pl_plan_finish(here.plan, &error));
        RANKS_NEED(memcmp(&after, &value, sizeof(after)) == 0, "the values changed from %g to %g", (double)value,
                   (double)after);
    }
    job_end(&here);
}

TEST(gradients_that_are_not_finite_skip_the_step_on_the_device)
{
    struct trial trial = {.optimizer = {.kind = PL_SGD, .loss_scale = 1024.0}};

    run(1, &trial, not_finite);
    run(2, &trial, not_finite);
}

static void resumes(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct pl_checkpoints_options options = {.directory = trial->directory};
    struct pl_checkpoint_state state = {.step = 2};
    struct pl_checkpoints *kept = NULL, *found_again = NULL;
    struct job whole = {0}, resumed = {0};
    bool found = false;
    float apart = 1.0F;

    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, true, &whole, &error));
    RANKS_OK(pl_checkpoints_open(whole.plan, whole.optimizer, &options, &kept, &error));
    RANKS_OK(job_train(&whole, trial, 0, 2, &error));
    RANKS_OK(pl_checkpoints_save(kept, &state, &error));
    /* The weights change at once: without gradients the host does not wait, so the copy cannot end meanwhile. */
    RANKS_OK(pl_optimizer_step(whole.optimizer, 0.5, &error));
    RANKS_OK(job_train(&whole, trial, 2, STEPS, &error));
    RANKS_OK(pl_checkpoints_flush(kept, &error));
    RANKS_OK(pl_barrier(world, &error));
    RANKS_OK(job_start(world, trial, true, &resumed, &error));
    RANKS_OK(pl_checkpoints_open(resumed.plan, resumed.optimizer, &options, &found_again, &error));
    RANKS_OK(pl_checkpoints_load(found_again, &found, &state, &error));
    RANKS_NEED(found && state.step == 2, "no checkpoint, or of step %llu", (unsigned long long)state.step);
    RANKS_OK(pl_optimizer_step(resumed.optimizer, 0.5, &error));
    RANKS_OK(job_train(&resumed, trial, 2, STEPS, &error));
    RANKS_OK(difference(&whole, &resumed, &apart, &error));
    RANKS_NEED(apart == 0.0F, "resumed %g apart", (double)apart); /* NOLINT */
    pl_checkpoints_close(found_again);
    pl_checkpoints_close(kept);
    job_end(&resumed);
    job_end(&whole);
}

TEST(a_run_resumed_on_the_device_ends_in_the_same_bits)
{
    struct trial trial = {.optimizer = {.kind = PL_ADAM, .weight_decay = 0.1, .clip_norm = 2.0}};

    for (int ranks = 1; ranks <= 2; ranks++) {
        AUTO_SCRATCH struct scratch scratch = scratch_new();

        trial.directory = scratch.path;
        run(ranks, &trial, resumes);
    }
}

/* The copy is held before it begins, and so is every later change of the weights: on the device, because the host
 * continues. */
static void changes_wait(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct pl_checkpoints_options options = {.directory = trial->directory};
    struct pl_checkpoint_state state = {.step = 1};
    struct pl_checkpoints *kept = NULL;
    struct pl_error told = PL_ERROR_NONE;
    struct job here = {0}, again = {0};
    enum pl_status waited;
    bool found = false;
    float apart = 1.0F;

    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, true, &here, &error));
    RANKS_OK(job_start(world, trial, true, &again, &error));
    RANKS_OK(pl_checkpoints_open(here.plan, here.optimizer, &options, &kept, &error));
    RANKS_OK(job_train(&here, trial, 0, 1, &error));
    RANKS_OK(job_train(&again, trial, 0, 1, &error));
    device_order("hold_copies");
    RANKS_OK(pl_checkpoints_save(kept, &state, &error));
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.5, &error));
    waited = pl_device_stream_finish(device, here.stream, pl_deadline_after_ns(PL_NS_PER_S / 5), &told);
    device_order("let_copies_go");
    RANKS_NEED(waited == PL_TIMEOUT, "the weights were changed before the checkpoint had them: %s",
               pl_status_name(waited));
    RANKS_OK(pl_checkpoints_flush(kept, &error));
    RANKS_OK(pl_plan_finish(here.plan, &error));
    RANKS_OK(pl_checkpoints_load(kept, &found, &state, &error));
    RANKS_OK(difference(&here, &again, &apart, &error));
    /* NOLINT */
    RANKS_NEED(found && apart == 0.0F, "the checkpoint is %g apart from the weights of its step", (double)apart);
    pl_checkpoints_close(kept);
    job_end(&again);
    job_end(&here);
}

TEST(the_next_step_waits_for_a_checkpoints_copy_on_the_device)
{
    struct trial trial = {.optimizer = {.kind = PL_ADAM}};
    struct scratch scratch;

    if (!device_order("let_copies_go")) {
        return; /* a real driver does not hold copies */
    }
    scratch = scratch_new();
    trial.directory = scratch.path;
    ck_assert_ranks_on(1, 1, NULL, changes_wait, &trial);
    scratch_done(&scratch);
}

/* As many tensors as ResNet-50 has, in as many buckets as it makes at 4 MiB. */
enum { MANY = 161, MANY_BYTES = 27 << 10, MANY_BUCKETS = 24 };
static const uint64_t many_elems = 1024;

static enum pl_status start_many(struct pl_world *world, const struct trial *trial, struct job *job,
                                 struct pl_error *reterr)
{
    struct pl_plan_options options = trial->plan;
    size_t index;

    PL_TRY(pl_device_stream_new(device, &job->stream, reterr));
    options.bucket_bytes = MANY_BYTES;
    options.memory = PL_MEMORY_DEVICE;
    options.stream = job->stream;
    PL_TRY(pl_plan_new(world, &options, &job->plan, reterr));
    for (size_t t = 0; t < MANY; t++) {
        char name[16];

        snprintf(name, sizeof(name), "t%zu", t);
        PL_TRY(pl_plan_add(job->plan, name, 1, &many_elems, &index, reterr));
    }
    PL_TRY(pl_plan_seal(job->plan, reterr));
    return pl_optimizer_new(job->plan, &trial->optimizer, &job->optimizer, reterr);
}

/* The number of calls of the driver by this thread. */
struct calls {
    long all, launches, records, waits, queries, contexts;
};

static struct calls calls_since(const struct calls *earlier)
{
    return (struct calls){
        .all = device_calls(NULL) - earlier->all,
        .launches = device_calls("cuLaunchKernel") - earlier->launches,
        .records = device_calls("cuEventRecord") - earlier->records,
        .waits = device_calls("cuStreamWaitEvent") - earlier->waits,
        .queries = device_calls("cuEventQuery") - earlier->queries,
        .contexts = device_calls("cuCtxSetCurrent") - earlier->contexts,
    };
}

/* Counts the driver's calls of a step while the device has no other work: those of ready(), and those of the
 * optimizer. */
static enum pl_status count_step(struct job *job, struct calls *ret_ready, struct calls *ret_step,
                                 struct pl_error *reterr)
{
    const struct calls none = {0};
    struct calls before;

    PL_TRY(pl_plan_finish(job->plan, reterr));
    before = calls_since(&none);
    for (size_t t = MANY; t-- > 0;) {
        PL_TRY(pl_plan_ready(job->plan, t, reterr));
    }
    *ret_ready = calls_since(&before);
    before = calls_since(&none);
    PL_TRY(pl_optimizer_step(job->optimizer, 0.1, reterr));
    *ret_step = calls_since(&before);
    return PL_OK;
}

static void few_calls_alone(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    long launches = (trial->optimizer.clip_norm > 0.0 ? 2 : 0) + 1;
    struct job here = {0};
    struct calls ready, step;

    device = pl_world_device(world);
    RANKS_OK(start_many(world, trial, &here, &error));
    RANKS_NEED(pl_plan_bucket_count(here.plan) == MANY_BUCKETS, "%zu buckets", pl_plan_bucket_count(here.plan));
    RANKS_OK(count_step(&here, &ready, &step, &error)); /* the first launch loads the kernels */
    for (int n = 0; n < 3; n++) {
        RANKS_OK(count_step(&here, &ready, &step, &error));
        RANKS_NEED(ready.all == 0, "%ld calls while gradients became ready", ready.all);
        RANKS_NEED(step.launches == launches && step.records == 1 && step.queries == 1 &&
                       step.contexts == launches + 3 && step.all == 2 * (launches + 3), /* is the stream captured? */
                   "%ld calls of the optimizer's step, %ld launches, %ld records, %ld queries", step.all, step.launches,
                   step.records, step.queries);
    }
    job_end(&here);
}

/* NCCL's own calls are not counted. */
static void few_calls_on_nccl(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const long launches = 5; /* 12, 6, 3, 2 and 1 buckets */
    struct job here = {0};
    struct calls ready, step;

    pl_world_describe(world, &text);
    if (!strstr(pl_text_string(&text), "backend nccl: on")) {
        return;
    }
    device = pl_world_device(world);
    RANKS_OK(start_many(world, argument, &here, &error));
    RANKS_OK(count_step(&here, &ready, &step, &error)); /* the first launch loads the kernels */
    for (int n = 0; n < 3; n++) {
        RANKS_OK(count_step(&here, &ready, &step, &error));
        RANKS_NEED(ready.records >= MANY_BUCKETS && ready.launches == 0, "%ld records as buckets were ready",
                   ready.records);
        RANKS_NEED(ready.records + step.records == 2 * MANY_BUCKETS, "%ld and %ld records", ready.records,
                   step.records);
        /* The optimizer waits for no bucket that is known to have ended. */
        RANKS_NEED(ready.waits + step.waits >= MANY_BUCKETS && ready.waits + step.waits <= MANY_BUCKETS + launches &&
                       step.launches == launches,
                   "%ld launches of the optimizer, %ld and %ld waits", step.launches, ready.waits, step.waits);
        RANKS_NEED(ready.queries + step.queries < 5 * MANY_BUCKETS, "%ld and %ld queries", ready.queries, step.queries);
    }
    job_end(&here);
}

TEST(a_step_makes_few_calls_of_the_driver)
{
    struct trial trials[] = {
        {.optimizer = {.kind = PL_ADAMW}},
        {.optimizer = {.kind = PL_ADAMW, .clip_norm = 1.0}},
        {.optimizer = {.kind = PL_SGD}},
        {.optimizer = {.kind = PL_SGD}, .plan = {.local = true}},
    };

    if (device_calls(NULL) < 0) {
        return; /* a real driver does not count */
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(trials); i++) {
        ck_assert_ranks_on(1, 1, NULL, few_calls_alone, &trials[i]);
    }
    ck_assert_ranks_on(2, 2, NULL, few_calls_on_nccl, &trials[0]);
}

/* The device does not reach the end of a step: the step's calls return, and the next step waits. */
static void one_step_ahead(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial trial = {.optimizer = {.kind = PL_SGD}};
    struct pl_error told = PL_ERROR_NONE;
    struct job here = {0};
    enum pl_status waited;
    void *pinned;

    device = pl_world_device(world);
    RANKS_OK(job_start(world, &trial, true, &here, &error));
    RANKS_OK(pl_device_alloc_pinned(device, sizeof(float), &pinned, &error));
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    /* the program waits only for the held work */
    RANKS_OK(pl_device_stream_finish(device, here.stream, PL_DEADLINE_NEVER, &error));
    device_order("hold_copies");
    RANKS_OK(pl_device_copy(device, pinned, pl_plan_values(here.plan), sizeof(float), here.stream, &error));
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    waited = pl_optimizer_step(here.optimizer, 0.1, &told);
    device_order("let_copies_go");
    RANKS_NEED(waited == PL_TIMEOUT && strstr(told.cause, "has not ended") &&
                   strstr(told.context, "the end of step 2 of gradients"),
               "the host is two steps ahead: %s: %s (%s)", pl_status_name(waited), told.cause, told.context);
    RANKS_OK(pl_device_stream_finish(device, here.stream, PL_DEADLINE_NEVER, &error));
    pl_device_release_pinned(device, pinned);
    job_end(&here);
}

TEST(the_host_is_at_most_one_step_ahead_of_the_device)
{
    struct pl_world_options options = {0};
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "1");

    if (!device_order("let_copies_go")) {
        return; /* a real driver does not hold copies */
    }
    options.knobs = &knobs;
    ck_assert_ranks_on(1, 1, &options, one_step_ahead, NULL);
}

/*
 * A plan whose stream is captured into a CUDA graph says so, and goes on after the capture. One rank alone may be ready
 * in a capture, since it exchanges nothing, but not take a step.
 */
static void captures(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial trial = {.optimizer = {.kind = PL_SGD}};
    void *at = device_fake("cuStreamBeginCapture_v2"), *graph;
    int (*begin)(void *stream, int mode) = NULL;
    int (*end)(void *stream, void **ret_graph) = NULL;
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status = PL_OK;
    struct job here = {0};

    memcpy(&begin, &at, sizeof(begin));
    at = device_fake("cuStreamEndCapture");
    memcpy(&end, &at, sizeof(end));
    device = pl_world_device(world);
    RANKS_OK(job_start(world, &trial, true, &here, &error));
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    RANKS_OK(pl_plan_finish(here.plan, &error));
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(begin(here.stream, 0) == 0, "no capture begins");
    RANKS_OK(pl_barrier(world, &error));
    for (size_t t = TENSORS; t-- > 0 && status == PL_OK;) {
        status = pl_plan_ready(here.plan, t, &told);
    }
    if (pl_world_size(world) == 1) {
        RANKS_NEED(status == PL_OK, "ready in a capture: %s", told.cause);
        status = pl_optimizer_step(here.optimizer, 0.1, &told);
    }
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(end(here.stream, &graph) == 0, "the capture was ended by a call that is not a part of it");
    RANKS_NEED(status == PL_INVALID && strstr(told.cause, "captured into a CUDA graph"), "%s: %s",
               pl_status_name(status), told.cause);
    RANKS_OK(pl_barrier(world, &error));
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    RANKS_OK(pl_plan_finish(here.plan, &error));
    job_end(&here);
}

TEST(a_captured_stream_is_refused)
{
    if (device_order("let_copies_go")) {
        ck_assert_ranks_on(1, 1, NULL, captures, NULL);
        ck_assert_ranks_on(2, 1, NULL, captures, NULL);
        ck_assert_ranks_on(2, 2, NULL, captures, NULL);
    }
}

static enum pl_status faulty_step(struct job *job, const struct device_fault *fault, int step, struct pl_error *reterr)
{
    struct pl_world *world = pl_plan_world(job->plan);

    if (step == 2 && pl_world_rank(world) == 1) {
        device_ranks_order(world, fault->order);
    }
    for (size_t t = TENSORS; t-- > 0;) {
        PL_TRY(pl_plan_ready(job->plan, t, reterr));
    }
    return pl_optimizer_step(job->optimizer, 0.1, reterr);
}

static void suffers(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial trial = {.optimizer = {.kind = PL_ADAMW}};
    const struct device_fault *fault = argument;
    struct pl_error told = PL_ERROR_NONE;
    struct job here = {0};
    enum pl_status status = PL_OK;
    int64_t begin_ns = pl_clock_now_ns();

    device = pl_world_device(world);
    RANKS_OK(job_start(world, &trial, true, &here, &error));
    for (int step = 0; step < 5 && status == PL_OK; step++) {
        status = faulty_step(&here, fault, step, &told);
    }
    if (status == PL_OK) {
        status = pl_plan_finish(here.plan, &told);
    }
    job_end(&here);
    device_ranks_check(world, fault, status, &told, begin_ns, failure);
}

TEST(a_lost_device_ends_the_step_of_all_ranks)
{
    static const struct device_fault faults[] = {
        {.order = "lost", .text = "CUDA_ERROR_UNKNOWN", .of_rank_1 = PL_LIBRARY},
        {.order = "kernel_error", .text = "CUDA_ERROR_ILLEGAL_ADDRESS", .of_rank_1 = PL_LIBRARY},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(faults) && device_order("let_copies_go"); i++) {
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            struct device_fault fault = faults[i];

            ck_assert_ranks_on(ranks, ranks, NULL, suffers, &fault);
            fault.shared = true;
            ck_assert_ranks_on(ranks, 1, NULL, suffers, &fault);
        }
    }
}

static void suffers_on_nccl(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_world_describe(world, &text);
    if (strstr(pl_text_string(&text), "backend nccl: on")) {
        suffers(world, argument, failure);
    }
}

TEST(an_error_of_nccl_ends_the_step_of_all_ranks)
{
    struct device_fault fault = {.text = "remote process exited or there was a network error", .of_rank_1 = PL_LIBRARY};

    ck_assert_int_eq(setenv("FAKE_NCCL_FAULT", "async:1:15", 1), 0); /* a bucket of the third step */
    for (int ranks = 2; ranks <= 4 && device_order("let_copies_go"); ranks += 2) {
        ck_assert_ranks_on(ranks, ranks, NULL, suffers_on_nccl, &fault);
    }
    ck_assert_int_eq(unsetenv("FAKE_NCCL_FAULT"), 0);
}

static void writes(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct pl_safetensors *file = NULL;
    struct job here = {0};
    char path[512];
    float value[64], stored[64];

    snprintf(path, sizeof(path), "%s/model.safetensors", trial->directory);
    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, true, &here, &error));
    RANKS_OK(job_train(&here, trial, 0, 1, &error));
    RANKS_OK(pl_plan_file_write(here.plan, path, NULL, 0, &error));
    RANKS_OK(pl_device_copy(device, value, pl_plan_tensor(here.plan, 4)->value, sizeof(value), here.stream, &error));
    RANKS_OK(pl_plan_finish(here.plan, &error));
    RANKS_OK(pl_safetensors_open(path, &file, &error));
    RANKS_NEED(pl_safetensors_tensor(file, 4)->bytes == sizeof(stored), "%llu bytes",
               (unsigned long long)pl_safetensors_tensor(file, 4)->bytes);
    RANKS_OK(pl_safetensors_read(file, 4, stored, &error));
    RANKS_NEED(memcmp(stored, value, sizeof(value)) == 0, "the file holds other values than the device");
    pl_safetensors_close(file);
    job_end(&here);
}

TEST(the_model_file_holds_what_the_device_holds)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct trial trial = {.optimizer = {.kind = PL_SGD}};

    trial.directory = scratch.path;
    run(1, &trial, writes);
}

/* Saving a model while the device hangs fails at the deadline. */
static void writes_in_time(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct trial *trial = argument;
    struct pl_error told = PL_ERROR_NONE;
    struct job here = {0};
    char path[512];

    snprintf(path, sizeof(path), "%s/model.safetensors", trial->directory);
    device = pl_world_device(world);
    RANKS_OK(job_start(world, trial, true, &here, &error));
    device_ranks_order(world, "kernel_hangs");
    RANKS_OK(pl_optimizer_step(here.optimizer, 0.1, &error));
    RANKS_NEED(pl_plan_file_write(here.plan, path, NULL, 0, &told) == PL_TIMEOUT && strstr(told.cause, "has not ended"),
               "%s", told.cause);
    job_end(&here);
}

TEST(a_model_file_is_not_waited_for_without_end)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct trial trial = {.optimizer = {.kind = PL_SGD}, .directory = scratch.path};
    struct pl_world_options options = {0};
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "1");

    options.knobs = &knobs;
    if (device_order("let_copies_go")) { /* a real driver takes no orders */
        ck_assert_ranks_on(1, 1, &options, writes_in_time, &trial);
    }
}

static void refused(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_plan_options options = {.gradient_dtype = PL_BFLOAT16};
    struct pl_error said = PL_ERROR_NONE;
    struct pl_plan *plan = NULL;
    size_t index;

    RANKS_OK(pl_plan_new(world, &options, &plan, &error));
    RANKS_OK(pl_plan_add(plan, "w", 1, &sizes[0], &index, &error));
    RANKS_NEED(pl_plan_seal(plan, &said) == PL_UNSUPPORTED && strstr(said.cause, "bfloat16"), "sealed, or '%s'",
               said.cause);
    pl_plan_free(plan);
    options = (struct pl_plan_options){.memory = PL_MEMORY_DEVICE};
    RANKS_OK(pl_plan_new(world, &options, &plan, &error));
    RANKS_OK(pl_plan_add(plan, "w", 1, &sizes[0], &index, &error));
    RANKS_NEED(pl_plan_seal(plan, &said) == PL_UNSUPPORTED && strstr(said.cause, "no device"), "sealed, or '%s'",
               said.cause);
    pl_plan_free(plan);
}

UNIT_TEST(device_memory_without_a_device_is_refused_in_words, ck_assert_ranks(2, NULL, refused, NULL))

UNIT_MAIN_AFTER("runtime/device_plan", device_prepare())
