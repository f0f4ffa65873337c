/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rows by id: tables that are too large for a worker, such as an embedding's. The parameter servers alone have them,
 * each those ids whose hash is its own. A worker gets the rows of a list of ids, and gives gradients for those of a
 * list.
 *
 *   pl_server_new()     pl_server_rows_add()     pl_server_join()     pl_server_start()
 *   each batch: pl_server_rows_pull()   forward, backward   pl_server_rows_push()   pl_server_step()
 *
 * Rows        any 64-bit number is an id. A row's first value depends on the table's seed and the id alone, whoever
 *             asks first and on however many servers; it takes memory from its first push on.
 * Staleness   a push is applied at once, with none and with N: rows are not part of the steps that N counts. With 0
 *             tables are refused: there a step is one update by all workers.
 * Consistency a pull never has half an update of a row; two rows may be of different moments. A worker's pull has all
 *             that it has pushed before.
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
 * Errors  PL_INVALID: a value, whose range is said, or a name twice; PL_LIMIT: too many; PL_UNSUPPORTED: staleness 0;
 *         another optimizer; PL_MEMORY.
 */
enum pl_status pl_server_rows_add(struct pl_server *server, const struct pl_server_table *table, size_t *ret_table,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The rows of `ids` [count], in their order, to `values` [count, columns]. Ids may repeat, and be none.
 *
 * Errors  as pl_server_wait(), and PL_INVALID: no such table.
 */
enum pl_status pl_server_rows_pull(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   float *values, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Take a step of the optimizer with each of these rows by `gradients` [count, columns]. Those of one id are added up
 * first, in their order, to one step. Returns when all is applied.
 *
 * Errors  as pl_server_rows_pull(). PL_MEMORY: a server cannot grow, with the table, its rows and their bytes; some
 *         rows may have been changed then.
 */
enum pl_status pl_server_rows_push(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count,
                                   const float *gradients, struct pl_error *reterr) PL_MUST_CHECK;

/** How many rows have been pushed, and so are kept, on all servers. Errors as pl_server_rows_pull(). */
enum pl_status pl_server_rows_count(struct pl_server *server, size_t table, uint64_t *ret_count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Each server writes its rows of the table, with the optimizer's state, to a file of its own in `directory`, which is
 * made where it is missing: NAME-00000-of-00002.MOMENT.rows, with the moment of this save. One worker asks, and a
 * barrier before it (pl_server_sum()) makes the rows those of one moment. A server does nothing else meanwhile.
 *
 * When all files are on disk, those of the table's earlier saves there are removed, by whatever number of servers. So
 * one save is whole at any moment, whoever fails or is killed, and the disk has room for two.
 *
 * Errors  as pl_server_rows_pull(). PL_INVALID: the directory's name is too long, or no absolute path; PL_SYSTEM: it
 *         cannot be written, and the save before is as it was, or what was before cannot be removed, which is said. A
 *         worker may go on after those two.
 */
enum pl_status pl_server_rows_save(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The table becomes what pl_server_rows_save() has written, by any number of servers: each reads all the files and
 * keeps its own rows, so hosts need one shared directory or copies of all files. One worker asks, between two barriers.
 *
 * Of several saves it is the newest that is whole on all hosts; a warning says why another was passed over.
 *
 * Errors  as pl_server_rows_pull(). PL_NOT_FOUND: no files, or not all of them; PL_CORRUPT: damaged, or of another save
 *         than it says: of the newest, where no save is whole. PL_MISMATCH: another number of columns or optimizer;
 *         PL_INVALID: one save has files of two numbers of servers; PL_SYSTEM; PL_MEMORY. After those a worker may go
 *         on; the table may be empty on some servers then.
 */
enum pl_status pl_server_rows_load(struct pl_server *server, size_t table, const char *directory,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
