/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/progress.c, collectives/hier/pipeline.c. */
/* The progress thread: its work without the program's calls and next to them, and worlds that must not have one. */
#include "base/clock.h"
#include "base/knob.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { LARGE = 300000, MANY = 40 };

static void set(struct pl_knobs *knobs, const char *progress)
{
    pl_knobs_default(knobs);
    ck_ok(pl_knob_set, knobs, PL_KNOB_TIMEOUT_S, "20", "test");
    ck_ok(pl_knob_set, knobs, PL_KNOB_PROGRESS, progress, "test");
}

static void count_ended(void *count_at, const struct pl_event *event)
{
    atomic_fetch_add((atomic_int *)count_at, 1);
}

static struct pl_collective sum_of(float *data, uint64_t count)
{
    return (struct pl_collective){
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .count = count, .send = data, .recv = data};
}

static void fill(float *data, uint64_t count, float value)
{
    for (uint64_t i = 0; i < count; i++) {
        data[i] = value;
    }
}

static bool is_filled(const float *data, uint64_t count, float value)
{
    uint64_t i = 0;

    while (i < count && data[i] == value) {
        i++;
    }
    return i == count;
}

static void stay_away(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static _Thread_local float data[2][LARGE];
    float n = (float)pl_world_size(world);
    atomic_int ended = 0;
    struct pl_observer observer = {.context = &ended, .ended = count_ended};
    int64_t deadline_ns = pl_deadline_after_ns(15 * PL_NS_PER_S);
    struct pl_request *requests[2];

    pl_world_observe(world, &observer);
    for (int i = 0; i < 2; i++) {
        struct pl_collective sum = sum_of(data[i], LARGE);

        fill(data[i], LARGE, (float)(i + 1));
        RANKS_OK(pl_collective_post(world, &sum, &requests[i], &error));
    }
    while (atomic_load(&ended) < 2 && !pl_deadline_passed(deadline_ns)) {
        sched_yield();
    }
    RANKS_NEED(atomic_load(&ended) == 2, "%d of 2 ended by themselves", atomic_load(&ended));
    for (int i = 0; i < 2; i++) {
        RANKS_OK(pl_request_wait(requests[i], &error));
        RANKS_NEED(is_filled(data[i], LARGE, n * (float)(i + 1)), "sum %d is wrong", i);
    }
    pl_world_observe(world, NULL);
}

TEST(collectives_end_without_further_calls)
{
    struct pl_knobs knobs;

    set(&knobs, "auto");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), stay_away, NULL);
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), stay_away, NULL);
    set(&knobs, "on");
    ck_assert_ranks(3, &((struct pl_world_options){.knobs = &knobs}), stay_away, NULL);
}

/* Posts, tests and waits at the rank's own pace, with pauses in which the thread works or sleeps. */
static void mix(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static _Thread_local float data[MANY][1000];
    float n = (float)pl_world_size(world);
    unsigned seed = (unsigned)pl_world_rank(world) + 1;
    struct pl_request *requests[MANY];

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i += 2) {
            struct pl_collective pair[2] = {sum_of(data[i], 1000), sum_of(data[i + 1], (uint64_t)(i + 1))};

            fill(data[i], 1000, (float)i);
            fill(data[i + 1], 1000, 1.0F);
            RANKS_OK(pl_collective_post(world, &pair[0], &requests[i], &error));
            RANKS_OK(pl_collective_post(world, &pair[1], &requests[i + 1], &error));
            if (rand_r(&seed) % 4 == 0) {
                pl_clock_nap(rand_r(&seed) % 1000 * PL_NS_PER_US, PL_DEADLINE_NEVER);
            }
            if (rand_r(&seed) % 4 == 0) {
                bool done;

                RANKS_OK(pl_request_test(requests[i], &done, &error));
            }
        }
        for (int i = MANY - 1; i >= 0; i--) {
            RANKS_OK(pl_request_wait(requests[i], &error));
        }
        for (int i = 0; i < MANY; i += 2) {
            RANKS_NEED(is_filled(data[i], 1000, n * (float)i) && is_filled(data[i + 1], (uint64_t)i + 1, n),
                       "round %d, sums %d", round, i);
        }
        pl_clock_nap(round * 2 * PL_NS_PER_MS, PL_DEADLINE_NEVER); /* longer than the thread stays awake */
    }
}

TEST(the_thread_and_the_program_take_turns)
{
    struct pl_knobs knobs;

    set(&knobs, "on");
    ck_assert_ranks(3, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), mix, NULL);
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), mix, NULL);
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), mix, NULL);
}

/* Vectors of several chunks, all different; ranks come at random times. */
static void sum_chunks(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { ELEMS = 5 << 17, STRETCH = 1 << 17 }; /* five chunks of 512 KiB, for three slots */
    static _Thread_local float data[ELEMS];
    float ranks = (float)pl_world_size(world);
    unsigned seed = (unsigned)pl_world_rank(world) + 1;

    for (int round = 0; round < 100; round++) {
        struct pl_collective sum = sum_of(data, ELEMS);
        struct pl_request *request;

        for (uint64_t i = 0; i < ELEMS; i += STRETCH) {
            fill(data + i, STRETCH, (float)(i / STRETCH));
        }
        if (rand_r(&seed) % 4 == 0) {
            sched_yield();
        }
        RANKS_OK(pl_collective_post(world, &sum, &request, &error));
        RANKS_OK(pl_request_wait(request, &error));
        for (uint64_t i = 0; i < ELEMS; i += STRETCH) {
            RANKS_NEED(is_filled(data + i, STRETCH, ranks * (float)(i / STRETCH)),
                       "round %d: a wrong sum from element %llu on", round, (unsigned long long)i);
        }
    }
}

TEST(chunks_between_hosts_meet_their_like)
{
    struct pl_knobs knobs;

    set(&knobs, "on");
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), sum_chunks, NULL);
    ck_assert_ranks(5, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), sum_chunks, NULL);
}

static void disagree(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static _Thread_local float data[LARGE];
    struct pl_collective sum = sum_of(data, LARGE - (uint64_t)pl_world_rank(world));
    struct pl_error seen = PL_ERROR_NONE;
    atomic_int ended = 0;
    struct pl_observer observer = {.context = &ended, .ended = count_ended};
    int64_t deadline_ns = pl_deadline_after_ns(15 * PL_NS_PER_S);
    struct pl_request *request;

    pl_world_observe(world, &observer);
    RANKS_OK(pl_collective_post(world, &sum, &request, &error));
    while (atomic_load(&ended) == 0 && !pl_deadline_passed(deadline_ns)) {
        sched_yield();
    }
    RANKS_NEED(pl_world_failure(world, &seen) == PL_MISMATCH, "the thread saw '%s'", seen.cause);
    RANKS_NEED(pl_request_wait(request, &seen) == PL_MISMATCH && strstr(seen.cause, "rank 1 calls allreduce of 299999"),
               "'%s'", seen.cause);
    RANKS_NEED(pl_collective_post(world, &sum, &request, &seen) == PL_MISMATCH, "a post into a failed world");
}

TEST(a_failure_in_the_progress_thread_is_returned_by_the_next_call)
{
    struct pl_knobs knobs;

    set(&knobs, "auto");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), disagree, NULL);
}

static void leave_under_way(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static _Thread_local float data[LARGE];
    struct pl_collective sum = sum_of(data, LARGE);
    struct pl_error seen = PL_ERROR_NONE;
    struct pl_request *request;

    if (pl_world_rank(world) == 0) {
        return; /* the other rank's request never ends */
    }
    RANKS_OK(pl_collective_post(world, &sum, &request, &error));
    pl_clock_nap(5 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    pl_request_cancel(request);
    RANKS_NEED(pl_world_failure(world, &seen) == PL_CANCELLED, "'%s'", seen.cause);
}

TEST(a_request_can_be_cancelled_under_the_threads_hands)
{
    struct pl_knobs knobs;

    set(&knobs, "auto");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), leave_under_way,
                    NULL);
}

static void describe(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_world_describe(world, &text);
    RANKS_NEED(strstr(pl_text_string(&text), argument), "'%s' is not in:\n%.1000s", (const char *)argument,
               pl_text_string(&text));
}

TEST(a_world_tells_whether_it_has_a_thread_and_why_not)
{
    struct pl_knobs knobs;

    set(&knobs, "auto");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), describe,
                    "inside calls only: all ranks are on one host");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), describe,
                    "while the program computes, in a thread");
    set(&knobs, "off");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), describe,
                    "the setting progress is off");
    set(&knobs, "on");
    ck_assert_ranks(1, &((struct pl_world_options){.knobs = &knobs}), describe, "there is only one rank");
}

static void *start_limited(void *seat_at)
{
    struct ranks_seat *seat = seat_at;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world *world = NULL;
    enum pl_status status;

    seat->bootstrap->any_thread = false;
    status = pl_world_new(seat->bootstrap, seat->options, &world, &error);
    snprintf(seat->failure, sizeof(seat->failure), "%d %s", (int)status, error.cause);
    pl_world_free(world);
    pl_bootstrap_free(seat->bootstrap);
    return NULL;
}

/* The errors of two ranks that make a world in which only one thread may send messages. */
static void start_both(const char *progress, char said[2][RANKS_TEXT_BYTES])
{
    struct pl_bootstrap *bootstraps[2];
    struct ranks_seat seats[2];
    struct pl_knobs knobs;
    const struct pl_world_options options = {.knobs = &knobs, .pretend_ranks_per_host = 1};

    set(&knobs, progress);
    memset(seats, 0, sizeof(seats));
    ck_ok(pl_bootstrap_new_threads, 2, bootstraps);
    for (int r = 0; r < 2; r++) {
        seats[r].bootstrap = bootstraps[r];
        seats[r].options = &options;
        pthread_create(&seats[r].thread, NULL, start_limited, &seats[r]);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(seats[r].thread, NULL);
        memcpy(said[r], seats[r].failure, RANKS_TEXT_BYTES);
    }
}

TEST(without_leave_for_several_threads_auto_has_none_and_on_is_refused)
{
    char said[2][RANKS_TEXT_BYTES];

    start_both("auto", said);
    ck_assert_int_eq(atoi(said[0]), PL_OK);
    ck_assert_int_eq(atoi(said[1]), PL_OK);
    start_both("on", said);
    ck_assert_int_eq(atoi(said[0]), PL_UNSUPPORTED);
    ck_has(said[1], "no progress thread can run: only one thread may send messages here");
}

UNIT_MAIN("collectives/progress")
