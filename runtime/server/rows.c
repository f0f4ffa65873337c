/* SPDX-License-Identifier: Apache-2.0 */
/* A server's tables: requests about rows. This server handles its own rows, and asks the other servers for theirs. */
#include "runtime/server/row_store.h"
#include "runtime/server/state.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Least bytes of a row in a list: its id and one column. */
enum { LEAST_ROW_BYTES = sizeof(int64_t) + sizeof(float), MOST_ROWS = PL_SERVER_ROWS_BYTES / LEAST_ROW_BYTES };

_Static_assert(sizeof(int64_t) + PL_SERVER_MOST_COLUMNS * sizeof(float) <= PL_SERVER_ROWS_BYTES, "a row has room");

/* A request of one worker of this host. A worker sends one request at a time. */
struct request {
    enum pl_server_rows what;
    uint64_t table;
    int waiting;      /* number of servers that have not answered yet */
    bool *is_waiting; /* [hosts]: the server has not answered yet */
    uint32_t *at;     /* [MOST_ROWS]: positions in the list, grouped by server; used if there are several servers */
    uint16_t *owner;  /* [MOST_ROWS]: owner of each row; a copy, because the worker may change the list */
    uint64_t *first;  /* [hosts + 1]: index in `at` where each server's positions begin */
    uint64_t counted; /* number of counted rows */
    struct pl_server_rows_loaded loaded;
    struct pl_error error; /* the first failure */
};

struct server_rows {
    struct pl_row_store **stores; /* [tables]: this server's rows of each table */
    struct request *requests;     /* [workers of this host]: the request of each worker */
    char **stage;                 /* [hosts]: buffer for data from another server */
};

enum pl_status pl_server_rows_open(struct pl_server_state *server, struct pl_error *reterr)
{
    const struct pl_server_layout *layout = &server->layout;
    struct server_rows *rows;

    if (layout->head->tables == 0) {
        return PL_OK;
    }
    rows = server->rows = pl_memory_new(1, sizeof(*rows), reterr);
    if (!rows) {
        return PL_MEMORY;
    }
    PL_TRY(pl_memory_alloc(&rows->stores, layout->head->tables, sizeof(*rows->stores), reterr));
    PL_TRY(pl_memory_alloc(&rows->requests, (size_t)server->options->workers, sizeof(*rows->requests), reterr));
    PL_TRY(pl_memory_alloc(&rows->stage, (size_t)server->hosts, sizeof(*rows->stage), reterr));
    for (uint64_t t = 0; t < layout->head->tables; t++) {
        PL_TRY(pl_row_store_new(&layout->tables[t], &rows->stores[t], reterr));
    }
    for (int w = 0; w < server->options->workers; w++) {
        struct request *request = &rows->requests[w];

        PL_TRY(pl_memory_alloc(&request->is_waiting, (size_t)server->hosts, sizeof(bool), reterr));
        PL_TRY(pl_memory_alloc(&request->first, (size_t)server->hosts + 1, sizeof(*request->first), reterr));
        if (server->hosts > 1) {
            PL_TRY(pl_memory_alloc(&request->at, MOST_ROWS, sizeof(*request->at), reterr));
            PL_TRY(pl_memory_alloc(&request->owner, MOST_ROWS, sizeof(*request->owner), reterr));
        }
    }
    for (int h = 0; h < server->hosts; h++) {
        rows->stage[h] = h == server->host ? NULL : pl_memory_new(PL_SERVER_ROWS_BYTES, 1, reterr);
        if (h != server->host && !rows->stage[h]) {
            return PL_MEMORY;
        }
    }
    return PL_OK;
}

void pl_server_rows_close(struct pl_server_state *server)
{
    struct server_rows *rows = server->rows;

    if (!rows) {
        return;
    }
    for (uint64_t t = 0; rows->stores && t < server->layout.head->tables; t++) {
        pl_row_store_free(rows->stores[t]);
    }
    for (int w = 0; rows->requests && w < server->options->workers; w++) {
        free(rows->requests[w].is_waiting);
        free(rows->requests[w].first);
        free(rows->requests[w].at);
        free(rows->requests[w].owner);
    }
    for (int h = 0; rows->stage && h < server->hosts; h++) {
        free(rows->stage[h]);
    }
    free(rows->stores);
    free(rows->requests);
    free(rows->stage);
    free(rows);
}

static bool has_list(uint64_t what)
{
    return what == PL_SERVER_ROWS_PULL || what == PL_SERVER_ROWS_PUSH;
}

static uint64_t row_bytes(const struct pl_server_state *server, uint64_t table)
{
    return server->layout.tables[table].columns * sizeof(float);
}

/* Whether ids and rows of the list fit into their shared memory. */
static bool is_list(const struct pl_server_state *server, uint64_t table, uint64_t count)
{
    return count <= PL_SERVER_ROWS_BYTES / (sizeof(int64_t) + row_bytes(server, table));
}

enum pl_status pl_server_rows_check(const struct pl_server_state *server, int local,
                                    const struct pl_server_message *message, struct pl_error *reterr)
{
    uint64_t table = (uint64_t)message->number;

    if (table >= server->layout.head->tables || server->rows->requests[local].waiting > 0 ||
        (has_list(message->rows.what) && !is_list(server, table, message->count))) {
        return pl_error_set(reterr, PL_CORRUPT,
                            "worker %d asks for %llu rows of table %d: there are %llu tables, and one list at a time",
                            pl_server_first_worker(server) + local, (unsigned long long)message->count, message->number,
                            (unsigned long long)server->layout.head->tables);
    }
    return PL_OK;
}

/* Groups the positions of the list by the servers that own the rows. */
static void deal(const struct pl_server_state *server, struct request *request, const int64_t *ids, uint64_t count)
{
    uint64_t *first = request->first;

    memset(first, 0, ((size_t)server->hosts + 1) * sizeof(*first));
    for (uint64_t i = 0; i < count; i++) {
        request->owner[i] = (uint16_t)pl_table_owner(ids[i], server->hosts);
        first[request->owner[i] + 1]++;
    }
    for (int h = 0; h < server->hosts; h++) {
        first[h + 1] += first[h];
    }
    for (uint64_t i = count; i-- > 0;) {
        /* filled from the end of each range, so that afterwards `first` has the beginnings again */
        request->at[--first[request->owner[i] + 1]] = (uint32_t)i;
    }
    memmove(first, first + 1, (size_t)server->hosts * sizeof(*first));
    first[server->hosts] = count;
}

/* Sends server `host` the part of the request about its rows. */
static enum pl_status ask_other(struct pl_server_state *server, int host, int worker,
                                const struct pl_server_message *message, const int64_t *ids, const float *values,
                                struct pl_error *reterr)
{
    struct request *request = &server->rows->requests[worker - pl_server_first_worker(server)];
    struct pl_server_packet packet = {
        .kind = PL_SERVER_PACKET_ROWS, .worker = worker, .piece = request->table, .rows = message->rows};
    const uint32_t *at = request->at + request->first[host];
    uint64_t columns = server->layout.tables[request->table].columns;
    char *data = NULL;

    if (has_list(request->what)) {
        packet.steps = request->first[host + 1] - request->first[host];
        packet.data_bytes = packet.steps * sizeof(*ids);
        if (packet.steps == 0) {
            return PL_OK;
        }
        if (request->what == PL_SERVER_ROWS_PUSH) {
            packet.data_bytes += packet.steps * columns * sizeof(float);
        }
        PL_TRY(pl_memory_alloc(&data, packet.data_bytes, 1, reterr));
        for (uint64_t i = 0; i < packet.steps; i++) {
            memcpy(data + i * sizeof(*ids), &ids[at[i]], sizeof(*ids));
        }
        for (uint64_t i = 0; request->what == PL_SERVER_ROWS_PUSH && i < packet.steps; i++) {
            memcpy(data + packet.steps * sizeof(*ids) + i * columns * sizeof(float), values + at[i] * columns,
                   columns * sizeof(float));
        }
    }
    request->is_waiting[host] = true;
    request->waiting++;
    return pl_server_remote_send(server->remote, host, &packet, data, true, reterr);
}

/* Runs a request on this server's rows. `*ret_rows` is the number of rows that it has. */
static enum pl_status run_request(struct pl_server_state *server, uint64_t table,
                                  const struct pl_server_rows_request *request, const int64_t *ids, const uint32_t *at,
                                  uint64_t count, float *values, uint64_t *ret_rows,
                                  struct pl_server_rows_loaded *ret_loaded, struct pl_error *reterr)
{
    const struct pl_table *shape = &server->layout.tables[table];
    struct pl_row_store *store = server->rows->stores[table];
    enum pl_status status = PL_OK;

    switch ((enum pl_server_rows)request->what) {
    case PL_SERVER_ROWS_PULL:
        pl_row_store_pull(store, ids, at, count, values);
        break;
    case PL_SERVER_ROWS_PUSH:
        status = pl_row_store_push(store, ids, at, count, values, reterr);
        break;
    case PL_SERVER_ROWS_SAVE:
        status = pl_row_file_write(request->path, shape, store, server->host, server->hosts, request->time_ns, reterr);
        break;
    case PL_SERVER_ROWS_LOAD:
        status = pl_row_file_read(request->path, shape, store, server->host, server->hosts, request->time_ns,
                                  ret_loaded, reterr);
        break;
    case PL_SERVER_ROWS_KEEP:
    case PL_SERVER_ROWS_DROP:
        status =
            pl_row_file_remove(request->path, shape, request->time_ns, request->what == PL_SERVER_ROWS_KEEP, reterr);
        break;
    case PL_SERVER_ROWS_COUNT:
    case PL_SERVER_ROWS_END:
        break;
    }
    *ret_rows = pl_row_store_rows(store);
    if (status != PL_OK && server->hosts > 1) {
        pl_error_context(reterr, "the parameter server of host %d", server->host);
    }
    return status;
}

/* Adds another server's answer to a request to load. */
static void add_loaded(struct request *request, const struct pl_server_rows_loaded *loaded)
{
    struct pl_server_rows_loaded *all = &request->loaded;

    all->oldest = loaded->oldest < all->oldest ? loaded->oldest : all->oldest;
    all->newest = loaded->newest > all->newest ? loaded->newest : all->newest;
    if (!*all->passed) {
        strcpy(all->passed, loaded->passed);
    }
}

/* Answers the worker when all servers have finished. */
static void answer(struct pl_server_state *server, int local)
{
    struct request *request = &server->rows->requests[local];
    struct pl_server_message message = {
        .kind = PL_SERVER_ROWS_DONE, .number = (int32_t)request->table, .count = request->counted};

    message.loaded = request->loaded;
    if (request->error.status != PL_OK) {
        pl_server_answer_refuse(server->locals[local].fd, &request->error);
    } else {
        pl_server_answer(server, local, &message, "its rows");
    }
}

enum pl_status pl_server_rows_ask(struct pl_server_state *server, int local, const struct pl_server_message *message,
                                  struct pl_error *reterr)
{
    struct request *request = &server->rows->requests[local];
    char *list = pl_server_view_rows(&server->view, (uint64_t)local);
    int64_t *ids = (int64_t *)(void *)list;
    uint64_t count = has_list(message->rows.what) ? message->count : 0;
    float *values = (float *)(void *)(ids + count);
    struct pl_server_rows_loaded loaded = {0};
    const uint32_t *at = NULL;

    request->what = (enum pl_server_rows)message->rows.what;
    request->table = (uint64_t)message->number;
    request->error = PL_ERROR_NONE;
    request->loaded = (struct pl_server_rows_loaded){.oldest = UINT64_MAX};
    if (server->hosts > 1) {
        deal(server, request, ids, count);
        for (int h = 0; h < server->hosts; h++) {
            if (h != server->host) {
                PL_TRY(ask_other(server, h, pl_server_first_worker(server) + local, message, ids, values, reterr));
            }
        }
        at = request->at + request->first[server->host];
        count = request->first[server->host + 1] - request->first[server->host];
    }
    request->error.status = run_request(server, request->table, &message->rows, ids, at, count, values,
                                        &request->counted, &loaded, &request->error);
    add_loaded(request, &loaded);
    if (request->waiting == 0) {
        answer(server, local);
    }
    return PL_OK;
}

bool pl_server_rows_may_send(const struct pl_server_state *server, int host, const struct pl_server_packet *packet)
{
    const struct server_rows *rows = server->rows;
    bool is_answer = packet->kind == PL_SERVER_PACKET_ROWS_DONE;
    const struct request *request;
    uint64_t data_bytes = 0;

    if (!rows || packet->piece >= server->layout.head->tables || packet->worker < 0 ||
        packet->worker / server->options->workers != (is_answer ? server->host : host)) {
        return false;
    }
    if (is_answer) {
        request = &rows->requests[packet->worker - pl_server_first_worker(server)];
        if (!request->is_waiting[host] || request->table != packet->piece || packet->count > PL_FAILED ||
            !(packet->count == PL_OK ? memchr(packet->loaded.passed, '\0', sizeof(packet->loaded.passed))
                                     : memchr(packet->text, '\0', sizeof(packet->text)))) {
            return false;
        }
        if (request->what == PL_SERVER_ROWS_PULL && packet->count == PL_OK) {
            data_bytes = (request->first[host + 1] - request->first[host]) * row_bytes(server, packet->piece);
        }
        return packet->data_bytes == data_bytes;
    }
    if (packet->rows.what >= PL_SERVER_ROWS_END || !memchr(packet->rows.path, '\0', sizeof(packet->rows.path))) {
        return false;
    }
    if (has_list(packet->rows.what)) {
        if (packet->steps == 0 || !is_list(server, packet->piece, packet->steps)) {
            return false;
        }
        data_bytes = packet->steps * sizeof(int64_t);
        data_bytes += packet->rows.what == PL_SERVER_ROWS_PUSH ? packet->steps * row_bytes(server, packet->piece) : 0;
    }
    return packet->data_bytes == data_bytes;
}

void *pl_server_rows_place(const struct pl_server_state *server, int host)
{
    return server->rows->stage[host];
}

enum pl_status pl_server_rows_serve(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                                    const void *data, struct pl_error *reterr)
{
    struct pl_server_packet done = {
        .kind = PL_SERVER_PACKET_ROWS_DONE, .worker = packet->worker, .piece = packet->piece};
    uint64_t count = has_list(packet->rows.what) ? packet->steps : 0;
    struct pl_server_rows_loaded loaded = {0};
    struct pl_error error = PL_ERROR_NONE;
    const int64_t *ids = (const int64_t *)data;
    float *values = NULL;

    if (packet->rows.what == PL_SERVER_ROWS_PULL) {
        done.data_bytes = count * row_bytes(server, packet->piece);
        PL_TRY(pl_memory_alloc(&values, done.data_bytes, 1, reterr));
    } else if (packet->rows.what == PL_SERVER_ROWS_PUSH) {
        values = (float *)(void *)(server->rows->stage[host] + count * sizeof(*ids));
    }
    error.status =
        run_request(server, packet->piece, &packet->rows, ids, NULL, count, values, &done.steps, &loaded, &error);
    done.loaded = loaded;
    if (error.status != PL_OK) {
        done.count = error.status;
        pl_error_text(&error, done.text, sizeof(done.text));
    }
    return pl_server_remote_send(server->remote, host, &done, done.data_bytes > 0 ? values : NULL, done.data_bytes > 0,
                                 reterr);
}

void pl_server_rows_answered(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                             const void *data)
{
    int local = packet->worker - pl_server_first_worker(server);
    struct request *request = &server->rows->requests[local];
    uint64_t count = request->first[host + 1] - request->first[host];
    uint64_t bytes = row_bytes(server, request->table);

    if (request->what == PL_SERVER_ROWS_PULL && packet->count == PL_OK) {
        /* the rows begin after the ids of the whole list */
        char *values =
            pl_server_view_rows(&server->view, (uint64_t)local) + request->first[server->hosts] * sizeof(int64_t);

        for (uint64_t i = 0; i < count; i++) {
            memcpy(values + request->at[request->first[host] + i] * bytes, (const char *)data + i * bytes, bytes);
        }
    }
    request->counted += packet->steps;
    if (packet->count == PL_OK) {
        add_loaded(request, &packet->loaded);
    } else if (request->error.status == PL_OK) {
        request->error.status = pl_error_set(&request->error, (enum pl_status)packet->count, "%s", packet->text);
    }
    request->is_waiting[host] = false;
    if (--request->waiting == 0) {
        answer(server, local);
    }
}
