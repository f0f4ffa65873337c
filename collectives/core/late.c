/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rank that is late: follows by messages who waits for whom, up to the rank that waits for no other. */
#include "collectives/core/late.h"

#include "base/clock.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/revoke.h"
#include "collectives/core/types.h"

#include <string.h>

static const int64_t BEFORE_LONGEST_NS = 10 * PL_NS_PER_S;
/* A rank that is asked first answers with the rank that it waits for, and later with what it has learned by asking. */
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
 * Sends a query or an answer. Only one of each is under way at a time, and further ones are dropped meanwhile: the rank
 * that asks sends its query again. A query may stay under way for as long as its receiver is late, since MPI may have
 * to connect first; answers go to ranks that wait.
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
    /* Ranks that wait for each other have lost a message; then the search goes no further. */
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
