/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/named.c, runtime/named/table.c, runtime/named/rounds.c, runtime/named/run.c. */
/* Groups of named tensors: any mix of kinds, types and sizes, all or nothing. Names in capitals are the inventory's
 * behaviours. */
#include "base/memory.h"
#include "tests/unit/runtime/named/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* C1, C3, C4: every reduction in one group, of several types and shapes, in place and not. */
static void reductions_body(struct rank *self)
{
    int n = self->size;

    ENGINE(NULL);
    for (int step = 0; step < 3; step++) {
        int own = self->rank + 1 + step, least = 1 + step, most = n + step;
        float sum[6], average_in[7], average_out[7];
        double least_value = own, product = own, want_product = 1;
        int8_t most_value = (int8_t)-own;
        struct pl_named_op ops[] = {
            {.kind = PL_ALLREDUCE,
             .dtype = PL_FLOAT32,
             .op = PL_SUM,
             .dims = 2,
             .shape = {2, 3},
             .send = sum,
             .recv = sum},
            {.kind = PL_ALLREDUCE,
             .dtype = PL_FLOAT32,
             .op = PL_AVERAGE,
             .dims = 1,
             .shape = {7},
             .send = average_in,
             .recv = average_out},
            {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT64, .op = PL_MIN, .send = &least_value, .recv = &least_value},
            {.kind = PL_ALLREDUCE,
             .dtype = PL_INT8,
             .op = PL_MAX,
             .dims = 3,
             .shape = {1, 1, 1},
             .send = &most_value,
             .recv = &most_value},
            {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT64, .op = PL_PRODUCT, .send = &product, .recv = &product},
        };
        engine_handle handle;

        for (int i = 0; i < 7; i++) {
            sum[i % 6] = (float)(own * (i % 6));
            average_in[i] = (float)(own * 2 * i);
        }
        for (int k = least; k <= most; k++) {
            want_product *= k;
        }
        expect_ok(engine_submit_group(named, "reductions", ops, 5, &handle, &error));
        expect_ok(engine_wait(named, handle, NULL, &error));
        for (int i = 0; i < 7; i++) {
            expect(sum[i % 6] == (float)((least + most) * n / 2.0 * (i % 6)), "sum %g", (double)sum[i % 6]);
            expect(fabsf(average_out[i] - (float)((least + most) * i)) < 1e-5F, "average %g", (double)average_out[i]);
            expect(average_in[i] == (float)(own * 2 * i), "an input was changed");
        }
        expect(least_value == least && most_value == -least && product == want_product, "%g %d %g", least_value,
               most_value, product);
    }
    engine_free(named);
}

TEST(a_group_holds_every_reduction)
{
    over_sizes(reductions_body);
}

/* Two groups under way at once stay two, also with names and sizes that are alike: what is known by now of each is
 * announced before the rest. */
static void alike_body(struct rank *self)
{
    ENGINE(NULL);
    for (int step = 0; step < 3; step++) {
        float sums[2] = {(float)self->rank, (float)step}, rows[3] = {1, 2, 3};
        struct pl_named_op ops[] = {
            sum_of(NULL, &sums[0], 1),
            {.kind = PL_ALLGATHER, .dtype = PL_FLOAT32, .dims = 1, .shape = {1}, .send = &rows[0]},
            {.kind = PL_ALLGATHER, .dtype = PL_FLOAT32, .dims = 1, .shape = {2}, .send = &rows[1]},
        };
        struct pl_named_result results[2][3] = {{{0}}};
        engine_handle handles[2];

        expect_ok(engine_submit_group(named, "0.layer", ops, 2, &handles[0], &error));
        ops[0] = sum_of(NULL, &sums[1], 1);
        expect_ok(engine_submit_group(named, "1.layer", ops, 3, &handles[1], &error));
        expect_ok(engine_wait(named, handles[0], results[0], &error));
        expect_ok(engine_wait(named, handles[1], results[1], &error));
        expect(sums[0] == (float)(self->size * (self->size - 1)) / 2 && sums[1] == (float)(self->size * step), "%g %g",
               (double)sums[0], (double)sums[1]);
        expect(results[0][1].rows == (uint64_t)self->size && results[1][2].rows == 2 * (uint64_t)self->size,
               "%llu %llu rows", (unsigned long long)results[0][1].rows, (unsigned long long)results[1][2].rows);
        for (int i = 0; i < 6; i++) {
            pl_named_result_done(&results[i / 3][i % 3]);
        }
    }
    engine_free(named);
}

TEST(groups_with_names_alike_stay_apart)
{
    over_sizes(alike_body);
}

/* C7: more bytes than any limit at which a round or a message begins, large and small members side by side. */
static void large_body(struct rank *self)
{
    enum { MEMBERS = 48, LARGE = 40000 };
    const struct pl_named_options options = {.start_bytes = 4096};
    float *data[MEMBERS];

    ENGINE(&options);
    for (int i = 0; i < MEMBERS; i++) {
        data[i] = malloc(LARGE * sizeof(float));
    }
    for (int step = 0; step < 2; step++) {
        struct pl_named_op ops[MEMBERS];
        engine_handle handle;

        for (int i = 0; i < MEMBERS; i++) {
            ops[i] = sum_of(NULL, data[i], i % 3 ? (uint64_t)(i + 1) : LARGE);
            for (uint64_t e = 0; e < ops[i].shape[0]; e++) {
                data[i][e] = (float)((uint64_t)(self->rank + i) + e % 5);
            }
        }
        expect_ok(engine_submit_group(named, "large", ops, MEMBERS, &handle, &error));
        expect_ok(engine_wait(named, handle, NULL, &error));
        for (int i = 0; i < MEMBERS; i++) {
            for (uint64_t e = 0; e < ops[i].shape[0]; e++) {
                float want =
                    (float)(self->size * (self->size - 1) / 2) + (float)self->size * (float)((uint64_t)i + e % 5);

                if (data[i][e] != want) {
                    expect(false, "member %d element %llu: %g, not %g", i, (unsigned long long)e, (double)data[i][e],
                           (double)want);
                    break;
                }
            }
        }
    }
    for (int i = 0; i < MEMBERS; i++) {
        free(data[i]);
    }
    engine_free(named);
}

TEST(a_group_may_be_larger_than_any_message)
{
    over_sizes(large_body);
}

/* Every tensor of a group is a vector of its own: parallel ones give the mean. Two small ones, of two types, and a
 * large one; then rank 0, which has joined, gives nothing. */
static void adasum_body(struct rank *self)
{
    enum { ELEMS = 40000 };
    static const double mean[] = {0, 1, 1.5, 0, 2.5};
    double wide = self->rank + 1, alone = 3;
    float *large = pl_memory_new(ELEMS, sizeof(float), NULL), small[2] = {0, (float)(self->rank + 1)};
    struct pl_named_op ops[] = {sum_of(NULL, small, 2), sum_of(NULL, large, ELEMS), sum_of(NULL, NULL, 1)};
    struct pl_named_op late = {.name = "late", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT64, .op = PL_ADASUM};
    engine_handle handle;
    int last = -1;

    ENGINE(NULL);
    ops[2].dtype = PL_FLOAT64;
    ops[2].send = ops[2].recv = &wide;
    for (int i = 0; i < 3; i++) {
        ops[i].op = PL_ADASUM;
    }
    for (int i = 0; i < ELEMS; i++) {
        large[i] = (float)(2 * (self->rank + 1));
    }
    if (self->size == 3) {
        expect(engine_submit_group(named, "adasums", ops, 3, &handle, &error) == PL_UNSUPPORTED, "%s", error.cause);
    } else {
        expect_ok(engine_submit_group(named, "adasums", ops, 3, &handle, &error));
        expect_ok(engine_wait(named, handle, NULL, &error));
        expect(fabs((double)small[1] - mean[self->size]) < 1e-6 && small[0] == 0, "%g", (double)small[1]);
        expect(fabs(wide - mean[self->size]) < 1e-12, "%g", wide);
        expect(fabs((double)large[ELEMS - 1] - 2 * mean[self->size]) < 1e-5, "%g", (double)large[ELEMS - 1]);
    }
    if (self->rank > 0 && self->size != 3) {
        late.send = late.recv = &alone;
        expect_ok(engine_run(named, &late, NULL, &error));
        expect(fabs(alone - 3) < 1e-12, "%g", alone);
    }
    expect_ok(engine_join(named, &last, &error));
    free(large);
    engine_free(named);
}

TEST(a_group_of_adasums_has_a_tree_for_each_tensor)
{
    over_sizes(adasum_body);
}

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
        engine_handle group, empty, single_member, alone;
        struct pl_named_result results[3] = {{0}};
        bool done = false;
        float unnamed = 1, member = (float)self->rank;
        struct pl_named_op of_one = sum_of(NULL, &member, 1);
        struct pl_named_op nameless = sum_of(NULL, &unnamed, 1);

        expect_ok(engine_submit_group(named, "group", ops, 3, &group, &error));
        expect_ok(engine_submit_group(named, "none", ops, 0, &empty, &error));
        expect_ok(engine_submit_group(named, "one", &of_one, 1, &single_member, &error));
        expect_ok(engine_submit(named, &nameless, &alone, &error));
        done = engine_poll(named, empty);
        expect(done, "an empty group is done at once");
        expect_ok(engine_wait(named, empty, NULL, &error));
        while (!done) {
            done = engine_poll(named, group);
        }
        expect_ok(engine_wait(named, group, results, &error));
        expect_ok(engine_wait(named, single_member, NULL, &error));
        expect((int)member == n * (n - 1) / 2, "%g", (double)member);
        expect_ok(engine_wait(named, alone, NULL, &error));
        expect(single[4] == 5 && wide[0] == n - 1 && whole == INT64_C(9007199254740993), "%g %g", (double)single[4],
               wide[0]);
        expect((int)unnamed == n, "%g", (double)unnamed);
    }
    engine_free(named);
}

TEST(groups_start_together_and_names_may_be_left_out)
{
    over_sizes(groups_body);
}

/* More names than there is room for at first, in a different order on each rank. */
static void large_model_body(struct rank *self)
{
    enum { NAMES = 300 };
    engine_handle handles[NAMES];
    float values[NAMES];

    ENGINE(NULL);
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < NAMES; k++) {
            int i = (k * 7 + 100 * self->rank * step) % NAMES;
            char name[16];
            struct pl_named_op op = sum_of(name, &values[i], 1);

            snprintf(name, sizeof(name), "tensor%d", i);
            values[i] = (float)(i + step);
            expect_ok(engine_submit(named, &op, &handles[i], &error));
        }
        for (int i = 0; i < NAMES; i++) {
            expect_ok(engine_wait(named, handles[i], NULL, &error));
            expect(values[i] == (float)(self->size * (i + step)), "step %d tensor %d: %g", step, i, (double)values[i]);
        }
    }
    engine_free(named);
}

TEST(a_model_has_as_many_names_as_it_likes)
{
    ck_assert_bodies(3, large_model_body, NULL);
}

UNIT_MAIN("runtime/named_groups")
