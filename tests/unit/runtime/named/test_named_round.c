/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/rounds.c, runtime/named/service_sets.c, collectives/core/request_wait.c. */
/* Waits that take long: what observers of a world get of them. */
#include "base/clock.h"
#include "collectives/world_private.h"
#include "runtime/service.h"
#include "tests/unit/runtime/named/engine.h"

#include <stdatomic.h>
#include <string.h>

static const int64_t STALL_NS = 50 * PL_NS_PER_MS;

struct seen {
    int late; /* the rank that comes last */
    int rank; /* who says so */
    int ended, stalled, stalled_for, waited_for;
    int64_t waited_ns;
    char name[20], about[400];
};

static void see_ended(void *context, const struct pl_event *event)
{
    struct seen *seen = context;

    seen->ended++;
    seen->waited_for = event->waited_for;
    seen->waited_ns = event->waited_ns;
    snprintf(seen->name, sizeof(seen->name), "%s", event->name);
}

static _Atomic int ranks_stalled; /* ranks are threads */

static void see_stalled(void *context, const struct pl_event *event)
{
    struct seen *seen = context;

    /* A rank that the machine held up may have been waited for first. */
    ranks_stalled += event->waited_for == seen->late && seen->stalled_for != seen->late;
    seen->stalled++;
    seen->stalled_for = event->waited_for;
    snprintf(seen->about, sizeof(seen->about), "%s", event->about);
}

/* The last rank comes when all others have stalled for it; they say for whom they waited, and how often that was a
 * stall. */
static void late_body(struct rank *self)
{
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);
    struct seen seen = {.late = self->size - 1, .stalled_for = -1};
    struct pl_observer observer = {
        .context = &seen, .ended = see_ended, .stall_ns = 100 * PL_NS_PER_MS, .stalled = see_stalled};
    struct pl_error error = PL_ERROR_NONE;
    float value = 1;
    struct pl_collective sum = {.kind = PL_ALLREDUCE,
                                .dtype = PL_FLOAT32,
                                .op = PL_SUM,
                                .count = 1,
                                .send = &value,
                                .recv = &value,
                                .name = "late"};

    expect_ok(pl_barrier(self->world, &error));
    pl_world_observe(self->world, &observer);
    while (self->rank == self->size - 1 && ranks_stalled < self->size - 1 && !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(10 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    expect_ok(pl_collective_run(self->world, &sum, &error));
    expect(seen.ended == 1 && strcmp(seen.name, "late") == 0, "%d events, the last '%s'", seen.ended, seen.name);
    if (self->rank < self->size - 1) {
        expect(seen.waited_for == self->size - 1, "waited for rank %d", seen.waited_for);
        expect(seen.waited_ns >= observer.stall_ns, "waited %lld ns", (long long)seen.waited_ns);
        expect(seen.stalled_for == self->size - 1, "%d stalls, for rank %d", seen.stalled, seen.stalled_for);
        expect(seen.stalled >= 1 && observer.stall_ns << (seen.stalled - 1) <= seen.waited_ns,
               "%d stalls: each tells after twice the time of the last", seen.stalled);
    } else {
        expect(seen.stalled == 0, "the late rank stalled %d times", seen.stalled);
    }
    pl_world_observe(self->world, NULL);
    expect_ok(pl_barrier(self->world, &error));
    expect(seen.ended == 1, "an event after the end");
}

TEST(a_wait_tells_for_whom)
{
    for (int size = 2; size <= 3; size++) {
        ranks_stalled = 0;
        ck_assert_bodies(size, late_body, NULL);
    }
}

/* What one rank signals to the others outside of Paceline. */
static atomic_int told;

static void nap_until_told(int count)
{
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);

    while (atomic_load(&told) < count && !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
}

static void notify_stalled(void *context, const struct pl_event *event)
{
    struct seen *seen = context;

    if (event->waited_for == seen->late && seen->stalled++ == 0) {
        seen->rank = event->rank;
        snprintf(seen->about, sizeof(seen->about), "%s", event->about);
        atomic_fetch_add(&told, 1);
    }
}

static void see_part(void *context, const struct pl_event *event)
{
    struct seen *seen = context;

    seen->ended += event->part > 0;
    if (event->part > 0 && seen->ended == 1) {
        snprintf(seen->name, sizeof(seen->name), "%s", event->name);
    }
}

#define OBSERVE(late_rank)                                                                                             \
    struct seen seen = {.late = (late_rank)};                                                                          \
    const struct pl_observer observer = {                                                                              \
        .context = &seen, .stall_ns = STALL_NS, .ended = see_part, .stalled = notify_stalled};                         \
    pl_world_observe(self->world, &observer)

enum call { RUN, JOIN, SHUT_DOWN };

/* The last rank makes the call `data` when all others have said that they wait for it there. */
static void late_in_round_body(struct rank *self)
{
    float value = 1;
    struct pl_named_op op = sum_of("lost", &value, 1);
    int last_rank;

    ENGINE(NULL);
    OBSERVE(self->size - 1);
    if (self->rank == seen.late) {
        nap_until_told(self->size - 1);
    }
    switch (*(enum call *)self->data) {
    case RUN:
        expect_ok(engine_run(named, &op, NULL, &error));
        expect(self->rank == seen.late ||
                   strcmp(seen.about, "agreeing on named tensors: 'lost' is submitted here") == 0,
               "'%s'", seen.about);
        break;
    case JOIN:
        expect_ok(engine_join(named, &last_rank, &error));
        expect(self->rank == seen.late || strcmp(seen.about, "agreeing on named tensors: this rank has joined") == 0,
               "'%s'", seen.about);
        break;
    case SHUT_DOWN:
        expect_ok(engine_shutdown(named, &error));
        expect(self->rank == seen.late ||
                   strcmp(seen.about, "agreeing on named tensors: this rank shuts them down") == 0,
               "'%s'", seen.about);
        break;
    }
    engine_free(named);
}

/* Both ranks poll, so that rounds have no end, until rank 0 has said who lacks what. */
static void polled_body(struct rank *self)
{
    float left_value = 1, right_value = 1;
    struct pl_named_op left = sum_of("left", &left_value, 1), right = sum_of("right", &right_value, 1);
    engine_handle handle;
    bool done = false;

    ENGINE(NULL);
    OBSERVE(-1);
    expect_ok(engine_submit(named, self->rank == 0 ? &left : &right, &handle, &error));
    while (atomic_load(&told) == 0) {
        done = engine_poll(named, handle);
        expect(!done, "nobody else has submitted it");
    }
    expect_ok(engine_run(named, self->rank == 0 ? &right : &left, NULL, &error));
    expect_ok(engine_wait(named, handle, NULL, &error));
    if (self->rank == 0) {
        expect(strncmp(seen.about, "agreeing on named tensors: ", 27) == 0 &&
                   strstr(seen.about, "'left': submitted by rank 0, not by 1") &&
                   strstr(seen.about, "'right': submitted by rank 1, not by 0"),
               "'%s'", seen.about);
    } else {
        expect(seen.stalled == 0, "rank 0 speaks for all");
    }
    engine_free(named);
}

TEST(a_stall_in_named_tensors_names_one)
{
    for (enum call call = RUN; call <= SHUT_DOWN; call++) {
        for (int size = 2; size <= 3; size++) {
            atomic_store(&told, 0);
            ck_assert_bodies(size, late_in_round_body, &call);
        }
    }
    atomic_store(&told, 0);
    ck_assert_bodies(2, polled_body, NULL);
}

/* The last rank comes late to a process set of the last two. Ranks are named by their global numbers. */
static void late_in_set_body(struct rank *self)
{
    int late = self->size - 1, set = -1;
    float value = 1;
    struct pl_named_op op = sum_of("lost", &value, 1);
    struct pl_completion completion = {0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    char words[2][24];

    OBSERVE(self->rank == late - 1 ? late : RANKS_MOST); /* other ranks may wait for the late one in the set of all */
    snprintf(words[0], sizeof(words[0]), ": rank %d: ", late - 1);
    snprintf(words[1], sizeof(words[1]), "; rank %d: ", late);
    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    expect_ok(pl_service_add_set(service, (int[]){late - 1, late}, 2, &set, &error));
    if (self->rank == late) {
        nap_until_told(1);
    }
    if (self->rank >= late - 1) {
        expect_ok(pl_service_submit(service, set, &op, &completion, &error));
        expect_ok(pl_service_wait(service, &completion, &error));
        op.shape[0] = self->rank == late ? 2 : 1;
        op.send = op.recv = (float[2]){1, 1};
        expect_ok(pl_service_submit(service, set, &op, &completion, &error));
        expect(pl_service_wait(service, &completion, &error) == PL_MISMATCH && strstr(error.cause, words[0]) &&
                   strstr(error.cause, words[1]),
               "%s", error.cause);
    }
    expect(self->rank != late - 1 || (seen.rank == self->rank &&
                                      strcmp(seen.about, "agreeing on named tensors: 'lost' is submitted here") == 0),
           "rank %d: '%s'", seen.rank, seen.about);
    expect(self->rank < late - 1 ? seen.ended == 0 : seen.ended > 0 && strcmp(seen.name, "agreement") == 0,
           "%d collectives of the set were seen, the first is '%s'", seen.ended, seen.name);
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

TEST(a_process_set_calls_ranks_by_their_numbers_among_all)
{
    for (int size = 3; size <= 4; size++) {
        atomic_store(&told, 0);
        ck_assert_bodies(size, late_in_set_body, NULL);
    }
}

UNIT_MAIN("runtime/named_round")
