/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The rows of a table that one server owns, found by id.
 *
 *     record   id | values [columns] | the optimizer's state
 *     chunks   contain the records in the order of creation; records never move
 *   index    open addressing: a record's number and the lower half of its id's hash, at most 4/5 full
 *
 * Memory   8 bytes a row for its id and 10 to 20 for the index. Doubling the index reads no record.
 * Threads  one.
 * Test     tests/unit/runtime/server/test_row_store.c
 */
#ifndef PL_RUNTIME_SERVER_ROW_STORE_H
#define PL_RUNTIME_SERVER_ROW_STORE_H

#include "runtime/server/layout.h"
#include "runtime/server/message.h"

#include <sys/uio.h>

struct pl_row_store;

/** Makes an empty store. Errors: PL_MEMORY. */
enum pl_status pl_row_store_new(const struct pl_table *table, struct pl_row_store **ret_store,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_row_store_free(struct pl_row_store *store);

/**
 * In both functions row i has id `ids[at[i]]`, and its columns are at `at[i]` in the array [.., columns]. If `at` is
 * NULL, at[i] is i. A row that does not exist reads as its initial value; pull does not create it.
 */
void pl_row_store_pull(const struct pl_row_store *store, const int64_t *ids, const uint32_t *at, uint64_t count,
                       float *values);

/**
 * Takes an optimizer step for each row. Errors: PL_MEMORY, with the table, its rows and bytes; PL_LIMIT: 2^32 - 1 rows.
 */
enum pl_status pl_row_store_push(struct pl_row_store *store, const int64_t *ids, const uint32_t *at, uint64_t count,
                                 const float *gradients, struct pl_error *reterr) PL_MUST_CHECK;

/** Stores a complete record, aligned or not, as a new row or over the existing one. Errors: as pl_row_store_push(). */
enum pl_status pl_row_store_put(struct pl_row_store *store, const void *record, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes all rows. */
void pl_row_store_clear(struct pl_row_store *store);

uint64_t pl_row_store_rows(const struct pl_row_store *store);
uint64_t pl_row_store_record_bytes(const struct pl_row_store *store);

/** Returns the bytes of memory that the rows and the index take. */
uint64_t pl_row_store_bytes(const struct pl_row_store *store);

/** Return all records, in chunks [pl_row_store_chunks()]. They are valid until the next change. */
uint64_t pl_row_store_chunks(const struct pl_row_store *store);
struct iovec pl_row_store_chunk(const struct pl_row_store *store, uint64_t chunk);

/*
 * Files of the rows of a table, one for each server: NAME-00000-of-00002.TIME.rows. TIME is the time of the save in
 * nanoseconds since 1970, in 16 hexadecimal digits. Files of old versions have no TIME; their saves count as the
 * oldest.
 *
 *   head | records | CRC-32C of the records, in 8 bytes
 *   record: id | values [columns] | the optimizer's state | padding to 8 bytes
 *
 * Numbers are little-endian: all supported machines are.
 *
 * Test  tests/unit/runtime/server/test_rows.c, tests/fuzz/fuzz_server.c
 */

struct pl_row_file_head {
    char magic[8]; /* "PLROWS", then NULs */
    uint64_t version;
    struct pl_table table;
    uint64_t part, parts; /* part: number of the server that wrote the file, from 0; parts: number of servers */
    uint64_t rows;
    uint64_t time_ns; /* time of the save, equal in all its parts */
    uint64_t crc32c;  /* checksum of the bytes before this field */
};

/** Checks the head of a file. Errors: PL_CORRUPT says what is wrong. */
enum pl_status pl_row_file_check(const struct pl_row_file_head *head, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Writes the rows of server `part` of `parts` into `directory`, keeps files of other saves, and syncs the file. Errors:
 * as pl_server_rows_save().
 */
enum pl_status pl_row_file_write(const char *directory, const struct pl_table *table, const struct pl_row_store *store,
                                 int part, int parts, uint64_t time_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Removes files of the table from `directory`. With `is_whole`, the save of `time_ns` is complete: removes all other
 * saves, and temporary files of killed servers. Otherwise removes the files of the save of `time_ns`. Errors: as
 * pl_server_rows_save().
 */
enum pl_status pl_row_file_remove(const char *directory, const struct pl_table *table, uint64_t time_ns, bool is_whole,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the newest complete save that is not later than `most`, and puts the rows of server `host` of `hosts` into
 * `store`. The old contents of `store` are dropped; after a failure it is empty. Errors: as pl_server_rows_load().
 */
enum pl_status pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
