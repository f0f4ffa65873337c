/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Zero-copy collectives: all buffers that another rank accesses are in the arena, so ranks read and write them there.
 * Each rank does its share of the work, publishes that, and returns when all ranks have.
 */
#include "collectives/shm/layout.h"

static char *zero_copy_send(const struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    const struct pl_shm_header *header = pl_shm_header(shm, rank, op->sequence);

    return pl_shm_arena_at(shm, header->descriptor.in.at.send_span, rank, header->descriptor.in.at.send_offset);
}

static char *zero_copy_recv(const struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    const struct pl_shm_header *header = pl_shm_header(shm, rank, op->sequence);

    return pl_shm_arena_at(shm, header->descriptor.in.at.recv_span, rank, header->descriptor.in.at.recv_offset);
}

/* Reduces the next piece of the elements from `first` to before `end` into `dest_count` buffers; each buffer starts
 * with element `dest_first`. */
static bool reduce_zero_copy(struct pl_shm *shm, struct pl_shm_op *op, uint64_t first, uint64_t end,
                             uint64_t dest_first, uint32_t dest_count)
{
    uint64_t step = PL_SHM_STEP_BYTES / op->elem_bytes;
    uint64_t at = first + op->at_elems;
    uint64_t elems = end - at < step ? end - at : step;
    size_t each = op->elem_bytes;

    for (int rank = 0; rank < shm->size; rank++) {
        shm->sources[rank] = zero_copy_send(shm, op, rank) + at * each;
    }
    for (uint32_t i = 0; i < dest_count; i++) {
        shm->dests[i] = (char *)shm->dests[i] + (at - dest_first) * each;
    }
    pl_kernel_reduce(shm->kernel, &op->reduction, shm->dests, dest_count, shm->sources, (uint32_t)shm->size, elems);
    op->at_elems += elems;
    return at + elems == end;
}

static bool reduce_share(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    uint64_t size = (uint64_t)shm->size;
    uint64_t line_elems = PL_SHM_LINE_BYTES / op->elem_bytes;
    uint64_t share = (collective->count / size + line_elems) / line_elems * line_elems;
    uint64_t first = (uint64_t)shm->rank * share;
    uint64_t end = first + share;
    uint32_t dests = 0;

    end = end < collective->count ? end : collective->count;
    if (first >= end) {
        return true;
    }
    for (int rank = 0; rank < shm->size; rank++) {
        if (collective->kind == PL_ALLREDUCE || rank == collective->root) {
            shm->dests[dests++] = zero_copy_recv(shm, op, rank);
        }
    }
    return reduce_zero_copy(shm, op, first, end, 0, dests);
}

/* Does a piece of this rank's share; true if the share is done. */
static bool work_zero_copy(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    char *recv = collective->recv;
    size_t each = op->elem_bytes;

    switch (collective->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
        return reduce_share(shm, op);
    case PL_REDUCE_SCATTER:
        if (shm->send_displ[shm->rank] == shm->send_displ[shm->rank + 1]) {
            return true;
        }
        shm->dests[0] = recv;
        return reduce_zero_copy(shm, op, shm->send_displ[shm->rank], shm->send_displ[shm->rank + 1],
                                shm->send_displ[shm->rank], 1);
    case PL_ALLGATHER: {
        /* One block per call. Each rank starts with a different block, so that they do not all read the same memory. */
        int from = (int)((op->at_elems++ + (uint64_t)shm->rank) % (uint64_t)shm->size);
        uint64_t bytes = (shm->recv_displ[from + 1] - shm->recv_displ[from]) * each;
        char *dest = recv + shm->recv_displ[from] * each;
        const char *source = from == shm->rank ? collective->send : zero_copy_send(shm, op, from);

        if (dest != source) {
            pl_kernel_copy(shm->kernel, dest, source, bytes, op->reduction.store);
        }
        return op->at_elems == (uint64_t)shm->size;
    }
    case PL_BROADCAST:
        if (shm->rank != collective->root) {
            pl_kernel_copy(shm->kernel, recv, zero_copy_send(shm, op, collective->root), collective->count * each,
                           op->reduction.store);
        }
        return true;
    case PL_ALLTOALL:
    case PL_BARRIER:
        break;
    }
    return true;
}

bool pl_shm_zero_copy_advance(struct pl_shm *shm, struct pl_shm_op *op)
{
    if (!op->worked) {
        op->worked = work_zero_copy(shm, op);
        op->request->progress_count++;
        if (!op->worked) {
            return false;
        }
        pl_shm_publish(shm, &pl_shm_counters(shm, shm->rank)->done, op->sequence);
    }
    for (; op->seen < shm->size; op->seen++) {
        if (!pl_shm_is_complete(shm, op->seen)) {
            op->waits_for = op->seen;
            return false;
        }
    }
    return true;
}
