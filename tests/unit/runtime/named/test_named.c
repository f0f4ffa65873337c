/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/named.c, runtime/named/table.c, runtime/named/rounds.c. */
/* Named tensors that ranks agree on: kinds, order, groups. Names in capitals are the inventory's behaviours. */
#include "tests/unit/runtime/named/engine.h"

#include <string.h>

enum { TENSORS = 40 };

/* B9, K10: each rank submits in a different order, over several steps; some tensors are large enough to be sent
 * alone. */
static void any_order_body(struct rank *self)
{
    static const uint64_t sizes[] = {1, 7, 64, 1000, 20000, 0};
    float *data[TENSORS];
    pl_named_handle handles[TENSORS];
    char names[TENSORS][16];

    ENGINE(NULL);
    for (int i = 0; i < TENSORS; i++) {
        data[i] = calloc(20000, sizeof(float));
        snprintf(names[i], sizeof(names[i]), "tensor%d", i);
    }
    for (int step = 0; step < 5; step++) {
        for (int k = 0; k < TENSORS; k++) {
            int i = self->rank % 2 ? TENSORS - 1 - k : (k * 7 + step) % TENSORS;
            uint64_t elems = sizes[i % 6];
            struct pl_named_op op = sum_of(names[i], data[i], elems);

            for (uint64_t e = 0; e < elems; e++) {
                data[i][e] = (float)(self->rank + 1) * (float)(i + step);
            }
            expect_ok(pl_named_submit(named, &op, &handles[i], &error));
        }
        for (int i = 0; i < TENSORS; i++) {
            float want = (float)(self->size * (self->size + 1) / 2) * (float)(i + step);

            expect_ok(pl_named_wait(named, handles[i], NULL, &error));
            for (uint64_t e = 0; e < sizes[i % 6]; e++) {
                if (data[i][e] != want) {
                    expect(false, "step %d tensor %d element %llu: %g, not %g", step, i, (unsigned long long)e,
                           (double)data[i][e], (double)want);
                    break;
                }
            }
        }
    }
    for (int i = 0; i < TENSORS; i++) {
        free(data[i]);
    }
    expect_ok(pl_named_shutdown(named, &error));
    pl_named_free(named);
}

START_TEST(tensors_match_by_name_in_any_order)
{
    over_sizes(any_order_body);
}
END_TEST

/* D2, D3, D5, F1, F4, G3, E1, J1: kinds that make new memory, with uneven rows, twice, so that known names are used
 * too. */
static void kinds_body(struct rank *self)
{
    int n = self->size;

    ENGINE(NULL);
    for (int step = 0; step < 3; step++) {
        int32_t rows[16 * 2], matrix[16 * 16], root_data[3];
        uint64_t splits[RANKS_MOST], own_rows = (uint64_t)((self->rank + step) % 3), total = 0;
        struct pl_named_result gathered = {0}, exchanged = {0}, scattered = {0};
        struct pl_named_op gather = {
            .name = "gather", .kind = PL_ALLGATHER, .dtype = PL_INT32, .dims = 2, .shape = {own_rows, 2}, .send = rows};
        struct pl_named_op exchange = {
            .name = "exchange", .kind = PL_ALLTOALL, .dtype = PL_INT32, .dims = 1, .splits = splits, .send = matrix};
        struct pl_named_op scatter = {.name = "scatter",
                                      .kind = PL_REDUCE_SCATTER,
                                      .dtype = PL_INT32,
                                      .op = PL_SUM,
                                      .dims = 1,
                                      .shape = {(uint64_t)(3 * n - 1)}, /* all but the last rank get one row more */
                                      .send = matrix};
        struct pl_named_op spread = {.name = "spread",
                                     .kind = PL_BROADCAST,
                                     .dtype = PL_INT32,
                                     .root = step % n,
                                     .dims = 1,
                                     .shape = {3},
                                     .recv = root_data};
        struct pl_named_op barrier = {.name = "barrier", .kind = PL_BARRIER};
        char spread_name[16];

        for (uint64_t i = 0; i < own_rows * 2; i++) {
            rows[i] = self->rank * 100 + (int)i;
        }
        expect_ok(pl_named_run(named, &gather, &gathered, &error));
        for (int r = 0, at = 0; r < n; r++) {
            uint64_t want = (uint64_t)((r + step) % 3);

            expect(gathered.rows_of_rank[r] == want, "rank %d gave %llu rows", r,
                   (unsigned long long)gathered.rows_of_rank[r]);
            for (uint64_t i = 0; i < want * 2; i++, at++) {
                expect(((int32_t *)gathered.data)[at] == r * 100 + (int)i, "element %d is %d", at,
                       ((int32_t *)gathered.data)[at]);
            }
            total += want;
        }
        expect(gathered.rows == total, "%llu rows", (unsigned long long)gathered.rows);

        for (int r = 0; r < n; r++) { /* rank s sends 2 s + r elements to r */
            splits[r] = (uint64_t)(2 * self->rank + r);
            exchange.shape[0] += splits[r];
        }
        for (int i = 0, r = 0; r < n; r++) {
            for (int k = 0; k < 2 * self->rank + r; k++) {
                matrix[i++] = self->rank * 1000 + r * 10 + k;
            }
        }
        expect_ok(pl_named_run(named, &exchange, &exchanged, &error));
        for (int r = 0, at = 0; r < n; r++) {
            expect(exchanged.rows_of_rank[r] == (uint64_t)(2 * r + self->rank), "rank %d gave %llu rows", r,
                   (unsigned long long)exchanged.rows_of_rank[r]);
            for (int k = 0; k < 2 * r + self->rank; k++, at++) {
                expect(((int32_t *)exchanged.data)[at] == r * 1000 + self->rank * 10 + k, "from %d: %d", r,
                       ((int32_t *)exchanged.data)[at]);
            }
        }

        for (int i = 0; i < 3 * n - 1; i++) {
            matrix[i] = i;
        }
        expect_ok(pl_named_run(named, &scatter, &scattered, &error));
        expect(scattered.rows == (self->rank < n - 1 ? 3u : 2u), "%llu rows", (unsigned long long)scattered.rows);
        for (uint64_t i = 0; i < scattered.rows; i++) {
            expect(((int32_t *)scattered.data)[i] == n * (3 * self->rank + (int)i), "element %llu",
                   (unsigned long long)i);
        }

        snprintf(spread_name, sizeof(spread_name), "spread%d", step % n);
        spread.name = spread_name;
        memcpy(root_data, (int32_t[]){self->rank, self->rank + 1, self->rank + 2}, sizeof(root_data));
        expect_ok(pl_named_run(named, &spread, NULL, &error));
        expect(root_data[0] == step % n && root_data[2] == step % n + 2, "%d", root_data[0]);
        expect_ok(pl_named_run(named, &barrier, NULL, &error));
        pl_named_result_done(&gathered);
        pl_named_result_done(&exchanged);
        pl_named_result_done(&scattered);
    }
    pl_named_free(named);
}

START_TEST(every_kind_works_by_name)
{
    over_sizes(kinds_body);
}
END_TEST

/* D5, D6, G5-G8: many operations that make new memory are in flight at once; their rows differ between ranks and
 * between operations. */
static void many_kinds_body(struct rank *self)
{
    enum { EACH = 12, ROWS_MOST = 16 };
    int n = self->size;

    ENGINE(NULL);
    for (int step = 0; step < 3; step++) {
        int32_t rows[EACH][ROWS_MOST], scatter[EACH][ROWS_MOST];
        pl_named_handle gathers[EACH], scatters[EACH];

        for (int k = 0; k < EACH; k++) {
            int i = self->rank % 2 ? EACH - 1 - k : k;
            char name[32];
            struct pl_named_op op = {.name = name, .kind = PL_ALLGATHER, .dtype = PL_INT32, .dims = 1, .send = rows[i]};

            for (int e = 0; e < ROWS_MOST; e++) {
                rows[i][e] = 1000 * i + 100 * self->rank + e;
                scatter[i][e] = 100 * i + e;
            }
            op.shape[0] = (uint64_t)((self->rank + i + step) % 4);
            snprintf(name, sizeof(name), "gather %d", i);
            expect_ok(pl_named_submit(named, &op, &gathers[i], &error));
            op = (struct pl_named_op){.name = name,
                                      .kind = PL_REDUCE_SCATTER,
                                      .dtype = PL_INT32,
                                      .op = PL_SUM,
                                      .dims = 1,
                                      .send = scatter[i]};
            op.shape[0] = (uint64_t)i;
            op.scaled = i % 2;
            op.prescale = 1;
            op.postscale = 2;
            snprintf(name, sizeof(name), "scatter %d", i);
            expect_ok(pl_named_submit(named, &op, &scatters[i], &error));
        }
        for (int i = 0; i < EACH; i++) {
            struct pl_named_result gathered = {0}, scattered = {0};
            int first = self->rank * (i / n) + (self->rank < i % n ? self->rank : i % n);
            uint64_t at = 0;

            expect_ok(pl_named_wait(named, scatters[i], &scattered, &error));
            expect_ok(pl_named_wait(named, gathers[i], &gathered, &error));
            for (int r = 0; r < n; r++) {
                for (int e = 0; e < (r + i + step) % 4; e++, at++) {
                    expect(((int32_t *)gathered.data)[at] == 1000 * i + 100 * r + e, "gather %d: %d", i,
                           ((int32_t *)gathered.data)[at]);
                }
            }
            expect(gathered.rows == at, "gather %d: %llu rows", i, (unsigned long long)gathered.rows);
            expect(scattered.rows == (uint64_t)(i / n + (self->rank < i % n)), "scatter %d: %llu rows", i,
                   (unsigned long long)scattered.rows);
            for (uint64_t e = 0; e < scattered.rows; e++) {
                expect(((int32_t *)scattered.data)[e] == (1 + i % 2) * n * (100 * i + first + (int)e), "scatter %d: %d",
                       i, ((int32_t *)scattered.data)[e]);
            }
            pl_named_result_done(&gathered);
            pl_named_result_done(&scattered);
        }
    }
    pl_named_free(named);
}

START_TEST(many_that_make_memory_each_give_their_own_rows)
{
    over_sizes(many_kinds_body);
}
END_TEST

/* C1, C3, C4, C5, C6, K3: groups of mixed types, an empty group, a group of one member, and operations without
 * names. */
static void groups_body(struct rank *self)
{
    int n = self->size;

    ENGINE(NULL);
    for (int step = 0; step < 3; step++) {
        float single[5] = {1, 2, 3, 4, 5};
        double wide[2] = {(double)self->rank, 1};
        int64_t whole = INT64_C(9007199254740993); /* 2^53 + 1: B16 */
        struct pl_named_op ops[] = {
            {.kind = PL_ALLREDUCE,
             .dtype = PL_FLOAT32,
             .op = PL_AVERAGE,
             .dims = 1,
             .shape = {5},
             .send = single,
             .recv = single},
            {.kind = PL_ALLREDUCE,
             .dtype = PL_FLOAT64,
             .op = PL_MAX,
             .dims = 2,
             .shape = {2, 1},
             .send = wide,
             .recv = wide},
            {.kind = PL_ALLREDUCE, .dtype = PL_INT64, .op = PL_AVERAGE, .send = &whole, .recv = &whole},
        };
        pl_named_handle group, empty, single_member, alone;
        struct pl_named_result results[3] = {{0}};
        bool done = false;
        float unnamed = 1, member = (float)self->rank;
        struct pl_named_op of_one = sum_of(NULL, &member, 1);
        struct pl_named_op nameless = sum_of(NULL, &unnamed, 1);

        expect_ok(pl_named_submit_group(named, "group", ops, 3, &group, &error));
        expect_ok(pl_named_submit_group(named, "none", ops, 0, &empty, &error));
        expect_ok(pl_named_submit_group(named, "one", &of_one, 1, &single_member, &error));
        expect_ok(pl_named_submit(named, &nameless, &alone, &error));
        expect_ok(pl_named_poll(named, empty, &done, &error));
        expect(done, "an empty group is done at once");
        expect_ok(pl_named_wait(named, empty, NULL, &error));
        while (!done) {
            expect_ok(pl_named_poll(named, group, &done, &error));
        }
        expect_ok(pl_named_wait(named, group, results, &error));
        expect_ok(pl_named_wait(named, single_member, NULL, &error));
        expect((int)member == n * (n - 1) / 2, "%g", (double)member);
        expect_ok(pl_named_wait(named, alone, NULL, &error));
        expect(single[4] == 5 && wide[0] == n - 1 && whole == INT64_C(9007199254740993), "%g %g", (double)single[4],
               wide[0]);
        expect((int)unnamed == n, "%g", (double)unnamed);
        expect(pl_named_wait(named, group, NULL, &error) == PL_INVALID, "a handle is waited for once");
    }
    pl_named_free(named);
}

START_TEST(groups_start_together_and_names_may_be_left_out)
{
    over_sizes(groups_body);
}
END_TEST

/* K2: a name is free again after its operation, and operations without names leave nothing behind. */
static void many_body(struct rank *self)
{
    ENGINE(NULL);
    for (int i = 0; i < 2000; i++) {
        float value = 1;
        struct pl_named_op op = sum_of(i % 2 ? "same" : NULL, &value, 1);

        expect_ok(pl_named_run(named, &op, NULL, &error));
        expect((int)value == self->size, "%g", (double)value);
    }
    pl_named_free(named);
}

START_TEST(names_can_be_used_again_and_again)
{
    over_sizes(many_body);
}
END_TEST

/* More names than there is room for at first, in a different order on each rank. */
static void large_model_body(struct rank *self)
{
    enum { NAMES = 300 };
    pl_named_handle handles[NAMES];
    float values[NAMES];

    ENGINE(NULL);
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < NAMES; k++) {
            int i = (k * 7 + 100 * self->rank * step) % NAMES;
            char name[16];
            struct pl_named_op op = sum_of(name, &values[i], 1);

            snprintf(name, sizeof(name), "tensor%d", i);
            values[i] = (float)(i + step);
            expect_ok(pl_named_submit(named, &op, &handles[i], &error));
        }
        for (int i = 0; i < NAMES; i++) {
            expect_ok(pl_named_wait(named, handles[i], NULL, &error));
            expect(values[i] == (float)(self->size * (i + step)), "step %d tensor %d: %g", step, i, (double)values[i]);
        }
    }
    pl_named_free(named);
}

START_TEST(a_model_has_as_many_names_as_it_likes)
{
    ck_assert_bodies(3, large_model_body, NULL);
}
END_TEST

UNIT_MAIN("runtime/named", tensors_match_by_name_in_any_order, every_kind_works_by_name,
          many_that_make_memory_each_give_their_own_rows, groups_start_together_and_names_may_be_left_out,
          names_can_be_used_again_and_again, a_model_has_as_many_names_as_it_likes)
