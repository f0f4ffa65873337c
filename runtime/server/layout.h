/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The layout, on which all workers and servers of a job must agree: tensors, pieces, the optimizer, the staleness,
 * tables. A worker sends it to its server, which compares it with the layouts of its other workers and of the other
 * servers. Internal to runtime/server/.
 *
 *   head | pieces: first element, count | tables | lines of text
 *
 * The lines are the options, then one line for each tensor and each table. Each ends in '\n'.
 *
 * Fuzz  tests/fuzz/fuzz_server.c
 */
#ifndef PL_RUNTIME_SERVER_LAYOUT_H
#define PL_RUNTIME_SERVER_LAYOUT_H

#include "base/random.h"
#include "base/text.h"
#include "runtime/optimizer.h"
#include "runtime/server_rows.h"

enum { PL_SERVER_NO_BOUND = -1 }; /* staleness of fully asynchronous training */

struct pl_server_range {
    uint64_t first_elem;
    uint64_t count_elems;
};

struct pl_server_layout_head {
    uint64_t version;
    uint64_t elems;
    uint64_t pieces;
    uint64_t tables;
    uint64_t lines_bytes;
    int64_t staleness; /* steps, or PL_SERVER_NO_BOUND */
    uint64_t kind;     /* value of enum pl_optimizer_kind */
    uint32_t nesterov;
    uint32_t wire; /* 0 or a flag PL_WIRE_* */
    double momentum, weight_decay, beta1, beta2, epsilon;
};

struct pl_server_layout {
    size_t bytes;
    char *data; /* all bytes of the layout; the pointers below point into them */
    const struct pl_server_layout_head *head;
    const struct pl_server_range *pieces;
    const struct pl_table *tables;
    const char *lines;
    uint64_t longest_elems; /* number of elements of the longest piece */
};

/** Makes the layout of a sealed plan with checked options and tables. Errors: PL_MEMORY. */
enum pl_status pl_server_layout_new(const struct pl_plan *plan, const struct pl_optimizer_options *optimizer,
                                    int64_t staleness, unsigned wire, const struct pl_table *tables, size_t table_count,
                                    struct pl_server_layout *ret_layout, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads a layout from `data` [bytes], which is on the heap. The layout takes ownership, also on failure. Errors:
 * PL_CORRUPT says what is wrong.
 */
enum pl_status pl_server_layout_read(char *data, size_t bytes, struct pl_server_layout *ret_layout,
                                     struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_layout_done(struct pl_server_layout *layout);

struct pl_optimizer_options pl_server_layout_optimizer(const struct pl_server_layout *layout);

/** Compares two layouts. Errors: PL_MISMATCH names the first line that differs, and the worker that has it. */
enum pl_status pl_server_layout_compare(const struct pl_server_layout *a, const char *whose_a,
                                        const struct pl_server_layout *b, const char *whose_b,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/*
 * A table of rows, in the form that workers and servers compare and that its files contain.
 *
 * Fuzz  tests/fuzz/fuzz_server.c
 */

/** The options of a table (struct pl_server_table), without pointers. */
struct pl_table {
    char name[PL_SERVER_TABLE_NAME_BYTES]; /* padded with NULs */
    uint64_t columns;
    uint64_t initial; /* value of enum pl_server_initial */
    uint64_t seed;
    uint64_t kind; /* value of enum pl_optimizer_kind */
    double bound, rate, epsilon;
};

/** Makes a table from its options. Errors: PL_INVALID and PL_UNSUPPORTED name the value and what was expected. */
enum pl_status pl_table_make(const struct pl_server_table *options, struct pl_table *ret_table,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Checks a table that another process wrote. Errors: as pl_table_make(). */
enum pl_status pl_table_check(const struct pl_table *table, struct pl_error *reterr) PL_MUST_CHECK;

struct pl_optimizer_options pl_table_optimizer(const struct pl_table *table);

/** Returns the number of floats of a row besides its values. */
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
 * Returns the server (of `hosts`) that owns the row, from the upper bits of its hash; the store uses the lower bits.
 */
static inline int pl_table_owner(int64_t id, int hosts)
{
    return (int)(((pl_table_hash(id) >> 32) * (uint64_t)hosts) >> 32);
}

#endif
