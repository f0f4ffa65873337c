/* SPDX-License-Identifier: Apache-2.0 */
/* Following who waits for whom, by messages, to the rank that waits for nobody. */
#include "collectives/core/late.h"

#include "base/clock.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/revoke.h"
#include "collectives/core/types.h"

#include <string.h>

static const int64_t BEFORE_LONGEST_NS = 10 * PL_NS_PER_S;
/* A query may come when a rank has just begun to wait, and knows not yet for whom. */
static const int64_t ASK_AGAIN_NS = 500 * PL_NS_PER_MS;

_Static_assert(sizeof(struct pl_late_message) <= PL_TRANSPORT_LATE_BYTES, "a query fits");
_Static_assert(sizeof(struct pl_late_message) != sizeof(struct pl_revoke), "their lengths tell them apart");

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
 * One query and one answer are under way at a time, and others are lost meanwhile: who asks does so again. A query may
 * stay under way for as long as the rank that it goes to is late, since MPI may have to connect first; answers go to
 * ranks that wait.
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

static void ask(struct pl_world *world, int64_t now_ns)
{
    struct pl_late *late = &world->late;

    late->asked_ns = now_ns;
    send(world, late->rank, &(struct pl_late_message){.number = late->number, .from = world->rank});
}

static void ask_next(struct pl_world *world, int rank, int64_t now_ns)
{
    world->late.rank = rank;
    world->late.number++;
    ask(world, now_ns);
}

void pl_late_search(struct pl_world *world, int64_t now_ns)
{
    struct pl_late *late = &world->late;
    int first = pl_late_waits_for(world);

    if (first < 0 || !world->can_revoke) {
        return;
    }
    if (late->sequence != world->first->signature.sequence || late->first != first) {
        late->sequence = world->first->signature.sequence;
        late->first = first;
        late->steps = 0;
        ask_next(world, first, now_ns);
    } else if (now_ns - late->asked_ns > ASK_AGAIN_NS) {
        ask(world, now_ns);
    }
    world->revoke_polls = PL_REVOKE_POLLS - 1; /* the next poll looks for the answer */
}

void pl_late_take(struct pl_world *world, const struct pl_late_message *message)
{
    struct pl_late *late = &world->late;
    int waits_for = message->waits_for;

    if (message->from < 0 || message->from >= world->size || waits_for >= world->size) {
        return; /* of a world that had this communicator before */
    }
    if (!message->answers) {
        send(world, message->from,
             &(struct pl_late_message){.number = message->number,
                                       .answers = true,
                                       .from = world->rank,
                                       .waits_for = pl_late_waits_for(world)});
        return;
    }
    /* Ranks that wait for each other have lost a message: where that is so, the search goes no further. */
    if (message->number == late->number && message->from == late->rank && waits_for >= 0 && waits_for != world->rank &&
        late->steps < world->size) {
        late->steps++;
        ask_next(world, waits_for, pl_clock_now_ns());
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
