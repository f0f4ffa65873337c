/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of a world: posting, advancing, waiting. Requests run one at a time, in the order posted; those of a streamed backend
 * (backend.h) are handed over together and end in order.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Before the first look at the clock, which costs about as much as 20 polls of a shared word; from then on each poll is followed by a look,
     * since one may take milliseconds where MPI or a neighbour keeps the CPU. */
    POLLS_BEFORE_CLOCK = 64,
    POLLS_PER_YIELD = 64, /* somebody else may need this CPU for what we wait for, even where there seem to be enough */
};

static const int64_t NAP_SHORTEST_NS = 20 * PL_NS_PER_US;
static const int64_t NAP_LONGEST_NS = 10 * PL_NS_PER_MS;

static void release(struct pl_request *request)
{
    struct pl_world *world = request->world;

    while (request->member) {
        struct pl_request *member = request->member;

        request->member = member->sibling;
        release(member);
    }
    if (request->counts) {
        free(request->counts);
        request->counts = NULL;
    }
    request->next = world->unused;
    world->unused = request;
}

static struct pl_request *take(struct pl_world *world, struct pl_error *reterr)
{
    struct pl_request *request = world->unused;

    if (!request) {
        request = pl_memory_new(1, sizeof(*request), reterr);
        if (!request) {
            return NULL;
        }
        request->world = world;
        return request;
    }
    world->unused = request->next;
    memset(request->words, 0, sizeof(request->words));
    request->launched = false;
    request->patience = 0;
    request->moves = 0;
    request->backend = NULL;
    request->next = NULL;
    request->member = NULL;
    request->sibling = NULL;
    request->deadline_ns = 0;
    request->wait_began_ns = 0;
    request->status = PL_OK;
    request->phase = PL_REQUEST_QUEUED;
    return request;
}

static void describe(const struct pl_request *request, char name[sizeof(request->signature.name) + 1], struct pl_event *event)
{
    memcpy(name, request->signature.name, sizeof(request->signature.name));
    name[sizeof(request->signature.name)] = '\0';
    *event = (struct pl_event){
        .kind = request->collective.kind,
        .name = name,
        .sequence = request->signature.sequence,
        .bytes = request->signature.count * pl_dtype_bytes(request->collective.dtype),
        .posted_ns = request->posted_ns,
        .started_ns = request->started_ns,
        .ended_ns = pl_clock_now_ns(),
        .waited_for = request->waited_for,
        .status = request->status,
    };
    if (request->wait_began_ns) {
        event->waited_ns = event->ended_ns - request->wait_began_ns;
    }
}

/* A request has ended, well or not. */
static void tell_ended(struct pl_world *world, const struct pl_request *request)
{
    char name[sizeof(request->signature.name) + 1];
    struct pl_event event;

    if (world->observer.ended) {
        describe(request, name, &event);
        world->observer.ended(world->observer.context, &event);
    }
}

void pl_world_observe(struct pl_world *world, const struct pl_observer *observer)
{
    PL_AUTO_HOLD(world);

    world->observer = observer ? *observer : (struct pl_observer){.context = NULL};
}

int pl_world_waits_for(const struct pl_world *world)
{
    const struct pl_request *head = world->first;

    if (!head || head->phase != PL_REQUEST_RUNNING || !head->backend->backend->waits_for) {
        return -1;
    }
    return head->backend->backend->waits_for(head->backend->state, head);
}

/* The world cannot go on: everything queued ends with `error`. The first error stays, with this rank's place where it is `on_device`. */
static enum pl_status end(struct pl_world *world, const struct pl_error *error, bool on_device)
{
    struct pl_request *request;

    if (world->failure.status == PL_OK) {
        world->failure = *error;
        if (on_device) {
            const struct pl_place *place = &world->topology.places[world->rank];

            pl_error_context(&world->failure, "rank %d on host %s, device %d, %s", pl_world_label(world, world->rank), place->host, place->ordinal,
                             place->device);
        }
    }
    for (request = world->first; request && request->phase == PL_REQUEST_RUNNING; request = request->next) {
        request->backend->backend->cancel(request->backend->state, request);
    }
    for (request = world->first; request; request = request->next) {
        request->phase = PL_REQUEST_DONE;
        request->status = world->failure.status;
        tell_ended(world, request);
    }
    world->first = NULL;
    world->last = NULL;
    return world->failure.status;
}

static enum pl_status fail(struct pl_world *world, const struct pl_error *error)
{
    return end(world, error, world->first && world->first->collective.memory == PL_MEMORY_DEVICE);
}

static enum pl_status failure_of(const struct pl_world *world, struct pl_error *reterr)
{
    if (reterr) {
        *reterr = world->failure;
    }
    return world->failure.status;
}

static enum pl_status start(struct pl_world *world, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    request->phase = PL_REQUEST_RUNNING;
    if (world->observer.ended) {
        request->started_ns = pl_clock_now_ns();
    }
    return request->backend->backend->post(request->backend->state, request, ret_done, reterr);
}

/* The head is a streamed backend's and so are those behind it, up to the first that is not: hand over what is not yet, then look after all. */
static enum pl_status stream(struct pl_world *world, bool *ret_done, struct pl_error *reterr)
{
    struct pl_request *head = world->first;

    if (world->last->phase == PL_REQUEST_QUEUED) {
        for (struct pl_request *request = head; request && request->backend == head->backend; request = request->next) {
            if (request->phase == PL_REQUEST_QUEUED) {
                PL_TRY(start(world, request, ret_done, reterr));
            }
        }
    }
    return head->backend->backend->progress(head->backend->state, head, ret_done, reterr);
}

/* Run the queue's head, and those behind it, as far as they get without waiting. */
void pl_request_advance(struct pl_world *world)
{
    while (world->first) {
        struct pl_request *head = world->first;
        const struct pl_world_backend *backend = head->backend;
        struct pl_error error;
        enum pl_status status;
        bool done = false;

        /* The report is read only after a failure, which fills it. */
        if (backend->backend->streamed) {
            status = stream(world, &done, &error);
        } else if (head->phase == PL_REQUEST_QUEUED) {
            status = start(world, head, &done, &error);
        } else {
            status = backend->backend->progress(backend->state, head, &done, &error);
        }
        if (status != PL_OK) {
            (void)fail(world, &error);
            return;
        }
        if (!done) {
            return;
        }
        head->phase = PL_REQUEST_DONE;
        tell_ended(world, head);
        world->first = head->next;
        if (!world->first) {
            world->last = NULL;
        }
    }
}

static enum pl_status choose_backend(const struct pl_world *world, struct pl_request *request, struct pl_error *reterr)
{
    for (int i = 0; i < world->backend_count; i++) {
        const struct pl_world_backend *candidate = &world->backends[i];

        if (candidate->on && candidate->backend->serves(candidate->state, &request->collective)) {
            request->backend = candidate;
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_UNSUPPORTED, "no backend of this world takes %s of %s in this kind of memory",
                        pl_kind_text(request->collective.kind), pl_dtype_text(request->collective.dtype));
}

static enum pl_status prepare(struct pl_world *world, const struct pl_collective *collective, struct pl_request **ret_request,
                              struct pl_error *reterr)
{
    struct pl_request *request = take(world, reterr);
    enum pl_status status;

    if (!request) {
        return PL_MEMORY;
    }
    status = pl_collective_check(world, collective, request, reterr);
    if (status == PL_OK) {
        status = choose_backend(world, request, reterr);
    }
    if (status != PL_OK) {
        if (collective->name) {
            pl_error_context(reterr, "collective '%s'", collective->name);
        }
        release(request);
        return status;
    }
    *ret_request = request;
    return PL_OK;
}

static void enqueue(struct pl_world *world, struct pl_request *request)
{
    request->signature.sequence = ++world->sequence;
    request->waited_for = -1;
    if (world->observer.ended) {
        request->posted_ns = request->started_ns = pl_clock_now_ns();
    }
    if (world->last) {
        world->last->next = request;
    } else {
        world->first = request;
    }
    world->last = request;
}

static inline enum pl_status post(struct pl_world *world, const struct pl_collective *collective, unsigned patience, struct pl_request **ret_request,
                                  struct pl_error *reterr)
{
    struct pl_request *request;

    if (world->failure.status != PL_OK) {
        return failure_of(world, reterr);
    }
    PL_TRY(prepare(world, collective, &request, reterr));
    request->patience = patience;
    enqueue(world, request);
    pl_request_advance(world);
    *ret_request = request;
    return PL_OK;
}

enum pl_status pl_collective_post(struct pl_world *world, const struct pl_collective *collective, struct pl_request **ret_request,
                                  struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    PL_TRY(post(world, collective, 0, ret_request, reterr));
    if (world->first) {
        pl_progress_wake(world->progress);
    }
    return PL_OK;
}

enum pl_status pl_collective_post_group(struct pl_world *world, const struct pl_collective *collectives, size_t count,
                                        struct pl_request **ret_request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    struct pl_request *leader;
    struct pl_request **tail;

    if (world->failure.status != PL_OK) {
        return failure_of(world, reterr);
    }
    leader = take(world, reterr);
    if (!leader) {
        return PL_MEMORY;
    }
    tail = &leader->member;
    for (size_t i = 0; i < count; i++) {
        enum pl_status status = prepare(world, &collectives[i], tail, reterr);

        if (status != PL_OK) {
            pl_error_context(reterr, "member %zu of a group of %zu", i, count);
            release(leader);
            return status;
        }
        tail = &(*tail)->sibling;
    }
    leader->collective.deadline_ns = count ? collectives[count - 1].deadline_ns : 0;
    leader->signature = count ? leader->member->signature : (struct pl_signature){0};
    for (struct pl_request *member = leader->member; member; member = member->sibling) {
        enqueue(world, member);
    }
    pl_request_advance(world);
    if (world->first) {
        pl_progress_wake(world->progress);
    }
    *ret_request = leader;
    return PL_OK;
}

static bool has_ended(struct pl_request *request)
{
    if (request->phase == PL_REQUEST_DONE) {
        return true;
    }
    if (request->backend) {
        return false;
    }
    for (struct pl_request *member = request->member; member; member = member->sibling) {
        if (member->phase != PL_REQUEST_DONE) {
            return false;
        }
        if (member->status != PL_OK) {
            request->status = member->status;
        }
    }
    request->phase = PL_REQUEST_DONE;
    return true;
}

static int64_t deadline_of(struct pl_request *request, int64_t now_ns)
{
    if (!request->deadline_ns) {
        if (request->collective.deadline_ns) {
            request->deadline_ns = request->collective.deadline_ns;
        } else if (request->world->timeout_ns < 0) {
            request->deadline_ns = PL_DEADLINE_NEVER;
        } else {
            request->deadline_ns = now_ns + request->world->timeout_ns;
        }
    }
    return request->deadline_ns;
}

/* The deadline passed: say what stands still, and for whom it waits where that is known. */
static enum pl_status time_out(struct pl_request *request)
{
    struct pl_world *world = request->world;
    struct pl_request *head = world->first;
    struct pl_error error;
    int peer;

    PL_BUG_IF(!head);
    peer = pl_world_waits_for(world);
    (void)pl_error_set(&error, PL_TIMEOUT, "rank %d: collective number %" PRIu64 ", %s%s%.*s%s, did not end before its deadline",
                       pl_world_label(world, world->rank), head->signature.sequence, pl_kind_text(head->collective.kind),
                       head->signature.name[0] ? " '" : "", (int)sizeof(head->signature.name), head->signature.name,
                       head->signature.name[0] ? "'" : "");
    if (peer >= 0) {
        pl_error_context(&error, "still waiting for rank %d", pl_world_label(world, peer));
    }
    return fail(world, &error);
}

enum pl_status pl_request_test(struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);

    if (!has_ended(request)) {
        pl_request_advance(world);
    }
    if (!has_ended(request)) {
        int64_t now_ns = pl_clock_now_ns();

        if (now_ns > deadline_of(request, now_ns)) {
            (void)time_out(request);
            (void)has_ended(request);
        }
    }
    *ret_done = has_ended(request);
    return request->status == PL_OK ? PL_OK : failure_of(world, reterr);
}

/*
 * Out of spin budget: sleep in the backend's way, or nap for a 64th of the time already waited. A message on its way
 * needs looking after; a late peer does not.
 */
static void rest(struct pl_world *world, int64_t idle_ns, int64_t now_ns, int64_t deadline_ns)
{
    struct pl_request *head = world->first;
    const struct pl_world_backend *backend = head->backend;
    int64_t nap_ns = idle_ns / 64;

    nap_ns = nap_ns < NAP_SHORTEST_NS ? NAP_SHORTEST_NS : nap_ns;
    nap_ns = nap_ns > NAP_LONGEST_NS ? NAP_LONGEST_NS : nap_ns;
    if (backend->backend->rest) {
        struct pl_error error;
        int64_t until_ns = now_ns + 10 * NAP_LONGEST_NS;

        if (backend->backend->rest(backend->state, head, until_ns < deadline_ns ? until_ns : deadline_ns, &error) != PL_OK) {
            (void)fail(world, &error);
        }
        return;
    }
    pl_clock_nap(nap_ns, deadline_ns);
}

enum pl_status pl_world_rest(struct pl_world *world, int64_t until_ns, struct pl_error *reterr)
{
    struct pl_request *head = world->first;

    if (!head || head->phase != PL_REQUEST_RUNNING) {
        return PL_OK;
    }
    if (head->backend->backend->rest) {
        return head->backend->backend->rest(head->backend->state, head, until_ns, reterr);
    }
    pl_clock_nap(NAP_SHORTEST_NS, until_ns);
    return PL_OK;
}

enum pl_status pl_world_look(struct pl_world *world, bool *ret_left, struct pl_error *reterr)
{
    *ret_left = false;
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].on && world->backends[i].backend->look) {
            PL_TRY(world->backends[i].backend->look(world->backends[i].state, ret_left, reterr));
        }
    }
    return PL_OK;
}

void pl_world_give_up(struct pl_world *world, enum pl_status why)
{
    struct pl_request *request;
    struct pl_error error;

    if (world->failure.status != PL_OK || prepare(world, &(struct pl_collective){.kind = PL_BARRIER}, &request, NULL) != PL_OK) {
        return;
    }
    /* What is running is cancelled, and with it the peers hear of it; so something has to run, and says what it is about. */
    request->signature.what |= PL_SIGNATURE_FAREWELL;
    enqueue(world, request);
    pl_request_advance(world);
    if (!has_ended(request)) {
        (void)pl_error_set(&error, why, "rank %d gave up", pl_world_label(world, world->rank));
        (void)fail(world, &error);
    }
    release(request);
}

enum pl_status pl_world_check_device(struct pl_world *world, enum pl_status status, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    struct pl_error error;

    if (status == PL_OK || !world->device || world->failure.status != PL_OK || pl_device_failure(world->device, &error) == PL_OK) {
        return status;
    }
    (void)end(world, &error, true);
    if (world->host_part) {
        pl_world_give_up(world->host_part, error.status);
    }
    return failure_of(world, reterr);
}

/* Nothing has moved for `idle_ns`: note whom the head waits for, and say so when that lasts. Returns when to say so next. */
static int64_t watch(struct pl_world *world, int64_t idle_ns, int64_t stall_ns)
{
    char name[sizeof(world->first->signature.name) + 1];
    struct pl_event event;

    if (world->first->waited_for < 0) {
        world->first->waited_for = pl_world_waits_for(world);
    }
    if (!world->observer.stalled || idle_ns < stall_ns) {
        return stall_ns;
    }
    world->first->waited_for = pl_world_waits_for(world);
    describe(world->first, name, &event);
    world->observer.stalled(world->observer.context, &event);
    return 2 * stall_ns;
}

/* Until the request has ended or, where that is enough, is launched. */
static void wait_until_ended(struct pl_request *request, bool launched_is_enough)
{
    struct pl_world *world = request->world;
    int64_t spin_ns = world->topology.oversubscribed ? 0 : world->spin_ns;
    struct pl_request *watched = NULL;
    uint64_t moves = 0;
    int64_t idle_since_ns = 0;
    int64_t stall_ns = world->observer.stall_ns;
    unsigned polls = 0;

    for (;;) {
        int64_t now_ns;

        pl_request_advance(world);
        if (has_ended(request) || (launched_is_enough && request->launched)) {
            return;
        }
        polls++;
        if (world->topology.oversubscribed || polls % POLLS_PER_YIELD == 0) {
            sched_yield();
        } else {
            pl_pause_cpu();
        }
        if (polls < POLLS_BEFORE_CLOCK) {
            continue;
        }
        now_ns = pl_clock_now_ns();
        if (watched != world->first || moves != world->first->moves || !idle_since_ns) {
            watched = world->first;
            moves = world->first->moves;
            idle_since_ns = now_ns;
            stall_ns = world->observer.stall_ns;
            if (!watched->wait_began_ns) {
                watched->wait_began_ns = now_ns;
            }
        }
        if (now_ns > deadline_of(request, now_ns)) {
            (void)time_out(request);
            (void)has_ended(request);
            return;
        }
        if (now_ns - idle_since_ns >= spin_ns) {
            stall_ns = watch(world, now_ns - idle_since_ns, stall_ns);
            rest(world, now_ns - idle_since_ns, now_ns, request->deadline_ns);
        }
    }
}

static enum pl_status wait_for(struct pl_request *request, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    enum pl_status status;

    if (!has_ended(request)) {
        wait_until_ended(request, false);
    }
    status = request->status;
    release(request);
    return status == PL_OK ? PL_OK : failure_of(world, reterr);
}

enum pl_status pl_request_wait(struct pl_request *request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(request->world);

    return wait_for(request, reterr);
}

/* pl_request_order() under the lock. */
static enum pl_status order(struct pl_request *request, void *stream, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    struct pl_error error;

    for (struct pl_request *member = request->member; member; member = member->sibling) {
        PL_TRY(order(member, stream, reterr));
    }
    if (!request->backend) {
        return PL_OK;
    }
    if (!has_ended(request) && !request->launched) {
        wait_until_ended(request, true);
    }
    if (has_ended(request)) {
        return request->status == PL_OK ? PL_OK : failure_of(world, reterr);
    }
    (void)deadline_of(request, pl_clock_now_ns());
    if (request->backend->backend->order(request->backend->state, request, stream, &error) != PL_OK) {
        (void)fail(world, &error);
        return failure_of(world, reterr);
    }
    return PL_OK;
}

enum pl_status pl_request_order(struct pl_request *request, void *stream, struct pl_error *reterr)
{
    PL_AUTO_HOLD(request->world);

    return order(request, stream, reterr);
}

void pl_request_cancel(struct pl_request *request)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);

    if (!has_ended(request)) {
        struct pl_error error;

        (void)pl_error_set(&error, PL_CANCELLED, "rank %d gave up %s", world->rank, pl_kind_text((enum pl_kind)(request->signature.what & 0xff)));
        (void)fail(world, &error);
    }
    release(request);
}

void pl_request_drop_all(struct pl_world *world)
{
    if (world->first) {
        struct pl_error error;

        (void)pl_error_set(&error, PL_CANCELLED, "the world was freed with collectives outstanding");
        (void)fail(world, &error);
    }
    while (world->unused) {
        struct pl_request *request = world->unused;

        world->unused = request->next;
        free(request);
    }
}

enum pl_status pl_collective_run(struct pl_world *world, const struct pl_collective *collective, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    struct pl_request *request = NULL;

    PL_TRY(post(world, collective, world->topology.oversubscribed ? 0 : POLLS_BEFORE_CLOCK, &request, reterr));
    return wait_for(request, reterr);
}

enum pl_status pl_allreduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype, enum pl_op op,
                            struct pl_error *reterr)
{
    return pl_collective_run(
        world, &(struct pl_collective){.kind = PL_ALLREDUCE, .dtype = dtype, .op = op, .count = count, .send = send, .recv = recv}, reterr);
}

enum pl_status pl_broadcast(struct pl_world *world, void *data, uint64_t count, enum pl_dtype dtype, int root, struct pl_error *reterr)
{
    return pl_collective_run(world, &(struct pl_collective){.kind = PL_BROADCAST, .dtype = dtype, .root = root, .count = count, .recv = data},
                             reterr);
}

enum pl_status pl_reduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype, enum pl_op op, int root,
                         struct pl_error *reterr)
{
    return pl_collective_run(
        world, &(struct pl_collective){.kind = PL_REDUCE, .dtype = dtype, .op = op, .root = root, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_allgather(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype, struct pl_error *reterr)
{
    return pl_collective_run(world, &(struct pl_collective){.kind = PL_ALLGATHER, .dtype = dtype, .count = count, .send = send, .recv = recv},
                             reterr);
}

enum pl_status pl_reduce_scatter(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype, enum pl_op op,
                                 struct pl_error *reterr)
{
    return pl_collective_run(
        world, &(struct pl_collective){.kind = PL_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count, .send = send, .recv = recv}, reterr);
}

enum pl_status pl_alltoall(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype, struct pl_error *reterr)
{
    return pl_collective_run(world, &(struct pl_collective){.kind = PL_ALLTOALL, .dtype = dtype, .count = count, .send = send, .recv = recv}, reterr);
}

enum pl_status pl_barrier(struct pl_world *world, struct pl_error *reterr)
{
    return pl_collective_run(world, &(struct pl_collective){.kind = PL_BARRIER}, reterr);
}
