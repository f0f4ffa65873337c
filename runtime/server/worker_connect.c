/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's connection to the parameter server of its host: connecting, joining, exchanging messages. */
#include "runtime/server/worker.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "collectives/reduce/compress.h"
#include "collectives/world_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_NAP_NS (20 * PL_NS_PER_MS)

enum pl_status pl_worker_find_server(struct pl_server *server, const struct pl_server_options *options,
                                     struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *path = options->socket, *number, *staleness = options->staleness, *wire = options->wire_type;
    char *end = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    number = pl_environment_get_or(environment, PL_SERVER_WORKER_VARIABLE, "0");
    path = path ? path : pl_environment_get_or(environment, PL_SERVER_SOCKET_VARIABLE, NULL);
    if (!path) {
        return pl_error_set(reterr, PL_INVALID,
                            "no parameter server runs beside this process: %s is not set; `paceline train` sets it "
                            "with PACELINE_PS=native",
                            PL_SERVER_SOCKET_VARIABLE);
    }
    PL_TRY(pl_server_message_address(path, &server->address, reterr));
    server->number = options->socket ? options->worker : (int)strtol(number, &end, 10);
    if (server->number < 0 || server->number >= PL_SERVER_MOST_WORKERS || (end && (*end != '\0' || end == number))) {
        return pl_error_set(reterr, PL_INVALID, "a worker's number on its host is '%s', expected 0 to %d",
                            options->socket ? "below 0 or too large" : number, PL_SERVER_MOST_WORKERS - 1);
    }
    staleness = staleness ? staleness : pl_knob_text(pl_world_knobs(server->world), PL_KNOB_PS_STALENESS);
    wire = wire ? wire : pl_knob_text(pl_world_knobs(server->world), PL_KNOB_PS_WIRE_TYPE);
    PL_TRY(*wire ? pl_knob_read_word(wire, "float16 bfloat16 int8", "ps_wire_type", reterr) : PL_OK);
    server->wire = pl_compress_named(wire);
    PL_TRY(pl_knob_read_word(staleness, "none N", "ps_staleness", reterr));
    server->staleness = strcmp(staleness, "none") == 0 ? PL_SERVER_NO_BOUND : strtol(staleness, NULL, 10);
    return PL_OK;
}

void pl_worker_disconnect(struct pl_server *server)
{
    pl_server_view_close(&server->view);
    pl_file_close_at(&server->fd);
    pl_file_close_at(&server->server_event_fd);
    pl_file_close_at(&server->event_fd);
    free(PL_TAKE(server->sequence));
}

/* Tries to connect until the deadline, because the server may not listen yet. */
static enum pl_status connect_to(struct pl_server *server, int64_t deadline_ns, struct pl_error *reterr)
{
    server->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->fd < 0) {
        return pl_error_errno(reterr, "open a socket to the parameter server");
    }
    while (connect(server->fd, (const struct sockaddr *)&server->address, sizeof(server->address)) != 0) {
        if (errno != ENOENT && errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN) {
            return pl_error_errno(reterr, "connect to the parameter server at '%s'", server->address.sun_path);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT,
                                "no parameter server listens at '%s': waited until timeout_s had passed",
                                server->address.sun_path);
        }
        pl_clock_nap(CONNECT_NAP_NS, deadline_ns);
    }
    if (!pl_fd_peer_is_same_user(server->fd)) {
        return pl_error_set(reterr, PL_INVALID, "the process that listens at '%s' belongs to another user",
                            server->address.sun_path);
    }
    return fcntl(server->fd, F_SETFL, 0) == 0 ? PL_OK : pl_error_errno(reterr, "use a socket to the parameter server");
}

enum pl_status pl_worker_read_failure(const struct pl_server_message *message, bool closed, struct pl_error *reterr)
{
    if (closed) {
        return pl_error_set(reterr, PL_PEER, "the parameter server of this host is gone");
    }
    if (message->kind == PL_SERVER_REFUSED) {
        return pl_error_set(reterr, (enum pl_status)message->number, "the parameter server says: %s", message->text);
    }
    return pl_error_set(reterr, PL_CORRUPT, "the parameter server sent a message of kind %u, which was not expected",
                        message->kind);
}

enum pl_status pl_worker_send(struct pl_server *server, const struct pl_server_message *message, const int *sent_fds,
                              size_t fd_count, struct pl_error *reterr)
{
    enum pl_status status = pl_server_message_send(server->fd, message, sent_fds, fd_count, reterr);
    struct pl_server_message last;
    bool closed;

    if (status == PL_PEER) {
        PL_TRY(pl_server_message_receive(server->fd, false, &last, NULL, &closed, reterr));
        return pl_worker_read_failure(&last, closed, reterr);
    }
    return status;
}

int64_t pl_worker_stall_ns(const struct pl_server *server)
{
    int64_t stall_ns = pl_knob_ns(pl_world_knobs(server->world), PL_KNOB_STALL_S, PL_NS_PER_S);

    return stall_ns > 0 ? pl_deadline_after_ns(stall_ns) : PL_DEADLINE_NEVER;
}

void pl_worker_warn_stalled(const struct pl_server *server, const char *what, int64_t *stall_ns)
{
    *stall_ns = PL_DEADLINE_NEVER;
    pl_log(PL_LOG_WARNING, "worker %d has waited %.0f s: %s", server->worker,
           pl_knob_real(pl_world_knobs(server->world), PL_KNOB_STALL_S), what);
}

/* Waits for a message of `kind`. */
static enum pl_status receive(struct pl_server *server, uint32_t kind, struct pl_server_message *ret_message,
                              int ret_fds[3], int64_t deadline_ns, struct pl_error *reterr)
{
    const char *missing = kind == PL_SERVER_TOTAL   ? "not all workers have come to this sum"
                          : kind == PL_SERVER_ALONE ? "not all other workers have left"
                                                    : "the parameter server has not answered";
    struct pollfd ready = {.fd = server->fd, .events = POLLIN};
    int64_t stall_ns = pl_worker_stall_ns(server);
    bool closed = false;

    while (poll(&ready, 1, pl_deadline_poll_ms(deadline_ns < stall_ns ? deadline_ns : stall_ns)) <= 0) {
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "%s within timeout_s", missing);
        }
        if (pl_deadline_passed(stall_ns)) {
            pl_worker_warn_stalled(server, missing, &stall_ns);
        }
    }
    PL_TRY(pl_server_message_receive(server->fd, false, ret_message, ret_fds, &closed, reterr));
    return !closed && ret_message->kind == kind ? PL_OK : pl_worker_read_failure(ret_message, closed, reterr);
}

enum pl_status pl_worker_ask(struct pl_server *server, const struct pl_server_message *message, int sent_fd,
                             uint32_t kind, struct pl_server_message *ret_answer, struct pl_error *reterr)
{
    PL_TRY(pl_worker_send(server, message, &sent_fd, sent_fd >= 0, reterr));
    return receive(server, kind, ret_answer, NULL, pl_world_deadline_ns(server->world), reterr);
}

static enum pl_status send_join(struct pl_server *server, const struct pl_server_layout *layout,
                                struct pl_error *reterr)
{
    struct pl_server_message join = {.kind = PL_SERVER_JOIN, .number = server->number, .count = layout->bytes};
    PL_AUTO_CLOSE int fd = pl_fd_new_memory("paceline-layout", layout->bytes);

    if (fd < 0 || !pl_server_copy_at(fd, true, layout->data, layout->bytes, 0)) {
        return pl_error_errno(reterr, "write the layout for the parameter server, %zu bytes", layout->bytes);
    }
    return pl_worker_send(server, &join, &fd, 1, reterr);
}

enum pl_status pl_worker_join(struct pl_server *server, const struct pl_server_layout *layout, int64_t deadline_ns,
                              struct pl_error *reterr)
{
    struct pl_server_message welcome;
    struct pl_server_shape shape = {.elems = layout->head->elems,
                                    .pieces = layout->head->pieces,
                                    .rows_bytes = layout->head->tables > 0 ? PL_SERVER_ROWS_BYTES : 0};
    PL_AUTO_CLOSE int memory_fd = -1;
    struct stat info;
    int fds[3] = {-1, -1, -1};

    PL_TRY(connect_to(server, deadline_ns, reterr));
    PL_TRY(send_join(server, layout, reterr));
    PL_TRY(receive(server, PL_SERVER_WELCOME, &welcome, fds, deadline_ns, reterr));
    memory_fd = fds[0];
    server->server_event_fd = fds[1];
    server->event_fd = fds[2];
    server->worker = welcome.number;
    server->workers = (int)welcome.count;
    /* The number of workers per host is computed from the file's size. */
    shape.workers = 1;
    PL_TRY(pl_server_shape(&shape, reterr));
    if (fstat(memory_fd, &info) != 0 || (uint64_t)info.st_size < shape.file_bytes) {
        return pl_error_set(reterr, PL_CORRUPT, "the parameter server's memory is too short");
    }
    shape.workers = ((uint64_t)info.st_size - shape.slots_at) / shape.slot_bytes;
    PL_TRY(pl_server_shape(&shape, reterr));
    PL_TRY(pl_server_view_open(&server->view, &shape, memory_fd, reterr));
    if ((uint64_t)server->number >= shape.workers) {
        return pl_error_set(reterr, PL_CORRUPT, "the parameter server's memory has no place for worker %d",
                            server->number);
    }
    server->slot = pl_server_view_slot(&server->view, (uint64_t)server->number);
    return pl_memory_alloc(&server->sequence, shape.pieces, sizeof(*server->sequence), reterr);
}
