/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What an allreduce costs inside produce + allreduce + consume: every rank first rewrites its buffer, as a backward pass does, then
 * reads the result, as an optimizer does; the same loop on the same buffer without the allreduce is subtracted. Without this a
 * zero-copy operation would be timed on lines that each core holds already.
 *
 * The four loops (arena, private, MPI, and for each buffer the bare loop) alternate repetition by repetition, so that a ratio compares
 * the same seconds. One JSON line a size from rank 0; medians.
 *
 *   mpirun -n 2 bench_shm [--min BYTES] [--max BYTES] [--reps N] [--loop-us US] [--op-alone] [--type float32|bfloat16|float16]
 */
#include "base/clock.h"
#include "base/text.h"
#include "collectives/arena.h"
#include "collectives/collective.h"
#include "collectives/kernel.h"
#include "collectives/world.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA, PRIVATE, PEER, BARE_ARENA, BARE_PRIVATE, DRAM, WAYS, MAX_REPS = 1001 };

struct bench {
    struct pl_world *world;
    int rank, size;
    bool op_alone;
    enum pl_dtype dtype;
    uint64_t min_bytes, max_bytes;
    int reps;
    double loop_ns; /* about how long one timed loop takes */
    char *arena, *private_at;
    volatile float sink;
};

static void check(enum pl_status status, const struct pl_error *error)
{
    if (status != PL_OK) {
        fprintf(stderr, "bench_shm: %s (%s)\n", error->cause, error->context);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void produce(char *data, uint64_t bytes, int rank)
{
    memset(data, 0x3c - rank, bytes);
}

static float consume(const char *data, uint64_t bytes)
{
    const float *at = (const float *)(const void *)data;
    float sums[16] = {0};
    uint64_t i = 0;

    for (; i + 16 <= bytes / 4; i += 16) {
        for (int lane = 0; lane < 16; lane++) {
            sums[lane] += at[i + (uint64_t)lane];
        }
    }
    return i > 0 ? sums[0] + sums[7] : at[0];
}

/* The memory traffic of an allreduce in place and nothing else: each rank reads and writes its own buffer once. */
static void stream_through(char *data, uint64_t bytes)
{
    const struct pl_reduction rule = {.dtype = PL_FLOAT32, .op = PL_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    const void *source = data;
    void *dest = data;

    pl_kernel_reduce(pl_kernel_best(), &rule, &dest, 1, &source, 1, bytes / 4);
}

static double time_loop(struct bench *bench, int way, uint64_t bytes, int iterations)
{
    bool arena = way == ARENA || way == BARE_ARENA || way == DRAM;
    char *data = arena ? bench->arena : bench->private_at;
    uint64_t count = bytes / pl_dtype_bytes(bench->dtype);
    struct pl_error error;
    double mine;
    double slowest;
    int64_t start_ns;

    MPI_Barrier(MPI_COMM_WORLD);
    start_ns = pl_clock_now_ns();
    for (int i = 0; i < iterations; i++) {
        if (!bench->op_alone && way != DRAM) {
            produce(data, bytes, bench->rank);
        }
        if (way == ARENA || way == PRIVATE) {
            check(pl_allreduce(bench->world, data, data, count, bench->dtype, PL_SUM, &error), &error);
        } else if (way == PEER) {
            MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else if (way == DRAM) {
            stream_through(data, bytes);
        }
        if (!bench->op_alone && way != DRAM) {
            bench->sink = consume(data, bytes);
        }
    }
    mine = (double)(pl_clock_now_ns() - start_ns) / iterations;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[count / 2];
}

static void run_size(struct bench *bench, uint64_t bytes)
{
    static double ns[WAYS][MAX_REPS];
    static double arena_ratio[MAX_REPS];
    static double private_ratio[MAX_REPS];
    int iterations = 1;
    double once;
    double least[WAYS]; /* undisturbed times, for busy machines */

    for (int warm = 0; warm < 8; warm++) {
        for (int way = 0; way < WAYS; way++) {
            (void)time_loop(bench, way, bytes, bytes < 1 << 20 ? 20 : 1);
        }
    }
    once = time_loop(bench, PRIVATE, bytes, 1) + time_loop(bench, PRIVATE, bytes, 1);
    iterations = (int)(bench->loop_ns / (once / 2)) + 1;
    iterations = iterations > 4000 ? 4000 : iterations;
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int way = 0; way < WAYS; way++) {
        least[way] = 1e18;
    }
    for (int rep = 0; rep < bench->reps; rep++) {
        for (int way = 0; way < WAYS; way++) {
            ns[way][rep] = time_loop(bench, way, bytes, iterations);
            least[way] = ns[way][rep] < least[way] ? ns[way][rep] : least[way];
        }
        if (!bench->op_alone) {
            ns[ARENA][rep] -= ns[BARE_ARENA][rep];
            ns[PRIVATE][rep] -= ns[BARE_PRIVATE][rep];
            ns[PEER][rep] -= ns[BARE_PRIVATE][rep];
        }
        arena_ratio[rep] = ns[PEER][rep] / ns[ARENA][rep];
        private_ratio[rep] = ns[PEER][rep] / ns[PRIVATE][rep];
    }
    if (!bench->op_alone) {
        least[ARENA] -= least[BARE_ARENA];
        least[PRIVATE] -= least[BARE_PRIVATE];
        least[PEER] -= least[BARE_PRIVATE];
    }
    if (bench->rank == 0) {
        double arena_ns = median(ns[ARENA], bench->reps);
        double private_ns = median(ns[PRIVATE], bench->reps);
        double dram_ns = median(ns[DRAM], bench->reps);

        printf("{\"bytes\":%llu,\"ranks\":%d,\"arena_us\":%.2f,\"private_us\":%.2f,\"peer_us\":%.2f,\"arena_ratio\":%.2f,\"private_ratio\":%.2f,"
               "\"stream_us\":%.2f,\"arena_share\":%.2f,\"private_share\":%.2f,"
               "\"least\":{\"arena_us\":%.2f,\"private_us\":%.2f,\"peer_us\":%.2f,\"stream_us\":%.2f}}\n",
               (unsigned long long)bytes, bench->size, arena_ns / 1e3, private_ns / 1e3, median(ns[PEER], bench->reps) / 1e3,
               median(arena_ratio, bench->reps), median(private_ratio, bench->reps), dram_ns / 1e3, dram_ns / arena_ns, dram_ns / private_ns,
               least[ARENA] / 1e3, least[PRIVATE] / 1e3, least[PEER] / 1e3, least[DRAM] / 1e3);
        fflush(stdout);
    }
}

static void read_arguments(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--op-alone") == 0) {
            bench->op_alone = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--min") == 0) {
            bench->min_bytes = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--max") == 0) {
            bench->max_bytes = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--reps") == 0) {
            bench->reps = atoi(argv[++i]);
            bench->reps = bench->reps < MAX_REPS ? bench->reps : MAX_REPS;
        } else if (i + 1 < argc && strcmp(argv[i], "--loop-us") == 0) {
            bench->loop_ns = atof(argv[++i]) * 1e3;
        } else if (i + 1 < argc && strcmp(argv[i], "--type") == 0 && pl_dtype_find(argv[i + 1], &bench->dtype)) {
            i++;
        } else {
            fprintf(stderr, "bench_shm: unknown argument '%s'\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.dtype = PL_FLOAT32, .min_bytes = 4, .max_bytes = 256 << 20, .reps = 7, .loop_ns = 8e6};
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_span span;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    MPI_Init(&argc, &argv);
    read_arguments(&bench, argc, argv);
    check(pl_bootstrap_new_mpi(NULL, &bootstrap, &error), &error);
    check(pl_world_new(bootstrap, NULL, &bench.world, &error), &error);
    bench.rank = pl_world_rank(bench.world);
    bench.size = pl_world_size(bench.world);
    check(pl_arena_alloc(bench.world, bench.max_bytes, PL_MEMORY_HOST, &span, &error), &error);
    bench.arena = span.data;
    if (posix_memalign((void **)&bench.private_at, 4096, bench.max_bytes) != 0) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(bench.private_at, 1, bench.max_bytes);
    memset(bench.arena, 1, bench.max_bytes);
    for (uint64_t bytes = bench.min_bytes; bytes <= bench.max_bytes; bytes *= 4) {
        run_size(&bench, bytes);
    }
    if (bench.rank == 0) {
        pl_world_describe(bench.world, &text);
        fputs(pl_text_string(&text), stderr);
    }
    free(bench.private_at);
    pl_arena_free(bench.world, &span);
    pl_world_free(bench.world);
    pl_bootstrap_free(bootstrap);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
