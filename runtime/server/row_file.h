/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Files of the rows of a table, one for each server: NAME-00000-of-00002.MOMENT.rows, where MOMENT is that of the save
 * in nanoseconds since 1970, in 16 hexadecimal digits. Without it a file is of a save before saves had it in their
 * names, and older than the others. Internal to runtime/server/.
 *
 *   head | records | CRC-32C of the records, in 8 bytes
 *   record: id | values [columns] | the optimizer's state | padding to 8 bytes
 *
 * Numbers are little-endian, as all machines are that this runs on.
 *
 * Test  tests/unit/runtime/server/test_rows.c, tests/fuzz/fuzz_server.c
 */
#ifndef PL_RUNTIME_SERVER_ROW_FILE_H
#define PL_RUNTIME_SERVER_ROW_FILE_H

#include "runtime/server/message.h"
#include "runtime/server/row_store.h"

struct pl_row_file_head {
    char magic[8]; /* "PLROWS", then NULs */
    uint64_t version;
    struct pl_table table;
    uint64_t part, parts; /* of server `part`, counted from 0 */
    uint64_t rows;
    uint64_t moment; /* time of the save, the same in all its parts */
    uint64_t crc32c; /* of the bytes before this field */
};

/** Errors: PL_CORRUPT says what is wrong. */
enum pl_status pl_row_file_check(const struct pl_row_file_head *head, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Writes the rows of server `part` of `parts` into `directory`, beside files of other saves, and syncs the file.
 * Errors: as pl_server_rows_save().
 */
enum pl_status pl_row_file_write(const char *directory, const struct pl_table *table, const struct pl_row_store *store,
                                 int part, int parts, uint64_t moment, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Removes files of the table from `directory`. With `is_whole`, all parts of the save of `moment` are on disk: removes
 * all other saves, and temporary files of killed servers. Else removes the parts of the save of `moment`. Errors: as
 * pl_server_rows_save().
 */
enum pl_status pl_row_file_remove(const char *directory, const struct pl_table *table, uint64_t moment, bool is_whole,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the newest complete save that is not later than `most`, and puts the rows that belong to server `host` of
 * `hosts` into `store`. The former contents of `store` are dropped, and it is empty on failure. Errors: as
 * pl_server_rows_load().
 */
enum pl_status pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
