/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/gradient/plan.c, runtime/gradient/plan_seal.c. */
#include "runtime/plan.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/optimizer.h"
#include "tests/unit/runtime/ranks.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 5 };

static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
static const uint64_t counts[TENSORS] = {3, 1000, 1, 5000, 17};

static struct pl_plan *sealed_plan(struct pl_world *world, const struct pl_plan_options *options)
{
    struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, options, &plan);
    for (size_t i = 0; i < TENSORS; i++) {
        ck_ok(pl_plan_add, plan, names[i], 1, &counts[i], &index);
        ck_assert_uint_eq(index, i);
    }
    ck_ok(pl_plan_seal, plan);
    return plan;
}

/* The value of rank `rank` for element `e` of tensor `t` at step `step`: small whole numbers, so that all sums are
 * exact. */
static float given(int rank, size_t t, uint64_t e, int step)
{
    return (float)((rank + 1) * (int)((t * 31 + e * 7 + (uint64_t)step * 3) % 97));
}

static void write_gradient(const struct pl_plan *plan, size_t t, int rank, int step, bool add)
{
    const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

    for (uint64_t e = 0; e < tensor->count_elems; e++) {
        tensor->gradient[e] = given(rank, t, e, step) + (add ? tensor->gradient[e] : 0.0F);
    }
}

static void check_gradient(const struct pl_plan *plan, size_t t, double factor, int step)
{
    const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

    for (uint64_t e = 0; e < tensor->count_elems; e++) {
        ck_assert_double_eq((double)tensor->gradient[e], (double)given(0, t, e, step) * factor);
    }
}

/* Returns the sum of 1..n. */
static double triangle(int size)
{
    return size * (size + 1) / 2.0;
}

static void sums_in_any_order(struct pl_world *world, void *context)
{
    const struct pl_plan_options *options = context;
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, options);
    int rank = pl_world_rank(world);
    static const size_t orders[3][TENSORS] = {{4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}, {2, 4, 0, 3, 1}};

    for (int step = 0; step < 6; step++) {
        for (size_t i = 0; i < TENSORS; i++) {
            size_t t = orders[(step + rank) % 3][i]; /* every rank in a different order */

            write_gradient(plan, t, rank, step, false);
            ck_ok(pl_plan_ready, plan, t);
        }
        ck_ok(pl_plan_wait, plan);
        for (size_t t = 0; t < TENSORS; t++) {
            check_gradient(plan, t, triangle(pl_world_size(world)), step);
        }
    }
    ck_assert_uint_eq(pl_plan_counts(plan).steps, 6);
    ck_assert_uint_eq(pl_plan_counts(plan).zeroed, 0);
}

TEST(gradients_are_summed_whatever_the_bucket_size)
{
    struct pl_plan_options options = {.sum = true};

    for (int size = 1; size <= 4; size++) {
        for (uint64_t bytes = 64; bytes <= 1 << 20; bytes *= 16) {
            options.bucket_bytes = bytes;
            ranks_run(size, sums_in_any_order, &options);
        }
    }
}

static void layout(struct pl_world *world, void *context)
{
    struct pl_plan_options options = {.bucket_bytes = 4096};
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, &options);
    uint64_t next = 0;

    ck_assert_uint_eq(pl_plan_tensor(plan, 4)->offset_elems, 0); /* the tensor that was registered last comes first */
    for (size_t t = 0; t < TENSORS; t++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

        ck_assert_uint_eq((uintptr_t)tensor->gradient % 64, 0);
        ck_assert_uint_eq((uintptr_t)tensor->value % 64, 0);
        ck_assert_ptr_eq(tensor->value - pl_plan_values(plan) + pl_plan_gradients(plan), tensor->gradient);
        ck_assert_uint_eq(pl_plan_find(plan, names[t]), t);
    }
    for (size_t b = 0; b < pl_plan_bucket_count(plan); b++) {
        uint64_t first;
        uint64_t count;

        pl_plan_bucket(plan, b, &first, &count);
        ck_assert_uint_eq(first, next); /* no gap, no overlap */
        ck_assert_uint_le(count * sizeof(float), 4096 + 2048);
        next = first + count;
    }
    ck_assert_uint_eq(next, pl_plan_elems(plan));
}

UNIT_TEST(buckets_cover_the_gradients_without_gaps_and_large_tensors_are_split, ranks_run(2, layout, NULL))

/* In the order of the plan: e 17, d 5000, c 1, b 1000, a 3 elements; each begins at a multiple of 16. */
static void cut(struct pl_world *world, void *context)
{
    static const struct {
        uint64_t bucket_bytes;
        size_t buckets;
        uint64_t elems[4];
    } cases[] = {
        {1 << 20, 1, {6080}},
        {8192, 3, {2048, 2048, 1984}},
        {10240, 2, {2560, 3520}}, /* a rest of less than half a bucket stays with the piece before it */
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_plan *plan = sealed_plan(world, &(struct pl_plan_options){.bucket_bytes = cases[i].bucket_bytes});

        ck_assert_uint_eq(pl_plan_bucket_count(plan), cases[i].buckets);
        for (size_t b = 0; b < cases[i].buckets; b++) {
            uint64_t first, count;

            pl_plan_bucket(plan, b, &first, &count);
            ck_assert_uint_eq(count, cases[i].elems[b]);
        }
        pl_plan_free(plan);
    }
}

UNIT_TEST(neighbours_share_a_bucket_and_long_tensors_are_split, ranks_run(1, cut, NULL))

static void average(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, NULL);

    for (size_t t = 0; t < TENSORS; t++) {
        write_gradient(plan, t, 0, 0, false);
        ck_ok(pl_plan_ready, plan, t);
    }
    ck_ok(pl_plan_wait, plan);
    for (size_t t = 0; t < TENSORS; t++) {
        check_gradient(plan, t, 1.0, 0);
    }
}

TEST(the_average_of_equal_gradients_is_each_of_them)
{
    ranks_run(2, average, NULL);
    ranks_run(4, average, NULL);
}

static void passes(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, &(struct pl_plan_options){.sum = true});
    int rank = pl_world_rank(world);

    for (int step = 0; step < 3; step++) {
        for (int pass = 0; pass < 4; pass++) {
            for (size_t t = TENSORS; t-- > 0;) {
                write_gradient(plan, t, rank, step, pass > 0);
                if (pass == 3) {
                    ck_ok(pl_plan_ready, plan, t);
                }
            }
        }
        ck_fails(PL_INVALID, "'b' is ready already in this step: by an earlier call", pl_plan_ready, plan, 1);
        ck_ok(pl_plan_wait, plan);
        for (size_t t = 0; t < TENSORS; t++) {
            check_gradient(plan, t, triangle(pl_world_size(world)) * 4.0, step);
        }
    }
}

TEST(several_passes_add_up_and_a_gradient_ready_twice_is_refused_by_name)
{
    ranks_run(1, passes, NULL);
    ranks_run(3, passes, NULL);
}

static void count_ended(void *count_at, const struct pl_event *event)
{
    ++*(size_t *)count_at;
}

static void only_progress(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, &(struct pl_plan_options){.bucket_bytes = 4096});
    size_t ended = 0;
    struct pl_observer observer = {.context = &ended, .ended = count_ended};
    int64_t deadline_ns = pl_deadline_after_ns(50 * PL_NS_PER_S);

    pl_world_observe(world, &observer);
    for (size_t t = TENSORS; t-- > 0;) {
        write_gradient(plan, t, pl_world_rank(world), 0, false);
        ck_ok(pl_plan_ready, plan, t);
    }
    while (ended < pl_plan_bucket_count(plan) && !pl_deadline_passed(deadline_ns)) {
        ck_ok(pl_plan_progress, plan);
        sched_yield();
    }
    ck_assert_uint_ge(pl_plan_bucket_count(plan), 3);
    ck_assert_uint_eq(ended, pl_plan_bucket_count(plan));
    ck_ok(pl_plan_wait, plan);
    pl_world_observe(world, NULL);
}

UNIT_TEST(progress_alone_brings_all_buckets_to_their_end, ranks_run(2, only_progress, NULL))

static void missing(struct pl_world *world, void *context)
{
    struct pl_plan_options options = {.sum = true, .bucket_bytes = 4096};
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, &options);
    int rank = pl_world_rank(world);

    for (int step = 0; step < 4; step++) {
        for (size_t t = 0; t < TENSORS; t++) {
            write_gradient(plan, t, rank, step, false);
            if (!(rank == 1 && t == 3 && step % 2 == 0)) { /* rank 1 uses tensor d in every second step */
                ck_ok(pl_plan_ready, plan, t);
            }
        }
        ck_ok(pl_plan_wait, plan);
        for (size_t t = 0; t < TENSORS; t++) {
            check_gradient(plan, t, t == 3 && step % 2 == 0 ? 1.0 + 3.0 : 6.0, step);
        }
    }
    ck_assert_uint_eq(pl_plan_counts(plan).zeroed, rank == 1 ? 2 : 0);
}

UNIT_TEST(a_gradient_that_one_rank_lacks_counts_as_zero_there, ranks_run(3, missing, NULL))

static void broadcast(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, NULL);
    int root = *(int *)context;

    for (size_t t = 0; t < TENSORS; t++) {
        for (uint64_t e = 0; e < counts[t]; e++) {
            pl_plan_tensor(plan, t)->value[e] = given(pl_world_rank(world), t, e, 0);
        }
    }
    ck_ok(pl_plan_broadcast, plan, root);
    for (size_t t = 0; t < TENSORS; t++) {
        for (uint64_t e = 0; e < counts[t]; e++) {
            ck_assert(pl_plan_tensor(plan, t)->value[e] == given(root, t, e, 0));
        }
    }
}

TEST(broadcast_gives_all_ranks_the_roots_values)
{
    for (int size = 1; size <= 4; size++) {
        ranks_run(size, broadcast, &(int){0});
        ranks_run(size, broadcast, &(int){size - 1});
    }
}

static void mismatch(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = NULL;
    uint64_t shape[2] = {10, pl_world_rank(world) == 2 ? 7 : 8};
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &plan);
    ck_ok(pl_plan_add, plan, "first", 1, shape, &index);
    ck_ok(pl_plan_add, plan, "second", 2, shape, &index);
    ck_fails_as(PL_MISMATCH, "gradients: rank 0 has 'second' [10, 8], rank 2 has 'second' [10, 7]", pl_plan_seal, plan);
}

UNIT_TEST(ranks_that_register_differently_all_report_what_differs, ranks_run(4, mismatch, NULL))

static void fewer(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = NULL;
    uint64_t shape = 10;
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &plan);
    ck_ok(pl_plan_add, plan, "first", 1, &shape, &index);
    if (pl_world_rank(world) == 0) {
        ck_ok(pl_plan_add, plan, "second", 1, &shape, &index);
    }
    ck_fails_as(PL_MISMATCH, "gradients: rank 0 has 'second' [10], rank 1 has nothing more", pl_plan_seal, plan);
}

UNIT_TEST(a_rank_that_registers_fewer_is_named, ranks_run(2, fewer, NULL))

static void wires(struct pl_world *world, void *context)
{
    static const unsigned flags[] = {PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16, PL_REPRODUCIBLE};
    const uint64_t shape = 10;
    size_t index;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(flags); i++) {
        AUTO_PLAN struct pl_plan *plan = NULL;

        ck_ok(pl_plan_new, world, &(struct pl_plan_options){.wire_flags = flags[i]}, &plan);
        ck_ok(pl_plan_add, plan, "first", 1, &shape, &index);
        ck_fails(PL_INVALID, "expected 0 or one of the PL_WIRE_ flags", pl_plan_seal, plan);
    }
}

UNIT_TEST(several_wire_flags_and_others_are_refused, ranks_run(1, wires, NULL))

static void refused(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = NULL;
    struct pl_optimizer *optimizer = NULL;
    const struct pl_optimizer_options options = {.momentum = 0.5};
    uint64_t shape[2] = {10, 0};
    uint64_t huge[2] = {UINT64_MAX / 2, 3};
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &plan);
    ck_fails(PL_INVALID, "", pl_plan_seal, plan);
    ck_fails(PL_INVALID, "", pl_plan_add, plan, "none", 2, shape, &index);
    ck_fails(PL_INVALID, "", pl_plan_add, plan, "huge", 2, huge, &index);
    ck_fails(PL_INVALID, "", pl_plan_add, plan, "deep", PL_PLAN_MAX_DIMS + 1, shape, &index);
    ck_ok(pl_plan_add, plan, "first", 1, shape, &index);
    ck_fails(PL_INVALID, "", pl_plan_add, plan, "first", 1, shape, &index);
    ck_fails(PL_INVALID, "", pl_optimizer_new, plan, &options, &optimizer);
    ck_fails(PL_INVALID, "", pl_plan_ready, plan, 0);
    ck_fails(PL_INVALID, "", pl_plan_wait, plan);
    ck_fails(PL_INVALID, "", pl_plan_finish, plan);
    ck_fails(PL_INVALID, "pl_plan_seal() comes first", pl_plan_broadcast, plan, 0);
    ck_ok(pl_plan_seal, plan);
    ck_fails(PL_INVALID, "", pl_plan_add, plan, "late", 1, shape, &index);
    ck_fails_as(PL_INVALID, "gradients: the plan is sealed already", pl_plan_seal, plan);
    ck_fails(PL_INVALID, "", pl_plan_wait_bucket, plan, 1);
    ck_fails_as(PL_INVALID, "gradients: no tensor 1, there are 1, counted from 0", pl_plan_ready, plan, 1);
}

UNIT_TEST(names_twice_empty_tensors_and_late_ones_are_refused, ranks_run(1, refused, NULL))

/* Needs more memory than there is, in one bucket: a second call begins in the same state as the first. */
static void has_no_room(struct pl_world *world, void *context)
{
    const struct pl_plan_options options = {.bucket_bytes = UINT64_MAX};
    struct pl_error first = PL_ERROR_NONE, second = PL_ERROR_NONE;
    AUTO_PLAN struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, &options, &plan);
    ck_ok(pl_plan_add, plan, "huge", 1, (uint64_t[]){UINT64_C(1) << 58}, &index);
    ck_assert_int_eq(pl_plan_seal(plan, &first), PL_MEMORY);
    ck_assert_int_eq(pl_plan_seal(plan, &second), PL_MEMORY);
    ck_assert_str_eq(second.cause, first.cause);
    ck_assert_uint_eq(pl_plan_elems(plan), 0);
    ck_assert_uint_eq(pl_plan_bucket_count(plan), 0);
}

/* A shape by mistake: with the usual bucket size the list of buckets alone would be larger than most memories. */
static void has_no_room_for_its_buckets(struct pl_world *world, void *context)
{
    struct pl_error error = PL_ERROR_NONE;
    AUTO_PLAN struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &plan);
    for (size_t i = 0; i < 17; i++) {
        char name[] = {(char)('a' + (int)i), 0};

        ck_ok(pl_plan_add, plan, name, 1, (uint64_t[]){i == 0 ? UINT64_C(1) << 58 : (UINT64_C(1) << 60) - 1}, &index);
        if (i == 0 || i == 16) {
            ck_assert_int_eq(pl_plan_seal(plan, &error), PL_MEMORY);
            ck_assert_uint_eq(pl_plan_elems(plan), 0);
        }
    }
    ck_assert_ptr_nonnull(strstr(error.cause, "more elements than memory can hold"));
}

TEST(a_seal_that_finds_no_room_leaves_the_plan_as_it_was)
{
    ranks_run(1, has_no_room, NULL);
    ranks_run(2, has_no_room, NULL);
    ranks_run(2, has_no_room_for_its_buckets, NULL);
}

/* A thread whose memory budget is used up gets no aligned memory, which the values of a plan need. */
static _Thread_local bool alloc_budget_is_empty;

int posix_memalign(void **memory, size_t align, size_t bytes)
{
    *memory = alloc_budget_is_empty ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
    return *memory ? 0 : ENOMEM;
}

/* One rank lacks a resource: all ranks get `status`, with words that name the rank, and the same plan can be sealed
 * later. */
static void lacks_room(struct pl_world *world, void *context)
{
    const struct pl_plan_options *options = context;
    struct pl_error error = PL_ERROR_NONE;
    AUTO_PLAN struct pl_plan *plan = NULL;
    bool lacks = pl_world_rank(world) == 1;
    size_t index;

    ck_ok(pl_plan_new, world, options, &plan);
    ck_ok(pl_plan_add, plan, "first", 1, (uint64_t[]){10000}, &index);
    alloc_budget_is_empty = lacks;
    ck_assert_int_eq(pl_plan_seal(plan, &error), PL_MEMORY);
    alloc_budget_is_empty = false;
    ck_assert_msg(strstr(lacks ? error.context : error.cause, "rank 1"), "'%s' does not name rank 1", error.cause);
    ck_assert_msg(strstr(error.cause, "no memory for 10000 x 4 bytes"), "'%s' is not why", error.cause);
    ck_assert_uint_eq(pl_plan_elems(plan), 0);
    ck_ok(pl_plan_seal, plan);
    ck_ok(pl_plan_broadcast, plan, 0);
}

TEST(a_rank_that_finds_no_room_for_its_values_is_named_on_all_ranks)
{
    ranks_run(2, lacks_room, NULL);
    ranks_run(4, lacks_room, NULL);
    ranks_run(3, lacks_room, &(struct pl_plan_options){.local = true});
}

/* The last two ranks cannot seal their plans; the others report the first of them. */
static void seals_what_cannot_be(struct pl_world *world, void *context)
{
    struct pl_plan_options options = {.gradient_dtype = PL_FLOAT32};
    struct pl_error error = PL_ERROR_NONE;
    AUTO_PLAN struct pl_plan *plan = NULL;
    int rank = pl_world_rank(world);
    size_t index;

    options.gradient_dtype = rank == 1 ? PL_FLOAT16 : PL_FLOAT32;
    ck_ok(pl_plan_new, world, &options, &plan);
    if (rank < 2) {
        ck_ok(pl_plan_add, plan, "first", 1, (uint64_t[]){10}, &index);
    }
    ck_assert_int_eq(pl_plan_seal(plan, &error), rank < 2 ? PL_UNSUPPORTED : PL_INVALID);
    if (rank == 0) {
        ck_assert_msg(strncmp(error.cause, "rank 1 on host ", 15) == 0 &&
                          strstr(error.cause, ": gradients: gradients cannot be float16"),
                      "'%s'", error.cause);
        ck_assert(error.domain == PL_DOMAIN_RANK && error.code == 1);
    }
}

UNIT_TEST(a_rank_that_cannot_seal_its_plan_is_named_where_others_can, ranks_run(3, seals_what_cannot_be, NULL))

/* Takes two steps in which `context` of the tensors are ready. */
static void two_steps(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = sealed_plan(world, NULL);

    for (int step = 0; step < 2; step++) {
        for (size_t t = 0; t < *(size_t *)context; t++) {
            ck_ok(pl_plan_ready, plan, t);
        }
        ck_ok(pl_plan_wait, plan);
    }
}

TEST(a_first_step_without_any_gradient_is_warned_of_once)
{
    for (size_t ready = 0; ready < 2; ready++) {
        char text[1024];

        ranks_run_logged(1, two_steps, &ready, text, sizeof(text));
        ck_assert_msg(!strstr(text, "pl_plan_ready()") == (ready != 0), "%s", text);
        ck_assert(ready > 0 || strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    }
}

static void stays_local(struct pl_world *world, void *context)
{
    struct pl_plan_options options = {.bucket_bytes = 4096, .local = true};
    struct pl_plan *plan = sealed_plan(world, &options);
    int rank = pl_world_rank(world);

    for (int step = 0; step < 3; step++) {
        for (size_t t = 0; t + 1 < TENSORS; t++) {
            write_gradient(plan, t, rank, step, false);
        }
        for (size_t t = 0; t + 1 < TENSORS; t++) {
            ck_ok(pl_plan_ready, plan, t);
        }
        ck_ok(pl_plan_progress, plan);
        ck_ok(pl_plan_wait, plan);
        for (size_t t = 0; t + 1 < TENSORS; t++) {
            check_gradient(plan, t, rank + 1, step);
        }
        /* as in every plan, tensors that were not ready are zero */
        ck_assert(pl_plan_tensor(plan, TENSORS - 1)->gradient[0] == 0.0F);
    }
    ck_ok(pl_plan_ready, plan, TENSORS - 1);
    pl_plan_free(plan); /* in the middle of a step */
}

TEST(a_local_plan_exchanges_nothing)
{
    struct pl_plan *plan = NULL;

    ranks_run(1, stays_local, NULL);
    ranks_run(3, stays_local, NULL);
    ck_fails(PL_INVALID, "reduces nothing", pl_plan_new, NULL, &(struct pl_plan_options){.local = true, .sum = true},
             &plan);
}

/* The residual of a bucket is added only to that bucket, not to another one of the same length. */
static void keeps_apart(struct pl_world *world, void *context)
{
    const struct pl_plan_options options = {.bucket_bytes = 20000 * sizeof(float), .wire_flags = PL_WIRE_FLOAT16};
    const uint64_t elems = 20000;
    AUTO_PLAN struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, &options, &plan);
    ck_ok(pl_plan_add, plan, "exact", 1, &elems, &index);
    ck_ok(pl_plan_add, plan, "rounds", 1, &elems, &index);
    ck_ok(pl_plan_seal, plan);
    ck_assert_uint_eq(pl_plan_bucket_count(plan), 2);
    for (int step = 0; step < 20; step++) {
        double sum = 0.0;

        for (uint64_t e = 0; e < elems; e++) {
            pl_plan_tensor(plan, 0)->gradient[e] = 1.0F;
            pl_plan_tensor(plan, 1)->gradient[e] = 1.0003F;
        }
        ck_ok(pl_plan_ready, plan, 1);
        ck_ok(pl_plan_ready, plan, 0);
        ck_ok(pl_plan_wait, plan);
        for (uint64_t e = 0; e < elems; e++) {
            sum += fabs((double)pl_plan_tensor(plan, 0)->gradient[e] - 1.0);
        }
        ck_assert_msg(sum == 0.0, "step %d: off by %g", step, sum);
    }
}

UNIT_TEST(rounding_errors_of_two_buckets_stay_apart,
          ranks_run_with(2, &(struct pl_world_options){.pretend_ranks_per_host = 1}, keeps_apart, NULL))

UNIT_MAIN("runtime/plan")
