/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/service.c, runtime/named/service_names.c, runtime/named/service_step.c,
 * runtime/named/service_sets.c, runtime/named/rounds.c, runtime/named/table.c, runtime/named/named.c,
 * runtime/named/operation.c, runtime/named/run.c. */
/*
 * All ranks with all their threads in one thread, on a virtual world and a virtual clock: a seed draws what they
 * submit, in which orders, who is late, differs, leaves, dies or has no memory, and whose turn it is. A model says how
 * every operation ends. PACELINE_TEST_SEED and PACELINE_TEST_WORLDS say which seeds run, and how many.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "collectives/world.h"
#include "runtime/service.h"
#include "tests/fakes/virtual_threads.h"
#include "tests/fakes/virtual_world.h"
#include "tests/support/unit.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    MOST_RANKS = 4,
    PHASES = 4,
    SLOTS = 5, /* submissions of a phase */
    MEMBERS = 3,
    MOST_ROWS = 6,
    MOST_ELEMS = 64,
    TEXT_BYTES = 300,
};

enum trouble {
    NONE,
    DIFFERENCE, /* one rank submits something else under one name */
    STRANGERS,  /* of two names one rank never submits the first and another one never the second, until all expire */
    LEAVE,      /* a rank shuts down before one of its submissions */
    DEATH,
    ABORT,
    NO_MEMORY,
    TROUBLES,
};

/* A submission of a phase, as all ranks know it: one operation, or a group. */
struct plan {
    char name[24];
    bool numbered, grouped;
    int set; /* 0, or 1: the other set of the phase */
    int count;
    enum pl_kind kinds[MEMBERS];
    enum pl_op ops[MEMBERS];
    uint64_t rows[MEMBERS];
    int root;
    uint64_t salt;
};

/* How a submission ended on a rank. */
struct outcome {
    bool submitted;
    enum pl_status status;
    char text[TEXT_BYTES];
};

struct one {
    struct pl_completion completion;
    struct pl_named_op ops[MEMBERS];
    struct pl_named_result results[MEMBERS];
    uint64_t splits[MEMBERS][MOST_RANKS];
    int32_t send[MEMBERS][MOST_ELEMS], recv[MEMBERS][MOST_ELEMS];
    bool called, is_under_way;
};

/* One rank's program. */
struct program {
    int rank;
    uint64_t own; /* draws that only this rank makes */
    struct pl_world *world;
    struct pl_service *service;
    int set; /* the number of the other set, -1: there is none */
    bool leaves, has_helper;
    bool has_aborted; /* nobody calls back any more before the service is freed */
    int begun, ended; /* phases that the helper may begin, and has ended */
    struct one ones[SLOTS];
};

static struct {
    uint64_t seed;
    int size;
    enum trouble trouble;
    int who, other; /* the ranks that make it */
    int phase, slot, second;
    int changed; /* DIFFERENCE: which property */
    bool joins[PHASES];
    bool adds[PHASES], removes[PHASES]; /* the other set, at the beginning of the phase, or with `in_between` */
    bool in_between[PHASES];            /* after the submissions of the phase */
    bool usable[PHASES];                /* the submissions may use the other set */
    uint64_t joined[PHASES];            /* one bit a rank that joins in place of its submissions */
    int members[MOST_RANKS], member_count;
    struct plan plans[PHASES][SLOTS];
    struct outcome outcomes[MOST_RANKS][PHASES][SLOTS];
    int last_joined[PHASES];
    int ended; /* ranks */
    struct program programs[MOST_RANKS];
} all;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    return pl_random_next(state) % below;
}

/* ---- what all ranks know ---- */

static void draw_plan(uint64_t *state, int phase, int slot)
{
    static const enum pl_kind kinds[] = {PL_ALLREDUCE, PL_ALLREDUCE,      PL_ALLREDUCE, PL_ALLGATHER,
                                         PL_ALLTOALL,  PL_REDUCE_SCATTER, PL_BROADCAST, PL_BARRIER};
    static const enum pl_op ops[] = {PL_SUM, PL_MAX, PL_MIN, PL_AVERAGE};
    struct plan *plan = &all.plans[phase][slot];

    if (phase > 0 && slot > 0 && draw(state, 2) && !all.plans[phase - 1][slot].numbered) {
        *plan = all.plans[phase - 1][slot]; /* a name that is known */
        plan->salt += 17;
    } else {
        plan->numbered = slot == 0 && draw(state, 2);
        plan->grouped = draw(state, 4) == 0;
        plan->count = plan->grouped ? 1 + (int)draw(state, MEMBERS) : 1;
        plan->salt = draw(state, 1000);
        snprintf(plan->name, sizeof(plan->name), "%s%d", draw(state, 2) ? "w" : "a longer name ", slot);
        for (int i = 0; i < plan->count; i++) {
            plan->kinds[i] = kinds[draw(state, PL_ARRAY_ITEMS(kinds))];
            plan->ops[i] = ops[draw(state, PL_ARRAY_ITEMS(ops))];
            plan->rows[i] = 1 + draw(state, MOST_ROWS);
        }
    }
    plan->set = all.usable[phase] && draw(state, 2);
    plan->root = (int)draw(state, (uint64_t)(plan->set ? all.member_count : all.size));
}

static void draw_all(uint64_t seed)
{
    uint64_t state = seed;
    bool has_set = false;

    memset(&all, 0, sizeof(all));
    all.seed = seed;
    all.size = 1 + (int)draw(&state, MOST_RANKS);
    all.trouble = draw(&state, 2) ? NONE : (enum trouble)draw(&state, TROUBLES);
    all.trouble = all.size == 1 && all.trouble != ABORT ? NONE : all.trouble;
    all.who = (int)draw(&state, (uint64_t)all.size);
    all.other = (all.who + 1) % all.size;
    all.phase = (int)draw(&state, PHASES);
    all.slot = (int)draw(&state, SLOTS);
    all.second = (all.slot + 1) % SLOTS;
    all.changed = (int)draw(&state, 4);
    for (int r = 0; r < all.size; r++) {
        int place = (int)draw(&state, (uint64_t)r + 1);

        all.members[r] = all.members[place];
        all.members[place] = r;
    }
    all.member_count = 1 + (int)draw(&state, (uint64_t)all.size);
    if (all.member_count == all.size && all.size > 1) { /* the whole world in its order is set 0 already */
        bool is_whole = true;

        for (int r = 0; r < all.size; r++) {
            is_whole = is_whole && all.members[r] == r;
        }
        all.member_count -= is_whole;
    }
    for (int phase = 0; phase < PHASES; phase++) {
        bool changes = all.size > 1 && draw(&state, 3) == 0;

        all.adds[phase] = changes && !has_set;
        all.removes[phase] = changes && has_set;
        all.in_between[phase] = draw(&state, 2);
        all.usable[phase] = has_set ? !changes : changes && !all.in_between[phase];
        has_set = has_set != changes;
        all.joins[phase] = all.trouble == NONE && draw(&state, 4) == 0;
        all.joined[phase] = all.joins[phase] ? draw(&state, UINT64_C(1) << all.size) : 0;
        if (all.joined[phase] == (UINT64_C(1) << all.size) - 1) {
            all.joined[phase] = 0;
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            draw_plan(&state, phase, slot);
        }
    }
    if (all.trouble == STRANGERS || all.trouble == DIFFERENCE) {
        all.plans[all.phase][all.slot].set = all.plans[all.phase][all.second].set = 0;
        all.plans[all.phase][all.slot].numbered = all.plans[all.phase][all.second].numbered = false;
    }
}

static int size_of(const struct plan *plan)
{
    return plan->set ? all.member_count : all.size;
}

/* This rank's number in the plan's set; -1: it is no member. */
static int place_of(const struct plan *plan, int rank)
{
    int place = plan->set ? -1 : rank;

    for (int i = 0; plan->set && i < all.member_count; i++) {
        place = all.members[i] == rank ? i : place;
    }
    return place;
}

static bool has_joined(const struct plan *plan, int phase, int rank)
{
    return plan->set == 0 && all.joined[phase] >> rank & 1;
}

static bool takes_part(const struct plan *plan, int phase, int rank)
{
    bool strange = all.trouble == STRANGERS && phase == all.phase &&
                   ((rank == all.who && plan == &all.plans[phase][all.slot]) ||
                    (rank == all.other && plan == &all.plans[phase][all.second]));

    return place_of(plan, rank) >= 0 && !has_joined(plan, phase, rank) && !strange;
}

/* ---- the model ---- */

static int32_t given(const struct plan *plan, int member, int place, uint64_t i)
{
    return (int32_t)((plan->salt + (uint64_t)(member * 7 + place * 31) + i * 3) % 100);
}

static uint64_t rows_of(const struct plan *plan, int place)
{
    return (plan->salt + (uint64_t)place) % 4;
}

static uint64_t rows_between(const struct plan *plan, int from, int to)
{
    return (plan->salt + (uint64_t)(from * 3 + to)) % 3;
}

static int32_t reduced(const struct plan *plan, int phase, int member, uint64_t i)
{
    int32_t value = plan->ops[member] == PL_MAX ? INT32_MIN : plan->ops[member] == PL_MIN ? INT32_MAX : 0;
    int contributors = 0;

    for (int place = 0; place < size_of(plan); place++) {
        int32_t other = given(plan, member, place, i);

        if (has_joined(plan, phase, place)) {
            continue;
        }
        contributors++;
        value = plan->ops[member] == PL_MAX   ? (value > other ? value : other)
                : plan->ops[member] == PL_MIN ? (value < other ? value : other)
                                              : value + other;
    }
    return plan->ops[member] == PL_AVERAGE ? value / contributors : value;
}

/* Fills `values` with what `member` gives at `place`, and returns how many they are. */
static uint64_t expect_values(const struct plan *plan, int phase, int member, int place, int32_t *values)
{
    uint64_t rows = plan->rows[member], size = (uint64_t)size_of(plan), first = 0, count = 0;

    switch (plan->kinds[member]) {
    case PL_ALLREDUCE:
        for (; count < rows; count++) {
            values[count] = reduced(plan, phase, member, count);
        }
        break;
    case PL_BROADCAST:
        for (; count < rows; count++) {
            values[count] = given(plan, member, plan->root, count);
        }
        break;
    case PL_REDUCE_SCATTER:
        for (int before = 0; before < place; before++) {
            first += rows / size + ((uint64_t)before < rows % size);
        }
        for (; count < rows / size + ((uint64_t)place < rows % size); count++) {
            values[count] = reduced(plan, phase, member, first + count);
        }
        break;
    case PL_ALLGATHER:
        for (int from = 0; from < size_of(plan); from++) {
            for (uint64_t i = 0; i < rows_of(plan, from) && !has_joined(plan, phase, from); i++) {
                values[count++] = given(plan, member, from, i);
            }
        }
        break;
    case PL_ALLTOALL:
        for (int from = 0; from < size_of(plan); from++) {
            uint64_t before = 0;

            for (int to = 0; to < place; to++) {
                before += rows_between(plan, from, to);
            }
            for (uint64_t i = 0; i < rows_between(plan, from, place); i++) {
                values[count++] = given(plan, member, from, before + i);
            }
        }
        break;
    case PL_BARRIER:
    case PL_REDUCE:
        break;
    }
    return count;
}

/* Whether a member of the plan cannot run while a rank has joined. */
static bool refuses_joined(const struct plan *plan, int phase)
{
    bool refuses = false;

    for (int i = 0; i < plan->count; i++) {
        refuses = refuses || plan->kinds[i] == PL_ALLTOALL || plan->kinds[i] == PL_REDUCE_SCATTER ||
                  (plan->kinds[i] == PL_BROADCAST && has_joined(plan, phase, plan->root));
    }
    return refuses && plan->set == 0 && all.joined[phase];
}

static bool makes_memory(enum pl_kind kind)
{
    return kind == PL_ALLGATHER || kind == PL_ALLTOALL || kind == PL_REDUCE_SCATTER;
}

static void check_values(const struct program *p, const struct plan *plan, int phase, const struct one *one)
{
    for (int member = 0; member < plan->count; member++) {
        int32_t want[MOST_ELEMS * MOST_RANKS];
        bool made = makes_memory(plan->kinds[member]);
        uint64_t count = expect_values(plan, phase, member, place_of(plan, p->rank), want);
        const int32_t *values = made ? one->results[member].data : one->recv[member];

        if (made && one->results[member].rows != count) {
            virtual_fail("'%s', %s: rows differ: %d, not %d", plan->name, pl_kind_text(plan->kinds[member]),
                         (int)one->results[member].rows, (int)count);
        }
        for (int from = 0; from < size_of(plan) && one->results[member].rows_of_rank; from++) {
            uint64_t rows = has_joined(plan, phase, from)         ? 0
                            : plan->kinds[member] == PL_ALLGATHER ? rows_of(plan, from)
                                                                  : rows_between(plan, from, place_of(plan, p->rank));

            if (one->results[member].rows_of_rank[from] != rows) {
                virtual_fail("'%s': rows of rank %d differ", plan->name, from);
            }
        }
        for (uint64_t i = 0; i < count; i++) {
            if (values[i] != want[i]) {
                virtual_fail("'%s', %s: element %d is %d, not %d", plan->name, pl_kind_text(plan->kinds[member]),
                             (int)i, values[i], want[i]);
            }
        }
    }
}

/* A failed group has touched no output. */
static void check_untouched(const struct program *p, const struct plan *plan, const struct one *one)
{
    for (int member = 0; member < plan->count; member++) {
        for (uint64_t i = 0; i < one->ops[member].shape[0] && plan->kinds[member] != PL_BARRIER; i++) {
            if (one->recv[member][i] != given(plan, member, place_of(plan, p->rank), i)) {
                virtual_fail("'%s' has failed, and element %d of member %d has other values", plan->name, (int)i,
                             member);
            }
        }
    }
}

static bool is_differing(int phase, int slot)
{
    return all.trouble == DIFFERENCE && all.phase == phase && all.slot == slot;
}

static bool is_strange(int phase, int slot)
{
    return all.trouble == STRANGERS && all.phase == phase && (all.slot == slot || all.second == slot);
}

/* Whether the rank that makes trouble has never submitted it. */
static bool is_withheld(const struct plan *plan, int phase, int slot)
{
    return all.trouble >= LEAVE && all.phase == phase && all.slot == slot && takes_part(plan, phase, all.who) &&
           !all.outcomes[all.who][phase][slot].submitted;
}

/* What one rank saw, against the model, and against another rank. */
static void check_outcome(int phase, int slot, int rank, int before)
{
    const struct plan *plan = &all.plans[phase][slot];
    const struct outcome *own = &all.outcomes[rank][phase][slot];
    const struct outcome *other = before >= 0 ? &all.outcomes[before][phase][slot] : own;
    enum pl_status want = is_differing(phase, slot) && size_of(plan) > 1 ? PL_MISMATCH
                          : is_strange(phase, slot)                      ? PL_TIMEOUT
                          : refuses_joined(plan, phase)                  ? PL_MISMATCH
                                                                         : PL_OK;

    if (all.trouble < LEAVE && own->status != want) {
        virtual_fail("phase %d: '%s' on rank %d is %s, not %s: %.150s", phase, plan->name, rank,
                     pl_status_name(own->status), pl_status_name(want), own->text);
    }
    if (all.trouble < LEAVE && strcmp(own->text, other->text) != 0) {
        virtual_fail("phase %d: '%s': the words differ: %.120s | %.120s", phase, plan->name, other->text, own->text);
    }
    if (all.trouble == LEAVE && own->status != other->status) {
        virtual_fail("phase %d: '%s': ends differ: %s on rank %d, %s on rank %d", phase, plan->name,
                     pl_status_name(other->status), before, pl_status_name(own->status), rank);
    }
    if (all.trouble == LEAVE && own->status != PL_OK && own->status != PL_CANCELLED) {
        virtual_fail("phase %d: '%s' after a leave: %s: %.150s", phase, plan->name, pl_status_name(own->status),
                     own->text);
    }
    if (is_withheld(plan, phase, slot) && own->status == PL_OK) {
        virtual_fail("phase %d: '%s' has succeeded on rank %d without rank %d", phase, plan->name, rank, all.who);
    }
    if (own->status != PL_OK && !own->text[0]) {
        virtual_fail("phase %d: '%s' on rank %d fails without a word", phase, plan->name, rank);
    }
}

/* What all ranks saw. */
static void check_outcomes(void)
{
    for (int phase = 0; phase < PHASES; phase++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            int before = -1;

            for (int rank = 0; rank < all.size; rank++) {
                if (all.outcomes[rank][phase][slot].submitted) {
                    check_outcome(phase, slot, rank, before);
                    before = rank;
                }
            }
        }
    }
}

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
        op->shape[1] = 2;
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

        *op = (struct pl_named_op){.name = plan->numbered ? NULL : plan->name,
                                   .kind = plan->kinds[i],
                                   .dtype = PL_INT32,
                                   .op = plan->ops[i],
                                   .root = plan->root,
                                   .dims = 1,
                                   .shape = {plan->rows[i]},
                                   .send = one->send[i],
                                   .recv = one->recv[i]};
        if (op->kind == PL_ALLGATHER) {
            op->shape[0] = rows_of(plan, place);
        } else if (op->kind == PL_ALLTOALL) {
            op->splits = one->splits[i];
            op->shape[0] = 0;
            for (int to = 0; to < size_of(plan); to++) {
                one->splits[i][to] = rows_between(plan, place, to);
                op->shape[0] += one->splits[i][to];
            }
        } else if (op->kind == PL_BROADCAST && place != plan->root) {
            op->send = NULL;
        } else if (op->kind == PL_ALLREDUCE && plan->salt % 2) {
            op->send = op->recv; /* in place */
        }
        for (uint64_t k = 0; k < op->shape[0]; k++) {
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
        submit_it(p, plan, one, &second, &error) == PL_OK) {
        virtual_fail("'%s' was taken twice", plan->name);
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
        snprintf(outcome->text, sizeof(outcome->text), "%s", one->completion.error.cause);
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
    struct pl_completion completion = {0};
    struct pl_error error = PL_ERROR_NONE;

    if (!all.joins[phase] || p->leaves) {
        return;
    }
    if (pl_service_submit_join(p->service, &completion, &error) != PL_OK ||
        pl_service_wait(p->service, &completion, &error) != PL_OK) {
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
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    virtual_dawdle(PL_NS_PER_MS);
    status =
        pl_service_new(p->world, &(struct pl_named_options){.start_bytes = p->rank % 2 ? 64 : 0}, &p->service, &error);
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
