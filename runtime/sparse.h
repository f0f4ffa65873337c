/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sparse gradients: each rank gives some rows of a tall table (an embedding's gradient), all ranks get the sum of all
 * rows by index. Two gathers of known size instead of a dense sum; worth it while all ranks together touch
 * fewer rows than the table has, which pl_sparse_prefers_dense() computes.
 * Test  tests/unit/runtime/named/test_sparse.c
 */
#ifndef PL_RUNTIME_SPARSE_H
#define PL_RUNTIME_SPARSE_H

#include "runtime/named.h"

/**
 * Rows of a table: row i is values[i * row_elems ...] and belongs at `indices[i]`. A sum without rows has no elements a
 * row either.
 */
struct pl_sparse {
    uint64_t rows;
    uint64_t row_elems;
    int64_t *indices; /* [rows] */
    float *values;    /* [rows, row_elems] */
};

/**
 * Submit this rank's rows; indices may repeat and come in any order.
 *
 * Shapes     input->rows may differ between ranks and be 0; row_elems is the same on all ranks, else the wait is
 *            PL_MISMATCH on all of them.
 * Ownership  the input's arrays belong to the engine until the handle is done.
 * Errors     as pl_named_submit_group(); PL_INVALID for a negative index.
 */
enum pl_status pl_sparse_submit(struct pl_named *named, const char *name, const struct pl_sparse *input,
                                pl_named_handle *ret_handle, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait for `handle` and give the sum: ascending indices without repeats, each row the sum over all ranks (with
 * `average` divided by the number of ranks). Rows of one index are added in rank order, and within a rank in its own
 * order, so all ranks get equal bits. The result's arrays are the caller's: pl_sparse_done().
 *
 * Errors  as pl_named_wait(); PL_INVALID when the handle is of something else than pl_sparse_submit().
 */
enum pl_status pl_sparse_wait(struct pl_named *named, pl_named_handle handle, bool average, struct pl_sparse *ret_sum,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The sum of the rows of each index: ascending indices without repeats, rows of one index added in their order. The
 * result's arrays are the caller's: pl_sparse_done(). PL_MEMORY.
 */
enum pl_status pl_sparse_sum(const struct pl_sparse *rows, struct pl_sparse *ret_sum,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add the rows to `dense` [table_rows, row_elems]. PL_INVALID for an index beyond the table; nothing was added then.
 */
enum pl_status pl_sparse_add_to(const struct pl_sparse *sparse, float *dense, uint64_t table_rows,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * True when a dense sum moves fewer bytes: a gather brings every rank's rows and indices, a dense sum the table twice.
 */
bool pl_sparse_prefers_dense(uint64_t rows_of_all_ranks, uint64_t row_elems, uint64_t table_rows);

void pl_sparse_done(struct pl_sparse *sparse);

#endif
