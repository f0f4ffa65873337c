/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/service_sets.c. */
/* Group H of the inventory: sets of ranks added, used at the same time, and removed. */
#include "base/clock.h"
#include "runtime/named/service_private.h"
#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "tests/support/alloc_budget.h"
#include "tests/unit/runtime/named/engine.h"

#include <string.h>

#define SERVICE(world)                                                                                                 \
    struct pl_error error = PL_ERROR_NONE;                                                                             \
    struct pl_service *service = NULL;                                                                                 \
    expect_ok(pl_service_new((world), NULL, &service, &error))

#define LEAVE()                                                                                                        \
    expect_ok(pl_service_shutdown(service, &error));                                                                   \
    pl_service_free(service)

static void sets_body(struct rank *self)
{
    int even[] = {2, 0}, low[] = {0, 1}, numbers[8], ranks[2], even_set = -1, low_set = -1, size = 0;
    int different[] = {self->rank == 0 ? 0 : 1};
    struct pl_completion completion = {0};
    struct pl_service_set found = {0};
    float value = 1;
    struct pl_named_op op = sum_of("sum", &value, 1);

    SERVICE(self->world);
    expect_ok(pl_service_add_set(service, even, 2, &even_set, &error));
    expect_ok(pl_service_add_set(service, low, 2, &low_set, &error));
    expect(even_set == 1 && low_set == 2, "%d %d", even_set, low_set);
    expect(pl_service_add_set(service, even, 2, &size, &error) == PL_INVALID &&
               strstr(error.cause, "process set 1 already"),
           "%s", error.cause);
    expect(pl_service_add_set(service, (int[]){1, 1}, 2, &size, &error) == PL_INVALID && strstr(error.cause, "twice"),
           "rank 1 twice: %s", error.cause);
    expect(pl_service_add_set(service, even, 0, &size, &error) == PL_INVALID && strstr(error.cause, "ranks, found 0"),
           "no rank: %s", error.cause);
    expect(pl_service_add_set(service, (int[]){0, 1, 2, 3, 4}, 5, &size, &error) == PL_INVALID &&
               strstr(error.cause, "ranks, found 5"),
           "%s", error.cause);
    expect(pl_service_add_set(service, &self->size, 1, &size, &error) == PL_INVALID &&
               strstr(error.cause, "is not a rank"),
           "%s", error.cause);
    expect(pl_service_remove_set(service, 7, &error) == PL_INVALID && strstr(error.cause, "no process set 7"), "%s",
           error.cause);
    expect(pl_service_get_set(service, -1, &found, NULL, 0, &error) == PL_INVALID &&
               strstr(error.cause, "no process set -1"),
           "%s", error.cause);
    expect(pl_service_list_sets(service, numbers, 8) == 3 && numbers[2] == 2, "the list");
    expect(pl_service_find_set(service, even, 2) == even_set && pl_service_find_set(service, even, 1) == -1,
           "the set of some ranks");
    expect_ok(pl_service_get_set(service, even_set, &found, ranks, 2, &error));
    expect(found.size == 2 && ranks[0] == 2 && ranks[1] == 0, "%d ranks", found.size);
    expect(found.rank == (self->rank % 2 == 1 ? -1 : self->rank == 2 ? 0 : 1), "rank %d in the set", found.rank);
    expect(!found.world == (found.rank < 0) && (!found.world || pl_world_rank(found.world) == found.rank), "its world");
    expect(found.rank >= 0 || (pl_service_submit(service, even_set, &op, &completion, &error) == PL_INVALID &&
                               strstr(error.cause, "is not in process set 1")),
           "%s", error.cause);
    expect(pl_service_submit(service, 7, &op, &completion, &error) == PL_INVALID &&
               strstr(error.cause, "no process set 7"),
           "%s", error.cause);
    expect(pl_service_add_set(service, different, 1, &size, &error) == PL_MISMATCH &&
               strstr(error.cause, "rank 0 has add ranks 0"),
           "%s", error.cause);
    expect(pl_service_remove_set(service, 0, &error) == PL_INVALID, "set 0 stays");
    expect_ok(pl_service_remove_set(service, even_set, &error));
    expect(pl_service_remove_set(service, even_set, &error) == PL_INVALID, "removed twice");
    expect_ok(pl_service_add_set(service, (int[]){2, 1, 0}, 3, &even_set, &error));
    expect(even_set == 1, "the number is used again, not %d", even_set);
    LEAVE();
}

TEST(sets_have_numbers_and_what_is_no_set_is_refused)
{
    ck_assert_bodies(3, sets_body, NULL);
    ck_assert_bodies(4, sets_body, NULL);
}

/* A set whose rank 1 has submitted what rank 0 has not stays, on every rank of the world, until that has ended. */
static void busy_body(struct rank *self)
{
    struct pl_completion completion = {0};
    float value = 1;
    struct pl_named_op op = sum_of("late", &value, 1);
    int set = -1;

    SERVICE(self->world);
    expect_ok(pl_service_add_set(service, (int[]){0, 1}, 2, &set, &error));
    if (self->rank == 1) {
        expect_ok(pl_service_submit(service, set, &op, &completion, &error));
    }
    expect(pl_service_remove_set(service, set, &error) == PL_INVALID &&
               strstr(error.cause, "process set 1 cannot be removed: 'late' is under way on rank 1"),
           "%s", error.cause);
    if (self->rank == 0) {
        expect_ok(pl_service_submit(service, set, &op, &completion, &error));
    }
    if (self->rank < 2) {
        expect_ok(pl_service_wait(service, &completion, &error));
        expect(value == 2, "%g", (double)value);
    }
    expect_ok(pl_service_remove_set(service, set, &error));
    LEAVE();
}

TEST(a_set_with_work_under_way_is_not_removed)
{
    ck_assert_bodies(3, busy_body, NULL);
    ck_assert_bodies(4, busy_body, NULL);
}

/* The members of a group have names that are longer than any name of the program's. */
static void busy_group_body(struct rank *self)
{
    char base[PL_NAMED_MAX_NAME_BYTES];
    struct pl_completion completion = {0};
    float values[2] = {1, 1};
    struct pl_named_op ops[2] = {sum_of(NULL, &values[0], 1), sum_of(NULL, &values[1], 1)};
    int set = -1;

    memset(base, 'n', sizeof(base) - 1);
    base[sizeof(base) - 1] = '\0';
    SERVICE(self->world);
    expect_ok(pl_service_add_set(service, (int[]){0, 1}, 2, &set, &error));
    if (self->rank == 1) {
        expect_ok(pl_service_submit_group(service, set, base, ops, 2, &completion, &error));
    }
    expect(pl_service_remove_set(service, set, &error) == PL_INVALID &&
               strstr(error.cause, "nn' is under way on rank 1"),
           "%s", error.cause);
    if (self->rank == 0) {
        expect_ok(pl_service_submit_group(service, set, base, ops, 2, &completion, &error));
    }
    if (self->rank < 2) {
        expect_ok(pl_service_wait(service, &completion, &error));
    }
    expect_ok(pl_service_remove_set(service, set, &error));
    LEAVE();
}

TEST(a_set_with_a_group_of_a_long_name_under_way_is_not_removed)
{
    ck_assert_bodies(3, busy_group_body, NULL);
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

    SERVICE(self->world);
    for (int part = 0; part < 2; part++) {
        expect_ok(pl_service_add_set(service, (int[]){0, part + 1}, 2, &numbers[part], &error));
    }
    for (int part = 0; part < 2; part++) {
        struct pl_optimizer_options sgd = {.kind = PL_SGD};
        struct pl_optimizer *optimizer = NULL;
        struct pl_service_set set = {0};
        struct pl_plan *plan;

        expect_ok(pl_service_get_set(service, numbers[part], &set, NULL, 0, &error));
        if (!set.world) {
            continue;
        }
        plan = plan_of(self, set.world, part ? "second" : "first");
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
    LEAVE();
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

    SERVICE(self->world);
    alloc_budget_hook(pl_world_bootstrap(self->world));
    expect_ok(pl_barrier(self->world, &error)); /* a world's first collective takes memory by itself */
    for (int pays = 0; was_empty; pays++) {
        int32_t told[2], all[8];
        enum pl_status status;

        alloc_budget = self->rank == poor ? pays : -1;
        budget_was_empty = false;
        status = pl_service_sets_add(service, members, 2, &set, &error);
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
        expect(pl_service_list_sets(service, numbers, 8) == (status == PL_OK ? 2 : 1), "%d paid: %d sets", pays,
               pl_service_list_sets(service, numbers, 8));
        if (status == PL_OK) {
            expect_ok(pl_service_sets_remove(service, set, &error));
        }
    }
    LEAVE();
}

TEST(a_rank_without_memory_adds_no_set_on_any_rank)
{
    for (int poor = 0; poor < 4; poor++) {
        ck_assert_bodies(4, poor_body, &poor);
    }
}

/* In a world of ranks 2 and 0 messages call them so. */
static void part_body(struct rank *self)
{
    struct pl_completion completion = {0};
    struct pl_world *part = NULL;
    float value = 1;
    struct pl_named_op op = sum_of("late", &value, 1);
    int all = -1, one = -1;

    if (self->rank == 1) {
        return;
    }
    ck_assert_int_eq(pl_world_new_sub(self->world, (int[]){2, 0}, 2, &part, NULL), PL_OK);
    SERVICE(part);
    expect_ok(pl_service_add_set(service, (int[]){1, 0}, 2, &all, &error));
    expect_ok(pl_service_add_set(service, (int[]){1}, 1, &one, &error));
    if (self->rank == 2) {
        expect(pl_service_submit(service, one, &op, &completion, &error) == PL_INVALID &&
                   strstr(error.cause, "rank 2 is not in process set 2"),
               "%s", error.cause);
        expect_ok(pl_service_submit(service, all, &op, &completion, &error));
    }
    expect(pl_service_remove_set(service, all, &error) == PL_INVALID &&
               strstr(error.cause, "'late' is under way on rank 2"),
           "%s", error.cause);
    if (self->rank == 0) {
        expect_ok(pl_service_submit(service, all, &op, &completion, &error));
    }
    expect_ok(pl_service_wait(service, &completion, &error));
    expect_ok(pl_service_remove_set(service, all, &error));
    LEAVE();
    pl_world_free(part);
}

TEST(sets_in_a_sub_world_call_ranks_by_their_numbers_in_the_job)
{
    ck_assert_bodies(3, part_body, NULL);
}

UNIT_MAIN("runtime/process_set")
