/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's copy of the servers' optimizer, the transfer of values and state, and a stop that a worker asks for. */
#include "runtime/server/worker.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "runtime/gradient/optimizer_rule.h"

#include <errno.h>
#include <stdlib.h>

enum pl_status pl_server_optimizer(struct pl_server *server, struct pl_optimizer **ret_optimizer,
                                   struct pl_error *reterr)
{
    if (!server->copy) {
        PL_TRY(pl_optimizer_new(server->plan, &server->optimizer, &server->copy, reterr));
    }
    *ret_optimizer = server->copy;
    return PL_OK;
}

/* Returns the arrays in the order of transfer.c. */
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

/* Has the servers fill the file, or read it. */
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
    PL_TRY(pl_worker_check_started(server, reterr));
    PL_TRY(pl_worker_check_between(server, "pl_server_pull_state()", reterr));
    return move_state(server, PL_SERVER_STATE_PULL, reterr);
}

enum pl_status pl_server_assign_state(struct pl_server *server, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    PL_TRY(pl_worker_check_between(server, "pl_server_assign_state()", reterr));
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

    PL_TRY(pl_worker_check_started(server, reterr));
    PL_TRY(pl_worker_check_between(server, "pl_server_outlast()", reterr));
    return pl_worker_ask(server, &message, -1, PL_SERVER_ALONE, &message, reterr);
}
