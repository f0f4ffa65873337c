/* SPDX-License-Identifier: Apache-2.0 */
/* H1-H5, H7-H12 of the inventory: sets of ranks added, used side by side, and removed. */
#include "runtime/process_set.h"
#include "tests/support/expect.h"
#include "tests/support/unit.h"

#include <string.h>

static struct pl_named_op sum_of(const char *name, float *data)
{
    return (struct pl_named_op){.name = name, .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .send = data, .recv = data};
}

static void sets_body(struct rank *self)
{
    int even[] = {2, 0}, low[] = {0, 1}, numbers[8], even_set = -1, low_set = -1, size = 0;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_process_sets *sets = NULL;
    struct pl_named *named = NULL;
    struct pl_world *world = NULL;

    expect_ok(pl_process_sets_new(self->world, NULL, &sets, &error));
    expect_ok(pl_process_sets_add(sets, even, 2, &even_set, &error));
    expect_ok(pl_process_sets_add(sets, low, 2, &low_set, &error));
    expect(even_set == 1 && low_set == 2, "%d %d", even_set, low_set);
    expect(pl_process_sets_add(sets, even, 2, &size, &error) == PL_INVALID && strstr(error.cause, "process set 1 already"), "%s", error.cause);
    expect(pl_process_sets_list(sets, numbers, 8) == 3 && numbers[2] == 2, "the list");
    expect_ok(pl_process_set_size(sets, even_set, &size, &error));
    expect(size == 2 && pl_process_set_included(sets, even_set) == (self->rank == 0 || self->rank == 2), "size %d", size);

    if (pl_process_set_included(sets, even_set)) {
        expect_ok(pl_process_set_world(sets, even_set, &world, &error));
        expect(pl_world_rank(world) == (self->rank == 2 ? 0 : 1), "rank %d in the set", pl_world_rank(world));
    } else {
        expect(pl_process_set_named(sets, even_set, &named, &error) == PL_INVALID && strstr(error.cause, "is not in process set 1"), "%s",
               error.cause);
    }
    expect(pl_process_set_named(sets, 7, &named, &error) == PL_INVALID && strstr(error.cause, "no process set 7"), "%s", error.cause);

    /* Rank 0 is in both sets and submits to both before it waits for either, in the order opposite to the waiting. */
    for (int step = 0; step < 20; step++) {
        int mine[2] = {even_set, low_set};
        pl_named_handle handles[2] = {0};
        struct pl_named *engines[2] = {NULL};
        float values[2] = {1, 1};

        for (int i = 0; i < 2; i++) {
            if (pl_process_set_included(sets, mine[i])) {
                struct pl_named_op op = sum_of("same name in both sets", &values[i]);

                expect_ok(pl_process_set_named(sets, mine[i], &engines[i], &error));
                expect_ok(pl_named_submit(engines[i], &op, &handles[i], &error));
            }
        }
        for (int i = 2; i-- > 0;) {
            if (engines[i]) {
                expect_ok(pl_named_wait(engines[i], handles[i], NULL, &error));
                expect(values[i] == 2, "%g", (double)values[i]);
            }
        }
    }
    {
        int different[] = {self->rank == 0 ? 0 : 1};

        expect(pl_process_sets_add(sets, different, 1, &size, &error) == PL_MISMATCH && strstr(error.cause, "rank 0 has add ranks 0"), "%s",
               error.cause);
    }
    expect(pl_process_sets_remove(sets, 0, &error) == PL_INVALID, "set 0 stays");
    expect_ok(pl_process_sets_remove(sets, even_set, &error));
    expect(pl_process_sets_remove(sets, even_set, &error) == PL_INVALID, "removed twice");
    expect_ok(pl_process_sets_add(sets, (int[]){2, 1, 0}, 3, &even_set, &error));
    expect(even_set == 1, "the number is used again, not %d", even_set);
    pl_process_sets_free(sets);
}

START_TEST(sets_live_side_by_side)
{
    ck_assert_bodies(3, sets_body, NULL);
    ck_assert_bodies(4, sets_body, NULL);
}
END_TEST

UNIT_MAIN("runtime/process_set", sets_live_side_by_side)
