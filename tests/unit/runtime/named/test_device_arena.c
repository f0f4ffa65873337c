/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/device.c, runtime/named/device_world.c, runtime/named/buffer.c. */
/* Ranks that share a GPU, without NCCL: large sums go through memory that they all open, and not through the host's. */
#include "tests/unit/runtime/named/device_bench.h"

enum { MIB = 1 << 20, SUMS = 3, MOST_TENSORS = 8 };

/* A sum of some equal tensors, which are packed if there are several. */
struct sum {
    const char *name;
    size_t tensors;
    uint64_t elems; /* of each, of float32 */
    enum pl_op op;
    bool in_place;
};

static float given(const struct sum *sum, size_t t, uint64_t e, int rank, int step)
{
    return (float)((e * 7 + t * 3 + (uint64_t)step + sum->elems) % 61) + (float)(rank * 64);
}

static float expected(const struct sum *sum, size_t t, uint64_t e, int first, int ranks, int step)
{
    float result = given(sum, t, e, first, step);

    for (int r = first + 1; r < ranks; r++) {
        float other = given(sum, t, e, r, step);

        result = sum->op == PL_SUM ? result + other : result < other ? result : other;
    }
    return result;
}

static uint64_t host_bytes(void)
{
    void *found = device_fake("fake_cuda_host_bytes");
    uint64_t (*ask)(void) = NULL;

    memcpy(&ask, &found, sizeof(ask));
    return ask ? ask() : 0;
}

struct arena_bench {
    struct pl_world *world;
    struct pl_named *named;
    void *stream;
    float *host, *send, *recv; /* of the largest sum */
};

/* Runs a sum, and tells how many bytes it has moved between host and device memory, if no other rank copies then. */
static void run_sum(struct arena_bench *bench, const struct sum *sum, int first, int step, uint64_t *ret_moved,
                    char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(bench->world), ranks = pl_world_size(bench->world);
    uint64_t bytes = sum->elems * sizeof(float), before;
    engine_handle handles[MOST_TENSORS];
    float *recv = sum->in_place ? bench->send : bench->recv;

    for (size_t t = 0; t < sum->tensors; t++) {
        for (uint64_t e = 0; e < sum->elems; e++) {
            bench->host[t * sum->elems + e] = given(sum, t, e, rank, step);
        }
    }
    RANKS_OK(device_move(device, bench->send, bench->host, sum->tensors * bytes, &error));
    if (first == 0) {
        RANKS_OK(pl_barrier(bench->world, &error));
    }
    before = host_bytes();
    for (size_t t = 0; t < sum->tensors; t++) {
        char name[32];
        struct pl_named_op op = {.name = name,
                                 .kind = PL_ALLREDUCE,
                                 .dtype = PL_FLOAT32,
                                 .op = sum->op,
                                 .dims = 1,
                                 .shape = {sum->elems},
                                 .memory = PL_MEMORY_DEVICE,
                                 .send = bench->send + t * sum->elems,
                                 .recv = recv + t * sum->elems,
                                 .stream = bench->stream};

        snprintf(name, sizeof(name), "%s %zu", sum->name, t);
        RANKS_OK(engine_submit(bench->named, &op, &handles[t], &error));
    }
    for (size_t t = 0; t < sum->tensors; t++) {
        RANKS_OK(engine_wait(bench->named, handles[t], NULL, &error));
    }
    if (first == 0) {
        RANKS_OK(pl_barrier(bench->world, &error));
    }
    *ret_moved = host_bytes() - before;
    if (first == 0) {
        RANKS_OK(pl_barrier(bench->world, &error));
    }
    RANKS_OK(device_move(device, bench->host, recv, sum->tensors * bytes, &error));
    for (size_t t = 0; t < sum->tensors; t++) {
        for (uint64_t e = 0; e < sum->elems; e++) {
            float got = bench->host[t * sum->elems + e];

            RANKS_NEED(got == expected(sum, t, e, first, ranks, step),
                       "'%s', step %d, tensor %zu, element %d is %g, not %g", sum->name, step, t, (int)e, (double)got,
                       (double)expected(sum, t, e, first, ranks, step));
        }
    }
}

static enum pl_status bench_open_for(struct pl_world *world, uint64_t bytes, struct arena_bench *bench,
                                     struct pl_error *reterr)
{
    device = pl_world_device(world);
    bench->world = world;
    PL_TRY(pl_device_stream_new(device, &bench->stream, reterr));
    bench->host = pl_memory_new(bytes, 1, reterr);
    if (!bench->host) {
        return PL_MEMORY;
    }
    PL_TRY(pl_device_alloc(device, bytes, (void **)&bench->send, reterr));
    PL_TRY(pl_device_alloc(device, bytes, (void **)&bench->recv, reterr));
    return pl_named_new(world, NULL, &bench->named, reterr);
}

static void bench_close_all(struct arena_bench *bench)
{
    engine_free(bench->named);
    pl_device_release(device, bench->send);
    pl_device_release(device, bench->recv);
    pl_device_stream_free(device, bench->stream);
    free(bench->host);
}

static const struct sum sums[SUMS] = {{"alone", 1, 3 * MIB / 4 + 1, PL_SUM, false},
                                      {"packed", MOST_TENSORS, 5 * MIB / 64 + 3, PL_MIN, false},
                                      {"in place", 1, MIB / 2 + 5, PL_SUM, true}};

static void runs_sums(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const struct sum small = {"small", 1, 1000, PL_SUM, false};
    struct arena_bench bench = {0};
    uint64_t moved = 0;

    (void)argument;
    RANKS_OK(bench_open_for(world, 4 * MIB, &bench, &error));
    for (int step = 0; step < 2 && !failure[0]; step++) {
        for (size_t i = 0; i < SUMS && !failure[0]; i++) {
            uint64_t bytes = sums[i].tensors * sums[i].elems * sizeof(float);

            run_sum(&bench, &sums[i], 0, step, &moved, failure);
            if (!failure[0] && pl_world_shares_device_memory(world)) {
                RANKS_NEED(moved < bytes / 4, "'%s': %d of %d bytes went between host and device", sums[i].name,
                           (int)moved, (int)bytes);
            }
        }
        if (!failure[0]) {
            run_sum(&bench, &small, 0, step, &moved, failure);
        }
    }
    bench_close_all(&bench);
}

TEST(large_sums_of_ranks_on_one_gpu_stay_there)
{
    ck_assert_ranks_on(2, 1, NULL, runs_sums, NULL);
    ck_assert_ranks_on(3, 1, NULL, runs_sums, NULL);
}

/* The tensor does not fit into the longest piece of the arena. */
static void runs_long_sum(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const struct sum sum = {"in pieces", 1, 16 * MIB + 1000, PL_SUM, true};
    struct arena_bench bench = {0};
    uint64_t moved = 0;

    (void)argument;
    RANKS_OK(bench_open_for(world, sum.elems * sizeof(float), &bench, &error));
    pl_device_release(device, PL_TAKE(bench.recv));
    run_sum(&bench, &sum, 0, 0, &moved, failure);
    if (!failure[0]) {
        RANKS_NEED(!pl_world_shares_device_memory(world) || moved < MIB, "%d bytes went between host and device",
                   (int)moved);
        run_sum(&bench, &sums[2], 0, 1, &moved, failure);
    }
    bench_close_all(&bench);
}

TEST(a_sum_of_more_than_the_arena_holds_goes_through_in_pieces)
{
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* it takes much memory */
    ck_assert_ranks_on(2, 1, NULL, runs_long_sum, NULL);
#endif
}

static void joins(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct arena_bench bench = {0};
    uint64_t moved = 0;
    int last = -1;

    (void)argument;
    RANKS_OK(bench_open_for(world, 4 * MIB, &bench, &error));
    for (size_t i = 0; i < SUMS && pl_world_rank(world) > 0 && !failure[0]; i++) {
        run_sum(&bench, &sums[i], 1, 0, &moved, failure);
    }
    if (!failure[0]) {
        RANKS_OK(engine_join(bench.named, &last, &error));
    }
    bench_close_all(&bench);
}

TEST(a_rank_that_joined_gives_nothing_through_the_arena)
{
    ck_assert_ranks_on(3, 1, NULL, joins, NULL);
}

/* ---- calls that fail ---- */

struct fault {
    const char *name;
    int number;
    bool come;
    pthread_barrier_t meet;
};

/* The ranks meet, and rank 0 gives the fake driver an order. */
static void order(struct fault *fault, int rank, const char *text)
{
    pthread_barrier_wait(&fault->meet);
    if (rank == 0) {
        device_order(text);
    }
    pthread_barrier_wait(&fault->meet);
}

/* A sum is right, or an error that names a rank. */
static void fails(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const struct sum sum = {"large", 1, 3 * MIB / 8, PL_SUM, true};
    void *found = device_fake("fake_cuda_has_come");
    int rank = pl_world_rank(world);
    struct fault *fault = argument;
    struct arena_bench bench = {0};
    struct pl_error told = PL_ERROR_NONE;
    bool (*has_come)(void) = NULL;
    engine_handle handle;
    struct pl_named_op op;
    enum pl_status status;
    bool is_submitted;
    char text[1100];

    memcpy(&has_come, &found, sizeof(has_come));
    RANKS_OK(bench_open_for(world, 2 * MIB, &bench, &error));
    op = (struct pl_named_op){.name = sum.name,
                              .dtype = PL_FLOAT32,
                              .dims = 1,
                              .shape = {sum.elems},
                              .memory = PL_MEMORY_DEVICE,
                              .send = bench.send,
                              .recv = bench.send,
                              .stream = bench.stream};
    for (uint64_t e = 0; e < sum.elems; e++) {
        bench.host[e] = given(&sum, 0, e, rank, 0);
    }
    RANKS_OK(device_move(device, bench.send, bench.host, sum.elems * sizeof(float), &error));
    snprintf(text, sizeof(text), "fail=%s:%d", fault->name, fault->number);
    order(fault, rank, text);
    status = engine_submit(bench.named, &op, &handle, &told);
    is_submitted = status == PL_OK;
    if (is_submitted) {
        status = engine_wait(bench.named, handle, NULL, &told);
    }
    (void)!engine_shutdown(bench.named, NULL); /* the other rank may wait for this one */
    pthread_barrier_wait(&fault->meet);
    if (rank == 0) {
        fault->come = has_come();
    }
    order(fault, rank, "fail=none:1");
    pl_error_text(&told, text, sizeof(text));
    RANKS_NEED(!is_submitted || status == PL_OK || strstr(text, "rank 0") || strstr(text, "rank 1"),
               "call %d of %s: no rank in '%s'", fault->number, fault->name, text);
    RANKS_OK(device_move(device, bench.host, bench.send, sum.elems * sizeof(float), &error));
    for (uint64_t e = 0; e < sum.elems && status == PL_OK; e++) {
        RANKS_NEED(bench.host[e] == expected(&sum, 0, e, 0, 2, 0), "call %d of %s: element %d differs", fault->number,
                   fault->name, (int)e);
    }
    bench_close_all(&bench);
}

static void try_calls(const char *name, int stride)
{
    struct fault fault = {.name = name, .come = true};

    for (fault.number = 1; fault.come; fault.number += stride) {
        pthread_barrier_init(&fault.meet, NULL, 2);
        ck_assert_ranks_on(2, 1, NULL, fails, &fault);
        pthread_barrier_destroy(&fault.meet);
    }
}

TEST(memory_that_is_not_there_is_an_error_with_names_on_every_rank)
{
    if (device_fake("fake_cuda_order")) {
        try_calls("cuMemAlloc_v2", 1);
        try_calls("any", 40);
    }
}

UNIT_MAIN_AFTER("runtime/device_arena", device_prepare())
