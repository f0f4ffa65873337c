/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/sparse.c. */
/* L14 and L21 of the inventory: an embedding's gradient as rows. */
#include "runtime/sparse.h"
#include "tests/unit/runtime/named/engine.h"

#include <string.h>

/* Rank r gives rows 5, r and 5 again, rank 0 none: the sum is what a dense table would hold. */
static void sparse_body(struct rank *self)
{
    int64_t indices[3] = {5, self->rank, 5};
    float values[6] = {1, 2, 3, 4, 5, 6}, dense[16] = {0}, want[16] = {0};
    struct pl_sparse input = {.rows = self->rank ? 3 : 0, .row_elems = 2, .indices = indices, .values = values},
                     sum = {0};
    pl_named_handle handle;

    ENGINE(NULL);
    for (int average = 0; average < 2; average++) {
        memset(dense, 0, sizeof(dense));
        memset(want, 0, sizeof(want));
        expect_ok(pl_sparse_submit(named, "embedding", &input, &handle, &error));
        expect_ok(pl_sparse_wait(named, handle, average, &sum, &error));
        for (int rank = 1; rank < self->size; rank++) {
            want[2 * 5] += 1 + 5;
            want[2 * 5 + 1] += 2 + 6;
            want[2 * rank] += 3;
            want[2 * rank + 1] += 4;
        }
        for (int i = 0; average && i < 16; i++) {
            want[i] /= (float)self->size;
        }
        expect(sum.rows == (self->size > 1 ? (uint64_t)self->size : 0), "%llu rows", (unsigned long long)sum.rows);
        for (uint64_t i = 1; i < sum.rows; i++) {
            expect(sum.indices[i] > sum.indices[i - 1], "indices ascend");
        }
        expect_ok(pl_sparse_add_to(&sum, dense, 8, &error));
        for (int i = 0; i < 16; i++) {
            expect(dense[i] - want[i] < 1e-6f && want[i] - dense[i] < 1e-6f, "element %d: %g, not %g", i,
                   (double)dense[i], (double)want[i]);
        }
        if (self->size > 1) {
            expect(pl_sparse_add_to(&sum, dense, 2, &error) == PL_INVALID, "row 5 is outside a table of 2");
        }
        pl_sparse_done(&sum);
    }
    indices[0] = -1;
    if (self->rank) {
        expect(pl_sparse_submit(named, "embedding", &input, &handle, &error) == PL_INVALID, "a negative index");
        input.indices = NULL;
        expect(pl_sparse_submit(named, "embedding", &input, &handle, &error) == PL_INVALID, "no indices");
    }
    pl_named_free(named);
}

START_TEST(rows_add_up_like_a_dense_table)
{
    over_sizes(sparse_body);
}
END_TEST

/* Rows of one index are added in rank order: (1 + 1e8) - 1e8 is 0, in any other order it is 1. */
static void order_body(struct rank *self)
{
    const float given[] = {1.0F, 1e8F, -1e8F};
    struct pl_sparse input = {.rows = 1,
                              .row_elems = 1,
                              .indices = &(int64_t){3},
                              .values = (float[]){given[self->rank]}},
                     sum = {0};
    pl_named_handle handle;

    ENGINE(NULL);
    expect_ok(pl_sparse_submit(named, "embedding", &input, &handle, &error));
    expect_ok(pl_sparse_wait(named, handle, false, &sum, &error));
    expect(sum.rows == 1 && sum.values[0] == 0.0F, "%g", (double)sum.values[0]);
    pl_sparse_done(&sum);
    pl_named_free(named);
}

START_TEST(rows_are_added_in_rank_order)
{
    ck_assert_bodies(3, order_body, NULL);
}
END_TEST

/* Rank 1 has rows of another width, or is no sparse gradient's owner at all: every rank reports it, and the engine
 * goes on. */
static void mismatch_body(struct rank *self)
{
    int64_t indices[4] = {0, 1, 2, 3};
    float values[8] = {0};
    struct pl_sparse input = {.rows = 1, .row_elems = self->rank == 1 ? 5 : 2, .indices = indices, .values = values},
                     sum = {0};
    pl_named_handle handle;

    ENGINE(NULL);
    expect_ok(pl_sparse_submit(named, "embedding", &input, &handle, &error));
    expect(pl_sparse_wait(named, handle, false, &sum, &error) == PL_MISMATCH, "widths differ");
    expect(strstr(error.cause, "'embedding.1of2'") && strstr(error.cause, "[rows,2]") &&
               strstr(error.cause, "[rows,5]"),
           "%s", error.cause);

    /* One index fewer than rows of values, and a group of three. */
    {
        struct pl_named_op ops[] = {
            {.kind = PL_ALLGATHER, .dtype = PL_INT64, .dims = 1, .shape = {self->rank == 1 ? 1 : 2}, .send = indices},
            {.kind = PL_ALLGATHER, .dtype = PL_FLOAT32, .dims = 2, .shape = {2, 2}, .send = values},
            {.kind = PL_BARRIER},
        };

        expect_ok(pl_named_submit_group(named, "embedding", ops, 2, &handle, &error));
        expect(pl_sparse_wait(named, handle, false, &sum, &error) == PL_INVALID, "rows without an index");
        expect_ok(pl_named_submit_group(named, "other", ops, 3, &handle, &error));
        expect(pl_sparse_wait(named, handle, false, &sum, &error) == PL_INVALID, "a group of three");
        expect_ok(pl_named_wait(named, handle, NULL, &error));
        expect(pl_sparse_wait(named, handle, false, &sum, &error) == PL_INVALID &&
                   strstr(error.cause, "waited for already"),
               "%s", error.cause);
    }
    input.row_elems = 2;
    expect_ok(pl_sparse_submit(named, "embedding", &input, &handle, &error));
    expect_ok(pl_sparse_wait(named, handle, false, &sum, &error));
    expect(sum.rows == 1 && sum.row_elems == 2, "%llu rows of %llu", (unsigned long long)sum.rows,
           (unsigned long long)sum.row_elems);
    pl_sparse_done(&sum);
    pl_named_free(named);
}

START_TEST(what_is_no_rows_of_one_width_is_refused_on_every_rank)
{
    ck_assert_bodies(2, mismatch_body, NULL);
    ck_assert_bodies(3, mismatch_body, NULL);
}
END_TEST

START_TEST(dense_is_preferred_when_it_moves_less)
{
    /* 1000 rows of 64 floats, twice, are 512000 bytes; a gathered row and its index are 264. */
    ck_assert(pl_sparse_prefers_dense(1940, 64, 1000));
    ck_assert(!pl_sparse_prefers_dense(1939, 64, 1000));
}
END_TEST

UNIT_MAIN("runtime/sparse", rows_add_up_like_a_dense_table, rows_are_added_in_rank_order,
          what_is_no_rows_of_one_width_is_refused_on_every_rank, dense_is_preferred_when_it_moves_less)
