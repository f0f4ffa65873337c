/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse gradients as two named allgathers, and their sum by row index. */
#include "runtime/sparse.h"

#include "base/memory.h"
#include "runtime/named/queue.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 2 }; /* of the group: indices and values */

/* A row to be sorted: its index in the table, and its position in the input. */
struct placed {
    int64_t index;
    uint64_t at;
};

enum pl_status pl_sparse_submit(struct pl_named *named, const char *name, const struct pl_sparse *input,
                                pl_named_handle *ret_handle, struct pl_error *reterr)
{
    struct pl_named_op ops[MEMBERS] = {
        {.kind = PL_ALLGATHER, .dtype = PL_INT64, .dims = 1, .shape = {input->rows}, .send = input->indices},
        {.kind = PL_ALLGATHER,
         .dtype = PL_FLOAT32,
         .dims = 2,
         .shape = {input->rows, input->row_elems},
         .send = input->values},
    };

    for (uint64_t i = 0; input->indices && i < input->rows; i++) { /* without indices the group is refused */
        if (input->indices[i] < 0) {
            return pl_error_set(reterr, PL_INVALID, "'%s': index %lld of row %llu is negative", name ? name : "sparse",
                                (long long)input->indices[i], (unsigned long long)i);
        }
    }
    return pl_named_submit_group(named, name, ops, MEMBERS, ret_handle, reterr);
}

static int compare_placed(const void *left_at, const void *right_at)
{
    const struct placed *left = left_at, *right = right_at;

    if (left->index != right->index) {
        return left->index < right->index ? -1 : 1;
    }
    return (left->at > right->at) - (left->at < right->at); /* rank order, then the rank's own */
}

static enum pl_status add_up(const int64_t *indices, const float *values, uint64_t rows, uint64_t row_elems,
                             float factor, struct pl_sparse *sum, struct pl_error *reterr)
{
    PL_AUTO_FREE struct placed *order = pl_memory_new(rows, sizeof(*order), reterr);
    uint64_t distinct = 0, row = UINT64_MAX;

    if (!order) {
        return PL_MEMORY;
    }
    for (uint64_t i = 0; i < rows; i++) {
        order[i] = (struct placed){.index = indices[i], .at = i};
    }
    qsort(order, rows, sizeof(*order), compare_placed);
    for (uint64_t i = 0; i < rows; i++) {
        distinct += i == 0 || order[i].index != order[i - 1].index;
    }
    sum->rows = distinct;
    sum->row_elems = row_elems;
    sum->indices = pl_memory_new(distinct, sizeof(int64_t), reterr);
    sum->values = sum->indices ? pl_memory_new(distinct * row_elems, sizeof(float), reterr) : NULL;
    if (!sum->values) {
        return PL_MEMORY;
    }
    for (uint64_t i = 0; i < rows; i++) {
        if (i == 0 || order[i].index != order[i - 1].index) {
            sum->indices[++row] = order[i].index;
        }
        for (uint64_t e = 0; e < row_elems; e++) {
            sum->values[row * row_elems + e] += values[order[i].at * row_elems + e];
        }
    }
    for (uint64_t i = 0; factor != 1 && i < distinct * row_elems; i++) {
        sum->values[i] *= factor;
    }
    return PL_OK;
}

/* Other ranks' data may not come from pl_sparse_submit(): rely only on the bytes that arrived. */
static enum pl_status sum_gathered(const struct pl_named *named, const struct pl_named_result *indices,
                                   const struct pl_named_result *values, bool average, struct pl_sparse *sum,
                                   struct pl_error *reterr)
{
    uint64_t rows = indices->rows;
    uint64_t row_elems = rows > 0 ? values->bytes / rows / sizeof(float) : 0;

    if (indices->bytes != rows * sizeof(int64_t) || values->rows != rows ||
        values->bytes != rows * row_elems * sizeof(float)) {
        return pl_error_set(reterr, PL_INVALID, "%llu bytes of indices and %llu of values are no sparse rows",
                            (unsigned long long)indices->bytes, (unsigned long long)values->bytes);
    }
    return add_up(indices->data, values->data, rows, row_elems, average ? 1.0F / (float)pl_named_ranks(named) : 1.0F,
                  sum, reterr);
}

enum pl_status pl_sparse_wait(struct pl_named *named, pl_named_handle handle, bool average, struct pl_sparse *ret_sum,
                              struct pl_error *reterr)
{
    struct pl_named_result gathered[MEMBERS];
    struct pl_sparse sum = {0};
    size_t members = pl_named_members(named, handle);
    enum pl_status status;

    memset(gathered, 0, sizeof(gathered));
    if (members != 0 && members != MEMBERS) { /* 0: the wait reports what is wrong with the handle */
        return pl_error_set(reterr, PL_INVALID,
                            "the handle is of %zu operations: no sparse rows were submitted with it", members);
    }
    PL_TRY(pl_named_wait(named, handle, gathered, reterr));
    status = sum_gathered(named, &gathered[0], &gathered[1], average, &sum, reterr);
    pl_named_result_done(&gathered[0]);
    pl_named_result_done(&gathered[1]);
    if (status != PL_OK) {
        pl_sparse_done(&sum);
        return status;
    }
    *ret_sum = sum;
    return PL_OK;
}

enum pl_status pl_sparse_sum(const struct pl_sparse *rows, struct pl_sparse *ret_sum, struct pl_error *reterr)
{
    struct pl_sparse sum = {0};
    enum pl_status status = add_up(rows->indices, rows->values, rows->rows, rows->row_elems, 1.0F, &sum, reterr);

    if (status != PL_OK) {
        pl_sparse_done(&sum);
        return status;
    }
    *ret_sum = sum;
    return PL_OK;
}

enum pl_status pl_sparse_add_to(const struct pl_sparse *sparse, float *dense, uint64_t table_rows,
                                struct pl_error *reterr)
{
    for (uint64_t i = 0; i < sparse->rows; i++) {
        if (sparse->indices[i] < 0 || (uint64_t)sparse->indices[i] >= table_rows) {
            return pl_error_set(reterr, PL_INVALID, "row index %lld lies outside a table of %llu rows",
                                (long long)sparse->indices[i], (unsigned long long)table_rows);
        }
    }
    for (uint64_t i = 0; i < sparse->rows; i++) {
        float *row = dense + (uint64_t)sparse->indices[i] * sparse->row_elems;

        for (uint64_t e = 0; e < sparse->row_elems; e++) {
            row[e] += sparse->values[i * sparse->row_elems + e];
        }
    }
    return PL_OK;
}

bool pl_sparse_prefers_dense(uint64_t rows_of_all_ranks, uint64_t row_elems, uint64_t table_rows)
{
    uint64_t gathered_bytes = rows_of_all_ranks * (row_elems * sizeof(float) + sizeof(int64_t));

    return gathered_bytes > 2 * table_rows * row_elems * sizeof(float);
}

void pl_sparse_done(struct pl_sparse *sparse)
{
    free(sparse->indices);
    free(sparse->values);
    memset(sparse, 0, sizeof(*sparse));
}
