/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/process_set.c. */
/* Group H of the inventory: sets of ranks added, used at the same time, and removed. */
#include "base/clock.h"
#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "runtime/process_set.h"
#include "tests/support/alloc_budget.h"
#include "tests/unit/runtime/named/engine.h"

#include <sched.h>
#include <string.h>

#define SETS()                                                                                                         \
    struct pl_error error = PL_ERROR_NONE;                                                                             \
    struct pl_process_sets *sets = NULL;                                                                               \
    expect_ok(pl_process_sets_new(self->world, NULL, &sets, &error))

static void sets_body(struct rank *self)
{
    int even[] = {2, 0}, low[] = {0, 1}, numbers[8], even_set = -1, low_set = -1, size = 0;
    struct pl_named *named = NULL;
    const struct pl_process_set *even_ranks = NULL;

    SETS();
    expect_ok(pl_process_sets_add(sets, even, 2, &even_set, &error));
    expect_ok(pl_process_sets_add(sets, low, 2, &low_set, &error));
    expect(even_set == 1 && low_set == 2, "%d %d", even_set, low_set);
    expect(pl_process_sets_add(sets, even, 2, &size, &error) == PL_INVALID &&
               strstr(error.cause, "process set 1 already"),
           "%s", error.cause);
    expect(pl_process_sets_add(sets, (int[]){1, 1}, 2, &size, &error) == PL_INVALID && strstr(error.cause, "twice"),
           "rank 1 twice: %s", error.cause);
    expect(pl_process_sets_add(sets, even, 0, &size, &error) == PL_INVALID && strstr(error.cause, "ranks, found 0"),
           "no rank: %s", error.cause);
    expect(pl_process_sets_add(sets, (int[]){0, 1, 2, 3, 4}, 5, &size, &error) == PL_INVALID &&
               strstr(error.cause, "ranks, found 5"),
           "%s", error.cause);
    expect(pl_process_sets_add(sets, &self->size, 1, &size, &error) == PL_INVALID &&
               strstr(error.cause, "is not a rank"),
           "%s", error.cause);
    expect(pl_process_sets_remove(sets, 7, &error) == PL_INVALID && strstr(error.cause, "no process set 7"), "%s",
           error.cause);
    expect(pl_process_set_get(sets, -1, &even_ranks, &error) == PL_INVALID && strstr(error.cause, "no process set -1"),
           "%s", error.cause);
    expect(pl_process_sets_list(sets, numbers, 8) == 3 && numbers[2] == 2, "the list");
    expect_ok(pl_process_set_get(sets, even_set, &even_ranks, &error));
    expect(even_ranks->count == 2 && !even_ranks->world == (self->rank % 2 == 1), "%d ranks", even_ranks->count);
    if (even_ranks->world) {
        expect(pl_world_rank(even_ranks->world) == (self->rank == 2 ? 0 : 1), "another rank in the set");
    } else {
        expect(pl_process_set_named(sets, even_set, &named, &error) == PL_INVALID &&
                   strstr(error.cause, "is not in process set 1"),
               "%s", error.cause);
    }
    expect(pl_process_set_named(sets, 7, &named, &error) == PL_INVALID && strstr(error.cause, "no process set 7"), "%s",
           error.cause);

    /* Rank 0 is in both sets and submits to both before it waits for either, in the order opposite to the waiting. */
    for (int step = 0; step < 20; step++) {
        int mine[2] = {even_set, low_set};
        pl_named_handle handles[2] = {0};
        struct pl_named *engines[2] = {NULL};
        float values[2] = {1, 1};

        for (int i = 0; i < 2; i++) {
            if (pl_process_set_named(sets, mine[i], &engines[i], NULL) == PL_OK) {
                struct pl_named_op op = sum_of("same name in both sets", &values[i], 1);

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

        expect(pl_process_sets_add(sets, different, 1, &size, &error) == PL_MISMATCH &&
                   strstr(error.cause, "rank 0 has add ranks 0"),
               "%s", error.cause);
    }
    expect(pl_process_sets_remove(sets, 0, &error) == PL_INVALID, "set 0 stays");
    expect_ok(pl_process_sets_remove(sets, even_set, &error));
    expect(pl_process_sets_remove(sets, even_set, &error) == PL_INVALID, "removed twice");
    expect_ok(pl_process_sets_add(sets, (int[]){2, 1, 0}, 3, &even_set, &error));
    expect(even_set == 1, "the number is used again, not %d", even_set);
    pl_process_sets_free(sets);
}

TEST(sets_live_side_by_side)
{
    ck_assert_bodies(3, sets_body, NULL);
    ck_assert_bodies(4, sets_body, NULL);
}

/* A set whose rank 1 has submitted what rank 0 has not stays, on every rank of the world, until that has ended. */
static void busy_body(struct rank *self)
{
    struct pl_named *named = NULL;
    float value = 1;
    struct pl_named_op op = sum_of("late", &value, 1);
    pl_named_handle handle = 0;
    int set = -1;

    SETS();
    expect_ok(pl_process_sets_add(sets, (int[]){0, 1}, 2, &set, &error));
    if (self->rank < 2) {
        expect_ok(pl_process_set_named(sets, set, &named, &error));
    }
    for (int late = 1; late >= 0; late--) {
        if (self->rank == late) {
            expect_ok(pl_named_submit(named, &op, &handle, &error));
        }
        expect(pl_process_sets_remove(sets, set, &error) == PL_INVALID &&
                   strstr(error.cause, "process set 1 cannot be removed: 'late' is under way on rank"),
               "%s", error.cause);
    }
    if (self->rank < 2) {
        expect_ok(pl_named_wait(named, handle, NULL, &error));
        expect(value == 2, "%g", (double)value);
    }
    expect_ok(pl_process_sets_remove(sets, set, &error));
    pl_process_sets_free(sets);
}

TEST(a_set_with_work_under_way_is_not_removed)
{
    ck_assert_bodies(3, busy_body, NULL);
    ck_assert_bodies(4, busy_body, NULL);
}

/* H12, J2: one set's barrier is held by a rank that comes only when the other set's barrier is over. */
static void held_body(struct rank *self)
{
    int *over = self->data; /* how many barriers of the set {0, 1} have ended */
    int first = -1, second = -1;
    struct pl_named_op barrier = {.name = "barrier", .kind = PL_BARRIER};
    struct pl_named *engine = NULL, *held = NULL;
    pl_named_handle handle = 0;
    bool done = true;

    SETS();
    expect_ok(pl_process_sets_add(sets, (int[]){0, 1}, 2, &first, &error));
    expect_ok(pl_process_sets_add(sets, (int[]){0, 2}, 2, &second, &error));
    if (self->rank == 0) {
        expect_ok(pl_process_set_named(sets, second, &held, &error));
        expect_ok(pl_named_submit(held, &barrier, &handle, &error));
        expect_ok(pl_named_flush(held, &error));
    }
    if (self->rank < 2) {
        expect_ok(pl_process_set_named(sets, first, &engine, &error));
        expect_ok(pl_named_run(engine, &barrier, NULL, &error));
    }
    if (self->rank == 0) {
        expect_ok(pl_named_poll(held, handle, &done, &error));
        expect(!done, "rank 2 has not come yet");
        __atomic_store_n(over, 1, __ATOMIC_RELEASE);
        expect_ok(pl_named_wait(held, handle, NULL, &error));
    }
    if (self->rank == 2) {
        int64_t deadline_ns = pl_deadline_after_ns(50 * PL_NS_PER_S);

        while (!__atomic_load_n(over, __ATOMIC_ACQUIRE) && !pl_deadline_passed(deadline_ns)) {
            sched_yield();
        }
        expect(__atomic_load_n(over, __ATOMIC_ACQUIRE), "the other set's barrier was held, too");
        expect_ok(pl_process_set_named(sets, second, &held, &error));
        expect_ok(pl_named_run(held, &barrier, NULL, &error));
    }
    pl_process_sets_free(sets);
}

TEST(a_held_set_does_not_hold_another)
{
    int over = 0;

    ck_assert_bodies(3, held_body, &over);
}

/* H11: two ranks share two sets and wait for them in opposite orders, in a wait or by polling. */
static void crossed_body(struct rank *self)
{
    int numbers[2];

    SETS();
    expect_ok(pl_process_sets_add(sets, (int[]){0, 1}, 2, &numbers[0], &error));
    expect_ok(pl_process_sets_add(sets, (int[]){1, 0}, 2, &numbers[1], &error));
    for (int step = 0; self->rank < 2 && step < 20; step++) {
        float values[2] = {1, 2};
        pl_named_handle handles[2] = {0};
        struct pl_named *engines[2] = {NULL};

        for (int i = 0; i < 2; i++) {
            struct pl_named_op op = sum_of("same name in both sets", &values[i], 1);

            expect_ok(pl_process_set_named(sets, numbers[i], &engines[i], &error));
            expect_ok(pl_named_submit(engines[i], &op, &handles[i], &error));
        }
        for (int k = 0; k < 2; k++) {
            int i = self->rank == 0 ? k : 1 - k;
            bool done = step % 2 == 0; /* else poll: that is waiting, too */

            while (!done) {
                expect_ok(pl_named_poll(engines[i], handles[i], &done, &error));
            }
            expect_ok(pl_named_wait(engines[i], handles[i], NULL, &error));
            expect(values[i] == (float)(2 * (i + 1)), "step %d, set %d: %g", step, numbers[i], (double)values[i]);
        }
    }
    pl_process_sets_free(sets);
}

TEST(two_sets_are_waited_for_in_any_order)
{
    ck_assert_bodies(3, crossed_body, NULL);
    ck_assert_bodies(4, crossed_body, NULL);
}

static struct pl_plan *plan_of(struct rank *self, struct pl_world *world, const char *name)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_plan *plan = NULL;
    size_t index;

    expect_ok(pl_plan_new(world, NULL, &plan, &error));
    expect_ok(pl_plan_add(plan, name, 1, (uint64_t[]){100}, &index, &error));
    expect_ok(pl_plan_seal(plan, &error));
    return plan;
}

/* H13, L11: a model in two parts. Ranks 0 and 1 share one part's gradients, 0 and 2 the other's; rank 3, where there is
 * one, has none. */
static void optimizer_body(struct rank *self)
{
    int numbers[2];

    SETS();
    for (int part = 0; part < 2; part++) {
        expect_ok(pl_process_sets_add(sets, (int[]){0, part + 1}, 2, &numbers[part], &error));
    }
    for (int part = 0; part < 2; part++) {
        struct pl_optimizer_options sgd = {.kind = PL_SGD};
        struct pl_optimizer *optimizer = NULL;
        const struct pl_process_set *set = NULL;
        struct pl_plan *plan;

        expect_ok(pl_process_set_get(sets, numbers[part], &set, &error));
        if (!set->world) {
            continue;
        }
        plan = plan_of(self, set->world, part ? "second" : "first");
        expect_ok(pl_optimizer_new(plan, &sgd, &optimizer, &error));
        for (int step = 0; step < 3; step++) {
            for (int e = 0; e < 100; e++) {
                pl_plan_tensor(plan, 0)->gradient[e] = (float)(2 * self->rank + e);
            }
            expect_ok(pl_plan_ready(plan, 0, &error));
            expect_ok(pl_optimizer_step(optimizer, 1.0, &error));
        }
        for (int e = 0; e < 100; e++) { /* the average over rank 0 and rank part + 1, three times */
            expect(pl_plan_tensor(plan, 0)->value[e] == -3.0F * (float)(part + 1 + e), "part %d: %g", part,
                   (double)pl_plan_tensor(plan, 0)->value[e]);
        }
        pl_optimizer_free(optimizer);
        pl_plan_free(plan);
    }
    pl_process_sets_free(sets);
}

TEST(an_optimizer_reaches_only_the_ranks_of_its_set)
{
    ck_assert_bodies(3, optimizer_body, NULL);
    ck_assert_bodies(4, optimizer_body, NULL);
}

/* Whatever request it is that a rank cannot pay, a member of the set or not: the set is there on all ranks, or on none,
 * and all name that rank. */
static void poor_body(struct rank *self)
{
    int poor = *(int *)self->data, members[] = {2, 1}, set = -1, numbers[8];
    bool was_empty = true;

    SETS();
    alloc_budget_hook(pl_world_bootstrap(self->world));
    expect_ok(pl_barrier(self->world, &error)); /* a world's first collective takes memory by itself */
    for (int pays = 0; was_empty; pays++) {
        int32_t told[2], all[8];
        enum pl_status status;

        alloc_budget = self->rank == poor ? pays : -1;
        budget_was_empty = false;
        status = pl_process_sets_add(sets, members, 2, &set, &error);
        alloc_budget = -1;
        told[0] = (int32_t)status;
        told[1] = budget_was_empty;
        expect(status == PL_OK || (status == PL_MEMORY && strstr(error.cause, "the memory budget is used up")),
               "%d paid: %s", pays, error.cause);
        if (pl_allgather(self->world, told, all, 2, PL_INT32, &error) != PL_OK) {
            expect_ok(error.status);
            break;
        }
        was_empty = all[2 * poor + 1];
        for (int r = 0; r < self->size; r++) {
            expect(all[2 * r] == told[0], "%d paid: rank %d has %d", pays, r, all[2 * r]);
        }
        expect(pl_process_sets_list(sets, numbers, 8) == (status == PL_OK ? 2 : 1), "%d paid: %d sets", pays,
               pl_process_sets_list(sets, numbers, 8));
        if (status == PL_OK) {
            expect_ok(pl_process_sets_remove(sets, set, &error));
        }
    }
    pl_process_sets_free(sets);
}

TEST(a_rank_without_memory_adds_no_set_on_any_rank)
{
    for (int poor = 0; poor < 4; poor++) {
        ck_assert_bodies(4, poor_body, &poor);
    }
}

/* A collective that the program did not call itself is named by the part of the library that did. */
static void members_only_body(struct rank *self)
{
    struct pl_named_op op = {.name = "step", .kind = PL_BARRIER};
    struct pl_named *named = NULL;
    int set = -1;
    enum pl_status status;

    SETS();
    expect_ok(pl_process_set_named(sets, 0, &named, &error));
    status = self->rank == 0 ? pl_process_sets_add(sets, (int[]){0}, 1, &set, &error)
                             : pl_named_run(named, &op, NULL, &error);
    expect(status == PL_MISMATCH && strstr(error.cause, "rank 0 calls allreduce 'process sets'") &&
               (self->rank == 0 || strstr(error.context, "agreeing on named tensors")),
           "%s (%s)", error.cause, error.context);
    pl_process_sets_free(sets);
}

TEST(a_set_that_its_members_alone_add_meets_what_the_others_do)
{
    ck_assert_bodies(2, members_only_body, NULL);
}

/* In a world of ranks 2 and 0 messages call them so. */
static void part_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_process_sets *sets = NULL;
    struct pl_world *part = NULL;
    struct pl_named *named = NULL;
    float value = 1;
    struct pl_named_op op = sum_of("late", &value, 1);
    pl_named_handle handle = 0;
    int all = -1, one = -1;

    if (self->rank == 1) {
        return;
    }
    expect_ok(pl_world_new_sub(self->world, (int[]){2, 0}, 2, &part, &error));
    expect_ok(pl_process_sets_new(part, NULL, &sets, &error));
    expect_ok(pl_process_sets_add(sets, (int[]){1, 0}, 2, &all, &error));
    expect_ok(pl_process_sets_add(sets, (int[]){1}, 1, &one, &error));
    expect_ok(pl_process_set_named(sets, all, &named, &error));
    if (self->rank == 2) {
        expect(pl_process_set_named(sets, one, &named, &error) == PL_INVALID &&
                   strstr(error.cause, "rank 2 is not in process set 2"),
               "%s", error.cause);
        expect_ok(pl_named_submit(named, &op, &handle, &error));
    }
    expect(pl_process_sets_remove(sets, all, &error) == PL_INVALID &&
               strstr(error.cause, "'late' is under way on rank 2"),
           "%s", error.cause);
    if (self->rank == 0) {
        expect_ok(pl_named_submit(named, &op, &handle, &error));
    }
    expect_ok(pl_named_wait(named, handle, NULL, &error));
    expect_ok(pl_process_sets_remove(sets, all, &error));
    pl_process_sets_free(sets);
    pl_world_free(part);
}

TEST(sets_in_a_sub_world_call_ranks_by_their_numbers_in_the_job)
{
    ck_assert_bodies(3, part_body, NULL);
}

UNIT_MAIN("runtime/process_set")
