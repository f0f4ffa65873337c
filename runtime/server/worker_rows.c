/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's tables: lists of ids and rows, cut into parts that fit into the memory shared with its server. */
#include "runtime/server_rows.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "runtime/server/worker.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum pl_status pl_server_rows_add(struct pl_server *server, const struct pl_server_table *table, size_t *ret_table,
                                  struct pl_error *reterr)
{
    struct pl_table made;

    PL_TRY(pl_table_make(table, &made, reterr));
    if (server->view.base) {
        return pl_error_set(reterr, PL_INVALID, "add table '%s' before pl_server_join()", made.name);
    }
    if (server->staleness == 0) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "table '%s': with ps_staleness 0 a step is one update by all workers, which tables do not "
                            "support; expected none or a number above 0",
                            made.name);
    }
    if (server->table_count >= PL_SERVER_MOST_TABLES) {
        return pl_error_set(reterr, PL_LIMIT, "table '%s' would be the %zuth, at most %d are possible", made.name,
                            server->table_count + 1, PL_SERVER_MOST_TABLES);
    }
    for (size_t t = 0; t < server->table_count; t++) {
        if (strcmp(server->tables[t].name, made.name) == 0) {
            return pl_error_set(reterr, PL_INVALID, "table '%s' exists already", made.name);
        }
    }
    PL_TRY(pl_memory_grow(&server->tables, &server->table_capacity, server->table_count + 1, sizeof(*server->tables),
                          reterr));
    server->tables[server->table_count] = made;
    *ret_table = server->table_count++;
    return PL_OK;
}

static enum pl_status ask(struct pl_server *server, size_t table, uint64_t count,
                          const struct pl_server_rows_request *request, struct pl_server_message *ret_done,
                          struct pl_error *reterr)
{
    static const char *const verbs[] = {
        [PL_SERVER_ROWS_PULL] = "pull", [PL_SERVER_ROWS_PUSH] = "push", [PL_SERVER_ROWS_COUNT] = "count",
        [PL_SERVER_ROWS_SAVE] = "save", [PL_SERVER_ROWS_LOAD] = "load", [PL_SERVER_ROWS_KEEP] = "save",
        [PL_SERVER_ROWS_DROP] = "save",
    };
    struct pl_server_message message = {
        .kind = PL_SERVER_ROWS, .number = (int32_t)table, .count = count, .rows = *request};
    enum pl_status status = pl_worker_ask(server, &message, -1, PL_SERVER_ROWS_DONE, ret_done, reterr);

    if (status != PL_OK) {
        pl_error_context(reterr, "%s rows of table '%s'", verbs[request->what], server->tables[table].name);
    }
    return status;
}

static enum pl_status check_table(const struct pl_server *server, size_t table, struct pl_error *reterr)
{
    PL_TRY(pl_worker_check_there(server, reterr));
    return table < server->table_count
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "table %zu: there are %zu", table, server->table_count);
}

/* Sends a request in parts: ids go into the shared list; the rows after them are written there, or read from there. */
static enum pl_status ask_list(struct pl_server *server, size_t table, enum pl_server_rows what, const int64_t *ids,
                               uint64_t count, float *pulled, const float *pushed, struct pl_error *reterr)
{
    const uint64_t columns = server->tables[table].columns, row_bytes = columns * sizeof(float);
    const uint64_t most = PL_SERVER_ROWS_BYTES / (sizeof(*ids) + row_bytes);
    const struct pl_server_rows_request request = {.what = what};
    const int64_t began_ns = pl_clock_now_ns();
    char *list = pl_server_view_rows(&server->view, (uint64_t)server->number);

    for (uint64_t at = 0, part; at < count; at += part) {
        struct pl_server_message done;
        char *values;

        part = count - at < most ? count - at : most;
        values = list + part * sizeof(*ids);
        memcpy(list, ids + at, part * sizeof(*ids));
        if (pushed) {
            memcpy(values, pushed + at * columns, part * row_bytes);
        }
        PL_TRY(ask(server, table, part, &request, &done, reterr));
        if (pulled) {
            memcpy(pulled + at * columns, values, part * row_bytes);
        }
    }
    pl_trace_add(server->trace, pulled ? "rows pull" : "rows push", began_ns, pl_clock_now_ns());
    return PL_OK;
}

enum pl_status pl_server_rows_pull(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   float *values, struct pl_error *reterr)
{
    PL_TRY(check_table(server, table, reterr));
    return ask_list(server, table, PL_SERVER_ROWS_PULL, ids, count, values, NULL, reterr);
}

/* Returns whether the ids are ascending without repeats; then no rows need to be added up. */
static bool are_distinct(const int64_t *ids, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        if (ids[i] <= ids[i - 1]) {
            return false;
        }
    }
    return true;
}

/* A row to sort: its id and its position in the list. */
struct placed {
    int64_t id;
    uint64_t at;
};

static int compare_placed(const void *left_at, const void *right_at)
{
    const struct placed *left = left_at, *right = right_at;

    if (left->id != right->id) {
        return left->id < right->id ? -1 : 1;
    }
    return (left->at > right->at) - (left->at < right->at);
}

/* Adds up the rows of each id, in the order of the list. The results are in ascending order of ids. */
static enum pl_status sum_rows(const int64_t *ids, const float *rows, uint64_t count, uint64_t columns,
                               int64_t **ret_ids, float **ret_sums, uint64_t *ret_count, struct pl_error *reterr)
{
    PL_AUTO_FREE struct placed *order = pl_memory_new(count, sizeof(*order), reterr);
    PL_AUTO_FREE int64_t *distinct = order ? pl_memory_new(count, sizeof(*distinct), reterr) : NULL;
    float *sums = distinct ? pl_memory_new(count * columns, sizeof(*sums), reterr) : NULL;
    uint64_t last = 0;

    if (!sums) {
        return PL_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++) {
        order[i] = (struct placed){.id = ids[i], .at = i};
    }
    qsort(order, count, sizeof(*order), compare_placed);
    for (uint64_t i = 0; i < count; i++) {
        last += i > 0 && order[i].id != order[i - 1].id;
        distinct[last] = order[i].id;
        for (uint64_t c = 0; c < columns; c++) {
            sums[last * columns + c] += rows[order[i].at * columns + c];
        }
    }
    *ret_ids = PL_TAKE(distinct);
    *ret_sums = sums;
    *ret_count = last + 1;
    return PL_OK;
}

enum pl_status pl_server_rows_push(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   const float *gradients, struct pl_error *reterr)
{
    PL_AUTO_FREE int64_t *distinct = NULL;
    PL_AUTO_FREE float *sums = NULL;
    uint64_t sum_count = 0;

    PL_TRY(check_table(server, table, reterr));
    if (are_distinct(ids, count)) {
        return ask_list(server, table, PL_SERVER_ROWS_PUSH, ids, count, NULL, gradients, reterr);
    }
    PL_TRY(sum_rows(ids, gradients, count, server->tables[table].columns, &distinct, &sums, &sum_count, reterr));
    return ask_list(server, table, PL_SERVER_ROWS_PUSH, distinct, sum_count, NULL, sums, reterr);
}

enum pl_status pl_server_rows_count(struct pl_server *server, size_t table, uint64_t *ret_count,
                                    struct pl_error *reterr)
{
    const struct pl_server_rows_request request = {.what = PL_SERVER_ROWS_COUNT};
    struct pl_server_message done;

    PL_TRY(check_table(server, table, reterr));
    PL_TRY(ask(server, table, 0, &request, &done, reterr));
    *ret_count = done.count;
    return PL_OK;
}

static enum pl_status set_directory(const struct pl_server *server, size_t table, const char *directory,
                                    struct pl_server_rows_request *request, struct pl_error *reterr)
{
    PL_TRY(check_table(server, table, reterr));
    if (*directory != '/') { /* the server has another working directory */
        return pl_error_set(reterr, PL_INVALID, "directory '%s' for rows of table '%s': expected an absolute path",
                            directory, server->tables[table].name);
    }
    if (strlen(directory) >= sizeof(request->path)) {
        return pl_error_set(reterr, PL_INVALID, "directory '%s' has %zu characters, at most %zu are possible",
                            directory, strlen(directory), sizeof(request->path) - 1);
    }
    strcpy(request->path, directory);
    return PL_OK;
}

/*
 * Older saves are removed after all servers have said that their parts of this save are on disk, so one save is always
 * complete.
 */
enum pl_status pl_server_rows_save(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr)
{
    struct pl_server_rows_request request = {.what = PL_SERVER_ROWS_SAVE};
    struct pl_server_message done;
    struct timespec now;
    enum pl_status status;

    PL_TRY(set_directory(server, table, directory, &request, reterr));
    /* wall-clock time, so that a later run finds the newest save, even after a reboot */
    clock_gettime(CLOCK_REALTIME, &now);
    request.time_ns = (uint64_t)now.tv_sec * PL_NS_PER_S + (uint64_t)now.tv_nsec;
    status = ask(server, table, 0, &request, &done, reterr);
    if (status == PL_OK) {
        request.what = PL_SERVER_ROWS_KEEP;
        status = ask(server, table, 0, &request, &done, reterr);
        if (status != PL_OK) {
            pl_error_context(reterr, "this save is complete, but older saves could not be removed");
        }
        return status;
    }
    request.what = PL_SERVER_ROWS_DROP;
    if (status != PL_TIMEOUT && status != PL_PEER && ask(server, table, 0, &request, &done, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "a save of table '%s' that failed has left files in '%s'", server->tables[table].name,
               directory);
    }
    return status;
}

enum pl_status pl_server_rows_load(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr)
{
    struct pl_server_rows_request request = {.what = PL_SERVER_ROWS_LOAD, .time_ns = UINT64_MAX};
    struct pl_server_message done;
    struct pl_server_rows_loaded first;

    PL_TRY(set_directory(server, table, directory, &request, reterr));
    PL_TRY(ask(server, table, 0, &request, &done, reterr));
    first = done.loaded;
    /* hosts have loaded different saves: look for one that all have */
    while (done.loaded.oldest != done.loaded.newest) {
        request.time_ns = done.loaded.oldest;
        PL_TRY(ask(server, table, 0, &request, &done, reterr));
    }
    if (*first.passed || first.oldest != first.newest) {
        pl_log(PL_LOG_WARNING, "table '%s': the newest save in '%s' is not used, but an older one: %s",
               server->tables[table].name, directory,
               *first.passed ? first.passed : "some hosts have no file of it; each host needs all files");
    }
    return PL_OK;
}
