/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Staged collectives: data in private memory goes round by round through staging memory.
 *
 * Round c, on each rank:
 *
 *     stage    copy the data that others need to its own staging memory, part q for rank q
 *     consume  when all have staged c: reduce or copy part `me` of all others' staging memory
 *     finish   when all have consumed c: staging memory is free again; allreduce and reduce first copy the results out
 *
 * In allreduce a consumer writes its result back to the lines that it has read, in each other rank's staging memory:
 * then a line always moves between two cores as modified. (A line that one core has read and another stores to costs
 * several times more.) Data that a rank reduces itself never passes through its own staging memory.
 *
 * In each step a rank finishes a round if it can, else consumes one, else stages one, at most PL_SHM_DEPTH ahead.
 */
#include "collectives/shm/layout.h"

/* The address of part `part` of `rank`'s staging memory in `round`. */
static char *part_of(const struct pl_shm *shm, const struct pl_shm_op *op, int rank, int part, uint64_t round)
{
    uint64_t offset = pl_shm_is_one_to_all(op->collective->kind) ? 0 : (uint64_t)part * op->part_elems * op->elem_bytes;

    return pl_shm_staging(shm, rank, shm->rounds_base + round) + offset;
}

static void stage(struct pl_shm *shm, struct pl_shm_op *op, uint64_t round)
{
    const struct pl_collective *collective = op->collective;
    const char *from = collective->kind == PL_BROADCAST ? collective->recv : collective->send;
    bool one_to_all = pl_shm_is_one_to_all(collective->kind);

    for (int i = 1; i < shm->size; i++) {
        int to = (shm->rank + i) % shm->size;
        struct pl_shm_piece piece = pl_shm_sent(shm, op, to, round);

        if (piece.elems > 0) {
            pl_kernel_copy(shm->kernel, part_of(shm, op, shm->rank, to, round), from + piece.at * op->elem_bytes,
                           piece.elems * op->elem_bytes, op->reduction.store);
        }
        if (one_to_all) {
            return;
        }
    }
}

static void consume_copies(struct pl_shm *shm, struct pl_shm_op *op, uint64_t round)
{
    const struct pl_collective *collective = op->collective;
    size_t each = op->elem_bytes;
    char *recv = collective->recv;

    for (int i = 0; i < shm->size; i++) {
        int from = (shm->rank + i) % shm->size;
        struct pl_shm_piece to = pl_shm_received(shm, op, from, round);
        const char *source = part_of(shm, op, from, shm->rank, round);

        if (collective->kind == PL_BROADCAST && from != collective->root) {
            continue;
        }
        if (from == shm->rank) {
            source = (const char *)collective->send + pl_shm_sent(shm, op, shm->rank, round).at * each;
        }
        if (to.elems > 0 && source != recv + to.at * each) {
            pl_kernel_copy(shm->kernel, recv + to.at * each, source, to.elems * each, PL_KERNEL_STORE_CACHED);
        }
    }
}

static void consume_reduces(struct pl_shm *shm, struct pl_shm_op *op, uint64_t round)
{
    const struct pl_collective *collective = op->collective;
    struct pl_shm_piece mine = pl_shm_sent(shm, op, shm->rank, round);
    uint64_t in_recv = collective->kind == PL_REDUCE_SCATTER ? mine.at - shm->send_displ[shm->rank] : mine.at;
    uint32_t dests = 0;

    if (mine.elems == 0) {
        return;
    }
    for (int rank = 0; rank < shm->size; rank++) {
        char *part = part_of(shm, op, rank, shm->rank, round);
        bool takes =
            collective->kind == PL_ALLREDUCE || rank == (collective->kind == PL_REDUCE ? collective->root : shm->rank);

        shm->sources[rank] = rank == shm->rank ? (const char *)collective->send + mine.at * op->elem_bytes : part;
        if (takes) {
            shm->dests[dests++] = rank == shm->rank ? (char *)collective->recv + in_recv * op->elem_bytes : part;
        }
    }
    pl_kernel_reduce(shm->kernel, &op->reduction, shm->dests, dests, shm->sources, (uint32_t)shm->size, mine.elems);
}

static void finish(struct pl_shm *shm, struct pl_shm_op *op, uint64_t round)
{
    const struct pl_collective *collective = op->collective;

    if (collective->kind != PL_ALLREDUCE && (collective->kind != PL_REDUCE || !pl_shm_is_root(shm, op))) {
        return;
    }
    for (int i = 1; i < shm->size; i++) {
        int by = (shm->rank + i) % shm->size;
        struct pl_shm_piece piece = pl_shm_sent(shm, op, by, round);

        if (piece.elems > 0) {
            pl_kernel_copy(shm->kernel, (char *)collective->recv + piece.at * op->elem_bytes,
                           part_of(shm, op, shm->rank, by, round), piece.elems * op->elem_bytes, PL_KERNEL_STORE_TAKE);
        }
    }
}

bool pl_shm_staged_advance(struct pl_shm *shm, struct pl_shm_op *op)
{
    struct pl_shm_counters *counters = pl_shm_counters(shm, shm->rank);
    bool broadcast = op->collective->kind == PL_BROADCAST;

    while (op->finished < op->rounds) {
        if (op->finished < op->consumed && pl_shm_state_short_of_consumed(shm, op, op->finished + 1) < 0) {
            finish(shm, op, op->finished++);
        } else if (op->consumed < op->staged && pl_shm_state_short_of_staged(shm, op, op->consumed + 1) < 0) {
            if (pl_kind_reduces(op->collective->kind)) {
                consume_reduces(shm, op, op->consumed);
            } else if (!broadcast || !pl_shm_is_root(shm, op)) {
                consume_copies(shm, op, op->consumed);
            }
            op->consumed++;
            pl_shm_publish(shm, &counters->consumed, shm->rounds_base + op->consumed);
        } else if (op->staged < op->rounds && op->staged - op->finished < PL_SHM_DEPTH) {
            if (!broadcast || pl_shm_is_root(shm, op)) {
                stage(shm, op, op->staged);
            }
            op->staged++;
            pl_shm_publish(shm, &counters->staged, shm->rounds_base + op->staged);
        } else {
            pl_shm_state_can_move(shm, op, &op->waits_for);
            return false;
        }
        op->request->progress_count++;
    }
    shm->rounds_base += op->rounds;
    return true;
}
