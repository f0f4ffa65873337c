/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rows by id: tables that are too large for a worker, such as an embedding. Only the parameter servers hold them; the
 * hash of an id says which server has its row. A worker pulls the rows of a list of ids, and pushes gradients for a
 * list of ids.
 *
 *   pl_server_new()     pl_server_rows_add()     pl_server_join()     pl_server_start()
 *   each batch: pl_server_rows_pull()   forward, backward   pl_server_rows_push()   pl_server_step()
 *
 * Rows        any 64-bit number is an id. The first value of a row depends only on the seed of the table and the id,
 *             not on the number of servers. A row takes memory from its first push on.
 * Staleness   with "none" and N a push is applied at once: rows are not part of the steps that N counts. With 0 tables
 *             are refused, because a step is then one update by all workers.
 * Consistency a pull never sees half an update of a row, but two rows may be of different times. A worker's pull sees
 *             everything that it has pushed before.
 * Threads     the server handle's.
 * Cost        a list is cut into parts that fit into the 4 MiB which a worker and its server share for it. Between
 *             hosts an id is 8 bytes and a row 4 a column, each way once.
 * Test        tests/unit/runtime/server/test_rows.c, tests/integration/embedding.py
 */
#ifndef PL_RUNTIME_SERVER_ROWS_H
#define PL_RUNTIME_SERVER_ROWS_H

#include "runtime/server.h"

enum pl_server_initial {
    PL_SERVER_ZEROS,
    PL_SERVER_UNIFORM, /* from -bound to below bound */
};

enum { PL_SERVER_MOST_COLUMNS = 65536, PL_SERVER_TABLE_NAME_BYTES = 64, PL_SERVER_MOST_TABLES = 1024 };

/** Zero-initialise. All workers must have the same tables in the same order; joining checks it. */
struct pl_server_table {
    const char
        *name; /* letters, digits, '_', '-' and '.', which it does not begin with; files have it in their names */
    uint64_t columns; /* float32 */
    enum pl_server_initial initial;
    double bound;
    uint64_t seed;
    /* PL_SGD or PL_ADAGRAD. It changes the rows that are pushed, and no others. */
    enum pl_optimizer_kind kind;
    double rate;    /* learning rate */
    double epsilon; /* Adagrad; 0: 1e-8 */
};

/**
 * Declare a table, before joining. Its number is the count of tables before it.
 *
 * Errors  PL_INVALID: a value out of its range, which the message says, or a name twice; PL_LIMIT: too many;
 *         PL_UNSUPPORTED: staleness 0; another optimizer; PL_MEMORY.
 */
enum pl_status pl_server_rows_add(struct pl_server *server, const struct pl_server_table *table, size_t *ret_table,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gets the rows of `ids` [count], in their order, into `values` [count, columns]. An id may repeat; count may be 0.
 *
 * Errors  as pl_server_wait(), and PL_INVALID: no such table.
 */
enum pl_status pl_server_rows_pull(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   float *values, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Takes one step of the optimizer for each row by `gradients` [count, columns]. Gradients of one id are first added, in
 * their order, to one step. Returns when everything is applied.
 *
 * Errors  as pl_server_rows_pull(). PL_MEMORY: a server cannot grow, with the table, its rows and their bytes; some
 *         rows may have been changed then.
 */
enum pl_status pl_server_rows_push(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   const float *gradients, struct pl_error *reterr) PL_MUST_CHECK;

/** Counts the rows that have been pushed, and so are kept, on all servers. Errors as pl_server_rows_pull(). */
enum pl_status pl_server_rows_count(struct pl_server *server, size_t table, uint64_t *ret_count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Each server writes its rows of the table, with the state of the optimizer, to its own file in `directory`:
 * NAME-00000-of-00002.TIME.rows, where TIME is the time of this save. A missing directory is made. One worker calls
 * this; a barrier before it (pl_server_sum()) keeps pushes out of the save. A server does nothing else meanwhile.
 *
 * When all files are on disk, the files of earlier saves of the table are removed. So one save is complete at any time,
 * whichever process is killed. The disk needs room for two saves.
 *
 * Errors  as pl_server_rows_pull(). PL_INVALID: the name of the directory is too long, or not an absolute path.
 *         PL_SYSTEM: a file cannot be written, and the previous save is intact; or an older save cannot be removed, and
 *         the message says which. A worker may go on after these two.
 */
enum pl_status pl_server_rows_save(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Loads a save of any number of servers into the table: each server reads all files and keeps its own rows, so hosts
 * need one shared directory or copies of all files. One worker calls this, between two barriers.
 *
 * Of several saves the newest is loaded that is complete on all hosts; a warning says why a newer one was not.
 *
 * Errors  as pl_server_rows_pull(). If no save is complete, the error of the newest: PL_NOT_FOUND: files are missing;
 *         PL_CORRUPT: a file is damaged, or belongs to another save than its name says. PL_MISMATCH: other columns or
 *         another optimizer; PL_INVALID: one save has files of two numbers of servers; PL_SYSTEM; PL_MEMORY. A worker
 *         may go on after these; the table may then be empty on some servers.
 */
enum pl_status pl_server_rows_load(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
