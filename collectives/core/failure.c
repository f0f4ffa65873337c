/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the late rank: follows by messages which rank waits for which, up to a rank that waits for no other. Revokes a
 * world by messages. Votes on a step. */

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <string.h>

static const int64_t BEFORE_LONGEST_NS = 10 * PL_NS_PER_S;
/* When to ask again: a rank answers first with the rank that it waits for, later with what it has learned by asking. */
static const int64_t ASK_AGAIN_NS = 50 * PL_NS_PER_MS;

_Static_assert(sizeof(struct pl_late_message) <= PL_TRANSPORT_LATE_BYTES, "a message fits in its buffer");
_Static_assert(sizeof(struct pl_late_message) != sizeof(struct pl_revoke), "their lengths distinguish them");

int pl_late_waits_for(const struct pl_world *world)
{
    const struct pl_request *head = world->first;

    if (!head || head->phase != PL_REQUEST_RUNNING || !head->backend->backend->waits_for) {
        return -1;
    }
    return head->backend->backend->waits_for(head->backend->state, head);
}

int64_t pl_late_begin_ns(int64_t now_ns, int64_t deadline_ns)
{
    int64_t before_ns = (deadline_ns - now_ns) / 2;

    return deadline_ns - (before_ns < BEFORE_LONGEST_NS ? before_ns : BEFORE_LONGEST_NS);
}

static void test(struct pl_world *world, struct pl_transfer *out)
{
    struct pl_transport *transport = world->bootstrap->transport;
    size_t bytes;
    bool done;

    if (out->active) {
        (void)!transport->test(transport->context, out, &done, &bytes, NULL);
    }
}

/*
 * Sends a query or an answer. Only one query and one answer are under way at a time; others are dropped, because a rank
 * that asks repeats its query. A query may stay under way as long as its receiver is late, since MPI may have to
 * connect first; answers go to ranks that wait.
 */
static void send(struct pl_world *world, int to, const struct pl_late_message *message)
{
    struct pl_transport *transport = world->bootstrap->transport;
    struct pl_transfer *out = &world->late.out[message->answers];
    char *data = transport->late_out[message->answers];

    test(world, out);
    if (!out->active) {
        memcpy(data, message, sizeof(*message));
        (void)!transport->send(transport->context, data, sizeof(*message), to, PL_TAG_REVOKE, out, NULL);
        test(world, out);
    }
}

void pl_late_search(struct pl_world *world, int64_t now_ns)
{
    struct pl_late *late = &world->late;
    int first = pl_late_waits_for(world);
    bool is_new;

    if (first < 0 || !world->can_revoke) {
        return;
    }
    is_new = late->sequence != world->first->signature.sequence || late->first != first;
    if (is_new) {
        late->sequence = world->first->signature.sequence;
        late->first = first;
        late->rank = first;
    }
    if (is_new || now_ns - late->asked_ns > ASK_AGAIN_NS) {
        late->asked_ns = now_ns;
        send(world, first, &(struct pl_late_message){.from = world->rank});
    }
    world->revoke_polls = PL_REVOKE_POLLS - 1; /* so that the next poll receives the answer */
}

void pl_late_take(struct pl_world *world, const struct pl_late_message *message)
{
    struct pl_late *late = &world->late;

    if (message->from < 0 || message->from >= world->size || message->late >= world->size) {
        return; /* a message of an earlier world with the same communicator */
    }
    if (!message->answers) {
        pl_late_search(world, pl_clock_now_ns());
        send(world, message->from,
             &(struct pl_late_message){.answers = true, .from = world->rank, .late = pl_late_rank(world)});
        return;
    }
    /* If two ranks wait for each other, a message was lost, and the search stops. */
    if (message->from == late->first && message->late >= 0 && message->late != world->rank) {
        late->rank = message->late;
    }
}

int pl_late_rank(const struct pl_world *world)
{
    const struct pl_late *late = &world->late;
    int first = pl_late_waits_for(world);

    return first >= 0 && late->sequence == world->first->signature.sequence && late->first == first ? late->rank
                                                                                                    : first;
}

void pl_late_done(struct pl_world *world)
{
    struct pl_transport *transport = world->bootstrap->transport;

    for (int i = 0; i < 2; i++) {
        test(world, &world->late.out[i]);
        if (world->late.out[i].active) {
            transport->cancel(transport->context, &world->late.out[i]);
        }
    }
}

enum { DISTANCES_MOST = 31 };

/* How long messages may take to leave. A waiting rank takes them soon; a rank that is dead or computes does not. */
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

/* Writes the error that other ranks report. A timeout or mismatch stays what it is, since it is theirs too; any other
 * error becomes the loss of this rank. */
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
    /* Errors are ignored: a rank that gets no message fails at its own deadline, or when its peer has gone. */
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

enum pl_status pl_world_vote(struct pl_world *world, struct pl_packed_error *vote, int64_t deadline_ns,
                             struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_packed_error *all = NULL;

    PL_TRY(pl_bootstrap_gather(world->bootstrap, vote, sizeof(*vote), deadline_ns, &all, reterr));
    for (int r = 0; r < world->size; r++) {
        if (all[r].status != PL_OK) {
            *vote = all[r];
            return PL_OK;
        }
    }
    return PL_OK;
}
