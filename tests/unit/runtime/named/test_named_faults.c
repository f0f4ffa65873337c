/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/named.c, runtime/named/rounds.c, runtime/named/table.c,
 * runtime/named/operation.c, runtime/named/describe.c. */
/* Named tensors that ranks disagree on. Every rank reports the same words, nothing hangs, and the engine goes on. */
#include "base/clock.h"
#include "base/knob.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "runtime/named/engine.h"
#include "tests/support/refuse_growth.h"
#include "tests/unit/runtime/named/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* K9: after the fault the engine still works. */
static void expect_alive(struct rank *self, struct pl_named *named)
{
    struct pl_error error = PL_ERROR_NONE;
    float value = 1;
    struct pl_named_op op = sum_of("still alive", &value, 1);

    expect_ok(engine_run(named, &op, NULL, &error));
    expect((int)value == self->size, "%g", (double)value);
}

/* What the last rank does differently in an operation of `kind`, and what every rank has to read. */
struct difference {
    enum pl_kind kind;
    void (*change)(struct pl_named_op *op);
    const char *mine, *theirs;
};

static void other_rows(struct pl_named_op *op)
{
    op->shape[0] = 24;
}

static void other_shape(struct pl_named_op *op)
{
    op->shape[1] = 5;
}

static void other_dims(struct pl_named_op *op)
{
    op->dims = 1;
}

static void other_dtype(struct pl_named_op *op)
{
    op->dtype = PL_INT32;
}

static void other_op(struct pl_named_op *op)
{
    op->op = PL_MAX;
}

static void other_scale(struct pl_named_op *op)
{
    op->scaled = true;
    op->prescale = 0.5;
    op->postscale = 1;
}

static void other_root(struct pl_named_op *op)
{
    op->root = 1;
}

static void other_kind(struct pl_named_op *op)
{
    op->kind = PL_ALLGATHER;
}

static void other_kind_and_root(struct pl_named_op *op)
{
    op->kind = PL_BROADCAST;
    op->root = 1;
}

static const struct difference differences[] = {
    /* K4 */
    {PL_ALLREDUCE, other_shape, "allreduce sum of float32 [12,4]", "allreduce sum of float32 [12,5]"},
    /* K5 */
    {PL_ALLREDUCE, other_dtype, "allreduce sum of float32 [12,4]", "allreduce sum of int32 [12,4]"},
    /* K6 */
    {PL_ALLREDUCE, other_op, "allreduce sum of float32 [12,4]", "allreduce max of float32 [12,4]"},
    /* K7 */
    {PL_ALLREDUCE, other_scale, "allreduce sum of float32 [12,4]", "prescale 0.5"},
    /* K8 */
    {PL_ALLREDUCE, other_kind, "allreduce sum of float32 [12,4]", "allgather of float32 [rows,4]"},
    /* K8 */
    {PL_ALLREDUCE, other_kind_and_root, "allreduce sum of float32 [12,4]", "broadcast of float32 [12,4] from root 1"},
    /* D8 */
    {PL_ALLGATHER, other_shape, "allgather of float32 [rows,4]", "allgather of float32 [rows,5]"},
    /* D9 */
    {PL_ALLGATHER, other_dtype, "allgather of float32 [rows,4]", "allgather of int32 [rows,4]"},
    /* D10 */
    {PL_ALLGATHER, other_dims, "allgather of float32 [rows,4]", "allgather of float32 [rows]"},
    /* E5 */
    {PL_BROADCAST, other_root, "broadcast of float32 [12,4] from root 0", "broadcast of float32 [12,4] from root 1"},
    /* E6 */
    {PL_BROADCAST, other_rows, "broadcast of float32 [12,4] from", "broadcast of float32 [24,4] from"},
    /* E7 */
    {PL_BROADCAST, other_dtype, "broadcast of float32 [12,4] from", "broadcast of int32 [12,4] from"},
    /* F13 */
    {PL_ALLTOALL, other_dims, "alltoall of float32 [rows,4]", "alltoall of float32 [rows]"},
    /* F14 */
    {PL_ALLTOALL, other_dtype, "alltoall of float32 [rows,4]", "alltoall of int32 [rows,4]"},
    /* G11 */
    {PL_REDUCE_SCATTER, other_rows, "reduce_scatter sum of float32 [12,4]", "reduce_scatter sum of float32 [24,4]"},
    /* G12 */
    {PL_REDUCE_SCATTER, other_dtype, "reduce_scatter sum of float32 [12,4]", "reduce_scatter sum of int32 [12,4]"},
    /* G16 */
    {PL_REDUCE_SCATTER, other_op, "reduce_scatter sum of float32 [12,4]", "reduce_scatter max of float32 [12,4]"},
};

static void difference_body(struct rank *self)
{
    const struct difference *difference = self->data;
    float in[24 * 5], out[24 * 5];

    ENGINE(NULL);
    for (int step = 0; step < 3; step++) { /* fresh, then with the name known, then fresh differences again */
        struct pl_named_op op = {.name = "w",
                                 .kind = difference->kind,
                                 .dtype = PL_FLOAT32,
                                 .op = PL_SUM,
                                 .dims = 2,
                                 .shape = {12, 4},
                                 .send = in,
                                 .recv = out};

        memset(in, 0, sizeof(in));
        memset(out, 0x55, sizeof(out));
        if (step == 1) {
            expect_ok(engine_run(named, &op, NULL, &error));
            continue;
        }
        if (self->rank == self->size - 1) {
            difference->change(&op);
        }
        expect(engine_run(named, &op, NULL, &error) == PL_MISMATCH, "step %d: %s", step, error.cause);
        expect(strstr(error.cause, "'w': rank 0: ") && strstr(error.cause, difference->mine) &&
                   strstr(error.cause, difference->theirs),
               "%s", error.cause);
        expect(((unsigned char *)out)[0] == 0x55, "the output was touched");
    }
    expect_alive(self, named);
    engine_free(named);
}

TEST(a_difference_is_reported_on_every_rank_by_name)
{
    for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++) {
        for (int size = 2; size <= 4; size++) {
            ck_assert_bodies(size, difference_body, (void *)&differences[i]);
        }
    }
}

/*
 * K11: ranks wait for what others never submit, and rank 1 has another shape under a name that the others know. All of
 * that is forgotten with the failure. On a machine that is too busy for so short a deadline the world's own may come
 * first.
 */
static void never_met(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    const char *names[] = {"left", "left", "right", "right"};
    struct pl_error waited = PL_ERROR_NONE;
    struct pl_named *named = NULL;
    float values[2] = {1, 1};
    struct pl_named_op op = sum_of("left", values, 1);
    enum pl_status status;

    (void)argument;
    RANKS_OK(pl_named_new(world, NULL, &named, &error));
    RANKS_OK(engine_run(named, &op, NULL, &error));
    op.name = names[rank];
    op.shape[0] = rank == 1 ? 2 : 1;
    status = engine_run(named, &op, NULL, &waited);
    if (pl_world_failure(world, NULL) == PL_OK) {
        RANKS_NEED(status == PL_TIMEOUT && strstr(waited.cause, "'left': submitted by ranks 0-1, not by 2-3") &&
                       strstr(waited.cause, "'right': submitted by ranks 2-3, not by 0-1"),
                   "%s", waited.cause);
        op = sum_of("left", values, 1);
        values[0] = 1;
        status = engine_run(named, &op, NULL, &waited);
        RANKS_NEED(status == PL_OK ? values[0] == 4 : pl_world_failure(world, NULL) != PL_OK, "%s, %g", waited.cause,
                   (double)values[0]);
    }
    engine_free(named);
}

TEST(what_never_comes_is_waited_for_until_the_deadline)
{
    struct pl_world_options options = {0};
    char failure[RANKS_TEXT_BYTES];
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, "1", "the test", NULL), PL_OK);
    options.knobs = &knobs;
    ranks_run_on(4, 0, &options, never_met, NULL, failure);
    ck_assert_msg(!failure[0] || strstr(failure, "did not answer before the deadline"), "%s", failure);
}

/* A world's deadline once it is made; making it may take longer where the machine has other work. */
#define SOON_NS PL_NS_PER_S

/* The last rank comes to no round, so that the others' deadline is the world's; it stays until they have failed. */
static void awaited(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), absent = pl_world_size(world) - 1;
    struct pl_error waited = PL_ERROR_NONE;
    struct pl_named *named = NULL;
    float value = 1;
    struct pl_named_op op = sum_of("lost", &value, 1);
    atomic_int *failed = argument;

    RANKS_OK(pl_named_new(world, NULL, &named, &error));
    if (rank == absent) {
        while (atomic_load(failed) < absent) {
            pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
        }
    } else {
        enum pl_status status;

        world->timeout_ns = SOON_NS;
        status = engine_run(named, &op, NULL, &waited);
        atomic_fetch_add(failed, 1);
        RANKS_NEED(status == PL_TIMEOUT &&
                       strstr(waited.context, "agreeing on named tensors: 'lost' is submitted here"),
                   "%s (%s)", waited.cause, waited.context);
    }
    engine_free(named);
}

/*
 * As above, but one round has told who submitted "lost"; the last rank submits something else in it. On a machine that
 * holds that rank up for longer than the deadline, it comes too late for that round, too.
 */
static void awaited_since(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), absent = pl_world_size(world) - 1;
    struct pl_error waited = PL_ERROR_NONE;
    struct pl_named *named = NULL;
    float value = 1, other = 1;
    struct pl_named_op op = sum_of("lost", &value, 1), found = sum_of("found", &other, 1);
    engine_handle lost = NULL;
    atomic_int *failed = argument;
    enum pl_status status;

    RANKS_OK(pl_named_new(world, NULL, &named, &error));
    if (rank != absent) {
        world->timeout_ns = SOON_NS;
        RANKS_OK(engine_submit(named, &op, &lost, &error));
    }
    status = engine_run(named, &found, NULL, &waited);
    if (rank == absent) {
        while (atomic_load(failed) < absent) {
            pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
        }
    } else {
        bool has_met = status == PL_OK;

        status = has_met ? engine_wait(named, lost, NULL, &waited) : status;
        atomic_fetch_add(failed, 1);
        RANKS_NEED(!has_met ||
                       (status == PL_TIMEOUT && strstr(waited.context, "'lost': submitted by ranks 0-1, not by 2")),
                   "%s (%s)", waited.cause, waited.context);
    }
    engine_free(named);
}

TEST(a_deadline_names_a_tensor_and_who_lacks_it)
{
    atomic_int failed = 0;

    ck_assert_ranks(3, NULL, awaited, &failed);
    atomic_store(&failed, 0);
    ck_assert_ranks(3, NULL, awaited_since, &failed);
}

/* K1, K2, C10, D12, E8, F9, F10, G9, G10, N5: what one rank can see alone is refused at the submit, and nothing is
 * queued. */
static void local_body(struct rank *self)
{
    float data[4] = {1, 1, 1, 1}, out[4];
    uint64_t splits[RANKS_MOST] = {9};
    struct pl_named_op op = sum_of("twice", data, 4), bad;
    engine_handle handle, second = NULL;

    ENGINE(NULL);
    expect_ok(engine_submit(named, &op, &handle, &error));
    expect(engine_submit(named, &op, &second, &error) == PL_INVALID &&
               strstr(error.cause, "'twice' is still under way"),
           "%s", error.cause);
    expect_ok(engine_wait(named, handle, NULL, &error));
    expect((int)data[3] == self->size, "%g", (double)data[3]);

    {
        struct pl_named_op pair[] = {sum_of("a", data, 1), sum_of("b", out, 1)};

        expect_ok(engine_submit(named, &(struct pl_named_op){.name = "g.1of2", .kind = PL_BARRIER}, &handle, &error));
        expect(engine_submit_group(named, "g", pair, 2, &second, &error) == PL_INVALID,
               "the second member's name is taken");
        expect_ok(engine_wait(named, handle, NULL, &error));
        expect_ok(engine_submit_group(named, "g", pair, 2, &second, &error));
        expect_ok(engine_wait(named, second, NULL, &error));
    }
    bad = (struct pl_named_op){.name = "bad",
                               .kind = PL_ALLTOALL,
                               .dtype = PL_FLOAT32,
                               .dims = 1,
                               .shape = {4},
                               .splits = splits,
                               .send = data};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "splits"), "%s",
           error.cause);
    bad = (struct pl_named_op){.name = "bad", .kind = PL_ALLGATHER, .dtype = PL_FLOAT32, .send = data};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "needs rows"), "%s",
           error.cause);
    bad = (struct pl_named_op){
        .name = "bad", .kind = PL_BROADCAST, .dtype = PL_FLOAT32, .root = self->size, .recv = data};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "'bad': root") &&
               strstr(error.cause, "is not a rank of this world"),
           "%s", error.cause);
    bad = sum_of("bad", data, 4);
    bad.op = PL_ADASUM;
    bad.dtype = PL_INT32;
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "'bad': adasum takes"),
           "%s", error.cause);
    bad.dtype = PL_FLOAT32;
    bad.kind = PL_REDUCE_SCATTER;
    expect(engine_submit(named, &bad, &handle, &error) == PL_UNSUPPORTED, "%s", error.cause);
    for (int i = 0; i < 8; i++) { /* what would otherwise end the engine when all ranks have agreed on it */
        bad = sum_of("bad", data, 3);
        bad.scaled = i < 3;
        bad.prescale = i == 0 ? (double)NAN : 1;
        bad.postscale = i == 1 ? HUGE_VAL : 1;
        bad.dtype = i == 2 ? PL_BOOL : PL_FLOAT32;
        bad.flags = i == 3 ? PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16 : i == 4 ? 1U << 15 : 0;
        bad.send = i == 5 ? data + 1 : data;
        bad.op = i == 6 ? PL_OP_COUNT : PL_SUM;
        bad.dtype = i == 7 ? PL_DTYPE_COUNT : bad.dtype;
        expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "'bad'"), "%d: %s", i,
               error.cause);
    }
    bad = (struct pl_named_op){.name = "bad",
                               .kind = PL_BROADCAST,
                               .dtype = PL_FLOAT32,
                               .dims = 1,
                               .shape = {3},
                               .root = self->rank,
                               .send = data,
                               .recv = data + 1};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "overlap"), "%s",
           error.cause);
    bad = (struct pl_named_op){.name = "bad", .kind = PL_REDUCE_SCATTER, .dtype = PL_FLOAT32, .send = data};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "needs rows"), "%s",
           error.cause);
    bad = (struct pl_named_op){.name = "bad", .kind = PL_ALLTOALL, .dtype = PL_FLOAT32, .send = data};
    expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "needs rows"), "%s",
           error.cause);
    bad.dims = 1;
    bad.shape[0] = (uint64_t)self->size + 1;
    expect(self->size == 1 ||
               (engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "rows evenly by")),
           "%s", error.cause);
    for (int i = 0; i < 5; i++) {
        char name[PL_NAMED_MAX_NAME_BYTES + 1] = "";

        memset(name, 'n', i == 4 ? PL_NAMED_MAX_NAME_BYTES : (size_t)i);
        bad = sum_of(name, data, 4);
        bad.kind = i == 1 ? PL_REDUCE : PL_ALLREDUCE;
        bad.dims = i == 2 ? PL_NAMED_MAX_DIMS + 1 : 2;
        bad.shape[1] = i == 3 ? UINT64_MAX / 2 : 1;
        expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID, "%d: submitted", i);
        expect(strstr(error.cause, i == 1             ? "'n': reduce is not a named"
                                   : i == 2 || i == 3 ? "at most"
                                                      : "a name has 1 to"),
               "%d: %s", i, error.cause);
    }
    if (self->rank == 0) { /* a name that was not submitted is not used up */
        bad = sum_of(NULL, NULL, 4);
        expect(engine_submit(named, &bad, &handle, &error) == PL_INVALID && strstr(error.cause, "send is NULL"), "%s",
               error.cause);
        expect(engine_submit_group(named, NULL, &bad, 1, &handle, &error) == PL_INVALID, "%s", error.cause);
    }
    op = sum_of(NULL, data, 4);
    expect_ok(engine_run(named, &op, NULL, &error));
    expect_ok(engine_submit_group(named, NULL, &op, 1, &handle, &error));
    expect_ok(engine_wait(named, handle, NULL, &error));
    expect_alive(self, named);
    engine_free(named);
}

TEST(what_one_rank_can_see_is_refused_at_the_submit)
{
    for (int size = 1; size <= 3; size++) {
        ck_assert_bodies(size, local_body, NULL);
    }
}

struct freeing {
    pthread_barrier_t met;
    bool agreed; /* the ranks have met in a round, and the sum is under way */
};

/* An engine that is freed with work under way revokes its world, and the other rank fails. */
static void freeing_body(struct rank *self)
{
    struct freeing *freeing = self->data;
    float value = 1;
    struct pl_named_op op = sum_of("still alive", &value, 1);
    char given_up[PL_ERROR_CAUSE_BYTES];
    engine_handle handle = 0;
    bool done = false;

    ENGINE(NULL);
    expect_alive(self, named);
    if (self->rank == 0 && freeing->agreed) {
        expect_ok(engine_submit(named, &op, &handle, &error));
        engine_flush(named);
    }
    pthread_barrier_wait(&freeing->met);
    if (self->rank == 1) {
        expect_ok(engine_submit(named, &op, &handle, &error));
        engine_flush(named);
        while (freeing->agreed && !named->first_running && !done) {
            done = engine_poll(named, handle);
        }
        expect((freeing->agreed ? !!named->first_running : !!named->round.request) && !done, "nothing is under way");
        engine_free(named);
        expect(pl_barrier(self->world, &error) == PL_CANCELLED, "%s", error.cause);
    }
    pthread_barrier_wait(&freeing->met);
    if (self->rank == 0) {
        if (!freeing->agreed) {
            expect_ok(engine_submit(named, &op, &handle, &error));
        }
        (void)!engine_wait(named, handle, NULL, &error); /* what rank 1 had sent before may be enough for the sum */
        expect(pl_barrier(self->world, &error) == PL_PEER &&
                   strstr(error.cause, ranks_given_up(self->world, 1, "", given_up)),
               "%s", error.cause);
        engine_free(named);
    }
}

TEST(an_engine_that_is_freed_with_work_under_way_gives_its_world_up)
{
    for (int agreed = 0; agreed < 2; agreed++) {
        struct freeing freeing = {.agreed = agreed};

        pthread_barrier_init(&freeing.met, NULL, 2);
        ck_assert_bodies(2, freeing_body, &freeing);
        pthread_barrier_destroy(&freeing.met);
    }
}

/* The last rank finds no memory at one request after another: its buffers stay as they are, the first rank hears it. */
struct shortage {
    int refused_after;
    bool refused;
    char cause[PL_ERROR_CAUSE_BYTES]; /* of the failure of the last rank's engine; "" if it has not failed */
    atomic_bool known, told;          /* the cause is there; the first rank has ended */
};

static void short_body(struct rank *self)
{
    enum { ELEMS = 1000 };
    struct shortage *shortage = self->data;
    bool last = self->rank == self->size - 1;
    float *data = pl_memory_new(ELEMS, sizeof(*data), NULL);
    struct pl_named_op op = sum_of("gradient", data, ELEMS);
    enum pl_status status;

    ENGINE(NULL);
    for (int i = 0; i < ELEMS; i++) {
        data[i] = 1;
    }
    refuse_growth_after = last ? shortage->refused_after : -1;
    status = engine_run(named, &op, NULL, &error);
    if (last) {
        shortage->refused = refuse_growth_after < 0;
        refuse_growth_after = -1;
        expect(status == (shortage->refused ? PL_MEMORY : PL_OK), "refused_after %d: %s", shortage->refused_after,
               error.cause);
        snprintf(shortage->cause, sizeof(shortage->cause), "%s", named->failure.cause);
        atomic_store(&shortage->known, true);
        while (self->size > 1 && *shortage->cause && !atomic_load(&shortage->told)) {
            sched_yield();
        }
    } else {
        while (!atomic_load(&shortage->known)) {
            sched_yield();
        }
        if (status == PL_OK && *shortage->cause) { /* this rank had all data before the last one failed */
            status = engine_run(named, &op, NULL, &error);
        }
        expect(strstr(error.cause, shortage->cause), "refused_after %d: %s", shortage->refused_after, error.cause);
        atomic_store(&shortage->told, true);
    }
    engine_free(named);
    for (int i = 0; i < ELEMS; i++) {
        data[i] = 7;
    }
    (void)!pl_barrier(self->world, NULL); /* would bring on what is still under way */
    for (int i = 0; i < ELEMS; i++) {
        expect((int)data[i] == 7, "refused_after %d: element %d is %g", shortage->refused_after, i, (double)data[i]);
    }
    free(data);
}

TEST(an_engine_that_lacks_memory_fails_and_keeps_no_buffer)
{
    for (int size = 1; size <= 2; size++) {
        struct shortage shortage = {.refused = true};

        for (int after = 0; shortage.refused; after++) {
            shortage = (struct shortage){.refused_after = after};
            ck_assert_bodies(size, short_body, &shortage);
        }
    }
}

UNIT_MAIN("runtime/named_faults")
