/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of a world: posting, advancing, ending. Requests run one at a time, in the order of the posts. A streamed
 * backend (backend.h) gets its requests without waiting for earlier ones, and they end in order.
 */
#include "base/activity.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device.h"
#include "device/device_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Drops one reference to the chain and frees it with the last one. */
static void release_chain(struct pl_chain *chain)
{
    if (--chain->requests == 0) {
        chain->free(chain);
    }
}

void pl_request_release(struct pl_request *request)
{
    struct pl_world *world = request->world;

    if (request->is_persistent) {
        return;
    }
    if (request->counts) {
        free(request->counts);
        request->counts = NULL;
    }
    if (request->chain) {
        release_chain(request->chain);
        request->chain = NULL;
    }
    request->next = world->unused;
    world->unused = request;
}

/* Prepares a request that has run for another post. */
static void reset(struct pl_request *request)
{
    memset(request->scratch, 0, sizeof(request->scratch));
    request->launched = false;
    request->poll_budget = 0;
    request->progress_count = 0;
    request->next = NULL;
    request->deadline_ns = 0;
    request->posted_ns = request->started_ns = request->wait_began_ns = 0;
    request->status = PL_OK;
    request->phase = PL_REQUEST_QUEUED;
}

static struct pl_request *take_request(struct pl_world *world, struct pl_error *reterr)
{
    struct pl_request *request = world->unused;

    if (!request) {
        request = pl_memory_new(1, sizeof(*request), reterr);
        if (!request) {
            return NULL;
        }
        request->world = world;
        request->older = world->newest;
        world->newest = request;
        return request;
    }
    world->unused = request->next;
    reset(request);
    return request;
}

void pl_request_describe(const struct pl_request *request, char name[sizeof(request->signature.name) + 1],
                         struct pl_event *event)
{
    const char *about = request->collective.about.name;

    memcpy(name, request->signature.name, sizeof(request->signature.name));
    name[sizeof(request->signature.name)] = '\0';
    if (about && !name[0]) {
        memcpy(name, about, strnlen(about, sizeof(request->signature.name)));
    }
    *event = (struct pl_event){
        .kind = request->collective.kind,
        .name = name,
        .sequence = request->signature.sequence,
        .bytes = request->signature.count * pl_dtype_bytes(request->collective.dtype),
        .posted_ns = request->posted_ns,
        .started_ns = request->started_ns ? request->started_ns : request->posted_ns,
        .ended_ns = pl_clock_now_ns(),
        .part = request->world->part,
        .rank = pl_world_global_rank(request->world, request->world->rank),
        .waited_for = request->waited_for < 0 ? -1 : pl_world_global_rank(request->world, request->waited_for),
        .status = request->status,
    };
    if (request->wait_began_ns) {
        event->waited_ns = event->ended_ns - request->wait_began_ns;
    }
}

/* Notifies the observer that a request has ended, by success or failure. */
static void notify_ended(struct pl_world *world, const struct pl_request *request)
{
    char name[sizeof(request->signature.name) + 1];
    struct pl_event event;

    pl_activity_note();
    if (world->observer.ended) {
        pl_request_describe(request, name, &event);
        world->observer.ended(world->observer.context, &event);
    }
}

void pl_world_observe(struct pl_world *world, const struct pl_observer *observer)
{
    PL_AUTO_HOLD(world);

    world->observer = observer ? *observer : (struct pl_observer){.context = NULL};
}

void pl_world_on_failure(struct pl_world *world, void (*failed)(void *context, const struct pl_error *error),
                         void *context)
{
    PL_AUTO_HOLD(world);

    world->failed = failed;
    world->failed_context = context;
}

/* Whether the request belongs to the queue alone and not to the program. */
static bool is_internal(const struct pl_request *request)
{
    return request->chain && request->step < request->chain->steps - 1;
}

/* Does pl_request_fail_all(); adds this rank's host and device to the error if it is `on_device`. */
static enum pl_status fail_all(struct pl_world *world, const struct pl_error *error, bool on_device)
{
    struct pl_request *request, *next;

    if (world->failure.status == PL_OK) {
        world->failure = *error;
        if (on_device) {
            pl_world_place_error(world, world->device, &world->failure);
        }
        pl_revoke_send(world);
        if (world->failed) {
            world->failed(world->failed_context, &world->failure);
        }
    }
    for (request = world->first; request && request->phase == PL_REQUEST_RUNNING; request = request->next) {
        if (request->backend->backend->cancel) {
            request->backend->backend->cancel(request->backend->state, request);
        }
    }
    for (request = world->first; request; request = next) {
        next = request->next;
        request->phase = PL_REQUEST_DONE;
        request->status = world->failure.status;
        notify_ended(world, request);
        if (is_internal(request)) {
            pl_request_release(request);
        }
    }
    world->first = NULL;
    world->last = NULL;
    return world->failure.status;
}

enum pl_status pl_request_fail_all(struct pl_world *world, const struct pl_error *error)
{
    return fail_all(world, error, world->first && world->first->collective.memory == PL_MEMORY_DEVICE);
}

enum pl_status pl_request_world_failure(const struct pl_world *world, struct pl_error *reterr)
{
    if (reterr) {
        *reterr = world->failure;
    }
    return world->failure.status;
}

/* Informs the ranks that share memory with this one while no request runs; otherwise cancelling a request does that. */
static void abort_backend(struct pl_world *world, const struct pl_error *why)
{
    for (int i = 0; i < world->backend_count; i++) {
        const struct pl_world_backend *entry = &world->backends[i];

        if (entry->on && entry->backend->abort) {
            entry->backend->abort(entry->state, why);
            break;
        }
    }
}

static enum pl_status start_step(struct pl_world *world, struct pl_request *request, struct pl_error *reterr)
{
    struct pl_chain *chain = request->chain;

    if (world->scratch_bytes < chain->scratch_bytes) {
        free(world->scratch);
        world->scratch_bytes = 0;
        PL_TRY(pl_memory_alloc(&world->scratch, chain->scratch_bytes, 1, reterr));
        world->scratch_bytes = chain->scratch_bytes;
    }
    chain->start(chain, request->step, world->scratch, &request->collective);
    return PL_OK;
}

static enum pl_status start_request(struct pl_world *world, struct pl_request *request, bool *ret_done,
                                    struct pl_error *reterr)
{
    struct pl_collective *c = &request->collective;

    if (request->chain && start_step(world, request, reterr) != PL_OK) {
        abort_backend(world, reterr);
        return PL_MEMORY;
    }
    if (c->kind == PL_BROADCAST && c->send && c->memory != PL_MEMORY_DEVICE) {
        /* Copied now and not at the post, because earlier requests may have written the data that it sends, or read the
         * data that it overwrites. */
        memcpy(c->recv, c->send, c->count * pl_dtype_bytes(c->dtype));
        c->send = NULL;
    }
    request->phase = PL_REQUEST_RUNNING;
    if (world->observer.ended && !request->started_ns) {
        request->started_ns = pl_clock_now_ns();
    }
    /* Between the processes of one host this is pl_shm_post() of shm/run.c; backends.c has the table. */
    return request->backend->backend->post(request->backend->state, request, ret_done, reterr);
}

/* Posts the queued requests at the head of the queue that belong to the head's streamed backend, then advances all. */
static enum pl_status stream(struct pl_world *world, bool *ret_done, struct pl_error *reterr)
{
    struct pl_request *head = world->first;

    if (world->last->phase == PL_REQUEST_QUEUED) {
        for (struct pl_request *request = head; request && request->backend == head->backend; request = request->next) {
            if (request->phase == PL_REQUEST_QUEUED) {
                PL_TRY(start_request(world, request, ret_done, reterr));
            }
        }
    }
    return head->backend->backend->progress(head->backend->state, head, ret_done, reterr);
}

/* Runs the queue's head, and the requests after it, as far as possible without waiting. */
void pl_request_advance(struct pl_world *world)
{
    while (world->first) {
        struct pl_request *head = world->first;
        const struct pl_world_backend *backend = head->backend;
        struct pl_error error;
        enum pl_status status;
        bool done = false;

        /* `error` is read only after a failure, which fills it. */
        if (backend->backend->streamed) {
            status = stream(world, &done, &error);
        } else if (head->phase == PL_REQUEST_QUEUED) {
            status = start_request(world, head, &done, &error);
        } else {
            status = backend->backend->progress(backend->state, head, &done, &error);
        }
        if (status == PL_OK && !done) {
            status = pl_revoke_receive(world, &error);
        }
        if (status != PL_OK) {
            pl_request_fail_all(world, &error);
            return;
        }
        if (!done) {
            return;
        }
        if (head->chain && !is_internal(head)) {
            head->chain->finish(head->chain);
        }
        head->phase = PL_REQUEST_DONE;
        notify_ended(world, head);
        world->first = head->next;
        if (!world->first) {
            world->last = NULL;
        }
        if (head->chain && is_internal(head)) {
            pl_request_release(head);
        }
    }
}

static enum pl_status choose_backend(const struct pl_world *world, struct pl_request *request, struct pl_error *reterr)
{
    const bool on_device = request->collective.memory == PL_MEMORY_DEVICE;
    const char *only;

    for (int i = 0; i < world->backend_count; i++) {
        const struct pl_world_backend *candidate = &world->backends[i];

        if (candidate->on && candidate->backend->on_device == on_device &&
            (!candidate->backend->serves || candidate->backend->serves(candidate->state, &request->collective))) {
            request->backend = candidate;
            return PL_OK;
        }
    }
    pl_error_set(reterr, PL_UNSUPPORTED, "no backend of this world serves %s of %s in %s memory",
                 pl_kind_text(request->collective.kind), pl_dtype_text(request->collective.dtype),
                 on_device ? "device" : "host");
    only = pl_knob_text(&world->knobs, PL_KNOB_BACKEND);
    if (*only) {
        pl_error_context(reterr, "the setting backend asks for %s only", only);
    }
    return PL_UNSUPPORTED;
}

/* Makes the request of a collective or, if `chain` is not NULL, of one step of it. */
static enum pl_status make_request(struct pl_world *world, const struct pl_collective *collective,
                                   struct pl_chain *chain, int number, struct pl_request **ret_request,
                                   struct pl_error *reterr)
{
    struct pl_request *request = take_request(world, reterr);
    enum pl_status status;

    if (!request) {
        return PL_MEMORY;
    }
    if (chain) {
        struct pl_collective step = chain->describe(chain, number);

        status = pl_request_sign_step(request, world, &step, collective, reterr);
    } else {
        status = pl_request_prepare(request, world, collective, reterr);
    }
    if (status == PL_OK) {
        status = choose_backend(world, request, reterr);
    }
    if (status != PL_OK) {
        if (collective->name) {
            pl_error_context(reterr, "collective '%s'", collective->name);
        }
        pl_request_release(request);
        return status;
    }
    if (chain) {
        chain->requests++;
        request->chain = chain;
        request->step = number;
    }
    *ret_request = request;
    return PL_OK;
}

static void enqueue(struct pl_world *world, struct pl_request *request)
{
    request->signature.sequence = ++world->sequence;
    request->waited_for = -1;
    if (world->observer.ended) {
        request->posted_ns = pl_clock_now_ns();
        request->started_ns = world->first ? 0 : request->posted_ns; /* the head of the queue starts at once */
    }
    if (world->observer.posted && world->part == 0) {
        world->observer.posted(world->observer.context, &(struct pl_posted){.kind = request->collective.kind,
                                                                            .name = request->signature.name,
                                                                            .sequence = request->signature.sequence,
                                                                            .at_ns = request->posted_ns});
    }
    if (world->last) {
        world->last->next = request;
    } else {
        world->first = request;
    }
    world->last = request;
}

enum pl_status pl_request_enqueue_chain(struct pl_world *world, const struct pl_collective *collective,
                                        struct pl_chain *chain, struct pl_request **ret_request,
                                        struct pl_error *reterr)
{
    struct pl_request *first = NULL, **end_at = &first, *request;
    enum pl_status status = world->failure.status == PL_OK ? PL_OK : pl_request_world_failure(world, reterr);

    chain->requests = 1; /* the reference of this call */
    for (int step = 0; step < chain->steps && status == PL_OK; step++) {
        status = make_request(world, collective, chain, step, end_at, reterr);
        end_at = status == PL_OK ? &(*end_at)->next : end_at;
    }
    while (first) {
        request = first;
        first = request->next;
        request->next = NULL;
        if (status == PL_OK) {
            enqueue(world, request);
            *ret_request = request;
        } else {
            pl_request_release(request);
        }
    }
    release_chain(chain);
    if (status == PL_OK) {
        pl_request_advance(world);
    }
    return status;
}

enum pl_status pl_request_enqueue(struct pl_world *world, const struct pl_collective *collective, unsigned poll_budget,
                                  struct pl_request **ret_request, struct pl_error *reterr)
{
    struct pl_request *request = NULL;

    if (world->failure.status != PL_OK) {
        return pl_request_world_failure(world, reterr);
    }
    PL_TRY(make_request(world, collective, NULL, 0, &request, reterr));
    request->poll_budget = poll_budget;
    enqueue(world, request);
    pl_request_advance(world);
    *ret_request = request;
    return PL_OK;
}

enum pl_status pl_request_post(struct pl_world *world, const struct pl_collective *collective,
                               struct pl_request **ret_request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    PL_TRY(pl_request_enqueue(world, collective, 0, ret_request, reterr));
    if (world->first) {
        pl_core_wake_progress(world->progress);
    }
    return PL_OK;
}

enum pl_status pl_request_new(struct pl_world *world, const struct pl_collective *collective,
                              struct pl_request **ret_request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    PL_TRY(make_request(world, collective, NULL, 0, ret_request, reterr));
    (*ret_request)->is_persistent = true;
    return PL_OK;
}

enum pl_status pl_request_start(struct pl_request *request, const void *send, void *recv, bool *ret_done,
                                struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);

    if (world->failure.status != PL_OK) {
        return pl_request_world_failure(world, reterr);
    }
    reset(request);
    request->collective.send = send;
    request->collective.recv = recv;
    enqueue(world, request);
    pl_request_advance(world);
    *ret_done = request->phase == PL_REQUEST_DONE && request->status == PL_OK;
    if (world->first) {
        pl_core_wake_progress(world->progress);
    }
    return PL_OK;
}

void pl_request_free(struct pl_request *request)
{
    if (request) {
        struct pl_world *world = request->world;
        PL_AUTO_HOLD(world);

        request->is_persistent = false;
        pl_request_release(request);
    }
}

enum pl_status pl_request_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr)
{
    *ret_left = false;
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].on && world->backends[i].backend->check_peers) {
            PL_TRY(world->backends[i].backend->check_peers(world->backends[i].state, ret_left, reterr));
        }
    }
    return PL_OK;
}

enum pl_status pl_world_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    return pl_request_check_peers(world, ret_left, reterr);
}

void pl_request_revoke_world(struct pl_world *world, const struct pl_error *why)
{
    pl_request_advance(world);
    if (world->failure.status != PL_OK) {
        return;
    }
    if (!world->first) {
        abort_backend(world, why);
    }
    pl_request_fail_all(world, why);
}

void pl_world_revoke(struct pl_world *world, const struct pl_error *why)
{
    PL_AUTO_HOLD(world);

    pl_request_revoke_world(world, why);
}

enum pl_status pl_world_check_device(struct pl_world *world, enum pl_status status, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    struct pl_error error;

    if (status == PL_OK || !world->device || world->failure.status != PL_OK ||
        pl_device_failure(world->device, &error) == PL_OK) {
        return status;
    }
    fail_all(world, &error, true);
    if (world->host_world) {
        pl_request_revoke_world(world->host_world, &world->failure);
    }
    return pl_request_world_failure(world, reterr);
}

void pl_request_cancel(struct pl_request *request)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);

    if (request->phase != PL_REQUEST_DONE) {
        struct pl_error error;

        pl_error_set(&error, PL_CANCELLED, "collective number %" PRIu64 ", %s, was cancelled",
                     request->signature.sequence, pl_kind_text((enum pl_kind)(request->signature.what & 0xff)));
        pl_request_fail_all(world, &error);
    }
    pl_request_release(request);
}

void pl_request_drop_all(struct pl_world *world)
{
    if (world->first) {
        struct pl_error error;

        pl_error_set(&error, PL_CANCELLED, "the world was freed with collectives outstanding");
        pl_request_fail_all(world, &error);
    }
    while (world->newest) {
        struct pl_request *request = world->newest;

        world->newest = request->older;
        if (request->chain) {
            release_chain(request->chain);
        }
        free(request->counts);
        free(request);
    }
    free(pl_bootstrap_has_leaked(world->bootstrap) ? NULL : world->scratch); /* messages of a step may still use it */
}
