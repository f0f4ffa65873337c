/* SPDX-License-Identifier: Apache-2.0 */
/** Makes sub-worlds with devices while a rank gets no memory: link with -Wl,--wrap=pl_memory_new. */
#ifndef PL_TESTS_SUPPORT_DEVICE_ALLOC_BUDGET_H
#define PL_TESTS_SUPPORT_DEVICE_ALLOC_BUDGET_H

#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/support/alloc_budget.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

/**
 * Over two ranks: rank 1 may make more and more requests while it makes a sub-world with devices, until it succeeds.
 * Each time it fails and reports on both ranks, or succeeds on both.
 */
static inline void device_ranks_pay(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int ranks[] = {0, 1};
    bool was_empty = true;

    alloc_budget_hook(pl_world_bootstrap(world));
    RANKS_OK(pl_barrier(world, &error));
    for (int pays = 0; was_empty; pays++) {
        PL_AUTO_WORLD struct pl_world *part = NULL;
        struct pl_error told = PL_ERROR_NONE;
        int32_t mine[2], all[4];

        alloc_budget = pl_world_rank(world) == 1 ? pays : -1;
        budget_was_empty = false;
        mine[0] = (int32_t)pl_world_new_sub(world, ranks, 2, &part, &told);
        alloc_budget = -1;
        mine[1] = budget_was_empty;
        RANKS_NEED(mine[0] == PL_OK || strstr(told.cause, "the memory budget is used up"), "%d requests paid: %s", pays,
                   told.cause);
        RANKS_OK(pl_allgather(world, mine, all, 2, PL_INT32, &error));
        RANKS_NEED(all[0] == all[2], "%d requests paid: status %d on rank 0, %d on rank 1", pays, all[0], all[2]);
        was_empty = all[3];
    }
}

/**
 * The same with one device per rank. A failure that is not reported at once hits the test's own time limit, long before
 * the world's.
 */
static inline void check_device_alloc_budget(void)
{
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, "1000", "the test", NULL), PL_OK);
    ck_assert_ranks_on(2, 2, &((struct pl_world_options){.knobs = &knobs}), device_ranks_pay, NULL);
}

#endif
