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
    uint64_t moment; /* of the save, the same in all its parts */
    uint64_t crc32c; /* of what comes before */
};

/** PL_CORRUPT says what is wrong in it. */
enum pl_status pl_row_file_check(const struct pl_row_file_head *head, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Write the rows of server `part` of `parts` into `directory`, beside what other saves have left there. It is on disk
 * then. Errors as pl_server_rows_save().
 */
enum pl_status pl_row_file_write(const char *directory, const struct pl_table *table, const struct pl_row_store *store,
                                 int part, int parts, uint64_t moment, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * All parts of the save of `moment` are on disk, `is_whole`: remove those of all others from `directory`, and what
 * servers that were killed have left of theirs. Else remove its parts. Errors as pl_server_rows_save().
 */
enum pl_status pl_row_file_remove(const char *directory, const struct pl_table *table, uint64_t moment, bool is_whole,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Put those rows of the newest whole save there, not later than `most`, into `store` that are server `host`'s of
 * `hosts`; what it had is gone in any case. Errors as pl_server_rows_load(); it is empty then.
 */
enum pl_status pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
