/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a host's parameter server: its socket, its loop, and packets of other servers. */
#include "runtime/server/serve.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "collectives/reduce/compress.h"
#include "runtime/server/state.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Shortest interval between polls for messages of other servers, which cannot wake this thread. */
#define NAP_LEAST_NS (20 * PL_NS_PER_US)
#define NAP_MOST_NS PL_NS_PER_MS

#define FAILED_TELL_NS PL_NS_PER_S

/* A connection that sends no message for this long is closed if another one waits. */
#define SILENT_NS PL_NS_PER_S

/* The fields of each kind of packet. remote.c handles END; rows.c checks ROWS and ROWS_DONE. */
static const struct {
    bool has_worker; /* `worker`: a worker of the sender's host; in an answer, of this host */
    bool has_piece;  /* `piece`: a piece of this server; in an answer, of the sender */
    bool has_data;   /* data: values or gradient of the piece */
    bool has_state;  /* data: also the optimizer's arrays of the piece */
    bool is_answer;
    bool is_early; /* the packet may arrive before a layout is known */
} packets[] = {
    [PL_SERVER_PACKET_LAYOUT] = {.is_early = true}, /* its data may have any length */
    [PL_SERVER_PACKET_JOINED] = {.has_worker = true},
    [PL_SERVER_PACKET_LEFT] = {.has_worker = true, .is_early = true}, /* the worker may never have joined */
    [PL_SERVER_PACKET_STEPS] = {.has_worker = true},
    [PL_SERVER_PACKET_PUSH] = {.has_worker = true, .has_piece = true, .has_data = true},
    [PL_SERVER_PACKET_FETCH] = {.has_piece = true},
    [PL_SERVER_PACKET_VALUES] = {.has_piece = true, .has_data = true, .is_answer = true},
    [PL_SERVER_PACKET_ASK] = {.has_worker = true, .has_piece = true},
    [PL_SERVER_PACKET_STATE] =
        {.has_worker = true, .has_piece = true, .has_data = true, .has_state = true, .is_answer = true},
    [PL_SERVER_PACKET_GIVE] = {.has_worker = true, .has_piece = true, .has_data = true, .has_state = true},
    [PL_SERVER_PACKET_TAKEN] = {.has_worker = true, .has_piece = true, .is_answer = true},
    [PL_SERVER_PACKET_STOP] = {.has_worker = false},
    [PL_SERVER_PACKET_SUM] = {.has_worker = true},
    [PL_SERVER_PACKET_TOTAL] = {.has_worker = false},
    [PL_SERVER_PACKET_FAILED] = {.is_early = true},
};

static bool may_send(const struct pl_server_state *server, int host, const struct pl_server_packet *packet)
{
    const struct pl_server_layout *layout = &server->layout;
    uint64_t data_bytes = 0;
    int owner, workers_host;

    if (packet->kind == PL_SERVER_PACKET_ROWS || packet->kind == PL_SERVER_PACKET_ROWS_DONE) {
        return pl_server_rows_may_send(server, host, packet);
    }
    if (packet->kind >= PL_ARRAY_ITEMS(packets) || packet->kind == PL_SERVER_PACKET_END ||
        packet->count > PL_SERVER_MOST_VALUES || packet->push > PL_SERVER_PUSH_VALUES) {
        return false;
    }
    if (!layout->head && !packets[packet->kind].is_early) {
        return false;
    }
    owner = packets[packet->kind].is_answer ? host : server->host;
    workers_host = packets[packet->kind].is_answer ? server->host : host;
    if (packets[packet->kind].has_worker &&
        (packet->worker < 0 || packet->worker / server->options->workers != workers_host)) {
        return false;
    }
    if (packets[packet->kind].has_piece &&
        (packet->piece >= layout->head->pieces || pl_server_owner(server, packet->piece) != owner)) {
        return false;
    }
    if (packet->kind == PL_SERVER_PACKET_LAYOUT) {
        return packet->data_bytes > 0 && packet->data_bytes <= UINT32_MAX;
    }
    if (packets[packet->kind].has_data) {
        data_bytes = layout->pieces[packet->piece].count_elems * sizeof(float) *
                     (packets[packet->kind].has_state ? 1 + server->slots : 1);
    }
    if (pl_server_pieces_is_packed(server, packet)) {
        data_bytes = pl_compress_bytes(layout->head->wire, layout->pieces[packet->piece].count_elems);
    }
    return packet->data_bytes == data_bytes;
}

static enum pl_status check_packet(const struct pl_server_state *server, int host,
                                   const struct pl_server_packet *packet, struct pl_error *reterr)
{
    return may_send(server, host, packet)
               ? PL_OK
               : pl_error_set(reterr, PL_CORRUPT,
                              "the parameter server of host %d sent a packet of kind %u, worker %d, piece %" PRIu64
                              ", %" PRIu64 " bytes, which it may not send",
                              host, packet->kind, packet->worker, packet->piece, packet->data_bytes);
}

static enum pl_status place(void *context, int host, const struct pl_server_packet *packet, void **ret_data,
                            struct pl_error *reterr)
{
    struct pl_server_state *server = context;

    PL_TRY(check_packet(server, host, packet, reterr));
    if (packet->kind == PL_SERVER_PACKET_LAYOUT) {
        *ret_data = pl_memory_new(packet->data_bytes, 1, reterr);
        return *ret_data ? PL_OK : PL_MEMORY;
    }
    if (packet->kind == PL_SERVER_PACKET_ROWS || packet->kind == PL_SERVER_PACKET_ROWS_DONE) {
        *ret_data = pl_server_rows_place(server, host);
        return PL_OK;
    }
    if (packet->kind == PL_SERVER_PACKET_PUSH && server->is_synchronous && packet->push == PL_SERVER_PUSH_GRADIENT &&
        !pl_server_pieces_is_packed(server, packet)) {
        *ret_data = server->store[packet->worker] + server->layout.pieces[packet->piece].first_elem;
        return PL_OK;
    }
    *ret_data = server->stage[host];
    return PL_OK;
}

static enum pl_status handle(void *context, int host, const struct pl_server_packet *packet, void *data,
                             struct pl_error *reterr)
{
    struct pl_server_state *server = context;
    struct pl_server_layout layout;

    PL_TRY(data ? PL_OK : check_packet(server, host, packet, reterr));
    switch ((enum pl_server_packet_kind)packet->kind) {
    case PL_SERVER_PACKET_LAYOUT:
        PL_TRY(pl_server_layout_read(data, packet->data_bytes, &layout, reterr));
        return pl_server_workers_adopt(server, host, &layout, reterr);
    case PL_SERVER_PACKET_JOINED:
        server->workers[packet->worker].has_joined = true;
        server->workers[packet->worker].steps = packet->steps;
        break;
    case PL_SERVER_PACKET_LEFT:
        return packet->stays ? pl_server_workers_stay(server, packet->worker, reterr)
                             : pl_server_workers_left(server, packet->worker, packet->is_lost != 0, reterr);
    case PL_SERVER_PACKET_STEPS:
        server->workers[packet->worker].steps = packet->steps;
        pl_server_workers_publish_slowest(server);
        break;
    case PL_SERVER_PACKET_PUSH:
        return pl_server_pieces_take(
            server, packet->worker, packet,
            pl_server_pieces_is_packed(server, packet) ? pl_server_pieces_unpack(server, packet, data) : data, reterr);
    case PL_SERVER_PACKET_FETCH:
        return pl_server_pieces_send(server, host, packet->piece, PL_SERVER_ANSWERS_FETCH, reterr);
    case PL_SERVER_PACKET_VALUES:
        pl_server_pieces_put(server, packet, data);
        break;
    case PL_SERVER_PACKET_ASK:
    case PL_SERVER_PACKET_STATE:
    case PL_SERVER_PACKET_GIVE:
    case PL_SERVER_PACKET_TAKEN:
        return pl_server_transfer_handle(server, host, packet, data, reterr);
    case PL_SERVER_PACKET_STOP:
        pl_server_pieces_stop(server);
        break;
    case PL_SERVER_PACKET_SUM:
        return pl_server_workers_add_sum(server, packet->worker, packet, reterr);
    case PL_SERVER_PACKET_TOTAL:
        pl_server_workers_give_total(server, packet);
        break;
    case PL_SERVER_PACKET_ROWS:
        return pl_server_rows_serve(server, host, packet, data, reterr);
    case PL_SERVER_PACKET_ROWS_DONE:
        pl_server_rows_answered(server, host, packet, data);
        break;
    case PL_SERVER_PACKET_END:
        break;
    case PL_SERVER_PACKET_FAILED:
        server->is_told = true;
        return pl_error_set(reterr, packet->count > PL_OK && packet->count <= PL_FAILED ? packet->count : PL_PEER,
                            "%.*s", (int)strnlen(packet->text, sizeof(packet->text)), packet->text);
    }
    return PL_OK;
}

/* Removes the socket that a killed server with the same process number has left. No process listens on it. */
static bool remove_left(const struct sockaddr_un *address)
{
    PL_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 && errno == ECONNREFUSED &&
           unlink(address->sun_path) == 0;
}

static bool bind_at(int fd, const struct sockaddr_un *address)
{
    return bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
}

static enum pl_status listen_at(struct pl_server_state *server, struct pl_error *reterr)
{
    const char *path = server->options->socket_path;
    struct sockaddr_un address;

    PL_TRY(pl_server_message_address(path, &address, reterr));
    server->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->listen_fd < 0 ||
        (!bind_at(server->listen_fd, &address) &&
         (errno != EADDRINUSE || !remove_left(&address) || !bind_at(server->listen_fd, &address)))) {
        return pl_error_errno(reterr, "make the parameter server's socket '%s'", path);
    }
    server->is_bound = true;
    if (listen(server->listen_fd, SERVER_MOST_PENDING) != 0) {
        return pl_error_errno(reterr, "listen at the parameter server's socket '%s'", path);
    }
    server->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return server->event_fd >= 0 ? PL_OK : pl_error_errno(reterr, "make an eventfd");
}

static enum pl_status accept_worker(struct pl_server_state *server, struct pl_error *reterr)
{
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    int place = 0;

    if (fd < 0) {
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED
                   ? PL_OK
                   : pl_error_errno(reterr, "accept a worker of the parameter server");
    }
    if (!pl_fd_peer_is_same_user(fd)) {
        pl_file_close_at(&fd);
        return PL_OK;
    }
    for (int i = 0; i < SERVER_MOST_PENDING && server->pending[place] >= 0; i++) {
        if (server->pending[i] < 0 || server->pending_since_ns[i] < server->pending_since_ns[place]) {
            place = i;
        }
    }
    if (server->pending[place] >= 0) {
        pl_log(PL_LOG_WARNING, "host %d: a silent connection to the parameter server is closed, because others wait",
               server->host);
        pl_file_close_at(&server->pending[place]);
    }
    server->pending[place] = fd;
    server->pending_since_ns[place] = pl_clock_now_ns();
    return PL_OK;
}

/*
 * Returns when to accept the next connection: now if there is room, else when the oldest silent connection has had its
 * time.
 */
static int64_t accept_ns(const struct pl_server_state *server)
{
    int64_t oldest_ns = INT64_MAX;

    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        if (server->pending[i] < 0) {
            return 0;
        }
        oldest_ns = server->pending_since_ns[i] < oldest_ns ? server->pending_since_ns[i] : oldest_ns;
    }
    return oldest_ns + SILENT_NS;
}

/* Wakes the workers that pl_server_notify() has marked. */
static void notify(struct pl_server_state *server)
{
    const uint64_t one = 1;

    for (int w = 0; w < server->options->workers; w++) {
        struct pl_server_local *local = &server->locals[w];

        if (local->is_notified && local->event_fd >= 0) {
            ssize_t written = write(local->event_fd, &one, sizeof(one));

            PL_BUG_IF(written < 0 && errno != EAGAIN); /* the counter is full: the worker is awake already */
        }
        local->is_notified = false;
    }
}

/* Returns whether all workers have left and the other servers know it. */
static enum pl_status check_over(struct pl_server_state *server, bool *ret_over, struct pl_error *reterr)
{
    *ret_over = false;
    if (server->left < server->total) {
        return PL_OK;
    }
    pl_server_workers_tell_alone(server);
    if (server->staying > 0) {
        return PL_OK;
    }
    if (server->remote) {
        PL_TRY(pl_server_remote_end(server->remote, reterr));
    }
    *ret_over = !server->remote || pl_server_remote_has_ended(server->remote);
    return PL_OK;
}

/* Reads from the pipe that a worker's process has ended. */
static enum pl_status hear_end(struct pl_server_state *server, struct pl_error *reterr)
{
    struct pl_server_ended ended;
    ssize_t got = read(server->ended_fd, &ended, sizeof(ended));

    if (got != sizeof(ended)) {
        server->ended_fd = -1; /* the writer is gone, and this process will end with it */
        return PL_OK;
    }
    return pl_server_workers_ended(server, &ended, reterr);
}

/* Waits up to `nap_ns` (negative: without limit) for the workers of this host, and handles what has arrived. */
static enum pl_status hear(struct pl_server_state *server, struct pollfd *polls, int64_t nap_ns,
                           struct pl_error *reterr)
{
    const int64_t silent_ns = accept_ns(server) - pl_clock_now_ns();
    const int64_t least_ns = silent_ns > 0 && (nap_ns < 0 || silent_ns < nap_ns) ? silent_ns : nap_ns;
    const struct timespec nap = {.tv_sec = least_ns / PL_NS_PER_S, .tv_nsec = least_ns % PL_NS_PER_S};
    const int first_worker = 3, first_pending = 3 + server->options->workers;
    const int count = first_pending + SERVER_MOST_PENDING;
    uint64_t events;

    polls[0].fd = silent_ns <= 0 ? server->listen_fd : -1; /* else a new connection waits in the queue */
    polls[1].fd = server->event_fd;
    polls[2].fd = server->ended_fd;
    for (int w = 0; w < server->options->workers; w++) {
        polls[first_worker + w].fd = server->locals[w].fd;
    }
    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        polls[first_pending + i].fd = server->pending[i];
    }
    for (int i = 0; i < count; i++) {
        polls[i].events = POLLIN;
    }
    if (ppoll(polls, (nfds_t)count, least_ns < 0 ? NULL : &nap, NULL) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "wait for the workers of a parameter server");
    }
    if (polls[1].revents) {
        ssize_t got = read(server->event_fd, &events, sizeof(events));

        PL_BUG_IF(got < 0 && errno != EAGAIN);
    }
    for (int i = first_worker; i < first_pending; i++) {
        PL_TRY(polls[i].revents ? pl_server_workers_hear(server, i - first_worker, reterr) : PL_OK);
    }
    PL_TRY(polls[2].revents ? hear_end(server, reterr) : PL_OK); /* after the last messages of that worker */
    for (int i = first_pending; i < count; i++) {
        PL_TRY(polls[i].revents ? pl_server_workers_join(server, i - first_pending, reterr) : PL_OK);
    }
    return polls[0].revents ? accept_worker(server, reterr) : PL_OK;
}

static enum pl_status run(struct pl_server_state *server, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pollfd *polls =
        pl_memory_new((size_t)(3 + server->options->workers + SERVER_MOST_PENDING), sizeof(*polls), reterr);
    int64_t idle_since_ns = pl_clock_now_ns();

    if (!polls) {
        return PL_MEMORY;
    }
    for (;;) {
        bool has_taken = false, has_moved = false, has_transferred = false, is_over = false, is_few = false;
        int64_t nap_ns = -1;

        PL_TRY(pl_server_workers_take(server, &has_taken, reterr));
        PL_TRY(pl_server_transfer_advance(server, &has_transferred, reterr));
        if (server->remote) {
            PL_TRY(pl_server_remote_poll(server->remote, &has_moved, reterr));
        }
        notify(server);
        PL_TRY(pl_server_lost_check(server, &is_few, reterr));
        PL_TRY(is_few ? PL_OK : check_over(server, &is_over, reterr));
        if (is_over) {
            return PL_OK;
        }
        if (has_taken || has_moved || has_transferred) {
            idle_since_ns = pl_clock_now_ns();
            nap_ns = 0;
        } else if (server->remote || is_few) {
            nap_ns = pl_clock_backoff_ns(pl_clock_now_ns() - idle_since_ns, NAP_LEAST_NS, NAP_MOST_NS);
        }
        PL_TRY(hear(server, polls, nap_ns, reterr));
    }
}

/* Tells the workers of this host and the other servers why this server fails, within a limited time. */
static void tell_failure(struct pl_server_state *server, const struct pl_error *error)
{
    struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_FAILED, .count = error->status};
    int64_t deadline_ns = pl_deadline_after_ns(FAILED_TELL_NS);
    bool moved;

    for (int w = 0; w < server->options->workers; w++) {
        pl_server_answer_refuse(server->locals[w].fd, error);
    }
    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        pl_server_answer_refuse(server->pending[i], error);
    }
    if (!server->remote || server->is_told) {
        return;
    }
    pl_error_text(error, packet.text, sizeof(packet.text));
    if (pl_server_remote_send_all(server->remote, &packet, NULL, NULL) != PL_OK) {
        return;
    }
    while (!pl_server_remote_is_idle(server->remote) && !pl_deadline_passed(deadline_ns)) {
        if (pl_server_remote_flush(server->remote, &moved, NULL) != PL_OK) {
            return;
        }
        pl_clock_nap(NAP_LEAST_NS, deadline_ns);
    }
}

static enum pl_status open_server(struct pl_server_state *server, struct pl_error *reterr)
{
    const struct pl_server_serve_options *options = server->options;
    const struct pl_server_receiver receiver = {.context = server, .place = place, .handle = handle};

    if (options->workers < 1 || options->workers > PL_SERVER_MOST_WORKERS / server->hosts) {
        return pl_error_set(reterr, PL_INVALID, "%d workers on each of %d hosts: expected 1 to %d of the whole job",
                            options->workers, server->hosts, PL_SERVER_MOST_WORKERS);
    }
    server->total = options->workers * server->hosts;
    if (options->min_workers < 0 || options->min_workers > server->total) {
        return pl_error_set(reterr, PL_INVALID,
                            "ps_min_workers is %d, and the job has %d workers: expected at most the number of workers",
                            options->min_workers, server->total);
    }
    PL_TRY(pl_memory_alloc(&server->workers, (size_t)server->total, sizeof(*server->workers), reterr));
    PL_TRY(pl_memory_alloc(&server->locals, (size_t)options->workers, sizeof(*server->locals), reterr));
    for (int w = 0; w < options->workers; w++) {
        server->locals[w].fd = -1;
        server->locals[w].event_fd = -1;
        server->locals[w].transfer.fd = -1;
    }
    if (server->hosts > 1) {
        PL_TRY(pl_server_remote_new(options->bootstrap, &receiver, &server->remote, reterr));
    }
    return listen_at(server, reterr);
}

static void close_server(struct pl_server_state *server)
{
    bool is_idle = pl_server_remote_free(server->remote); /* before freeing the memory that it sends from */

    for (int w = 0; server->locals && w < server->options->workers; w++) {
        pl_file_close_at(&server->locals[w].fd);
        pl_file_close_at(&server->locals[w].event_fd);
        pl_server_transfer_cancel(server, w);
    }
    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        pl_file_close_at(&server->pending[i]);
    }
    if (is_idle && server->layout.data) { /* otherwise MPI may still access the memory; the process ends soon */
        pl_server_pieces_close(server);
        pl_server_rows_close(server);
        pl_server_view_close(&server->view);
    }
    pl_file_close_at(&server->memory_fd);
    pl_file_close_at(&server->event_fd);
    if (server->is_bound) {
        unlink(server->options->socket_path);
    }
    pl_file_close_at(&server->listen_fd);
    for (int w = 0; server->workers && w < server->total; w++) {
        free(server->workers[w].sum);
    }
    if (is_idle) {
        pl_server_layout_done(&server->layout);
    }
    free(server->locals);
    free(server->workers);
}

enum pl_status pl_server_serve(const struct pl_server_serve_options *options, struct pl_error *reterr)
{
    struct pl_server_state server = {
        .options = options,
        .host = options->bootstrap->rank,
        .hosts = options->bootstrap->size,
        .listen_fd = -1,
        .event_fd = -1,
        .memory_fd = -1,
        .ended_fd = options->ended_fd > 0 ? options->ended_fd : -1,
    };
    struct pl_error error = PL_ERROR_NONE;

    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        server.pending[i] = -1;
    }
    error.status = open_server(&server, &error);
    if (error.status == PL_OK) {
        error.status = run(&server, &error);
        if (error.status != PL_OK) {
            tell_failure(&server, &error);
        }
    }
    if (options->counts) {
        *options->counts = server.counts;
        options->counts->gradient_bytes = server.view.base ? pl_server_view_header(&server.view)->sent_bytes : 0;
    }
    close_server(&server);
    if (error.status != PL_OK && reterr) {
        *reterr = error;
    }
    return error.status;
}
