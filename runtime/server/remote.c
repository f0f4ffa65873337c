/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the servers of a job: queues of messages being sent, and one receive from each other server. */
#include "runtime/server/remote.h"

#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"

#include <stdlib.h>

enum { TAG_PACKET = PL_TAG_P2P, TAG_DATA };

struct outgoing {
    struct outgoing *next;
    bool owned;
    void *data;
    struct pl_transfer head;
    struct pl_server_packet packet;
    size_t parts; /* number of parts of the data */
    struct pl_transfer body[];
};

/* Data arriving from one server: a packet, then its data. */
struct incoming {
    struct pl_transfer head;
    struct pl_transfer body; /* one part of the data */
    char *data;
    uint64_t received_bytes; /* bytes of the data received before that part */
    bool has_ended;
    struct pl_server_packet packet;
};

struct pl_server_remote {
    struct pl_transport *transport;
    struct pl_server_receiver receiver;
    int rank;
    int size;
    struct incoming *incoming; /* [size]: receives, by sending server */
    struct outgoing *first;    /* messages in flight */
    bool has_said_end;
    int ended; /* number of other servers that have ended */
};

/* Returns the length of the part that begins at `at` in the data of `packet`. */
static size_t part_bytes(const struct pl_server_remote *remote, const struct pl_server_packet *packet, uint64_t at)
{
    uint64_t left = packet->data_bytes - at;

    return left < remote->transport->most_bytes ? left : remote->transport->most_bytes;
}

static enum pl_status post_head(struct pl_server_remote *remote, int server, struct pl_error *reterr)
{
    struct incoming *in = &remote->incoming[server];

    in->data = NULL;
    return remote->transport->recv(remote->transport->context, &in->packet, sizeof(in->packet), server, TAG_PACKET,
                                   &in->head, reterr);
}

static enum pl_status post_part(struct pl_server_remote *remote, int server, struct pl_error *reterr)
{
    struct incoming *in = &remote->incoming[server];

    return remote->transport->recv(remote->transport->context, in->data + in->received_bytes,
                                   part_bytes(remote, &in->packet, in->received_bytes), server, TAG_DATA, &in->body,
                                   reterr);
}

enum pl_status pl_server_remote_new(struct pl_bootstrap *bootstrap, const struct pl_server_receiver *receiver,
                                    struct pl_server_remote **ret_remote, struct pl_error *reterr)
{
    struct pl_server_remote *remote;
    enum pl_status status = PL_OK;

    PL_TRY(pl_memory_alloc(&remote, 1, sizeof(*remote), reterr));
    remote->transport = bootstrap->transport;
    remote->receiver = *receiver;
    remote->rank = bootstrap->rank;
    remote->size = bootstrap->size;
    remote->incoming = pl_memory_new((size_t)bootstrap->size, sizeof(*remote->incoming), reterr);
    if (!remote->incoming) {
        free(remote);
        return PL_MEMORY;
    }
    for (int s = 0; s < remote->size && status == PL_OK; s++) {
        status = s == remote->rank ? PL_OK : post_head(remote, s, reterr);
    }
    if (status != PL_OK) {
        pl_server_remote_free(remote);
        return status;
    }
    *ret_remote = remote;
    return PL_OK;
}

static bool cancel(struct pl_server_remote *remote, struct pl_transfer *transfer)
{
    return !transfer->active || remote->transport->cancel(remote->transport->context, transfer);
}

bool pl_server_remote_free(struct pl_server_remote *remote)
{
    bool received = true, sent = true;

    if (!remote) {
        return true;
    }
    for (int s = 0; s < remote->size; s++) {
        struct incoming *in = &remote->incoming[s];

        received = cancel(remote, &in->head) && cancel(remote, &in->body) && received;
        if (received && in->data && in->packet.kind == PL_SERVER_PACKET_LAYOUT) {
            free(in->data); /* the caller has not taken it */
        }
    }
    for (struct outgoing *out = remote->first, *next; out; out = next) {
        next = out->next;
        bool cancelled = cancel(remote, &out->head);

        for (size_t p = 0; p < out->parts; p++) {
            cancelled = cancel(remote, &out->body[p]) && cancelled;
        }
        sent = sent && cancelled;
        free(cancelled && out->owned ? out->data : NULL);
        free(cancelled ? out : NULL);
    }
    free(received ? remote->incoming : NULL); /* otherwise the transport may still write to it */
    free(remote);
    return sent && received;
}

enum pl_status pl_server_remote_send(struct pl_server_remote *remote, int server, const struct pl_server_packet *packet,
                                     void *data, bool owned, struct pl_error *reterr)
{
    struct pl_transport *transport = remote->transport;
    uint64_t parts = (packet->data_bytes + transport->most_bytes - 1) / transport->most_bytes, at = 0;
    struct outgoing *out = pl_memory_new(1, sizeof(*out) + parts * sizeof(struct pl_transfer), reterr);
    enum pl_status status;

    if (!out) {
        free(owned ? data : NULL);
        return PL_MEMORY;
    }
    out->packet = *packet;
    out->owned = owned;
    out->data = data;
    out->parts = parts;
    status =
        transport->send(transport->context, &out->packet, sizeof(out->packet), server, TAG_PACKET, &out->head, reterr);
    for (size_t p = 0; p < parts && status == PL_OK; p++) {
        size_t bytes = part_bytes(remote, packet, at);

        status = transport->send(transport->context, (char *)data + at, bytes, server, TAG_DATA, &out->body[p], reterr);
        at += bytes;
    }
    out->next = remote->first; /* if the message fails half-way, pl_server_remote_free() cancels it */
    remote->first = out;
    return status;
}

enum pl_status pl_server_remote_send_all(struct pl_server_remote *remote, const struct pl_server_packet *packet,
                                         void *data, struct pl_error *reterr)
{
    for (int s = 0; s < remote->size; s++) {
        if (s != remote->rank) {
            PL_TRY(pl_server_remote_send(remote, s, packet, data, false, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status test(struct pl_server_remote *remote, struct pl_transfer *transfer, int server,
                           size_t expected_bytes, bool *ret_done, struct pl_error *reterr)
{
    size_t bytes = expected_bytes;
    enum pl_status status = remote->transport->test(remote->transport->context, transfer, ret_done, &bytes, reterr);

    if (status == PL_OK && *ret_done && bytes != expected_bytes) {
        return pl_error_set(reterr, PL_CORRUPT, "a message of the parameter server of host %d has %zu bytes, not %zu",
                            server, bytes, expected_bytes);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "messages with the parameter server of host %d", server);
    }
    return status;
}

enum pl_status pl_server_remote_flush(struct pl_server_remote *remote, bool *ret_moved, struct pl_error *reterr)
{
    for (struct outgoing **at = &remote->first; *at;) {
        struct outgoing *out = *at;
        bool done = true;
        size_t bytes;

        if (out->head.active) {
            PL_TRY(remote->transport->test(remote->transport->context, &out->head, &done, &bytes, reterr));
        }
        for (size_t p = 0; p < out->parts && done; p++) {
            if (out->body[p].active) {
                PL_TRY(remote->transport->test(remote->transport->context, &out->body[p], &done, &bytes, reterr));
            }
        }
        if (!done) {
            at = &out->next;
            continue;
        }
        *at = out->next;
        free(out->owned ? out->data : NULL);
        free(out);
        *ret_moved = true;
    }
    return PL_OK;
}

/* Receives the next packet of `server` and its data. `*ret_done` is false if they have not arrived completely. */
static enum pl_status poll_receive(struct pl_server_remote *remote, int server, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_server_receiver *receiver = &remote->receiver;
    struct incoming *in = &remote->incoming[server];

    if (in->head.active) {
        PL_TRY(test(remote, &in->head, server, sizeof(in->packet), ret_done, reterr));
        if (!*ret_done) {
            return PL_OK;
        }
        if (in->packet.data_bytes > 0) {
            void *data = NULL;

            PL_TRY(receiver->place(receiver->context, server, &in->packet, &data, reterr));
            in->data = data;
            in->received_bytes = 0;
            PL_TRY(post_part(remote, server, reterr));
        }
    }
    while (in->body.active) {
        size_t bytes = part_bytes(remote, &in->packet, in->received_bytes);

        PL_TRY(test(remote, &in->body, server, bytes, ret_done, reterr));
        if (!*ret_done) {
            return PL_OK;
        }
        in->received_bytes += bytes;
        if (in->received_bytes < in->packet.data_bytes) {
            PL_TRY(post_part(remote, server, reterr));
        }
    }
    if (in->packet.kind == PL_SERVER_PACKET_END && in->packet.data_bytes == 0) {
        in->has_ended = true;
        remote->ended++;
        return PL_OK;
    }
    PL_TRY(receiver->handle(receiver->context, server, &in->packet, PL_TAKE(in->data), reterr));
    return post_head(remote, server, reterr);
}

enum pl_status pl_server_remote_poll(struct pl_server_remote *remote, bool *ret_moved, struct pl_error *reterr)
{
    *ret_moved = false;
    PL_TRY(pl_server_remote_flush(remote, ret_moved, reterr));
    for (int s = 0; s < remote->size; s++) {
        bool done = false;

        if (s != remote->rank && !remote->incoming[s].has_ended) {
            PL_TRY(poll_receive(remote, s, &done, reterr));
            *ret_moved = *ret_moved || done;
        }
    }
    return PL_OK;
}

enum pl_status pl_server_remote_end(struct pl_server_remote *remote, struct pl_error *reterr)
{
    const struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_END};

    if (remote->has_said_end) {
        return PL_OK;
    }
    remote->has_said_end = true;
    return pl_server_remote_send_all(remote, &packet, NULL, reterr);
}

bool pl_server_remote_has_ended(const struct pl_server_remote *remote)
{
    return remote->has_said_end && !remote->first && remote->ended == remote->size - 1;
}

bool pl_server_remote_is_idle(const struct pl_server_remote *remote)
{
    return !remote->first;
}
