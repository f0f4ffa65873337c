/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the round of distance d = 1, 2, 4, ... a rank tells another what it calls and which disagreement it knows of, so after the last
 * round everything has reached everybody: the rank d above or, of a power of two of ranks, the one whose number differs in the bit d.
 * The latter keeps the first rounds inside a host where each has its share of the ranks in a row. If two ranks differ anywhere, some
 * message on the way between them crosses from one opinion to the other; its receiver sees both, and passes that on.
 *
 * A rank that says farewell sends its messages of all rounds at once, so that those who do not know yet miss nothing of it.
 */
#include "collectives/agree.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <stdlib.h>
#include <string.h>

uint32_t pl_agree_tag(uint64_t sequence, unsigned slot)
{
    /* 13 bits of the sequence: a message left over from a cancelled collective cannot be taken for one of the next. */
    return PL_TAG_EXCHANGE + (uint32_t)(sequence & 0x1fff) * PL_AGREE_SLOTS + slot;
}

_Static_assert(PL_TAG_EXCHANGE + 0x2000 * PL_AGREE_SLOTS <= 1 << PL_TAG_BITS, "tags fit");

enum pl_status pl_agree_init(struct pl_agree *agree, const struct pl_world *world, struct pl_error *reterr)
{
    size_t message_bytes = sizeof(struct pl_agree_card) + PL_AGREE_ROOM_BYTES;

    _Static_assert(sizeof(agree->heard) <= PL_AGREE_ROOM_BYTES, "a farewell fits");

    *agree = (struct pl_agree){
        .world = world, .transport = pl_world_bootstrap(world)->transport, .rank = pl_world_rank(world), .size = pl_world_size(world)};
    agree->message_in = pl_memory_new(message_bytes, 1, reterr);
    agree->message_out = pl_memory_new(message_bytes, 1, reterr);
    agree->held = pl_memory_new(PL_AGREE_ROOM_BYTES, 1, reterr);
    if (!agree->message_in || !agree->message_out || !agree->held) {
        pl_agree_done(agree);
        return PL_MEMORY;
    }
    return PL_OK;
}

void pl_agree_done(struct pl_agree *agree)
{
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
        mine->a_rank = theirs->a_rank;
        mine->b_rank = theirs->b_rank;
        mine->a = theirs->a;
        mine->b = theirs->b;
    } else if (!pl_signature_equal(&mine->own, &theirs->own)) {
        mine->a_rank = my_rank;
        mine->a = mine->own;
        mine->b_rank = their_rank;
        mine->b = theirs->own;
    }
}

/* Bytes of data that ride with the round's message. */
static size_t data_bytes(const struct pl_agree *agree)
{
    int rest = agree->size - agree->distance;

    return (size_t)(agree->distance < rest ? agree->distance : rest) * agree->block_bytes;
}

static bool is_power_of_two(int size)
{
    return (size & (size - 1)) == 0;
}

/* The rank `distance` below; and how far below a rank is. */
static int below(const struct pl_agree *agree, int distance)
{
    return is_power_of_two(agree->size) ? agree->rank ^ distance : (agree->rank - distance + agree->size) % agree->size;
}

/* The rank that it hears from in this round. */
static int rank_below(const struct pl_agree *agree)
{
    return below(agree, agree->distance);
}

/* The rank that it tells. */
static int rank_above(const struct pl_agree *agree)
{
    return is_power_of_two(agree->size) ? rank_below(agree) : (agree->rank + agree->distance) % agree->size;
}

/* Lay out the card and what rides with it; how many bytes that is. */
static size_t write_message(struct pl_agree *agree)
{
    bool farewell = agree->card.a_rank == PL_AGREE_FAREWELL;
    size_t bytes = farewell ? sizeof(agree->heard) : data_bytes(agree);

    memcpy(agree->message_out, &agree->card, sizeof(agree->card));
    memcpy(agree->message_out + sizeof(agree->card), farewell ? (const void *)&agree->heard : agree->held, bytes);
    return sizeof(agree->card) + bytes;
}

static enum pl_status start_round(struct pl_agree *agree, struct pl_error *reterr)
{
    const struct pl_transport *transport = agree->transport;
    size_t bytes = write_message(agree);

    /* Room for whatever a rank of another opinion may send. */
    PL_TRY(transport->recv(transport->context, agree->message_in, sizeof(agree->card) + PL_AGREE_ROOM_BYTES, rank_below(agree), agree->tag,
                           &agree->in, reterr));
    return transport->send(transport->context, agree->message_out, bytes, rank_above(agree), agree->tag, &agree->out, reterr);
}

enum pl_status pl_agree_start(struct pl_agree *agree, const struct pl_signature *signature, const void *data, uint64_t block_bytes,
                              struct pl_error *reterr)
{
    agree->done = false;
    agree->distance = 1;
    agree->tag = pl_agree_tag(signature->sequence, PL_AGREE_SLOTS - 1);
    agree->card.own = *signature;
    agree->card.a_rank = PL_AGREE_NONE;
    agree->block_bytes = block_bytes;
    if (block_bytes) {
        memcpy(agree->held, data, block_bytes);
    }
    return start_round(agree, reterr);
}

static enum pl_status end_round(struct pl_agree *agree, size_t bytes, struct pl_error *reterr)
{
    const char *rest = agree->message_in + sizeof(agree->card);
    int32_t known = agree->card.a_rank;
    struct pl_agree_card theirs;

    if (bytes < sizeof(theirs)) {
        return pl_error_set(reterr, PL_CORRUPT, "rank %d sent %zu bytes where a card of %zu was expected",
                            pl_world_label(agree->world, rank_below(agree)), bytes, sizeof(theirs));
    }
    memcpy(&theirs, agree->message_in, sizeof(theirs));
    note(&agree->card, agree->rank, &theirs, rank_below(agree));
    if (agree->card.a_rank == PL_AGREE_NONE) {
        memcpy(agree->held + (size_t)agree->distance * agree->block_bytes, rest, data_bytes(agree));
    } else if (agree->card.a_rank == PL_AGREE_FAREWELL && known == PL_AGREE_NONE) {
        memcpy(&agree->heard, rest, sizeof(agree->heard));
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
        agree->distance *= 2;
        if (agree->distance >= agree->size) {
            agree->done = true;
        } else {
            PL_TRY(start_round(agree, reterr));
        }
    }
    if (agree->card.a_rank == PL_AGREE_FAREWELL) {
        *reterr = agree->heard;
        return agree->heard.status;
    }
    if (agree->card.a_rank != PL_AGREE_NONE) {
        return pl_signature_mismatch(&agree->card.a, pl_world_label(agree->world, agree->card.a_rank), &agree->card.b,
                                     pl_world_label(agree->world, agree->card.b_rank), reterr);
    }
    return PL_OK;
}

const void *pl_agree_data(const struct pl_agree *agree, int rank)
{
    return agree->held + (size_t)below(agree, rank) * agree->block_bytes;
}

int pl_agree_waits_for(const struct pl_agree *agree)
{
    return agree->in.active ? rank_below(agree) : agree->out.active ? rank_above(agree) : -1;
}

void pl_agree_cancel(struct pl_agree *agree)
{
    /* What cannot be taken back may be touched until the process ends: that memory is better lost than reused. */
    if (agree->in.active && !agree->transport->cancel(agree->transport->context, &agree->in)) {
        agree->message_in = NULL;
    }
    if (agree->out.active && !agree->transport->cancel(agree->transport->context, &agree->out)) {
        agree->message_out = NULL;
    }
}

void pl_agree_farewell(struct pl_agree *agree, uint64_t sequence, const struct pl_error *why)
{
    const struct pl_transport *transport = agree->transport;
    int64_t deadline_ns = pl_deadline_after_ns(PL_NS_PER_S);
    const char *message = agree->message_out;
    size_t bytes;

    agree->card = (struct pl_agree_card){.own = {.sequence = sequence}, .a_rank = PL_AGREE_FAREWELL};
    agree->tag = pl_agree_tag(sequence, PL_AGREE_SLOTS - 1);
    pl_world_pass_on(agree->world, PL_PEER, why, &agree->heard);
    bytes = write_message(agree);
    /* To whom nothing can be said notices by itself. */
    for (agree->distance = 1; agree->distance < agree->size; agree->distance *= 2) {
        int peer = rank_above(agree);

        if (transport->send(transport->context, message, bytes, peer, agree->tag, &agree->out, NULL) == PL_OK) {
            (void)!pl_transfer_wait(transport, &agree->out, deadline_ns, "farewell", peer, NULL);
        }
        pl_agree_cancel(agree);
    }
}
