/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call check: do all ranks call the same collective, and which two do not?
 *
 * Each rank's signature, and a mismatch that it knows of, goes up a tree to the first rank of its host, in rounds of
 * distance d = 1, 2, 4, ... Then the first ranks send to each other, in rounds of such distances: to the host d above
 * or, where the number of hosts is a power of two, to the one whose number differs in the bit d. After the last round
 * all of these know everything, and it goes down the trees. So a host sends and receives one message a round, however
 * many ranks it has. If two ranks call different collectives, some rank receives a signature that differs from its own:
 * it records both as the mismatch, and sends that on.
 */
#include "collectives/p2p/check_calls.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/transport.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = offsetof(struct pl_agree_card, a), /* of a record without a mismatch */
    MESSAGE_BYTES = HEAD_BYTES + PL_AGREE_ROOM_BYTES,
};

_Static_assert(MESSAGE_BYTES >= sizeof(struct pl_agree_card), "a mismatch fits");

uint32_t pl_agree_tag(uint64_t sequence, unsigned slot)
{
    /* 13 bits of the sequence: a message left over from a cancelled collective cannot be taken for one of the next. */
    return PL_TAG_EXCHANGE + (uint32_t)(sequence & 0x1fff) * PL_AGREE_SLOTS + slot;
}

_Static_assert(PL_TAG_EXCHANGE + 0x2000 * PL_AGREE_SLOTS <= 1 << PL_TAG_BITS, "tags fit");

/* Positions, host by host. */
static void place_ranks(struct pl_agree *agree)
{
    bool apart = pl_world_cross_size(agree->world) > 1;
    int place = 0;

    for (int host = 0; host < agree->hosts; host++) {
        agree->starts[host] = place;
        for (int rank = 0; rank < agree->size; rank++) {
            if ((apart ? pl_world_host_of(agree->world, rank) : rank) == host) {
                agree->rank_at[place++] = rank;
            }
        }
    }
    agree->starts[agree->hosts] = place;
}

enum pl_status pl_agree_init(struct pl_agree *agree, const struct pl_world *world, struct pl_error *reterr)
{
    bool apart = pl_world_cross_size(world) > 1;

    *agree = (struct pl_agree){.world = world,
                               .transport = pl_world_bootstrap(world)->transport,
                               .kernel = pl_kernel_best(),
                               .size = pl_world_size(world),
                               .hosts = apart ? pl_world_cross_size(world) : pl_world_size(world),
                               .host = apart ? pl_world_cross_rank(world) : pl_world_rank(world),
                               .local = apart ? pl_world_local_rank(world) : 0,
                               .local_size = apart ? pl_world_local_size(world) : 1};
    agree->starts = pl_memory_new((size_t)agree->hosts + 1, sizeof(int), reterr);
    agree->rank_at = pl_memory_new((size_t)agree->size, sizeof(int), reterr);
    agree->message_in = pl_memory_new(MESSAGE_BYTES, 1, reterr);
    agree->message_out = pl_memory_new(MESSAGE_BYTES, 1, reterr);
    agree->held = pl_memory_new_aligned(PL_AGREE_ROOM_BYTES, 1, 64, reterr);
    if (!agree->starts || !agree->rank_at || !agree->message_in || !agree->message_out || !agree->held) {
        pl_agree_done(agree);
        return PL_MEMORY;
    }
    place_ranks(agree);
    return PL_OK;
}

void pl_agree_done(struct pl_agree *agree)
{
    free(agree->starts);
    free(agree->rank_at);
    free(agree->message_in);
    free(agree->message_out);
    free(agree->held);
    *agree = (struct pl_agree){.world = NULL};
}

static void note(struct pl_agree_card *mine, int my_rank, const struct pl_agree_card *theirs, int their_rank)
{
    if (mine->a_rank != PL_AGREE_NONE) {
        return;
    }
    if (theirs->a_rank != PL_AGREE_NONE) {
        *mine = (struct pl_agree_card){mine->own, theirs->a_rank, theirs->b_rank, theirs->a, theirs->b};
    } else if (!pl_signature_equal(&mine->own, &theirs->own)) {
        mine->a_rank = my_rank;
        mine->a = mine->own;
        mine->b_rank = their_rank;
        mine->b = theirs->own;
    }
}

bool pl_agree_sums(const struct pl_agree *agree)
{
    return (agree->hosts & (agree->hosts - 1)) == 0;
}

/* The host that this one receives from in a round between hosts, and the one that it sends to. */
static int host_below(const struct pl_agree *agree)
{
    return pl_agree_sums(agree) ? agree->host ^ agree->distance
                                : (agree->host - agree->distance + agree->hosts) % agree->hosts;
}

static int host_above(const struct pl_agree *agree)
{
    return pl_agree_sums(agree) ? agree->host ^ agree->distance : (agree->host + agree->distance) % agree->hosts;
}

/* Positions whose data a message carries, from `first` on, after the last one the first again. */
struct share {
    int first;
    int count;
};

/* What the first rank of `host` has gathered before the round that another one still lacks. */
static struct share share_between(const struct pl_agree *agree, int host)
{
    int rest = agree->hosts - agree->distance;
    int hosts = agree->distance < rest ? agree->distance : rest;
    int begin = pl_agree_sums(agree) ? host & -agree->distance : (host - hosts + 1 + agree->hosts) % agree->hosts;
    int end = (begin + hosts - 1) % agree->hosts + 1;
    int count = agree->starts[end] - agree->starts[begin];

    return (struct share){agree->starts[begin], count > 0 ? count : count + agree->size};
}

/* What a local rank has gathered from below it in the tree over `distance`. */
static struct share share_below(const struct pl_agree *agree, int local)
{
    int rest = agree->local_size - local;

    return (struct share){agree->starts[agree->host] + local, agree->distance < rest ? agree->distance : rest};
}

static bool is_last_up(const struct pl_agree *agree)
{
    return agree->phase == PL_AGREE_UP && (agree->local & agree->distance);
}

static struct share share_in(const struct pl_agree *agree)
{
    if (is_last_up(agree)) {
        return (struct share){0, agree->size};
    }
    return agree->phase == PL_AGREE_UP ? share_below(agree, agree->local + agree->distance)
                                       : share_between(agree, host_below(agree));
}

static struct share share_out(const struct pl_agree *agree)
{
    if (agree->phase == PL_AGREE_UP) {
        return share_below(agree, agree->local);
    }
    return agree->phase == PL_AGREE_BETWEEN ? share_between(agree, agree->host) : (struct share){0, agree->size};
}

/* Copy the blocks of a share between a message, where they are adjacent, and where they are kept; returns their bytes.
 */
static size_t move_blocks(struct pl_agree *agree, struct share share, char *message, bool out)
{
    int ahead = agree->size - share.first;
    size_t block = agree->block_bytes;
    size_t head = (size_t)(share.count < ahead ? share.count : ahead) * block;
    size_t tail = (size_t)share.count * block - head;
    char *held = agree->held + (size_t)share.first * block;

    if (out) {
        memcpy(message, held, head);
        memcpy(message + head, agree->held, tail);
    } else {
        memcpy(held, message, head);
        memcpy(agree->held, message + head, tail);
    }
    return head + tail;
}

static void add_up(struct pl_agree *agree, void *dest, const void *left, const void *right)
{
    const void *sources[2] = {left, right};

    pl_kernel_reduce(agree->kernel, &agree->reduction, &dest, 1, sources, 2,
                     agree->block_bytes / pl_dtype_bytes(agree->reduction.dtype));
}

/* Data that came: all add in the order of positions, so that all first ranks of hosts get the same bits. */
static void take_data(struct pl_agree *agree, char *data)
{
    if (!agree->summed) {
        (void)move_blocks(agree, share_in(agree), data, false);
    } else if (is_last_up(agree)) {
        memcpy(agree->held, data, agree->block_bytes);
    } else if (agree->phase == PL_AGREE_BETWEEN && (agree->host & agree->distance)) {
        add_up(agree, agree->held, data, agree->held);
    } else {
        add_up(agree, agree->held, agree->held, data);
    }
}

/* Write the record and the data that is sent with it; returns their bytes. */
static size_t write_message(struct pl_agree *agree)
{
    char *rest = agree->message_out + HEAD_BYTES;

    if (agree->card.a_rank >= 0) {
        memcpy(agree->message_out, &agree->card, sizeof(agree->card));
        return sizeof(agree->card); /* after a mismatch no rank needs data */
    }
    memcpy(agree->message_out, &agree->card, HEAD_BYTES);
    if (agree->summed) {
        memcpy(rest, agree->held, agree->block_bytes);
        return HEAD_BYTES + agree->block_bytes;
    }
    return HEAD_BYTES + move_blocks(agree, share_out(agree), rest, true);
}

static int local_rank_at(const struct pl_agree *agree, int local)
{
    return local < agree->local_size ? agree->rank_at[agree->starts[agree->host] + local] : -1;
}

/* Which ranks this one receives from and sends to in the round; -1: none. */
static void find_peers(struct pl_agree *agree)
{
    agree->from = -1;
    agree->to = -1;
    if (agree->phase == PL_AGREE_BETWEEN) {
        agree->from = agree->rank_at[agree->starts[host_below(agree)]];
        agree->to = agree->rank_at[agree->starts[host_above(agree)]];
    } else if (agree->phase == PL_AGREE_DOWN) {
        agree->to = local_rank_at(agree, agree->local + agree->distance);
    } else if (is_last_up(agree)) {
        /* The next message from there carries the result of all ranks. */
        agree->to = local_rank_at(agree, agree->local - agree->distance);
        agree->from = agree->to;
    } else {
        agree->from = local_rank_at(agree, agree->local + agree->distance);
    }
}

/* From `distance` of its phase on, the first round in which this rank has something to do; false when there is none. */
static bool find_round(struct pl_agree *agree)
{
    for (;;) {
        if (agree->phase == PL_AGREE_UP && agree->distance >= agree->local_size) {
            agree->phase = PL_AGREE_BETWEEN;
            agree->distance = 1;
        }
        if (agree->phase == PL_AGREE_BETWEEN && agree->distance >= agree->hosts) {
            agree->phase = PL_AGREE_DOWN;
            for (agree->distance = 1; agree->distance < agree->local_size; agree->distance *= 2) {
            }
        }
        if (agree->phase == PL_AGREE_DOWN && agree->distance == 0) {
            return false;
        }
        find_peers(agree);
        if (agree->from >= 0 || agree->to >= 0) {
            return true;
        }
        agree->distance = agree->phase == PL_AGREE_DOWN ? agree->distance / 2 : agree->distance * 2;
    }
}

static bool find_first_round(struct pl_agree *agree)
{
    agree->phase = PL_AGREE_UP;
    agree->distance = 1;
    return find_round(agree);
}

static bool find_next_round(struct pl_agree *agree)
{
    if (is_last_up(agree)) {
        agree->phase = PL_AGREE_DOWN;
    }
    agree->distance = agree->phase == PL_AGREE_DOWN ? agree->distance / 2 : agree->distance * 2;
    return find_round(agree);
}

static enum pl_status start_round(struct pl_agree *agree, struct pl_error *reterr)
{
    const struct pl_transport *transport = agree->transport;

    /* The send first: it is what the other rank waits for. */
    if (agree->to >= 0) {
        PL_TRY(transport->send(transport->context, agree->message_out, write_message(agree), agree->to, agree->tag,
                               &agree->out, reterr));
    }
    if (agree->from >= 0) {
        /* Room for the longest message, which a rank that calls something else may send. */
        PL_TRY(transport->recv(transport->context, agree->message_in, MESSAGE_BYTES, agree->from, agree->tag,
                               &agree->in, reterr));
    }
    return PL_OK;
}

enum pl_status pl_agree_start(struct pl_agree *agree, const struct pl_signature *signature, const void *data,
                              uint64_t block_bytes, const struct pl_reduction *reduction, struct pl_error *reterr)
{
    agree->tag = pl_agree_tag(signature->sequence, PL_AGREE_SLOTS - 1);
    agree->card.own = *signature;
    agree->card.a_rank = PL_AGREE_NONE;
    agree->block_bytes = block_bytes;
    agree->summed = reduction != NULL;
    if (agree->summed) {
        void *dest = agree->held;

        pl_kernel_reduce(agree->kernel, reduction, &dest, 1, &data, 1, block_bytes / pl_dtype_bytes(reduction->dtype));
        agree->reduction = *reduction;
        agree->reduction.prescale = 1;
    } else if (block_bytes) {
        memcpy(agree->held + (size_t)(agree->starts[agree->host] + agree->local) * block_bytes, data, block_bytes);
    }
    agree->done = !find_first_round(agree);
    return start_round(agree, reterr);
}

static enum pl_status end_round(struct pl_agree *agree, size_t bytes, struct pl_error *reterr)
{
    const struct pl_agree_card *theirs = (const void *)agree->message_in;

    if (bytes < HEAD_BYTES || (theirs->a_rank >= 0 && bytes < sizeof(*theirs))) {
        return pl_error_set(reterr, PL_CORRUPT, "rank %d sent %zu bytes, which are no record of a call",
                            pl_world_label(agree->world, agree->from), bytes);
    }
    note(&agree->card, pl_world_rank(agree->world), theirs, agree->from);
    if (agree->card.a_rank == PL_AGREE_NONE && agree->block_bytes) {
        take_data(agree, agree->message_in + HEAD_BYTES);
    }
    return PL_OK;
}

enum pl_status pl_agree_progress(struct pl_agree *agree, uint64_t *moves, struct pl_error *reterr)
{
    const struct pl_transport *transport = agree->transport;

    while (!agree->done) {
        size_t bytes;
        bool done;

        if (agree->in.active) {
            PL_TRY(transport->test(transport->context, &agree->in, &done, &bytes, reterr));
            if (done) {
                ++*moves;
                PL_TRY(end_round(agree, bytes, reterr));
            }
        }
        if (agree->out.active) {
            PL_TRY(transport->test(transport->context, &agree->out, &done, &bytes, reterr));
        }
        if (agree->in.active || agree->out.active) {
            return PL_OK;
        }
        agree->done = !find_next_round(agree);
        if (!agree->done) {
            PL_TRY(start_round(agree, reterr));
        }
    }
    if (agree->card.a_rank != PL_AGREE_NONE) {
        return pl_signature_mismatch(&agree->card.a, pl_world_label(agree->world, agree->card.a_rank), &agree->card.b,
                                     pl_world_label(agree->world, agree->card.b_rank), reterr);
    }
    return PL_OK;
}

const void *pl_agree_data(const struct pl_agree *agree, int rank)
{
    bool apart = pl_world_cross_size(agree->world) > 1;
    int place =
        apart ? agree->starts[pl_world_host_of(agree->world, rank)] + pl_world_local_of(agree->world, rank) : rank;

    return agree->held + (agree->summed ? 0 : (size_t)place * agree->block_bytes);
}

int pl_agree_waits_for(const struct pl_agree *agree)
{
    return agree->in.active ? agree->from : agree->out.active ? agree->to : -1;
}

void pl_agree_cancel(struct pl_agree *agree)
{
    /* A message that cannot be cancelled may access its buffer until the process ends: leak it, never reuse it. */
    if (agree->in.active && !agree->transport->cancel(agree->transport->context, &agree->in)) {
        agree->message_in = NULL;
    }
    if (agree->out.active && !agree->transport->cancel(agree->transport->context, &agree->out)) {
        agree->message_out = NULL;
    }
}
