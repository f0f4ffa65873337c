/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/buffer.c, runtime/named/device.c, runtime/named/device_world.c. */
/* What the engine of named tensors asks of the driver: which order, how many calls, how much memory. */
#include "base/clock.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/named/device_bench.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* Submits tensor `t` under its name, with what rank `rank` gives in `step`. */
static enum pl_status submit(struct bench *bench, size_t t, int rank, int step, engine_handle *ret_handle,
                             struct pl_error *reterr)
{
    char name[16];
    struct pl_named_op op = op_of(bench, t, name);

    snprintf(name, sizeof(name), "t%zu", t);
    PL_TRY(upload(bench, t, rank, step, reterr));
    return engine_submit(bench->named, &op, ret_handle, reterr);
}

/* ---- rounds beside batches ---- */

/* While a sum waits for its rank's earlier work on the device, ranks agree on others and do them. */
static void agrees_meanwhile(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status = PL_OK;
    engine_handle held[2];
    struct bench bench = {0};
    bool done = false;
    void *pinned;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    RANKS_OK(pl_device_alloc_pinned(device, sizeof(float), &pinned, &error));
    device_order("hold_copies");
    RANKS_OK(pl_device_copy(device, pinned, bench.recv[4], sizeof(float), bench.stream, &error));
    for (size_t t = 0; t < 2; t++) {
        RANKS_OK(submit(&bench, t, rank, 0, &held[t], &error));
    }
    for (int i = 0; i < 20 && status == PL_OK; i++) {
        int32_t sum = rank + i;
        char name[16];
        struct pl_named_op op = {
            .name = name, .kind = PL_ALLREDUCE, .dtype = PL_INT32, .dims = 1, .shape = {1}, .send = &sum, .recv = &sum};

        snprintf(name, sizeof(name), "host%d", i);
        status = engine_run(bench.named, &op, NULL, &told);
        if (status == PL_OK && sum != ranks * (ranks - 1) / 2 + ranks * i) {
            status = pl_error_set(&told, PL_CORRUPT, "sum %d differs: %d", i, sum);
        }
    }
    if (status == PL_OK && ranks == 1 &&
        device_calls(NULL) >= 0) { /* with several ranks, one rank releases the copies of all */
        done = engine_poll(bench.named, held[0]);
    }
    device_order("let_copies_go");
    RANKS_NEED(status == PL_OK, "beside a batch on the device: %s: %s", pl_status_name(status), told.cause);
    RANKS_NEED(!done, "the batch had ended");
    for (size_t t = 0; t < 2; t++) {
        bool right = false;

        RANKS_OK(engine_wait(bench.named, held[t], NULL, &error));
        RANKS_OK(is_right(&bench, t, 0, ranks, 0, &right, &error));
        RANKS_NEED(right, "tensor %zu is wrong", t);
    }
    pl_device_release_pinned(device, pinned);
    bench_close(&bench);
}

TEST(ranks_agree_while_a_batch_is_under_way)
{
    run(1, agrees_meanwhile);
    run(2, agrees_meanwhile);
}

/* ---- captures of CUDA graphs, and priorities ---- */

enum { CAPTURE_GLOBAL = 0 }; /* the driver's number of the mode that other threads' calls may end */

/* A captured stream is refused, and operations on others go on beside its capture. */
static void captures(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    void *at = device_fake("cuStreamBeginCapture_v2"), *stream, *graph;
    enum pl_status refused, status = PL_OK;
    int (*begin)(void *stream, int mode) = NULL;
    int (*end)(void *stream, void **ret_graph) = NULL;
    int (*urgent)(void) = NULL;
    struct pl_error told = PL_ERROR_NONE, beside = PL_ERROR_NONE;
    engine_handle handles[2], none;
    struct bench bench = {0};
    struct pl_named_op op;

    (void)argument;
    memcpy(&begin, &at, sizeof(begin));
    at = device_fake("cuStreamEndCapture");
    memcpy(&end, &at, sizeof(end));
    at = device_fake("fake_cuda_urgent_streams");
    memcpy(&urgent, &at, sizeof(urgent));
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    RANKS_OK(pl_device_stream_new(device, &stream, &error));
    RANKS_OK(pl_barrier(world, &error)); /* what opens a bench allocates, which ends captures */
    RANKS_NEED(begin(stream, CAPTURE_GLOBAL) == 0, "no capture begins");
    RANKS_OK(pl_barrier(world, &error));
    op = op_of(&bench, 3, "captured");
    op.stream = stream;
    refused = engine_submit(bench.named, &op, &none, &told);
    for (size_t i = 0; i < 2 && status == PL_OK; i++) {
        status = submit(&bench, 3 * i, rank, 0, &handles[i], &beside);
    }
    for (size_t i = 0; i < 2 && status == PL_OK; i++) {
        status = engine_wait(bench.named, handles[i], NULL, &beside);
    }
    RANKS_NEED(status == PL_OK, "beside a capture: %s", beside.cause);
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(end(stream, &graph) == 0, "the capture was ended by a call that is not a part of it");
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(refused == PL_INVALID && strstr(told.cause, "captured into a CUDA graph"), "%s: %s",
               pl_status_name(refused), told.cause);
    for (size_t i = 0; i < 2; i++) {
        bool right;

        RANKS_OK(is_right(&bench, 3 * i, 0, ranks, 0, &right, &error));
        RANKS_NEED(right, "tensor %zu is wrong", 3 * i);
    }
    RANKS_NEED(!urgent || urgent() >= 3, "%d streams have the highest priority: that of the backend, and two that pack",
               urgent ? urgent() : 0);
    RANKS_OK(pl_barrier(world, &error));
    pl_device_stream_free(device, stream);
    bench_close(&bench);
}

TEST(a_captured_stream_is_refused_and_no_capture_is_ended)
{
    run(1, captures);
    run(2, captures);
}

/* ---- calls and memory ---- */

/* Whether ranks with a device each use the fake NCCL. */
static bool has_fake_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool has = library && dlsym(library, "fake_nccl_max_ctas");

    if (library) {
        dlclose(library);
    }
    return has;
}

static long calls_of(const char *const *names, size_t count)
{
    long calls = 0;

    for (size_t i = 0; i < count; i++) {
        calls += device_calls(names[i]);
    }
    return calls;
}

/* One batch of 24 tensors of one type: what the engine and the backend ask of the driver for it. */
static void counts_batches(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const char *const names[] = {"cuStreamWaitEvent", "cuEventRecord", "cuLaunchKernel", "cuMemcpyAsync"};
    int rank = pl_world_rank(world), most = *(int *)argument;
    struct bench bench = {0};

    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    engine_free(bench.named); /* for one that begins nothing before a wait */
    RANKS_OK(pl_named_new(world, NULL, &bench.named, &error));
    for (int step = 0; step < 3 && device_calls(NULL) >= 0; step++) {
        engine_handle handles[TENSORS / 3];
        long before;

        for (size_t i = 0; i < PL_ARRAY_ITEMS(handles); i++) {
            RANKS_OK(submit(&bench, 3 * i, rank, step, &handles[i], &error));
        }
        before = calls_of(names, PL_ARRAY_ITEMS(names));
        for (size_t i = 0; i < PL_ARRAY_ITEMS(handles); i++) {
            RANKS_OK(engine_wait(bench.named, handles[i], NULL, &error));
        }
        RANKS_NEED(step == 0 || calls_of(names, PL_ARRAY_ITEMS(names)) - before <= most,
                   "%ld calls for one batch, more than %d", calls_of(names, PL_ARRAY_ITEMS(names)) - before, most);
    }
    bench_close(&bench);
}

TEST(a_batch_takes_few_calls)
{
    ck_assert_ranks_on(1, 1, NULL, counts_batches, &(int){12});
    if (device_next(1, 2) == 2) {
        ck_assert_ranks_on(2, 2, NULL, counts_batches, &(int){12});
    }
}

/* Steps of ever other tensors, at other addresses, in other orders: the driver is asked for memory for two buffers. */
static void changes_groups(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { LONG_STEPS = 45, OFFSETS = 16 };
    static const char *const names[] = {
        "cuMemAlloc_v2",     "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuStreamCreateWithPriority",
        "cuStreamDestroy_v2"};
    int rank = pl_world_rank(world), ranks = pl_world_size(world);
    struct bench bench = {0};
    long before = 0, events = 0;

    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    for (int step = 0; step < LONG_STEPS; step++) {
        size_t count = 1 + (size_t)(step * 7) % (TENSORS - 1), first = (size_t)(step * 5) % TENSORS;
        engine_handle handles[TENSORS];
        bool right = false;
        size_t t = first;

        for (size_t i = 0; i < count; i++) {
            char name[16];
            struct pl_named_op op;

            t = (first + i * 11) % TENSORS; /* 11 has no factor in common with 24 */
            op = op_of(&bench, t, name);
            snprintf(name, sizeof(name), "t%zu", t);
            RANKS_OK(upload(&bench, t, rank, step, &error));
            op.recv = (char *)op.recv + (op.recv == op.send ? 0 : 8 * (step % OFFSETS));
            RANKS_OK(engine_submit(bench.named, &op, &handles[i], &error));
        }
        for (size_t i = 0; i < count; i++) {
            RANKS_OK(engine_wait(bench.named, handles[i], NULL, &error));
        }
        if (t % 2 == 0) {
            RANKS_OK(is_right(&bench, t, 0, ranks, step, &right, &error));
            RANKS_NEED(right, "step %d: tensor %zu is wrong", step, t);
        }
        if (step == 0) { /* one tensor alone, which is not packed */
            before = calls_of(names, PL_ARRAY_ITEMS(names));
        } else if (step == LONG_STEPS / 3) {
            events = device_calls("cuEventCreate");
        }
    }
    RANKS_NEED(calls_of(names, PL_ARRAY_ITEMS(names)) - before <= 12,
               "%ld calls for memory and streams, more than 12 for two buffers, their four lists and two streams",
               calls_of(names, PL_ARRAY_ITEMS(names)) - before);
    /* how many are in use at once depends on how late a rank is; one that is not used again would be one a step */
    RANKS_NEED(device_calls("cuEventCreate") - events < LONG_STEPS - LONG_STEPS / 3, "%ld events more after %d steps",
               device_calls("cuEventCreate") - events, LONG_STEPS / 3);
    bench_close(&bench);
}

TEST(other_tensors_in_each_step_take_no_more_memory)
{
    run(1, changes_groups);
    run(2, changes_groups);
}

/* Returns this process's resident memory in KiB. */
static long resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long total = 0, pages = 0;

    if (file) {
        (void)!fscanf(file, "%ld %ld", &total, &pages);
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Steps as a network's: 161 tensors at ever new addresses, in ever other orders and groups. */
static void runs_steps(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 161, MOST_ELEMS = 500, AREA_ELEMS = COUNT * MOST_ELEMS, SHIFTS = 1021, SEEN = 20 };
    static const char *const kept[] = {"cuMemAlloc_v2",
                                       "cuMemFree_v2",
                                       "cuMemHostAlloc",
                                       "cuMemFreeHost",
                                       "cuMemHostRegister",
                                       "cuEventCreate",
                                       "cuStreamCreateWithPriority",
                                       "cuStreamDestroy_v2"};
    int ranks = pl_world_size(world), steps = *(int *)argument;
    uint64_t area_bytes = (AREA_ELEMS + SHIFTS) * sizeof(float);
    PL_AUTO_FREE float *host = NULL;
    float *in = NULL, *out = NULL;
    long before = 0, copies = 0, launches = 0;
    size_t used_bytes = 0;
    long resident_kib = 0;
    struct bench bench = {0};

    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    engine_free(bench.named); /* for one that begins nothing before a wait */
    RANKS_OK(pl_named_new(world, NULL, &bench.named, &error));
    host = pl_memory_new(area_bytes, 1, NULL);
    RANKS_NEED(host, "no memory");
    for (size_t e = 0; e < AREA_ELEMS + SHIFTS; e++) {
        host[e] = (float)(e % 64);
    }
    RANKS_OK(pl_device_alloc(device, area_bytes, (void **)&in, &error));
    RANKS_OK(pl_device_alloc(device, area_bytes, (void **)&out, &error));
    RANKS_OK(device_move(device, in, host, area_bytes, &error));
    for (int step = 0; step < steps; step++) {
        size_t shift = (size_t)step * 37 % SHIFTS, groups = step == 0 ? 1 : 1 + (size_t)step % 5;
        engine_handle handles[COUNT];

        for (size_t i = 0; i < COUNT; i++) {
            size_t t = (i * (1 + (size_t)step % 50) + (size_t)step) % COUNT; /* 161 is 7 times 23 */
            char name[16];
            struct pl_named_op op = {.name = name,
                                     .kind = PL_ALLREDUCE,
                                     .dtype = PL_FLOAT32,
                                     .op = PL_SUM,
                                     .dims = 1,
                                     .memory = PL_MEMORY_DEVICE,
                                     .stream = bench.stream};

            t = (1 + (size_t)step % 50) % 7 == 0 || (1 + (size_t)step % 50) % 23 == 0 ? (i + (size_t)step) % COUNT : t;
            snprintf(name, sizeof(name), "t%zu", t);
            op.shape[0] = 1 + t * 37 % MOST_ELEMS;
            op.send = in + t * MOST_ELEMS + shift;
            op.recv = out + t * MOST_ELEMS + shift;
            RANKS_OK(engine_submit(bench.named, &op, &handles[i], &error));
            if ((i + 1) % (COUNT / groups) == 0 && i + 2 < COUNT) { /* one alone would be copied, not packed */
                RANKS_OK(engine_wait(bench.named, handles[i], NULL, &error));
                handles[i] = 0;
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            if (handles[i]) {
                RANKS_OK(engine_wait(bench.named, handles[i], NULL, &error));
            }
        }
        if (step == SEEN) {
            before = calls_of(kept, PL_ARRAY_ITEMS(kept));
            copies = device_calls("cuMemcpyAsync");
            launches = device_calls("cuLaunchKernel");
            used_bytes = mallinfo2().uordblks;
            resident_kib = resident();
        }
    }
    RANKS_NEED(calls_of(kept, PL_ARRAY_ITEMS(kept)) == before, "%ld calls for memory, events and streams in %d steps",
               calls_of(kept, PL_ARRAY_ITEMS(kept)) - before, steps - SEEN);
    if (ranks == 1 || has_fake_nccl()) { /* else ranks exchange by copies */
        RANKS_NEED(device_calls("cuMemcpyAsync") - copies <= device_calls("cuLaunchKernel") - launches,
                   "%ld copies for %ld kernels: more than the lists of tensors", device_calls("cuMemcpyAsync") - copies,
                   device_calls("cuLaunchKernel") - launches);
    }
    RANKS_NEED(mallinfo2().uordblks < used_bytes + (4 << 20), "%zu bytes of memory more",
               mallinfo2().uordblks - used_bytes);
    fprintf(stderr,
            "rank %d of %d: steps %d to %d: %ld calls for memory, events and streams, %ld KiB resident, then %ld\n",
            pl_world_rank(world), ranks, SEEN, steps, calls_of(kept, PL_ARRAY_ITEMS(kept)) - before, resident_kib,
            resident());
    RANKS_OK(device_move(device, host, out, area_bytes, &error));
    for (size_t t = 0, shift = (size_t)(steps - 1) * 37 % SHIFTS; t < COUNT; t++) {
        for (size_t e = t * MOST_ELEMS + shift; e < t * MOST_ELEMS + shift + 1 + t * 37 % MOST_ELEMS; e++) {
            RANKS_NEED((int)host[e] == (int)(e % 64) * ranks, "element %zu of tensor %zu is %g, not %d", e, t,
                       (double)host[e], (int)(e % 64) * ranks);
        }
    }
    pl_device_release(device, in);
    pl_device_release(device, out);
    bench_close(&bench);
}

TEST(steps_of_161_tensors_take_no_memory_once_sizes_were_seen)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    int steps = 30;
#else
    const char *told = getenv("PACELINE_TEST_STEPS");
    int steps = told ? atoi(told) : getenv("PACELINE_TEST_ALL") ? 1000 : 60;
#endif

    ck_assert_ranks_on(1, 1, NULL, runs_steps, &steps);
    if (device_next(1, 2) == 2) {
        ck_assert_ranks_on(2, 2, NULL, runs_steps, &steps);
    }
}

/* ---- mutation ---- */

enum { MOST_TRIALS = 3000 };

/* A step of one tensor alone, and of two in one batch, which are scaled, so that what was packed differs from what is
 * unpacked. */
static enum pl_status scaled_step(struct bench *bench, int step, bool *ret_right, struct pl_error *reterr)
{
    enum { COUNT = 3, ELEMS = 1000 };
    struct pl_named_op ops[COUNT];
    float values[ELEMS];

    *ret_right = true;
    for (size_t i = 0; i < COUNT; i++) {
        size_t t = 3 + 6 * i;

        ops[i] = op_of(bench, t, "alone");
        ops[i].shape[0] = ELEMS;
        ops[i].scaled = i > 0;
        ops[i].prescale = 1;
        ops[i].postscale = 2;
        ops[i].kind = i > 0 ? PL_ALLREDUCE : PL_BROADCAST;
        for (size_t e = 0; e < ELEMS; e++) {
            ((float *)(void *)bench->host[i])[e] = (float)step;
        }
        PL_TRY(pl_device_copy(device, bench->send[t], bench->host[i], sizeof(values), bench->stream, reterr));
        if (i == 0) {
            PL_TRY(engine_run(bench->named, &ops[0], NULL, reterr));
        } else if (i == COUNT - 1) {
            engine_handle pair;

            PL_TRY(engine_submit_group(bench->named, "pair", &ops[1], 2, &pair, reterr));
            PL_TRY(engine_wait(bench->named, pair, NULL, reterr));
        }
        for (size_t done = i == 0 ? 0 : 1; done <= i && (i == 0 || i == COUNT - 1); done++) {
            PL_TRY(device_move(device, values, bench->recv[3 + 6 * done], sizeof(values), reterr));
            for (size_t e = 0; e < ELEMS; e++) {
                *ret_right = *ret_right && values[e] == (float)(done > 0 ? 2 * step : step);
            }
        }
    }
    return PL_OK;
}

static void skips(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const char *const names[] = {"cuEventRecord", "cuStreamWaitEvent"};
    struct bench bench = {0};
    bool right = false;
    int step = 0;
    (void)argument;
    device = pl_world_device(world);
    RANKS_OK(bench_open(world, &bench, &error));
    engine_free(bench.named);
    RANKS_OK(pl_named_new(world, NULL, &bench.named, &error));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names) && device_calls(NULL) >= 0; i++) {
        long calls = 0;
        int trial;

        for (trial = 0; calls < 4 && trial < MOST_TRIALS; trial++) { /* no wait is for a request that has ended */
            calls = -device_calls(names[i]);
            RANKS_OK(scaled_step(&bench, ++step, &right, &error));
            calls += device_calls(names[i]);
            RANKS_NEED(right, "a step with all its calls is wrong");
        }
        RANKS_NEED(calls >= 4, "%s is called %ld times only", names[i], calls);
        for (long n = 1; n <= calls; n++) {
            for (trial = 0, right = true; right && trial < MOST_TRIALS; trial++) {
                char order[64];

                snprintf(order, sizeof(order), "skip=%s:%ld", names[i], n);
                device_order(order);
                RANKS_OK(scaled_step(&bench, ++step, &right, &error));
            }
            RANKS_NEED(!right, "call %ld of %ld of %s may go: %d steps without it are right", n, calls, names[i],
                       trial);
            device_order("skip=none:1");
            RANKS_OK(pl_device_stream_finish(device, bench.stream, PL_DEADLINE_NEVER, &error));
            RANKS_OK(scaled_step(&bench, ++step, &right, &error));
        }
    }
    bench_close(&bench);
}

TEST(each_event_and_each_wait_for_one_is_needed)
{
#ifndef __SANITIZE_THREAD__ /* which would rightly report what a missing wait leads to */
    ck_assert_ranks_on(1, 1, NULL, skips, NULL);
#else
    (void)skips;
#endif
}

UNIT_MAIN_AFTER("runtime/device_order", device_prepare())
