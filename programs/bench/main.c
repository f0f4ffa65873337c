/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-bench allreduce|allgather|broadcast: measures the cost of a collective, checks it and compares it with MPI's
 * own. A size is the size of the result on each rank. All three collectives work in place.
 *
 * The cost is measured inside produce + collective + consume: every rank rewrites what it contributes, takes part, and
 * reads the result; the time of the same loop without the collective is subtracted. If a collective leaves lines in the
 * wrong cache, this cost includes the time to fetch them, which a loop of the collective alone would not show. Loops of
 * this library and of the peer alternate, and each figure is the median over the pairs.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "collectives/arena.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/collective.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "entrypoint/verbs.h"
#include "programs/bench/bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail(const struct pl_error *error, const char *what)
{
    pl_log_error(error, "%s", what);
    exit(1);
}

static void must(enum pl_status status, const struct pl_error *error, const char *what)
{
    if (status != PL_OK) {
        fail(error, what);
    }
}

/* ---- one iteration ---- */

/* Writes every line, as a backward pass does. */
static void produce(void *data, uint64_t bytes, int rank)
{
    uint32_t *words = data;
    uint32_t value = 0x3f800000U + (uint32_t)(rank & 7); /* near 1.0 as float32; other types can use any bits */

    for (uint64_t i = 0; i < bytes / 4; i++) {
        words[i] = value;
    }
    for (uint64_t i = bytes / 4 * 4; i < bytes; i++) {
        ((unsigned char *)data)[i] = 1;
    }
}

/* Reads every line, as an optimizer does. */
static uint32_t consume(const void *data, uint64_t bytes)
{
    const uint32_t *words = data;
    uint32_t sum = 0;

    for (uint64_t i = 0; i < bytes / 4; i++) {
        sum += words[i];
    }
    return sum;
}

enum what { DO_NOTHING, DO_OURS, DO_PEER };

/* Returns how many bytes of the result a rank contributes; they begin at `*ret_offset_bytes`. */
static uint64_t contribution_bytes(const struct pl_bench *bench, int rank, uint64_t *ret_offset_bytes)
{
    uint64_t bytes = bench->bytes;

    *ret_offset_bytes = 0;
    if (bench->options->kind == PL_ALLGATHER) {
        bytes /= (uint64_t)bench->size;
        *ret_offset_bytes = bytes * (uint64_t)rank;
    } else if (bench->options->kind == PL_BROADCAST && rank != 0) {
        bytes = 0;
    }
    return bytes;
}

static void run_once(struct pl_bench *bench, enum what what, void *data, uint64_t piece_bytes, bool alone)
{
    static _Thread_local volatile uint32_t sink;
    struct pl_collective c = {.kind = bench->options->kind,
                              .dtype = bench->options->dtype,
                              .count = bench->count,
                              .flags = bench->options->flags};
    struct pl_error error = PL_ERROR_NONE;
    uint64_t offset_bytes = 0;
    uint64_t own_bytes = contribution_bytes(bench, bench->rank, &offset_bytes);

    if (!alone) {
        produce((char *)data + offset_bytes, own_bytes, bench->rank);
    }
    if (what == DO_OURS) {
        c.send = (char *)data + offset_bytes;
        c.recv = data;
        must(pl_collective_run(bench->world, &c, &error), &error, pl_kind_text(bench->options->kind));
    } else if (what == DO_PEER && !pl_bench_peer_run(bench, data, piece_bytes)) {
        pl_log(PL_LOG_ERROR, "MPI's %s failed", pl_kind_text(bench->options->kind));
        exit(1);
    }
    if (!alone) {
        sink = sink + consume(data, bench->bytes);
    }
}

static double slowest(struct pl_bench *bench, double value)
{
    struct pl_error error = PL_ERROR_NONE;

    must(pl_allreduce(bench->world, &value, &value, 1, PL_FLOAT64, PL_MAX, &error), &error, "comparing times");
    return value;
}

static void run_loop(struct pl_bench *bench, enum what what, void *data, uint64_t piece_bytes, int64_t iterations)
{
    struct pl_error error = PL_ERROR_NONE;

    if (bench->device && pl_bench_device_loop(bench, iterations, &error) != PL_OK) {
        fail(&error, "allreduce in device memory");
    }
    for (int64_t i = 0; !bench->device && i < iterations; i++) {
        run_once(bench, what, data, piece_bytes, bench->options->alone);
    }
}

/* Times a loop. Returns nanoseconds per iteration, on the slowest rank. */
static double time_loop(struct pl_bench *bench, enum what what, uint64_t piece_bytes, int64_t iterations)
{
    void *data = what == DO_PEER ? bench->theirs : bench->ours;
    struct pl_error error = PL_ERROR_NONE;
    int64_t begin_ns;

    if (bench->device && !bench->slow) {
        run_loop(bench, what, data, piece_bytes, 1);
    } else if (!bench->slow) {
        run_once(bench, what, data, piece_bytes, false);
    }
    must(pl_barrier(bench->world, &error), &error, "barrier");
    begin_ns = pl_clock_now_ns();
    run_loop(bench, what, data, piece_bytes, iterations);
    return slowest(bench, (double)(pl_clock_now_ns() - begin_ns) / (double)iterations);
}

static double cost_of(struct pl_bench *bench, enum what what, uint64_t piece_bytes, int64_t iterations)
{
    double with_ns = time_loop(bench, what, piece_bytes, iterations);
    double without_ns = 0;

    if (!bench->options->alone) {
        void *ours = bench->ours;

        /* The loop without the allreduce uses the same buffer. */
        bench->ours = what == DO_PEER ? bench->theirs : bench->ours;
        without_ns = time_loop(bench, DO_NOTHING, 0, iterations);
        bench->ours = ours;
    }
    return with_ns > without_ns ? with_ns - without_ns : 1;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Finds the number of iterations that fill the shortest loop, equal on all ranks. */
static int64_t calibrate(struct pl_bench *bench, enum what what, uint64_t piece_bytes)
{
    double once_ns = time_loop(bench, what, piece_bytes, 1);
    int64_t iterations = 1;

    bench->slow = once_ns > 200e6;
    once_ns = bench->slow ? once_ns : time_loop(bench, what, piece_bytes, 1 + (int64_t)(1e6 / once_ns));
    iterations += (int64_t)(bench->options->loop_ms * 1e6 / once_ns);
    return iterations;
}

/* ---- checking ---- */

static void put_value(enum pl_dtype dtype, void *data, uint64_t i, int value)
{
    float single = (float)value;
    double real = value;
    int64_t whole = value;
    uint16_t half;
    char *at = (char *)data + i * pl_dtype_bytes(dtype);

    if (dtype == PL_FLOAT32) {
        memcpy(at, &single, sizeof(single));
    } else if (dtype == PL_FLOAT64) {
        memcpy(at, &real, sizeof(real));
    } else if (dtype == PL_FLOAT16 || dtype == PL_BFLOAT16) {
        pl_kernel_narrow(pl_kernel_best(), dtype, &half, &single, 1);
        memcpy(at, &half, sizeof(half));
    } else {
        memcpy(at, &whole, pl_dtype_bytes(dtype)); /* little endian */
    }
}

/* The test input: small whole numbers, whose sums every type holds exactly. */
static int input_of(enum pl_dtype dtype, int rank, uint64_t i)
{
    return dtype == PL_BOOL ? (int)((i + (uint64_t)rank) % 7 == 0) : (int)((i * 3 + (uint64_t)rank) % 4);
}

static void copy(struct pl_bench *bench, void *to, const void *from)
{
    struct pl_error error = PL_ERROR_NONE;

    must(pl_bench_device_copy(bench, to, from, bench->bytes, &error), &error, "copying");
}

/* Returns the value of element i of the result. */
static int result_of(const struct pl_bench *bench, uint64_t i)
{
    enum pl_dtype dtype = bench->options->dtype;
    int sum = 0;

    if (bench->options->kind == PL_ALLGATHER) {
        return input_of(dtype, (int)(i / bench->count), i);
    }
    if (bench->options->kind == PL_BROADCAST) {
        return input_of(dtype, 0, i);
    }
    for (int r = 0; r < bench->size; r++) {
        sum += input_of(dtype, r, i);
    }
    return dtype == PL_BOOL ? sum > 0 : sum;
}

static uint64_t count_wrong(struct pl_bench *bench)
{
    enum pl_dtype dtype = bench->options->dtype;
    size_t item = pl_dtype_bytes(dtype);
    char *data = bench->device ? bench->theirs : bench->ours;
    uint64_t offset_bytes = 0, elems = bench->bytes / item;
    uint64_t own_elems = contribution_bytes(bench, bench->rank, &offset_bytes) / item;
    uint64_t first = offset_bytes / item, wrong = 0;

    memset(data, 0x5a, bench->bytes);
    for (uint64_t i = first; i < first + own_elems; i++) {
        put_value(dtype, data, i, input_of(dtype, bench->rank, i));
    }
    if (bench->device) {
        copy(bench, bench->ours, data);
        run_loop(bench, DO_OURS, bench->ours, 0, 1);
        copy(bench, data, bench->ours);
    } else {
        run_once(bench, DO_OURS, data, 0, true);
    }
    for (uint64_t i = 0; i < elems; i++) {
        char expected[8];

        put_value(dtype, expected, 0, result_of(bench, i));
        wrong += memcmp(expected, data + i * item, item) != 0;
    }
    return (uint64_t)(slowest(bench, (double)wrong) + 0.5);
}

/* Times all ranks reading and writing their buffers once: the bound that memory sets. */
static double bound_ns(struct pl_bench *bench)
{
    const struct pl_reduction reduction = {
        .dtype = PL_FLOAT32, .op = PL_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    struct pl_error error = PL_ERROR_NONE;
    double best = 0;

    for (int i = 0; i < 5; i++) {
        const void *sources[2] = {bench->ours, bench->ours};
        void *dest = bench->ours;
        int64_t begin_ns;
        double ns;

        must(pl_barrier(bench->world, &error), &error, "barrier");
        begin_ns = pl_clock_now_ns();
        pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, sources, 2, bench->bytes / 4);
        ns = slowest(bench, (double)(pl_clock_now_ns() - begin_ns));
        best = i == 0 || ns < best ? ns : best;
    }
    return best;
}

/* ---- one size ---- */

static const uint64_t pieces[] = {UINT64_MAX, 64 << 10, 256 << 10, 1 << 20, 4 << 20};

/* Finds the piece size with which the peer is fastest here. */
static uint64_t best_piece(struct pl_bench *bench, int64_t iterations)
{
    uint64_t best = pieces[0];
    double best_ns = 0;

    if (bench->options->peer == PEER_MPI) {
        return best;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(pieces) && (i == 0 || pieces[i] < bench->bytes); i++) {
        double ns[3];
        double middle_ns;

        for (int k = 0; k < 3; k++) {
            ns[k] = cost_of(bench, DO_PEER, pieces[i], iterations);
        }
        middle_ns = median(ns, 3);
        if (i == 0 || middle_ns < best_ns) {
            best = pieces[i];
            best_ns = middle_ns;
        }
    }
    return best;
}

struct result {
    double time_us;
    double peer_us;
    double ratio;
    double bound_us;
    uint64_t wrong;
};

static void measure(struct pl_bench *bench, struct result *result)
{
    const struct pl_bench_options *options = bench->options;
    double ours[1000];
    double theirs[1000];
    double ratios[1000];
    int64_t iterations = calibrate(bench, DO_OURS, 0);
    int64_t peer_iterations = 0;
    uint64_t piece = 0;

    if (options->peer != PEER_NONE) {
        peer_iterations = calibrate(bench, DO_PEER, UINT64_MAX);
        piece = best_piece(bench, peer_iterations);
    }
    for (int i = 0; i < options->pairs; i++) {
        ours[i] = cost_of(bench, DO_OURS, 0, iterations);
        if (options->peer != PEER_NONE) {
            theirs[i] = cost_of(bench, DO_PEER, piece, peer_iterations);
            ratios[i] = theirs[i] / ours[i];
        }
    }
    result->time_us = median(ours, options->pairs) / 1e3;
    if (options->peer != PEER_NONE) {
        result->peer_us = median(theirs, options->pairs) / 1e3;
        result->ratio = median(ratios, options->pairs);
    }
    if (options->bound) {
        result->bound_us = bound_ns(bench) / 1e3;
    }
    result->wrong = count_wrong(bench);
}

static const char *buffers_text(const struct pl_bench_options *options)
{
    static const char *const names[] = {
        [BUFFERS_ARENA] = "arena", [BUFFERS_PRIVATE] = "private", [BUFFERS_DEVICE] = "device"};

    return names[options->buffers];
}

static void print_result(const struct pl_bench *bench, const struct result *result)
{
    const struct pl_bench_options *options = bench->options;
    double algbw = (double)bench->bytes / (result->time_us * 1e3);
    double share = (double)(bench->size - 1) / bench->size;
    double busbw = options->kind == PL_BROADCAST ? algbw : algbw * share * (options->kind == PL_ALLREDUCE ? 2 : 1);

    if (bench->rank != 0) {
        return;
    }
    if (options->json) {
        printf("{\"operation\": \"%s\", \"bytes\": %" PRIu64
               ", \"ranks\": %d, \"hosts\": %d, \"type\": \"%s\", \"buffers\": \"%s\", "
               "\"time_us\": %.3f, \"busbw_gbs\": %.4f, "
               "\"wrong\": %" PRIu64,
               pl_kind_text(options->kind), bench->bytes, bench->size, pl_world_cross_size(bench->world),
               pl_dtype_text(options->dtype), buffers_text(options), result->time_us, busbw, result->wrong);
        if (options->peer != PEER_NONE) {
            printf(", \"peer_time_us\": %.3f, \"ratio\": %.3f", result->peer_us, result->ratio);
        }
        if (options->bound) {
            printf(", \"bound_us\": %.3f, \"share_of_bound\": %.3f", result->bound_us,
                   result->bound_us / result->time_us);
        }
        printf("}\n");
    } else {
        printf("%12" PRIu64 " %12" PRIu64 " %8s %12.2f %8.3f %8.3f %7" PRIu64, bench->bytes,
               bench->bytes / pl_dtype_bytes(options->dtype), pl_dtype_text(options->dtype), result->time_us, algbw,
               busbw, result->wrong);
        if (options->peer != PEER_NONE) {
            printf(" %12.2f %6.2f", result->peer_us, result->ratio);
        }
        if (options->bound) {
            printf(" %12.2f %6.2f", result->bound_us, result->bound_us / result->time_us);
        }
        printf("\n");
    }
    fflush(stdout);
}

static void print_head(const struct pl_bench *bench)
{
    int hosts = pl_world_cross_size(bench->world);

    if (bench->rank == 0 && !bench->options->json) {
        printf("# %s, %d ranks on %d host%s, %s buffers, %s; bandwidths in GB/s, times in us\n",
               pl_kind_text(bench->options->kind), bench->size, hosts, hosts == 1 ? "" : "s",
               buffers_text(bench->options),
               bench->options->alone ? "operation alone" : "cost between writing the input and reading the result");
        printf("#       size        count     type         time    algbw    busbw  #wrong%s%s\n",
               bench->options->peer != PEER_NONE ? "    peer_time  ratio" : "",
               bench->options->bound ? "        bound  share" : "");
    }
}

static enum pl_status open_bench(struct pl_bench *bench, struct pl_bootstrap *bootstrap, struct pl_span *span,
                                 struct pl_error *reterr)
{
    uint64_t room = bench->options->max_bytes + 8;

    PL_TRY(pl_memory_alloc_aligned(&bench->theirs, room, 1, 4096, reterr));
    if (bench->options->buffers == BUFFERS_DEVICE) {
        return pl_bench_device_open(bench, bootstrap, room, reterr);
    }
    PL_TRY(pl_world_new(bootstrap, NULL, &bench->world, reterr));
    if (bench->options->buffers == BUFFERS_ARENA) {
        PL_TRY(pl_arena_alloc(bench->world, room, PL_MEMORY_HOST, span, reterr));
        bench->ours = span->data;
        return PL_OK;
    }
    return pl_memory_alloc_aligned(&bench->ours, room, 1, 4096, reterr);
}

static void close_bench(struct pl_bench *bench, struct pl_span *span)
{
    free(bench->theirs);
    if (bench->device) {
        pl_bench_device_close(bench);
        return;
    }
    if (bench->options->buffers == BUFFERS_PRIVATE) {
        free(bench->ours);
    }
    pl_arena_free(bench->world, span);
    pl_world_free(bench->world);
}

/* Returns the number of wrong elements. */
static uint64_t run_bench(struct pl_bootstrap *bootstrap, const struct pl_bench_options *options)
{
    struct pl_bench bench = {.options = options, .rank = bootstrap->rank, .size = bootstrap->size};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span span = {.data = NULL};
    uint64_t wrong = 0;

    if (open_bench(&bench, bootstrap, &span, &error) != PL_OK) {
        fail(&error, "making the world and its buffers");
    }
    print_head(&bench);
    for (uint64_t bytes = options->min_bytes;; bytes *= options->factor) {
        struct result result = {0};

        uint64_t parts = options->kind == PL_ALLGATHER ? (uint64_t)bench.size : 1;

        bench.count = bytes / pl_dtype_bytes(options->dtype) / parts;
        bench.bytes = bench.count * pl_dtype_bytes(options->dtype) * parts;
        if (bench.count > 0) {
            measure(&bench, &result);
            print_result(&bench, &result);
            wrong += result.wrong;
        }
        if (bytes > options->max_bytes / options->factor) {
            break;
        }
    }
    must(pl_bootstrap_leave(bootstrap, pl_world_deadline_ns(bench.world), &error), &error, "leaving");
    close_bench(&bench, &span);
    return wrong;
}

struct bench_thread {
    pthread_t thread;
    struct pl_bootstrap *bootstrap;
    const struct pl_bench_options *options;
    uint64_t wrong;
};

static void *bench_thread_main(void *argument)
{
    struct bench_thread *bench_thread = argument;

    bench_thread->wrong = run_bench(bench_thread->bootstrap, bench_thread->options);
    pl_bootstrap_free(bench_thread->bootstrap);
    return NULL;
}

static uint64_t run_threads(const struct pl_bench_options *options)
{
    struct bench_thread bench_threads[BENCH_MOST_THREADS];
    struct pl_bootstrap *bootstraps[BENCH_MOST_THREADS];
    struct pl_error error = PL_ERROR_NONE;
    uint64_t wrong = 0;

    must(pl_bootstrap_new_threads(options->threads, bootstraps, &error), &error, "threads");
    for (int i = 0; i < options->threads; i++) {
        bench_threads[i] = (struct bench_thread){.bootstrap = bootstraps[i], .options = options};
        if (pthread_create(&bench_threads[i].thread, NULL, bench_thread_main, &bench_threads[i]) != 0) {
            pl_log(PL_LOG_ERROR, "cannot start a thread for rank %d", i);
            exit(1);
        }
    }
    for (int i = 0; i < options->threads; i++) {
        pthread_join(bench_threads[i].thread, NULL);
        wrong += bench_threads[i].wrong;
    }
    return wrong;
}

/* Starts MPI as the peer would, except if the job has several connections between two ranks: these need Paceline to
 * initialise MPI. */
static bool start_mpi(const struct pl_bench_options *options)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *interface;

    if (options->peer == PEER_NONE && pl_environment_new(&environment, NULL) == PL_OK &&
        pl_tcp_links_count(environment, &interface) > 1) {
        return true;
    }
    return pl_bench_peer_start();
}

int main(int argc, char **argv)
{
    struct pl_bench_options options = {.min_bytes = 4, .max_bytes = 64 << 20, .factor = 4, .pairs = 7, .loop_ms = 8};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    enum pl_status status;
    uint64_t wrong;

    pl_log_open("paceline bench");
    status = pl_bench_options_parse(argc, argv, &options, &error);
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (options.threads) {
        if (options.peer != PEER_NONE) {
            pl_log(PL_LOG_ERROR, "--peer needs mpirun, not --threads");
            return PL_EXIT_USAGE;
        }
        wrong = run_threads(&options);
    } else if (pl_bootstrap_under_mpi()) {
        if (!start_mpi(&options) || pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK) {
            fail(&error, "MPI");
        }
        if (options.peer != PEER_NONE && !pl_bench_peer_has(options.dtype)) {
            pl_log(PL_LOG_ERROR, "--peer: MPI has no %s", pl_dtype_text(options.dtype));
            return PL_EXIT_USAGE;
        }
        wrong = run_bench(bootstrap, &options);
        pl_bootstrap_free(bootstrap);
        pl_bench_peer_end();
    } else {
        if (options.peer != PEER_NONE) {
            pl_log(PL_LOG_ERROR, "--peer needs mpirun");
            return PL_EXIT_USAGE;
        }
        must(pl_bootstrap_new_self(&bootstrap, &error), &error, "one rank");
        wrong = run_bench(bootstrap, &options);
        pl_bootstrap_free(bootstrap);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        pl_log(PL_LOG_ERROR, "standard output cannot be written");
        return 1;
    }
    return wrong ? 1 : 0;
}
