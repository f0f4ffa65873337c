/* SPDX-License-Identifier: Apache-2.0 */
/* Revoking a world: a failed rank sends its error to others by messages, which relay it. */
/* Sending and receiving the message that ends the others' worlds. */
#include "collectives/core/revoke.h"

#include "base/clock.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/types.h"

enum { DISTANCES_MOST = 31 };

/* A rank that waits, too, takes a message within a nap and some round trips; one that is dead or computes does not. */
static const int64_t LEAVE_NS = 250 * PL_NS_PER_MS;

_Static_assert(sizeof(struct pl_notice) <= PL_TRANSPORT_NOTICE_BYTES, "a revoke message fits");

void pl_world_pass_on(const struct pl_world *world, enum pl_status status, const struct pl_error *why,
                      struct pl_error *ret_heard)
{
    int rank = pl_world_label(world, world->rank);
    char words[PL_ERROR_CAUSE_BYTES];

    if (why->domain == PL_DOMAIN_RANK) {
        (void)pl_error_raise(ret_heard, status, PL_DOMAIN_RANK, why->code, "%s", why->cause);
    } else {
        (void)pl_error_raise(ret_heard, status, PL_DOMAIN_RANK, rank, "rank %d has given up: %s", rank,
                             pl_error_text(why, words, sizeof(words)));
    }
}

/* What others report: the same timeout or mismatch, since they share that; otherwise that they have lost this rank. */
static void write_notice(const struct pl_world *world, struct pl_notice *notice)
{
    const struct pl_error *why = &world->failure;

    notice->sequence = world->first ? world->first->signature.sequence : world->sequence + 1;
    if (why->status == PL_MISMATCH) {
        notice->heard = *why;
    } else {
        pl_world_pass_on(world, why->status == PL_TIMEOUT ? PL_TIMEOUT : PL_PEER, why, &notice->heard);
    }
}

void pl_notice_tell(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;
    int64_t deadline_ns = pl_deadline_after_ns(LEAVE_NS);
    struct pl_transfer out[DISTANCES_MOST] = {{0}};
    struct pl_notice *notice;

    if (!world->has_notices) {
        return;
    }
    transport->told = true;
    notice = (void *)transport->notice_out;
    write_notice(world, notice);
    for (int i = 0; 1 << i < world->size; i++) {
        (void)!transport->send(transport->context, notice, sizeof(*notice), (world->rank + (1 << i)) % world->size,
                               PL_TAG_NOTICE, &out[i], NULL);
    }
    /* A rank that no message can be sent to finds out by itself. */
    for (int i = 0; 1 << i < world->size; i++) {
        if (out[i].active) {
            (void)!pl_transfer_wait(transport, &out[i], deadline_ns, "notice", (world->rank + (1 << i)) % world->size,
                                    NULL);
        }
        if (out[i].active) {
            transport->cancel(transport->context, &out[i]);
        }
    }
}

/* Receive what has come; of several messages the one about the earliest collective counts. */
static void take(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;
    struct pl_transfer *in = &world->notice_in;
    const struct pl_notice *notice = (void *)transport->notice_in;
    bool done = true;
    size_t bytes;
    int from;

    while (done) {
        if (!in->active && (!transport->probe(transport->context, PL_TAG_NOTICE, &from) ||
                            transport->recv(transport->context, transport->notice_in, sizeof(*notice), from,
                                            PL_TAG_NOTICE, in, NULL) != PL_OK)) {
            return;
        }
        done = false;
        if (transport->test(transport->context, in, &done, &bytes, NULL) == PL_OK && done && bytes == sizeof(*notice) &&
            (!world->notice.sequence || notice->sequence < world->notice.sequence)) {
            world->notice = *notice;
        }
    }
}

enum pl_status pl_notice_hear(struct pl_world *world, struct pl_error *reterr)
{
    if (!world->has_notices || ++world->notice_polls % PL_NOTICE_POLLS) {
        return PL_OK;
    }
    take(world);
    if (!world->notice.sequence || world->notice.sequence > world->first->signature.sequence) {
        return PL_OK;
    }
    *reterr = world->notice.heard;
    return reterr->status;
}

void pl_notice_done(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;

    if (world->notice_in.active) {
        transport->cancel(transport->context, &world->notice_in);
    }
}
