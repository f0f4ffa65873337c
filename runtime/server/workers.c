/* SPDX-License-Identifier: Apache-2.0 */
/* A server's own workers: joining, pushes, sums over all workers of the job, leaving. */
#include "runtime/server/state.h"

#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static enum pl_status send_all(struct pl_server_state *server, const struct pl_server_packet *packet, void *data,
                               struct pl_error *reterr)
{
    return server->remote ? pl_server_remote_send_all(server->remote, packet, data, reterr) : PL_OK;
}

/* Makes the shared file, and tells the other servers. Call it when the layout is known. */
static enum pl_status open_layout(struct pl_server_state *server, struct pl_error *reterr)
{
    struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_LAYOUT, .data_bytes = server->layout.bytes};
    struct pl_server_shape shape = {.elems = server->layout.head->elems,
                                    .pieces = server->layout.head->pieces,
                                    .workers = (uint64_t)server->options->workers,
                                    .rows_bytes = server->layout.head->tables > 0 ? PL_SERVER_ROWS_BYTES : 0};

    PL_TRY(pl_server_shape(&shape, reterr));
    server->memory_fd = pl_fd_new_memory("paceline-server", shape.file_bytes);
    if (server->memory_fd < 0 || pl_fd_seal_size(server->memory_fd) != 0) {
        return pl_error_errno(reterr, "make a parameter server's memory, %" PRIu64 " bytes", shape.file_bytes);
    }
    PL_TRY(pl_server_view_open(&server->view, &shape, server->memory_fd, reterr));
    PL_TRY(pl_server_pieces_open(server, reterr));
    PL_TRY(pl_server_rows_open(server, reterr));
    return send_all(server, &packet, server->layout.data, reterr);
}

enum pl_status pl_server_workers_adopt(struct pl_server_state *server, int host, struct pl_server_layout *layout,
                                       struct pl_error *reterr)
{
    char other[48], own[48];
    enum pl_status status;

    if (!server->layout.data) {
        server->layout = *layout;
        return open_layout(server, reterr);
    }
    snprintf(other, sizeof(other), "a worker of host %d", host);
    snprintf(own, sizeof(own), "a worker of host %d", server->host);
    status = pl_server_layout_compare(&server->layout, own, layout, other, reterr);
    pl_server_layout_done(layout);
    return status;
}

static enum pl_status read_layout(int fd, uint64_t bytes, struct pl_server_layout *ret_layout, struct pl_error *reterr)
{
    struct stat info;
    char *data;

    if (fstat(fd, &info) != 0 || (uint64_t)info.st_size != bytes) {
        return pl_error_set(reterr, PL_CORRUPT, "a worker's layout is not of the %" PRIu64 " bytes that it says",
                            bytes);
    }
    PL_TRY(pl_memory_alloc(&data, bytes, 1, reterr));
    if (!pl_server_copy_at(fd, false, data, bytes, 0)) {
        free(data);
        return pl_error_errno(reterr, "read a worker's layout");
    }
    return pl_server_layout_read(data, bytes, ret_layout, reterr);
}

/* Checks whether the worker that sent JOIN may join. If only this worker is wrong, only its join fails. */
static enum pl_status check_join(struct pl_server_state *server, const struct pl_server_message *join, int layout_fd,
                                 struct pl_server_layout *ret_layout, struct pl_error *reterr)
{
    int worker = pl_server_first_worker(server) + join->number;
    char own[48];
    enum pl_status status;

    if (join->number >= server->options->workers) {
        return pl_error_set(reterr, PL_INVALID, "worker %d of host %d: there are %d on a host, counted from 0",
                            join->number, server->host, server->options->workers);
    }
    if (server->workers[worker].has_joined || server->workers[worker].has_left) {
        return pl_error_set(reterr, PL_INVALID, "worker %d of host %d has joined before, or its process has ended",
                            join->number, server->host);
    }
    PL_TRY(read_layout(layout_fd, join->count, ret_layout, reterr));
    if (!server->layout.data) {
        return PL_OK;
    }
    snprintf(own, sizeof(own), "worker %d", worker);
    status = pl_server_layout_compare(&server->layout, "another worker", ret_layout, own, reterr);
    pl_server_layout_done(ret_layout);
    return status;
}

static enum pl_status welcome(struct pl_server_state *server, int number, int fd, struct pl_error *reterr)
{
    struct pl_server_local *local = &server->locals[number];
    int worker = pl_server_first_worker(server) + number;
    struct pl_server_message message = {.kind = PL_SERVER_WELCOME, .number = worker, .count = (uint64_t)server->total};
    struct pl_server_packet joined = {.kind = PL_SERVER_PACKET_JOINED, .worker = worker};

    local->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (local->event_fd < 0) {
        return pl_error_errno(reterr, "make an eventfd for a worker");
    }
    local->fd = fd;
    joined.steps = atomic_load_explicit(&pl_server_view_header(&server->view)->slowest_steps, memory_order_relaxed);
    server->workers[worker].has_joined = true;
    server->workers[worker].steps = joined.steps;
    pl_server_view_slot(&server->view, (uint64_t)number)->first_step = joined.steps;
    if (pl_server_message_send(fd, &message, (const int[]){server->memory_fd, server->event_fd, local->event_fd}, 3,
                               NULL) != PL_OK) {
        return PL_OK; /* the worker is gone; the next read from its socket tells */
    }
    return send_all(server, &joined, NULL, reterr);
}

enum pl_status pl_server_workers_join(struct pl_server_state *server, int pending, struct pl_error *reterr)
{
    int fd = server->pending[pending], fds[3] = {-1, -1, -1};
    struct pl_server_layout layout = {0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_server_message message;
    bool closed, is_fatal = false;

    server->pending[pending] = -1;
    error.status = pl_server_message_receive(fd, true, &message, fds, &closed, &error);
    if (error.status == PL_OK && !closed && message.kind != PL_SERVER_JOIN) {
        error.status =
            pl_error_set(&error, PL_CORRUPT, "a worker's first message is of kind %u, expected JOIN", message.kind);
    }
    if (error.status == PL_OK && !closed) {
        error.status = check_join(server, &message, fds[0], &layout, &error);
    }
    pl_file_close_at(&fds[0]);
    if (error.status == PL_OK && !closed && layout.data) {
        server->layout = layout;
        is_fatal = true;
        error.status = open_layout(server, &error);
    }
    if (!closed && error.status == PL_OK) {
        is_fatal = true;
        error.status = welcome(server, message.number, fd, &error);
        if (error.status == PL_OK) {
            return PL_OK;
        }
        server->locals[message.number].fd = -1;
    }
    if (!closed) {
        pl_server_answer_refuse(fd, &error);
        pl_log_error(&error, "a worker of host %d was refused", server->host);
    }
    pl_file_close_at(&fd);
    if (error.status != PL_MISMATCH && !is_fatal) {
        return PL_OK;
    }
    *reterr = error; /* the job fails, because it is unknown which worker is right */
    return error.status;
}

void pl_server_workers_publish_slowest(struct pl_server_state *server)
{
    struct pl_server_header *header;
    uint64_t slowest = UINT64_MAX;

    for (int w = 0; w < server->total; w++) {
        const struct pl_server_worker *worker = &server->workers[w];

        if (worker->has_joined && !worker->has_left && worker->steps < slowest) {
            slowest = worker->steps;
        }
    }
    if (slowest == UINT64_MAX || !server->view.base) {
        return;
    }
    header = pl_server_view_header(&server->view);
    if (atomic_load_explicit(&header->slowest_steps, memory_order_relaxed) < slowest) {
        atomic_store_explicit(&header->slowest_steps, slowest, memory_order_release);
        for (int w = 0; w < server->options->workers; w++) {
            pl_server_notify(server, w);
        }
    }
}

/* Counts a step of a worker of this host that has pushed all its pieces. */
static enum pl_status finish_step(struct pl_server_state *server, int worker, struct pl_error *reterr)
{
    struct pl_server_packet packet = {
        .kind = PL_SERVER_PACKET_STEPS, .worker = worker, .steps = ++server->workers[worker].steps};

    if (server->layout.head->staleness <= 0) {
        return PL_OK; /* no worker waits for the slowest one */
    }
    pl_server_workers_publish_slowest(server);
    return send_all(server, &packet, NULL, reterr);
}

/* Tells all workers to stop now, because asynchronous workers have no common steps. */
static enum pl_status stop_all(struct pl_server_state *server, struct pl_error *reterr)
{
    const struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_STOP};

    if (pl_server_view_header(&server->view)->stops) {
        return PL_OK;
    }
    pl_server_pieces_stop(server);
    return send_all(server, &packet, NULL, reterr);
}

static enum pl_status take_piece(struct pl_server_state *server, int number, struct pl_error *reterr)
{
    struct pl_server_local *local = &server->locals[number];
    const struct pl_server_slot *slot = pl_server_view_slot(&server->view, (uint64_t)number);
    const uint64_t pieces = server->layout.head->pieces, piece = local->taken % pieces;
    const struct pl_server_range *range = &server->layout.pieces[piece];
    float *data = pl_server_view_gradients(&server->view, (uint64_t)number) + range->first_elem;
    int worker = pl_server_first_worker(server) + number, owner = pl_server_owner(server, piece);
    struct pl_server_packet push = {.kind = PL_SERVER_PACKET_PUSH,
                                    .worker = worker,
                                    .piece = piece,
                                    .data_bytes = range->count_elems * sizeof(float),
                                    .push = slot->kind,
                                    .stops = slot->stops,
                                    .rate = slot->rate};

    if (push.push > PL_SERVER_PUSH_VALUES) {
        return pl_error_set(reterr, PL_CORRUPT, "worker %d pushed data of the unknown kind %u", worker, push.push);
    }
    local->taken++;
    server->counts.pushes++;
    PL_TRY(push.stops && !server->is_synchronous ? stop_all(server, reterr) : PL_OK);
    if (owner == server->host) {
        PL_TRY(pl_server_pieces_take(server, worker, &push, data, reterr));
    } else {
        PL_TRY(pl_server_pieces_push(server, &push, data, reterr));
    }
    return piece + 1 == pieces && push.push == PL_SERVER_PUSH_GRADIENT ? finish_step(server, worker, reterr) : PL_OK;
}

/* Requests the pieces of all other owners, for all workers that want them now. Later requests have to wait. */
static enum pl_status fetch(struct pl_server_state *server, struct pl_error *reterr)
{
    for (int w = 0; w < server->options->workers; w++) {
        uint64_t asked =
            atomic_load_explicit(&pl_server_view_slot(&server->view, (uint64_t)w)->fetches, memory_order_acquire);

        server->counts.pulls += asked - server->locals[w].fetches;
        server->locals[w].fetches = asked;
    }
    for (uint64_t p = 0; p < server->layout.head->pieces; p++) {
        struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_FETCH, .piece = p};

        if (pl_server_owner(server, p) != server->host) {
            server->fetching++;
            PL_TRY(pl_server_remote_send(server->remote, pl_server_owner(server, p), &packet, NULL, false, reterr));
        }
    }
    if (server->fetching == 0) {
        pl_server_answer_fetch(server);
    }
    return PL_OK;
}

enum pl_status pl_server_workers_take(struct pl_server_state *server, bool *ret_moved, struct pl_error *reterr)
{
    *ret_moved = false;
    for (int w = 0; server->view.base && w < server->options->workers; w++) {
        struct pl_server_local *local = &server->locals[w];
        struct pl_server_slot *slot = pl_server_view_slot(&server->view, (uint64_t)w);
        uint64_t pushed = atomic_load_explicit(&slot->pushed, memory_order_acquire);
        uint64_t asked = atomic_load_explicit(&slot->fetches, memory_order_acquire);

        if (pushed - local->taken > server->layout.head->pieces) {
            return pl_error_set(reterr, PL_CORRUPT,
                                "worker %d has pushed %" PRIu64 " pieces, of which %" PRIu64
                                " were taken: expected at most %" PRIu64 " more",
                                pl_server_first_worker(server) + w, pushed, local->taken, server->layout.head->pieces);
        }
        if (pushed != local->taken) { /* one piece from each worker in turn */
            *ret_moved = true;
            PL_TRY(take_piece(server, w, reterr));
        }
        if (asked != local->fetches && server->fetching == 0) {
            *ret_moved = true;
            PL_TRY(fetch(server, reterr));
        }
    }
    return PL_OK;
}

/* On server 0: ends the sum when all workers that have not left have given their values. */
static enum pl_status end_sum(struct pl_server_state *server, struct pl_error *reterr)
{
    struct pl_server_packet total = {.kind = PL_SERVER_PACKET_TOTAL};
    bool is_first = true;

    for (int w = 0; w < server->total; w++) {
        if (!server->workers[w].has_summed && !server->workers[w].has_left) {
            return PL_OK;
        }
    }
    for (int w = 0; w < server->total; w++) {
        struct pl_server_worker *worker = &server->workers[w];

        if (!worker->has_summed) {
            continue;
        }
        worker->has_summed = false;
        total.is_lost =
            total.is_lost || (!is_first && (total.count != worker->sum_count || total.steps != worker->sum_left));
        total.count = worker->sum_count;
        total.steps = worker->sum_left;
        is_first = false;
        for (uint32_t i = 0; i < total.count; i++) {
            total.values[i] += worker->sum[i];
        }
    }
    if (is_first) {
        return PL_OK; /* all workers have left */
    }
    pl_server_workers_give_total(server, &total);
    return send_all(server, &total, NULL, reterr);
}

enum pl_status pl_server_workers_add_sum(struct pl_server_state *server, int worker,
                                         const struct pl_server_packet *part, struct pl_error *reterr)
{
    struct pl_server_worker *of = &server->workers[worker];

    if (of->has_summed) {
        return pl_error_set(reterr, PL_CORRUPT, "worker %d gave its values for a sum twice", worker);
    }
    if (!of->sum) {
        PL_TRY(pl_memory_alloc(&of->sum, PL_SERVER_MOST_VALUES, sizeof(*of->sum), reterr));
    }
    of->has_summed = true;
    of->sum_count = part->count;
    of->sum_left = part->steps;
    memcpy(of->sum, part->values, part->count * sizeof(*part->values));
    return end_sum(server, reterr);
}

void pl_server_workers_give_total(struct pl_server_state *server, const struct pl_server_packet *total)
{
    struct pl_server_message message = {.kind = PL_SERVER_TOTAL, .count = total->count};
    struct pl_error error = PL_ERROR_NONE;

    memcpy(message.values, total->values, sizeof(message.values));
    if (total->is_lost) {
        pl_error_set(&error, PL_MISMATCH, "the workers gave sums of different lengths");
    }
    for (int w = 0; w < server->options->workers; w++) {
        struct pl_server_local *local = &server->locals[w];

        if (!local->waits_for_sum) {
            continue;
        }
        local->waits_for_sum = false;
        if (total->is_lost) {
            pl_server_answer_refuse(local->fd, &error);
        } else {
            pl_server_answer(server, w, &message, "its sum");
        }
    }
}

static enum pl_status left(struct pl_server_state *server, int worker, bool is_lost, struct pl_error *reterr)
{
    struct pl_server_packet packet = {
        .kind = PL_SERVER_PACKET_LEFT, .worker = worker, .is_lost = is_lost, .stays = server->workers[worker].stays};

    server->left += !server->workers[worker].has_left;
    server->workers[worker].has_left = true;
    if (is_lost) {
        pl_server_lost_note(server, worker);
    }
    if (worker / server->options->workers == server->host) {
        if (is_lost) {
            pl_log(PL_LOG_WARNING, "worker %d (host %d) is gone without %s, after %" PRIu64 " steps", worker,
                   server->host, server->workers[worker].has_joined ? "leaving" : "joining",
                   server->workers[worker].steps);
        }
        PL_TRY(send_all(server, &packet, NULL, reterr));
    }
    PL_TRY(pl_server_pieces_recheck(server, reterr));
    pl_server_workers_publish_slowest(server);
    return server->host == 0 ? end_sum(server, reterr) : PL_OK;
}

enum pl_status pl_server_workers_stay(struct pl_server_state *server, int worker, struct pl_error *reterr)
{
    server->staying += !server->workers[worker].stays;
    server->workers[worker].stays = true;
    return left(server, worker, false, reterr);
}

enum pl_status pl_server_workers_left(struct pl_server_state *server, int worker, bool is_lost, struct pl_error *reterr)
{
    server->staying -= server->workers[worker].stays;
    server->workers[worker].stays = false;
    return left(server, worker, is_lost, reterr);
}

void pl_server_workers_tell_alone(struct pl_server_state *server)
{
    const struct pl_server_message message = {.kind = PL_SERVER_ALONE};

    for (int w = 0; w < server->options->workers; w++) {
        if (server->locals[w].waits_to_be_alone) {
            server->locals[w].waits_to_be_alone = false;
            pl_server_answer(server, w, &message, "all others had left");
        }
    }
}

/* Closes the socket of a worker, which has left. Its pushed pieces still count. */
static enum pl_status close_worker(struct pl_server_state *server, int number, bool is_lost, struct pl_error *reterr)
{
    struct pl_server_local *local = &server->locals[number];

    pl_file_close_at(&local->fd);
    pl_file_close_at(&local->event_fd);
    pl_server_transfer_cancel(server, number);
    for (bool moved = true; moved;) {
        PL_TRY(pl_server_workers_take(server, &moved, reterr));
    }
    return pl_server_workers_left(server, pl_server_first_worker(server) + number, is_lost, reterr);
}

/* Marks a worker as left that still reads. Its pushed pieces still count. From now on it may send only LEAVE. */
static enum pl_status let_outlast(struct pl_server_state *server, int number, struct pl_error *reterr)
{
    for (bool moved = true; moved;) {
        PL_TRY(pl_server_workers_take(server, &moved, reterr));
    }
    server->locals[number].waits_to_be_alone = true;
    return pl_server_workers_stay(server, pl_server_first_worker(server) + number, reterr);
}

enum pl_status pl_server_workers_hear(struct pl_server_state *server, int number, struct pl_error *reterr)
{
    struct pl_server_local *local = &server->locals[number];
    int worker = pl_server_first_worker(server) + number, fds[3] = {-1, -1, -1};
    struct pl_server_packet sum = {.kind = PL_SERVER_PACKET_SUM, .worker = worker};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_server_message message;
    bool closed;

    error.status = pl_server_message_receive(local->fd, true, &message, fds, &closed, &error);
    if (error.status == PL_OK && !closed && message.kind == PL_SERVER_STATE) {
        error.status = pl_server_transfer_begin(server, number, &message, fds[0], &error);
    }
    if (error.status == PL_OK && !closed && message.kind == PL_SERVER_JOIN) {
        error.status = pl_error_set(&error, PL_CORRUPT, "worker %d sent JOIN twice", worker);
        pl_file_close_at(&fds[0]);
    }
    if (error.status == PL_OK && !closed && message.kind == PL_SERVER_ROWS) {
        error.status = pl_server_rows_check(server, number, &message, &error);
    }
    if (error.status != PL_OK) {
        pl_server_answer_refuse(local->fd, &error);
        pl_log_error(&error, "worker %d was refused", worker);
        return close_worker(server, number, true, reterr);
    }
    if (closed || message.kind == PL_SERVER_LEAVE) {
        return close_worker(server, number, closed, reterr);
    }
    if (message.kind == PL_SERVER_STATE) {
        return PL_OK;
    }
    if (message.kind == PL_SERVER_OUTLAST) {
        return let_outlast(server, number, reterr);
    }
    if (message.kind == PL_SERVER_ROWS) {
        return pl_server_rows_ask(server, number, &message, reterr);
    }
    local->waits_for_sum = true;
    sum.count = (uint32_t)message.count;
    sum.steps = (uint64_t)message.number;
    memcpy(sum.values, message.values, sizeof(sum.values));
    if (server->host == 0) {
        return pl_server_workers_add_sum(server, worker, &sum, reterr);
    }
    return pl_server_remote_send(server->remote, 0, &sum, NULL, false, reterr);
}

enum pl_status pl_server_workers_ended(struct pl_server_state *server, const struct pl_server_ended *ended,
                                       struct pl_error *reterr)
{
    const int number = ended->worker;
    struct pl_server_local *local = &server->locals[number];
    int worker = pl_server_first_worker(server) + number;
    struct pollfd ready = {.fd = local->fd, .events = POLLIN};

    /*
     * Reads the worker's last messages, then the end of its socket. The end does not come while a child process has the
     * socket open.
     */
    while (local->fd >= 0 && poll(&ready, 1, 0) > 0) {
        PL_TRY(pl_server_workers_hear(server, number, reterr));
    }
    if (local->fd >= 0) {
        PL_TRY(close_worker(server, number, true, reterr));
    } else if (!server->workers[worker].has_left) {
        PL_TRY(pl_server_workers_left(server, worker, server->layout.data, reterr));
    }
    return pl_server_lost_process(server, worker, ended->status, reterr);
}
