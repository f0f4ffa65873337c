/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for point-to-point messages: runs one algorithm over the segments of a vector, several at a time. */
#include "collectives/p2p/backend.h"

#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/counts.h"
#include "collectives/p2p/eligible.h"
#include "collectives/p2p/state.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)PL_EXCHANGE_LANES < (int)PL_AGREE_SLOTS, "each slot has a tag");

/* A range of elements: of the whole vector or, in a slot's own buffers, of the segment. */
struct run {
    uint64_t at;
    uint64_t count;
    bool silent; /* empty, and no message: both ends know from the segments before that the block has ended */
};

/* Elements of blocks `first` to `first + blocks - 1` of the segment; `starts` are the ranks' blocks where ragged. */
static struct run run_of(const struct pl_exchange *exchange, const struct pl_lane *lane, const uint64_t *starts,
                         int first, int blocks)
{
    uint64_t lane_at = lane->number * exchange->lane_elems;
    uint64_t length;

    if (exchange->ragged) {
        int rank = exchange->by_place ? exchange->order[first] : first;
        uint64_t block = starts[rank + 1] - starts[rank];

        length = block > lane_at ? block - lane_at : 0;
        return (struct run){starts[rank] + lane_at, length < exchange->lane_elems ? length : exchange->lane_elems,
                            lane_at > block};
    }
    length = exchange->request->collective.count - lane_at;
    length = length < exchange->lane_elems ? length : exchange->lane_elems;
    /* A segment has some 2^30 bytes, so these products stay far below 2^64. */
    uint64_t begin = length * (uint64_t)first / (uint64_t)exchange->blocks;
    uint64_t end = length * (uint64_t)(first + blocks) / (uint64_t)exchange->blocks;

    return (struct run){lane_at + begin, end - begin, begin == end && lane->number > 0};
}

static size_t item_bytes(const struct pl_exchange *exchange)
{
    return pl_dtype_bytes(exchange->request->collective.dtype);
}

static bool puts_aside(enum pl_pattern pattern)
{
    return pattern == PL_PATTERN_DIRECT || pattern == PL_PATTERN_DIRECT_REDUCE ||
           pattern == PL_PATTERN_DIRECT_REDUCE_SCATTER;
}

/* Partial results of these are kept in the slot: the caller gave no buffer of the right size. */
static bool works_in_lane(const struct pl_exchange *exchange)
{
    const struct pl_collective *c = &exchange->request->collective;

    return exchange->pattern == PL_PATTERN_RING_REDUCE_SCATTER || (c->kind == PL_REDUCE && exchange->rank != c->root);
}

/* Where partial and final results of a range are. */
static char *work_at(const struct pl_exchange *exchange, const struct pl_lane *lane, int first, struct run run)
{
    const struct pl_collective *c = &exchange->request->collective;
    size_t item = item_bytes(exchange);

    if (exchange->pattern == PL_PATTERN_RING_REDUCE_SCATTER) {
        return lane->work + (uint64_t)first * exchange->lane_elems * item;
    }
    if (exchange->pattern == PL_PATTERN_DIRECT_REDUCE_SCATTER) {
        return (char *)c->recv + (run.at - exchange->recv_at[exchange->rank]) * item;
    }
    if (works_in_lane(exchange)) {
        return lane->work + (run.at - lane->number * exchange->lane_elems) * item;
    }
    return (char *)c->recv + run.at * item;
}

/* Blocks that are kept apart follow each other by sender, each with the room of the largest. */
static char *aside_at(const struct pl_exchange *exchange, const struct pl_lane *lane, int sender)
{
    uint64_t room_elems =
        exchange->ragged ? exchange->lane_elems : exchange->lane_elems / (uint64_t)exchange->blocks + 1;

    return lane->arrived + (uint64_t)sender * room_elems * item_bytes(exchange);
}

static struct pl_reduction reduction_of(const struct pl_collective *c)
{
    return (struct pl_reduction){
        .dtype = c->dtype, .op = c->op == PL_AVERAGE ? PL_SUM : c->op, .divisor = 1, .prescale = 1, .postscale = 1};
}

static void convert(const struct pl_exchange *exchange, const struct pl_reduction *reduction, void *dest,
                    const void *source, uint64_t count)
{
    pl_kernel_reduce(exchange->kernel, reduction, &dest, 1, &source, 1, count);
}

/* float16 sums of many ranks can overflow before the division by n. Up to 16 ranks the direct pattern is used, which
 * needs no guard. */
static double guard_factor(const struct pl_exchange *exchange, const struct pl_collective *c)
{
    bool guarded = c->op == PL_AVERAGE && c->dtype == PL_FLOAT16 && !puts_aside(exchange->pattern);

    return guarded ? pl_kernel_guard(exchange->size) : 1.0;
}

/* Bring a rank's input of the segment to where the partial results are. */
static void load(const struct pl_exchange *exchange, struct pl_lane *lane)
{
    const struct pl_collective *c = &exchange->request->collective;
    size_t item = item_bytes(exchange);
    struct pl_reduction reduction = reduction_of(c);

    if (exchange->pattern == PL_PATTERN_RING_ALLGATHER || exchange->pattern == PL_PATTERN_PAIRWISE) {
        struct run to = run_of(exchange, lane, exchange->recv_at,
                               exchange->by_place ? exchange->place_of[exchange->rank] : exchange->rank, 1);
        uint64_t in_block = to.at - exchange->recv_at[exchange->rank];
        uint64_t from =
            exchange->pattern == PL_PATTERN_PAIRWISE ? exchange->send_at[exchange->rank] + in_block : in_block;
        const char *source = (const char *)c->send + from * item;
        char *dest = (char *)c->recv + to.at * item;

        if (to.count && source != dest) {
            memcpy(dest, source, to.count * item);
        }
        return;
    }
    if (!pl_kind_reduces(c->kind) || puts_aside(exchange->pattern)) {
        return;
    }
    reduction.prescale = c->prescale * guard_factor(exchange, c);
    for (int block = 0; block < exchange->blocks; block++) {
        struct run run = run_of(exchange, lane, exchange->send_at, block, 1);
        const char *source = (const char *)c->send + run.at * item;
        char *dest = work_at(exchange, lane, block, run);

        if (run.count && (source != dest || reduction.prescale != 1.0)) {
            convert(exchange, &reduction, dest, source, run.count);
        }
        if (exchange->wired) {
            pl_wire_load(exchange, (float *)(void *)dest, run.at, run.count);
        }
    }
}

/* The last step: division and scaling of the results, and the copy from the slot to the caller's buffer. */
static void store(const struct pl_exchange *exchange, struct pl_lane *lane)
{
    const struct pl_collective *c = &exchange->request->collective;
    struct pl_reduction reduction = reduction_of(c);
    double guard;
    struct run run;
    char *from;
    char *to;

    if (!pl_kind_reduces(c->kind) || puts_aside(exchange->pattern) ||
        (c->kind == PL_REDUCE && c->root != exchange->rank)) {
        return;
    }
    guard = guard_factor(exchange, c);
    reduction.divisor = c->divisor;
    reduction.postscale = c->postscale / guard;
    if (exchange->pattern == PL_PATTERN_RING_REDUCE_SCATTER) {
        int place = exchange->place_of[exchange->rank];

        run = run_of(exchange, lane, exchange->send_at, place, 1);
        from = work_at(exchange, lane, place, run);
        to = (char *)c->recv + (run.at - exchange->send_at[exchange->rank]) * item_bytes(exchange);
    } else {
        run = run_of(exchange, lane, NULL, 0, exchange->blocks);
        from = work_at(exchange, lane, 0, run);
        to = from;
    }
    if (run.count && (from != to || reduction.divisor != 1 || reduction.postscale != 1.0)) {
        convert(exchange, &reduction, to, from, run.count);
    }
}

/* Add up the blocks that were kept apart, in rank order, to the rank's own block. */
static void gather(const struct pl_exchange *exchange, struct pl_lane *lane)
{
    const struct pl_collective *c = &exchange->request->collective;
    struct run run = run_of(exchange, lane, exchange->send_at, exchange->rank, 1);
    struct pl_reduction reduction = reduction_of(c);
    void *dest = work_at(exchange, lane, exchange->rank, run);

    for (int r = 0; r < exchange->size; r++) {
        exchange->sources[r] = aside_at(exchange, lane, r);
    }
    exchange->sources[exchange->rank] = (const char *)c->send + run.at * item_bytes(exchange);
    reduction.divisor = c->divisor;
    reduction.prescale = c->prescale;
    reduction.postscale = c->postscale;
    if (run.count) {
        pl_kernel_reduce(exchange->kernel, &reduction, &dest, 1, exchange->sources, (uint32_t)exchange->size,
                         run.count);
    }
}

static char *at_input(const struct pl_exchange *exchange, struct run run)
{
    return (char *)(uintptr_t)exchange->request->collective.send + run.at * item_bytes(exchange);
}

static int rank_at(const struct pl_exchange *exchange, int place)
{
    return exchange->by_place ? exchange->order[place] : place;
}

/* The 16-bit form of a range that is to be sent, in the slot's own memory. */
static const char *pack(const struct pl_exchange *exchange, struct pl_lane *lane, char *data, struct run run)
{
    enum pl_wire_step step = lane->round < exchange->size - 1    ? PL_WIRE_PARTIAL
                             : lane->round == exchange->size - 1 ? PL_WIRE_FINISHED
                                                                 : PL_WIRE_PASS;

    pl_wire_pack(exchange, (uint16_t *)(void *)lane->work, (float *)(void *)data, run.at, run.count, step);
    return lane->work;
}

static enum pl_status post_piece(const struct pl_exchange *exchange, struct pl_train *train, bool out,
                                 struct pl_error *reterr)
{
    const struct pl_transport *transport = exchange->transport;

    train->piece_bytes = train->left_bytes < exchange->piece_bytes ? train->left_bytes : exchange->piece_bytes;
    return (out ? transport->send(transport->context, train->data, train->piece_bytes, train->peer, train->tag,
                                  &train->transfer, reterr)
                : transport->recv(transport->context, train->data, train->piece_bytes, train->peer, train->tag,
                                  &train->transfer, reterr));
}

static enum pl_status start_train(const struct pl_exchange *exchange, struct pl_train *train, const char *data,
                                  size_t bytes, int peer, uint32_t tag, bool out, struct pl_error *reterr)
{
    *train = (struct pl_train){.data = (char *)(uintptr_t)data, .left_bytes = bytes, .peer = peer, .tag = tag};
    return post_piece(exchange, train, out, reterr);
}

/* Advance a message as far as it gets. */
static enum pl_status test_train(const struct pl_exchange *exchange, struct pl_train *train, bool out,
                                 struct pl_error *reterr)
{
    while (train->transfer.active) {
        size_t bytes;
        bool done;

        PL_TRY(exchange->transport->test(exchange->transport->context, &train->transfer, &done, &bytes, reterr));
        if (!done) {
            break;
        }
        if (!out && bytes != train->piece_bytes) {
            return pl_error_set(reterr, PL_MISMATCH, "rank %d sent %zu bytes where rank %d expected %zu",
                                pl_world_label(exchange->world, train->peer), bytes,
                                pl_world_label(exchange->world, exchange->rank), train->piece_bytes);
        }
        exchange->request->moves++;
        train->data += train->piece_bytes;
        train->left_bytes -= train->piece_bytes;
        if (train->left_bytes) {
            PL_TRY(post_piece(exchange, train, out, reterr));
        }
    }
    return PL_OK;
}

/* Post the messages of the slot's round. */
static enum pl_status start_round(struct pl_exchange *exchange, struct pl_lane *lane, struct pl_error *reterr)
{
    const struct pl_collective *c = &exchange->request->collective;
    uint32_t tag = pl_agree_tag(exchange->request->signature.sequence, (unsigned)(lane - exchange->lanes));
    int place = exchange->by_place ? exchange->place_of[exchange->rank] : exchange->rank;
    size_t item = exchange->wired ? sizeof(uint16_t) : item_bytes(exchange);
    struct pl_step *step = &lane->step;

    *step = pl_pattern_step(exchange->pattern, exchange->size, place, c->root, lane->round);
    if (step->from >= 0) {
        /* What is kept apart is the sender's input for the rank's own block. */
        struct run run =
            run_of(exchange, lane, exchange->recv_at, step->aside ? place : step->recv_first, step->recv_blocks);
        char *data = step->aside                        ? aside_at(exchange, lane, step->from)
                     : step->combine || exchange->wired ? lane->arrived
                                                        : work_at(exchange, lane, step->recv_first, run);

        if (!run.silent) {
            PL_TRY(start_train(exchange, &lane->in, data, run.count * item, rank_at(exchange, step->from), tag, false,
                               reterr));
        }
    }
    if (step->to >= 0) {
        bool input = step->aside || exchange->pattern == PL_PATTERN_PAIRWISE;
        struct run run =
            run_of(exchange, lane, input ? exchange->send_at : exchange->recv_at, step->send_first, step->send_blocks);
        char *data = input ? at_input(exchange, run) : work_at(exchange, lane, step->send_first, run);

        if (!run.silent) {
            const char *out = exchange->wired ? pack(exchange, lane, data, run) : data;

            PL_TRY(start_train(exchange, &lane->out, out, run.count * item, rank_at(exchange, step->to), tag, true,
                               reterr));
        }
    }
    return PL_OK;
}

static void combine(const struct pl_exchange *exchange, struct pl_lane *lane)
{
    const struct pl_step *step = &lane->step;
    struct run run = run_of(exchange, lane, exchange->recv_at, step->recv_first, step->recv_blocks);
    struct pl_reduction reduction = reduction_of(&exchange->request->collective);
    void *own = work_at(exchange, lane, step->recv_first, run);

    if (exchange->wired) {
        pl_wire_unpack(exchange, own, (const uint16_t *)(void *)lane->arrived, run.count, step->combine);
        return;
    }
    const void *sources[2] = {step->received_left ? lane->arrived : own, step->received_left ? own : lane->arrived};

    if (run.count) {
        pl_kernel_reduce(exchange->kernel, &reduction, &own, 1, sources, 2, run.count);
    }
}

/* True in `*ret_ended` when neither message of the round is under way any more. */
static enum pl_status test_round(struct pl_exchange *exchange, struct pl_lane *lane, bool *ret_ended,
                                 struct pl_error *reterr)
{
    *ret_ended = false;
    PL_TRY(test_train(exchange, &lane->in, false, reterr));
    PL_TRY(test_train(exchange, &lane->out, true, reterr));
    *ret_ended = !lane->in.transfer.active && !lane->out.transfer.active;
    return PL_OK;
}

static enum pl_status begin_lane(struct pl_exchange *exchange, struct pl_lane *lane, struct pl_error *reterr)
{
    lane->active = true;
    lane->number = exchange->lanes_started++;
    lane->round = 0;
    load(exchange, lane);
    return start_round(exchange, lane, reterr);
}

/* Advance one slot as far as it gets. */
static enum pl_status run_lane(struct pl_exchange *exchange, struct pl_lane *lane, struct pl_error *reterr)
{
    for (;;) {
        bool ended;

        if (!lane->active) {
            /* Segment k uses slot k mod n, so that the messages of a slot come in the same order at both ends. */
            if (exchange->lanes_started >= exchange->lane_count ||
                exchange->lanes_started % PL_EXCHANGE_LANES != (uint64_t)(lane - exchange->lanes)) {
                return PL_OK;
            }
            PL_TRY(begin_lane(exchange, lane, reterr));
        }
        PL_TRY(test_round(exchange, lane, &ended, reterr));
        if (!ended) {
            return PL_OK;
        }
        if (lane->step.from >= 0 && (lane->step.combine || exchange->wired)) {
            combine(exchange, lane);
        }
        if (pl_pattern_gathers(exchange->pattern, exchange->size, lane->round)) {
            gather(exchange, lane);
        }
        if (++lane->round < exchange->rounds) {
            PL_TRY(start_round(exchange, lane, reterr));
            continue;
        }
        store(exchange, lane);
        lane->active = false;
        exchange->lanes_ended++;
    }
}

/* A small collective: all inputs, or their sum, came with the call check. */
static void finish_inline(struct pl_exchange *exchange)
{
    const struct pl_collective *c = &exchange->request->collective;
    uint32_t sources = exchange->agree.summed ? 1 : (uint32_t)exchange->size;
    struct pl_reduction reduction = reduction_of(c);
    size_t item = item_bytes(exchange);
    uint64_t first = 0;
    uint64_t count = c->count;
    void *dest = c->recv;

    for (int i = 0; i < exchange->size; i++) {
        exchange->sources[i] = pl_agree_data(&exchange->agree, i);
    }
    if (c->kind == PL_ALLGATHER) {
        for (int r = 0; r < exchange->size; r++) {
            memcpy((char *)c->recv + (size_t)r * exchange->agree.block_bytes, exchange->sources[r],
                   exchange->agree.block_bytes);
        }
        return;
    }
    if (c->kind == PL_REDUCE && c->root != exchange->rank) {
        return;
    }
    if (c->kind == PL_REDUCE_SCATTER) {
        first = exchange->recv_at[exchange->rank];
        count = exchange->recv_at[exchange->rank + 1] - first;
    }
    for (int r = 0; r < exchange->size; r++) {
        exchange->sources[r] = (const char *)exchange->sources[r] + first * item;
    }
    reduction.divisor = c->divisor;
    reduction.prescale = exchange->agree.summed ? 1 : c->prescale;
    reduction.postscale = c->postscale;
    if (count) {
        pl_kernel_reduce(exchange->kernel, &reduction, &dest, 1, exchange->sources, sources, count);
    }
}

static enum pl_status make_room(struct pl_exchange *exchange, const struct pl_collective *c, struct pl_error *reterr)
{
    size_t item = pl_dtype_bytes(c->dtype);
    size_t blocks = exchange->ragged ? (size_t)exchange->size : 1;
    size_t room = (exchange->lane_elems * blocks + (size_t)exchange->size) * item;

    if (!exchange->lane_count || !pl_kind_reduces(c->kind) || room <= exchange->lane_room_bytes) {
        return PL_OK; /* data that is not reduced is sent from and received in the caller's memory */
    }
    for (int i = 0; i < PL_EXCHANGE_LANES; i++) {
        struct pl_lane *lane = &exchange->lanes[i];

        free(lane->arrived);
        free(lane->work);
        lane->work = NULL;
        lane->arrived = pl_memory_new_aligned(room, 1, 64, reterr);
        lane->work = lane->arrived ? pl_memory_new_aligned(room, 1, 64, reterr) : NULL;
        if (!lane->work) {
            exchange->lane_room_bytes = 0;
            return PL_MEMORY;
        }
    }
    exchange->lane_room_bytes = room;
    return PL_OK;
}

static enum pl_status plan_lanes(struct pl_exchange *exchange, const struct pl_collective *c, struct pl_error *reterr)
{
    pl_exchange_plan(exchange, c);
    PL_TRY(make_room(exchange, c, reterr));
    exchange->wired = exchange->lane_count && pl_wire_is_wanted(c);
    return exchange->wired ? pl_wire_start(exchange, reterr) : PL_OK;
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr);

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_exchange *exchange = state;
    const struct pl_collective *c = &request->collective;
    struct pl_reduction reduction = reduction_of(c);
    uint64_t inline_bytes;

    reduction.prescale = c->prescale;
    exchange->request = request;
    exchange->failure.failed = false;
    exchange->lanes_started = 0;
    exchange->lanes_ended = 0;
    exchange->lane_count = 0;
    exchange->wired = false;
    pl_counts_starts(c->counts, c->count, exchange->size, exchange->send_at);
    pl_counts_starts(c->recv_counts ? c->recv_counts : c->counts, c->count, exchange->size, exchange->recv_at);
    inline_bytes = pl_exchange_inline_bytes(exchange, c);
    if (!inline_bytes && c->kind != PL_BARRIER) {
        PL_TRY(plan_lanes(exchange, c, reterr));
    }
    PL_TRY(pl_agree_start(&exchange->agree, &request->signature, c->send, inline_bytes,
                          pl_exchange_sums_inline(exchange, c) ? &reduction : NULL, reterr));
    return progress(state, request, ret_done, reterr);
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_exchange *exchange = state;
    struct pl_deferred_error *failure = &exchange->failure;
    bool agreed;

    *ret_done = false;
    PL_TRY(pl_agree_progress(&exchange->agree, &request->moves, reterr));
    agreed = exchange->agree.done;
    for (int i = 0; i < PL_EXCHANGE_LANES && exchange->lanes_ended < exchange->lane_count && !failure->failed; i++) {
        failure->failed = run_lane(exchange, &exchange->lanes[i], &failure->error) != PL_OK;
    }
    if (failure->failed) {
        return pl_deferred_error_report(failure, agreed, reterr);
    }
    if (!agreed || exchange->lanes_ended < exchange->lane_count) {
        return PL_OK;
    }
    if (exchange->agree.block_bytes) {
        finish_inline(exchange);
    }
    *ret_done = true;
    return PL_OK;
}

static void cancel(void *state, struct pl_request *request)
{
    struct pl_exchange *exchange = state;
    const struct pl_transport *transport = exchange->transport;

    (void)request;
    pl_agree_cancel(&exchange->agree);
    for (int i = 0; i < PL_EXCHANGE_LANES; i++) {
        struct pl_lane *lane = &exchange->lanes[i];

        /* As in pl_agree_cancel(). Messages are received in `arrived` and sent from `work`, if not in
         * the caller's memory. */
        if (lane->in.transfer.active && !transport->cancel(transport->context, &lane->in.transfer)) {
            lane->arrived = NULL;
        }
        if (lane->out.transfer.active && !transport->cancel(transport->context, &lane->out.transfer)) {
            lane->work = NULL;
        }
        lane->active = false;
    }
}

static int waits_for(void *state, const struct pl_request *request)
{
    const struct pl_exchange *exchange = state;

    (void)request;
    if (pl_agree_waits_for(&exchange->agree) >= 0) {
        return pl_agree_waits_for(&exchange->agree);
    }
    for (int i = 0; i < PL_EXCHANGE_LANES; i++) {
        const struct pl_lane *lane = &exchange->lanes[i];

        if (lane->active && (lane->in.transfer.active || lane->out.transfer.active)) {
            return lane->in.transfer.active ? lane->in.peer : lane->out.peer;
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
    strcpy(reason, "the ranks have no way to send messages");
    return pl_world_bootstrap(world)->transport != NULL;
}

static void free_exchange(void *state)
{
    struct pl_exchange *exchange = state;

    if (!exchange) {
        return;
    }
    for (int i = 0; i < PL_EXCHANGE_LANES; i++) {
        free(exchange->lanes[i].arrived);
        free(exchange->lanes[i].work);
    }
    pl_agree_done(&exchange->agree);
    pl_wire_done(exchange);
    free(exchange->place_of);
    free(exchange->send_at);
    free(exchange->recv_at);
    free(exchange->sources);
    free(exchange);
}

static enum pl_status init(struct pl_world *world, void **ret_state, struct pl_error *reterr)
{
    size_t size = (size_t)pl_world_size(world);
    struct pl_exchange *exchange = pl_memory_new(1, sizeof(*exchange), reterr);
    enum pl_status status = PL_OK;

    if (!exchange) {
        return pl_bootstrap_refuse(pl_world_bootstrap(world), PL_MEMORY, reterr, pl_world_deadline_ns(world));
    }
    exchange->world = world;
    exchange->transport = pl_world_bootstrap(world)->transport;
    exchange->kernel = pl_kernel_best();
    exchange->rank = pl_world_rank(world);
    exchange->size = (int)size;
    exchange->order = pl_world_ring_order(world);
    exchange->place_of = pl_memory_new(size, sizeof(*exchange->place_of), reterr);
    exchange->send_at = pl_memory_new(size + 1, sizeof(*exchange->send_at), reterr);
    exchange->recv_at = pl_memory_new(size + 1, sizeof(*exchange->recv_at), reterr);
    exchange->sources = pl_memory_new(size, sizeof(*exchange->sources), reterr);
    if (!exchange->place_of || !exchange->send_at || !exchange->recv_at || !exchange->sources ||
        pl_agree_init(&exchange->agree, world, reterr) != PL_OK) {
        status = PL_MEMORY;
    }
    for (size_t i = 0; i < size && status == PL_OK; i++) {
        exchange->place_of[exchange->order[i]] = (int)i;
    }
    status = pl_bootstrap_ready(pl_world_bootstrap(world), status, pl_world_deadline_ns(world), reterr);
    if (status == PL_OK) {
        status = pl_exchange_model(exchange, reterr);
    }
    if (status != PL_OK) {
        free_exchange(exchange);
        return status;
    }
    *ret_state = exchange;
    return PL_OK;
}

static bool serves(void *state, const struct pl_collective *collective)
{
    (void)state;
    return collective->memory != PL_MEMORY_DEVICE;
}

const struct pl_backend pl_backend_exchange = {.name = "exchange",
                                               .probe = probe,
                                               .init = init,
                                               .serves = serves,
                                               .post = post,
                                               .progress = progress,
                                               .cancel = cancel,
                                               .waits_for = waits_for,
                                               .describe = pl_exchange_describe,
                                               .free = free_exchange};
