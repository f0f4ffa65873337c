/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/stop.c. */
#include "runtime/stop.h"

#include "base/clock.h"
#include "tests/unit/runtime/ranks.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

/* The number of the first call that says yes, of at most `most`; 0: none does. */
static int calls_until_yes(struct pl_stop *stop, int most)
{
    for (int call = 1; call <= most; call++) {
        bool yes = false;

        ck_ok(pl_stop_agreed, stop, &yes);
        if (yes) {
            return call;
        }
    }
    return 0;
}

struct scene {
    atomic_int answered; /* calls that have returned on rank 0 */
    int stopped_at[RANKS_MOST];
};

/* Rank 0 calls before the signal has come, rank 1 after it, and not before rank 0 has its answer. */
static void asks_early(struct pl_world *world, void *context)
{
    struct scene *scene = context;
    int rank = pl_world_rank(world);
    struct pl_stop *stop = NULL;
    bool yes = true;

    ck_ok(pl_stop_new, world, &stop);
    if (rank == 1) {
        while (atomic_load(&scene->answered) == 0) {
            sched_yield();
        }
        ck_assert_int_eq(raise(SIGTERM), 0);
    }
    ck_ok(pl_stop_agreed, stop, &yes);
    ck_assert(!yes); /* a step late */
    if (rank == 0) {
        atomic_store(&scene->answered, 1);
    }
    ck_assert_int_eq(calls_until_yes(stop, 1), 1);
    ck_assert_int_eq(calls_until_yes(stop, 1), 1); /* and it stays so */
    pl_stop_free(stop);
}

TEST(nobody_waits_for_the_answer_and_a_signal_to_one_rank_stops_all)
{
    struct scene scene = {.answered = 0};

    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ranks_run(2, asks_early, &scene);
}

/* The signal comes at any moment, and the ranks are never in step. */
static void trains(struct pl_world *world, void *context)
{
    struct scene *scene = context;
    int rank = pl_world_rank(world);
    struct pl_stop *stop = NULL;
    bool yes = false;
    int step = 0;

    ck_ok(pl_stop_new, world, &stop);
    while (!yes) {
        float gradient = 1.0F;

        step++;
        if (rank == 2 && step == 7) {
            ck_assert_int_eq(raise(SIGTERM), 0);
        }
        if ((step + rank) % 3 == 0) {
            pl_clock_nap(200 * PL_NS_PER_US, PL_DEADLINE_NEVER);
        }
        ck_ok(pl_allreduce, world, &gradient, &gradient, 1, PL_FLOAT32, PL_SUM);
        ck_ok(pl_stop_agreed, stop, &yes);
    }
    scene->stopped_at[rank] = step;
    pl_stop_free(stop);
}

TEST(all_ranks_stop_after_the_same_step)
{
    for (int round = 0; round < 20; round++) {
        struct scene scene = {.answered = 0};

        ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
        ranks_run(3, trains, &scene);
        /* Signals are the process's: another rank may have seen this one at the end of step 6 already. */
        ck_assert(scene.stopped_at[0] == 7 || scene.stopped_at[0] == 8);
        ck_assert(scene.stopped_at[1] == scene.stopped_at[0] && scene.stopped_at[2] == scene.stopped_at[0]);
    }
}

/* A vote that is still under way when the program has come to its end. */
static void ends_early(struct pl_world *world, void *context)
{
    atomic_int *ended = context;
    struct pl_stop *stop = NULL;
    bool yes = true;

    ck_ok(pl_stop_new, world, &stop);
    if (pl_world_rank(world) == 1) {
        pl_clock_nap(20 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    ck_ok(pl_stop_agreed, stop, &yes);
    ck_assert(!yes);
    pl_stop_free(stop);
    ck_ok(pl_barrier, world); /* the world is as it was */
    atomic_fetch_add(ended, 1);
}

TEST(the_last_vote_is_waited_for)
{
    atomic_int ended = 0;

    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ranks_run(3, ends_early, &ended);
    ck_assert_int_eq(atomic_load(&ended), 3);
    pl_stop_free(NULL);
}

TEST(sigterm_is_noted)
{
    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ck_assert(!pl_stop_requested());
    ck_assert_int_eq(poll(&(struct pollfd){.fd = pl_stop_fd(), .events = POLLIN}, 1, 0), 0);
    ck_assert_int_eq(raise(SIGTERM), 0);
    ck_assert(pl_stop_requested());
    ck_assert_int_eq(poll(&(struct pollfd){.fd = pl_stop_fd(), .events = POLLIN}, 1, 0), 1);
    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ck_assert(!pl_stop_requested());
    ck_assert_int_eq(poll(&(struct pollfd){.fd = pl_stop_fd(), .events = POLLIN}, 1, 0), 0);
}

UNIT_MAIN("runtime/stop")
