/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for point-to-point messages: runs one algorithm over the segments of a vector, several at a time. */

#include "base/hash.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/p2p/state.h"
#include "collectives/reduce/compress.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)PL_P2P_SLOTS < (int)PL_CHECK_CALLS_TAGS, "each slot has a tag");

/* A range of elements of the whole vector. */
struct range {
    uint64_t at;
    uint64_t count;
    bool empty; /* no elements and no message: both ends know from the earlier segments that the block has ended */
};

/* The elements of blocks `first` to `first + blocks - 1` in the slot's segment. If ragged, `starts` says where the
 * ranks' blocks begin. */
static struct range range_of(const struct pl_p2p *p2p, const struct pl_p2p_slot *slot, const uint64_t *starts,
                             int first, int blocks)
{
    uint64_t segment_at = slot->number * p2p->segment_elems;
    uint64_t length;

    if (p2p->ragged) {
        int rank = p2p->by_position ? p2p->order[first] : first;
        uint64_t block = starts[rank + 1] - starts[rank];

        length = block > segment_at ? block - segment_at : 0;
        return (struct range){starts[rank] + segment_at, length < p2p->segment_elems ? length : p2p->segment_elems,
                              segment_at > block};
    }
    length = p2p->request->collective.count - segment_at;
    length = length < p2p->segment_elems ? length : p2p->segment_elems;
    /* A segment has at most about 2^30 bytes, so these products stay far below 2^64. */
    uint64_t begin = length * (uint64_t)first / (uint64_t)p2p->blocks;
    uint64_t end = length * (uint64_t)(first + blocks) / (uint64_t)p2p->blocks;

    return (struct range){segment_at + begin, end - begin, begin == end && slot->number > 0};
}

static size_t item_bytes(const struct pl_p2p *p2p)
{
    return pl_dtype_bytes(p2p->request->collective.dtype);
}

static bool has_sender_buffers(enum pl_algorithm algorithm)
{
    return algorithm == PL_ALGORITHM_DIRECT || algorithm == PL_ALGORITHM_DIRECT_REDUCE ||
           algorithm == PL_ALGORITHM_DIRECT_REDUCE_SCATTER;
}

/* Whether partial results are kept in the slot, because the caller gave no buffer of the right size. */
static bool works_in_slot(const struct pl_p2p *p2p)
{
    const struct pl_collective *c = &p2p->request->collective;

    return p2p->algorithm == PL_ALGORITHM_RING_REDUCE_SCATTER || (c->kind == PL_REDUCE && p2p->rank != c->root);
}

/* The address of partial and final results of a range. */
static char *accumulator_at(const struct pl_p2p *p2p, const struct pl_p2p_slot *slot, int first, struct range range)
{
    const struct pl_collective *c = &p2p->request->collective;
    size_t item = item_bytes(p2p);

    if (p2p->algorithm == PL_ALGORITHM_RING_REDUCE_SCATTER) {
        return slot->accumulator + (uint64_t)first * p2p->segment_elems * item;
    }
    if (p2p->algorithm == PL_ALGORITHM_DIRECT_REDUCE_SCATTER) {
        return (char *)c->recv + (range.at - p2p->recv_at[p2p->rank]) * item;
    }
    if (works_in_slot(p2p)) {
        return slot->accumulator + (range.at - slot->number * p2p->segment_elems) * item;
    }
    return (char *)c->recv + range.at * item;
}

/* The address of a sender's block: blocks per sender follow each other, each with room for the largest. */
static char *per_sender_at(const struct pl_p2p *p2p, const struct pl_p2p_slot *slot, int sender)
{
    uint64_t room_elems = p2p->ragged ? p2p->segment_elems : p2p->segment_elems / (uint64_t)p2p->blocks + 1;

    return slot->recv_buffer + (uint64_t)sender * room_elems * item_bytes(p2p);
}

static struct pl_reduction reduction_of(const struct pl_collective *c)
{
    return (struct pl_reduction){
        .dtype = c->dtype, .op = c->op == PL_AVERAGE ? PL_SUM : c->op, .divisor = 1, .prescale = 1, .postscale = 1};
}

static void convert(const struct pl_p2p *p2p, const struct pl_reduction *reduction, void *dest, const void *source,
                    uint64_t count)
{
    pl_kernel_reduce(p2p->kernel, reduction, &dest, 1, &source, 1, count);
}

/* Returns the factor for the inputs of a float16 average: with it their sum cannot overflow before it is divided by the
 * number of ranks. It is 1 for the direct algorithm, which adds in float32. */
static double guard_factor(const struct pl_p2p *p2p, const struct pl_collective *c)
{
    bool guarded = c->op == PL_AVERAGE && c->dtype == PL_FLOAT16 && !has_sender_buffers(p2p->algorithm);

    return guarded ? pl_kernel_guard(p2p->size) : 1.0;
}

/* Copies this rank's input of the segment to the memory of the partial results. */
static void load(const struct pl_p2p *p2p, struct pl_p2p_slot *slot)
{
    const struct pl_collective *c = &p2p->request->collective;
    size_t item = item_bytes(p2p);
    struct pl_reduction reduction = reduction_of(c);

    if (p2p->algorithm == PL_ALGORITHM_RING_ALLGATHER || p2p->algorithm == PL_ALGORITHM_PAIRWISE) {
        struct range to =
            range_of(p2p, slot, p2p->recv_at, p2p->by_position ? p2p->position_of[p2p->rank] : p2p->rank, 1);
        uint64_t in_block = to.at - p2p->recv_at[p2p->rank];
        uint64_t from = p2p->algorithm == PL_ALGORITHM_PAIRWISE ? p2p->send_at[p2p->rank] + in_block : in_block;
        const char *source = (const char *)c->send + from * item;
        char *dest = (char *)c->recv + to.at * item;

        if (to.count && source != dest) {
            memcpy(dest, source, to.count * item);
        }
        return;
    }
    if (!pl_kind_reduces(c->kind) || has_sender_buffers(p2p->algorithm)) {
        return;
    }
    reduction.prescale = c->prescale * guard_factor(p2p, c);
    for (int block = 0; block < p2p->blocks; block++) {
        struct range range = range_of(p2p, slot, p2p->send_at, block, 1);
        const char *source = (const char *)c->send + range.at * item;
        char *dest = accumulator_at(p2p, slot, block, range);

        if (range.count && (source != dest || reduction.prescale != 1.0)) {
            convert(p2p, &reduction, dest, source, range.count);
        }
        if (p2p->wire) {
            pl_residuals_add(p2p, (float *)(void *)dest, range.at, range.count);
        }
    }
}

/* The last step: divides and scales the results, and copies them from the slot to the caller's buffer. */
static void store(const struct pl_p2p *p2p, struct pl_p2p_slot *slot)
{
    const struct pl_collective *c = &p2p->request->collective;
    struct pl_reduction reduction = reduction_of(c);
    double guard;
    struct range range;
    char *from;
    char *to;

    if (!pl_kind_reduces(c->kind) || has_sender_buffers(p2p->algorithm) ||
        (c->kind == PL_REDUCE && c->root != p2p->rank)) {
        return;
    }
    guard = guard_factor(p2p, c);
    reduction.divisor = c->divisor;
    reduction.postscale = c->postscale / guard;
    if (p2p->algorithm == PL_ALGORITHM_RING_REDUCE_SCATTER) {
        int position = p2p->position_of[p2p->rank];

        range = range_of(p2p, slot, p2p->send_at, position, 1);
        from = accumulator_at(p2p, slot, position, range);
        to = (char *)c->recv + (range.at - p2p->send_at[p2p->rank]) * item_bytes(p2p);
    } else {
        range = range_of(p2p, slot, NULL, 0, p2p->blocks);
        from = accumulator_at(p2p, slot, 0, range);
        to = from;
    }
    if (range.count && (from != to || reduction.divisor != 1 || reduction.postscale != 1.0)) {
        convert(p2p, &reduction, to, from, range.count);
    }
}

/* Reduces the blocks per sender, in rank order, with the rank's own block. */
static void gather(const struct pl_p2p *p2p, struct pl_p2p_slot *slot)
{
    const struct pl_collective *c = &p2p->request->collective;
    struct range range = range_of(p2p, slot, p2p->send_at, p2p->rank, 1);
    struct pl_reduction reduction = reduction_of(c);
    void *dest = accumulator_at(p2p, slot, p2p->rank, range);

    for (int r = 0; r < p2p->size; r++) {
        p2p->sources[r] = per_sender_at(p2p, slot, r);
    }
    p2p->sources[p2p->rank] = (const char *)c->send + range.at * item_bytes(p2p);
    reduction.divisor = c->divisor;
    reduction.prescale = c->prescale;
    reduction.postscale = c->postscale;
    if (range.count) {
        pl_kernel_reduce(p2p->kernel, &reduction, &dest, 1, p2p->sources, (uint32_t)p2p->size, range.count);
    }
}

static char *at_input(const struct pl_p2p *p2p, struct range range)
{
    return (char *)(uintptr_t)p2p->request->collective.send + range.at * item_bytes(p2p);
}

static int rank_at(const struct pl_p2p *p2p, int position)
{
    return p2p->by_position ? p2p->order[position] : position;
}

/* Whether a ring relays what it received in the round before. */
static bool relays(const struct pl_p2p *p2p, const struct pl_p2p_slot *slot)
{
    return p2p->wire && slot->round >= p2p->size;
}

/* Packs a range that is to be sent, in the slot's memory. */
static const char *pack(const struct pl_p2p *p2p, struct pl_p2p_slot *slot, char *data, struct range range)
{
    if (!relays(p2p, slot)) {
        pl_residuals_pack(p2p, slot->accumulator, (float *)(void *)data, range.at, range.count,
                          slot->round == p2p->size - 1);
    }
    return slot->accumulator;
}

/* The length of a message of the collective. */
static size_t message_bytes(const struct pl_p2p *p2p, struct range range)
{
    return p2p->wire ? pl_compress_bytes(p2p->wire, range.count) : range.count * item_bytes(p2p);
}

static enum pl_status post_piece(const struct pl_p2p *p2p, struct pl_p2p_segmented *message, bool out,
                                 struct pl_error *reterr)
{
    const struct pl_transport *transport = p2p->transport;

    message->piece_bytes = message->left_bytes < p2p->piece_bytes ? message->left_bytes : p2p->piece_bytes;
    return (out ? transport->send(transport->context, message->data, message->piece_bytes, message->peer, message->tag,
                                  &message->transfer, reterr)
                : transport->recv(transport->context, message->data, message->piece_bytes, message->peer, message->tag,
                                  &message->transfer, reterr));
}

static enum pl_status start_segmented(const struct pl_p2p *p2p, struct pl_p2p_segmented *message, const char *data,
                                      size_t bytes, int peer, uint32_t tag, bool out, struct pl_error *reterr)
{
    *message =
        (struct pl_p2p_segmented){.data = (char *)(uintptr_t)data, .left_bytes = bytes, .peer = peer, .tag = tag};
    return post_piece(p2p, message, out, reterr);
}

/* Advances a message as far as possible. */
static enum pl_status test_segmented(const struct pl_p2p *p2p, struct pl_p2p_segmented *message, bool out,
                                     struct pl_error *reterr)
{
    while (message->transfer.active) {
        size_t bytes;
        bool done;

        PL_TRY(p2p->transport->test(p2p->transport->context, &message->transfer, &done, &bytes, reterr));
        if (!done) {
            break;
        }
        if (!out && bytes != message->piece_bytes) {
            return pl_error_set(reterr, PL_MISMATCH, "rank %d sent %zu bytes where rank %d expected %zu",
                                pl_world_global_rank(p2p->world, message->peer), bytes,
                                pl_world_global_rank(p2p->world, p2p->rank), message->piece_bytes);
        }
        p2p->request->progress_count++;
        message->data += message->piece_bytes;
        message->left_bytes -= message->piece_bytes;
        if (message->left_bytes) {
            PL_TRY(post_piece(p2p, message, out, reterr));
        }
    }
    return PL_OK;
}

/* Posts the messages of the slot's round. */
static enum pl_status start_round(struct pl_p2p *p2p, struct pl_p2p_slot *slot, struct pl_error *reterr)
{
    const struct pl_collective *c = &p2p->request->collective;
    uint32_t tag = pl_check_calls_tag(p2p->messages_number, (unsigned)(slot - p2p->slots));
    int position = p2p->by_position ? p2p->position_of[p2p->rank] : p2p->rank;
    struct pl_algorithm_step *step = &slot->step;

    if (relays(p2p, slot)) {
        char *received = slot->recv_buffer; /* packed, and sent as it is: packing it again might round differently */

        slot->recv_buffer = slot->accumulator;
        slot->accumulator = received;
    }
    *step = pl_algorithm_step_at(p2p->algorithm, p2p->size, position, c->root, slot->round);
    if (step->from >= 0) {
        /* A block per sender: what the sender has for this rank's own block. */
        struct range range =
            range_of(p2p, slot, p2p->recv_at, step->per_sender ? position : step->recv_first, step->recv_blocks);
        char *data = step->per_sender             ? per_sender_at(p2p, slot, step->from)
                     : step->combine || p2p->wire ? slot->recv_buffer
                                                  : accumulator_at(p2p, slot, step->recv_first, range);

        if (!range.empty) {
            PL_TRY(start_segmented(p2p, &slot->in, data, message_bytes(p2p, range), rank_at(p2p, step->from), tag,
                                   false, reterr));
        }
    }
    if (step->to >= 0) {
        bool input = step->per_sender || p2p->algorithm == PL_ALGORITHM_PAIRWISE;
        struct range range =
            range_of(p2p, slot, input ? p2p->send_at : p2p->recv_at, step->send_first, step->send_blocks);
        char *data = input ? at_input(p2p, range) : accumulator_at(p2p, slot, step->send_first, range);

        if (!range.empty) {
            const char *out = p2p->wire ? pack(p2p, slot, data, range) : data;

            PL_TRY(start_segmented(p2p, &slot->out, out, message_bytes(p2p, range), rank_at(p2p, step->to), tag, true,
                                   reterr));
        }
    }
    return PL_OK;
}

static void combine(const struct pl_p2p *p2p, struct pl_p2p_slot *slot)
{
    const struct pl_algorithm_step *step = &slot->step;
    struct range range = range_of(p2p, slot, p2p->recv_at, step->recv_first, step->recv_blocks);
    struct pl_reduction reduction = reduction_of(&p2p->request->collective);
    void *own = accumulator_at(p2p, slot, step->recv_first, range);

    if (p2p->wire) {
        pl_compress_unpack(p2p->kernel, p2p->wire, own, slot->recv_buffer, step->combine, range.count);
        return;
    }
    const void *sources[2] = {step->received_left ? slot->recv_buffer : own,
                              step->received_left ? own : slot->recv_buffer};

    if (range.count) {
        pl_kernel_reduce(p2p->kernel, &reduction, &own, 1, sources, 2, range.count);
    }
}

/* Sets `*ret_ended` to true when neither message of the round is under way any more. */
static enum pl_status test_round(struct pl_p2p *p2p, struct pl_p2p_slot *slot, bool *ret_ended, struct pl_error *reterr)
{
    *ret_ended = false;
    PL_TRY(test_segmented(p2p, &slot->in, false, reterr));
    PL_TRY(test_segmented(p2p, &slot->out, true, reterr));
    *ret_ended = !slot->in.transfer.active && !slot->out.transfer.active;
    return PL_OK;
}

static enum pl_status begin_segment(struct pl_p2p *p2p, struct pl_p2p_slot *slot, struct pl_error *reterr)
{
    slot->active = true;
    slot->number = p2p->segments_started++;
    slot->round = 0;
    load(p2p, slot);
    return start_round(p2p, slot, reterr);
}

/* Advances one slot as far as possible. */
static enum pl_status run_slot(struct pl_p2p *p2p, struct pl_p2p_slot *slot, struct pl_error *reterr)
{
    for (;;) {
        bool ended;

        if (!slot->active) {
            /* Segment k uses slot k mod n, so that the messages of a slot have the same order at both ends. */
            if (p2p->segments_started >= p2p->segment_count ||
                p2p->segments_started % PL_P2P_SLOTS != (uint64_t)(slot - p2p->slots)) {
                return PL_OK;
            }
            PL_TRY(begin_segment(p2p, slot, reterr));
        }
        PL_TRY(test_round(p2p, slot, &ended, reterr));
        if (!ended) {
            return PL_OK;
        }
        if (slot->step.from >= 0 && (slot->step.combine || p2p->wire)) {
            combine(p2p, slot);
        }
        if (pl_algorithm_reduces_per_sender(p2p->algorithm, p2p->size, slot->round)) {
            gather(p2p, slot);
        }
        if (++slot->round < p2p->rounds) {
            PL_TRY(start_round(p2p, slot, reterr));
            continue;
        }
        store(p2p, slot);
        slot->active = false;
        p2p->segments_ended++;
    }
}

/* Ends a small collective: all inputs, or their sum, came with the call check. */
static void finish_eager(struct pl_p2p *p2p)
{
    const struct pl_collective *c = &p2p->request->collective;
    uint32_t sources = p2p->check.summed ? 1 : (uint32_t)p2p->size;
    struct pl_reduction reduction = reduction_of(c);
    size_t item = item_bytes(p2p);
    uint64_t first = 0;
    uint64_t count = c->count;
    void *dest = c->recv;

    for (int i = 0; i < p2p->size; i++) {
        p2p->sources[i] = pl_check_calls_data(&p2p->check, i);
    }
    if (c->kind == PL_ALLGATHER) {
        for (int r = 0; r < p2p->size; r++) {
            memcpy((char *)c->recv + (size_t)r * p2p->check.block_bytes, p2p->sources[r], p2p->check.block_bytes);
        }
        return;
    }
    if (c->kind == PL_REDUCE && c->root != p2p->rank) {
        return;
    }
    if (c->kind == PL_REDUCE_SCATTER) {
        first = p2p->recv_at[p2p->rank];
        count = p2p->recv_at[p2p->rank + 1] - first;
    }
    for (int r = 0; r < p2p->size; r++) {
        p2p->sources[r] = (const char *)p2p->sources[r] + first * item;
    }
    reduction.divisor = c->divisor;
    reduction.prescale = p2p->check.summed ? 1 : c->prescale;
    reduction.postscale = c->postscale;
    if (count) {
        pl_kernel_reduce(p2p->kernel, &reduction, &dest, 1, p2p->sources, sources, count);
    }
}

static enum pl_status make_room(struct pl_p2p *p2p, const struct pl_collective *c, struct pl_error *reterr)
{
    size_t item = pl_dtype_bytes(c->dtype);
    size_t blocks = p2p->ragged ? (size_t)p2p->size : 1;
    size_t room = (p2p->segment_elems * blocks + (size_t)p2p->size) * item;

    if (!p2p->segment_count || !pl_kind_reduces(c->kind) || room <= p2p->slot_room_bytes) {
        return PL_OK; /* data that is not reduced is sent from and received in the caller's memory */
    }
    for (int i = 0; i < PL_P2P_SLOTS; i++) {
        struct pl_p2p_slot *slot = &p2p->slots[i];

        free(slot->recv_buffer);
        free(slot->accumulator);
        slot->accumulator = NULL;
        slot->recv_buffer = pl_memory_new_aligned(room, 1, 64, reterr);
        slot->accumulator = slot->recv_buffer ? pl_memory_new_aligned(room, 1, 64, reterr) : NULL;
        if (!slot->accumulator) {
            p2p->slot_room_bytes = 0;
            return PL_MEMORY;
        }
    }
    p2p->slot_room_bytes = room;
    return PL_OK;
}

static enum pl_status plan_segments(struct pl_p2p *p2p, const struct pl_collective *c, struct pl_error *reterr)
{
    pl_p2p_plan(p2p, c);
    PL_TRY(make_room(p2p, c, reterr));
    p2p->wire = p2p->segment_count && pl_p2p_is_compressed(c) ? c->flags & PL_WIRES : 0;
    return p2p->wire ? pl_residuals_find(p2p, reterr) : PL_OK;
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_p2p *p2p = state;
    const struct pl_collective *c = &request->collective;
    struct pl_reduction reduction = reduction_of(c);
    uint64_t inline_bytes;

    reduction.prescale = c->prescale;
    p2p->request = request;
    p2p->failure.failed = false;
    p2p->segments_started = 0;
    p2p->segments_ended = 0;
    p2p->segment_count = 0;
    p2p->wire = false;
    pl_counts_starts(c->counts, c->count, p2p->size, p2p->send_at);
    pl_counts_starts(c->recv_counts ? c->recv_counts : c->counts, c->count, p2p->size, p2p->recv_at);
    inline_bytes = pl_p2p_eager_bytes(p2p, c);
    if (!inline_bytes && c->kind != PL_BARRIER) {
        PL_TRY(plan_segments(p2p, c, reterr));
    }
    p2p->messages_number = request->signature.sequence;
    if (c->flags & PL_AGREED && !inline_bytes && c->kind != PL_BARRIER) {
        /* Tags depend on the call: if calls differ after all, ranks wait for ever and take no wrong data. */
        p2p->messages_number = pl_hash(PL_HASH_START, &request->signature, sizeof(request->signature));
        pl_check_calls_skip(&p2p->check);
    } else {
        PL_TRY(pl_check_calls_start(&p2p->check, &request->signature, c->send, inline_bytes,
                                    pl_p2p_sums_eagerly(p2p, c) ? &reduction : NULL, reterr));
    }
    return progress(state, request, ret_done, reterr);
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_p2p *p2p = state;
    struct pl_deferred_error *failure = &p2p->failure;
    bool checked;

    *ret_done = false;
    PL_TRY(pl_check_calls_progress(&p2p->check, &request->progress_count, reterr));
    checked = p2p->check.done;
    for (int i = 0; i < PL_P2P_SLOTS && p2p->segments_ended < p2p->segment_count && !failure->failed; i++) {
        failure->failed = run_slot(p2p, &p2p->slots[i], &failure->error) != PL_OK;
    }
    if (failure->failed) {
        return pl_deferred_error_report(failure, checked, reterr);
    }
    if (!checked || p2p->segments_ended < p2p->segment_count) {
        return PL_OK;
    }
    if (p2p->check.block_bytes) {
        finish_eager(p2p);
    }
    *ret_done = true;
    return PL_OK;
}

static void cancel(void *state, struct pl_request *request)
{
    struct pl_p2p *p2p = state;
    const struct pl_transport *transport = p2p->transport;

    (void)request;
    pl_check_calls_cancel(&p2p->check);
    for (int i = 0; i < PL_P2P_SLOTS; i++) {
        struct pl_p2p_slot *slot = &p2p->slots[i];

        /* Buffers that MPI may still access are leaked, as in pl_check_calls_cancel(). Messages are received in
         * `recv_buffer` and sent from `accumulator`, or in the caller's memory. */
        if (slot->in.transfer.active && !transport->cancel(transport->context, &slot->in.transfer)) {
            slot->recv_buffer = NULL;
        }
        if (slot->out.transfer.active && !transport->cancel(transport->context, &slot->out.transfer)) {
            slot->accumulator = NULL;
        }
        slot->active = false;
    }
}

static int waits_for(void *state, const struct pl_request *request)
{
    const struct pl_p2p *p2p = state;

    (void)request;
    if (pl_check_calls_waits_for(&p2p->check) >= 0) {
        return pl_check_calls_waits_for(&p2p->check);
    }
    for (int i = 0; i < PL_P2P_SLOTS; i++) {
        const struct pl_p2p_slot *slot = &p2p->slots[i];

        if (slot->active && (slot->in.transfer.active || slot->out.transfer.active)) {
            return slot->in.transfer.active ? slot->in.peer : slot->out.peer;
        }
    }
    return -1;
}

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    if (pl_world_size(world) == 1) {
        strcpy(reason, "there is only one rank");
        return false;
    }
    strcpy(reason, "the ranks cannot send messages to each other");
    return pl_world_bootstrap(world)->transport;
}

static void free_p2p(void *state)
{
    struct pl_p2p *p2p = state;

    for (int i = 0; i < PL_P2P_SLOTS; i++) {
        free(p2p->slots[i].recv_buffer);
        free(p2p->slots[i].accumulator);
    }
    pl_check_calls_done(&p2p->check);
    pl_residuals_done(p2p);
    free(p2p->position_of);
    free(p2p->send_at);
    free(p2p->recv_at);
    free(p2p->sources);
}

static enum pl_status allocate(struct pl_p2p *p2p, struct pl_error *reterr)
{
    size_t size = (size_t)p2p->size;

    PL_TRY(pl_memory_alloc(&p2p->position_of, size, sizeof(*p2p->position_of), reterr));
    PL_TRY(pl_memory_alloc(&p2p->send_at, size + 1, sizeof(*p2p->send_at), reterr));
    PL_TRY(pl_memory_alloc(&p2p->recv_at, size + 1, sizeof(*p2p->recv_at), reterr));
    PL_TRY(pl_memory_alloc(&p2p->sources, size, sizeof(*p2p->sources), reterr));
    return pl_check_calls_init(&p2p->check, p2p->world, reterr);
}

static enum pl_status init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    struct pl_p2p *p2p = state;

    p2p->world = world;
    p2p->transport = pl_world_bootstrap(world)->transport;
    p2p->kernel = pl_kernel_best();
    p2p->rank = pl_world_rank(world);
    p2p->size = pl_world_size(world);
    p2p->order = world->topology.order;
    PL_TRY(pl_bootstrap_vote(pl_world_bootstrap(world), allocate(p2p, reterr), pl_world_deadline_ns(world), reterr));
    for (int i = 0; i < p2p->size; i++) {
        p2p->position_of[p2p->order[i]] = i;
    }
    return pl_p2p_model(p2p, reterr);
}

const struct pl_backend pl_backend_p2p = {.name = "p2p",
                                          .probe = probe,
                                          .init = init,
                                          .state_bytes = sizeof(struct pl_p2p),
                                          .post = post,
                                          .progress = progress,
                                          .cancel = cancel,
                                          .waits_for = waits_for,
                                          .describe = pl_p2p_describe,
                                          .free = free_p2p};
