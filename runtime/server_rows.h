/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rows by id: tables that are too large for a worker, such as an embedding. Only the parameter servers store them; the
 * hash of an id selects the server that owns its row. A worker pulls the rows of a list of ids, and pushes gradients
 * for a list of ids.
 *
 *   pl_server_new()     pl_server_rows_add()     pl_server_join()     pl_server_start()
 *   each batch: pl_server_rows_pull()   forward, backward   pl_server_rows_push()   pl_server_step()
 *
 * Rows        any 64-bit number is an id. The first value of a row depends only on the seed of the table and the id,
 *             not on the number of servers. A row takes memory after its first push.
 * Staleness   with "none" and N a push is applied at once; N does not count pushes of rows. With staleness 0 tables are
 *             refused, because a step is then one update by all workers. Consistency a pull never sees half an update
 *             of a row, but two rows may be from different times. A worker's pull sees all its earlier pushes.
 * Threads     the server handle's.
 * Cost        a list is cut into parts that fit into 4 MiB, which a worker shares with its server. Between hosts an id
 *             takes 8 bytes, and a row 4 bytes a column, once each way.
 * Test        tests/unit/runtime/server/test_rows.c, tests/integration/embedding.py
 */
#ifndef PL_RUNTIME_SERVER_ROWS_H
#define PL_RUNTIME_SERVER_ROWS_H

#include "runtime/server.h"

enum pl_server_initial {
    PL_SERVER_ZEROS,
    PL_SERVER_UNIFORM, /* uniform in [-bound, bound) */
};

enum { PL_SERVER_MOST_COLUMNS = 65536, PL_SERVER_TABLE_NAME_BYTES = 64, PL_SERVER_MOST_TABLES = 1024 };

/** Options of a table. Zero-initialise. The same tables in the same order on all workers; joining checks this. */
struct pl_server_table {
    const char *name; /* letters, digits, '_', '-' and '.', not '.' first; a part of file names */
    uint64_t columns; /* number of float32 values per row */
    enum pl_server_initial initial;
    double bound;
    uint64_t seed;
    /* PL_SGD or PL_ADAGRAD; a step changes only the rows that are pushed */
    enum pl_optimizer_kind kind;
    double rate;    /* learning rate */
    double epsilon; /* Adagrad; 0: 1e-8 */
};

/**
 * Declares a table, before joining. Its number `*ret_table` counts from 0, in the order of the calls.
 *
 * Errors  PL_INVALID: a value out of its range, which the message names, or the name exists; PL_LIMIT: too many tables;
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
 * Takes one step of the optimizer for each row by `gradients` [count, columns]. If an id repeats, its gradients are
 * first added up, in their order. Returns when all steps are applied.
 *
 * Errors  as pl_server_rows_pull(). PL_MEMORY: a server has no memory for new rows (the message has the table, its rows
 *         and bytes); some rows may have changed then.
 */
enum pl_status pl_server_rows_push(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   const float *gradients, struct pl_error *reterr) PL_MUST_CHECK;

/** Counts the rows that are stored, because they were pushed once, on all servers. Errors as pl_server_rows_pull(). */
enum pl_status pl_server_rows_count(struct pl_server *server, size_t table, uint64_t *ret_count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Each server writes its rows of the table, with the state of the optimizer, to its own file in `directory`:
 * NAME-00000-of-00002.TIME.rows, where TIME is the time of this save. A missing directory is created. Call it on one
 * worker; a barrier before it (pl_server_sum()) keeps pushes out of the save. Servers do nothing else meanwhile.
 *
 * When all files are on disk, the files of earlier saves of the table are removed. So one save is always complete, even
 * if any process is killed. The disk needs room for two saves.
 *
 * Errors  as pl_server_rows_pull(). PL_INVALID: the name of the directory is too long, or not an absolute path.
 *         PL_SYSTEM: a file cannot be written (the previous save is intact), or an older save cannot be removed; the
 *         message says which. The worker may continue after PL_INVALID and PL_SYSTEM.
 */
enum pl_status pl_server_rows_save(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Loads a save, written by any number of servers, into the table. Each server reads all files and keeps its own rows,
 * so hosts need one shared directory or copies of all files. Call it on one worker, between two barriers.
 *
 * Of several saves, loads the newest that is complete on all hosts; a warning says why a newer one was not loaded.
 *
 * Errors  as pl_server_rows_pull(). If no save is complete, the error of the newest: PL_NOT_FOUND: files are missing;
 *         PL_CORRUPT: a file is damaged, or its contents belong to another save than its name. PL_MISMATCH: other
 *         columns or another optimizer; PL_INVALID: the names in one save give different numbers of servers; PL_SYSTEM;
 *         PL_MEMORY. The worker may continue after these; the table may then be empty on some servers.
 */
enum pl_status pl_server_rows_load(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
