/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/service.c, runtime/named/service_step.c, runtime/named/rounds.c. */
/* Eight threads a rank submit operations that a seed draws, each rank in orders of its own, in two process sets, and
 * wait, poll or are called back; every value is compared with the model's. */
#include "base/memory.h"
#include "runtime/service.h"
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/seeded.h"
#include "tests/support/unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 8, STEPS = 6, WINDOW = 5, MOST_ELEMS = 300 };

/* One operation of a step, equal on all ranks except what `rank` gives. */
struct drawn {
    struct pl_completion completion;
    struct pl_named_op op;
    struct pl_named_result result;
    uint64_t splits[RANKS_MOST];
    int32_t send[MOST_ELEMS], recv[MOST_ELEMS];
    char name[32];
    int set;
    uint64_t salt;
    atomic_bool called;
};

struct submitter {
    struct pl_service *service;
    int rank, size; /* in the world */
    int sets[2];
    uint64_t seed;
    int number;
    pthread_t thread;
    char failure[200];
};

static void called(struct pl_completion *completion)
{
    PL_CONTAINER_OF(completion, struct drawn, completion)->called = true;
}

/* What rank `rank` of the set gives as element `i`. */
static int32_t given(const struct drawn *d, int rank, uint64_t i)
{
    return (int32_t)((d->salt + (uint64_t)rank * 31 + i * 7) % 1000);
}

/* Rows of rank `rank` in an allgather; and those that `from` sends to `to`. */
static uint64_t rows_of(const struct drawn *d, int rank)
{
    return (d->salt + (uint64_t)rank) % 4;
}

static uint64_t rows_between(const struct drawn *d, int from, int to)
{
    return (d->salt + (uint64_t)from * 3 + (uint64_t)to) % 3;
}

static void draw_op(const struct submitter *s, int step, int k, struct drawn *d)
{
    uint64_t state = s->seed * 1000003 + (uint64_t)(s->number * 10007 + step * 101 + k);
    static const enum pl_kind kinds[] = {PL_ALLREDUCE, PL_ALLREDUCE,      PL_ALLGATHER, PL_BROADCAST,
                                         PL_ALLTOALL,  PL_REDUCE_SCATTER, PL_BARRIER};
    int rank;

    memset(d, 0, sizeof(*d));
    d->set = s->sets[mixed_draw(&state, 2)];
    rank = d->set == 0 ? s->rank : s->size - 1 - s->rank; /* the other set has all ranks, backwards */
    d->salt = mixed_draw(&state, 1000);
    d->op.kind = kinds[mixed_draw(&state, PL_ARRAY_ITEMS(kinds))];
    d->op.dtype = PL_INT32;
    d->op.op = mixed_draw(&state, 2) ? PL_SUM : PL_MAX;
    d->op.root = (int)mixed_draw(&state, (uint64_t)s->size);
    d->op.dims = 1;
    d->op.shape[0] = d->op.kind == PL_ALLGATHER ? rows_of(d, rank) : 1 + mixed_draw(&state, MOST_ELEMS - 1);
    if (d->op.kind == PL_ALLTOALL) {
        d->op.shape[0] = 0;
        d->op.splits = d->splits;
        for (int to = 0; to < s->size; to++) {
            d->op.shape[0] += d->splits[to] = rows_between(d, rank, to);
        }
    }
    for (uint64_t i = 0; i < d->op.shape[0]; i++) {
        d->send[i] = given(d, rank, i);
    }
    d->op.send = d->op.kind == PL_BROADCAST && rank != d->op.root ? NULL : d->send;
    d->op.recv = d->recv;
    d->completion.results = &d->result;
    snprintf(d->name, sizeof(d->name), "%d.%d.%d", s->number, mixed_draw(&state, 2) ? step : 0,
             k); /* new and known names */
    d->op.name = d->name;
}

/* Element `i` of the reduction over all ranks. */
static int32_t reduced(const struct drawn *d, int size, uint64_t i)
{
    int32_t value = given(d, 0, i);

    for (int r = 1; r < size; r++) {
        int32_t other = given(d, r, i);

        value = d->op.op == PL_SUM ? value + other : value > other ? value : other;
    }
    return value;
}

/* What the model says of this rank's element `i`; false: there is none. */
static bool expected(const struct submitter *s, const struct drawn *d, uint64_t i, int32_t *ret_value)
{
    int rank = d->set == 0 ? s->rank : s->size - 1 - s->rank;
    uint64_t size = (uint64_t)s->size, first = 0, before = 0;

    switch (d->op.kind) {
    case PL_ALLREDUCE:
        *ret_value = reduced(d, s->size, i);
        return i < d->op.shape[0];
    case PL_BROADCAST:
        *ret_value = given(d, d->op.root, i);
        return i < d->op.shape[0];
    case PL_REDUCE_SCATTER: {
        uint64_t rows = d->op.shape[0] / size, more = d->op.shape[0] % size, at = (uint64_t)rank;

        *ret_value = reduced(d, s->size, rows * at + (at < more ? at : more) + i);
        return i < rows + (at < more);
    }
    case PL_ALLGATHER:
    case PL_ALLTOALL:
        for (int r = 0; r < s->size; r++) {
            uint64_t rows = d->op.kind == PL_ALLGATHER ? rows_of(d, r) : rows_between(d, r, rank);

            if (i - first < rows) {
                for (int to = 0; d->op.kind == PL_ALLTOALL && to < rank; to++) {
                    before += rows_between(d, r, to);
                }
                *ret_value = given(d, r, before + i - first);
                return true;
            }
            first += rows;
        }
        return false;
    case PL_BARRIER:
    case PL_REDUCE:
        break;
    }
    return false;
}

static void check(struct submitter *s, const struct drawn *d)
{
    bool made = d->op.kind == PL_ALLGATHER || d->op.kind == PL_ALLTOALL || d->op.kind == PL_REDUCE_SCATTER;
    const int32_t *values = made ? d->result.data : d->recv;
    int32_t want = 0;
    uint64_t i = 0;

    for (; expected(s, d, i, &want); i++) {
        if (made && i >= d->result.rows) {
            break;
        }
        if (values[i] != want && !s->failure[0]) {
            snprintf(s->failure, sizeof(s->failure), "%s '%s' in set %d: element %llu is %d, not %d",
                     pl_kind_text(d->op.kind), d->name, d->set, (unsigned long long)i, values[i], want);
        }
    }
    if (made && i != d->result.rows && !s->failure[0]) {
        snprintf(s->failure, sizeof(s->failure), "%s '%s' in set %d: rows differ: %llu, not %llu",
                 pl_kind_text(d->op.kind), d->name, d->set, (unsigned long long)d->result.rows, (unsigned long long)i);
    }
}

static void end_one(struct submitter *s, struct drawn *d, uint64_t how)
{
    enum pl_status status;

    if (d->completion.call) {
        while (!d->called) {
            sched_yield();
        }
        status = d->completion.status;
    } else if (how == 0) {
        while (!pl_service_poll(s->service, &d->completion)) {
            sched_yield();
        }
        status = d->completion.status;
    } else {
        status = pl_service_wait(s->service, &d->completion, NULL);
    }
    if (status == PL_OK) {
        check(s, d);
    } else if (!s->failure[0]) {
        snprintf(s->failure, sizeof(s->failure), "'%s': %.150s", d->name, d->completion.error.cause);
    }
    pl_named_result_done(&d->result);
}

static void *submit_all(void *submitter_at)
{
    struct submitter *s = submitter_at;
    uint64_t own = s->seed * 77 + (uint64_t)(s->rank * THREADS + s->number); /* this rank's order */
    struct drawn *window = calloc(WINDOW, sizeof(*window));

    for (int step = 0; step < STEPS && !s->failure[0]; step++) {
        struct pl_error error = PL_ERROR_NONE;
        int order[WINDOW];

        for (int k = 0; k < WINDOW; k++) {
            int other = (int)mixed_draw(&own, (uint64_t)k + 1);

            order[k] = order[other];
            order[other] = k;
            draw_op(s, step, k, &window[k]);
            window[k].completion.call = mixed_draw(&own, 3) == 0 ? called : NULL;
        }
        for (int i = 0; i < WINDOW; i++) {
            struct drawn *d = &window[order[i]];

            if (pl_service_submit(s->service, d->set, &d->op, &d->completion, &error) != PL_OK) {
                /* the other ranks wait for what this one has not submitted */
                fprintf(stderr, "rank %d, thread %d: %s\n", s->rank, s->number, error.cause);
                abort();
            }
        }
        for (int i = WINDOW; i-- > 0;) {
            end_one(s, &window[order[i]], mixed_draw(&own, 3));
        }
    }
    free(window);
    return NULL;
}

static void mix(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct submitter submitters[THREADS];
    struct pl_service *service = NULL;
    struct pl_error error = PL_ERROR_NONE;
    int size = pl_world_size(world), backwards[RANKS_MOST], set = 0;
    enum pl_status status = pl_service_new(world, NULL, &service, &error);

    for (int r = 0; r < size; r++) {
        backwards[r] = size - 1 - r;
    }
    if (status == PL_OK && size > 1) {
        status = pl_service_add_set(service, backwards, size, &set, &error);
    }
    for (int t = 0; t < THREADS && status == PL_OK; t++) {
        submitters[t] = (struct submitter){.service = service,
                                           .rank = pl_world_rank(world),
                                           .size = size,
                                           .sets = {0, set},
                                           .seed = *(const uint64_t *)argument,
                                           .number = t};
        pthread_create(&submitters[t].thread, NULL, submit_all, &submitters[t]);
    }
    for (int t = 0; t < THREADS && status == PL_OK; t++) {
        pthread_join(submitters[t].thread, NULL);
        if (submitters[t].failure[0]) {
            snprintf(failure, RANKS_TEXT_BYTES, "rank %d, thread %d: %s", submitters[t].rank, t, submitters[t].failure);
        }
    }
    if (status == PL_OK) {
        status = pl_service_shutdown(service, &error);
    }
    if (status != PL_OK) {
        snprintf(failure, RANKS_TEXT_BYTES, "%s (%s)", error.cause, error.context);
    }
    pl_service_free(service);
}

TEST(eight_threads_a_rank_get_what_the_model_says)
{
    seeded_run(&(struct seeded){.seed = 1, .worlds = 8, .least_size = 1, .most_size = 4, .body = mix});
}

UNIT_MAIN("runtime/service_mixed")
