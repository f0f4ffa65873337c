/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agreement. In the round of distance d = 1, 2, 4, ... a rank tells the one d above what it calls and which disagreement it
 * knows of, so after the last round everything has reached everybody. If two ranks differ anywhere, some message on the way between
 * them crosses from one opinion to the other; its receiver sees both, and passes that on.
 */
#include "collectives/exchange.h"

#include <string.h>

static bool reduces(enum pl_kind kind)
{
    return kind == PL_ALLREDUCE || kind == PL_REDUCE || kind == PL_REDUCE_SCATTER;
}

uint64_t pl_agree_inline_bytes(const struct pl_exchange *exchange, const struct pl_collective *collective)
{
    uint64_t elems = collective->count;
    uint64_t limit = PL_EXCHANGE_INLINE_BYTES / ((uint64_t)exchange->size * pl_dtype_bytes(collective->dtype));

    if (collective->kind == PL_REDUCE_SCATTER) {
        elems = exchange->recv_at[exchange->size];
    } else if (!reduces(collective->kind) && (collective->kind != PL_ALLGATHER || collective->counts)) {
        return 0;
    }
    return elems <= limit ? elems * pl_dtype_bytes(collective->dtype) : 0;
}

static void note(struct pl_agree_card *mine, int my_rank, const struct pl_agree_card *theirs, int their_rank)
{
    if (mine->a_rank >= 0) {
        return;
    }
    if (theirs->a_rank >= 0) {
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

static size_t blocks_in_round(const struct pl_exchange *exchange)
{
    int rest = exchange->size - exchange->agree.distance;

    return (size_t)(exchange->agree.distance < rest ? exchange->agree.distance : rest);
}

static enum pl_status start_round(struct pl_exchange *exchange, struct pl_error *reterr)
{
    struct pl_agree *agree = &exchange->agree;
    const struct pl_transport *transport = exchange->transport;
    uint32_t tag = pl_exchange_tag(exchange, PL_EXCHANGE_LANES);
    size_t inline_bytes = blocks_in_round(exchange) * agree->block_bytes;
    int to = (exchange->rank + agree->distance) % exchange->size;
    int from = (exchange->rank - agree->distance + exchange->size) % exchange->size;

    memcpy(agree->message_out, &agree->card, sizeof(agree->card));
    memcpy(agree->message_out + sizeof(agree->card), agree->held, inline_bytes);
    /* Room for whatever a rank of another opinion may send. */
    PL_TRY(transport->recv(transport->context, agree->message_in, sizeof(agree->card) + PL_EXCHANGE_INLINE_BYTES, from, tag, &agree->in, reterr));
    return transport->send(transport->context, agree->message_out, sizeof(agree->card) + inline_bytes, to, tag, &agree->out, reterr);
}

enum pl_status pl_agree_start(struct pl_exchange *exchange, struct pl_error *reterr)
{
    struct pl_agree *agree = &exchange->agree;

    agree->done = false;
    agree->distance = 1;
    agree->card.own = exchange->request->signature;
    agree->card.a_rank = -1;
    agree->block_bytes = pl_agree_inline_bytes(exchange, &exchange->request->collective);
    if (agree->block_bytes) {
        memcpy(agree->held, exchange->request->collective.send, agree->block_bytes);
    }
    return start_round(exchange, reterr);
}

static enum pl_status end_round(struct pl_exchange *exchange, size_t bytes, struct pl_error *reterr)
{
    struct pl_agree *agree = &exchange->agree;
    int from = (exchange->rank - agree->distance + exchange->size) % exchange->size;
    size_t inline_bytes = blocks_in_round(exchange) * agree->block_bytes;
    struct pl_agree_card theirs;

    if (bytes < sizeof(theirs)) {
        return pl_error_set(reterr, PL_CORRUPT, "rank %d sent %zu bytes where a card of %zu was expected", from, bytes, sizeof(theirs));
    }
    memcpy(&theirs, agree->message_in, sizeof(theirs));
    note(&agree->card, exchange->rank, &theirs, from);
    if (agree->card.a_rank < 0 && inline_bytes) {
        memcpy(agree->held + (size_t)agree->distance * agree->block_bytes, agree->message_in + sizeof(theirs), inline_bytes);
    }
    return PL_OK;
}

enum pl_status pl_agree_progress(struct pl_exchange *exchange, struct pl_error *reterr)
{
    struct pl_agree *agree = &exchange->agree;
    const struct pl_transport *transport = exchange->transport;

    while (!agree->done) {
        size_t bytes;
        bool done;

        if (agree->in.active) {
            PL_TRY(transport->test(transport->context, &agree->in, &done, &bytes, reterr));
            if (done) {
                exchange->request->moves++;
                PL_TRY(end_round(exchange, bytes, reterr));
            }
        }
        if (agree->out.active) {
            PL_TRY(transport->test(transport->context, &agree->out, &done, &bytes, reterr));
        }
        if (agree->in.active || agree->out.active) {
            return PL_OK;
        }
        agree->distance *= 2;
        if (agree->distance >= exchange->size) {
            agree->done = true;
        } else {
            PL_TRY(start_round(exchange, reterr));
        }
    }
    if (agree->card.a_rank >= 0) {
        return pl_signature_mismatch(&agree->card.a, agree->card.a_rank, &agree->card.b, agree->card.b_rank, reterr);
    }
    return PL_OK;
}

void pl_agree_cancel(struct pl_exchange *exchange)
{
    struct pl_agree *agree = &exchange->agree;
    const struct pl_transport *transport = exchange->transport;

    /* The buffers are the exchange's own and live as long as it does. */
    if (agree->in.active) {
        (void)transport->cancel(transport->context, &agree->in);
    }
    if (agree->out.active) {
        (void)transport->cancel(transport->context, &agree->out);
    }
}
