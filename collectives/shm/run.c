/* SPDX-License-Identifier: Apache-2.0 */
/** One collective from its headers to its end: exchange headers, choose the same mode on all ranks, advance it. */
#include "collectives/shm/layout.h"

#include "collectives/core/backend.h"
#include "collectives/world_private.h"

#include <string.h>

/* Smallest result whose cache lines are fetched for writing (docs/internals/shared-memory.md). */
enum { MIGRATE_BYTES = 256 << 10 };

/* ---- headers ---- */

static inline uint64_t mix(uint64_t word, uint64_t place)
{
    return (word ^ (word >> 31)) * (UINT64_C(0x9e3779b97f4a7c15) + 2 * place * UINT64_C(0x7f4a7c15d1b54a33));
}

/* Sums products of independent words: these run in parallel, while a chain of multiplications would be slow. A word
 * of 0 adds 0. */
static uint64_t hash_signature(const struct pl_signature *signature)
{
    uint64_t hash = mix(signature->sequence, 0) + mix(signature->count, 1) + mix(signature->what, 5);
    uint64_t name[2];

    if (signature->counts_hash | signature->scale_hash | signature->name_hash) {
        memcpy(name, signature->name, sizeof(name));
        hash += mix(signature->counts_hash, 2) + mix(signature->scale_hash, 3) + mix(signature->name_hash, 4) +
                mix(name[0], 6) + mix(name[1], 7);
    }
    return hash ^ (hash >> 32);
}

static const void *send_buffer(const struct pl_collective *collective)
{
    return collective->kind == PL_BROADCAST ? collective->recv : collective->send;
}

/* Fills the displacements that the kind needs and returns the number of elements that this rank sends. */
static uint64_t sent_elems(struct pl_shm *shm, const struct pl_collective *collective)
{
    switch (collective->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
    case PL_BROADCAST:
        return collective->count;
    case PL_REDUCE_SCATTER:
        pl_counts_starts(collective->counts, collective->count, shm->size, shm->send_displ);
        return shm->send_displ[shm->size];
    case PL_ALLGATHER:
        pl_counts_starts(collective->counts, collective->count, shm->size, shm->recv_displ);
        return shm->recv_displ[shm->rank + 1] - shm->recv_displ[shm->rank];
    case PL_ALLTOALL:
        pl_counts_starts(collective->recv_counts, collective->count, shm->size, shm->recv_displ);
        pl_counts_starts(collective->counts, collective->count, shm->size, shm->send_displ);
        return shm->send_displ[shm->size];
    case PL_BARRIER:
        break;
    }
    return 0;
}

static bool is_inline(enum pl_kind kind, uint64_t bytes)
{
    return bytes <= PL_SHM_INLINE_BYTES && kind != PL_ALLTOALL;
}

/* Writes this rank's two lists of counts after its header; returns the largest count to one rank. */
static uint64_t fill_alltoall(const struct pl_shm *shm, struct pl_shm_header *header)
{
    uint64_t *counts = pl_shm_alltoall_counts(header);
    uint64_t longest = 0;

    for (int rank = 0; rank < shm->size; rank++) {
        counts[rank] = shm->send_displ[rank + 1] - shm->send_displ[rank];
        counts[shm->size + rank] = shm->recv_displ[rank + 1] - shm->recv_displ[rank];
        longest = counts[rank] > longest ? counts[rank] : longest;
    }
    return longest;
}

static struct pl_shm_buffers find_buffers(struct pl_shm *shm, const struct pl_collective *collective, uint64_t bytes)
{
    struct pl_shm_buffers buffers = {.send_span = 0};

    pl_shm_arena_find(shm, send_buffer(collective), bytes, &buffers.send_span, &buffers.send_offset);
    pl_shm_arena_find(shm, collective->recv, bytes, &buffers.recv_span, &buffers.recv_offset);
    return buffers;
}

/*
 * Posts this rank's header and returns the hash in it. The stores to its cache line follow each other closely: all
 * other ranks poll the line, and would take it into their caches between two stores that are far apart.
 */
static uint64_t post_header(struct pl_shm *shm, const struct pl_request *request, uint64_t sequence, uint64_t bytes)
{
    const struct pl_collective *collective = &request->collective;
    struct pl_shm_header *header = pl_shm_header(shm, shm->rank, sequence);
    bool sends = bytes > 0 && (collective->kind != PL_BROADCAST || shm->rank == collective->root);
    uint64_t hash = hash_signature(&request->signature);

    pl_copy_fresh(&header->signature, &request->signature, sizeof(header->signature));
    if (is_inline(collective->kind, bytes)) {
        if (sends) {
            memcpy(header->descriptor.in.data, send_buffer(collective), bytes);
        }
    } else {
        uint64_t longest = collective->kind == PL_ALLTOALL ? fill_alltoall(shm, header) : 0;

        /* Fields are stored in place. A copy on the stack would be loaded only after all earlier stores have reached
         * the cache, and stores to eager data that other cores have read are slow. */
        if (bytes > shm->eager_bytes) {
            header->descriptor.in.at = find_buffers(shm, collective, bytes);
        } else {
            if (sends) {
                pl_kernel_copy(shm->kernel, pl_shm_eager_data(shm, header), send_buffer(collective), bytes,
                               PL_KERNEL_STORE_MIGRATE);
            }
            header->descriptor.in.at = (struct pl_shm_buffers){.send_span = 0};
        }
        header->descriptor.in.at.longest = longest;
    }
    header->descriptor.hash = hash;
    header->descriptor.bytes = bytes;
    pl_shm_publish(shm, &header->sequence, sequence);
    return hash;
}

/* Reads the headers that have come, in rank order; true if all have come, otherwise sets `waits_for`. */
static bool read_headers(struct pl_shm *shm, struct pl_shm_op *op)
{
    for (; op->seen < shm->size; op->seen++) {
        const struct pl_shm_header *header = pl_shm_header(shm, op->seen, op->sequence);

        while (atomic_load(&header->sequence) < op->sequence) {
            if (op->request->poll_budget == 0) {
                op->waits_for = op->seen;
                return false;
            }
            op->request->poll_budget--;
            pl_pause_cpu();
        }
        op->differs |= header->descriptor.hash ^ op->hash;
        op->most = header->descriptor.bytes > op->most ? header->descriptor.bytes : op->most;
    }
    op->seen = 0;
    op->waits_for = -1;
    return true;
}

/* Reports that ranks disagree: names rank 0 and the lowest rank that disagrees with it, so that all ranks report the
 * same. */
static enum pl_status raise_mismatch(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_shm_header *first = pl_shm_header(shm, 0, op->sequence);
    int rank = 1;

    while (rank < shm->size && pl_shm_header(shm, rank, op->sequence)->descriptor.hash == first->descriptor.hash) {
        rank++;
    }
    PL_BUG_IF(rank == shm->size);
    return pl_signature_mismatch(&first->signature, pl_world_global_rank(shm->world, 0),
                                 &pl_shm_header(shm, rank, op->sequence)->signature,
                                 pl_world_global_rank(shm->world, rank), reterr);
}

static enum pl_status check_alltoall(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    for (int from = 0; op->collective->counts && from < shm->size; from++) {
        const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_header(shm, from, op->sequence));

        for (int to = 0; to < shm->size; to++) {
            uint64_t expected = pl_shm_alltoall_counts(pl_shm_header(shm, to, op->sequence))[shm->size + from];

            if (sent[to] != expected) {
                return pl_error_set(reterr, PL_MISMATCH,
                                    "alltoall: rank %d sends %llu elements to rank %d, which expects %llu",
                                    pl_world_global_rank(shm->world, from), (unsigned long long)sent[to],
                                    pl_world_global_rank(shm->world, to), (unsigned long long)expected);
            }
        }
    }
    return PL_OK;
}

/* Whether all buffers that other ranks would access are in the arena. */
static bool is_zero_copy(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;

    for (int rank = 0; rank < shm->size; rank++) {
        const struct pl_shm_header *header = pl_shm_header(shm, rank, op->sequence);
        bool sends = collective->kind != PL_BROADCAST || rank == collective->root;
        bool receives = collective->kind == PL_ALLREDUCE || (collective->kind == PL_REDUCE && rank == collective->root);

        if (is_inline(collective->kind, header->descriptor.bytes) ||
            (sends && header->descriptor.in.at.send_span == 0) ||
            (receives && header->descriptor.in.at.recv_span == 0)) {
            return false;
        }
    }
    return collective->kind != PL_ALLTOALL;
}

/* Number of elements of the largest block that any rank sends. */
static uint64_t longest_block(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    enum pl_kind kind = op->collective->kind;
    uint64_t longest = 0;

    for (int rank = 0; rank < shm->size; rank++) {
        const struct pl_shm_header *header = pl_shm_header(shm, rank, op->sequence);
        uint64_t block = kind == PL_ALLTOALL         ? header->descriptor.in.at.longest
                         : kind == PL_REDUCE_SCATTER ? shm->send_displ[rank + 1] - shm->send_displ[rank]
                                                     : header->descriptor.bytes / op->elem_bytes;

        longest = block > longest ? block : longest;
    }
    return longest;
}

/* Chooses the mode when all headers have come, from values that are equal on all ranks. */
static enum pl_status choose_mode(struct pl_shm *shm, struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_collective *collective = op->collective;

    if (op->differs) {
        return raise_mismatch(shm, op, reterr);
    }
    if (collective->kind == PL_ALLTOALL) {
        PL_TRY(check_alltoall(shm, op, reterr));
    }
    if (op->most <= shm->eager_bytes) {
        op->mode = PL_SHM_EAGER;
        return PL_OK;
    }
    op->mode = is_zero_copy(shm, op) ? PL_SHM_ZERO_COPY : PL_SHM_STAGED;
    /* Results go to lines that other cores have modified; for a few lines a prefetch gains nothing. */
    op->reduction.store = op->most < MIGRATE_BYTES ? PL_KERNEL_STORE_CACHED : PL_KERNEL_STORE_MIGRATE;
    if (op->mode == PL_SHM_STAGED) {
        pl_shm_plan(shm, op, longest_block(shm, op));
    }
    return PL_OK;
}

/* ---- eager: everything is in the headers ---- */

static inline const char *eager_source(struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    struct pl_shm_header *header = pl_shm_header(shm, rank, op->sequence);

    if (rank == shm->rank) {
        return send_buffer(op->collective);
    }
    return is_inline(op->collective->kind, header->descriptor.bytes) ? (const char *)header->descriptor.in.data
                                                                     : pl_shm_eager_data(shm, header);
}

static void move(void *dest, const void *source, uint64_t bytes)
{
    if (bytes > 0 && dest != source) {
        memcpy(dest, source, bytes);
    }
}

/* Reduces `count` elements, from element `skip` of every rank's data, into recv. */
static void reduce_eager(struct pl_shm *shm, struct pl_shm_op *op, uint64_t skip, uint64_t count)
{
    void *dest = op->collective->recv;

    for (int rank = 0; rank < shm->size; rank++) {
        shm->sources[rank] = eager_source(shm, op, rank) + skip * op->elem_bytes;
    }
    pl_kernel_reduce(shm->kernel, &op->reduction, &dest, 1, shm->sources, (uint32_t)shm->size, count);
}

static void run_eager(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    size_t each = op->elem_bytes;
    char *recv = collective->recv;

    switch (collective->kind) {
    case PL_ALLREDUCE:
        reduce_eager(shm, op, 0, collective->count);
        break;
    case PL_REDUCE:
        if (shm->rank == collective->root) {
            reduce_eager(shm, op, 0, collective->count);
        }
        break;
    case PL_REDUCE_SCATTER:
        reduce_eager(shm, op, shm->send_displ[shm->rank], shm->send_displ[shm->rank + 1] - shm->send_displ[shm->rank]);
        break;
    case PL_ALLGATHER:
        for (int rank = 0; rank < shm->size; rank++) {
            move(recv + shm->recv_displ[rank] * each, eager_source(shm, op, rank),
                 (shm->recv_displ[rank + 1] - shm->recv_displ[rank]) * each);
        }
        break;
    case PL_ALLTOALL:
        for (int rank = 0; rank < shm->size; rank++) {
            const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_header(shm, rank, op->sequence));
            uint64_t before = 0;

            for (int to = 0; to < shm->rank; to++) {
                before += sent[to];
            }
            move(recv + shm->recv_displ[rank] * each, eager_source(shm, op, rank) + before * each,
                 sent[shm->rank] * each);
        }
        break;
    case PL_BROADCAST:
        move(recv, eager_source(shm, op, collective->root), collective->count * each);
        break;
    case PL_BARRIER:
        break;
    }
}

/* ---- all modes ---- */

enum pl_status pl_shm_post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    const struct pl_collective *collective = &request->collective;
    size_t elem_bytes = collective->kind == PL_BARRIER ? 1 : pl_dtype_bytes(collective->dtype);
    uint64_t sequence = ++shm->sequence;
    uint64_t hash = post_header(shm, request, sequence, sent_elems(shm, collective) * elem_bytes);

    /* The following is done while the header's cache line moves to the other cores. */
    shm->op = (struct pl_shm_op){
        .collective = collective,
        .request = request,
        .mode = PL_SHM_HEADERS,
        .sequence = sequence,
        .hash = hash,
        .elem_bytes = elem_bytes,
        .reduction =
            {
                .dtype = collective->dtype,
                .op = collective->op,
                .divisor = collective->divisor,
                .prescale = collective->prescale,
                .postscale = collective->postscale,
            },
        .waits_for = -1,
    };
    return pl_shm_advance(shm, request, ret_done, reterr);
}

/* Advances as far as possible; `*ret_done` is set only when the collective is done. */
static inline enum pl_status advance_once(struct pl_shm *shm, struct pl_shm_op *op, bool *ret_done,
                                          struct pl_error *reterr)
{
    if (op->mode == PL_SHM_HEADERS) {
        if (!read_headers(shm, op)) {
            return PL_OK;
        }
        op->request->progress_count++;
        PL_TRY(choose_mode(shm, op, reterr));
    }
    switch (op->mode) {
    case PL_SHM_HEADERS:
        break;
    case PL_SHM_EAGER:
        run_eager(shm, op);
        *ret_done = true;
        break;
    case PL_SHM_ZERO_COPY:
        *ret_done = pl_shm_zero_copy_advance(shm, op);
        break;
    case PL_SHM_STAGED:
        *ret_done = pl_shm_staged_advance(shm, op);
        break;
    }
    return PL_OK;
}

enum pl_status pl_shm_advance(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    struct pl_shm_op *op = &shm->op;

    (void)request;
    for (bool failed = false;; failed = true) {
        PL_TRY(advance_once(shm, op, ret_done, reterr));
        if (*ret_done) {
            return PL_OK;
        }
        if (failed) {
            return pl_shm_check(shm, reterr);
        }
        if (atomic_load(&shm->control->failure) == 0) {
            return PL_OK;
        }
        /* The data that the failed rank published before it failed may be enough to end this collective, or to find
         * the mismatch: try once more before its failure is reported. */
    }
}
