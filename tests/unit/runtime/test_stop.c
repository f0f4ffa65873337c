/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/stop.h"

#include "tests/unit/runtime/ranks.h"

#include <signal.h>

static void agreed(struct pl_world *world, void *context)
{
    bool expected = *(bool *)context;
    struct pl_error error = PL_ERROR_NONE;
    bool stop = !expected;

    ck_assert_ok(pl_stop_agreed(world, &stop, &error), &error);
    ck_assert_int_eq(stop, expected);
}

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

UNIT_MAIN("runtime/stop", sigterm_is_noted_and_all_ranks_hear_of_it)
