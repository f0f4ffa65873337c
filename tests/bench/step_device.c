/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the time that the runtime adds to a training step in device memory, on one rank.
 *
 *   step_device [--gradients LIST.json] [--device WHICH] [--backward-ms 20] [--work-mib 64] [--rounds 15] [--json FILE]
 *
 * Two loops do the same work on one stream: for each tensor, from the last to the first, kernels that simulate its
 * backward pass and one that writes its gradient; then AdamW over all of it.
 *
 *   bare      calls device/ directly: one optimizer kernel over one buffer
 *   runtime   marks each tensor ready, runs the runtime's optimizer, and is at most one step ahead of the
 *             device
 *
 * Rounds of the two alternate; overhead is the median of their ratios. "host" is the time that the runtime's calls of a
 * step (ready for each tensor, the optimizer's step) take on the CPU while the device has nothing else to do.
 *
 * Prints a table; FILE gets a JSON object per line: {"case", "step_us", "overhead"} or {"case", "tensors", "host_us"}.
 * Exits 77 without a GPU.
 */
#include "device/kernel_private.h"
#include "examples/synthetic/gradient_list.h"
#include "runtime/paceline.h"
#include "tests/bench/median.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 1000, ROUND_STEPS = 5, HOST_STEPS = 200, WARMUP_STEPS = 20 };

struct bench {
    struct gradient_list list;
    const char *gradients, *wanted, *json_path;
    double backward_ms;
    uint64_t work_bytes; /* size of the memory that a kernel of the backward pass reads and writes */
    int rounds;
    FILE *json;

    struct pl_runtime *runtime;
    struct pl_device *device;
    void *stream;
    void *work;
    uint64_t kernels; /* number of kernels of the backward pass, for each tensor */

    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    float *values, *gradient, *slots[2]; /* buffers of the bare loop, with the plan's layout */
};

/* Runs the backward pass of tensor i, which writes its gradient to `gradient`. */
static enum pl_status compute(struct bench *b, size_t i, void *gradient, struct pl_error *reterr)
{
    const struct pl_plan_tensor *tensor = pl_plan_tensor(b->plan, i);

    for (uint64_t k = 0; k < b->kernels; k++) {
        PL_TRY(pl_device_scale(b->device, b->work, PL_FLOAT32, b->work, PL_FLOAT32, b->work_bytes / sizeof(float), 0.5,
                               b->stream, reterr));
    }
    return pl_device_scale(b->device, gradient, PL_FLOAT32, tensor->value, PL_FLOAT32, tensor->count_elems, 0.5,
                           b->stream, reterr);
}

typedef enum pl_status take_step(struct bench *b, struct pl_error *reterr);

static enum pl_status bare_step(struct bench *b, struct pl_error *reterr)
{
    static const struct pl_device_step step = {
        .kind = PL_DEVICE_ADAM,
        .factors = {.gradient = 1.0F,
                    .rate = 1e-3F,
                    .shrink = 1e-5F,
                    .beta1 = 0.9F,
                    .beta2 = 0.999F,
                    .epsilon = 1e-8F,
                    .correct1 = 1.0F,
                    .correct2 = 1.0F},
    };

    for (size_t i = b->list.count; i-- > 0;) {
        PL_TRY(compute(b, i, b->gradient + pl_plan_tensor(b->plan, i)->offset_elems, reterr));
    }
    return pl_device_optimize(b->device, &step, pl_plan_elems(b->plan), b->values, b->gradient, PL_FLOAT32, b->slots[0],
                              b->slots[1], b->stream, reterr);
}

static enum pl_status runtime_step(struct bench *b, struct pl_error *reterr)
{
    for (size_t i = b->list.count; i-- > 0;) {
        PL_TRY(compute(b, i, pl_plan_tensor(b->plan, i)->gradient, reterr));
        PL_TRY(pl_plan_ready(b->plan, i, reterr));
    }
    return pl_optimizer_step(b->optimizer, 1e-3, reterr);
}

static enum pl_status time_steps(struct bench *b, take_step *call, int steps, double *ret_us, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    for (int n = 0; n < steps; n++) {
        PL_TRY(call(b, reterr));
    }
    PL_TRY(pl_plan_finish(b->plan, reterr));
    *ret_us = (double)(pl_clock_now_ns() - began_ns) / (double)PL_NS_PER_US / steps;
    return PL_OK;
}

/* Chooses the number of kernels so that the bare step lasts as long as wanted. */
static enum pl_status calibrate(struct bench *b, struct pl_error *reterr)
{
    double without_us, with_us, most_us;

    PL_TRY(time_steps(b, bare_step, 1, &without_us, reterr));
    PL_TRY(time_steps(b, bare_step, ROUND_STEPS, &without_us, reterr));
    b->kernels = 1;
    PL_TRY(time_steps(b, bare_step, ROUND_STEPS, &with_us, reterr));
    most_us = b->backward_ms * 1e3;
    if (with_us > without_us && most_us > with_us) {
        b->kernels += (uint64_t)((most_us - with_us) / (with_us - without_us));
    }
    return PL_OK;
}

static enum pl_status bench_overhead(struct bench *b, struct pl_error *reterr)
{
    double bare_us[MOST_ROUNDS], runtime_us[MOST_ROUNDS], ratios[MOST_ROUNDS];
    size_t rounds = (size_t)b->rounds;
    double bare, whole, ratio;

    PL_TRY(calibrate(b, reterr));
    PL_TRY(time_steps(b, runtime_step, ROUND_STEPS, &runtime_us[0], reterr));
    for (size_t i = 0; i < rounds; i++) {
        PL_TRY(time_steps(b, bare_step, ROUND_STEPS, &bare_us[i], reterr));
        PL_TRY(time_steps(b, runtime_step, ROUND_STEPS, &runtime_us[i], reterr));
        ratios[i] = runtime_us[i] / bare_us[i];
    }
    bare = median(bare_us, rounds);
    whole = median(runtime_us, rounds);
    ratio = median(ratios, rounds);
    printf("%-44s %9.1f us, the runtime's %9.1f us: %+.2f %%\n", "one rank, a step of the bare loop", bare, whole,
           100.0 * (ratio - 1.0));
    if (b->json) {
        fprintf(b->json, "{\"case\": \"one rank, bare loop\", \"step_us\": %.2f}\n", bare);
        fprintf(b->json, "{\"case\": \"one rank, runtime\", \"step_us\": %.2f, \"overhead\": %.5f}\n", whole,
                ratio - 1.0);
    }
    return PL_OK;
}

static enum pl_status bench_host(struct bench *b, struct pl_error *reterr)
{
    double us[HOST_STEPS];

    for (int n = -WARMUP_STEPS; n < HOST_STEPS; n++) {
        int64_t began_ns;

        PL_TRY(pl_plan_finish(b->plan, reterr));
        began_ns = pl_clock_now_ns();
        for (size_t i = b->list.count; i-- > 0;) {
            PL_TRY(pl_plan_ready(b->plan, i, reterr));
        }
        PL_TRY(pl_optimizer_step(b->optimizer, 1e-3, reterr));
        us[n < 0 ? 0 : n] = (double)(pl_clock_now_ns() - began_ns) / (double)PL_NS_PER_US;
    }
    printf("%-44s %9.1f us on the CPU, %zu tensors in %zu buckets\n", "host, the runtime's calls of a step",
           median(us, HOST_STEPS), b->list.count, pl_plan_bucket_count(b->plan));
    if (b->json) {
        fprintf(b->json,
                "{\"case\": \"host, the runtime's calls of a step\", \"tensors\": %zu, \"buckets\": %zu, \"host_us\": "
                "%.2f}\n",
                b->list.count, pl_plan_bucket_count(b->plan), median(us, HOST_STEPS));
    }
    return pl_plan_finish(b->plan, reterr);
}

static enum pl_status alloc_floats(struct bench *b, uint64_t count, float **ret, struct pl_error *reterr)
{
    void *memory;

    PL_TRY(pl_device_alloc(b->device, count * sizeof(float), &memory, reterr));
    *ret = memory;
    return PL_OK;
}

static enum pl_status set_up(struct bench *b, struct pl_error *reterr)
{
    struct pl_plan_options options = {.memory = PL_MEMORY_DEVICE};
    uint64_t elems;

    PL_TRY(pl_device_stream_new(b->device, &b->stream, reterr));
    options.stream = b->stream;
    PL_TRY(pl_plan_new(pl_runtime_world(b->runtime), &options, &b->plan, reterr));
    for (size_t i = 0; i < b->list.count; i++) {
        size_t index;

        PL_TRY(pl_plan_add(b->plan, b->list.names[i], 1, &b->list.counts[i], &index, reterr));
    }
    PL_TRY(pl_plan_seal(b->plan, reterr));
    PL_TRY(pl_optimizer_new(b->plan, &(struct pl_optimizer_options){.kind = PL_ADAMW, .weight_decay = 0.01},
                            &b->optimizer, reterr));
    elems = pl_plan_elems(b->plan);
    PL_TRY(alloc_floats(b, elems, &b->values, reterr));
    PL_TRY(alloc_floats(b, elems, &b->gradient, reterr));
    PL_TRY(alloc_floats(b, elems, &b->slots[0], reterr));
    PL_TRY(alloc_floats(b, elems, &b->slots[1], reterr));
    return pl_device_alloc(b->device, b->work_bytes, &b->work, reterr);
}

static void take_down(struct bench *b)
{
    void *memory[] = {b->values, b->gradient, b->slots[0], b->slots[1], b->work};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(memory); i++) {
        pl_device_release(b->device, memory[i]);
    }
    pl_optimizer_free(b->optimizer);
    pl_plan_free(b->plan);
    pl_device_stream_free(b->device, b->stream);
    gradient_list_done(&b->list);
    pl_runtime_stop(b->runtime);
}

static bool parse(struct bench *b, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];

        if (strcmp(name, "--gradients") == 0) {
            b->gradients = value;
        } else if (strcmp(name, "--device") == 0) {
            b->wanted = value;
        } else if (strcmp(name, "--backward-ms") == 0) {
            b->backward_ms = atof(value);
        } else if (strcmp(name, "--work-mib") == 0) {
            b->work_bytes = strtoull(value, NULL, 10) << 20;
        } else if (strcmp(name, "--rounds") == 0) {
            b->rounds = atoi(value);
        } else if (strcmp(name, "--json") == 0) {
            b->json_path = value;
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && b->work_bytes > 0 && b->rounds > 0 && b->rounds <= MOST_ROUNDS;
}

static enum pl_status run(struct bench *b, struct pl_error *reterr)
{
    b->json = b->json_path ? fopen(b->json_path, "we") : NULL;
    if (b->json_path && !b->json) {
        return pl_error_errno(reterr, "write '%s'", b->json_path);
    }
    setlinebuf(stdout); /* keep the results so far if the rest fails */
    if (b->json) {
        setlinebuf(b->json);
    }
    PL_TRY(set_up(b, reterr));
    PL_TRY(bench_host(b, reterr));
    PL_TRY(bench_overhead(b, reterr));
    if (b->json && fclose(b->json) != 0) {
        return pl_error_errno(reterr, "write '%s'", b->json_path);
    }
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct bench bench = {.wanted = "auto", .backward_ms = 20.0, .work_bytes = UINT64_C(64) << 20, .rounds = 15};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("step_device");
    if (!parse(&bench, argc, argv)) {
        fputs("usage: step_device [--gradients LIST] [--device WHICH] [--backward-ms N] [--work-mib N] [--rounds N] "
              "[--json FILE]\n",
              stderr);
        return 2;
    }
    status = bench.gradients ? gradient_list_read(bench.gradients, &bench.list, &error)
                             : gradient_list_default(&bench.list, &error);
    if (status == PL_OK) {
        status = pl_runtime_start_on_device(NULL, bench.wanted, &bench.runtime, &error);
    }
    if (status == PL_OK && !pl_runtime_device(bench.runtime)) {
        pl_log(PL_LOG_WARNING, "no GPU: nothing was measured");
        return 77;
    }
    if (status == PL_OK) {
        bench.device = pl_runtime_device(bench.runtime);
        status = run(&bench, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "the measurement did not finish");
        return EXIT_FAILURE; /* the driver releases everything */
    }
    take_down(&bench);
    return EXIT_SUCCESS;
}
