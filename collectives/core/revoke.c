/* SPDX-License-Identifier: Apache-2.0 */
/* Revoking a world: a failed rank sends its error to other ranks by messages, and those relay it. */
#include "collectives/core/revoke.h"

#include "base/clock.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/late.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

enum { DISTANCES_MOST = 31 };

/* A rank that waits takes a message within one sleep and some round trips; a rank that is dead or computes does not. */
static const int64_t LEAVE_NS = 250 * PL_NS_PER_MS;

_Static_assert(sizeof(struct pl_revoke) <= PL_TRANSPORT_REVOKE_BYTES, "a revoke message fits in its buffer");

void pl_revoke_relay_error(const struct pl_world *world, enum pl_status status, const struct pl_error *why,
                           struct pl_error *ret_received)
{
    int rank = pl_world_global_rank(world, world->rank);
    char scratch[PL_ERROR_CAUSE_BYTES], name[PL_RANK_NAME_BYTES];

    if (why->domain == PL_DOMAIN_RANK) {
        pl_error_raise(ret_received, status, PL_DOMAIN_RANK, why->code, "%s", why->cause);
    } else {
        pl_error_raise(ret_received, status, PL_DOMAIN_RANK, rank, "%s has given up: %s",
                       pl_world_rank_name(world, world->rank, name), pl_error_text(why, scratch, sizeof(scratch)));
    }
}

/* Writes what others report: the same timeout or mismatch, since it is theirs too; otherwise that they have lost
 * this rank. */
static void write_revoke(const struct pl_world *world, struct pl_revoke *revoke)
{
    const struct pl_error *why = &world->failure;

    revoke->sequence = world->first ? world->first->signature.sequence : world->sequence + 1;
    if (why->status == PL_MISMATCH) {
        revoke->received = *why;
    } else {
        pl_revoke_relay_error(world, why->status == PL_TIMEOUT ? PL_TIMEOUT : PL_PEER, why, &revoke->received);
    }
}

void pl_revoke_send(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;
    int64_t deadline_ns = pl_deadline_after_ns(LEAVE_NS);
    struct pl_transfer out[DISTANCES_MOST] = {{0}};
    struct pl_revoke *revoke;

    if (!world->can_revoke) {
        return;
    }
    transport->revoked = true;
    revoke = (void *)transport->revoke_out;
    write_revoke(world, revoke);
    for (int i = 0; 1 << i < world->size; i++) {
        (void)!transport->send(transport->context, revoke, sizeof(*revoke), (world->rank + (1 << i)) % world->size,
                               PL_TAG_REVOKE, &out[i], NULL);
    }
    /* A rank that cannot be reached finds out by itself. */
    for (int i = 0; 1 << i < world->size; i++) {
        if (out[i].active) {
            (void)!pl_bootstrap_wait_transfer(transport, &out[i], deadline_ns, "revoke message",
                                              (world->rank + (1 << i)) % world->size, NULL);
        }
        if (out[i].active) {
            transport->cancel(transport->context, &out[i]);
        }
    }
}

/* Receives the messages that have come; of several revoke messages the one about the earliest collective is kept. */
static void take(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;
    struct pl_transfer *in = &world->revoke_in;
    const struct pl_revoke *revoke = (void *)transport->revoke_in;
    bool done = true;
    size_t bytes;
    int from;

    while (done) {
        if (!in->active && (!transport->probe(transport->context, PL_TAG_REVOKE, &from) ||
                            transport->recv(transport->context, transport->revoke_in, sizeof(*revoke), from,
                                            PL_TAG_REVOKE, in, NULL) != PL_OK)) {
            return;
        }
        done = false;
        if (transport->test(transport->context, in, &done, &bytes, NULL) != PL_OK || !done) {
            continue;
        }
        if (bytes == sizeof(struct pl_late_message)) {
            pl_late_take(world, (const void *)transport->revoke_in);
        } else if (bytes == sizeof(*revoke) && (!world->revoke.sequence || revoke->sequence < world->revoke.sequence)) {
            world->revoke = *revoke;
        }
    }
}

enum pl_status pl_revoke_receive(struct pl_world *world, struct pl_error *reterr)
{
    if (!world->can_revoke || ++world->revoke_polls % PL_REVOKE_POLLS) {
        return PL_OK;
    }
    take(world);
    if (!world->revoke.sequence || world->revoke.sequence > world->first->signature.sequence) {
        return PL_OK;
    }
    *reterr = world->revoke.received;
    return reterr->status;
}

void pl_revoke_done(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;

    if (world->revoke_in.active) {
        transport->cancel(transport->context, &world->revoke_in);
    }
}
