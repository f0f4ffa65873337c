/* SPDX-License-Identifier: Apache-2.0 */
/* The progress of the collective under way, as this rank sees the other ranks' counters. */
#include "collectives/shm/layout.h"

static bool reads_all(const struct pl_shm_op *op)
{
    return op->collective->kind != PL_BROADCAST;
}

int pl_shm_state_short_of_staged(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds)
{
    for (int rank = 0; rank < shm->size; rank++) {
        bool reads = rank != shm->rank && (reads_all(op) || rank == op->collective->root);

        if (reads && atomic_load(&pl_shm_counters(shm, rank)->staged) < shm->rounds_base + rounds) {
            return rank;
        }
    }
    return -1;
}

int pl_shm_state_short_of_consumed(const struct pl_shm *shm, const struct pl_shm_op *op, uint64_t rounds)
{
    for (int rank = 0; rank < shm->size; rank++) {
        bool waits = rank != shm->rank && (reads_all(op) || pl_shm_is_root(shm, op));

        if (waits && atomic_load(&pl_shm_counters(shm, rank)->consumed) < shm->rounds_base + rounds) {
            return rank;
        }
    }
    return -1;
}

bool pl_shm_state_can_move(const struct pl_shm *shm, const struct pl_shm_op *op, int *ret_waits_for)
{
    int missing = -1;

    if (op->staged < op->rounds && op->staged - op->finished < PL_SHM_DEPTH) {
        return true;
    }
    if (op->consumed < op->staged) {
        missing = pl_shm_state_short_of_staged(shm, op, op->consumed + 1);
        if (missing < 0) {
            return true;
        }
    }
    if (op->finished < op->consumed) {
        int reader = pl_shm_state_short_of_consumed(shm, op, op->finished + 1);

        if (reader < 0) {
            return true;
        }
        missing = missing < 0 ? reader : missing;
    }
    *ret_waits_for = missing;
    return false;
}

bool pl_shm_is_complete(const struct pl_shm *shm, int rank)
{
    const struct pl_shm_op *op = &shm->op;
    struct pl_shm_counters *counters = pl_shm_counters(shm, rank);

    switch (op->mode) {
    case PL_SHM_HEADERS:
        return atomic_load(&pl_shm_header(shm, rank, op->sequence)->sequence) >= op->sequence;
    case PL_SHM_EAGER:
        break;
    case PL_SHM_ZERO_COPY:
        return rank == shm->rank || atomic_load(&counters->done) >= op->sequence;
    case PL_SHM_STAGED:
        return atomic_load(&counters->staged) >= shm->rounds_base + op->rounds &&
               atomic_load(&counters->consumed) >= shm->rounds_base + op->rounds;
    }
    return true;
}

bool pl_shm_is_ready(const struct pl_shm *shm)
{
    const struct pl_shm_op *op = &shm->op;

    if (op->mode == PL_SHM_STAGED) {
        int waits_for;

        return pl_shm_state_can_move(shm, op, &waits_for);
    }
    return (op->mode == PL_SHM_ZERO_COPY && !op->worked) || op->waits_for < 0 || pl_shm_is_complete(shm, op->waits_for);
}
