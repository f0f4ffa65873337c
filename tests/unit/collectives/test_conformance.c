/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/p2p/p2p.c, collectives/p2p/cost_model.c, collectives/hier/hier.c, collectives/hier/pipeline.c,
 * collectives/shm/run.c. */
/* The short form of the conformance matrix, with threads as ranks. tests/integration/conformance.sh runs the long
 * one. */
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"

#include "base/clock.h"
#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/scenarios/conformance.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

static const uint64_t counts[] = {0, 1, 17, 2003};

/* Makes several segments even for these sizes. */
static void small_segments(struct pl_knobs *knobs, const char *backend, const char *algorithm)
{
    pl_knobs_default(knobs);
    ck_ok(pl_knob_set, knobs, PL_KNOB_SEGMENT_BYTES, "512", "test");
    ck_ok(pl_knob_set, knobs, PL_KNOB_BACKEND, backend, "test");
    ck_ok(pl_knob_set, knobs, PL_KNOB_ALGORITHM, algorithm, "test");
    ck_ok(pl_knob_set, knobs, PL_KNOB_TIMEOUT_S, "30", "test");
}

static void run(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct conformance conformance = *(const struct conformance *)argument;

    conformance_run(world, &conformance);
    RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
}

static void run_sizes(const struct pl_world_options *options, struct conformance conformance)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ck_assert_ranks(sizes[i], options, run, &conformance);
    }
}

TEST(every_operation_is_right_over_messages)
{
    struct pl_knobs knobs;

    small_segments(&knobs, "p2p", "");
    run_sizes(&(struct pl_world_options){.knobs = &knobs}, (struct conformance){.counts = counts, .count_count = 4});
}

TEST(every_allreduce_algorithm_is_right)
{
    static const char *const algorithms[] = {"ring", "halving", "doubling", "tree", "direct"};
    static const uint64_t two[] = {3, 3011};
    struct pl_knobs knobs;

    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        for (int size = 2; size <= 5; size++) {
            small_segments(&knobs, "p2p", algorithms[i]);
            ck_assert_ranks(size, &(struct pl_world_options){.knobs = &knobs}, run,
                            &((struct conformance){.counts = two, .count_count = 2}));
        }
    }
}

TEST(every_type_is_right)
{
    static const uint64_t two[] = {5, 1503};
    struct pl_knobs knobs;

    small_segments(&knobs, "", "");
    ck_assert_ranks(3, &(struct pl_world_options){.knobs = &knobs}, run,
                    &((struct conformance){.counts = two, .count_count = 2, .all_types = true}));
}

/* Between hosts (each rank is one, or has two ranks) ranks that agree do not compare their calls. */
TEST(every_operation_is_right_without_a_call_check)
{
    static const uint64_t two[] = {0, 20021};
    struct pl_knobs knobs;

    for (int local = 1; local <= 2; local++) {
        small_segments(&knobs, local == 1 ? "p2p" : "", "");
        ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = local}), run,
                        &((struct conformance){.counts = two, .count_count = 2, .flags = PL_AGREED}));
    }
}

/* Each rank says that all agree, and names its sum differently. */
static void differ_after_all(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 20000 };
    static float room[RANKS_MOST][COUNT];
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    int rank = pl_world_rank(world);

    status = pl_collective_run(world,
                               &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                       .flags = PL_AGREED,
                                                       .name = rank / 2 ? "b" : "a",
                                                       .count = COUNT,
                                                       .send = room[rank],
                                                       .recv = room[rank],
                                                       .deadline_ns = pl_deadline_after_ns(PL_NS_PER_S / 4)},
                               &error);
    RANKS_NEED(status == PL_TIMEOUT, "%d %s", status, error.cause);
}

TEST(ranks_that_differ_after_all_take_nothing_from_each_other)
{
    for (int local = 1; local <= 2; local++) {
        struct pl_knobs knobs;

        small_segments(&knobs, local == 1 ? "p2p" : "", "");
        ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = local}),
                        differ_after_all, NULL);
    }
}

TEST(every_operation_is_right_across_hosts)
{
    static const int layouts[][2] = {{4, 2}, {5, 2}, {6, 3}}; /* ranks, ranks per host: the last host may have fewer */
    static const uint64_t four[] = {1, 2003, 16385, 20021};   /* 16385: one more than whole cache lines of two ranks */
    struct pl_knobs knobs;

    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        small_segments(&knobs, "", "");
        ck_assert_ranks(layouts[i][0],
                        &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = layouts[i][1]}), run,
                        &((struct conformance){.counts = four, .count_count = i == 0 ? 4 : 2, .arena = i % 2 == 1}));
    }
}

static void run_small(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int32_t size = pl_world_size(world), sum = 0, most = -1, mine = pl_world_rank(world);
    struct pl_error error = PL_ERROR_NONE;

    for (int root = 0; root < size; root++) {
        RANKS_NEED(pl_barrier(world, &error) == PL_OK, "%s", error.cause);
        RANKS_NEED(pl_allreduce(world, &mine, &sum, 1, PL_INT32, PL_SUM, &error) == PL_OK, "%s", error.cause);
        RANKS_NEED(sum == size * (size - 1) / 2, "sum %d", sum);
        RANKS_NEED(pl_reduce(world, &mine, &most, 1, PL_INT32, PL_MAX, root, &error) == PL_OK, "%s", error.cause);
        RANKS_NEED(mine != root || most == size - 1, "maximum %d", most);
    }
}

/* Asks for a collective that only other backends serve, which the setting `backend` has turned off. */
static void ask_another(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error error = PL_ERROR_NONE;
    char byte = 1, all[RANKS_MOST];

    RANKS_NEED(pl_allgather(world, &byte, all, 1, PL_UINT8, &error) == PL_UNSUPPORTED &&
                   strcmp(error.cause, "no backend of this world serves allgather of uint8 in host memory") == 0 &&
                   strstr(error.context, "the setting backend asks for hier only"),
               "%s (%s)", error.cause, error.context);
}

/* Without the setting the p2p backend serves these. */
TEST(small_ones_go_inside_and_between_as_well)
{
    struct pl_knobs knobs;

    small_segments(&knobs, "hier", "");
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), run_small, NULL);
    ck_assert_ranks(6, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 3}), run_small, NULL);
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), ask_another, NULL);
}

/* A sub-world whose hosts have their ranks in different orders. */
static void run_crosswise(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const int order[] = {0, 2, 3, 1};
    struct conformance conformance = *(const struct conformance *)argument;
    PL_AUTO_WORLD struct pl_world *sub = NULL;

    RANKS_OK(pl_world_new_sub(world, order, 4, &sub, &error));
    conformance_run(sub, &conformance);
    RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
}

TEST(every_operation_is_right_whatever_the_order_of_ranks)
{
    static const uint64_t one[] = {2003};
    struct pl_knobs knobs;

    small_segments(&knobs, "", "");
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), run_crosswise,
                    &((struct conformance){.counts = one, .count_count = 1}));
}

TEST(every_operation_is_right_in_the_arena)
{
    struct pl_knobs knobs;

    small_segments(&knobs, "", "");
    run_sizes(&(struct pl_world_options){.knobs = &knobs},
              (struct conformance){.counts = counts, .count_count = 4, .arena = true});
}

/* Rank r sends 17 r mod 35 rows, rank 0 none: each rank has a different number (D7). */
static void gather_ragged(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { RANKS = 35, ROWS = RANKS * (RANKS - 1) / 2 };
    int32_t own[RANKS], all[ROWS];
    uint64_t rows[RANKS], at = 0;
    int rank = pl_world_rank(world);

    for (int r = 0; r < RANKS; r++) {
        rows[r] = (uint64_t)(17 * r % RANKS);
        own[r] = 100 * rank + r;
    }
    RANKS_OK(pl_collective_run(
        world,
        &((struct pl_collective){.kind = PL_ALLGATHER, .dtype = PL_INT32, .counts = rows, .send = own, .recv = all}),
        &error));
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 17 * r % RANKS; i++, at++) {
            RANKS_NEED(all[at] == 100 * r + i, "row %d of rank %d is %d", i, r, all[at]);
        }
    }
}

TEST(thirty_five_ranks_gather_ragged_rows)
{
    ck_assert_ranks(35, NULL, gather_ragged, NULL);
    ck_assert_ranks(35, &((struct pl_world_options){.pretend_ranks_per_host = 4}), gather_ragged, NULL);
}

enum { COUNTED_RANKS = 8 };

static struct {
    void *context;
    int messages; /* to ranks of other hosts, which have two ranks each */
} counted[COUNTED_RANKS];
static enum pl_status (*real_send)(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                   struct pl_transfer *transfer, struct pl_error *reterr);

static enum pl_status count_send(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                 struct pl_transfer *transfer, struct pl_error *reterr)
{
    int rank = 0;

    while (counted[rank].context != context) {
        rank++;
    }
    counted[rank].messages += peer / 2 != rank / 2;
    return real_send(context, data, bytes, peer, tag, transfer, reterr);
}

static void count_messages(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static float room[COUNTED_RANKS][4096];
    struct pl_transport *transport = pl_world_bootstrap(world)->transport;
    uint64_t count = *(const uint64_t *)argument;
    int rank = pl_world_rank(world);
    int expected = rank % 2 == 0 ? 2 : 0;

    counted[rank].context = transport->context;
    counted[rank].messages = 0;
    if (rank == 0) {
        real_send = transport->send;
    }
    RANKS_OK(pl_barrier(world, &error));
    {
        PL_AUTO_HOLD(world);

        transport->send = count_send;
    }
    RANKS_OK(pl_allreduce(world, room[rank], room[rank], count, PL_FLOAT32, PL_SUM, &error));
    RANKS_NEED(counted[rank].messages == expected, "%d messages went to other hosts, expected %d",
               counted[rank].messages, expected);
}

TEST(a_small_sum_takes_one_message_a_host_and_round)
{
    for (uint64_t count = 1; count <= 4096; count *= 64) {
        ck_assert_ranks(COUNTED_RANKS, &((struct pl_world_options){.pretend_ranks_per_host = 2}), count_messages,
                        &count);
    }
}

UNIT_MAIN("collectives/conformance")
