/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a program makes a mistake. Every rank has to report it, in a message that names the thing or the rank; if
 * the mistake is about one tensor only, all go on afterwards. No rank may hang, so a mistake that only a timeout can
 * show runs with a short deadline.
 */
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/training.h"

#include "runtime/plan.h"
#include "runtime/service.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMS = 12 };

struct scene {
    struct pl_world *world;
    struct pl_service *service;
    struct pl_completion others[2]; /* of what is not waited for */
    int rank, size;
    int guilty; /* the rank that makes the mistake */
    uint64_t draws;
    char *failure;
};

static bool fail(const struct scene *s, const char *what, enum pl_status status, const struct pl_error *error)
{
    char text[1000];

    if (!s->failure[0]) {
        snprintf(s->failure, TRAINING_TEXT_BYTES, "rank %d made the mistake: %.80s: %s: %s", s->guilty, what,
                 pl_status_name(status), pl_error_text(error, text, sizeof(text)));
    }
    return false;
}

static bool need(const struct scene *s, const char *what, enum pl_status status, const struct pl_error *error)
{
    return status == PL_OK || fail(s, what, status, error);
}

/* Checks that the call has ended with `expected` and that its error contains `words`. */
static bool told(const struct scene *s, const char *words, enum pl_status expected, enum pl_status status,
                 const struct pl_error *error)
{
    char text[1000];

    return (status == expected && strstr(pl_error_text(error, text, sizeof(text)), words)) ||
           fail(s, words, status, error);
}

static struct pl_named_op sum_of(const char *name, float *data)
{
    return (struct pl_named_op){.name = name,
                                .kind = PL_ALLREDUCE,
                                .dtype = PL_FLOAT32,
                                .op = PL_SUM,
                                .dims = 1,
                                .shape = {ELEMS},
                                .send = data,
                                .recv = data};
}

/* Submits an operation in set 0 and waits for it. */
static enum pl_status run(const struct scene *s, const struct pl_named_op *op, struct pl_error *reterr)
{
    struct pl_completion completion = {0};

    PL_TRY(pl_service_submit(s->service, 0, op, &completion, reterr));
    return pl_service_wait(s->service, &completion, reterr);
}

/* Checks that a sum by name succeeds on all ranks. */
static bool goes_on(const struct scene *s, const char *name)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[ELEMS];
    struct pl_named_op op = sum_of(name, data);

    for (int i = 0; i < ELEMS; i++) {
        data[i] = (float)(s->rank + i);
    }
    if (!need(s, "going on", run(s, &op, &error), &error)) {
        return false;
    }
    for (int i = 0; i < ELEMS; i++) {
        if ((int)data[i] != s->size * (s->size - 1) / 2 + s->size * i) {
            pl_error_set(&error, PL_CORRUPT, "element %d of a sum is %g", i, (double)data[i]);
            return fail(s, "going on", PL_CORRUPT, &error);
        }
    }
    return true;
}

/* The guilty rank has a different shape, type, operation, factor, kind or root, alone or in a group, of a name that
 * is new or known. */
static bool differs(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[2 * ELEMS] = {0}, other[ELEMS] = {0};
    uint64_t way = mixed_draw(&s->draws, 6);
    bool grouped = mixed_draw(&s->draws, 2), known = mixed_draw(&s->draws, 2);
    struct pl_named_op ops[2] = {sum_of("w", data), sum_of("v", other)};
    struct pl_completion completion = {0};
    char words[32];

    if (known && !goes_on(s, "w")) {
        return false;
    }
    ops[0].scaled = way == 3;
    ops[0].prescale = ops[0].postscale = s->rank == s->guilty ? 2 : 1;
    if (s->rank == s->guilty) {
        ops[0].shape[0] += way == 0;
        ops[0].dtype = way == 1 ? PL_INT32 : PL_FLOAT32;
        ops[0].op = way == 2 ? PL_MAX : PL_SUM;
        ops[0].kind = way >= 4 ? PL_BROADCAST : PL_ALLREDUCE;
        ops[0].root = way == 5;
    }
    if (!need(s, "submit",
              grouped ? pl_service_submit_group(s->service, 0, "w", ops, 2, &completion, &error)
                      : pl_service_submit(s->service, 0, &ops[0], &completion, &error),
              &error)) {
        return false;
    }
    snprintf(words, sizeof(words), "rank %d: ", s->guilty);
    return told(s, words, PL_MISMATCH, pl_service_wait(s->service, &completion, &error), &error) && goes_on(s, "w");
}

/* All ranks wait for a tensor that not all have submitted. */
static bool waits_for_another(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[ELEMS] = {0};
    struct pl_named_op op = sum_of(s->rank == s->guilty ? "its own" : "theirs", data);

    return told(s, "'its own': submitted by rank", PL_TIMEOUT, run(s, &op, &error), &error) && goes_on(s, "theirs");
}

/* As above, but the guilty rank polls as if it had other work to do. */
static bool polls_for_another(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[ELEMS] = {0};
    struct pl_named_op op = sum_of(s->rank == s->guilty ? "its own" : "theirs", data);
    struct pl_completion completion = {0};

    if (!need(s, "submit", pl_service_submit(s->service, 0, &op, &completion, &error), &error)) {
        return false;
    }
    while (s->rank == s->guilty && !pl_service_poll(s->service, &completion)) {
        sched_yield();
    }
    return told(s, "", PL_TIMEOUT, pl_service_wait(s->service, &completion, &error), &error);
}

/* The guilty rank takes the wrong process set; sometimes all have other requests under way in both. */
static bool takes_another_set(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[2][ELEMS] = {{0}}, given[2][ELEMS] = {{0}};
    int ranks[TRAINING_MOST_RANKS], set;
    bool busy = mixed_draw(&s->draws, 2);
    struct pl_completion completion = {0};
    struct pl_named_op op = sum_of("x", data[0]);
    enum pl_status status;

    for (int r = 0; r < s->size; r++) {
        ranks[r] = s->size - 1 - r;
    }
    if (!need(s, "add a set", pl_service_add_set(s->service, ranks, s->size, &set, &error), &error)) {
        return false;
    }
    for (int i = 0; busy && i < 2; i++) { /* as long as the first is not complete, no rank submits the second */
        struct pl_named_op other = sum_of(s->rank == s->guilty ? "its own" : "theirs", given[i]);

        if (!need(s, "submit", pl_service_submit(s->service, i ? set : 0, &other, &s->others[i], &error), &error)) {
            return false;
        }
    }
    status = pl_service_submit(s->service, s->rank == s->guilty ? set : 0, &op, &completion, &error);
    if (!need(s, "submit", status, &error)) {
        return false;
    }
    status = pl_service_wait(s->service, &completion, &error);
    return status == PL_TIMEOUT || status == PL_MISMATCH || status == PL_CANCELLED || status == PL_PEER ||
           fail(s, "another set", status, &error);
}

static bool leaves(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[ELEMS] = {0};
    struct pl_named_op op = sum_of("x", data);
    char words[32];

    if (s->rank != s->guilty) {
        snprintf(words, sizeof(words), "rank %d", s->guilty);
        if (!told(s, words, PL_CANCELLED, run(s, &op, &error), &error)) {
            return false;
        }
    }
    return need(s, "shutdown", pl_service_shutdown(s->service, &error), &error);
}

/* The guilty rank is gone before the others begin. */
static bool never_comes(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[ELEMS] = {0};
    struct pl_named_op op = sum_of("x", data);
    enum pl_status status;

    if (s->rank == s->guilty) {
        return true;
    }
    status = run(s, &op, &error);
    return status == PL_TIMEOUT || status == PL_PEER || status == PL_CANCELLED || fail(s, "gone", status, &error);
}

static bool joins_too_early(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    float data[TRAINING_MOST_RANKS] = {0};
    struct pl_named_op op = {
        .name = "x", .kind = PL_ALLTOALL, .dtype = PL_FLOAT32, .dims = 1, .shape = {(uint64_t)s->size}, .send = data};
    struct pl_completion joined = {0};

    if (s->rank != s->guilty && !told(s, "'x'", PL_MISMATCH, run(s, &op, &error), &error)) {
        return false;
    }
    return need(s, "join", pl_service_submit_join(s->service, &joined, &error), &error) &&
           need(s, "join", pl_service_wait(s->service, &joined, &error), &error) && goes_on(s, NULL);
}

/* One rank gets an error from its call and then makes it correctly. */
static bool is_refused(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_completion completion = {0};
    const char *name = mixed_draw(&s->draws, 2) ? "x" : NULL;
    float data[ELEMS] = {0};
    struct pl_named_op ops[2] = {sum_of(NULL, data), sum_of(name, NULL)};

    return (s->rank != s->guilty ||
            (told(s, "", PL_INVALID, pl_service_submit(s->service, 0, &ops[1], &completion, &error), &error) &&
             told(s, "", PL_INVALID, pl_service_submit_group(s->service, 0, name, ops, 2, &completion, &error),
                  &error))) &&
           goes_on(s, name);
}

static bool adds_another_set(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    int ranks[2] = {1, 0}, set;

    return told(s, "process sets: rank 0 has", PL_MISMATCH,
                pl_service_add_set(s->service, ranks, s->rank == s->guilty ? 1 : 2, &set, &error), &error) &&
           need(s, "add a set", pl_service_add_set(s->service, ranks, 2, &set, &error), &error) && goes_on(s, "x");
}

static bool registers_another(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_plan *plan = NULL;
    uint64_t elems = s->rank == s->guilty ? 7 : 8;
    size_t index;
    bool good = need(s, "plan", pl_plan_new(s->world, NULL, &plan, &error), &error) &&
                need(s, "plan", pl_plan_add(plan, "w", 1, &elems, &index, &error), &error) &&
                told(s, "'w' [7]", PL_MISMATCH, pl_plan_seal(plan, &error), &error);

    pl_plan_free(plan);
    return good && goes_on(s, "x");
}

/* The guilty rank calls something else on the world: a barrier while others take a plan's step or wait for a named
 * tensor. */
static bool calls_another(struct scene *s)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_plan *plan = NULL;
    uint64_t elems = 8;
    size_t index;
    float data[ELEMS] = {0};
    struct pl_named_op op = sum_of("x", data);
    enum pl_status status;

    if (!need(s, "plan", pl_plan_new(s->world, NULL, &plan, &error), &error) ||
        !need(s, "plan", pl_plan_add(plan, "w", 1, &elems, &index, &error), &error) ||
        !need(s, "plan", pl_plan_seal(plan, &error), &error)) {
        return false;
    }
    if (mixed_draw(&s->draws, 2)) {
        status = s->rank == s->guilty ? pl_barrier(s->world, &error) : pl_plan_wait(plan, &error);
    } else {
        status = s->rank == s->guilty ? pl_barrier(s->world, &error) : run(s, &op, &error);
    }
    pl_plan_free(plan);
    return told(s, "rank", PL_MISMATCH, status, &error);
}

static const struct mistake {
    bool (*make)(struct scene *s);
    const char *timeout;
} mistakes[TRAINING_MISTAKES] = {
    {differs, TRAINING_LONG},          {waits_for_another, "1"},
    {leaves, TRAINING_LONG},           {never_comes, "1"},
    {joins_too_early, TRAINING_LONG},  {is_refused, TRAINING_LONG},
    {adds_another_set, TRAINING_LONG}, {registers_another, TRAINING_LONG},
    {calls_another, TRAINING_LONG},    {polls_for_another, "1"},
    {takes_another_set, "1"},
};

const char *training_err_timeout(uint64_t seed)
{
    return mistakes[seed % TRAINING_MISTAKES].timeout;
}

void training_err(struct pl_world *world, uint64_t seed, char failure[TRAINING_TEXT_BYTES])
{
    struct scene s = {
        .world = world, .rank = pl_world_rank(world), .size = pl_world_size(world), .draws = seed, .failure = failure};
    struct pl_error error = PL_ERROR_NONE;

    failure[0] = '\0';
    s.guilty = (int)mixed_draw(&s.draws, (uint64_t)s.size);
    if (need(&s, "a service", pl_service_new(world, NULL, &s.service, &error), &error)) {
        (void)mistakes[seed % TRAINING_MISTAKES].make(&s);
    }
    pl_service_free(s.service);
}
