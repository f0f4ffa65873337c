/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/failure.c, collectives/core/request_wait.c. */
/* A rank that does not come is named by the rank whose deadline passes first, even if that rank waits for another
 * one that waits for the late rank. */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"

#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

enum { RANKS = 4, SIZES = 2, WORLDS = RANKS * SIZES };

static const uint64_t counts[SIZES] = {5, 50000}; /* sent with the call check, and in stages inside and between hosts */
static float room[2][RANKS][WORLDS][50000];

/* Four ranks on two hosts. Rank 0 does not come to its sum in the first two worlds, rank 1 in the next two, and so
 * on. The second rank of the other host has the deadline. */
struct attempt {
    unsigned flags; /* of the sums */
    pthread_barrier_t met;
    int64_t deadline_ns;
    pthread_mutex_t lock;
    struct {
        char wrong[RANKS_TEXT_BYTES]; /* errors that name a different rank; "" if all are right */
    } synced;
};

static int late_in(int number)
{
    return number / SIZES;
}

static bool has_deadline(int rank, int number)
{
    return rank == (late_in(number) < 2 ? 3 : 1);
}

static enum pl_status post(struct pl_world *world, int number, unsigned flags, int64_t timeout_ns,
                           struct pl_request **ret_request, struct pl_error *reterr)
{
    int rank = pl_world_rank(world);

    return pl_collective_post(world,
                              &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                      .flags = flags,
                                                      .count = counts[number % SIZES],
                                                      .send = room[0][rank][number],
                                                      .recv = room[1][rank][number],
                                                      .deadline_ns = pl_deadline_after_ns(timeout_ns)},
                              ret_request, reterr);
}

static void compare_words(struct pl_world *world, struct attempt *attempt, int rank, int number,
                          const struct pl_error *told)
{
    char expected[PL_RANK_NAME_BYTES + 80], text[RANKS_TEXT_BYTES - 100], name[PL_RANK_NAME_BYTES];

    snprintf(expected, sizeof(expected), "(still waiting for %s; with paceline_hang_s set, ",
             pl_world_rank_name(world, late_in(number), name));
    if (told->status == PL_TIMEOUT && strstr(pl_error_text(told, text, sizeof(text)), expected)) {
        return;
    }
    pthread_mutex_lock(&attempt->lock);
    snprintf(attempt->synced.wrong, sizeof(attempt->synced.wrong), "rank %d, %llu elements, rank %d is late: %s", rank,
             (unsigned long long)counts[number % SIZES], late_in(number), pl_error_text(told, text, sizeof(text)));
    pthread_mutex_unlock(&attempt->lock);
}

/* Acts as MPI does if two ranks have not sent to each other before: a query to a late rank does not leave. State of
 * this thread's rank: */
static _Thread_local struct {
    const void *contexts[WORLDS];
    struct pl_transport real;
} held;

static const uintptr_t MARK = UINTPTR_MAX; /* the last word of such a transfer */

static enum pl_status send_or_hold(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                   struct pl_transfer *transfer, struct pl_error *reterr)
{
    int number = 0;

    while (held.contexts[number] != context) {
        number++;
    }
    if (tag == PL_TAG_REVOKE && bytes == sizeof(struct pl_late_message) && peer == late_in(number)) {
        *transfer = (struct pl_transfer){.active = true, .scratch = {[PL_TRANSFER_SCRATCH_WORDS - 1] = MARK}};
        return PL_OK;
    }
    return held.real.send(context, data, bytes, peer, tag, transfer, reterr);
}

static enum pl_status test_or_hold(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                   struct pl_error *reterr)
{
    *ret_done = false;
    return transfer->scratch[PL_TRANSFER_SCRATCH_WORDS - 1] == MARK
               ? PL_OK
               : held.real.test(context, transfer, ret_done, ret_bytes, reterr);
}

static void hold_queries(struct pl_world *world, int number)
{
    struct pl_transport *transport = pl_world_bootstrap(world)->transport;

    held.contexts[number] = transport->context;
    held.real = *transport;
    transport->send = send_or_hold;
    transport->test = test_or_hold;
}

/* Lets all ranks search, so that they answer. */
static void search_at_once(struct pl_request *request)
{
    PL_AUTO_HOLD(request->world);

    request->deadline_ns = request->collective.deadline_ns;
    request->search_ns = 1;
}

static void await_late_ranks(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct attempt *attempt = argument;
    int rank = pl_world_rank(world), waiting = WORLDS - SIZES;
    struct pl_request *requests[WORLDS] = {0};
    struct pl_world *worlds[WORLDS];

    for (int i = 0; i < WORLDS; i++) {
        RANKS_OK(pl_world_new_sub(world, (int[]){0, 1, 2, 3}, RANKS, &worlds[i], &error));
        hold_queries(worlds[i], i);
        if (rank != late_in(i) && !has_deadline(rank, i)) {
            RANKS_OK(post(worlds[i], i, attempt->flags, 120 * PL_NS_PER_S, &requests[i], &error));
            search_at_once(requests[i]);
        }
    }
    pthread_barrier_wait(&attempt->met);
    for (int i = 0; i < WORLDS; i++) {
        if (has_deadline(rank, i)) {
            RANKS_OK(post(worlds[i], i, attempt->flags, attempt->deadline_ns, &requests[i], &error));
        }
    }
    while (waiting) {
        for (int i = 0; i < WORLDS; i++) {
            struct pl_error told = PL_ERROR_NONE;
            bool done = false;

            if (requests[i]) {
                (void)!pl_request_test(requests[i], &done, &told);
            }
            if (done) {
                compare_words(world, attempt, rank, i, &told);
                (void)!pl_request_wait(PL_TAKE(requests[i]), NULL);
                waiting--;
            }
        }
        pl_clock_nap(50 * PL_NS_PER_US, PL_DEADLINE_NEVER);
    }
    pthread_barrier_wait(&attempt->met);
    for (int i = 0; i < WORLDS; i++) {
        pl_world_free(worlds[i]);
    }
}

/* A rank that the machine halts for half of the deadline is late too: then the test repeats with a longer deadline. */
static void try_late_ranks(unsigned flags)
{
    struct attempt attempt = {.flags = flags, .deadline_ns = PL_NS_PER_S};
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_PROGRESS, "off");

    pthread_barrier_init(&attempt.met, NULL, RANKS);
    pthread_mutex_init(&attempt.lock, NULL);
    do {
        attempt.synced.wrong[0] = '\0';
        ck_assert_ranks(RANKS, (&(struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}),
                        await_late_ranks, &attempt);
        attempt.deadline_ns *= 2;
    } while (attempt.synced.wrong[0] && attempt.deadline_ns <= 16 * PL_NS_PER_S);
    ck_assert_msg(!attempt.synced.wrong[0], "%s", attempt.synced.wrong);
    pthread_mutex_destroy(&attempt.lock);
    pthread_barrier_destroy(&attempt.met);
}

UNIT_TEST(the_rank_that_all_wait_for_is_named_over_hosts, try_late_ranks(0))

UNIT_TEST(it_is_named_without_a_call_check_too, try_late_ranks(PL_AGREED))

/* Starts the search for the late rank at once; true when it has arrived at rank 2. */
static bool has_found(struct pl_world *world, struct pl_request *request)
{
    PL_AUTO_HOLD(world);

    request->search_ns = 1;
    return world->late.rank == 2;
}

/* Rank 2 comes when rank 1, which waits for rank 0, has found that all wait for rank 2. */
static void come_when_found(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    struct pl_request *request = NULL;
    bool done = false, found = false;

    if (rank == 2) {
        pthread_barrier_wait(argument);
    }
    RANKS_OK(post(world, 0, 0, 120 * PL_NS_PER_S, &request, &error));
    while (!done) {
        RANKS_OK(pl_request_test(request, &done, &error));
        if (rank == 1 && !found && has_found(world, request)) {
            found = true;
            pthread_barrier_wait(argument);
        }
    }
    RANKS_OK(pl_request_wait(request, &error));
    RANKS_OK(pl_barrier(world, &error));
}

TEST(a_rank_that_comes_while_others_search_for_it_is_not_late)
{
    pthread_barrier_t found;

    pthread_barrier_init(&found, NULL, 2);
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), come_when_found, &found);
    pthread_barrier_destroy(&found);
}

TEST(the_search_begins_half_of_the_time_before_a_deadline_and_ten_seconds_at_most)
{
    ck_assert_int_eq(pl_late_begin_ns(1000, 3000), 2000);
    ck_assert_int_eq(pl_late_begin_ns(0, 600 * PL_NS_PER_S), 590 * PL_NS_PER_S);
    ck_assert_int_gt(pl_late_begin_ns(pl_clock_now_ns(), PL_DEADLINE_NEVER), INT64_MAX / 2);
}

UNIT_MAIN("collectives/late")
