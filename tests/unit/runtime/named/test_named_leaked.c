/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Covers collectives/core/request.c, runtime/compare_lines.c, runtime/gradient/plan_seal.c,
 * runtime/gradient/optimizer.c, runtime/named/operation.c, runtime/named/service_step.c.
 */
/* Messages that cannot be cancelled, as in MPI: their buffers are leaked, and stay as they are until the process ends.
 */
#include "base/knob.h"
#include "collectives/core/backend.h"
#include "collectives/hier/state.h"
#include "collectives/p2p/state.h"
#include "collectives/world_private.h"
#include "runtime/compare_lines.h"
#include "runtime/named/service_private.h"
#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "tests/unit/runtime/named/blocking.h"
#include "tests/unit/runtime/ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { ELEMS = 50000, LINES = 5000, HELD_MOST = 64, HELD_BYTE = 0x77 };

enum { WORD_DATA, WORD_BYTES, WORD_TAG = 3 }; /* of a held transfer; a receive has them from bootstrap_threads.c */

/* Rank 0's messages of slots are held: they do not end, and cancelling them fails. */
static struct {
    struct pl_transport *transport;
    struct pl_transport real;
    struct pl_p2p *p2p;
    size_t least_bytes;
    bool fails; /* at the first look */
    atomic_bool any;
    struct {
        unsigned char *data;
        size_t bytes;
    } messages[HELD_MOST];
    size_t count;
    void *slots[2 * PL_P2P_SLOTS]; /* where the leak checker finds what nobody frees, as here: */
    void *kept[2];
} held;

static bool is_held(const struct pl_transfer *transfer)
{
    uintptr_t tag = transfer->scratch[WORD_TAG];

    return tag >= PL_TAG_P2P && (tag - PL_TAG_P2P) % PL_CHECK_CALLS_TAGS != PL_CHECK_CALLS_TAGS - 1 &&
           transfer->scratch[WORD_BYTES] >= held.least_bytes;
}

static enum pl_status hold_send(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                struct pl_transfer *transfer, struct pl_error *reterr)
{
    struct pl_transfer wanted = {.active = true,
                                 .scratch = {[WORD_DATA] = (uintptr_t)data, [WORD_BYTES] = bytes, [WORD_TAG] = tag}};

    PL_TRY(held.real.send(context, data, bytes, peer, tag, transfer, reterr));
    if (is_held(&wanted)) {
        *transfer = wanted;
    }
    return PL_OK;
}

static enum pl_status hold_test(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                struct pl_error *reterr)
{
    if (!is_held(transfer)) {
        return held.real.test(context, transfer, ret_done, ret_bytes, reterr);
    }
    *ret_done = false;
    atomic_store(&held.any, true);
    return held.fails ? pl_error_set(reterr, PL_LIBRARY, "the wire broke") : PL_OK;
}

static bool hold_cancel(void *context, struct pl_transfer *transfer)
{
    if (!is_held(transfer)) {
        return held.real.cancel(context, transfer);
    }
    if (!held.transport->leaked) {
        for (int i = 0; i < PL_P2P_SLOTS; i++) {
            held.slots[2 * i] = held.p2p->slots[i].recv_buffer;
            held.slots[2 * i + 1] = held.p2p->slots[i].accumulator;
        }
    }
    transfer->active = false;
    held.transport->leaked = true;
    held.messages[held.count].data = (unsigned char *)transfer->scratch[WORD_DATA];
    held.messages[held.count].bytes = transfer->scratch[WORD_BYTES];
    memset(held.messages[held.count].data, HELD_BYTE, held.messages[held.count].bytes);
    held.count++;
    ck_assert_uint_lt(held.count, HELD_MOST);
    return false;
}

static struct pl_world *between_of(struct pl_world *world)
{
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].on && world->backends[i].backend == &pl_backend_hier) {
            return ((struct pl_hier *)world->backends[i].state)->between;
        }
    }
    return world;
}

/* From now on, in rank 0: the messages between hosts from `least_bytes` on. */
static void hold(struct pl_world *world, size_t least_bytes)
{
    struct pl_world *between = between_of(world);

    for (int i = 0; i < between->backend_count; i++) {
        if (between->backends[i].on && between->backends[i].backend == &pl_backend_p2p) {
            held.p2p = between->backends[i].state;
        }
    }
    ck_assert_ptr_nonnull(held.p2p);
    held.transport = pl_world_bootstrap(between)->transport;
    held.real = *held.transport;
    held.least_bytes = least_bytes;
    held.transport->send = hold_send;
    held.transport->test = hold_test;
    held.transport->cancel = hold_cancel;
}

/* When rank 0's world has ended. */
static void check_held(void)
{
    ck_assert_uint_ge(held.count, 1);
    for (size_t i = 0; i < held.count; i++) {
        for (size_t at = 0; at < held.messages[i].bytes; at++) {
            ck_assert_msg(held.messages[i].data[at] == HELD_BYTE, "byte %zu of message %zu of %zu is in use again", at,
                          i, held.count);
        }
    }
}

static void run(int size, int ranks_per_host, ranks_body *body)
{
    struct pl_knobs knobs;

    held.count = 0;
    held.fails = false;
    atomic_store(&held.any, false);
    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_ALGORITHM, "ring", "test", NULL), PL_OK);
    ranks_run_with(size, &(struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = ranks_per_host}, body,
                   NULL);
    check_held();
}

static struct pl_plan *sealed_plan(struct pl_world *world)
{
    const uint64_t elems = ELEMS;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_plan *plan = NULL;
    size_t index;

    ck_assert_ok(pl_plan_new(world, NULL, &plan, &error), &error);
    ck_assert_ok(pl_plan_add(plan, "weights", 1, &elems, &index, &error), &error);
    ck_assert_ok(pl_plan_seal(plan, &error), &error);
    if (pl_world_rank(world) == 0) {
        held.kept[0] = pl_plan_values(plan);
        held.kept[1] = pl_plan_gradients(plan);
    }
    return plan;
}

/* A rank may receive the other's failure first: rank 1 gives up as soon as rank 0 holds a message. */
static void check_begun(enum pl_status status, const struct pl_error *error)
{
    if (status != PL_PEER) {
        ck_assert_ok(status, error);
    }
}

static void leaves_gradients(struct pl_world *world, void *context)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_plan *plan = sealed_plan(world);

    (void)context;
    if (pl_world_rank(world) == 0) {
        hold(world, 1);
    }
    check_begun(pl_plan_ready(plan, 0, &error), &error);
    while (!atomic_load(&held.any)) {
        (void)!pl_plan_progress(plan, NULL);
        sched_yield();
    }
    pl_plan_free(plan); /* in the middle of the sum */
}

TEST(gradients_that_a_message_may_still_use_are_not_freed)
{
    run(2, 1, leaves_gradients);
}

TEST(gradients_that_ranks_share_and_a_message_may_still_use_are_not_freed)
{
    run(4, 2, leaves_gradients);
}

static void leaves_values(struct pl_world *world, void *context)
{
    struct pl_plan *plan = sealed_plan(world);
    enum pl_status status;

    (void)context;
    if (pl_world_rank(world) == 0) {
        held.fails = true;
        hold(world, 1);
    }
    status = pl_plan_broadcast(plan, 1, NULL);
    ck_assert_int_eq(status, pl_world_rank(world) == 0 ? PL_LIBRARY : PL_OK);
    pl_plan_free(plan);
}

TEST(values_that_a_message_may_still_use_are_not_freed)
{
    run(2, 1, leaves_values);
}

static void leaves_state(struct pl_world *world, void *context)
{
    struct pl_plan *plan = sealed_plan(world);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_optimizer *optimizer = NULL;
    enum pl_status status;

    (void)context;
    ck_assert_ok(pl_optimizer_new(plan, &(struct pl_optimizer_options){.kind = PL_SGD}, &optimizer, &error), &error);
    if (pl_world_rank(world) == 0) {
        held.fails = true;
        hold(world, 1);
    }
    status = pl_optimizer_broadcast(optimizer, 1, NULL);
    ck_assert_int_eq(status, pl_world_rank(world) == 0 ? PL_LIBRARY : PL_OK);
    pl_optimizer_free(optimizer);
    pl_plan_free(plan);
}

TEST(an_optimizers_state_that_a_message_may_still_use_is_not_freed)
{
    run(2, 1, leaves_state);
}

static void leave_gather(struct pl_world *world, size_t least_bytes)
{
    static const float data[2][ELEMS];
    const struct pl_named_op op = {.name = "rows",
                                   .kind = PL_ALLGATHER,
                                   .dtype = PL_FLOAT32,
                                   .dims = 1,
                                   .shape = {ELEMS},
                                   .send = data[pl_world_rank(world)]};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_named *named = NULL;
    engine_handle handle = NULL;

    ck_assert_ok(pl_named_new(world, NULL, &named, &error), &error);
    if (pl_world_rank(world) == 0) {
        held.kept[0] = named;
        hold(world, least_bytes);
    }
    check_begun(engine_submit(named, &op, &handle, &error), &error);
    while (!atomic_load(&held.any)) {
        pl_named_progress(named, false, NULL);
        sched_yield();
    }
    engine_free(named);
}

static void leaves_result(struct pl_world *world, void *context)
{
    (void)context;
    leave_gather(world, 10000);
}

TEST(results_that_a_message_may_still_come_to_are_not_freed)
{
    run(2, 1, leaves_result);
}

static void leaves_round(struct pl_world *world, void *context)
{
    (void)context;
    leave_gather(world, 1);
}

TEST(what_named_tensors_tell_each_other_is_not_freed_while_a_message_may_still_use_it)
{
    run(2, 1, leaves_round);
}

static void leaves_submitted(struct pl_world *world, void *context)
{
    float *data = calloc(ELEMS, sizeof(*data));
    const struct pl_named_op op = {.name = "variables",
                                   .kind = PL_BROADCAST,
                                   .dtype = PL_FLOAT32,
                                   .dims = 1,
                                   .shape = {ELEMS},
                                   .send = data,
                                   .recv = data,
                                   .root = 1};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_completion completion = {0};
    struct pl_service *service = NULL;
    bool held_back = pl_world_rank(world) == 0;

    (void)context;
    ck_assert_ptr_nonnull(data);
    if (held_back) {
        held.fails = true;
        hold(world, 10000);
    }
    ck_assert_ok(pl_service_new(world, NULL, &service, &error), &error);
    check_begun(pl_service_submit(service, 0, &op, &completion, &error), &error);
    if (pl_service_wait(service, &completion, &error) != PL_LIBRARY) {
        ck_assert_msg(!held_back, "%s", error.cause);
    }
    ck_assert_int_eq(completion.has_leaked, held_back);
    if (held_back) {
        held.kept[0] = service->all;
        held.kept[1] = data;
    }
    free(completion.has_leaked ? NULL : data);
    pl_service_free(service);
}

TEST(whoever_submitted_is_told_that_a_message_may_still_use_its_memory)
{
    run(2, 1, leaves_submitted);
}

static void leaves_adasum(struct pl_world *world, void *context)
{
    static float data[2][ELEMS];
    const int rank = pl_world_rank(world);
    const struct pl_collective adasum = {.kind = PL_ALLREDUCE,
                                         .dtype = PL_FLOAT32,
                                         .op = PL_ADASUM,
                                         .count = ELEMS,
                                         .send = data[rank],
                                         .recv = data[rank]};
    struct pl_request *request = NULL;
    bool done;

    (void)context;
    if (rank == 0) {
        hold(world, 10000);
    }
    if (pl_collective_post(world, &adasum, &request, NULL) != PL_OK) {
        ck_assert_int_eq(rank, 1);
        return;
    }
    while (!atomic_load(&held.any)) {
        (void)!pl_request_test(request, &done, NULL);
        sched_yield();
    }
    if (rank == 0) {
        held.kept[0] = world->scratch;
    }
    pl_request_cancel(request);
}

TEST(an_adasums_scratch_that_a_message_may_still_come_to_is_not_freed)
{
    run(2, 1, leaves_adasum);
}

static void leaves_lines(struct pl_world *world, void *context)
{
    const struct pl_error none = PL_ERROR_NONE;
    const char *lines[LINES];
    enum pl_status status;

    (void)context;
    for (size_t i = 0; i < LINES; i++) {
        lines[i] = pl_world_rank(world) == 0 ? "here" : "there";
    }
    if (pl_world_rank(world) == 0) {
        held.fails = true;
        hold(world, LINES);
    }
    status = pl_compare_lines(world, "lines", &none, lines, LINES, NULL);
    ck_assert_int_ne(status, PL_OK);
}

TEST(lines_that_a_message_may_still_come_to_are_not_freed)
{
    run(2, 1, leaves_lines);
}

UNIT_MAIN("runtime/named_leaked")
