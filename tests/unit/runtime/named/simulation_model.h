/* SPDX-License-Identifier: Apache-2.0 */
/** What the simulation of named tensors draws from a seed, and the model that says how every operation ends. */
#ifndef PL_TESTS_UNIT_RUNTIME_NAMED_SIMULATION_MODEL_H
#define PL_TESTS_UNIT_RUNTIME_NAMED_SIMULATION_MODEL_H

#include "base/memory.h"
#include "base/random.h"
#include "runtime/service.h"
#include "tests/fakes/virtual_threads.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_RANKS = 4,
    PHASES = 4,
    SLOTS = 5, /* submissions of a phase */
    MEMBERS = 3,
    MOST_ROWS = 6,
    MOST_ELEMS = 64,
    TEXT_BYTES = 300,
    PRESCALE = 2,
    POSTSCALE = 3,
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
    bool scaled; /* its sums and averages */
    int set;     /* 0, or 1: the other set of the phase */
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
    struct pl_named_options options;
    bool joins[PHASES];
    bool adds[PHASES], removes[PHASES]; /* the other set, at the beginning of the phase, or with `in_between` */
    bool in_between[PHASES];            /* after the submissions of the phase */
    bool usable[PHASES];                /* the submissions may use the other set */
    uint64_t joined[PHASES];            /* one bit a rank that joins instead of its submissions */
    int members[MOST_RANKS], member_count;
    struct plan plans[PHASES][SLOTS];
    struct outcome outcomes[MOST_RANKS][PHASES][SLOTS];
    int last_joined[PHASES];
    int ended; /* ranks */
    struct program programs[MOST_RANKS];
} all;

static inline uint64_t draw(uint64_t *state, uint64_t below)
{
    return pl_random_next(state) % below;
}

/* ---- what all ranks know ---- */

static inline void draw_plan(uint64_t *state, int phase, int slot)
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
        plan->scaled = draw(state, 4) == 0;
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

static inline void draw_all(uint64_t seed)
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
    all.options.join_divisor = draw(&state, 2) ? PL_NAMED_DIVIDE_BY_SIZE : PL_NAMED_DIVIDE_BY_CONTRIBUTORS;
    all.options.strict_join = draw(&state, 4) == 0;
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

static inline int size_of(const struct plan *plan)
{
    return plan->set ? all.member_count : all.size;
}

/* This rank's number in the plan's set; -1: it is not a member. */
static inline int place_of(const struct plan *plan, int rank)
{
    int place = plan->set ? -1 : rank;

    for (int i = 0; plan->set && i < all.member_count; i++) {
        place = all.members[i] == rank ? i : place;
    }
    return place;
}

static inline bool has_joined(const struct plan *plan, int phase, int rank)
{
    return plan->set == 0 && all.joined[phase] >> rank & 1;
}

static inline bool takes_part(const struct plan *plan, int phase, int rank)
{
    bool strange = all.trouble == STRANGERS && phase == all.phase &&
                   ((rank == all.who && plan == &all.plans[phase][all.slot]) ||
                    (rank == all.other && plan == &all.plans[phase][all.second]));

    return place_of(plan, rank) >= 0 && !has_joined(plan, phase, rank) && !strange;
}

/* ---- the model ---- */

static inline int32_t given(const struct plan *plan, int member, int place, uint64_t i)
{
    return (int32_t)((plan->salt + (uint64_t)(member * 7 + place * 31) + i * 3) % 100);
}

static inline uint64_t rows_of(const struct plan *plan, int place)
{
    return (plan->salt + (uint64_t)place) % 4;
}

static inline uint64_t rows_between(const struct plan *plan, int from, int to)
{
    return (plan->salt + (uint64_t)(from * 3 + to)) % 3;
}

static inline bool is_scaled(const struct plan *plan, int member)
{
    return plan->scaled && (plan->kinds[member] == PL_ALLREDUCE || plan->kinds[member] == PL_REDUCE_SCATTER) &&
           (plan->ops[member] == PL_SUM || plan->ops[member] == PL_AVERAGE);
}

static inline int32_t reduced(const struct plan *plan, int phase, int member, uint64_t i)
{
    bool scaled = is_scaled(plan, member);
    int32_t value = plan->ops[member] == PL_MAX ? INT32_MIN : plan->ops[member] == PL_MIN ? INT32_MAX : 0;
    int contributors = 0;

    for (int place = 0; place < size_of(plan); place++) {
        int32_t other = given(plan, member, place, i) * (scaled ? PRESCALE : 1);

        if (has_joined(plan, phase, place)) {
            continue;
        }
        contributors++;
        value = plan->ops[member] == PL_MAX   ? (value > other ? value : other)
                : plan->ops[member] == PL_MIN ? (value < other ? value : other)
                                              : value + other;
    }
    if (plan->ops[member] == PL_AVERAGE) {
        value /= all.options.join_divisor == PL_NAMED_DIVIDE_BY_SIZE ? size_of(plan) : contributors;
    }
    return scaled ? value * POSTSCALE : value;
}

/* Fills `values` with what `member` gives at `place`, and returns how many they are. */
static inline uint64_t expect_values(const struct plan *plan, int phase, int member, int place, int32_t *values)
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
static inline bool refuses_joined(const struct plan *plan, int phase)
{
    bool refuses = false;

    for (int i = 0; i < plan->count; i++) {
        refuses = refuses || plan->kinds[i] == PL_ALLTOALL || plan->kinds[i] == PL_REDUCE_SCATTER ||
                  (plan->kinds[i] == PL_ALLGATHER && all.options.strict_join) ||
                  (plan->kinds[i] == PL_BROADCAST && (all.options.strict_join || has_joined(plan, phase, plan->root)));
    }
    return refuses && plan->set == 0 && all.joined[phase];
}

static inline bool makes_memory(enum pl_kind kind)
{
    return kind == PL_ALLGATHER || kind == PL_ALLTOALL || kind == PL_REDUCE_SCATTER;
}

static inline void check_values(const struct program *p, const struct plan *plan, int phase, const struct one *one)
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
static inline void check_untouched(const struct program *p, const struct plan *plan, const struct one *one)
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

static inline bool is_differing(int phase, int slot)
{
    return all.trouble == DIFFERENCE && all.phase == phase && all.slot == slot;
}

static inline bool is_strange(int phase, int slot)
{
    return all.trouble == STRANGERS && all.phase == phase && (all.slot == slot || all.second == slot);
}

/* Whether the rank that makes trouble has never submitted it. */
static inline bool is_withheld(const struct plan *plan, int phase, int slot)
{
    return all.trouble >= LEAVE && all.phase == phase && all.slot == slot && takes_part(plan, phase, all.who) &&
           !all.outcomes[all.who][phase][slot].submitted;
}

/* What one rank saw, against the model, and against another rank. */
static inline void check_outcome(int phase, int slot, int rank, int before)
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
static inline void check_outcomes(void)
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

#endif
