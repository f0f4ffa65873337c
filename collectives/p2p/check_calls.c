/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call check finds out whether all ranks call the same collective, and if not, names two that differ.
 *
 * Each rank's signature, and a mismatch that it knows, goes up a tree to the first rank of its host, in rounds of
 * distance d = 1, 2, 4, ... Then the first ranks send to each other, in rounds of the same distances: to the host d
 * above or, if the number of hosts is a power of two, to the host whose number differs in the bit d. After the last
 * round all first ranks know the result, and it goes down the trees. So a host sends and receives one message per
 * round, whatever the number of its ranks. If two ranks call different collectives, some rank receives a signature that
 * differs from its own: it records both as the mismatch, and sends that on.
 */
#include "collectives/p2p/check_calls.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = offsetof(struct pl_check_calls_record, a), /* size of a record without a mismatch */
    MESSAGE_BYTES = HEAD_BYTES + PL_CHECK_CALLS_ROOM_BYTES,
};

_Static_assert(MESSAGE_BYTES >= sizeof(struct pl_check_calls_record), "a mismatch fits in a message");

uint32_t pl_check_calls_tag(uint64_t number, unsigned slot)
{
    /* The tag has 13 bits of the number, so that a message left over from a cancelled collective is not taken for one
     * of the next. */
    return PL_TAG_P2P + (uint32_t)(number & 0x1fff) * PL_CHECK_CALLS_TAGS + slot;
}

_Static_assert(PL_TAG_P2P + 0x2000 * PL_CHECK_CALLS_TAGS <= 1 << PL_TAG_BITS, "the largest tag fits in PL_TAG_BITS");

/* Gives positions to the ranks, host by host. */
static void position_ranks(struct pl_check_calls *check)
{
    bool apart = pl_world_cross_size(check->world) > 1;
    int position = 0;

    for (int host = 0; host < check->hosts; host++) {
        check->starts[host] = position;
        for (int rank = 0; rank < check->size; rank++) {
            if ((apart ? pl_world_host_of(check->world, rank) : rank) == host) {
                check->rank_at[position++] = rank;
            }
        }
    }
    check->starts[check->hosts] = position;
}

enum pl_status pl_check_calls_init(struct pl_check_calls *check, const struct pl_world *world, struct pl_error *reterr)
{
    bool apart = pl_world_cross_size(world) > 1;

    *check = (struct pl_check_calls){.world = world,
                                     .transport = pl_world_bootstrap(world)->transport,
                                     .kernel = pl_kernel_best(),
                                     .size = pl_world_size(world),
                                     .hosts = apart ? pl_world_cross_size(world) : pl_world_size(world),
                                     .host = apart ? pl_world_cross_rank(world) : pl_world_rank(world),
                                     .local = apart ? pl_world_local_rank(world) : 0,
                                     .local_size = apart ? pl_world_local_size(world) : 1};
    PL_TRY(pl_memory_alloc(&check->starts, (size_t)check->hosts + 1, sizeof(int), reterr));
    PL_TRY(pl_memory_alloc(&check->rank_at, (size_t)check->size, sizeof(int), reterr));
    PL_TRY(pl_memory_alloc(&check->message_in, MESSAGE_BYTES, 1, reterr));
    PL_TRY(pl_memory_alloc(&check->message_out, MESSAGE_BYTES, 1, reterr));
    PL_TRY(pl_memory_alloc_aligned(&check->gathered, PL_CHECK_CALLS_ROOM_BYTES, 1, 64, reterr));
    position_ranks(check);
    return PL_OK;
}

void pl_check_calls_done(struct pl_check_calls *check)
{
    free(check->starts);
    free(check->rank_at);
    free(check->message_in);
    free(check->message_out);
    free(check->gathered);
    *check = (struct pl_check_calls){.world = NULL};
}

static void note_mismatch(struct pl_check_calls_record *mine, int my_rank, const struct pl_check_calls_record *theirs,
                          int their_rank)
{
    if (mine->a_rank != PL_CHECK_CALLS_NONE) {
        return;
    }
    if (theirs->a_rank != PL_CHECK_CALLS_NONE) {
        *mine = (struct pl_check_calls_record){mine->own, theirs->a_rank, theirs->b_rank, theirs->a, theirs->b};
    } else if (!pl_signature_equal(&mine->own, &theirs->own)) {
        mine->a_rank = my_rank;
        mine->a = mine->own;
        mine->b_rank = their_rank;
        mine->b = theirs->own;
    }
}

bool pl_check_calls_can_sum(const struct pl_check_calls *check)
{
    return (check->hosts & (check->hosts - 1)) == 0;
}

/* The host that this one receives from in a round between hosts; host_above() is the one that it sends to. */
static int host_below(const struct pl_check_calls *check)
{
    return pl_check_calls_can_sum(check) ? check->host ^ check->distance
                                         : (check->host - check->distance + check->hosts) % check->hosts;
}

static int host_above(const struct pl_check_calls *check)
{
    return pl_check_calls_can_sum(check) ? check->host ^ check->distance
                                         : (check->host + check->distance) % check->hosts;
}

/* A circular range of positions whose data a message carries. */
struct share {
    int first;
    int count;
};

/* Returns the positions whose data the first rank of `host` has before this round. */
static struct share share_between(const struct pl_check_calls *check, int host)
{
    int rest = check->hosts - check->distance;
    int hosts = check->distance < rest ? check->distance : rest;
    int begin =
        pl_check_calls_can_sum(check) ? host & -check->distance : (host - hosts + 1 + check->hosts) % check->hosts;
    int end = (begin + hosts - 1) % check->hosts + 1;
    int count = check->starts[end] - check->starts[begin];

    return (struct share){check->starts[begin], count > 0 ? count : count + check->size};
}

/* Returns the positions whose data a local rank has gathered from the tree below it in the rounds up to `distance`. */
static struct share share_below(const struct pl_check_calls *check, int local)
{
    int rest = check->local_size - local;

    return (struct share){check->starts[check->host] + local, check->distance < rest ? check->distance : rest};
}

static bool is_last_up(const struct pl_check_calls *check)
{
    return check->phase == PL_CHECK_CALLS_UP && (check->local & check->distance);
}

static struct share share_in(const struct pl_check_calls *check)
{
    if (is_last_up(check)) {
        return (struct share){0, check->size};
    }
    return check->phase == PL_CHECK_CALLS_UP ? share_below(check, check->local + check->distance)
                                             : share_between(check, host_below(check));
}

static struct share share_out(const struct pl_check_calls *check)
{
    if (check->phase == PL_CHECK_CALLS_UP) {
        return share_below(check, check->local);
    }
    return check->phase == PL_CHECK_CALLS_BETWEEN ? share_between(check, check->host) : (struct share){0, check->size};
}

/* Copies the blocks of a share from `gathered` to a message (`out`) or back; returns their bytes. */
static size_t move_blocks(struct pl_check_calls *check, struct share share, char *message, bool out)
{
    int ahead = check->size - share.first;
    size_t block = check->block_bytes;
    size_t head = (size_t)(share.count < ahead ? share.count : ahead) * block;
    size_t tail = (size_t)share.count * block - head;
    char *gathered = check->gathered + (size_t)share.first * block;

    if (out) {
        memcpy(message, gathered, head);
        memcpy(message + head, check->gathered, tail);
    } else {
        memcpy(gathered, message, head);
        memcpy(check->gathered, message + head, tail);
    }
    return head + tail;
}

static void add_up(struct pl_check_calls *check, void *dest, const void *left, const void *right)
{
    const void *sources[2] = {left, right};

    pl_kernel_reduce(check->kernel, &check->reduction, &dest, 1, sources, 2,
                     check->block_bytes / pl_dtype_bytes(check->reduction.dtype));
}

/* Takes received data: all ranks add in the order of positions, so that all first ranks of hosts get the same bits. */
static void take_data(struct pl_check_calls *check, char *data)
{
    if (!check->summed) {
        move_blocks(check, share_in(check), data, false);
    } else if (is_last_up(check)) {
        memcpy(check->gathered, data, check->block_bytes);
    } else if (check->phase == PL_CHECK_CALLS_BETWEEN && (check->host & check->distance)) {
        add_up(check, check->gathered, data, check->gathered);
    } else {
        add_up(check, check->gathered, check->gathered, data);
    }
}

/* Writes the record and the data that is sent with it; returns their bytes. */
static size_t write_message(struct pl_check_calls *check)
{
    char *rest = check->message_out + HEAD_BYTES;

    if (check->record.a_rank >= 0) {
        memcpy(check->message_out, &check->record, sizeof(check->record));
        return sizeof(check->record); /* after a mismatch no rank needs data */
    }
    memcpy(check->message_out, &check->record, HEAD_BYTES);
    if (check->summed) {
        memcpy(rest, check->gathered, check->block_bytes);
        return HEAD_BYTES + check->block_bytes;
    }
    return HEAD_BYTES + move_blocks(check, share_out(check), rest, true);
}

static int local_rank_at(const struct pl_check_calls *check, int local)
{
    return local < check->local_size ? check->rank_at[check->starts[check->host] + local] : -1;
}

/* Finds the ranks that this one receives from and sends to in the round; -1 for no rank. */
static void find_peers(struct pl_check_calls *check)
{
    check->from = -1;
    check->to = -1;
    if (check->phase == PL_CHECK_CALLS_BETWEEN) {
        check->from = check->rank_at[check->starts[host_below(check)]];
        check->to = check->rank_at[check->starts[host_above(check)]];
    } else if (check->phase == PL_CHECK_CALLS_DOWN) {
        check->to = local_rank_at(check, check->local + check->distance);
    } else if (is_last_up(check)) {
        /* The next message from that rank carries the result of all ranks. */
        check->to = local_rank_at(check, check->local - check->distance);
        check->from = check->to;
    } else {
        check->from = local_rank_at(check, check->local + check->distance);
    }
}

/* Finds the first round, from `distance` of the phase on, in which this rank sends or receives; false if there is
 * none. */
static bool find_round(struct pl_check_calls *check)
{
    for (;;) {
        if (check->phase == PL_CHECK_CALLS_UP && check->distance >= check->local_size) {
            check->phase = PL_CHECK_CALLS_BETWEEN;
            check->distance = 1;
        }
        if (check->phase == PL_CHECK_CALLS_BETWEEN && check->distance >= check->hosts) {
            check->phase = PL_CHECK_CALLS_DOWN;
            for (check->distance = 1; check->distance < check->local_size; check->distance *= 2) {
            }
        }
        if (check->phase == PL_CHECK_CALLS_DOWN && check->distance == 0) {
            return false;
        }
        find_peers(check);
        if (check->from >= 0 || check->to >= 0) {
            return true;
        }
        check->distance = check->phase == PL_CHECK_CALLS_DOWN ? check->distance / 2 : check->distance * 2;
    }
}

static bool find_first_round(struct pl_check_calls *check)
{
    check->phase = PL_CHECK_CALLS_UP;
    check->distance = 1;
    return find_round(check);
}

static bool find_next_round(struct pl_check_calls *check)
{
    if (is_last_up(check)) {
        check->phase = PL_CHECK_CALLS_DOWN;
    }
    check->distance = check->phase == PL_CHECK_CALLS_DOWN ? check->distance / 2 : check->distance * 2;
    return find_round(check);
}

static enum pl_status start_round(struct pl_check_calls *check, struct pl_error *reterr)
{
    const struct pl_transport *transport = check->transport;

    /* Send first: the other rank waits for it. */
    if (check->to >= 0) {
        PL_TRY(transport->send(transport->context, check->message_out, write_message(check), check->to, check->tag,
                               &check->out, reterr));
    }
    if (check->from >= 0) {
        /* Room for the longest message, which a rank that calls a different collective may send. */
        PL_TRY(transport->recv(transport->context, check->message_in, MESSAGE_BYTES, check->from, check->tag,
                               &check->in, reterr));
    }
    return PL_OK;
}

enum pl_status pl_check_calls_start(struct pl_check_calls *check, const struct pl_signature *signature,
                                    const void *data, uint64_t block_bytes, const struct pl_reduction *reduction,
                                    struct pl_error *reterr)
{
    check->tag = pl_check_calls_tag(signature->sequence, PL_CHECK_CALLS_TAGS - 1);
    check->record.own = *signature;
    check->record.a_rank = PL_CHECK_CALLS_NONE;
    check->block_bytes = block_bytes;
    check->summed = reduction;
    if (check->summed) {
        void *dest = check->gathered;

        pl_kernel_reduce(check->kernel, reduction, &dest, 1, &data, 1, block_bytes / pl_dtype_bytes(reduction->dtype));
        check->reduction = *reduction;
        check->reduction.prescale = 1;
    } else if (block_bytes) {
        memcpy(check->gathered + (size_t)(check->starts[check->host] + check->local) * block_bytes, data, block_bytes);
    }
    check->done = !find_first_round(check);
    return start_round(check, reterr);
}

void pl_check_calls_skip(struct pl_check_calls *check)
{
    check->record.a_rank = PL_CHECK_CALLS_NONE;
    check->block_bytes = 0;
    check->done = true;
}

static enum pl_status end_round(struct pl_check_calls *check, size_t bytes, struct pl_error *reterr)
{
    const struct pl_check_calls_record *theirs = (const void *)check->message_in;

    if (bytes < HEAD_BYTES || (theirs->a_rank >= 0 && bytes < sizeof(*theirs))) {
        return pl_error_set(reterr, PL_CORRUPT, "rank %d sent %zu bytes, which are not a record of a call",
                            pl_world_global_rank(check->world, check->from), bytes);
    }
    note_mismatch(&check->record, pl_world_rank(check->world), theirs, check->from);
    if (check->record.a_rank == PL_CHECK_CALLS_NONE && check->block_bytes) {
        take_data(check, check->message_in + HEAD_BYTES);
    }
    return PL_OK;
}

enum pl_status pl_check_calls_progress(struct pl_check_calls *check, uint64_t *progress_count, struct pl_error *reterr)
{
    const struct pl_transport *transport = check->transport;

    while (!check->done) {
        size_t bytes;
        bool done;

        if (check->in.active) {
            PL_TRY(transport->test(transport->context, &check->in, &done, &bytes, reterr));
            if (done) {
                ++*progress_count;
                PL_TRY(end_round(check, bytes, reterr));
            }
        }
        if (check->out.active) {
            PL_TRY(transport->test(transport->context, &check->out, &done, &bytes, reterr));
        }
        if (check->in.active || check->out.active) {
            return PL_OK;
        }
        check->done = !find_next_round(check);
        if (!check->done) {
            PL_TRY(start_round(check, reterr));
        }
    }
    if (check->record.a_rank != PL_CHECK_CALLS_NONE) {
        return pl_signature_mismatch(&check->record.a, pl_world_global_rank(check->world, check->record.a_rank),
                                     &check->record.b, pl_world_global_rank(check->world, check->record.b_rank),
                                     reterr);
    }
    return PL_OK;
}

const void *pl_check_calls_data(const struct pl_check_calls *check, int rank)
{
    bool apart = pl_world_cross_size(check->world) > 1;
    int position =
        apart ? check->starts[pl_world_host_of(check->world, rank)] + check->world->topology.local_of[rank] : rank;

    return check->gathered + (check->summed ? 0 : (size_t)position * check->block_bytes);
}

int pl_check_calls_waits_for(const struct pl_check_calls *check)
{
    return check->in.active ? check->from : check->out.active ? check->to : -1;
}

void pl_check_calls_cancel(struct pl_check_calls *check)
{
    /* A message that cannot be cancelled may access its buffer until the process ends: leak the buffer and never
     * reuse it. */
    if (check->in.active && !check->transport->cancel(check->transport->context, &check->in)) {
        check->message_in = NULL;
    }
    if (check->out.active && !check->transport->cancel(check->transport->context, &check->out)) {
        check->message_out = NULL;
    }
}
