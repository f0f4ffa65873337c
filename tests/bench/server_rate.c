/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the rate of parameter servers; it is a worker of paceline-server.
 *
 *   paceline server --workers 2 build/tests/bench/server_rate [ELEMS [SECONDS [COMPUTE_MS [SLOW]]]]
 *   mpirun -n 2 ... for two hosts; PACELINE_PS_STALENESS=0 for steps in lockstep
 *
 * Each worker pushes gradients of ELEMS elements (2^22) for SECONDS (3) with SGD and pulls, after COMPUTE_MS (0) of
 * sleep that stand for its work; worker 0 sleeps SLOW (1) times as long. Worker 0 prints for each worker its steps per
 * second, and the median and the 99th percentile of a step in ms without the sleep; and for all pushes and bytes per
 * second: 12 for each element (gradient read, value read and written), next to the rate of one core with the same
 * loop and arrays of the same size.
 */
#include "runtime/paceline.h"

#include "base/clock.h"
#include "device/kernel_private.h"
#include "runtime/gradient/optimizer_rule.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 1 << 20, MOST_WORKERS = 64 };

struct bench {
    uint64_t elems;
    double seconds, compute_ms, slow;
    struct pl_server *server;
    int worker, workers;
    double *step_ms; /* [MOST_STEPS] */
    uint64_t steps;
};

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double now_s(void)
{
    return (double)pl_clock_now_ns() / (double)PL_NS_PER_S;
}

/* Measures the optimizer's loop on one core, in bytes per second, with arrays that no cache holds. */
static double measure_alone(uint64_t elems)
{
    struct pl_error error = PL_ERROR_NONE;
    float *value = pl_memory_new(elems, sizeof(float), &error), *gradient = pl_memory_new(elems, sizeof(float), &error);
    float *slots[PL_OPTIMIZER_MOST_SLOTS] = {NULL};
    struct pl_optimizer_options options = {.kind = PL_SGD};
    struct pl_device_step step = pl_optimizer_rule_step(&options, 1, 1e-9, 1.0);
    double best_s = 1e9;

    for (int round = 0; value && gradient && round < 20; round++) {
        double began_s = now_s();

        pl_optimizer_rule_apply(&step, elems, value, gradient, slots);
        best_s = now_s() - began_s < best_s ? now_s() - began_s : best_s;
    }
    free(value);
    free(gradient);
    return 12.0 * (double)elems / best_s;
}

static enum pl_status take_steps(struct bench *bench, struct pl_error *reterr)
{
    struct pl_plan *plan = pl_server_plan(bench->server);
    double sleep_ms = bench->compute_ms * (bench->worker == 0 ? bench->slow : 1.0), end_s;

    for (uint64_t i = 0; i < bench->elems; i++) {
        pl_plan_tensor(plan, 0)->gradient[i] = 1e-6F;
    }
    pl_server_set_rate(bench->server, 1e-9);
    PL_TRY(pl_server_sum(bench->server, NULL, 0, reterr));
    end_s = now_s() + bench->seconds;
    while (now_s() < end_s && bench->steps < MOST_STEPS) {
        double began_s;

        if (sleep_ms > 0.0) {
            pl_clock_nap((int64_t)(sleep_ms * 1e6), PL_DEADLINE_NEVER);
        }
        began_s = now_s();
        PL_TRY(pl_plan_ready(plan, 0, reterr));
        PL_TRY(pl_server_step(bench->server, reterr));
        bench->step_ms[bench->steps++] = 1e3 * (now_s() - began_s);
    }
    return PL_OK;
}

/* Sums the figures of all workers, each in its own row, and prints them. */
static enum pl_status report(struct bench *bench, double alone, struct pl_error *reterr)
{
    double lines[MOST_WORKERS][3] = {{0.0}}, *line = lines[bench->worker];
    double pushes = 0.0;

    qsort(bench->step_ms, bench->steps, sizeof(double), compare);
    line[0] = (double)bench->steps / bench->seconds;
    line[1] = bench->steps > 0 ? bench->step_ms[bench->steps / 2] : 0.0;
    line[2] = bench->steps > 0 ? bench->step_ms[bench->steps * 99 / 100] : 0.0;
    PL_TRY(pl_server_sum(bench->server, &lines[0][0], sizeof(lines) / sizeof(lines[0][0]), reterr));
    for (int w = 0; bench->worker == 0 && w < bench->workers; w++) {
        printf("worker %d: %.1f steps/s, median %.3f ms, 99 %% %.3f ms\n", w, lines[w][0], lines[w][1], lines[w][2]);
        pushes += lines[w][0];
    }
    if (bench->worker == 0) {
        double bytes_per_s = 12.0 * (double)bench->elems * pushes;

        printf("all: %.1f pushes/s, %.3f GB/s; one core alone %.3f GB/s, ratio %.3f\n", pushes, bytes_per_s * 1e-9,
               alone * 1e-9, bytes_per_s / alone);
    }
    return PL_OK;
}

static enum pl_status run(struct bench *bench, struct pl_world *world, struct pl_error *reterr)
{
    struct pl_server_options options = {.optimizer = {.kind = PL_SGD}};
    double alone = measure_alone(bench->elems);
    size_t index;

    bench->step_ms = pl_memory_new(MOST_STEPS, sizeof(double), reterr);
    if (!bench->step_ms) {
        return PL_MEMORY;
    }
    PL_TRY(pl_server_new(world, &options, &bench->server, reterr));
    PL_TRY(pl_plan_add(pl_server_plan(bench->server), "w", 1, &bench->elems, &index, reterr));
    PL_TRY(pl_server_join(bench->server, reterr));
    PL_TRY(pl_server_start(bench->server, reterr));
    bench->worker = pl_server_worker(bench->server);
    bench->workers = pl_server_workers(bench->server);
    if (bench->workers > MOST_WORKERS) {
        return pl_error_set(reterr, PL_LIMIT, "%d workers: expected at most %d", bench->workers, MOST_WORKERS);
    }
    PL_TRY(take_steps(bench, reterr));
    PL_TRY(report(bench, alone, reterr));
    PL_TRY(pl_server_leave(bench->server, reterr));
    pl_server_free(bench->server);
    free(bench->step_ms);
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct bench bench = {.elems = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_C(1) << 22,
                          .seconds = argc > 2 ? atof(argv[2]) : 3.0,
                          .compute_ms = argc > 3 ? atof(argv[3]) : 0.0,
                          .slow = argc > 4 ? atof(argv[4]) : 1.0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_runtime *runtime = NULL;

    if (pl_runtime_start(&runtime, &error) != PL_OK || run(&bench, pl_runtime_world(runtime), &error) != PL_OK) {
        pl_log_error(&error, "measuring a parameter server");
        return EXIT_FAILURE;
    }
    pl_runtime_stop(runtime);
    return EXIT_SUCCESS;
}
