/* SPDX-License-Identifier: Apache-2.0 */
/** Making part of a world with devices where a rank finds no memory: link with -Wl,--wrap=pl_memory_new. */
#ifndef PL_TESTS_SUPPORT_DEVICE_PURSE_H
#define PL_TESTS_SUPPORT_DEVICE_PURSE_H

#include "tests/support/purse.h"
#include "tests/support/ranks.h"

/** Over two ranks: rank 1 pays for ever more of a part of a world with devices, until it has it: it fails and is told of on both ranks, or on none.
 */
static inline void device_ranks_pay(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int ranks[] = {0, 1};
    bool was_empty = true;

    (void)argument;
    purse_hook(pl_world_bootstrap(world));
    RANKS_OK(pl_barrier(world, &error));
    for (int pays = 0; was_empty; pays++) {
        PL_AUTO_WORLD struct pl_world *part = NULL;
        struct pl_error told = PL_ERROR_NONE;
        int32_t mine[2], all[4];

        purse = pl_world_rank(world) == 1 ? pays : -1;
        purse_was_empty = false;
        mine[0] = (int32_t)pl_world_new_sub(world, ranks, 2, &part, &told);
        purse = -1;
        mine[1] = purse_was_empty;
        RANKS_NEED(mine[0] == PL_OK || strstr(told.cause, "the purse is empty"), "%d paid: %s", pays, told.cause);
        RANKS_OK(pl_allgather(world, mine, all, 2, PL_INT32, &error));
        RANKS_NEED(all[0] == all[2], "%d paid: %d on rank 0, %d on rank 1", pays, all[0], all[2]);
        was_empty = all[3];
    }
}

#endif
