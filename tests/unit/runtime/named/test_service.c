/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/service.c, runtime/named/service_step.c, runtime/named/table.c. */
/* Named tensors from many threads: callbacks, errors, process sets, leaving. */
#include "base/clock.h"
#include "base/memory.h"
#include "runtime/named/service_private.h"
#include "tests/unit/runtime/named/engine.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE(options)                                                                                               \
    struct pl_error error = PL_ERROR_NONE;                                                                             \
    struct pl_service *service = NULL;                                                                                 \
    expect_ok(pl_service_new(self->world, (options), &service, &error))

#define LEAVE()                                                                                                        \
    expect_ok(pl_service_shutdown(service, &error));                                                                   \
    pl_service_free(service)

enum { CHAIN = 30, HANDLES = 50, LONG = 1 << 20 };

/* The sum of one element in set 0, from submission to end. */
static enum pl_status sum_one(struct pl_service *service, const char *name, float *value, struct pl_error *reterr)
{
    struct pl_completion completion = {0};
    struct pl_named_op op = sum_of(name, value, 1);

    PL_TRY(pl_service_submit(service, 0, &op, &completion, reterr));
    return pl_service_wait(service, &completion, reterr);
}

struct chain {
    struct pl_completion completion;
    struct pl_service *service;
    float value;
    int left;
    atomic_int ended; /* 1: well, 2: not */
};

static void next_of_chain(struct pl_completion *completion)
{
    struct chain *chain = PL_CONTAINER_OF(completion, struct chain, completion);
    struct pl_named_op op = sum_of("chain", &chain->value, 1);

    if (completion->status != PL_OK) {
        chain->ended = 2;
    } else if (--chain->left == 0) {
        chain->ended = 1;
    } else if (pl_service_submit(chain->service, 0, &op, completion, NULL) != PL_OK) {
        chain->ended = 2;
    }
}

/* Nobody waits: the service's thread alone drives. A callback submits what comes next, of the same name. */
static void callback_body(struct rank *self)
{
    struct chain chain = {.completion = {.call = next_of_chain}, .left = CHAIN, .value = 1};
    struct pl_named_op op = sum_of("chain", &chain.value, 1);
    float want = 1;

    SERVICE(NULL);
    chain.service = service;
    expect_ok(pl_service_submit(service, 0, &op, &chain.completion, &error));
    while (chain.ended == 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    for (int i = 0; i < CHAIN; i++) {
        want *= (float)self->size;
    }
    expect(chain.ended == 1 && (chain.value > want ? chain.value - want : want - chain.value) <= 1e-5F * want,
           "%g, not %g", (double)chain.value, (double)want);
    LEAVE();
}

TEST(callbacks_come_without_a_waiter_and_may_submit)
{
    over_sizes(callback_body);
}

/* Polled, in any order. Afterwards the thread sleeps until it is woken. */
static void polled_body(struct rank *self)
{
    struct pl_completion completions[HANDLES] = {{0}};
    char names[HANDLES][16];
    float values[HANDLES];
    bool sleeps = false;

    SERVICE(NULL);
    for (int i = 0; i < HANDLES; i++) {
        int k = self->rank % 2 ? HANDLES - 1 - i : i;
        struct pl_named_op op = sum_of(names[k], &values[k], 1);

        values[k] = (float)k;
        snprintf(names[k], sizeof(names[k]), "value%d", k);
        expect_ok(pl_service_submit(service, 0, &op, &completions[k], &error));
    }
    for (int i = 0; i < HANDLES; i++) {
        while (!pl_service_poll(service, &completions[i])) {
            sched_yield();
        }
        expect(completions[i].status == PL_OK && (int)values[i] == i * self->size, "%g", (double)values[i]);
    }
    while (!sleeps) {
        sched_yield();
        pthread_mutex_lock(&service->lock);
        sleeps = service->synced.thread_sleeps;
        expect(service->synced.outstanding == 0, "%zu outstanding", service->synced.outstanding);
        pthread_mutex_unlock(&service->lock);
    }
    LEAVE();
}

TEST(polling_alone_ends_operations_and_the_idle_thread_sleeps)
{
    over_sizes(polled_body);
}

struct waiter {
    struct pl_service *service;
    const char *name;
    float value;
    enum pl_status status;
    struct pl_error error;
    pthread_t thread;
};

static void *wait_for_name(void *waiter_at)
{
    struct waiter *waiter = waiter_at;

    waiter->status = sum_one(waiter->service, waiter->name, &waiter->value, &waiter->error);
    return NULL;
}

static void refused_body(struct rank *self)
{
    struct pl_completion first = {0}, group = {0}, empty = {0}, other = {0};
    float values[3] = {1, 1, 1};
    struct pl_named_op op = sum_of("name", &values[0], 1), members[2] = {sum_of(NULL, &values[1], 1), {0}};
    struct pl_named_op flagged = {.name = "barrier", .kind = PL_BARRIER, .flags = NAMED_FENCE};
    uint64_t splits[RANKS_MOST] = {7};
    struct pl_named_op exchange = {.kind = PL_ALLTOALL, .dims = 1, .shape = {3}, .splits = splits, .send = values};

    SERVICE(NULL);
    members[1] = sum_of(NULL, &values[2], 1);
    expect_ok(pl_service_submit(service, 0, &op, &first, &error));
    expect_ok(
        pl_service_submit_group(service, 0, "name", members, 2, &group, &error)); /* members are names of their own */
    expect_ok(pl_service_submit_group(service, 0, "none", NULL, 0, &empty, &error));
    expect(pl_service_submit(service, 7, &op, &other, &error) == PL_INVALID, "no such set");
    expect(strstr(error.cause, "no process set 7"), "%s", error.cause);
    expect(pl_service_submit(service, 0, &flagged, &other, &error) == PL_INVALID, "a flag");
    expect(pl_service_submit(service, 0, &exchange, &other, &error) == PL_INVALID, "splits");
    expect_ok(pl_service_wait(service, &first, &error));
    expect_ok(pl_service_wait(service, &group, &error));
    expect_ok(pl_service_wait(service, &empty, &error));
    expect((int)values[0] == self->size && (int)values[2] == self->size, "%g %g", (double)values[0], (double)values[2]);
    LEAVE();
    expect(!other.done, "a refused operation has ended");
}

static void refused_alone_body(struct rank *self)
{
    struct pl_completion completion = {0};
    float value = 1;
    struct pl_named_op op = sum_of("after", &value, 1);

    SERVICE(NULL);
    expect_ok(pl_service_shutdown(service, &error));
    expect(pl_service_submit(service, 0, &op, &completion, &error) == PL_CANCELLED, "%s", error.cause);
    expect(pl_service_submit_join(service, &completion, &error) == PL_CANCELLED, "%s", error.cause);
    pl_service_free(service);
    pl_service_free(NULL);
}

TEST(what_is_wrong_is_refused_at_the_submission)
{
    ck_assert_bodies(1, refused_body, NULL);
    ck_assert_bodies(1, refused_alone_body, NULL);
}

/* What has no name is under way when a join ends, and what has none either is submitted then. */
static void numbered_body(struct rank *self)
{
    float *values = pl_memory_new(2 * (size_t)LONG, sizeof(float), NULL);

    SERVICE(NULL);
    for (int round = 0; round < 4; round++) {
        struct pl_completion alone = {0}, group = {0}, joined = {0}, next = {0};
        struct pl_named_op op = sum_of(NULL, values, LONG), member = sum_of(NULL, values + LONG, LONG);
        float value = 3, other = 4;
        struct pl_named_op short_member = sum_of(NULL, &other, 1);

        values[LONG - 1] = 1;
        values[2 * LONG - 1] = 2;
        expect_ok(pl_service_submit(service, 0, &op, &alone, &error));
        expect_ok(pl_service_submit_group(service, 0, NULL, &member, 1, &group, &error));
        expect_ok(pl_service_submit_join(service, &joined, &error));
        expect_ok(pl_service_wait(service, &joined, &error));
        expect_ok(pl_service_submit_group(service, 0, NULL, &short_member, 1, &next, &error));
        expect_ok(sum_one(service, NULL, &value, &error));
        expect_ok(pl_service_wait(service, &next, &error));
        expect_ok(pl_service_wait(service, &alone, &error));
        expect_ok(pl_service_wait(service, &group, &error));
        expect((int)values[LONG - 1] == self->size && (int)values[2 * LONG - 1] == 2 * self->size &&
                   (int)value == 3 * self->size && (int)other == 4 * self->size,
               "%g %g %g %g", (double)values[LONG - 1], (double)values[2 * LONG - 1], (double)value, (double)other);
    }
    LEAVE();
    free(values);
}

TEST(what_has_no_name_is_not_mixed_up_with_what_was_under_way_at_a_join)
{
    ck_assert_bodies(2, numbered_body, NULL);
    ck_assert_bodies(3, numbered_body, NULL);
}

/* Sets are added while each rank's other thread waits for a name that comes only after that. */
static void sets_body(struct rank *self)
{
    struct waiter waiter = {.name = "late", .value = 1};
    const int first[] = {0, 2}, second[] = {2, 1, 0}, bad[] = {0, 9};
    int sets[4], set = -1, other = -1, rank = -1, ranks[RANKS_MOST];
    struct pl_service_set found = {0};
    float late = 1, values[2] = {1, 1};
    struct pl_named_op of_fewer = sum_of("of fewer", &values[0], 1);
    struct pl_completion made = {.ranks = 2};
    struct pl_completion completions[2] = {{0}};
    bool waits = self->rank != 1;

    SERVICE(NULL);
    waiter.service = service;
    if (waits) {
        pthread_create(&waiter.thread, NULL, wait_for_name, &waiter);
    }
    expect_ok(pl_service_add_set(service, first, 2, &set, &error));
    expect_ok(pl_service_add_set(service, second, 3, &other, &error));
    expect(set == 1 && other == 2 && pl_service_list_sets(service, sets, 4) == 3, "sets %d and %d", set, other);
    expect(pl_service_add_set(service, first, 2, &rank, &error) == PL_INVALID, "added twice");
    expect(pl_service_add_set(service, bad, 2, &rank, &error) == PL_INVALID, "rank 9");
    expect(pl_service_add_set(service, self->rank == 0 ? first : bad, 2, &rank, &error) == PL_MISMATCH, "%s",
           error.cause);
    expect_ok(pl_service_get_set(service, set, &found, NULL, 0, &error));
    expect(found.size == 2 && found.rank == (waits ? self->rank / 2 : -1), "rank %d of %d", found.rank, found.size);
    expect_ok(pl_service_get_set(service, other, &found, ranks, 3, &error));
    for (int room = 2; room <= 4; room += 2) { /* of a set that has changed since */
        int untouched[4] = {-1, -1, -1, -1};

        expect(pl_service_get_set(service, other, &found, untouched, room, &error) == PL_INVALID && untouched[0] == -1,
               "room for %d", room);
    }
    expect(pl_service_submit(service, other, &of_fewer, &made, &error) == PL_INVALID, "%s", error.cause);
    expect(pl_service_find_set(service, second, 3) == other && pl_service_find_set(service, bad, 2) < 0, "found");
    expect(found.size == 3 && memcmp(ranks, second, sizeof(second)) == 0 && found.rank == 2 - self->rank, "rank %d",
           found.rank);
    if (waits) { /* the two sets in different orders */
        for (int i = 0; i < 2; i++) {
            int k = self->rank == 0 ? i : 1 - i;
            struct pl_named_op op = sum_of("in both", &values[k], 1);

            expect_ok(pl_service_submit(service, k == 0 ? set : other, &op, &completions[k], &error));
        }
        for (int i = 0; i < 2; i++) {
            expect_ok(pl_service_wait(service, &completions[self->rank == 0 ? i : 1 - i], &error));
        }
        expect((int)values[0] == 2 && (int)values[1] == 3, "%g %g", (double)values[0], (double)values[1]);
    } else {
        struct pl_named_op op = sum_of("in both", &values[1], 1);

        expect(pl_service_submit(service, set, &op, &completions[0], &error) == PL_INVALID, "no member");
        expect_ok(pl_service_submit(service, other, &op, &completions[1], &error));
        expect_ok(pl_service_wait(service, &completions[1], &error));
        expect_ok(sum_one(service, "late", &late, &error));
    }
    if (waits) {
        pthread_join(waiter.thread, NULL);
        expect(waiter.status == PL_OK && (int)waiter.value == 3, "%g", (double)waiter.value);
    }
    expect_ok(pl_service_remove_set(service, set, &error));
    expect(pl_service_remove_set(service, 0, &error) == PL_INVALID, "set 0");
    expect(pl_service_list_sets(service, sets, 4) == 2, "sets left");
    LEAVE();
}

TEST(process_sets_change_while_other_threads_wait)
{
    ck_assert_bodies(3, sets_body, NULL);
}

/* Submits in a set at the last moment: the ranks have agreed that it goes now, and what came before was taken. */
struct latecomer {
    struct pl_service *service;
    int set;
    atomic_bool is_armed;
    enum pl_status status;
    float value;
    struct pl_completion completion;
};

static void come_late(void *context, const struct pl_named_event *event)
{
    struct latecomer *late = context;

    if (event->phase == PL_NAMED_AGREED && atomic_exchange(&late->is_armed, false)) {
        struct pl_named_op op = sum_of("late", &late->value, 1);

        late->status = pl_service_submit(late->service, late->set, &op, &late->completion, NULL);
    }
}

static void late_body(struct rank *self)
{
    struct latecomer late = {.is_armed = false};
    const struct pl_named_observer observer = {.active = true, .context = &late, .happened = come_late};
    const struct pl_named_options options = {.observer = &observer};
    const int both[] = {1, 0};

    SERVICE(&options);
    late.service = service;
    for (int round = 0; round < 10; round++) {
        expect_ok(pl_service_add_set(service, both, 2, &late.set, &error));
        late.status = PL_FAILED;
        atomic_store(&late.is_armed, self->rank == 0);
        expect_ok(pl_service_remove_set(service, late.set, &error));
        if (self->rank == 0) {
            expect(late.status == PL_OK, "%s", pl_status_name(late.status));
            expect(pl_service_wait(service, &late.completion, &error) == PL_INVALID, "%s", error.cause);
            expect(strstr(error.cause, "'late': process set 1 was removed before it began"), "%s", error.cause);
        }
    }
    LEAVE();
}

TEST(what_is_submitted_in_a_set_that_goes_is_told_so)
{
    ck_assert_bodies(2, late_body, NULL);
}

/* Rank 0 leaves while the others wait for it, in set 0 and in a set of its own. */
static void leave_body(struct rank *self)
{
    struct pl_completion completions[2] = {{0}};
    const int all[] = {2, 1, 0};
    float values[2] = {1, 1};
    char expected[PL_RANK_NAME_BYTES + 40], name[PL_RANK_NAME_BYTES];
    int set = -1;

    SERVICE(NULL);
    expect_ok(pl_service_add_set(service, all, 3, &set, &error));
    if (self->rank != 0) {
        for (int i = 0; i < 2; i++) {
            struct pl_named_op op = sum_of("never", &values[i], 1);

            expect_ok(pl_service_submit(service, i == 0 ? 0 : set, &op, &completions[i], &error));
        }
        for (int i = 2; i-- > 0;) {
            expect(pl_service_wait(service, &completions[i], &error) == PL_CANCELLED, "%s",
                   pl_status_name(completions[i].status));
            snprintf(expected, sizeof(expected), "%s shut the named tensors down",
                     pl_world_rank_name(self->world, 0, name));
            expect(strstr(error.cause, expected), "%s", error.cause);
        }
    }
    LEAVE();
}

TEST(a_rank_that_leaves_ends_what_others_wait_for)
{
    ck_assert_bodies(3, leave_body, NULL);
}

/* Rank 0 ends without a shutdown, with an operation of its own under way; the others wait in both sets. */
static void abort_body(struct rank *self)
{
    struct pl_error why = PL_ERROR_NONE;
    struct pl_completion completions[2] = {{0}};
    const int all[] = {2, 1, 0};
    float values[2] = {1, 1}, own = 1;
    char given_up[PL_ERROR_CAUSE_BYTES];
    int set = -1;

    SERVICE(NULL);
    pl_error_set(&why, PL_FAILED, "a test ends");
    expect_ok(pl_service_add_set(service, all, 3, &set, &error));
    for (int i = 0; i < 2; i++) {
        struct pl_named_op op = sum_of("never", &values[i], 1), alone = sum_of("alone", &own, 1);

        if (self->rank != 0 || i == 0) {
            expect_ok(
                pl_service_submit(service, i == 0 ? 0 : set, self->rank == 0 ? &alone : &op, &completions[i], &error));
        }
    }
    if (self->rank == 0) {
        pl_service_abort(service, &why);
        expect(pl_service_wait(service, &completions[0], &error) == PL_FAILED, "%s", error.cause);
    } else {
        for (int i = 2; i-- > 0;) {
            expect(pl_service_wait(service, &completions[i], &error) == PL_PEER, "%s",
                   pl_status_name(completions[i].status));
            expect(strstr(error.cause, ranks_given_up(self->world, 0, "a test ends", given_up)), "%s", error.cause);
        }
    }
    pl_service_free(service);
}

TEST(a_rank_that_aborts_fails_what_others_wait_for)
{
    ck_assert_bodies(3, abort_body, NULL);
}

/* Rank 1 is halted where all have agreed to make a set: rank 0's thread is in a collective that does not end. */
struct halt {
    struct pl_service *service;
    struct pl_error error;
    enum pl_status status;
    atomic_bool agreed, aborted, in_time;
    int set;
};

static void halt_rank_1(void *context, const struct pl_named_event *event)
{
    struct halt *halt = context;

    if (event->phase == PL_NAMED_AGREED && !atomic_exchange(&halt->agreed, true)) {
        int64_t deadline_ns = pl_deadline_after_ns(20 * PL_NS_PER_S);

        while (!atomic_load(&halt->aborted) && !pl_deadline_passed(deadline_ns)) {
            sched_yield();
        }
        atomic_store(&halt->in_time, atomic_load(&halt->aborted));
    }
}

static void note_agreed(void *context, const struct pl_named_event *event)
{
    struct halt *halt = context;

    if (event->phase == PL_NAMED_AGREED) {
        atomic_store(&halt->agreed, true);
    }
}

static void *add_alone(void *halt_at)
{
    struct halt *halt = halt_at;

    halt->status = pl_service_add_set(halt->service, (const int[]){1, 0}, 2, &halt->set, &halt->error);
    return NULL;
}

static void abort_in_time_body(struct rank *self)
{
    struct halt *halts = self->data, *own = &halts[self->rank], *other = &halts[1];
    const struct pl_named_observer observer = {
        .active = true, .context = own, .happened = self->rank == 0 ? note_agreed : halt_rank_1};
    const struct pl_named_options options = {.observer = &observer};
    struct pl_error why = PL_ERROR_NONE;
    pthread_t thread;

    SERVICE(&options);
    own->service = service;
    pl_error_set(&why, PL_FAILED, "a test ends");
    pthread_create(&thread, NULL, add_alone, own);
    if (self->rank == 0) {
        while (!atomic_load(&own->agreed)) {
            sched_yield();
        }
        pl_service_abort(service, &why);
        atomic_store(&other->aborted, true);
    }
    pthread_join(thread, NULL);
    expect(own->status == PL_OK, "%s: %s", pl_status_name(own->status), own->error.cause);
    expect(self->rank == 0 || atomic_load(&own->in_time), "the abort waited for rank 1");
    LEAVE();
}

TEST(an_abort_does_not_wait_for_a_collective_that_another_thread_is_in)
{
    static struct halt halts[2];

    ck_assert_bodies(2, abort_in_time_body, halts);
}

/* Freed without a shutdown: whoever submitted is told. The other rank sees its world fail. */
static void freed_body(struct rank *self)
{
    struct chain chain = {.completion = {.call = next_of_chain}, .left = 2, .value = 1};
    struct pl_completion completion = {0};
    float value = 1;
    struct pl_named_op op = sum_of("chain", &chain.value, 1), other = sum_of("other", &value, 1);

    SERVICE(NULL);
    if (self->rank == 0) {
        expect_ok(pl_service_submit(service, 0, &op, &chain.completion, &error));
        expect_ok(pl_service_submit(service, 0, &other, &completion, &error));
        pl_service_free(service);
        expect(chain.ended == 2 && chain.completion.status == PL_CANCELLED, "%s",
               pl_status_name(chain.completion.status));
        expect(completion.done && completion.status == PL_CANCELLED, "%s", pl_status_name(completion.status));
        return;
    }
    pl_service_free(service);
}

TEST(freeing_ends_what_is_under_way)
{
    ck_assert_bodies(2, freed_body, NULL);
}

UNIT_MAIN("runtime/service")
