/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/stop.h"

#include "base/clock.h"
#include "tests/unit/runtime/ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

static void agreed(struct pl_world *world, void *context)
{
    bool expected = *(bool *)context;
    struct pl_error error = PL_ERROR_NONE;
    bool stop = !expected;

    ck_assert_ok(pl_stop_agreed(world, &stop, &error), &error);
    ck_assert_int_eq(stop, expected);
}

/* Rank 0 asks before the signal has come, rank 1 after it: both stop. */
static void asks_early(struct pl_world *world, void *context)
{
    atomic_bool *asked = context;
    struct pl_error error = PL_ERROR_NONE;
    bool stop = false;

    if (pl_world_rank(world) == 1) {
        while (!atomic_load(asked)) {
            sched_yield();
        }
        pl_clock_nap(30 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
        ck_assert_int_eq(raise(SIGTERM), 0);
    }
    atomic_store(asked, true);
    ck_assert_ok(pl_stop_agreed(world, &stop, &error), &error);
    ck_assert(stop);
}

START_TEST(a_signal_to_one_rank_stops_all)
{
    atomic_bool asked = false;

    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ranks_run(2, asks_early, &asked);
}
END_TEST

START_TEST(sigterm_is_noted_and_all_ranks_hear_of_it)
{
    bool no = false;
    bool yes = true;

    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ck_assert(!pl_stop_requested());
    ranks_run(3, agreed, &no);
    ck_assert_int_eq(raise(SIGTERM), 0);
    ck_assert(pl_stop_requested());
    ranks_run(3, agreed, &yes);
    ck_assert_int_eq(pl_stop_watch(NULL), PL_OK);
    ck_assert(!pl_stop_requested());
}
END_TEST

UNIT_MAIN("runtime/stop", a_signal_to_one_rank_stops_all, sigterm_is_noted_and_all_ranks_hear_of_it)
