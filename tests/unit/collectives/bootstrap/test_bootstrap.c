/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/bootstrap/bootstrap.c, collectives/bootstrap/bootstrap_threads.c. */
/* Bootstraps: exchanges of the ranks before there is a world, also if one of them cannot take part. */
#include "tests/support/alloc_budget.h"

#include "base/clock.h"
#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/collective.h"
#include "collectives/world_private.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 6 };

struct seat {
    struct pl_bootstrap *bootstrap;
    const struct pl_world_options *options;
    int alloc_budget;
    bool was_empty;
    enum pl_status status;
    struct pl_error error;
    pthread_t thread;
};

static void *make_world(void *argument)
{
    struct seat *seat = argument;
    struct pl_world *world = NULL;
    int32_t sum = 1;

    alloc_budget = seat->alloc_budget;
    budget_was_empty = false;
    seat->status = pl_world_new(seat->bootstrap, seat->options, &world, &seat->error);
    alloc_budget = -1;
    seat->was_empty = budget_was_empty;
    if (seat->status == PL_OK) {
        seat->status = pl_allreduce(world, &sum, &sum, 1, PL_INT32, PL_SUM, &seat->error);
        if (seat->status == PL_OK && sum != seat->bootstrap->size) {
            seat->status = pl_error_set(&seat->error, PL_FAILED, "the sum is %d", sum);
        }
    }
    pl_world_free(world);
    return NULL;
}

static void join(struct seat *seats, int size, void *(*function)(void *))
{
    for (int r = 0; r < size; r++) {
        ck_assert_int_eq(pthread_create(&seats[r].thread, NULL, function, &seats[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(seats[r].thread, NULL);
    }
}

static void take_seats(struct seat *seats, int size)
{
    struct pl_bootstrap *bootstraps[MOST];

    memset(seats, 0, (size_t)size * sizeof(*seats));
    ck_ok(pl_bootstrap_new_threads, size, bootstraps);
    for (int r = 0; r < size; r++) {
        seats[r].bootstrap = bootstraps[r];
        seats[r].alloc_budget = -1;
        alloc_budget_hook(bootstraps[r]);
    }
}

static void leave_seats(struct seat *seats, int size)
{
    for (int r = 0; r < size; r++) {
        pl_bootstrap_free(seats[r].bootstrap);
    }
}

/* Whichever request for memory fails on rank 1: all ranks have a world, maybe with one backend less, or all report the
 * failure.
 */
static void run_out_everywhere(int size, const struct pl_world_options *options)
{
    bool was_empty = true;

    for (int pays = 0; was_empty; pays++) {
        struct seat seats[MOST];

        take_seats(seats, size);
        for (int r = 0; r < size; r++) {
            seats[r].options = options;
        }
        seats[1].alloc_budget = pays;
        join(seats, size, make_world);
        was_empty = seats[1].was_empty;
        for (int r = 0; r < size; r++) {
            ck_assert_msg(seats[r].status == seats[1].status &&
                              (seats[r].status == PL_OK || (was_empty && seats[r].status == PL_MEMORY)),
                          "rank 1 pays %d requests: rank %d has %s: %s", pays, r, pl_status_name(seats[r].status),
                          seats[r].error.cause);
            ck_assert_msg(seats[r].status == PL_OK || r == 1 ||
                              (strncmp(seats[r].error.cause, "rank 1", 6) == 0 &&
                               strstr(seats[r].error.cause, ": the memory budget is used up")),
                          "rank 1 pays %d requests: rank %d hears '%s'", pays, r, seats[r].error.cause);
        }
        leave_seats(seats, size);
    }
}

TEST(a_rank_without_memory_is_named_on_all_ranks)
{
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, "60", "test");
    run_out_everywhere(2, &(struct pl_world_options){.knobs = &knobs});
    run_out_everywhere(5, &(struct pl_world_options){.knobs = &knobs});
    run_out_everywhere(3, &(struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1});
    run_out_everywhere(4, &(struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2});
}

enum { NUMBERS = 100 };

/* The last rank cannot take part in the second of three allgathers, nor in the barrier after it. */
static void *meet(void *argument)
{
    struct seat *seat = argument;
    struct pl_bootstrap *bootstrap = seat->bootstrap;
    const struct pl_error why = {.status = PL_SYSTEM, .cause = "out to lunch"};
    bool last = bootstrap->rank == bootstrap->size - 1;
    int64_t deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    int32_t own[NUMBERS], all[MOST * NUMBERS];

    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < NUMBERS; i++) {
            own[i] = 1000 * bootstrap->rank + 100 * turn + i;
        }
        if (turn == 1) {
            seat->status = last ? pl_bootstrap_abort_collective(bootstrap, PL_SYSTEM, &why, deadline_ns)
                                : pl_bootstrap_allgather(bootstrap, own, all, sizeof(own), deadline_ns, &seat->error);
            if (seat->status != PL_SYSTEM || (!last && !strstr(seat->error.cause, "out to lunch"))) {
                return NULL;
            }
            seat->status =
                pl_bootstrap_vote(bootstrap, last ? PL_MEMORY : PL_OK, deadline_ns, last ? NULL : &seat->error);
            if (seat->status != PL_MEMORY) {
                return NULL;
            }
        }
        seat->status = pl_bootstrap_allgather(bootstrap, own, all, sizeof(own), deadline_ns, &seat->error);
        for (int i = 0; seat->status == PL_OK && i < bootstrap->size * NUMBERS; i++) {
            if (all[i] != 1000 * (i / NUMBERS) + 100 * turn + i % NUMBERS) {
                seat->status = pl_error_set(&seat->error, PL_FAILED, "number %d of turn %d is %d", i, turn, all[i]);
            }
        }
        if (seat->status != PL_OK) {
            return NULL;
        }
    }
    return NULL;
}

TEST(ranks_meet_again_after_one_could_not_come)
{
    for (int size = 1; size <= MOST; size++) {
        struct seat seats[MOST];

        take_seats(seats, size);
        join(seats, size, meet);
        for (int r = 0; r < size; r++) {
            ck_assert_msg(seats[r].status == PL_OK, "rank %d of %d: %s: %s", r, size, pl_status_name(seats[r].status),
                          seats[r].error.cause);
        }
        leave_seats(seats, size);
    }
}

/* Gathers blocks that are too large for one message, and then some that are not. */
static void *gather(void *argument)
{
    struct seat *seat = argument;
    const struct pl_bootstrap *bootstrap = seat->bootstrap;
    int64_t deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    char own[300] = "", all[MOST * sizeof(own)];

    bootstrap->transport->most_bytes = 1000;
    seat->status = pl_bootstrap_allgather(bootstrap, own, all, sizeof(own), deadline_ns, &seat->error);
    if (seat->status == PL_LIMIT && pl_bootstrap_allgather(bootstrap, own, all, 100, deadline_ns, NULL) != PL_OK) {
        seat->status = PL_FAILED;
    }
    return NULL;
}

TEST(more_than_a_message_holds_is_refused_on_all_ranks)
{
    struct seat seats[3];

    take_seats(seats, 3);
    join(seats, 3, gather);
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(seats[r].status, PL_LIMIT);
        ck_has(seats[r].error.cause, "3 blocks of 300 bytes do not fit in one message of at most 1000 bytes");
        pl_bootstrap_free(seats[r].bootstrap);
    }
}

/* Splits for two purposes, in opposite orders on ranks with even and with odd numbers. */
static void *split_twice(void *argument)
{
    struct seat *seat = argument;
    const struct pl_bootstrap *bootstrap = seat->bootstrap;
    int64_t deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    struct pl_bootstrap *parts[2] = {NULL};
    int ranks[MOST], all[MOST];

    for (int r = 0; r < bootstrap->size; r++) {
        ranks[r] = r;
    }
    for (int i = 0; i < 2 && seat->status == PL_OK; i++) {
        int purpose = (bootstrap->rank + i) % 2 ? PL_SPLIT_FOR_SUB_WORLD : PL_SPLIT_FOR_DEVICES;

        seat->status = bootstrap->split(bootstrap->context, ranks, bootstrap->size, (enum pl_split_purpose)purpose,
                                        deadline_ns, &parts[purpose], &seat->error);
    }
    for (int i = 0; i < 2 && seat->status == PL_OK; i++) {
        int own = 10 * parts[i]->rank + i;

        seat->status = pl_bootstrap_allgather(parts[i], &own, all, sizeof(own), deadline_ns, &seat->error);
        for (int r = 0; r < bootstrap->size && seat->status == PL_OK; r++) {
            if (all[r] != 10 * r + i) {
                seat->status = pl_error_set(&seat->error, PL_FAILED, "part %d: rank %d's number is %d", i, r, all[r]);
            }
        }
    }
    pl_bootstrap_free(parts[0]);
    pl_bootstrap_free(parts[1]);
    return NULL;
}

TEST(splits_for_two_purposes_come_in_any_order)
{
    for (int size = 1; size <= MOST; size++) {
        struct seat seats[MOST];

        take_seats(seats, size);
        join(seats, size, split_twice);
        for (int r = 0; r < size; r++) {
            ck_assert_msg(seats[r].status == PL_OK, "rank %d of %d: %s: %s", r, size, pl_status_name(seats[r].status),
                          seats[r].error.cause);
        }
        leave_seats(seats, size);
    }
}

/* A bootstrap without MPI and other threads, as of a program that runs on a desk. */
TEST(a_rank_alone_makes_a_part_of_itself)
{
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL, *part = NULL;
    float value = 3;

    ck_ok(pl_bootstrap_new_self, &bootstrap);
    ck_ok(pl_world_new, bootstrap, NULL, &world);
    ck_ok(pl_world_new_sub, world, (int[]){0}, 1, &part);
    ck_ok(pl_allreduce, part, &value, &value, 1, PL_FLOAT32, PL_SUM);
    ck_assert(value == 3);
    pl_world_free(part);
    pl_world_free(world);
    pl_bootstrap_free(bootstrap);
}

TEST(a_rank_without_memory_does_not_take_itself_for_the_only_one)
{
    bool known;

    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0);
    known = pl_bootstrap_under_mpi();
    alloc_budget = 0;
    ck_assert_int_eq(pl_bootstrap_under_mpi(), known);
    alloc_budget = -1;
    ck_assert_int_eq(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
}

UNIT_MAIN("collectives/bootstrap")
