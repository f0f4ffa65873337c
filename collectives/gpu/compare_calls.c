/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what all ranks call in device collectives, by an allgather of signatures between the hosts. */
#include "collectives/gpu/compare_calls.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static struct pl_roll *take(struct pl_rolls *rolls, struct pl_error *reterr)
{
    struct pl_roll *roll = rolls->unused;

    if (roll) {
        rolls->unused = roll->next;
        return roll;
    }
    return pl_memory_new(1, sizeof(*roll) + (size_t)pl_world_size(rolls->world) * sizeof(roll->cards[0]), reterr);
}

enum pl_status pl_roll_call(struct pl_rolls *rolls, const struct pl_signature *signature,
                            const uint64_t words[PL_ROLL_WORDS], struct pl_roll **ret_roll, struct pl_error *reterr)
{
    struct pl_roll *roll = take(rolls, reterr);
    struct pl_collective gather = {
        .kind = PL_ALLGATHER, .dtype = PL_UINT8, .count = sizeof(roll->own), .deadline_ns = INT64_MAX};
    enum pl_status status;

    if (!roll) {
        return PL_MEMORY;
    }
    memset(&roll->own, 0, sizeof(roll->own));
    roll->own.signature = *signature;
    if (words) {
        memcpy(roll->own.words, words, sizeof(roll->own.words));
    }
    gather.send = &roll->own;
    gather.recv = roll->cards;
    status = pl_collective_post(pl_world_host_part(rolls->world), &gather, &roll->gather, reterr);
    if (status != PL_OK) {
        roll->gather = NULL;
        pl_roll_release(rolls, roll);
        return status;
    }
    *ret_roll = roll;
    return PL_OK;
}

enum pl_status pl_roll_progress(const struct pl_rolls *rolls, struct pl_roll *roll, bool *ret_done,
                                struct pl_error *reterr)
{
    struct pl_request *gather;

    *ret_done = true;
    if (!roll->gather) {
        return PL_OK;
    }
    PL_TRY(pl_request_test(roll->gather, ret_done, reterr));
    if (!*ret_done) {
        return PL_OK;
    }
    gather = roll->gather;
    roll->gather = NULL;
    PL_TRY(pl_request_wait(gather, reterr));
    for (int r = 1; r < pl_world_size(rolls->world); r++) {
        if (!pl_signature_equal(&roll->cards[0].signature, &roll->cards[r].signature)) {
            return pl_signature_mismatch(&roll->cards[0].signature, pl_world_label(rolls->world, 0),
                                         &roll->cards[r].signature, pl_world_label(rolls->world, r), reterr);
        }
    }
    return PL_OK;
}

void pl_roll_release(struct pl_rolls *rolls, struct pl_roll *roll)
{
    if (!roll) {
        return;
    }
    if (roll->gather) {
        pl_request_cancel(roll->gather);
        roll->gather = NULL;
    }
    roll->next = rolls->unused;
    rolls->unused = roll;
}

void pl_rolls_done(struct pl_rolls *rolls)
{
    while (rolls->unused) {
        struct pl_roll *roll = rolls->unused;

        rolls->unused = roll->next;
        free(roll);
    }
}
