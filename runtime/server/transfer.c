/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of the values and optimizer state of all pieces, from the servers to a worker's memory file or back. Each
 * round of the server's loop moves one piece, so training goes on meanwhile. The file:
 *
 *     values [elems] | each of the optimizer's arrays [elems] | number of updates of each piece [pieces], uint64
 */
#include "runtime/server/state.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_WAITING = 4 }; /* most pieces of a transfer in flight */

static uint64_t file_bytes(const struct pl_server_state *server)
{
    return server->layout.head->elems * (1 + server->slots) * sizeof(float) +
           server->layout.head->pieces * sizeof(uint64_t);
}

enum pl_status pl_server_transfer_begin(struct pl_server_state *server, int local,
                                        const struct pl_server_message *message, int fd, struct pl_error *reterr)
{
    struct pl_server_transfer *transfer = &server->locals[local].transfer;
    struct stat info;
    bool is_there = fstat(fd, &info) == 0 && (uint64_t)info.st_size == message->count;

    if (transfer->fd < 0 && is_there && message->count == file_bytes(server)) {
        *transfer = (struct pl_server_transfer){
            .fd = fd, .number = transfer->number + 1, .way = (enum pl_server_state_way)message->number};
        return PL_OK;
    }
    pl_file_close_at(&fd);
    return pl_error_set(reterr, PL_CORRUPT,
                        "worker %d says STATE with a file of %" PRIu64 " bytes%s, expected one of %" PRIu64,
                        pl_server_first_worker(server) + local, message->count,
                        transfer->fd >= 0 ? " before another one has ended"
                        : is_there        ? ""
                                          : " that is not so long",
                        file_bytes(server));
}

void pl_server_transfer_cancel(struct pl_server_state *server, int local)
{
    pl_file_close_at(&server->locals[local].transfer.fd);
}

/* Copies `data`, [1 + slots][piece], to the file or from the file. */
static bool copy_piece(const struct pl_server_state *server, int fd, bool writes, uint64_t piece, float *data,
                       uint64_t *updates)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];
    const uint64_t elems = server->layout.head->elems, arrays = 1 + server->slots;

    for (uint64_t a = 0; a < arrays; a++) {
        if (!pl_server_copy_at(fd, writes, data + a * range->count_elems, range->count_elems * sizeof(float),
                               (a * elems + range->first_elem) * sizeof(float))) {
            return false;
        }
    }
    return pl_server_copy_at(fd, writes, updates, sizeof(*updates),
                             arrays * elems * sizeof(float) + piece * sizeof(*updates));
}

/* Refuses a file that cannot be read or written: only the worker's request fails, not the job. */
static void refuse_file(struct pl_server_state *server, int local)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_error_errno(&error, "use the file for the state of worker %d", pl_server_first_worker(server) + local);
    pl_server_transfer_cancel(server, local);
    pl_server_answer_refuse(server->locals[local].fd, &error);
}

/* Begins one more piece. A piece of this server is copied at once; the owner of another piece gets ASK or GIVE. */
static enum pl_status begin_piece(struct pl_server_state *server, int local, struct pl_error *reterr)
{
    struct pl_server_transfer *transfer = &server->locals[local].transfer;
    const uint64_t piece = transfer->next++;
    const bool assigns = transfer->way == PL_SERVER_STATE_ASSIGN;
    const int owner = pl_server_owner(server, piece);
    struct pl_server_packet packet = {.kind = assigns ? PL_SERVER_PACKET_GIVE : PL_SERVER_PACKET_ASK,
                                      .worker = pl_server_first_worker(server) + local,
                                      .piece = piece,
                                      .transfer = transfer->number};
    const uint64_t bytes = server->layout.pieces[piece].count_elems * (1 + server->slots) * sizeof(float);
    PL_AUTO_FREE float *data = NULL;

    if (owner != server->host && !assigns) {
        transfer->waiting++;
        return pl_server_remote_send(server->remote, owner, &packet, NULL, false, reterr);
    }
    PL_TRY(pl_memory_alloc_aligned(&data, bytes, 1, 64, reterr));
    if (!assigns) {
        pl_server_pieces_read_state(server, piece, data);
        packet.steps = server->updates[piece];
    }
    if (!copy_piece(server, transfer->fd, !assigns, piece, data, &packet.steps)) {
        refuse_file(server, local);
        return PL_OK;
    }
    if (assigns && owner == server->host) {
        return pl_server_pieces_write_state(server, piece, packet.steps, data, reterr);
    }
    if (assigns) {
        packet.data_bytes = bytes;
        transfer->waiting++;
        return pl_server_remote_send(server->remote, owner, &packet, PL_TAKE(data), true, reterr);
    }
    return PL_OK;
}

enum pl_status pl_server_transfer_advance(struct pl_server_state *server, bool *ret_moved, struct pl_error *reterr)
{
    for (int w = 0; server->view.base && w < server->options->workers; w++) {
        struct pl_server_transfer *transfer = &server->locals[w].transfer;
        struct pl_server_message done = {.kind = PL_SERVER_STATE, .number = (int32_t)transfer->way, .count = 1};

        if (transfer->fd < 0) {
            continue;
        }
        if (transfer->next < server->layout.head->pieces && transfer->waiting < MOST_WAITING) {
            *ret_moved = true;
            PL_TRY(begin_piece(server, w, reterr));
        } else if (transfer->next == server->layout.head->pieces && transfer->waiting == 0) {
            *ret_moved = true;
            pl_server_transfer_cancel(server, w);
            pl_server_answer(server, w, &done, "its state");
        }
    }
    return PL_OK;
}

/* Sends the state of a piece to a worker of another host. */
static enum pl_status answer_ask(struct pl_server_state *server, int host, const struct pl_server_packet *ask,
                                 struct pl_error *reterr)
{
    struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_STATE,
                                      .worker = ask->worker,
                                      .piece = ask->piece,
                                      .transfer = ask->transfer,
                                      .steps = server->updates[ask->piece]};
    float *data;

    packet.data_bytes = server->layout.pieces[ask->piece].count_elems * (1 + server->slots) * sizeof(float);
    PL_TRY(pl_memory_alloc_aligned(&data, packet.data_bytes, 1, 64, reterr));
    pl_server_pieces_read_state(server, ask->piece, data);
    return pl_server_remote_send(server->remote, host, &packet, data, true, reterr);
}

/* Takes an answer to a transfer of this host; the transfer may have been cancelled. */
static void take_answer(struct pl_server_state *server, const struct pl_server_packet *packet, float *data)
{
    int local = packet->worker - pl_server_first_worker(server);
    struct pl_server_transfer *transfer = &server->locals[local].transfer;
    uint64_t updates = packet->steps;

    if (packet->kind == PL_SERVER_PACKET_STATE) {
        pl_server_pieces_overwrite(server, packet->piece, data); /* these are now this host's newest values */
    }
    if (transfer->fd < 0 || packet->transfer != transfer->number) {
        return;
    }
    transfer->waiting -= transfer->waiting > 0;
    if (packet->kind == PL_SERVER_PACKET_STATE &&
        !copy_piece(server, transfer->fd, true, packet->piece, data, &updates)) {
        refuse_file(server, local);
    }
}

enum pl_status pl_server_transfer_handle(struct pl_server_state *server, int host,
                                         const struct pl_server_packet *packet, float *data, struct pl_error *reterr)
{
    const struct pl_server_packet taken = {
        .kind = PL_SERVER_PACKET_TAKEN, .worker = packet->worker, .piece = packet->piece, .transfer = packet->transfer};

    if (packet->kind == PL_SERVER_PACKET_ASK) {
        return answer_ask(server, host, packet, reterr);
    }
    if (packet->kind == PL_SERVER_PACKET_GIVE) {
        PL_TRY(pl_server_pieces_write_state(server, packet->piece, packet->steps, data, reterr));
        return pl_server_remote_send(server->remote, host, &taken, NULL, false, reterr);
    }
    take_answer(server, packet, data);
    return PL_OK;
}
