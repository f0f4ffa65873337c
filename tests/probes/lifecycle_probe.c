/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of tests/integration/lifecycle.py, which says what each argument does:
 *
 *   lifecycle_probe topology | stop SECONDS | leave | again | swapped | span | wait SECONDS | vanish | desert
 */
#include "collectives/world_private.h"
#include "runtime/paceline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { VANISH_STATUS = 3 };

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(pl_clock_now_ns() - begin_ns) / (double)PL_NS_PER_S;
}

/* The last rank arrives late; every rank prints how long it has waited. */
static enum pl_status wait_for_late(struct pl_world *world, double late_s, struct pl_error *reterr)
{
    float value = 1;
    struct pl_collective sum = {
        .kind = PL_ALLREDUCE, .op = PL_SUM, .count = 1, .send = &value, .recv = &value, .name = "late"};
    int64_t begin_ns;
    double cpu_before;

    PL_TRY(pl_barrier(world, reterr));
    begin_ns = pl_clock_now_ns();
    cpu_before = cpu_s();
    if (pl_world_rank(world) == pl_world_size(world) - 1) {
        pl_clock_nap((int64_t)(late_s * (double)PL_NS_PER_S), PL_DEADLINE_NEVER);
    }
    PL_TRY(pl_collective_run(world, &sum, reterr));
    printf("rank %d waited_s %.3f cpu_s %.4f sum %g\n", pl_world_rank(world), seconds_since(begin_ns),
           cpu_s() - cpu_before, (double)value);
    return PL_OK;
}

/* The last rank ends while the others are in an operation. */
static enum pl_status vanish(struct pl_world *world, struct pl_error *reterr)
{
    float value = 1;

    PL_TRY(pl_barrier(world, reterr));
    if (pl_world_rank(world) == pl_world_size(world) - 1) {
        _exit(VANISH_STATUS);
    }
    for (;;) {
        PL_TRY(pl_allreduce(world, &value, &value, 1, PL_FLOAT32, PL_MAX, reterr));
    }
}

static enum pl_status run(const char *word, double seconds, struct pl_error *reterr)
{
    struct pl_runtime *runtime = NULL;
    struct pl_world *world;
    int64_t begin_ns;

    PL_TRY(pl_runtime_start(&runtime, reterr));
    world = pl_runtime_world(runtime);
    if (strcmp(word, "topology") == 0) {
        printf("rank %d size %d local %d of %d host %d of %d\n", pl_world_rank(world), pl_world_size(world),
               pl_world_local_rank(world), pl_world_local_size(world), pl_world_cross_rank(world),
               pl_world_cross_size(world));
    } else if (strcmp(word, "wait") == 0) {
        PL_TRY(wait_for_late(world, seconds, reterr));
    } else if (strcmp(word, "vanish") == 0) {
        PL_TRY(vanish(world, reterr));
    } else if (strcmp(word, "again") == 0) {
        struct pl_runtime *second = NULL;
        float value = 1;

        PL_TRY(pl_runtime_start(&second, reterr)); /* returns the same handle as the first */
        PL_TRY(pl_allreduce(pl_runtime_world(second), &value, &value, 1, PL_FLOAT32, PL_SUM, reterr));
        pl_runtime_stop(second);
        PL_TRY(pl_allreduce(world, &value, &value, 1, PL_FLOAT32, PL_SUM, reterr));
        printf("rank %d sum %g\n", pl_world_rank(world), (double)value);
    } else if (strcmp(word, "swapped") == 0) {
        struct pl_runtime *first = runtime;
        float value = 1;

        PL_TRY(pl_runtime_start(&runtime, reterr));
        pl_runtime_stop(first); /* which has started MPI */
        world = pl_runtime_world(runtime);
        PL_TRY(pl_allreduce(world, &value, &value, 1, PL_FLOAT32, PL_SUM, reterr));
        printf("rank %d sum %g\n", pl_world_rank(world), (double)value);
    } else if (strcmp(word, "span") == 0) {
        begin_ns = pl_clock_now_ns();
        PL_TRY(pl_barrier(world, reterr));
        pl_trace_add(pl_runtime_trace(runtime), "my span", begin_ns, pl_clock_now_ns());
    }
    if (strcmp(word, "leave") == 0) {
        PL_TRY(pl_barrier(world, reterr));
        return PL_OK; /* without a stop */
    }
    PL_TRY(pl_barrier(world, reterr));
    if (strcmp(word, "desert") == 0 && pl_world_rank(world) == pl_world_size(world) - 1) {
        _exit(VANISH_STATUS); /* while the others stop */
    }
    if (strcmp(word, "stop") == 0 && pl_world_rank(world) == 0) {
        pl_clock_nap((int64_t)(seconds * (double)PL_NS_PER_S), PL_DEADLINE_NEVER);
    }
    begin_ns = pl_clock_now_ns();
    pl_runtime_stop(runtime);
    if (strcmp(word, "stop") == 0) {
        printf("stop_s %.4f\n", seconds_since(begin_ns));
    }
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_log_set_prefix("probe");
    if (argc < 2 || run(argv[1], argc > 2 ? atof(argv[2]) : 0.0, &error) != PL_OK) {
        pl_log_error(&error, "failed");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
