/* SPDX-License-Identifier: Apache-2.0 */
/* The wait of a rank for a request: polling, then blocking, until the request has ended or its deadline has passed. */
#include "base/clock.h"
#include "base/text.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

/* another thread may need this CPU for the work that we wait for, even if there seem to be enough CPUs */
enum { POLLS_PER_YIELD = 64 };

static const int64_t NAP_SHORTEST_NS = 20 * PL_NS_PER_US;
static const int64_t NAP_LONGEST_NS = 10 * PL_NS_PER_MS;

static void set_deadline(struct pl_request *request, int64_t now_ns)
{
    if (!request->deadline_ns) {
        if (request->collective.deadline_ns) {
            request->deadline_ns = request->collective.deadline_ns;
        } else if (request->world->timeout_ns < 0) {
            request->deadline_ns = PL_DEADLINE_NEVER;
        } else {
            request->deadline_ns = now_ns + request->world->timeout_ns;
        }
        request->search_ns = pl_late_begin_ns(now_ns, request->deadline_ns);
    }
}

/* Ends the world after a deadline: reports which collective has stalled, and which rank is late if that is known. */
static enum pl_status time_out(struct pl_request *request)
{
    struct pl_world *world = request->world;
    struct pl_request *head = world->first;
    char name[PL_RANK_NAME_BYTES];
    struct pl_error error;
    int late;

    PL_BUG_IF(!head);
    late = pl_late_rank(world);
    pl_error_set(&error, PL_TIMEOUT, "collective number %" PRIu64 ", %s%s%.*s%s, did not end before rank %d's deadline",
                 head->signature.sequence, pl_kind_text(head->collective.kind), head->signature.name[0] ? " '" : "",
                 (int)sizeof(head->signature.name), head->signature.name, head->signature.name[0] ? "'" : "",
                 pl_world_global_rank(world, world->rank));
    if (late >= 0) {
        pl_error_context(&error, "still waiting for %s; with paceline_hang_s set, the log shows what it is doing",
                         pl_world_rank_name(world, late, name));
    }
    return pl_request_fail_all(world, &error);
}

/* Whether the deadline has passed; if so, everything in the queue is ended. Before that, may start the search for the
 * late rank. */
static bool has_timed_out(struct pl_request *request, int64_t now_ns)
{
    set_deadline(request, now_ns);
    if (now_ns > request->deadline_ns) {
        time_out(request);
        return true;
    }
    if (now_ns > request->search_ns) {
        pl_late_search(request->world, now_ns);
    }
    return false;
}

bool pl_request_launched(const struct pl_request *request)
{
    PL_AUTO_HOLD(request->world);

    return request->launched;
}

enum pl_status pl_request_test(struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);

    if (request->phase != PL_REQUEST_DONE) {
        pl_request_advance(world);
    }
    if (request->phase != PL_REQUEST_DONE) {
        has_timed_out(request, pl_clock_now_ns());
    }
    *ret_done = request->phase == PL_REQUEST_DONE;
    return request->status == PL_OK ? PL_OK : pl_request_world_failure(world, reterr);
}

/*
 * Blocks after the spin budget is used up: with the backend's function, or for a 64th of the time already waited, so
 * that a message under way is polled often and a late peer is not.
 */
static void block_until(struct pl_world *world, int64_t idle_ns, int64_t now_ns, int64_t deadline_ns)
{
    struct pl_request *head = world->first;
    const struct pl_world_backend *backend = head->backend;

    if (backend->backend->block_until) {
        struct pl_error error;
        int64_t until_ns = now_ns + 10 * NAP_LONGEST_NS;

        if (backend->backend->block_until(backend->state, head, until_ns < deadline_ns ? until_ns : deadline_ns,
                                          &error) != PL_OK) {
            pl_request_fail_all(world, &error);
        }
        return;
    }
    pl_clock_nap(pl_clock_backoff_ns(idle_ns, NAP_SHORTEST_NS, NAP_LONGEST_NS), deadline_ns);
}

enum pl_status pl_request_wait_until(struct pl_world *world, int64_t until_ns, struct pl_error *reterr)
{
    struct pl_request *head = world->first;

    if (!head || head->phase != PL_REQUEST_RUNNING) {
        return PL_OK;
    }
    if (head->backend->backend->block_until) {
        return head->backend->backend->block_until(head->backend->state, head, until_ns, reterr);
    }
    pl_clock_nap(NAP_SHORTEST_NS, until_ns);
    return PL_OK;
}

/* Notifies the observer of a wait. `waited_ns` 0: the running request's wait. `about` NULL: that of this request. */
static void notify_stalled(struct pl_world *world, int64_t waited_ns, const struct pl_about *about)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char name[sizeof(world->first->signature.name) + 1] = "";
    struct pl_event event = {.kind = PL_BARRIER,
                             .name = name,
                             .sequence = world->sequence,
                             .part = world->part,
                             .rank = pl_world_global_rank(world, world->rank),
                             .waited_for = -1};

    if (world->first) {
        world->first->waited_for = pl_late_waits_for(world);
        pl_request_describe(world->first, name, &event);
        about = about ? about : &world->first->collective.about;
    }
    event.waited_ns = waited_ns ? waited_ns : event.waited_ns;
    if (about && about->append) {
        about->append(about->subject, &text);
    }
    event.about = pl_text_string(&text);
    world->observer.stalled(world->observer.context, &event);
}

void pl_world_report_wait(struct pl_world *world, int64_t waited_ns, int64_t *reported_ns, const struct pl_about *about)
{
    PL_AUTO_HOLD(world);

    if (world->observer.stalled && waited_ns >= (*reported_ns ? 2 * *reported_ns : world->observer.stall_ns)) {
        *reported_ns = waited_ns;
        notify_stalled(world, waited_ns, about);
    }
}

/* Nothing has moved for `idle_ns`: notes which rank the head waits for, and notifies the observer if that lasts.
 * Returns the idle time at which to notify it next. */
static int64_t track_stall(struct pl_world *world, int64_t idle_ns, int64_t stall_ns)
{
    if (world->first->waited_for < 0) {
        world->first->waited_for = pl_late_waits_for(world);
    }
    if (!world->observer.stalled || idle_ns < stall_ns) {
        return stall_ns;
    }
    notify_stalled(world, 0, NULL);
    return 2 * stall_ns;
}

/* Waits until the request has ended or, if `launched_is_enough`, is launched. */
static void wait_until_ended(struct pl_request *request, bool launched_is_enough)
{
    struct pl_world *world = request->world;
    int64_t spin_ns = world->topology.oversubscribed ? 0 : world->spin_ns;
    struct pl_request *watched = NULL;
    uint64_t progress_count = 0;
    int64_t idle_since_ns = 0;
    int64_t stall_ns = world->observer.stall_ns;
    unsigned polls = 0;

    for (;;) {
        int64_t now_ns;

        pl_request_advance(world);
        if (request->phase == PL_REQUEST_DONE || (launched_is_enough && request->launched)) {
            return;
        }
        polls++;
        if (world->topology.oversubscribed || polls % POLLS_PER_YIELD == 0) {
            sched_yield();
        } else {
            pl_pause_cpu();
        }
        if (polls < PL_POLLS_BEFORE_CLOCK) {
            continue;
        }
        now_ns = pl_clock_now_ns();
        if (watched != world->first || progress_count != world->first->progress_count || !idle_since_ns) {
            watched = world->first;
            progress_count = world->first->progress_count;
            idle_since_ns = now_ns;
            stall_ns = world->observer.stall_ns;
            if (!watched->wait_began_ns) {
                watched->wait_began_ns = now_ns;
            }
        }
        if (has_timed_out(request, now_ns)) {
            return;
        }
        if (now_ns - idle_since_ns >= spin_ns) {
            stall_ns = track_stall(world, now_ns - idle_since_ns, stall_ns);
            block_until(world, now_ns - idle_since_ns, now_ns, request->deadline_ns);
        }
    }
}

enum pl_status pl_request_wait_for(struct pl_request *request, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    enum pl_status status;

    if (request->phase != PL_REQUEST_DONE) {
        wait_until_ended(request, false);
    }
    status = request->status;
    pl_request_release(request);
    return status == PL_OK ? PL_OK : pl_request_world_failure(world, reterr);
}

enum pl_status pl_request_wait(struct pl_request *request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(request->world);

    return pl_request_wait_for(request, reterr);
}

enum pl_status pl_request_stream_wait(struct pl_request *request, void *stream, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    PL_AUTO_HOLD(world);
    struct pl_error error;

    if (request->phase != PL_REQUEST_DONE && !request->launched) {
        wait_until_ended(request, true);
    }
    if (request->phase == PL_REQUEST_DONE) {
        return request->status == PL_OK ? PL_OK : pl_request_world_failure(world, reterr);
    }
    set_deadline(request, pl_clock_now_ns());
    if (request->backend->backend->stream_wait(request->backend->state, request, stream, &error) != PL_OK) {
        pl_request_fail_all(world, &error);
        return pl_request_world_failure(world, reterr);
    }
    return PL_OK;
}
