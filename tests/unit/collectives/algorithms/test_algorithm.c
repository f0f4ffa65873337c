/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/algorithms/algorithm.c, collectives/p2p/cost_model.c. */
/* The algorithms on paper: every position holds a set of inputs for each block, and messages must carry the right
 * sets. Also the length of messages and the choice of the algorithm. */
#include "collectives/algorithms/algorithm.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/p2p/state.h"

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 33 };

/* held[place][block]: the inputs that are summed there, one bit per position. per_sender[place][sender]: the same for
 * the buffer of each sender.
 */
struct paper {
    uint64_t held[MOST][MOST];
    uint64_t per_sender[MOST][MOST];
};

static bool rooted(enum pl_algorithm algorithm)
{
    return algorithm == PL_ALGORITHM_TREE_BROADCAST || algorithm == PL_ALGORITHM_CHAIN_BROADCAST ||
           algorithm == PL_ALGORITHM_TREE_REDUCE || algorithm == PL_ALGORITHM_CHAIN_REDUCE ||
           algorithm == PL_ALGORITHM_DIRECT_REDUCE;
}

static bool starts_everywhere(enum pl_algorithm algorithm)
{
    return algorithm != PL_ALGORITHM_RING_ALLGATHER && algorithm != PL_ALGORITHM_TREE_BROADCAST &&
           algorithm != PL_ALGORITHM_CHAIN_BROADCAST;
}

static void begin(struct paper *paper, enum pl_algorithm algorithm, int n, int root)
{
    memset(paper, 0, sizeof(*paper));
    for (int p = 0; p < n; p++) {
        for (int b = 0; b < pl_algorithm_blocks(algorithm, n); b++) {
            bool has = starts_everywhere(algorithm) || (algorithm == PL_ALGORITHM_RING_ALLGATHER ? p == b : p == root);

            paper->held[p][b] = has ? UINT64_C(1) << p : 0;
        }
    }
}

/*
 * Rounds are not in lockstep: a position enters its next round when its own messages have ended. Here each position has
 * its own round, and messages wait in a queue per pair, so that an algorithm that relied on lockstep would hang or mix
 * rounds up.
 */
struct message {
    int blocks;
    uint64_t sets[MOST];
};

static struct message queue[MOST][MOST][2 * MOST];
static int queued[MOST][MOST];
static int taken[MOST][MOST];

static void send_step(const struct paper *paper, const struct pl_algorithm_step *step, int p)
{
    struct message *message = &queue[p][step->to][queued[p][step->to]++];

    message->blocks = step->send_blocks;
    for (int b = 0; b < step->send_blocks; b++) {
        message->sets[b] = step->per_sender ? UINT64_C(1) << p : paper->held[p][step->send_first + b];
    }
}

static void receive_step(struct paper *paper, const struct pl_algorithm_step *step, int p)
{
    const struct message *message = &queue[step->from][p][taken[step->from][p]++];

    ck_assert_int_eq(message->blocks, step->recv_blocks);
    for (int b = 0; b < step->recv_blocks; b++) {
        uint64_t *own = &paper->held[p][step->recv_first + b];

        if (step->per_sender) {
            paper->per_sender[p][step->from] = message->sets[b];
        } else if (step->combine) {
            ck_assert_uint_eq(*own & message->sets[b], 0); /* no input is added twice */
            *own |= message->sets[b];
        } else {
            *own = message->sets[b];
        }
    }
}

static void gather(struct paper *paper, int n, int p)
{
    for (int from = 0; from < n; from++) {
        paper->held[p][p] |= from == p ? 0 : paper->per_sender[p][from];
    }
}

static void run_on_paper(struct paper *paper, enum pl_algorithm algorithm, int n, int root)
{
    int round[MOST] = {0};
    bool sent[MOST] = {false};
    int ended = 0;

    memset(queued, 0, sizeof(queued));
    memset(taken, 0, sizeof(taken));
    begin(paper, algorithm, n, root);
    if (pl_algorithm_rounds(algorithm, n) == 0) {
        return;
    }
    while (ended < n) {
        bool moved = false;

        for (int p = n - 1; p >= 0; p--) {
            struct pl_algorithm_step step;

            if (round[p] >= pl_algorithm_rounds(algorithm, n)) {
                continue;
            }
            step = pl_algorithm_step_at(algorithm, n, p, root, round[p]);
            if (!sent[p] && step.to >= 0) {
                send_step(paper, &step, p);
                moved = true;
            }
            sent[p] = true;
            if (step.from >= 0 && queued[step.from][p] == taken[step.from][p]) {
                continue;
            }
            if (step.from >= 0) {
                receive_step(paper, &step, p);
            }
            if (pl_algorithm_reduces_per_sender(algorithm, n, round[p])) {
                gather(paper, n, p);
            }
            round[p]++;
            sent[p] = false;
            moved = true;
            ended += round[p] >= pl_algorithm_rounds(algorithm, n);
        }
        ck_assert_msg(moved, "%s stands still at %d places", pl_algorithm_text(algorithm), n);
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            ck_assert_int_eq(queued[a][b], taken[a][b]);
        }
    }
}

/* The inputs that `position` must hold of `block` in the end; 0: it does not matter. */
static uint64_t wanted(enum pl_algorithm algorithm, int n, int root, int position, int block)
{
    uint64_t all = (UINT64_C(1) << n) - 1;

    switch (algorithm) {
    case PL_ALGORITHM_RING:
    case PL_ALGORITHM_HALVING:
    case PL_ALGORITHM_DOUBLING:
    case PL_ALGORITHM_TREE:
    case PL_ALGORITHM_DIRECT:
        return all;
    case PL_ALGORITHM_RING_REDUCE_SCATTER:
    case PL_ALGORITHM_DIRECT_REDUCE_SCATTER:
        return position == block ? all : 0;
    case PL_ALGORITHM_RING_ALLGATHER:
        return UINT64_C(1) << block;
    case PL_ALGORITHM_TREE_BROADCAST:
    case PL_ALGORITHM_CHAIN_BROADCAST:
        return UINT64_C(1) << root;
    case PL_ALGORITHM_TREE_REDUCE:
    case PL_ALGORITHM_CHAIN_REDUCE:
    case PL_ALGORITHM_DIRECT_REDUCE:
        return position == root ? all : 0;
    case PL_ALGORITHM_PAIRWISE:
        return UINT64_C(1) << block;
    }
    return 0;
}

TEST(every_algorithm_brings_every_block_where_it_belongs)
{
    static struct paper paper;

    for (int p = 0; p < PL_ALGORITHM_COUNT; p++) {
        enum pl_algorithm algorithm = (enum pl_algorithm)p;

        if (algorithm == PL_ALGORITHM_PAIRWISE) {
            continue; /* it sends inputs only; the conformance matrix checks it */
        }
        for (int n = 1; n <= MOST; n++) {
            for (int root = 0; root < (rooted(algorithm) ? n : 1); root++) {
                run_on_paper(&paper, algorithm, n, root);
                for (int position = 0; position < n; position++) {
                    for (int block = 0; block < pl_algorithm_blocks(algorithm, n); block++) {
                        uint64_t want = wanted(algorithm, n, root, position, block);

                        ck_assert_msg(!want || paper.held[position][block] == want,
                                      "%s, n %d, root %d: place %d block %d", pl_algorithm_text(algorithm), n, root,
                                      position, block);
                    }
                }
            }
        }
    }
}

TEST(the_ring_of_five_looks_like_this)
{
    /* Rows are rounds, columns positions: the block sent to the next position, then the one received; + adds, =
     * replaces. */
    static const char *const drawing = "4>3+ 0>4+ 1>0+ 2>1+ 3>2+\n"
                                       "3>2+ 4>3+ 0>4+ 1>0+ 2>1+\n"
                                       "2>1+ 3>2+ 4>3+ 0>4+ 1>0+\n"
                                       "1>0+ 2>1+ 3>2+ 4>3+ 0>4+\n"
                                       "0>4= 1>0= 2>1= 3>2= 4>3=\n"
                                       "4>3= 0>4= 1>0= 2>1= 3>2=\n"
                                       "3>2= 4>3= 0>4= 1>0= 2>1=\n"
                                       "2>1= 3>2= 4>3= 0>4= 1>0=\n";
    char drawn[1000];
    size_t used = 0;

    for (int round = 0; round < pl_algorithm_rounds(PL_ALGORITHM_RING, 5); round++) {
        for (int position = 0; position < 5; position++) {
            struct pl_algorithm_step step = pl_algorithm_step_at(PL_ALGORITHM_RING, 5, position, 0, round);

            used += (size_t)snprintf(drawn + used, sizeof(drawn) - used, "%d>%d%c%c", step.send_first, step.recv_first,
                                     step.combine ? '+' : '=', position < 4 ? ' ' : '\n');
        }
    }
    ck_assert_str_eq(drawn, drawing);
}

TEST(doubling_of_five_looks_like_this)
{
    /* Rows are rounds, columns positions: a>b sends to b, <b receives from b, <>b both, . is idle. Position 1 folds
     * into position 0. */
    static const char *const drawing = "<1 >0 . . .\n"
                                       "<>2 . <>0 <>4 <>3\n"
                                       "<>3 . <>4 <>0 <>2\n"
                                       ">1 <0 . . .\n";
    char drawn[1000];
    size_t used = 0;

    for (int round = 0; round < pl_algorithm_rounds(PL_ALGORITHM_DOUBLING, 5); round++) {
        for (int position = 0; position < 5; position++) {
            struct pl_algorithm_step step = pl_algorithm_step_at(PL_ALGORITHM_DOUBLING, 5, position, 0, round);
            int peer = step.from >= 0 ? step.from : step.to;

            used += (size_t)snprintf(drawn + used, sizeof(drawn) - used, "%s%s", step.from >= 0 ? "<" : "",
                                     step.to >= 0 ? ">" : "");
            used += (size_t)(peer < 0 ? snprintf(drawn + used, sizeof(drawn) - used, ".")
                                      : snprintf(drawn + used, sizeof(drawn) - used, "%d", peer));
            used += (size_t)snprintf(drawn + used, sizeof(drawn) - used, "%c", position < 4 ? ' ' : '\n');
        }
    }
    ck_assert_str_eq(drawn, drawing);
}

/* The p2p backend of a world in which it serves all collectives. */
static struct pl_p2p *p2p_of(struct pl_world *world)
{
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].backend == &pl_backend_p2p) {
            return world->backends[i].state;
        }
    }
    return NULL;
}

/* Halving sends half of a segment's bytes in one message, and MPI counts bytes in an int. */
static void plan_pieces(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_p2p *p2p = p2p_of(world);
    const struct pl_collective large = {.kind = PL_ALLREDUCE, .count = UINT64_C(1) << 33};
    float values[2000] = {0};
    uint64_t message_bytes;

    pl_p2p_plan(p2p, &large);
    RANKS_NEED(p2p->algorithm == PL_ALGORITHM_HALVING, "not halving");
    message_bytes = p2p->segment_elems * sizeof(float) / 2;
    RANKS_NEED(message_bytes <= INT32_MAX, "a message of %llu bytes", (unsigned long long)message_bytes);
    RANKS_OK(pl_allreduce(world, values, values, 2000, PL_FLOAT32, PL_SUM, &error));
    RANKS_NEED(p2p->slot_room_bytes <= 2 * sizeof(values), "%zu bytes a lane for %zu bytes", p2p->slot_room_bytes,
               sizeof(values));
}

TEST(pieces_between_hosts_are_no_larger_than_messages_and_vectors)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_ALGORITHM, "halving");

    ck_ok(pl_knob_set, &knobs, PL_KNOB_SEGMENT_BYTES, "1073741824", "test");
    ck_assert_ranks(16, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), plan_pieces, NULL);
}

static struct pl_knobs long_link(void)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_LINK_LATENCY_US, "5000");

    return knobs;
}

/* On a long link a slot's messages are longer than MPI's eager limit, and are sent in pieces of that length. */
static void move_over_a_long_link(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 700001, RANKS = 3 }; /* segments with messages of 1 MiB, and one that is not full */
    struct pl_p2p *p2p = p2p_of(world);
    const struct pl_collective large = {.kind = PL_ALLREDUCE, .count = COUNT * 10};
    float *values = malloc(RANKS * COUNT * sizeof(*values));
    int rank = pl_world_rank(world);
    enum pl_status status;

    RANKS_NEED(values, "no memory");
    pl_p2p_plan(p2p, &large);
    RANKS_NEED(p2p->segment_elems / (uint64_t)p2p->blocks * sizeof(float) == 1 << 20, "%llu elements a lane",
               (unsigned long long)p2p->segment_elems);
    RANKS_NEED(p2p->piece_bytes == 60 << 10, "pieces of %zu bytes", p2p->piece_bytes);
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 1000 + rank);
    }
    status = pl_allreduce(world, values, values, COUNT, PL_FLOAT32, PL_SUM, NULL);
    for (int i = 0; status == PL_OK && i < COUNT; i++) {
        status = values[i] == (float)(3 * (i % 1000) + 3) ? PL_OK : PL_FAILED;
    }
    if (status == PL_OK) {
        status = pl_allgather(world, values + (ptrdiff_t)rank * COUNT, values, COUNT, PL_FLOAT32, NULL);
    }
    for (int i = 0; rank == 0 && i < RANKS * COUNT; i++) {
        values[i] = (float)(i % 4099);
    }
    if (status == PL_OK) {
        status = pl_broadcast(world, values, RANKS * (uint64_t)COUNT, PL_FLOAT32, 0, NULL);
    }
    for (int i = 0; status == PL_OK && i < RANKS * COUNT; i++) {
        status = values[i] == (float)(i % 4099) ? PL_OK : PL_FAILED;
    }
    free(values);
    RANKS_NEED(status == PL_OK, "%s", pl_status_name(status));
}

TEST(messages_on_long_links_travel_in_pieces)
{
    struct pl_knobs knobs = long_link();

    ck_ok(pl_knob_set, &knobs, PL_KNOB_ALGORITHM, "ring", "test");
    ck_assert_ranks(3, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}),
                    move_over_a_long_link, NULL);
}

/* Counts progress: a waiting rank polls more often while data moves. */
static void count_pieces(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { BYTES = 4 << 20, PIECES = PL_P2P_SLOTS * 9 }; /* a slot has a message of 512 KiB */
    static char room[2][BYTES];
    struct pl_request *request;
    bool done = false;
    uint64_t progress_count;

    RANKS_OK(pl_collective_post(
        world,
        &((struct pl_collective){
            .kind = PL_BROADCAST, .dtype = PL_INT8, .count = BYTES, .recv = room[pl_world_rank(world)]}),
        &request, &error));
    while (!done) {
        RANKS_OK(pl_request_test(request, &done, &error));
    }
    progress_count = request->progress_count;
    RANKS_OK(pl_request_wait(request, &error));
    RANKS_NEED(progress_count >= PIECES, "%llu moves where %d pieces came or left", (unsigned long long)progress_count,
               PIECES);
}

TEST(a_piece_that_came_or_left_is_a_move)
{
    struct pl_knobs knobs = long_link();

    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), count_pieces, NULL);
}

static void plan_on_a_fast_link(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_p2p *p2p = p2p_of(world);
    const struct pl_collective large = {.kind = PL_ALLREDUCE, .count = 100 << 20};

    pl_p2p_plan(p2p, &large);
    RANKS_NEED(p2p->segment_elems / (uint64_t)p2p->blocks * sizeof(float) == 1 << 20, "%llu elements a lane",
               (unsigned long long)p2p->segment_elems);
    RANKS_NEED(p2p->piece_bytes >= 1 << 20, "pieces of %zu bytes", p2p->piece_bytes);
}

TEST(messages_on_fast_links_are_long_and_whole)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_LINK_LATENCY_US, "15");

    ck_ok(pl_knob_set, &knobs, PL_KNOB_LINK_GBPS, "400", "test");
    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), plan_on_a_fast_link,
                    NULL);
}

static void choose_by_what_was_timed(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_p2p *p2p = p2p_of(world);
    /* Times for 8 bytes, 4, 16, 60 and 256 KiB: a link that delays every message, and one that only limits the rate,
     * both of 120 MB/s. */
    static const double slow_ns[PL_P2P_PROBES] = {30e3, 64e3, 167e3, 542e3, 2215e3};
    static const double shaped_ns[PL_P2P_PROBES] = {30e3, 34e3, 137e3, 512e3, 2185e3};
    /* The first of these, but messages of 60 KiB were late. */
    static const double late_ns[PL_P2P_PROBES] = {30e3, 64e3, 167e3, 2215e3, 2215e3};

    memcpy(p2p->message_ns, slow_ns, sizeof(slow_ns));
    RANKS_NEED(pl_p2p_choose(p2p, 4096) == PL_ALGORITHM_DOUBLING, "4 KiB");
    RANKS_NEED(pl_p2p_choose(p2p, 16384) == PL_ALGORITHM_DOUBLING, "16 KiB");
    RANKS_NEED(pl_p2p_choose(p2p, 1 << 20) == PL_ALGORITHM_RING, "1 MiB");
    memcpy(p2p->message_ns, shaped_ns, sizeof(shaped_ns));
    RANKS_NEED(pl_p2p_choose(p2p, 4096) == PL_ALGORITHM_DOUBLING, "4 KiB, shaped");
    RANKS_NEED(pl_p2p_choose(p2p, 16384) == PL_ALGORITHM_RING, "16 KiB, shaped");
    RANKS_NEED(pl_p2p_choose(p2p, 1 << 20) == PL_ALGORITHM_RING, "1 MiB, shaped");
    memcpy(p2p->message_ns, late_ns, sizeof(late_ns));
    RANKS_NEED(pl_p2p_choose(p2p, 4096) == PL_ALGORITHM_DOUBLING, "4 KiB, late");
    RANKS_NEED(pl_p2p_choose(p2p, 1 << 20) == PL_ALGORITHM_RING, "1 MiB, late");
    RANKS_NEED(pl_p2p_choose(p2p, 1 << 30) == PL_ALGORITHM_RING, "1 GiB, late");
}

UNIT_TEST(the_algorithm_is_the_one_whose_messages_took_least,
          ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 1}), choose_by_what_was_timed, NULL))

/* The times of the five sizes that ranks exchange: the messages of 8 bytes were late on rank 1. */
static enum pl_status (*real_exchange)(void *context, const struct pl_error *failed, const void *send, void *recv,
                                       size_t bytes, int64_t deadline_ns, struct pl_error *reterr);

static enum pl_status tell_late(void *context, const struct pl_error *failed, const void *send, void *recv,
                                size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    static const double told_ns[PL_P2P_PROBES] = {862e3, 64e3, 167e3, 542e3, 2215e3};
    static _Thread_local unsigned calls;

    PL_TRY(real_exchange(context, failed, send, recv, bytes, deadline_ns, reterr));
    if (!bytes) {
        return PL_OK; /* a barrier */
    }
    for (int r = 0; r < 2; r++) {
        ((double *)recv)[r] = r == 1 ? told_ns[calls] : 30e3;
    }
    calls++;
    return PL_OK;
}

static void time_late(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const double expected_ns[PL_P2P_PROBES] = {64e3, 64e3, 167e3, 542e3, 2215e3};
    struct pl_p2p *p2p = p2p_of(world);
    struct pl_bootstrap *bootstrap = pl_world_bootstrap(world);

    RANKS_OK(pl_barrier(world, &error));
    if (pl_world_rank(world) == 0) {
        real_exchange = bootstrap->exchange;
    }
    RANKS_OK(pl_barrier(world, &error));
    bootstrap->exchange = tell_late;
    world->topology.one_process = false; /* as between hosts */
    RANKS_OK(pl_p2p_model(p2p, &error));
    for (int probe = 0; probe < PL_P2P_PROBES; probe++) {
        RANKS_NEED(p2p->message_ns[probe] == expected_ns[probe], "size %d: %g ns", probe, p2p->message_ns[probe]);
    }
}

UNIT_TEST(a_short_message_that_was_late_does_not_make_longer_ones_dear,
          ck_assert_ranks(2, &((struct pl_world_options){.pretend_ranks_per_host = 1}), time_late, NULL))

UNIT_MAIN("collectives/algorithm")
