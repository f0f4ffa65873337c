/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/device.c, runtime/named/describe.c. */
/* Named tensors in device memory. Runs on any driver that is found: a GPU's or the tests' own. */
#include "base/clock.h"
#include "runtime/service.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/named/device_bench.h"

static void sums(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    struct bench bench = {0};
    engine_handle handles[TENSORS];

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < TENSORS; i++) {
            size_t t = rank % 2 ? TENSORS - 1 - i : i; /* ranks submit in different orders */
            char name[16];
            struct pl_named_op op = op_of(&bench, t, name);

            snprintf(name, sizeof(name), "t%zu", t);
            RANKS_OK(upload(&bench, t, rank, step, &error));
            RANKS_OK(engine_submit(bench.named, &op, &handles[t], &error));
        }
        for (size_t t = 0; t < TENSORS; t++) {
            bool right = false;

            RANKS_OK(engine_wait(bench.named, handles[t], NULL, &error));
            RANKS_OK(is_right(&bench, t, 0, ranks, step, &right, &error));
            RANKS_NEED(right, "step %d: tensor %zu is wrong", step, t);
        }
    }
    bench_close(&bench);
}

TEST(sums_of_many_tensors_are_exact_in_any_order)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        run(ranks, sums);
    }
}

/* Whatever the program gives its stream after a submission is not waited for: here work that does not begin. */
static void submits_before_other_work(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int64_t deadline_ns = pl_deadline_after_ns(50 * PL_NS_PER_S);
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    engine_handle handles[4];
    struct bench bench = {0};
    void *pinned;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    RANKS_OK(pl_device_alloc_pinned(device, sizeof(float), &pinned, &error));
    for (size_t t = 0; t < 4; t++) {
        char name[16];
        struct pl_named_op op = op_of(&bench, t, name);

        snprintf(name, sizeof(name), "t%zu", t);
        RANKS_OK(upload(&bench, t, rank, 0, &error));
        RANKS_OK(engine_submit(bench.named, &op, &handles[t], &error));
    }
    device_order("hold_copies");
    RANKS_OK(pl_device_copy(device, pinned, bench.recv[4], sizeof(float), bench.stream, &error));
    for (size_t t = 0; t < 4; t++) {
        bool done = false;

        while (!done) {
            done = engine_poll(bench.named, handles[t]);
            if (!done && pl_deadline_passed(deadline_ns)) {
                device_order("let_copies_go");
                RANKS_NEED(false, "tensor %zu waits for work that came after its submission", t);
            }
        }
        RANKS_OK(engine_wait(bench.named, handles[t], NULL, &error));
    }
    device_order("let_copies_go");
    for (size_t t = 0; t < 4; t++) {
        bool right = false;

        RANKS_OK(is_right(&bench, t, 0, ranks, 0, &right, &error));
        RANKS_NEED(right, "tensor %zu is wrong", t);
    }
    pl_device_release_pinned(device, pinned);
    bench_close(&bench);
}

TEST(an_operation_waits_for_the_work_before_its_submission_only)
{
    run(1, submits_before_other_work);
    run(2, submits_before_other_work);
}

/* Tensors of one sum come from several streams, which are late in turns. */
static void submits_from_streams(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { STREAMS = 3 };
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    engine_handle handles[TENSORS], group = 0;
    struct pl_error said = PL_ERROR_NONE;
    void *streams[STREAMS], *first;
    struct bench bench = {0};
    struct pl_named_op pair[2];

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    first = bench.stream;
    for (size_t i = 0; i < STREAMS; i++) {
        RANKS_OK(pl_device_stream_new(device, &streams[i], &error));
    }
    for (int step = 0; step < STEPS; step++) {
        for (size_t t = 0; t < TENSORS; t++) {
            char name[16];
            struct pl_named_op op = op_of(&bench, t, name);

            snprintf(name, sizeof(name), "t%zu", t);
            bench.stream = op.stream = streams[t / 4 % STREAMS];
            RANKS_OK(upload(&bench, t, rank, step, &error));
            RANKS_OK(engine_submit(bench.named, &op, &handles[t], &error));
        }
        for (size_t t = 0; t < TENSORS; t++) {
            bool right = false;

            RANKS_OK(engine_wait(bench.named, handles[t], NULL, &error));
            bench.stream = streams[t / 4 % STREAMS];
            RANKS_OK(is_right(&bench, t, 0, ranks, step, &right, &error));
            RANKS_NEED(right, "step %d: tensor %zu is wrong", step, t);
        }
    }
    bench.stream = first;
    pair[0] = op_of(&bench, 0, NULL);
    pair[1] = op_of(&bench, 3, NULL);
    pair[1].stream = streams[0];
    RANKS_NEED(engine_submit_group(bench.named, "group", pair, 2, &group, &said) == PL_INVALID &&
                   strstr(said.cause, "different streams"),
               "a group of two streams: %s", said.cause);
    for (size_t i = 0; i < STREAMS; i++) {
        pl_device_stream_free(device, streams[i]);
    }
    bench_close(&bench);
}

TEST(tensors_of_one_sum_may_come_from_several_streams)
{
    run(1, submits_from_streams);
    run(2, submits_from_streams);
}

/* The driver's calls of a submission: the context, whether the stream is captured, and the record of the event. */
static void counts_submissions(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct bench bench = {0};

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    engine_free(bench.named); /* for one that begins nothing before a wait */
    RANKS_OK(pl_named_new(world, NULL, &bench.named, &error));
    for (int step = 0; step < 2; step++) {
        engine_handle handles[TENSORS];
        long before = device_calls(NULL);

        for (size_t t = 0; t < TENSORS; t++) {
            char name[16];
            struct pl_named_op op = op_of(&bench, t, name);

            snprintf(name, sizeof(name), "t%zu", t);
            RANKS_OK(engine_submit(bench.named, &op, &handles[t], &error));
        }
        RANKS_NEED(step == 0 || before < 0 || device_calls(NULL) - before == 3 * TENSORS,
                   "%ld calls for %d submissions, not three for each", device_calls(NULL) - before, TENSORS);
        for (size_t t = 0; t < TENSORS; t++) {
            RANKS_OK(engine_wait(bench.named, handles[t], NULL, &error));
        }
    }
    bench_close(&bench);
}

TEST(a_submission_asks_the_driver_three_times)
{
    run(1, counts_submissions);
    run(2, counts_submissions);
}

static void joins(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), ranks = pl_world_size(world), last = -1;
    struct bench bench = {0};

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    if (rank > 0) {
        engine_handle handles[4];

        for (size_t t = 0; t < 4; t++) {
            char name[16];
            struct pl_named_op op = op_of(&bench, t, name);

            snprintf(name, sizeof(name), "t%zu", t);
            RANKS_OK(upload(&bench, t, rank, 0, &error));
            RANKS_OK(engine_submit(bench.named, &op, &handles[t], &error));
        }
        for (size_t t = 0; t < 4; t++) {
            bool right = false;

            RANKS_OK(engine_wait(bench.named, handles[t], NULL, &error));
            RANKS_OK(is_right(&bench, t, 1, ranks, 0, &right, &error));
            RANKS_NEED(right, "tensor %zu is wrong beside a rank that joined", t);
        }
    }
    RANKS_OK(engine_join(bench.named, &last, &error));
    bench_close(&bench);
}

TEST(a_rank_that_joined_gives_nothing_on_the_device)
{
    run(2, joins);
    run(3, joins);
}

/* Ranks 0 and 2 join after a tensor each, which rank 1 has both of: as many ranks give the one as the other, but not
 * the same ones. */
static void joins_between(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const size_t first = 0, second = 3; /* of one type, small */
    int rank = pl_world_rank(world);
    struct pl_completion completions[2] = {{0}}, joined = {0};
    struct pl_service *service = NULL;
    struct bench bench = {0};
    float one = 1;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    RANKS_OK(pl_service_new(world, NULL, &service, &error));
    if (rank == 1) { /* ends when the others have joined */
        struct pl_named_op op = {.name = "joined", .dims = 1, .shape = {1}, .send = &one, .recv = &one};

        RANKS_OK(pl_service_submit(service, 0, &op, &joined, &error));
        RANKS_OK(pl_service_wait(service, &joined, &error));
    }
    for (size_t i = 0; i < 2; i++) {
        size_t t = i == 0 ? first : second;
        struct pl_named_op op = op_of(&bench, t, i == 0 ? "first" : "second");

        if (rank == 1 || rank == (int)(2 * i)) {
            RANKS_OK(upload(&bench, t, rank, 0, &error));
            RANKS_OK(pl_service_submit(service, 0, &op, &completions[i], &error));
        }
    }
    if (rank != 1) {
        RANKS_OK(pl_service_submit_join(service, &joined, &error));
    }
    for (size_t i = 0; i < 2; i++) {
        bool right = false;

        if (rank == 1 || rank == (int)(2 * i)) {
            RANKS_OK(pl_service_wait(service, &completions[i], &error));
            RANKS_OK(is_right(&bench, i == 0 ? first : second, (int)i, (int)i + 2, 0, &right, &error));
            RANKS_NEED(right, "tensor %zu is wrong where others have joined", i);
        }
    }
    if (rank == 1) {
        RANKS_OK(pl_service_submit_join(service, &joined, &error));
    }
    RANKS_OK(pl_service_wait(service, &joined, &error));
    RANKS_OK(pl_service_shutdown(service, &error));
    pl_service_free(service);
    bench_close(&bench);
}

TEST(tensors_that_different_ranks_have_are_not_one_on_the_device)
{
    run(3, joins_between);
}

/* What rounding leaves of a tensor is added to that tensor alone, when others are summed with it the next time. */
static void rounds(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 16000 }; /* fewer are not compressed */
    static const char *const names[] = {"zeros", "rounded", "exact"};
    struct bench bench = {0};

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    engine_free(bench.named); /* for one that waits until both are submitted */
    RANKS_OK(pl_named_new(world, NULL, &bench.named, &error));
    for (size_t other = 1; other < PL_ARRAY_ITEMS(names); other++) {
        engine_handle handles[2];
        float got[COUNT];

        for (size_t i = 0; i < 2; i++) {
            size_t t = 3 * (i * other); /* of float32 */
            float values[COUNT];
            struct pl_named_op op = op_of(&bench, t, names[i * other]);

            for (size_t e = 0; e < COUNT; e++) {
                values[e] = i == 0 ? 0.0F : other == 1 ? 257.0F : 1.0F;
            }
            op.shape[0] = COUNT;
            op.flags = PL_WIRE_BFLOAT16;
            op.recv = bench.send[t];
            RANKS_OK(device_move(device, bench.send[t], values, sizeof(values), &error));
            RANKS_OK(engine_submit(bench.named, &op, &handles[i], &error));
        }
        RANKS_OK(engine_wait(bench.named, handles[0], NULL, &error));
        RANKS_OK(engine_wait(bench.named, handles[1], NULL, &error));
        RANKS_OK(device_move(device, got, bench.send[3 * other], sizeof(got), &error));
        for (size_t e = 0; e < COUNT && other == 2; e++) {
            RANKS_NEED((int)got[e] == pl_world_size(world), "element %zu is %g, not %d", e, (double)got[e],
                       pl_world_size(world));
        }
    }
    bench_close(&bench);
}

TEST(what_rounding_leaves_stays_with_its_tensor)
{
    for (int devices = 1; devices > 0; devices = device_next(devices, 2)) {
        ck_assert_ranks_on(2, devices, &(struct pl_world_options){.pretend_ranks_per_host = 1}, rounds, NULL);
    }
}

static void broadcasts(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct bench bench = {0};
    bool right = false;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    {
        struct pl_named_op op = op_of(&bench, 0, "w");

        op.kind = PL_BROADCAST;
        op.root = pl_world_size(world) - 1;
        op.recv = bench.send[0];
        RANKS_OK(upload(&bench, 0, pl_world_rank(world), 0, &error));
        RANKS_OK(engine_run(bench.named, &op, NULL, &error));
        RANKS_OK(is_right(&bench, 0, op.root, op.root + 1, 0, &right, &error));
        RANKS_NEED(right, "not what the root had");
    }
    bench_close(&bench);
}

TEST(a_broadcast_gives_every_device_the_roots_values)
{
    run(1, broadcasts);
    run(3, broadcasts);
}

/* Row `row` that rank `from` has for rank `to`. */
static int64_t row_of(int from, int to, int row, int step)
{
    return ((from * 8 + to) * 8 + row) * 8 + step;
}

/* Lists the rows that the ranks have for `to`: rank r has r + 1. Returns how many there are. */
static int list_rows(int64_t *rows, int first, int last, int to, int step)
{
    int count = 0;

    for (int from = first; from <= last; from++) {
        for (int row = 0; row <= from; row++) {
            rows[count++] = row_of(from, to, row, step);
        }
    }
    return count;
}

/* ALLGATHER and ALLTOALL, whose results are read where they are, or copied after a stream's earlier work. */
static void makes_memory(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { MOST_ROWS = 64 };
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    struct pl_named_result results[2] = {{0}}, last = {0};
    uint64_t splits[8];
    struct pl_error said = PL_ERROR_NONE;
    struct bench bench = {0};
    int64_t rows[MOST_ROWS], found[MOST_ROWS];
    int joined;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    for (int step = 0; step < 6; step++) {
        struct pl_named_op gather = op_of(&bench, 1, "gather"), scatter = op_of(&bench, 4, "scatter");
        engine_handle handles[2];
        int count = 0, own;

        gather.kind = PL_ALLGATHER;
        scatter.kind = PL_ALLTOALL;
        gather.dtype = scatter.dtype = PL_INT64;
        own = list_rows((int64_t *)(void *)bench.host[1], rank, rank, 0, step);
        for (int to = 0; to < ranks; to++) {
            splits[to] = (uint64_t)rank + 1;
            count += list_rows((int64_t *)(void *)bench.host[4] + count, rank, rank, to, step);
        }
        gather.shape[0] = (uint64_t)own;
        scatter.shape[0] = (uint64_t)count;
        scatter.splits = splits;
        RANKS_OK(pl_device_copy(device, bench.send[1], bench.host[1], (uint64_t)own * 8, bench.stream, &error));
        RANKS_OK(pl_device_copy(device, bench.send[4], bench.host[4], (uint64_t)count * 8, bench.stream, &error));
        RANKS_OK(engine_submit(bench.named, &gather, &handles[0], &error));
        RANKS_OK(engine_submit(bench.named, &scatter, &handles[1], &error));
        for (int i = 0; i < 2; i++) {
            const void *at = bench.recv[i];
            int wanted = list_rows(rows, 0, ranks - 1, i == 0 ? 0 : rank, step);

            RANKS_OK(engine_wait(bench.named, handles[i], &results[i], &error));
            RANKS_NEED(results[i].buffer && results[i].rows == (uint64_t)wanted, "%d rows, not %d",
                       (int)results[i].rows, wanted);
            RANKS_NEED(results[i].rows_of_rank[ranks - 1] == (uint64_t)ranks, "the last rank's rows differ");
            if (step % 2 == 0) {
                RANKS_OK(pl_named_result_move(&results[i], bench.recv[i], bench.stream, &error));
            } else {
                at = results[i].data;
            }
            RANKS_OK(pl_device_copy(device, found, at, (uint64_t)wanted * 8, bench.stream, &error));
            RANKS_OK(pl_device_stream_finish(device, bench.stream, PL_DEADLINE_NEVER, &error));
            RANKS_NEED(memcmp(found, rows, (size_t)wanted * 8) == 0, "step %d: rows of operation %d differ", step, i);
            pl_named_result_done(&results[i]);
        }
    }
    if (rank > 0) { /* it has no rows, and takes part */
        struct pl_named_op gather = op_of(&bench, 1, "rest");

        gather.kind = PL_ALLGATHER;
        gather.shape[0] = 1;
        RANKS_OK(engine_run(bench.named, &gather, &last, &error));
        RANKS_NEED(last.rows == (uint64_t)ranks - 1, "%d rows without the rank that joined", (int)last.rows);
    }
    RANKS_OK(engine_join(bench.named, &joined, &error));
    engine_free(bench.named);
    bench.named = NULL;
    if (last.buffer) {
        RANKS_NEED(pl_named_result_move(&last, bench.recv[0], bench.stream, &said) == PL_CANCELLED,
                   "a result outlived its engine");
        pl_named_result_done(&last);
    }
    bench_close(&bench);
}

TEST(rows_that_are_gathered_stay_in_device_memory)
{
    run(1, makes_memory);
    run(2, makes_memory);
    run(3, makes_memory);
}

static void disagrees(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error said = PL_ERROR_NONE;
    struct bench bench = {0};
    engine_handle group;
    float host[4] = {0};

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    {
        struct pl_named_op op = op_of(&bench, 0, "w");

        if (pl_world_rank(world) == 1) {
            op.memory = PL_MEMORY_HOST;
            op.send = op.recv = host;
        }
        RANKS_NEED(engine_run(bench.named, &op, NULL, &said) == PL_MISMATCH, "no mismatch: %s", said.cause);
        RANKS_NEED(strstr(said.cause, "in device memory"), "'%s'", said.cause);
        RANKS_OK(engine_submit_group(bench.named, "group", (struct pl_named_op[]){op_of(&bench, 3, NULL), op}, 2,
                                     &group, &error));
        RANKS_NEED(engine_wait(bench.named, group, NULL, &said) == PL_MISMATCH, "no mismatch of a group: %s",
                   said.cause);
        RANKS_NEED(strstr(said.cause, "'group.1of2'") && strstr(said.cause, "in device memory"), "'%s'", said.cause);
        op.kind = PL_REDUCE_SCATTER;
        op.memory = PL_MEMORY_DEVICE;
        op.send = bench.send[0];
        op.recv = NULL;
        RANKS_NEED(engine_run(bench.named, &op, NULL, &said) == PL_UNSUPPORTED, "reduce_scatter had no recv");
    }
    bench_close(&bench);
}

TEST(host_and_device_memory_under_one_name_is_said_on_every_rank)
{
    run(2, disagrees);
    run(3, disagrees);
}

UNIT_MAIN_AFTER("runtime/device_named", device_prepare())
