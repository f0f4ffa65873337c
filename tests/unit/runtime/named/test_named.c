/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/named.c, runtime/named/table.c, runtime/named/rounds.c. */
/* Named tensors that ranks agree on: kinds, order, groups. Names in capitals are the inventory's behaviours. */
#include "tests/unit/runtime/named/engine.h"

#include <string.h>

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

TEST(groups_start_together_and_names_may_be_left_out)
{
    over_sizes(groups_body);
}

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

TEST(a_model_has_as_many_names_as_it_likes)
{
    ck_assert_bodies(3, large_model_body, NULL);
}

UNIT_MAIN("runtime/named")
