/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/shm/shm.c, collectives/shm/run.c, collectives/shm/rounds.c, collectives/shm/staged.c,
 * collectives/shm/zero_copy.c, collectives/shm/eventcount.c. */
/**
 * The shared-memory backend with threads as ranks: every kind against a reference, in eager, zero-copy and staged mode;
 * ranks that disagree, are late or leave.
 */
#include "base/clock.h"
#include "base/text.h"
#include "collectives/arena.h"
#include "collectives/collective.h"
#include "collectives/world.h"

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/world_private.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8 };

/* Check supports one thread only: in a rank's thread a failed condition prints that and ends the test program. */
#define MUST(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define MUST_BE_OK(expression, error)                                                                                  \
    do {                                                                                                               \
        enum pl_status status_ = (expression);                                                                         \
                                                                                                                       \
        MUST(status_ == PL_OK, "%s: %s (%s)", pl_status_name(status_), (error)->cause, (error)->context);              \
    } while (0)

#define CHECK_ELEMS(what, count, found, expected)                                                                      \
    do {                                                                                                               \
        for (uint64_t i = 0; i < (count); i++) {                                                                       \
            MUST((found) == (expected), "%s of %d elements: [%d] is %d, not %d", (what), (int)(count), (int)i,         \
                 (int)(found), (int)(expected));                                                                       \
        }                                                                                                              \
    } while (0)

struct rank {
    struct pl_bootstrap *bootstrap;
    struct pl_world *world;
    int rank, size;
    void (*body)(struct rank *self);
};

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    struct pl_knobs knobs;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world_options options = {.knobs = &knobs};

    pl_knobs_default(&knobs);
    MUST_BE_OK(pl_knob_set(&knobs, PL_KNOB_BACKEND, "shm", "test", &error), &error);
    MUST_BE_OK(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, "20", "test", &error), &error);
    MUST_BE_OK(pl_world_new(self->bootstrap, &options, &self->world, &error), &error);
    self->body(self);
    pl_world_free(self->world);
    pl_bootstrap_free(self->bootstrap);
    return NULL;
}

static void run_ranks(int size, void (*body)(struct rank *self))
{
    struct pl_bootstrap *bootstraps[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    struct pl_error error = PL_ERROR_NONE;

    MUST_BE_OK(pl_bootstrap_new_threads(size, bootstraps, &error), &error);
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.bootstrap = bootstraps[r], .rank = r, .size = size, .body = body};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
    }
}

/* ---- every kind ---- */

/* Small whole numbers, so that sums are exact in every type: the input of rank `rank` at element `at`. */
static int value_of(int rank, uint64_t at)
{
    return (int)((at * 7 + (uint64_t)rank * 3) % 11) - 3;
}

static void fill(int32_t *data, int rank, uint64_t from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        data[i] = value_of(rank, from + i);
    }
}

static int sum_of(int size, uint64_t at)
{
    int sum = 0;

    for (int r = 0; r < size; r++) {
        sum += value_of(r, at);
    }
    return sum;
}

/* Buffers in the arena or on the heap. */
struct buffers {
    struct pl_span send_span, recv_span;
    int32_t *send, *recv;
    bool arena;
};

static void buffers_init(struct rank *self, struct buffers *buffers, bool arena, uint64_t send_elems,
                         uint64_t recv_elems)
{
    struct pl_error error = PL_ERROR_NONE;

    memset(buffers, 0, sizeof(*buffers));
    buffers->arena = arena;
    if (arena) {
        MUST_BE_OK(pl_arena_alloc(self->world, send_elems * 4 + 64, PL_MEMORY_HOST, &buffers->send_span, &error),
                   &error);
        MUST_BE_OK(pl_arena_alloc(self->world, recv_elems * 4 + 64, PL_MEMORY_HOST, &buffers->recv_span, &error),
                   &error);
        buffers->send = buffers->send_span.data;
        buffers->recv = buffers->recv_span.data;
    } else {
        buffers->send = calloc(send_elems + 16, 4);
        buffers->recv = calloc(recv_elems + 16, 4);
    }
}

static void buffers_done(struct rank *self, struct buffers *buffers)
{
    if (buffers->arena) {
        pl_arena_free(self->world, &buffers->send_span);
        pl_arena_free(self->world, &buffers->recv_span);
    } else {
        free(buffers->send);
        free(buffers->recv);
    }
}

static void check_allreduce(struct rank *self, struct buffers *buffers, uint64_t count, bool in_place)
{
    struct pl_error error = PL_ERROR_NONE;
    int32_t *from = in_place ? buffers->recv : buffers->send;

    fill(from, self->rank, 0, count);
    MUST_BE_OK(pl_allreduce(self->world, from, buffers->recv, count, PL_INT32, PL_SUM, &error), &error);
    CHECK_ELEMS("allreduce", count, buffers->recv[i], sum_of(self->size, i));
}

static void check_reduce(struct rank *self, struct buffers *buffers, uint64_t count, bool in_place)
{
    struct pl_error error = PL_ERROR_NONE;
    int root = (int)(count % (uint64_t)self->size);
    int32_t *from = in_place ? buffers->recv : buffers->send;

    fill(from, self->rank, 0, count);
    MUST_BE_OK(pl_reduce(self->world, from, buffers->recv, count, PL_INT32, PL_SUM, root, &error), &error);
    CHECK_ELEMS("reduce", self->rank == root ? count : 0, buffers->recv[i], sum_of(self->size, i));
}

static void check_broadcast(struct rank *self, struct buffers *buffers, uint64_t count)
{
    struct pl_error error = PL_ERROR_NONE;
    int root = (int)(count % (uint64_t)self->size);

    fill(buffers->recv, self->rank, 0, count);
    MUST_BE_OK(pl_broadcast(self->world, buffers->recv, count, PL_INT32, root, &error), &error);
    CHECK_ELEMS("broadcast", count, buffers->recv[i], value_of(root, i));
}

/* Block sizes that differ; some are 0. */
static uint64_t ragged(int rank, uint64_t count)
{
    return rank % 3 == 1 ? 0 : count / (uint64_t)(rank + 1);
}

static void check_allgather(struct rank *self, struct buffers *buffers, uint64_t count, bool in_place, bool is_ragged)
{
    struct pl_error error = PL_ERROR_NONE;
    uint64_t counts[MAX_RANKS];
    uint64_t at = 0;
    uint64_t own_at = 0;
    struct pl_collective collective = {.kind = PL_ALLGATHER, .dtype = PL_INT32, .count = count, .recv = buffers->recv};

    for (int r = 0; r < self->size; r++) {
        counts[r] = is_ragged ? ragged(r, count) : count;
        own_at = r == self->rank ? at : own_at;
        at += counts[r];
    }
    collective.counts = is_ragged ? counts : NULL;
    collective.send = in_place ? buffers->recv + own_at : buffers->send;
    fill(in_place ? buffers->recv + own_at : buffers->send, self->rank, 0, counts[self->rank]);
    MUST_BE_OK(pl_collective_run(self->world, &collective, &error), &error);
    at = 0;
    for (int r = 0; r < self->size; r++) {
        CHECK_ELEMS("allgather", counts[r], buffers->recv[at + i], value_of(r, i));
        at += counts[r];
    }
}

static void check_reduce_scatter(struct rank *self, struct buffers *buffers, uint64_t count, bool in_place,
                                 bool is_ragged)
{
    struct pl_error error = PL_ERROR_NONE;
    uint64_t counts[MAX_RANKS] = {0};
    uint64_t total = 0;
    uint64_t own_at = 0;
    struct pl_collective collective = {
        .kind = PL_REDUCE_SCATTER, .dtype = PL_INT32, .op = PL_SUM, .count = count, .send = buffers->send};
    int32_t *recv;

    for (int r = 0; r < self->size; r++) {
        counts[r] = is_ragged ? ragged(r, count) : count;
        own_at = r == self->rank ? total : own_at;
        total += counts[r];
    }
    /* a rank that receives nothing needs no buffer */
    recv = in_place ? buffers->send + own_at : counts[self->rank] > 0 ? buffers->recv : NULL;
    collective.counts = is_ragged ? counts : NULL;
    collective.recv = recv;
    fill(buffers->send, self->rank, 0, total);
    MUST_BE_OK(pl_collective_run(self->world, &collective, &error), &error);
    CHECK_ELEMS("reduce_scatter", counts[self->rank], recv[i], sum_of(self->size, own_at + i));
}

/* Number of elements that `from` sends to `to`. */
static uint64_t split(int from, int to, uint64_t count, bool is_ragged)
{
    return is_ragged ? (from + 2 * to) % 3 == 0 ? 0 : count / (uint64_t)(1 + from + to) : count;
}

static void check_alltoall(struct rank *self, struct buffers *buffers, uint64_t count, bool is_ragged)
{
    struct pl_error error = PL_ERROR_NONE;
    uint64_t counts[MAX_RANKS];
    uint64_t recv_counts[MAX_RANKS];
    uint64_t at = 0;
    struct pl_collective collective = {
        .kind = PL_ALLTOALL, .dtype = PL_INT32, .count = count, .send = buffers->send, .recv = buffers->recv};

    for (int r = 0; r < self->size; r++) {
        counts[r] = split(self->rank, r, count, is_ragged);
        recv_counts[r] = split(r, self->rank, count, is_ragged);
        fill(buffers->send + at, self->rank * MAX_RANKS + r, 0, counts[r]);
        at += counts[r];
    }
    if (is_ragged) {
        collective.counts = counts;
        collective.recv_counts = recv_counts;
    }
    MUST_BE_OK(pl_collective_run(self->world, &collective, &error), &error);
    at = 0;
    for (int r = 0; r < self->size; r++) {
        CHECK_ELEMS("alltoall", recv_counts[r], buffers->recv[at + i], value_of(r * MAX_RANKS + self->rank, i));
        at += recv_counts[r];
    }
}

static void every_kind(struct rank *self)
{
    static const uint64_t sizes[] = {0, 1, 3, 10, 17, 500, 1024, 1025, 5000, 100003};
    uint64_t ranks = (uint64_t)self->size;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        /* 600000 elements take several rounds of staging; for blocks, 100003 is enough. */
        uint64_t count = sizes[s];
        uint64_t whole = count == 100003 ? 600001 : count;
        uint64_t block = count == 100003 ? 600001 / ranks : count;

        for (int arena = 0; arena < 2; arena++) {
            struct buffers buffers;
            uint64_t room = whole > block * ranks ? whole : block * ranks;
            struct pl_error error = PL_ERROR_NONE;

            buffers_init(self, &buffers, arena == 1, room, room);
            for (int in_place = 0; in_place < 2; in_place++) {
                check_allreduce(self, &buffers, whole, in_place == 1);
                check_reduce(self, &buffers, whole, in_place == 1);
                for (int is_ragged = 0; is_ragged < 2; is_ragged++) {
                    check_allgather(self, &buffers, block, in_place == 1, is_ragged == 1);
                    check_reduce_scatter(self, &buffers, block, in_place == 1, is_ragged == 1);
                }
            }
            check_broadcast(self, &buffers, whole);
            check_alltoall(self, &buffers, block, false);
            check_alltoall(self, &buffers, block, true);
            MUST_BE_OK(pl_barrier(self->world, &error), &error);
            buffers_done(self, &buffers);
        }
    }
}

TEST(every_kind_is_right_in_and_out_of_place_in_arena_and_heap)
{
    static const int sizes[] = {2, 3, 5};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        run_ranks(sizes[i], every_kind);
    }
}

/* ---- mixed memory, many in flight, sub-worlds ---- */

static void mixed_memory(struct rank *self)
{
    struct buffers in_arena;
    struct buffers on_heap;

    buffers_init(self, &in_arena, true, 70000, 70000);
    buffers_init(self, &on_heap, false, 70000, 70000);
    for (int odd = 0; odd < 2; odd++) {
        check_allreduce(self, self->rank % 2 == odd ? &in_arena : &on_heap, 70000, true);
        check_reduce_scatter(self, self->rank % 2 == odd ? &in_arena : &on_heap, 20000, false, false);
    }
    buffers_done(self, &in_arena);
    buffers_done(self, &on_heap);
}

UNIT_TEST(some_ranks_in_the_arena_and_some_not_is_fine, run_ranks(3, mixed_memory))

/* Rank 1's block is small enough to be sent with the header and is on the heap; runs twice, because headers
 * alternate between two slots. */
static void small_among_large(struct rank *self)
{
    const uint64_t counts[3] = {5000, 500, 5000};
    struct pl_error error = PL_ERROR_NONE;
    struct buffers in_arena;
    struct buffers on_heap;

    buffers_init(self, &in_arena, true, 20000, 20000);
    buffers_init(self, &on_heap, false, 20000, 20000);
    for (int turn = 0; turn < 2; turn++) {
        struct buffers *buffers = self->rank == 1 ? &on_heap : &in_arena;
        struct pl_collective collective = {
            .kind = PL_ALLGATHER, .dtype = PL_INT32, .counts = counts, .send = buffers->send, .recv = buffers->recv};

        check_allreduce(self, &in_arena, 20000, false);
        check_allreduce(self, &in_arena, 20000, false);
        check_allreduce(self, &in_arena, 20000, turn == 0);
        fill(buffers->send, self->rank, 1, counts[self->rank]);
        MUST_BE_OK(pl_collective_run(self->world, &collective, &error), &error);
        CHECK_ELEMS("allgather", counts[0], buffers->recv[i], value_of(0, 1 + i));
        CHECK_ELEMS("allgather", counts[1], buffers->recv[5000 + i], value_of(1, 1 + i));
        CHECK_ELEMS("allgather", counts[2], buffers->recv[5500 + i], value_of(2, 1 + i));
    }
    buffers_done(self, &in_arena);
    buffers_done(self, &on_heap);
}

UNIT_TEST(a_small_block_among_large_ones_is_found_where_it_lies, run_ranks(3, small_among_large))

static void many_in_flight(struct rank *self)
{
    enum { COUNT = 40 };
    struct pl_request *requests[COUNT];
    float *data[COUNT];
    struct pl_error error = PL_ERROR_NONE;

    for (int i = 0; i < COUNT; i++) {
        uint64_t elems = (uint64_t)(i % 4 == 3 ? 90000 : 1 + i * i);
        struct pl_collective collective = {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .count = elems};

        data[i] = malloc(elems * sizeof(float));
        for (uint64_t e = 0; e < elems; e++) {
            data[i][e] = (float)(self->rank * 2 + i);
        }
        collective.send = data[i];
        collective.recv = data[i];
        MUST_BE_OK(pl_collective_post(self->world, &collective, &requests[i], &error), &error);
    }
    for (int i = COUNT - 1; i >= 0; i--) {
        uint64_t elems = (uint64_t)(i % 4 == 3 ? 90000 : 1 + i * i);

        MUST_BE_OK(pl_request_wait(requests[i], &error), &error);
        for (uint64_t e = 0; e < elems; e++) {
            MUST(data[i][e] == (float)(self->size - 1 + i), "request %d: element %d is %g", i, (int)e,
                 (double)data[i][e]);
        }
        free(data[i]);
    }
}

UNIT_TEST(many_requests_may_be_outstanding, run_ranks(3, many_in_flight))

static void sub_worlds(struct rank *self)
{
    static const int even[] = {2, 0};
    static const int odd[] = {1, 3};
    struct pl_world *whole = self->world;
    struct pl_world *part = NULL;
    struct rank inner = *self;
    struct buffers buffers;
    struct pl_error error = PL_ERROR_NONE;

    MUST_BE_OK(pl_world_new_sub(whole, self->rank % 2 == 0 ? even : odd, 2, &part, &error), &error);
    inner.world = part;
    inner.rank = pl_world_rank(part);
    inner.size = 2;
    MUST(inner.rank == (self->rank % 2 == 0 ? (self->rank == 2 ? 0 : 1) : self->rank / 2), "%d", inner.rank);
    buffers_init(&inner, &buffers, true, 30000, 30000);
    for (int i = 0; i < 20; i++) {
        check_allreduce(&inner, &buffers, (uint64_t)(1 + i * 1500), true);
        if (self->rank == 0 || i % 5 == 0) {
            MUST_BE_OK(i % 5 == 0 ? pl_barrier(whole, &error) : PL_OK, &error);
        }
    }
    buffers_done(&inner, &buffers);
    pl_world_free(part);
}

UNIT_TEST(sub_worlds_work_next_to_their_parent, run_ranks(4, sub_worlds))

/* ---- trouble ---- */

static void disagree(struct rank *self)
{
    float data[600] = {0};
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];
    uint64_t count = self->rank == 2 ? 501 : 500;
    enum pl_status status = pl_allreduce(self->world, data, data, count, PL_FLOAT32, PL_SUM, &error);

    pl_error_text(&error, text, sizeof(text));
    MUST(status == PL_MISMATCH, "%s: %s", pl_status_name(status), text);
    MUST(strstr(text, "rank 0") && strstr(text, "rank 2") && strstr(text, "501"), "%s", text);
    MUST(pl_barrier(self->world, &error) == PL_MISMATCH, "%s", error.cause);
}

UNIT_TEST(a_disagreement_is_reported_on_all_ranks_by_name, run_ranks(3, disagree))

static void wrong_splits(struct rank *self)
{
    int32_t send[64] = {0};
    int32_t recv[64];
    uint64_t counts[3] = {2, 2, 2};
    uint64_t recv_counts[3] = {2, 2, 2};
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];
    enum pl_status status;

    if (self->rank == 1) {
        counts[2] = 5;
    }
    status = pl_collective_run(self->world,
                               &(struct pl_collective){.kind = PL_ALLTOALL,
                                                       .dtype = PL_INT32,
                                                       .counts = counts,
                                                       .recv_counts = recv_counts,
                                                       .send = send,
                                                       .recv = recv},
                               &error);
    pl_error_text(&error, text, sizeof(text));
    MUST(status == PL_MISMATCH && strstr(text, "rank 1 sends 5 elements to rank 2"), "%s: %s", pl_status_name(status),
         text);
}

UNIT_TEST(splits_that_do_not_fit_are_reported_on_all_ranks, run_ranks(3, wrong_splits))

/* Set by the rank that stays away, so that it lives longer than the others' waits. */
static pthread_barrier_t all_informed;

/* Rank 0 waits for rank 1 whether rank 2 has come or not; rank 2 shares that wait, or comes late to a failure. */
static void one_stays_away(struct rank *self)
{
    static float data[3][200000];
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];

    for (int i = 0; i < 2; i++) {
        MUST_BE_OK(pl_barrier(self->world, &error), &error);
    }
    if (self->rank != 1) {
        struct pl_collective collective = {.kind = PL_ALLREDUCE,
                                           .dtype = PL_FLOAT32,
                                           .op = PL_SUM,
                                           .count = 200000,
                                           .send = data[self->rank],
                                           .recv = data[self->rank],
                                           .deadline_ns =
                                               pl_deadline_after_ns((self->rank == 0 ? 300 : 60000) * PL_NS_PER_MS)};
        enum pl_status status = pl_collective_run(self->world, &collective, &error);

        pl_error_text(&error, text, sizeof(text));
        MUST(status == PL_TIMEOUT && strstr(text, "rank 1"), "%s: %s", pl_status_name(status), text);
    }
    pthread_barrier_wait(&all_informed);
    if (self->rank == 1) {
        /* The late rank comes after all, and finds that the others went on. */
        enum pl_status status = pl_allreduce(self->world, data[1], data[1], 200000, PL_FLOAT32, PL_SUM, &error);

        pl_error_text(&error, text, sizeof(text));
        MUST(status == PL_TIMEOUT && strstr(text, "rank 1"), "%s: %s", pl_status_name(status), text);
    }
    pthread_barrier_wait(&all_informed);
}

TEST(a_late_rank_is_named_within_the_deadline_and_reports_that)
{
    pthread_barrier_init(&all_informed, NULL, 3);
    run_ranks(3, one_stays_away);
    pthread_barrier_destroy(&all_informed);
}

static void one_leaves(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];
    int64_t start_ns = pl_clock_now_ns();

    MUST_BE_OK(pl_barrier(self->world, &error), &error);
    if (self->rank != 1) {
        enum pl_status status = pl_barrier(self->world, &error);

        pl_error_text(&error, text, sizeof(text));
        MUST(status == PL_PEER && strstr(text, "rank 1"), "%s: %s", pl_status_name(status), text);
        MUST(pl_clock_now_ns() - start_ns < 15 * PL_NS_PER_S, "too late");
    }
}

UNIT_TEST(a_rank_that_left_is_named_long_before_the_deadline, run_ranks(3, one_leaves))

static int64_t cpu_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * PL_NS_PER_S + time.tv_nsec;
}

/* A thread's CPU time includes the time of interrupts and of the hypervisor, but that does not affect every wait. */
static void wait_long(struct rank *self)
{
    enum { WAITS = 4 };
    int64_t least_ns = INT64_MAX;

    for (int i = 0; i < WAITS; i++) {
        struct pl_error error = PL_ERROR_NONE;
        int64_t start_ns = cpu_ns();

        if (self->rank == 1) {
            pl_clock_nap(PL_NS_PER_S / WAITS, PL_DEADLINE_NEVER);
        }
        MUST_BE_OK(pl_barrier(self->world, &error), &error);
        start_ns = cpu_ns() - start_ns;
        least_ns = start_ns < least_ns ? start_ns : least_ns;
    }
    /* The promise is 0.1 s in 10 s; a fortieth of both, with room for sanitizers. */
    MUST(least_ns < 30 * PL_NS_PER_MS / WAITS, "%d us of CPU time", (int)(least_ns / 1000));
}

UNIT_TEST(waiting_costs_little_cpu_time, run_ranks(3, wait_long))

UNIT_MAIN("collectives/shm")
