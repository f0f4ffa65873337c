/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/request_wait.c, collectives/core/request.c, collectives/bootstrap/bootstrap.c,
 * collectives/p2p/p2p.c, collectives/p2p/cost_model.c. */
/* Ranks that do not come, or stop sending: reported at the deadline, with their number, by ranks that wait and by
 * ranks that only test. */
#include "base/clock.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/hier/state.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/p2p/state.h"

#include "base/knob.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <limits.h>

static char room[2][RANKS_MOST][1 << 20];

static void wait_in_vain(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct pl_collective *shape = argument;
    struct pl_collective c = *shape;
    int rank = pl_world_rank(world);
    struct pl_error error = PL_ERROR_NONE;
    int64_t begin_ns = pl_clock_now_ns();
    enum pl_status status;

    c.send = room[0][rank];
    c.recv = room[1][rank];
    c.deadline_ns = begin_ns + 30 * PL_NS_PER_MS;
    if (rank == 1) {
        /* Stays away until the others' deadlines have passed; then its own passes or it gets their error. */
        pl_clock_nap(60 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
        return;
    }
    status = pl_collective_run(world, &c, &error);
    RANKS_NEED(status == PL_TIMEOUT || status == PL_PEER, "%s ended with %s: %s", pl_kind_text(c.kind),
               pl_status_name(status), error.cause);
    RANKS_NEED(pl_clock_now_ns() - begin_ns < 30 * PL_NS_PER_S, "%s: the deadline was 0.03 s, the wait %.1f s",
               pl_kind_text(c.kind), (double)(pl_clock_now_ns() - begin_ns) * 1e-9);
    RANKS_NEED(pl_world_failure(world, NULL) == status, "the failure did not stay with the world");
}

TEST(a_missing_rank_is_noticed_by_the_deadline_in_every_operation)
{
    for (int kind = 0; kind < PL_KIND_COUNT; kind++) {
        for (int large = 0; large < 2; large++) {
            struct pl_collective shape = {.kind = (enum pl_kind)kind, .count = large ? 50000 : 5, .root = 1};

            ck_assert_ranks(3, NULL, wait_in_vain, &shape);
            ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), wait_in_vain, &shape);
        }
    }
}

/* A rank that waits inside a host names a late or gone rank by its number in the world. */
static void wait_beside(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error error = PL_ERROR_NONE;
    int rank = pl_world_rank(world);
    char text[1000];
    enum pl_status status;

    if (rank == 3) {
        pl_clock_nap(*(const int64_t *)argument, PL_DEADLINE_NEVER);
        return;
    }
    status = pl_collective_run(world,
                               &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                        .count = 50000,
                                                        .send = room[0][rank],
                                                        .recv = room[1][rank],
                                                        .deadline_ns = pl_deadline_after_ns(300 * PL_NS_PER_MS)}),
                               &error);
    RANKS_NEED(status == PL_TIMEOUT || status == PL_PEER, "%s", pl_status_name(status));
    RANKS_NEED(rank != 2 || strstr(pl_error_text(&error, text, sizeof(text)), "rank 3"), "'%s' does not name rank 3",
               text);
}

TEST(a_missing_rank_of_the_same_host_is_named_by_its_number_in_the_world)
{
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), wait_beside,
                    &(int64_t){400 * PL_NS_PER_MS});
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), wait_beside, &(int64_t){0});
}

/* As wait_in_vain, but it tests now and then instead of waiting. */
static void look_in_vain(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int64_t begin_ns = pl_clock_now_ns();
    struct pl_request *request;
    enum pl_status status = PL_OK;
    float value = 1.0F;
    bool done = false;

    if (pl_world_rank(world) == 1) {
        pl_clock_nap(60 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
        return;
    }
    RANKS_OK(pl_collective_post(world,
                                &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                         .count = 1,
                                                         .send = &value,
                                                         .recv = &value,
                                                         .deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_MS)}),
                                &request, &error));
    while (!done && pl_clock_now_ns() - begin_ns < 30 * PL_NS_PER_S) {
        status = pl_request_test(request, &done, NULL);
    }
    RANKS_NEED(done && (status == PL_TIMEOUT || status == PL_PEER), "after the deadline: %s", pl_status_name(status));
    RANKS_NEED(pl_request_wait(request, NULL) == status, "the wait says something else");
}

TEST(a_missing_rank_is_noticed_by_testing_too)
{
    ck_assert_ranks(3, NULL, look_in_vain, NULL);
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), look_in_vain, NULL);
}

/* The setting is also the timeout of making the world, and long enough for that; only then it is shortened. Rank 1
 * is late and does not leave. */
static void wait_for_default(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    pthread_barrier_t *over = argument;
    int64_t setting_ns = world->timeout_ns;
    int64_t waited_ns = PL_NS_PER_S;
    enum pl_status status = PL_TIMEOUT;

    if (pl_world_rank(world) == 0) {
        int64_t begin_ns = pl_clock_now_ns();

        world->timeout_ns = PL_NS_PER_S;
        status = pl_barrier(world, NULL);
        waited_ns = pl_clock_now_ns() - begin_ns;
    }
    pthread_barrier_wait(over);
    RANKS_NEED(setting_ns == 30 * PL_NS_PER_S, "the setting of 30 s is %g s", (double)setting_ns * 1e-9);
    RANKS_NEED(status == PL_TIMEOUT, "no timeout: %s", pl_status_name(status));
    RANKS_NEED(waited_ns >= PL_NS_PER_S, "before the world's timeout, after %g s", (double)waited_ns * 1e-9);
}

TEST(the_worlds_timeout_holds_where_no_deadline_is_given)
{
    pthread_barrier_t over;
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "30");

    pthread_barrier_init(&over, NULL, 2);
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), wait_for_default, &over);
    pthread_barrier_destroy(&over);
}

/* Waits longer than the clock can count from now, and without a limit. */
static void wait_for_long(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    if (pl_world_rank(world) == 1) {
        pl_clock_nap(50 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    RANKS_OK(pl_barrier(world, &error));
}

TEST(the_longest_timeout_is_long)
{
    static const char *const values[] = {"9223372036", "0"};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, values[i]);

        ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), wait_for_long, NULL);
        ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), wait_for_long,
                        NULL);
    }
}

/* A bootstrap whose exchanges fail after the first few. */
struct maker {
    struct pl_bootstrap bootstrap;
    struct pl_bootstrap *real;
    struct pl_world_options options;
    int exchanges_left;
    int64_t split_deadline_ns; /* that the last split got */
    enum pl_status status;     /* result of making the world */
    pthread_t thread;
};

static enum pl_status failing_exchange(void *context, const struct pl_error *failed, const void *send, void *recv,
                                       size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    struct maker *maker = context;

    if (maker->exchanges_left-- <= 0) {
        return pl_error_set(reterr, PL_TIMEOUT, "no exchange is left");
    }
    return maker->real->exchange(maker->real->context, failed, send, recv, bytes, deadline_ns, reterr);
}

static enum pl_status split_real(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                                 int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct maker *maker = context;

    maker->split_deadline_ns = deadline_ns;
    return maker->real->split(maker->real->context, ranks, count, purpose, deadline_ns, ret_bootstrap, reterr);
}

static void wrap(struct maker *maker)
{
    maker->bootstrap = *maker->real;
    maker->bootstrap.context = maker;
    maker->bootstrap.exchange = failing_exchange;
    maker->bootstrap.split = split_real;
}

static void *make_world(void *argument)
{
    struct maker *maker = argument;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world *world = NULL;

    wrap(maker);
    maker->status = pl_world_new(&maker->bootstrap, &maker->options, &world, &error);
    pl_world_free(world);
    return NULL;
}

enum { MAKERS = 4 };

/* Makes worlds: rank 1 has `exchanges`, and so have all others unless it fails alone. */
static void make_worlds(struct maker makers[MAKERS], const struct pl_world_options *options, int exchanges, bool alone)
{
    struct pl_bootstrap *real[MAKERS];

    ck_ok(pl_bootstrap_new_threads, MAKERS, real);
    for (int r = 0; r < MAKERS; r++) {
        makers[r] = (struct maker){
            .real = real[r], .options = *options, .exchanges_left = alone && r != 1 ? INT_MAX : exchanges};
        ck_assert_int_eq(pthread_create(&makers[r].thread, NULL, make_world, &makers[r]), 0);
    }
    for (int r = 0; r < MAKERS; r++) {
        ck_assert_int_eq(pthread_join(makers[r].thread, NULL), 0);
        pl_bootstrap_free(real[r]);
    }
}

/* No memory is leaked wherever it fails: the leak checker of the sanitized build tests that. */
TEST(a_world_that_cannot_start_fails_at_each_exchange_alike)
{
    enum { EXCHANGES_MOST = 100 };
    struct maker makers[MAKERS];
    int exchanges = 0;

    do {
        make_worlds(makers, &(struct pl_world_options){.pretend_ranks_per_host = 2}, exchanges, false);
        for (int r = 0; r < MAKERS; r++) {
            ck_assert_msg(makers[r].status == makers[0].status &&
                              (makers[r].status == PL_OK || makers[r].status == PL_TIMEOUT),
                          "rank %d of %d exchanges: %s", r, exchanges, pl_status_name(makers[r].status));
        }
        exchanges++;
    } while (makers[0].status != PL_OK && exchanges < EXCHANGES_MOST);
    ck_assert_msg(makers[0].status == PL_OK && exchanges > 5, "a world took %d exchanges", exchanges);
}

TEST(a_rank_that_is_lost_while_a_world_is_made_is_noticed_within_the_timeout)
{
    struct maker makers[MAKERS];
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "0.05");
    int exchanges;

    make_worlds(makers, &(struct pl_world_options){.knobs = NULL}, INT_MAX, true);
    exchanges = INT_MAX - makers[1].exchanges_left;
    ck_assert(makers[1].status == PL_OK && exchanges > 5);
    while (exchanges-- > 0) {
        int64_t begin_ns = pl_clock_now_ns();

        make_worlds(makers, &(struct pl_world_options){.knobs = &knobs}, exchanges, true);
        ck_assert_msg(makers[0].status != PL_OK && makers[1].status != PL_OK, "exchange %d was made without rank 1",
                      exchanges);
        ck_assert_msg(pl_clock_now_ns() - begin_ns < 20 * PL_NS_PER_S, "exchange %d is waited for longer", exchanges);
    }
}

/* Over MPI a rank waits for the others in a split: its deadline is the earlier of the caller's and the world's. */
TEST(ranks_meet_for_a_sub_world_until_the_earlier_deadline)
{
    static const char *const timeouts[] = {"0", "1000"};
    const int64_t given[] = {PL_DEADLINE_NEVER, pl_deadline_after_ns(100 * PL_NS_PER_S),
                             pl_deadline_after_ns(100000 * PL_NS_PER_S)};
    struct pl_error error = PL_ERROR_NONE;

    for (int limited = 0; limited < 2; limited++) {
        for (size_t i = 0; i < PL_ARRAY_ITEMS(given); i++) {
            struct maker maker = {.exchanges_left = INT_MAX};
            struct pl_world *world = NULL, *twin = NULL, *sub = NULL;
            struct pl_knobs knobs;
            int64_t from_ns, until_ns, most_ns;

            pl_knobs_default(&knobs);
            ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, timeouts[limited], "test");
            ck_ok(pl_bootstrap_new_threads, 1, &maker.real);
            wrap(&maker);
            ck_ok(pl_world_new, &maker.bootstrap, &(struct pl_world_options){.knobs = &knobs}, &world);
            for (int is_twin = 0; is_twin < 2; is_twin++) {
                from_ns = pl_world_deadline_ns(world);
                ck_assert_ok(is_twin ? pl_world_new_twin(world, NULL, given[i], &twin, &error)
                                     : pl_world_new_sub_until(world, (int[]){0}, 1, given[i], &sub, &error),
                             &error);
                until_ns = pl_world_deadline_ns(world);
                most_ns = given[i] < until_ns ? given[i] : until_ns;
                from_ns = given[i] < from_ns ? given[i] : from_ns;
                ck_assert(maker.split_deadline_ns >= from_ns && maker.split_deadline_ns <= most_ns);
            }
            pl_world_free(twin);
            pl_world_free(sub);
            pl_world_free(world);
            pl_bootstrap_free(maker.real);
        }
    }
}

static enum pl_status refuse_exchange(void *context, const struct pl_error *failed, const void *send, void *recv,
                                      size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_TIMEOUT, "no exchange is left");
}

/* Acts as between hosts, though these are pretended. */
static void time_links_in_vain(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_p2p *p2p = NULL;

    for (int i = 0; i < world->backend_count; i++) {
        p2p = world->backends[i].backend == &pl_backend_p2p ? world->backends[i].state : p2p;
    }
    world->topology.one_process = false;
    RANKS_OK(pl_p2p_model(p2p, &error));
    for (int probe = 1; probe < PL_P2P_PROBES; probe++) {
        RANKS_NEED(p2p->message_ns[probe] >= p2p->message_ns[probe - 1] && p2p->message_ns[0] > 0, "probe %d: %g ns",
                   probe, p2p->message_ns[probe]);
    }
    pl_world_bootstrap(world)->exchange = refuse_exchange;
    RANKS_NEED(pl_p2p_model(p2p, NULL) == PL_TIMEOUT, "what was timed needs no agreement");
}

/* The leak checker tests this too. */
UNIT_TEST(link_timings_are_dropped_where_ranks_cannot_share_them,
          ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), time_links_in_vain, NULL))

/* Rank 1 takes part, but its slots' messages are lost: the rank that waits for it reports that. */
static enum pl_status (*real_send)(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                   struct pl_transfer *transfer, struct pl_error *reterr);

static enum pl_status lose_lanes(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                 struct pl_transfer *transfer, struct pl_error *reterr)
{
    if (tag < PL_TAG_P2P || (tag - PL_TAG_P2P) % PL_CHECK_CALLS_TAGS == PL_CHECK_CALLS_TAGS - 1) {
        return real_send(context, data, bytes, peer, tag, transfer, reterr);
    }
    *transfer = (struct pl_transfer){.active = false};
    return PL_OK;
}

static const struct pl_p2p *p2p_of(const struct pl_world *world)
{
    int i = 0;

    while (world->backends[i].backend != &pl_backend_p2p) {
        i++;
    }
    return world->backends[i].state;
}

static void wait_half_way(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_transport *transport = pl_world_bootstrap(world)->transport;
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    struct pl_request *request;
    bool done = false;
    int says = rank; /* or a rank whose deadline has passed earlier */
    char scratch[40];
    char text[1000];

    if (rank == 1) {
        real_send = transport->send;
        transport->send = lose_lanes;
    }
    RANKS_OK(pl_collective_post(world,
                                &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                         .count = 50000,
                                                         .send = room[0][rank],
                                                         .recv = room[1][rank],
                                                         .deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S)}),
                                &request, &error));
    while (!p2p_of(world)->check.done && !done) {
        (void)!pl_request_test(request, &done, &told);
    }
    request->deadline_ns = 1; /* only now: before, the wait is for a rank that is late in the call check */
    RANKS_NEED(pl_request_wait(request, &told) == PL_TIMEOUT, "%s", told.cause);
    (void)!(strstr(told.cause, "has given up") && sscanf(told.cause, "rank %d on host ", &says));
    snprintf(scratch, sizeof(scratch), "waiting for rank %d", (says + 2) % 3);
    RANKS_NEED(strstr(pl_error_text(&told, text, sizeof(text)), scratch), "'%s' is not in '%s'", scratch, text);
}

TEST(a_rank_that_falls_silent_half_way_is_named_by_who_waits_for_it)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_BACKEND, "p2p");

    ck_ok(pl_knob_set, &knobs, PL_KNOB_ALGORITHM, "ring", "test");
    ck_assert_ranks(3, &((struct pl_world_options){.knobs = &knobs}), wait_half_way, NULL);
}

/* Rank 0's receives are not cancelled: as in MPI, a message may still arrive in their buffers until the process
 * ends. */
enum { KEPT_MOST = 64, KEPT_BYTE = 0x77 };

static struct {
    unsigned char *data;
    size_t bytes;
} kept[KEPT_MOST];
static size_t kept_count;

static bool keep_receives(void *context, struct pl_transfer *transfer)
{
    transfer->active = false;
    if (!transfer->scratch[0]) {
        return true; /* a send, which has ended */
    }
    kept[kept_count].data = (unsigned char *)transfer->scratch[0];
    kept[kept_count].bytes = transfer->scratch[1];
    memset(kept[kept_count].data, KEPT_BYTE, kept[kept_count].bytes);
    kept_count++;
    return false;
}

static void leave_receives(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_transport *transport = pl_world_bootstrap(world)->transport;
    int rank = pl_world_rank(world);
    pthread_barrier_t *over = argument;
    enum pl_status status = PL_TIMEOUT;

    if (rank == 0) {
        transport->cancel = keep_receives;
        status = pl_collective_run(world,
                                   &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                            .count = 50000,
                                                            .send = room[0][rank],
                                                            .recv = room[1][rank],
                                                            .deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_MS)}),
                                   NULL);
    }
    pthread_barrier_wait(over);
    RANKS_NEED(status == PL_TIMEOUT, "%s", pl_status_name(status));
}

TEST(memory_that_a_message_may_still_come_to_is_not_used_again)
{
    pthread_barrier_t over;
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_BACKEND, "p2p");

    ck_ok(pl_knob_set, &knobs, PL_KNOB_ALGORITHM, "ring", "test");
    pthread_barrier_init(&over, NULL, 2);
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), leave_receives, &over);
    pthread_barrier_destroy(&over);
    ck_assert_uint_ge(kept_count, 2); /* the call check's buffer, and at least one of a slot */
    for (size_t i = 0; i < kept_count; i++) {
        for (size_t at = 0; at < kept[i].bytes; at++) {
            ck_assert_msg(kept[i].data[at] == KEPT_BYTE, "byte %zu of receive %zu of %zu is in use again", at, i,
                          kept_count);
        }
        free(kept[i].data);
    }
}

/* Rank 2's messages to other hosts, except the call check's, do not leave: the second test of one is an error, and
 * they cannot be cancelled. */
static enum pl_status (*real_test)(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                   struct pl_error *reterr);

static enum pl_status keep_send(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                struct pl_transfer *transfer, struct pl_error *reterr)
{
    PL_TRY(real_send(context, data, bytes, peer, tag, transfer, reterr));
    if (tag >= PL_TAG_P2P && (tag - PL_TAG_P2P) % PL_CHECK_CALLS_TAGS != PL_CHECK_CALLS_TAGS - 1) {
        transfer->scratch[1] = (uintptr_t)data;
        transfer->scratch[2] = bytes;
    }
    return PL_OK;
}

static bool is_kept(const struct pl_transfer *transfer)
{
    return !transfer->scratch[0] && transfer->scratch[1];
}

static enum pl_status test_kept(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                struct pl_error *reterr)
{
    return is_kept(transfer) ? pl_error_set(reterr, PL_LIBRARY, "the wire broke")
                             : real_test(context, transfer, ret_done, ret_bytes, reterr);
}

static struct pl_transport *between; /* rank 2's transport between hosts */
static char *lost;                   /* the slot's own memory, which is never freed: the leak checker finds it here */

static bool cancel_kept(void *context, struct pl_transfer *transfer)
{
    transfer->active = false;
    if (!is_kept(transfer)) {
        return true;
    }
    kept[kept_count].data = (unsigned char *)transfer->scratch[1];
    kept[kept_count].bytes = transfer->scratch[2];
    memset(kept[kept_count].data, KEPT_BYTE, kept[kept_count].bytes);
    kept_count++;
    lost = ((struct pl_p2p_slot *)(void *)((char *)transfer - offsetof(struct pl_p2p_slot, out)))->accumulator;
    between->leaked = true;
    return false;
}

/* Rank 3 has to give its part to rank 2, so its deadline is as long. */
static void leave_sends(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    for (int i = 0; rank == 2 && i < world->backend_count; i++) {
        if (world->backends[i].backend == &pl_backend_hier) {
            between = pl_world_bootstrap(((struct pl_hier *)world->backends[i].state)->between)->transport;
            real_send = between->send;
            real_test = between->test;
            between->send = keep_send;
            between->test = test_kept;
            between->cancel = cancel_kept;
        }
    }
    status = pl_collective_run(
        world,
        &((struct pl_collective){.kind = PL_REDUCE,
                                 .dtype = PL_BFLOAT16,
                                 .count = 50000,
                                 .send = room[0][rank],
                                 .recv = room[1][rank],
                                 .deadline_ns = pl_deadline_after_ns((rank >= 2 ? 20000 : 300) * PL_NS_PER_MS)}),
        &told);
    RANKS_NEED(rank != 2 || status != PL_OK, "nothing was lost");
}

TEST(memory_that_a_message_may_still_leave_from_is_not_used_again)
{
    kept_count = 0;
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), leave_sends, NULL);
    ck_assert_uint_eq(kept_count, 1);
    ck_assert_ptr_nonnull(lost);
    for (size_t i = 0; i < kept_count; i++) {
        for (size_t at = 0; at < kept[i].bytes; at++) {
            ck_assert_msg(kept[i].data[at] == KEPT_BYTE, "byte %zu of send %zu of %zu is in use again", at, i,
                          kept_count);
        }
    }
}

UNIT_MAIN("collectives/wait")
