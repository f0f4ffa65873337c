/* SPDX-License-Identifier: Apache-2.0 */
/* What a server answers its own workers: a piece is applied, a fetch is complete, a request is refused. */
#include "runtime/server/state.h"

#include "base/log.h"

void pl_server_answer_refuse_socket(int fd, const struct pl_error *error)
{
    struct pl_server_message message = {.kind = PL_SERVER_REFUSED, .number = (int32_t)error->status};

    pl_error_text(error, message.text, sizeof(message.text));
    if (pl_server_message_send(fd, &message, NULL, 0, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "a refused worker has left before it got the reason: %s", message.text);
    }
}

void pl_server_answer_refuse(struct pl_server_state *server, const struct pl_error *error)
{
    for (int w = 0; w < server->options->workers; w++) {
        if (server->locals[w].fd >= 0) {
            pl_server_answer_refuse_socket(server->locals[w].fd, error);
        }
    }
    for (int i = 0; i < SERVER_MOST_PENDING; i++) {
        if (server->pending[i] >= 0) {
            pl_server_answer_refuse_socket(server->pending[i], error);
        }
    }
}

void pl_server_answer_refuse_one(struct pl_server_state *server, int local, const struct pl_error *error)
{
    if (server->locals[local].fd >= 0) {
        pl_server_answer_refuse_socket(server->locals[local].fd, error);
    }
}

void pl_server_answer_applied(struct pl_server_state *server, int local)
{
    atomic_fetch_add_explicit(&pl_server_view_slot(&server->view, (uint64_t)local)->applied, 1, memory_order_release);
    pl_server_notify(server, local);
}

void pl_server_answer_fetch(struct pl_server_state *server)
{
    for (int w = 0; w < server->options->workers; w++) {
        atomic_store_explicit(&pl_server_view_slot(&server->view, (uint64_t)w)->fetched, server->locals[w].fetches,
                              memory_order_release);
        pl_server_notify(server, w);
    }
}

void pl_server_answer_fetched(struct pl_server_state *server)
{
    if (server->fetching > 0 && --server->fetching == 0) {
        pl_server_answer_fetch(server);
    }
}
