/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The arithmetic of staged collectives, without their memory traffic: kind, rank and round give pieces of buffers.
 *
 * ALLREDUCE and REDUCE cut each round's elements into one part per rank, in rank order; the last round is cut evenly
 * too, so that no rank idles. REDUCE_SCATTER and ALLTOALL move a part of each rank's block per round. ALLGATHER and
 * BROADCAST move one part per round, which all ranks read.
 */
#include "collectives/shm/layout.h"

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

bool pl_shm_is_one_to_all(enum pl_kind kind)
{
    return kind == PL_ALLGATHER || kind == PL_BROADCAST;
}

void pl_shm_plan(const struct pl_shm *shm, struct pl_shm_op *op, uint64_t longest)
{
    uint64_t line_elems = PL_SHM_LINE_BYTES / op->elem_bytes;
    uint64_t parts = pl_shm_is_one_to_all(op->collective->kind) ? 1 : (uint64_t)shm->size;
    uint64_t elems = shm->round_bytes / op->elem_bytes / parts;

    op->part_elems = elems - elems % line_elems;
    if (op->collective->kind == PL_ALLREDUCE || op->collective->kind == PL_REDUCE) {
        op->rounds = divide_up(op->collective->count, op->part_elems * parts);
    } else {
        op->rounds = divide_up(longest, op->part_elems);
    }
}

/* The part of a block that `round` moves: part_elems elements from round * part_elems. The block begins at `start`. */
static struct pl_shm_piece of_block(const struct pl_shm_op *op, uint64_t start, uint64_t block_elems, uint64_t round)
{
    uint64_t at = minimum(round * op->part_elems, block_elems);

    return (struct pl_shm_piece){.at = start + at, .elems = minimum(op->part_elems, block_elems - at)};
}

static struct pl_shm_piece of_cut(const struct pl_shm *shm, const struct pl_shm_op *op, int part, uint64_t round)
{
    uint64_t size = (uint64_t)shm->size;
    uint64_t line_elems = PL_SHM_LINE_BYTES / op->elem_bytes;
    uint64_t first = round * op->part_elems * size;
    uint64_t elems = minimum(op->collective->count - first, op->part_elems * size);
    uint64_t share = divide_up(divide_up(elems, size), line_elems) * line_elems;
    uint64_t at = minimum((uint64_t)part * share, elems);

    return (struct pl_shm_piece){.at = first + at, .elems = minimum(share, elems - at)};
}

struct pl_shm_piece pl_shm_sent(const struct pl_shm *shm, const struct pl_shm_op *op, int to, uint64_t round)
{
    const struct pl_collective *collective = op->collective;

    switch (collective->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
        return of_cut(shm, op, to, round);
    case PL_REDUCE_SCATTER:
    case PL_ALLTOALL:
        return of_block(op, shm->send_displ[to], shm->send_displ[to + 1] - shm->send_displ[to], round);
    case PL_ALLGATHER: /* the send buffer holds only this rank's block */
        return of_block(op, 0, shm->recv_displ[shm->rank + 1] - shm->recv_displ[shm->rank], round);
    case PL_BROADCAST:
        return of_block(op, 0, collective->count, round);
    case PL_BARRIER:
        break;
    }
    return (struct pl_shm_piece){.at = 0};
}

struct pl_shm_piece pl_shm_received(const struct pl_shm *shm, const struct pl_shm_op *op, int from, uint64_t round)
{
    if (op->collective->kind == PL_BROADCAST) {
        return of_block(op, 0, op->collective->count, round);
    }
    return of_block(op, shm->recv_displ[from], shm->recv_displ[from + 1] - shm->recv_displ[from], round);
}
