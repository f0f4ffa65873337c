/* SPDX-License-Identifier: Apache-2.0 */
/* The vote after a step that all ranks take: the step has succeeded if it has on every rank. */
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"

struct pl_vote pl_vote_from(const struct pl_error *own)
{
    struct pl_vote vote = {.status = own->status};

    pl_error_text(own, vote.text, sizeof(vote.text));
    return vote;
}

enum pl_status pl_world_vote(struct pl_world *world, struct pl_vote *vote, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_vote *all = NULL;

    PL_TRY(pl_bootstrap_gather(world->bootstrap, vote, sizeof(*vote), deadline_ns, &all, reterr));
    for (int r = 0; r < world->size; r++) {
        if (all[r].status != PL_OK) {
            *vote = all[r];
            return PL_OK;
        }
    }
    return PL_OK;
}
