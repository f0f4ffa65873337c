/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of parameter servers: a plan with gradients in memory shared with the server, and pulled values. */
#include "runtime/server/worker.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/gradient/plan_private.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pl_server_is_there(void)
{
    return pl_environment_own(PL_SERVER_SOCKET_VARIABLE);
}

/* Conditions that a worker waits for. */
enum awaited { ALL_APPLIED, ALL_KNOWN, ALL_FETCHED, NOT_AHEAD };

static enum pl_status allocate_gradients(void *context, float **ret_gradients, struct pl_error *reterr);
static enum pl_status start_bucket(void *context, size_t bucket, struct pl_error *reterr);

static enum pl_status check_options(const struct pl_world *world, const struct pl_server_options *options,
                                    struct pl_error *reterr)
{
    if (pl_world_size(world) > 1) {
        return pl_error_set(
            reterr, PL_UNSUPPORTED,
            "a worker of parameter servers has a world of one rank, found %d ranks: start it without mpirun",
            pl_world_size(world));
    }
    if (options->optimizer.clip_norm != 0.0 || options->optimizer.loss_scale != 0.0) {
        return pl_error_set(
            reterr, PL_UNSUPPORTED,
            "%s needs the gradients of all pieces at once, but a parameter server gets them piece by piece",
            options->optimizer.clip_norm != 0.0 ? "clip_norm" : "loss_scale");
    }
    return PL_OK;
}

enum pl_status pl_server_new(struct pl_world *world, const struct pl_server_options *options,
                             struct pl_server **ret_server, struct pl_error *reterr)
{
    struct pl_plan_options plan_options = {.sum = true, .name = "parameters"};
    struct pl_server *server;
    enum pl_status status;

    PL_TRY(check_options(world, options, reterr));
    PL_TRY(pl_memory_alloc(&server, 1, sizeof(*server), reterr));
    server->world = world;
    server->trace = options->trace;
    server->fd = server->server_event_fd = server->event_fd = -1;
    server->optimizer = options->optimizer;
    status = pl_optimizer_rule_check(&server->optimizer, reterr);
    if (status == PL_OK) {
        status = pl_worker_find_server(server, options, reterr);
    }
    if (status == PL_OK) {
        status = pl_plan_new(world, &plan_options, &server->plan, reterr);
    }
    if (status != PL_OK) {
        free(server);
        return status;
    }
    pl_plan_set_exchange(server->plan, &(struct pl_plan_exchange){
                                           .context = server, .allocate = allocate_gradients, .start = start_bucket});
    *ret_server = server;
    return PL_OK;
}

void pl_server_free(struct pl_server *server)
{
    if (!server) {
        return;
    }
    pl_optimizer_free(server->copy);
    pl_plan_free(server->plan);
    pl_worker_disconnect(server);
    free(server->tables);
    free(server);
}

struct pl_plan *pl_server_plan(const struct pl_server *server)
{
    return server->plan;
}

int pl_server_worker(const struct pl_server *server)
{
    return server->worker;
}

int pl_server_workers(const struct pl_server *server)
{
    return server->workers;
}

int pl_server_local_worker(const struct pl_server *server)
{
    return server->number;
}

int pl_server_local_workers(const struct pl_server *server)
{
    return (int)server->view.shape.workers;
}

struct pl_server_counts pl_server_counts(const struct pl_server *server)
{
    struct pl_server_counts counts = server->counts;

    if (server->view.base) {
        counts.sent_bytes = pl_server_view_header(&server->view)->sent_bytes;
    }
    return counts;
}

void pl_server_set_rate(struct pl_server *server, double rate)
{
    server->rate = rate;
}

/*
 * Joins, and gives the plan memory for its gradients: the memory is shared with the server, so the worker joins here,
 * after the plan is laid out.
 */
static enum pl_status allocate_gradients(void *context, float **ret_gradients, struct pl_error *reterr)
{
    struct pl_server *server = context;
    struct pl_server_layout layout;
    enum pl_status status;

    PL_TRY(pl_server_layout_new(server->plan, &server->optimizer, server->staleness, server->wire, server->tables,
                                server->table_count, &layout, reterr));
    status = pl_worker_join(server, &layout, pl_world_deadline_ns(server->world), reterr);
    pl_server_layout_done(&layout);
    if (status != PL_OK) {
        pl_worker_disconnect(server);
        return status;
    }
    *ret_gradients = pl_server_view_gradients(&server->view, (uint64_t)server->number);
    return PL_OK;
}

enum pl_status pl_server_join(struct pl_server *server, struct pl_error *reterr)
{
    return pl_plan_seal(server->plan, reterr);
}

enum pl_status pl_worker_check_there(const struct pl_server *server, struct pl_error *reterr)
{
    if (!server->view.base) {
        return pl_error_set(reterr, PL_INVALID, "pl_server_join() comes first");
    }
    return server->has_left ? pl_error_set(reterr, PL_INVALID, "this worker has left its parameter servers") : PL_OK;
}

/* Fails before pl_server_start(). Errors: those of pl_worker_check_there(), and PL_INVALID. */
static enum pl_status check_started(const struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    return server->has_started ? PL_OK : pl_error_set(reterr, PL_INVALID, "pl_server_start() comes first");
}

static enum pl_status wake_server(struct pl_server *server, struct pl_error *reterr)
{
    const uint64_t one = 1;

    return write(server->server_event_fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN
               ? PL_OK
               : pl_error_errno(reterr, "wake the parameter server");
}

static enum pl_status push_piece(struct pl_server *server, size_t piece, enum pl_server_push kind,
                                 struct pl_error *reterr)
{
    if (piece == 0) {
        server->slot->kind = kind;
        server->slot->stops = server->asks_stop;
        server->slot->rate = server->rate;
    }
    atomic_fetch_add_explicit(&server->slot->pushed, 1, memory_order_release);
    return wake_server(server, reterr);
}

static enum pl_status start_bucket(void *context, size_t bucket, struct pl_error *reterr)
{
    struct pl_server *server = context;

    PL_TRY(check_started(server, reterr));
    if (server->is_pushed) {
        return pl_error_set(reterr, PL_INVALID, "pl_plan_ready() of the next step: pl_server_wait() comes first");
    }
    return push_piece(server, bucket, PL_SERVER_PUSH_GRADIENT, reterr);
}

static bool is_fulfilled(const struct pl_server *server, enum awaited what)
{
    const struct pl_server_header *header = pl_server_view_header(&server->view);
    struct pl_server_slot *slot = server->slot;

    switch (what) {
    case ALL_APPLIED:
        return atomic_load_explicit(&slot->applied, memory_order_acquire) ==
               atomic_load_explicit(&slot->pushed, memory_order_relaxed);
    case ALL_KNOWN:
        return atomic_load_explicit(&header->known_pieces, memory_order_acquire) == server->view.shape.pieces;
    case ALL_FETCHED:
        return atomic_load_explicit(&slot->fetched, memory_order_acquire) ==
               atomic_load_explicit(&slot->fetches, memory_order_relaxed);
    case NOT_AHEAD:
        return atomic_load_explicit(&header->slowest_steps, memory_order_acquire) + (uint64_t)server->staleness >=
               slot->first_step + server->counts.steps;
    }
    return true;
}

/* Fails with an error that says what has not arrived; `limit` is "within timeout_s" or "so far". */
static enum pl_status say_late(const struct pl_server *server, enum awaited what, const char *limit,
                               struct pl_error *reterr)
{
    uint64_t pieces = server->view.shape.pieces;

    switch (what) {
    case ALL_APPLIED:
        return pl_error_set(reterr, PL_TIMEOUT,
                            "step %" PRIu64 ": the servers did not apply %" PRIu64 " of its %" PRIu64 " pieces %s%s",
                            server->counts.steps + 1, server->slot->pushed - server->slot->applied, pieces, limit,
                            server->staleness == 0 ? ": with ps_staleness 0 all workers must push" : "");
    case ALL_KNOWN:
        return pl_error_set(reterr, PL_TIMEOUT,
                            "the servers have first values of %" PRIu64 " of %" PRIu64
                            " pieces: worker 0 did not give them %s",
                            (uint64_t)pl_server_view_header(&server->view)->known_pieces, pieces, limit);
    case ALL_FETCHED:
        return pl_error_set(reterr, PL_TIMEOUT, "the servers did not send their values %s", limit);
    case NOT_AHEAD:
        break;
    }
    return pl_error_set(reterr, PL_TIMEOUT,
                        "this worker has finished %" PRIu64 " steps, and the slowest worker %" PRIu64
                        "; ps_staleness allows a lead of %" PRId64 ", and the slowest did not catch up %s",
                        server->slot->first_step + server->counts.steps,
                        (uint64_t)pl_server_view_header(&server->view)->slowest_steps, server->staleness, limit);
}

static enum pl_status await(struct pl_server *server, enum awaited what, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_world_deadline_ns(server->world), stall_ns = pl_worker_stall_ns(server);
    struct pl_error late = PL_ERROR_NONE;
    struct pollfd polls[] = {{.fd = server->event_fd, .events = POLLIN}, {.fd = server->fd, .events = POLLIN}};
    struct pl_server_message message;
    uint64_t events;
    bool closed;

    for (;;) {
        ssize_t got = read(server->event_fd, &events, sizeof(events));

        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            return pl_error_errno(reterr, "read the parameter server's eventfd");
        }
        if (is_fulfilled(server, what)) {
            return PL_OK;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return say_late(server, what, "within timeout_s", reterr);
        }
        if (pl_deadline_passed(stall_ns)) {
            say_late(server, what, "so far", &late);
            pl_worker_warn_stalled(server, late.cause, &stall_ns);
        }
        if (poll(polls, 2, pl_deadline_poll_ms(deadline_ns < stall_ns ? deadline_ns : stall_ns)) > 0 &&
            polls[1].revents) {
            PL_TRY(pl_server_message_receive(server->fd, false, &message, NULL, &closed, reterr));
            return pl_worker_read_failure(&message, closed, reterr);
        }
    }
}

/* Copies every piece that is newer than the plan's values. */
static enum pl_status pull_newer(struct pl_server *server, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_world_deadline_ns(server->world);
    float *values = pl_plan_values(server->plan);

    for (size_t p = 0; p < pl_plan_bucket_count(server->plan); p++) {
        uint64_t first, count, before = server->sequence[p];

        pl_plan_bucket(server->plan, p, &first, &count);
        while (!pl_server_read_piece(&server->view, p, first, count, values + first, &server->sequence[p])) {
            if (pl_deadline_passed(deadline_ns)) {
                return pl_error_set(reterr, PL_TIMEOUT, "piece %zu changed during each try to copy it", p);
            }
            sched_yield(); /* the server may need this CPU to finish its update */
        }
        server->counts.pieces_pulled += before != server->sequence[p];
    }
    return PL_OK;
}

enum pl_status pl_server_push(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(check_started(server, reterr));
    PL_TRY(pl_plan_wait(server->plan, reterr)); /* starts the pieces that were not ready; does not wait for others */
    server->is_pushed = true;
    return PL_OK;
}

enum pl_status pl_server_wait(struct pl_server *server, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns(), ended_ns;

    PL_TRY(check_started(server, reterr));
    if (!server->is_pushed) {
        return pl_error_set(reterr, PL_INVALID, "pl_server_push() comes first");
    }
    PL_TRY(await(server, ALL_APPLIED, reterr));
    server->is_pushed = false;
    server->is_stopping = atomic_load_explicit(&pl_server_view_header(&server->view)->stops, memory_order_acquire) != 0;
    server->counts.steps++;
    if (server->staleness > 0) {
        PL_TRY(await(server, NOT_AHEAD, reterr));
    }
    ended_ns = pl_clock_now_ns();
    server->counts.waited_ns += ended_ns - began_ns;
    pl_trace_add(server->trace, "server wait", began_ns, ended_ns);
    pl_activity_note();
    return pull_newer(server, reterr);
}

enum pl_status pl_server_step(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(pl_server_push(server, reterr));
    return pl_server_wait(server, reterr);
}

/* Returns PL_INVALID in the middle of a step; `call` is the name of the call that comes too early. */
static enum pl_status check_between(const struct pl_server *server, const char *call, struct pl_error *reterr)
{
    if (server->is_pushed || server->plan->started > 0) {
        return pl_error_set(reterr, PL_INVALID, "%s in the middle of a step: pl_server_step() comes first", call);
    }
    return PL_OK;
}

enum pl_status pl_server_assign(struct pl_server *server, struct pl_error *reterr)
{
    size_t pieces = pl_plan_bucket_count(server->plan);

    PL_TRY(pl_worker_check_there(server, reterr));
    PL_TRY(check_between(server, "pl_server_assign()", reterr));
    memcpy(pl_plan_gradients(server->plan), pl_plan_values(server->plan), pl_plan_elems(server->plan) * sizeof(float));
    for (size_t p = 0; p < pieces; p++) {
        PL_TRY(push_piece(server, p, PL_SERVER_PUSH_VALUES, reterr));
    }
    PL_TRY(await(server, ALL_APPLIED, reterr));
    memset(pl_plan_gradients(server->plan), 0, pl_plan_elems(server->plan) * sizeof(float));
    return pull_newer(server, reterr);
}

enum pl_status pl_server_pull(struct pl_server *server, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    PL_TRY(check_started(server, reterr));
    atomic_fetch_add_explicit(&server->slot->fetches, 1, memory_order_release);
    PL_TRY(wake_server(server, reterr));
    PL_TRY(await(server, ALL_FETCHED, reterr));
    pl_trace_add(server->trace, "server pull", began_ns, pl_clock_now_ns());
    return pull_newer(server, reterr);
}

enum pl_status pl_server_start(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    if (server->worker == 0 && !is_fulfilled(server, ALL_KNOWN)) {
        PL_TRY(pl_server_assign(server, reterr));
    }
    PL_TRY(await(server, ALL_KNOWN, reterr));
    server->has_started = true;
    return pl_server_pull(server, reterr); /* other hosts' pieces may be old here */
}

enum pl_status pl_server_sum(struct pl_server *server, double *values, size_t count, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    if (count > PL_SERVER_MOST_SUMMED) {
        return pl_error_set(reterr, PL_LIMIT, "a sum of %zu values: at most %d are possible", count,
                            PL_SERVER_MOST_SUMMED);
    }
    for (size_t at = 0; at < count || at == 0; at += PL_SERVER_MOST_VALUES) {
        struct pl_server_message message = {.kind = PL_SERVER_SUM, .number = (int32_t)(count - at)};

        message.count = count - at < PL_SERVER_MOST_VALUES ? count - at : PL_SERVER_MOST_VALUES;
        if (count > 0) {
            memcpy(message.values, values + at, message.count * sizeof(*values));
        }
        PL_TRY(pl_worker_ask(server, &message, -1, PL_SERVER_TOTAL, &message, reterr));
        if (count > 0) {
            memcpy(values + at, message.values, message.count * sizeof(*values));
        }
        if (count == 0) {
            break;
        }
    }
    return PL_OK;
}

enum pl_status pl_server_leave(struct pl_server *server, struct pl_error *reterr)
{
    const struct pl_server_message leave = {.kind = PL_SERVER_LEAVE};
    enum pl_status status;

    if (server->has_left) {
        return PL_OK;
    }
    PL_TRY(pl_worker_check_there(server, reterr));
    PL_TRY(await(server, ALL_APPLIED, reterr));
    server->has_left = true;
    status = pl_worker_send(server, &leave, NULL, 0, reterr);
    pl_file_close_at(&server->fd);
    return status;
}

enum pl_status pl_server_optimizer(struct pl_server *server, struct pl_optimizer **ret_optimizer,
                                   struct pl_error *reterr)
{
    if (!server->copy) {
        PL_TRY(pl_optimizer_new(server->plan, &server->optimizer, &server->copy, reterr));
    }
    *ret_optimizer = server->copy;
    return PL_OK;
}

/* Returns array `number`, counted in the order of transfer.c's file. */
static float *array_of(const struct pl_server *server, unsigned number)
{
    return number == 0 ? pl_plan_values(server->plan) : pl_optimizer_slot(server->copy, number - 1);
}

/* Copies all arrays and `updates` [pieces], the number of updates of each piece. */
static enum pl_status copy_file(const struct pl_server *server, int fd, bool writes, uint64_t *updates,
                                struct pl_error *reterr)
{
    const uint64_t bytes = pl_plan_elems(server->plan) * sizeof(float);
    const unsigned arrays = 1 + pl_optimizer_slots(server->copy);
    bool good = true;

    for (unsigned a = 0; a < arrays && good; a++) {
        good = pl_server_copy_at(fd, writes, array_of(server, a), bytes, a * bytes);
    }
    good = good && pl_server_copy_at(fd, writes, updates, server->view.shape.pieces * sizeof(*updates), arrays * bytes);
    return good ? PL_OK : pl_error_errno(reterr, "copy the state of parameter servers");
}

/* Makes the servers fill or read the file. */
static enum pl_status transfer(struct pl_server *server, int fd, enum pl_server_state_way way, uint64_t bytes,
                               struct pl_error *reterr)
{
    struct pl_server_message message = {.kind = PL_SERVER_STATE, .number = (int32_t)way, .count = bytes};

    return pl_worker_ask(server, &message, fd, PL_SERVER_STATE, &message, reterr);
}

static enum pl_status move_state(struct pl_server *server, enum pl_server_state_way way, struct pl_error *reterr)
{
    const size_t pieces = server->view.shape.pieces;
    struct pl_optimizer *optimizer;
    struct pl_optimizer_state state;
    uint64_t bytes;
    PL_AUTO_FREE uint64_t *updates = pl_memory_new(pieces, sizeof(*updates), reterr);
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(updates ? PL_OK : PL_MEMORY);
    PL_TRY(pl_server_optimizer(server, &optimizer, reterr));
    state = pl_optimizer_state(optimizer);
    bytes =
        pl_plan_elems(server->plan) * (1 + pl_optimizer_slots(optimizer)) * sizeof(float) + pieces * sizeof(*updates);
    fd = pl_fd_new_memory("paceline-state", bytes);
    if (fd < 0) {
        return pl_error_errno(reterr, "make a memory file for the state of parameter servers, %llu bytes",
                              (unsigned long long)bytes);
    }
    for (size_t p = 0; p < pieces; p++) {
        updates[p] = state.steps;
    }
    if (way == PL_SERVER_STATE_ASSIGN) {
        PL_TRY(copy_file(server, fd, true, updates, reterr));
        return transfer(server, fd, way, bytes, reterr);
    }
    PL_TRY(transfer(server, fd, way, bytes, reterr));
    PL_TRY(copy_file(server, fd, false, updates, reterr));
    state.steps = updates[0];
    for (size_t p = 1; p < pieces; p++) {
        state.steps = updates[p] < state.steps ? updates[p] : state.steps;
    }
    pl_optimizer_restore(optimizer, &state);
    return PL_OK;
}

enum pl_status pl_server_pull_state(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(check_started(server, reterr));
    PL_TRY(check_between(server, "pl_server_pull_state()", reterr));
    return move_state(server, PL_SERVER_STATE_PULL, reterr);
}

enum pl_status pl_server_assign_state(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    PL_TRY(check_between(server, "pl_server_assign_state()", reterr));
    return move_state(server, PL_SERVER_STATE_ASSIGN, reterr);
}

void pl_server_ask_stop(struct pl_server *server)
{
    server->asks_stop = true;
}

bool pl_server_is_stopping(const struct pl_server *server)
{
    return server->is_stopping;
}

enum pl_status pl_server_outlast(struct pl_server *server, struct pl_error *reterr)
{
    struct pl_server_message message = {.kind = PL_SERVER_OUTLAST};

    PL_TRY(check_started(server, reterr));
    PL_TRY(check_between(server, "pl_server_outlast()", reterr));
    return pl_worker_ask(server, &message, -1, PL_SERVER_ALONE, &message, reterr);
}
