/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/service.c, runtime/named/service_step.c,
 * runtime/named/service_sets.c, runtime/named/rounds.c, runtime/named/table.c, runtime/named/named.c,
 * runtime/named/operation.c, runtime/named/describe.c. */
/*
 * All ranks with all their threads in one thread, on a virtual world and a virtual clock: a seed draws what they
 * submit, in which orders, who is late, differs, leaves, dies or has no memory, and whose turn it is. A model says how
 * every operation ends. PACELINE_TEST_SEED and PACELINE_TEST_WORLDS say which seeds run, and how many.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world.h"
#include "runtime/service.h"
#include "tests/fakes/virtual_threads.h"
#include "tests/fakes/virtual_world.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/named/simulation_model.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- what a rank does ---- */

static void called(struct pl_completion *completion)
{
    struct one *one = PL_CONTAINER_OF(completion, struct one, completion);

    one->called = true;
    virtual_wake(one);
}

static void change(struct pl_named_op *op)
{
    switch (op->kind == PL_BARRIER ? 3 : all.changed) {
    case 0:
        op->shape[1] = 7;
        op->dims = 2;
        break;
    case 1:
        op->dtype = PL_UINT8;
        break;
    case 2:
        op->scaled = true;
        op->prescale = op->postscale = 3;
        op->kind = PL_ALLREDUCE;
        break;
    default:
        op->kind = op->kind == PL_ALLREDUCE ? PL_BROADCAST : PL_ALLREDUCE;
        op->send = op->recv;
        break;
    }
}

static void fill(const struct program *p, const struct plan *plan, int phase, int slot, struct one *one)
{
    int place = place_of(plan, p->rank);

    memset(one, 0, sizeof(*one));
    for (int i = 0; i < plan->count; i++) {
        struct pl_named_op *op = &one->ops[i];
        uint64_t elems = plan->rows[i];

        *op = (struct pl_named_op){.name = plan->numbered ? NULL : plan->name,
                                   .kind = plan->kinds[i],
                                   .dtype = PL_INT32,
                                   .op = plan->ops[i],
                                   .root = plan->root,
                                   .scaled = is_scaled(plan, i),
                                   .prescale = PRESCALE,
                                   .postscale = POSTSCALE,
                                   .dims = 1,
                                   .shape = {plan->rows[i]},
                                   .send = one->send[i],
                                   .recv = one->recv[i]};
        if (op->kind == PL_ALLGATHER) {
            elems = op->shape[0] = rows_of(plan, place);
        } else if (op->kind == PL_ALLTOALL) {
            op->splits = one->splits[i];
            op->shape[0] = 0;
            for (int to = 0; to < size_of(plan); to++) {
                one->splits[i][to] = rows_between(plan, place, to);
                op->shape[0] += one->splits[i][to];
            }
            elems = op->shape[0];
        } else if (op->kind == PL_BROADCAST && place != plan->root) {
            op->send = NULL;
        } else if (op->kind == PL_ALLREDUCE && plan->salt % 2) {
            op->send = op->recv; /* in place */
        }
        if (op->kind == PL_ALLREDUCE && elems % 2 == 0) {
            op->dims = 2;
            op->shape[0] = 2;
            op->shape[1] = elems / 2;
        }
        for (uint64_t k = 0; k < elems; k++) {
            one->send[i][k] = one->recv[i][k] = given(plan, i, place, k);
        }
        if (is_differing(phase, slot) && i == plan->count - 1 && p->rank == all.who) {
            change(op);
        }
    }
    one->completion.results = one->results;
}

static enum pl_status submit_it(struct program *p, const struct plan *plan, struct one *one,
                                struct pl_completion *completion, struct pl_error *reterr)
{
    int set = plan->set ? p->set : 0;

    if (plan->grouped) {
        return pl_service_submit_group(p->service, set, plan->numbered ? NULL : plan->name, one->ops,
                                       (size_t)plan->count, completion, reterr);
    }
    return pl_service_submit(p->service, set, one->ops, completion, reterr);
}

/* Makes this rank's trouble, if it comes here; returns false if the rank leaves. */
static bool make_trouble(struct program *p, int phase, int slot)
{
    struct pl_error why = PL_ERROR_NONE;

    if (p->rank != all.who || all.phase != phase || all.slot != slot) {
        return true;
    }
    switch (all.trouble) {
    case LEAVE:
        return false;
    case DEATH:
        virtual_world_kill(p->world);
        return false;
    case ABORT:
        pl_error_set(&why, PL_CANCELLED, "enough of it");
        pl_service_abort(p->service, &why);
        p->has_aborted = true;
        for (int other = 0; other < SLOTS; other++) {
            virtual_wake(&p->ones[other]);
        }
        return false;
    case NO_MEMORY:
        virtual_refuse_memory((int)draw(&p->own, 24));
        return true;
    default:
        return true;
    }
}

/* Submits `slot`, and now and then the same name again, which is refused as long as the first has not ended. */
static void submit(struct program *p, int phase, int slot)
{
    const struct plan *plan = &all.plans[phase][slot];
    struct outcome *outcome = &all.outcomes[p->rank][phase][slot];
    struct one *one = &p->ones[slot];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_completion second = {0};
    enum pl_status status;

    p->leaves = !make_trouble(p, phase, slot) || p->leaves;
    if (p->leaves || !takes_part(plan, phase, p->rank) || (plan->set && p->set < 0)) {
        return;
    }
    fill(p, plan, phase, slot, one);
    one->completion.call = draw(&p->own, 3) == 0 ? called : NULL;
    virtual_hold(true);
    status = submit_it(p, plan, one, &one->completion, &error);
    if (status == PL_OK && !one->completion.done && !plan->numbered && !p->has_helper && draw(&p->own, 8) == 0 &&
        (submit_it(p, plan, one, &second, &error) == PL_OK ||
         (all.trouble < LEAVE && !strstr(error.cause, "is still under way")))) {
        virtual_fail("'%s' was taken twice, or refused for another reason: %.200s", plan->name, error.cause);
    }
    virtual_hold(false);
    if (status == PL_OK) {
        outcome->submitted = one->is_under_way = true;
        return;
    }
    p->leaves = true;
    if (all.trouble < LEAVE) {
        virtual_fail("'%s' was refused: %.200s", plan->name, error.cause);
    }
}

static void wait_for(struct program *p, int phase, int slot)
{
    struct outcome *outcome = &all.outcomes[p->rank][phase][slot];
    struct one *one = &p->ones[slot];
    uint64_t how = draw(&p->own, 3);

    if (!one->is_under_way || (one->completion.call && p->has_aborted)) {
        return;
    }
    one->is_under_way = false;
    if (one->completion.call) {
        while (!one->called && !p->has_aborted) {
            virtual_wait(one, PL_DEADLINE_NEVER);
        }
        if (!one->called) {
            one->is_under_way = true;
            return;
        }
        outcome->status = one->completion.status;
    } else {
        while (how == 0 && !p->has_aborted && !pl_service_poll(p->service, &one->completion)) {
            virtual_dawdle(PL_NS_PER_MS);
        }
        outcome->status = pl_service_wait(p->service, &one->completion, NULL);
    }
    if (outcome->status == PL_OK) {
        check_values(p, &all.plans[phase][slot], phase, one);
    } else {
        snprintf(outcome->text, sizeof(outcome->text), "%.*s", TEXT_BYTES - 1, one->completion.error.cause);
        if (outcome->status == PL_MISMATCH) {
            check_untouched(p, &all.plans[phase][slot], one);
        }
        p->leaves = p->leaves || all.trouble >= LEAVE;
    }
    for (int i = 0; i < MEMBERS; i++) {
        pl_named_result_done(&one->results[i]);
    }
}

/* Submits, or waits for, what this thread of the rank has to, in an order of its own. */
static void take_slots(struct program *p, int phase, bool helper, bool waits)
{
    int order[SLOTS], count = 0;

    for (int slot = 0; slot < SLOTS; slot++) {
        if ((p->has_helper && slot % 2 == 1) == helper) {
            int place = (int)draw(&p->own, (uint64_t)count + 1);

            order[count] = order[place];
            order[place] = slot;
            count++;
        }
    }
    for (int i = 0; i < count; i++) {
        if (draw(&p->own, 3) == 0) {
            virtual_dawdle(draw(&p->own, 8) ? 100 * PL_NS_PER_US : 5 * PL_NS_PER_MS);
        }
        if (waits) {
            wait_for(p, phase, order[i]);
        } else {
            submit(p, phase, order[i]);
        }
    }
}

static void help(void *program_at)
{
    struct program *p = program_at;

    for (int phase = 0; phase < PHASES; phase++) {
        while (p->begun <= phase) {
            virtual_wait(&p->begun, PL_DEADLINE_NEVER);
        }
        take_slots(p, phase, true, false);
        take_slots(p, phase, true, true);
        p->ended++;
        virtual_wake(&p->ended);
    }
}

/* Adds or removes the other set, and tries now and then what is refused. */
static void change_sets(struct program *p, int phase)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = PL_OK;
    const int twice[] = {0, 0};
    int none;

    if (all.adds[phase] && p->set < 0 && !p->leaves) {
        if (all.plans[phase][0].salt % 4 == 0 && pl_service_add_set(p->service, twice, 2, &none, &error) == PL_OK) {
            virtual_fail("a rank is twice in a set");
        }
        status = pl_service_add_set(p->service, all.members, all.member_count, &p->set, &error);
    } else if (all.removes[phase] && p->set > 0 && !p->leaves) {
        status = pl_service_remove_set(p->service, p->set, &error);
        p->set = status == PL_OK ? -1 : p->set;
    }
    if (status != PL_OK && all.trouble < LEAVE) {
        virtual_fail("phase %d: the sets: %s: %.200s", phase, pl_status_name(status), error.cause);
    }
    p->leaves = p->leaves || status != PL_OK;
}

static void join_all(struct program *p, int phase)
{
    struct pl_completion completion = {0}, second = {0};
    const struct pl_named_op barrier = {.kind = PL_BARRIER};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if (!all.joins[phase] || p->leaves) {
        return;
    }
    virtual_hold(true);
    status = pl_service_submit_join(p->service, &completion, &error);
    if (pl_service_submit_join(p->service, &second, NULL) == PL_OK ||
        pl_service_submit(p->service, 0, &barrier, &second, NULL) == PL_OK) {
        virtual_fail("phase %d: a rank that has joined goes on", phase);
    }
    virtual_hold(false);
    if (status != PL_OK || pl_service_wait(p->service, &completion, &error) != PL_OK) {
        virtual_fail("phase %d: a join: %.200s", phase, error.cause);
    }
    if (all.last_joined[phase] != completion.last_joined_rank && all.last_joined[phase] >= 0) {
        virtual_fail("phase %d: the last joined ranks differ: %d, %d", phase, all.last_joined[phase],
                     completion.last_joined_rank);
    }
    all.last_joined[phase] = completion.last_joined_rank;
}

static void run_phase(struct program *p, int phase)
{
    /* a rank may join while what it has submitted is under way */
    bool joins_first = all.joined[phase] >> p->rank & 1 || (!p->has_helper && draw(&p->own, 4) == 0);

    if (!all.in_between[phase]) {
        change_sets(p, phase);
    }
    p->begun++;
    virtual_wake(&p->begun);
    take_slots(p, phase, false, false);
    if (all.in_between[phase]) {
        change_sets(p, phase);
    }
    if (joins_first) {
        join_all(p, phase);
    }
    take_slots(p, phase, false, true);
    while (p->has_helper && p->ended <= phase) {
        virtual_wait(&p->ended, PL_DEADLINE_NEVER);
    }
    if (!joins_first) {
        join_all(p, phase);
    }
}

static void run_rank(void *program_at)
{
    struct program *p = program_at;
    struct pl_named_options options = all.options;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    virtual_dawdle(PL_NS_PER_MS);
    options.start_bytes = p->rank % 2 ? 64 : 0;
    status = pl_service_new(p->world, &options, &p->service, &error);
    if (status != PL_OK) {
        virtual_fail("the service: %s", error.cause);
    }
    if (p->has_helper) {
        virtual_spawn(p->rank, help, p);
    }
    for (int phase = 0; phase < PHASES; phase++) {
        run_phase(p, phase);
    }
    status = pl_service_shutdown(p->service, &error);
    if (status != PL_OK && all.trouble <= LEAVE) {
        virtual_fail("the shutdown: %.300s", error.cause);
    }
    pl_service_free(p->service);
    for (int slot = 0; slot < SLOTS; slot++) {
        if (p->ones[slot].is_under_way && !p->ones[slot].called) {
            virtual_fail("a submission was not called back in the end");
        }
    }
    pl_world_free(p->world);
    if (++all.ended == all.size) {
        check_outcomes();
    }
}

static bool simulate(uint64_t seed)
{
    struct pl_world *worlds[MOST_RANKS];

    draw_all(seed);
    virtual_begin(seed);
    virtual_world_new(all.size, worlds);
    for (int rank = 0; rank < all.size; rank++) {
        struct program *p = &all.programs[rank];

        *p = (struct program){.rank = rank, .own = seed * 64 + (uint64_t)rank + 1, .world = worlds[rank], .set = -1};
        p->has_helper = draw(&p->own, 3) == 0;
        virtual_spawn(rank, run_rank, p);
    }
    for (int phase = 0; phase < PHASES; phase++) {
        all.last_joined[phase] = -1;
    }
    return virtual_run();
}

TEST(every_operation_ends_as_the_model_says)
{
    const char *seed_text = getenv("PACELINE_TEST_SEED"), *count_text = getenv("PACELINE_TEST_WORLDS");
    uint64_t first = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    uint64_t count = count_text ? strtoull(count_text, NULL, 0) : 2000;

    for (uint64_t seed = first; seed < first + count; seed++) {
        ck_assert_msg(simulate(seed), "PACELINE_TEST_SEED=%" PRIu64 " PACELINE_TEST_WORLDS=1: %s", seed,
                      virtual_failure());
    }
    printf("seeds %" PRIu64 " to %" PRIu64 "\n", first, first + count - 1);
}

UNIT_MAIN("runtime/simulation")
