/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A table of rows as workers and servers agree on it, and as its files have it. Internal to runtime/server/.
 *
 * Fuzz  tests/fuzz/fuzz_server.c
 */
#ifndef PL_RUNTIME_SERVER_TABLE_H
#define PL_RUNTIME_SERVER_TABLE_H

#include "base/random.h"
#include "base/text.h"
#include "runtime/server_rows.h"

/** The options of struct pl_server_table without pointers. */
struct pl_table {
    char name[PL_SERVER_TABLE_NAME_BYTES]; /* filled up with NULs */
    uint64_t columns;
    uint64_t initial; /* enum pl_server_initial */
    uint64_t seed;
    uint64_t kind; /* enum pl_optimizer_kind */
    double bound, rate, epsilon;
};

/** Errors: PL_INVALID and PL_UNSUPPORTED name the value and what was expected. */
enum pl_status pl_table_make(const struct pl_server_table *options, struct pl_table *ret_table,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Checks a table that another process wrote. Errors: as pl_table_make(). */
enum pl_status pl_table_check(const struct pl_table *table, struct pl_error *reterr) PL_MUST_CHECK;

/** "table 'users' [64] initial=zeros ..." */
void pl_table_print(const struct pl_table *table, struct pl_text *text);

struct pl_optimizer_options pl_table_optimizer(const struct pl_table *table);

/** Returns the number of floats per row beside its values. */
static inline uint64_t pl_table_state_columns(const struct pl_table *table)
{
    return table->kind == PL_ADAGRAD ? table->columns : 0;
}

static inline uint64_t pl_table_hash(int64_t id)
{
    uint64_t state = (uint64_t)id;

    return pl_random_next(&state);
}

/**
 * Returns which of `hosts` servers owns the row, by the upper bits of its hash. The lower bits are used by the store.
 */
static inline int pl_table_owner(int64_t id, int hosts)
{
    return (int)(((pl_table_hash(id) >> 32) * (uint64_t)hosts) >> 32);
}

#endif
