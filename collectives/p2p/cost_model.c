/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: chooses algorithm and segment size by the measured or given latency and rate of the links. Decides
 * which collectives need all inputs at once, and which may be sent as narrower numbers. */
#include "collectives/core/types.h"
#include "collectives/p2p/state.h"

#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/world_private.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROBE_MOST_BYTES = 256 * 1024,
    PROBE_ROUNDS = 4, /* the quickest round counts: busy processors can only add to a link's time */
    /* below Open MPI's eager limit on TCP: longer messages use a rendezvous, which waits for queued data */
    MESSAGE_MOST_BYTES = 60 * 1024,
    /* for links with so much latency or rate that short messages in all slots would not fill them */
    MESSAGE_LONG_BYTES = 1024 * 1024,
    LONG_LINK_NS = 2 * 1000 * 1000, /* hosts of one data centre are never so far apart */
    PIPELINE_LEAST_BYTES = 512 * 1024,
    MESSAGE_LEAST_BYTES = 16 * 1024,
    DIRECT_MOST_RANKS = 16,
    /* limit for a segment with all its blocks: halving sends half of them in one message, and MPI counts in an int */
    SEGMENT_MOST_BYTES = 1 << 30,
};

/* Sizes of the messages that are timed, and how many rounds of them one measurement has. */
static const struct {
    size_t bytes;
    int turns;
} probes[PL_P2P_PROBES] = {{8, 5}, {4096, 5}, {16384, 2}, {MESSAGE_MOST_BYTES, 2}, {PROBE_MOST_BYTES, 2}};

/* Times a round in which every rank sends `bytes` to the next one, as in a ring; `*ret_ns` is per round. */
static enum pl_status time_ring_round(const struct pl_p2p *p2p, char *data, size_t bytes, int turns,
                                      int64_t deadline_ns, double *ret_ns, struct pl_error *reterr)
{
    const struct pl_transport *transport = p2p->transport;
    int position = p2p->position_of[p2p->rank];
    int to = p2p->order[(position + 1) % p2p->size];
    int from = p2p->order[(position - 1 + p2p->size) % p2p->size];
    int64_t begin_ns = pl_clock_now_ns();

    for (int i = 0; i < turns; i++) {
        struct pl_transfer transfers[2] = {{.active = false}, {.active = false}};

        PL_TRY(transport->recv(transport->context, data, bytes, from, PL_TAG_BOOTSTRAP, &transfers[0], reterr));
        PL_TRY(transport->send(transport->context, data + PROBE_MOST_BYTES, bytes, to, PL_TAG_BOOTSTRAP, &transfers[1],
                               reterr));
        while (transfers[0].active || transfers[1].active) {
            for (int k = 0; k < 2; k++) {
                size_t got;
                bool done;

                if (transfers[k].active) {
                    PL_TRY(transport->test(transport->context, &transfers[k], &done, &got, reterr));
                }
            }
            if (pl_deadline_passed(deadline_ns)) {
                char names[2][PL_RANK_NAME_BYTES];

                return pl_error_set(
                    reterr, PL_TIMEOUT, "cannot measure the links: %s or %s did not answer before the deadline",
                    pl_world_rank_name(p2p->world, from, names[0]), pl_world_rank_name(p2p->world, to, names[1]));
            }
            sched_yield();
        }
    }
    *ret_ns = (double)(pl_clock_now_ns() - begin_ns) / turns;
    return PL_OK;
}

/* Takes the slowest rank's time, so that all ranks choose the same algorithm. Lowers the times of shorter messages
 * to it: busy processors may have raised them. */
static enum pl_status share_probe(struct pl_p2p *p2p, int probe, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE double *all = NULL;
    const struct pl_bootstrap *bootstrap = pl_world_bootstrap(p2p->world);
    double *slowest_ns = &p2p->message_ns[probe];

    PL_TRY(pl_bootstrap_gather(bootstrap, slowest_ns, sizeof(*all), deadline_ns, &all, reterr));
    *slowest_ns = 0;
    for (int r = 0; r < p2p->size; r++) {
        *slowest_ns = fmax(*slowest_ns, all[r]);
    }
    for (int shorter = 0; shorter < probe; shorter++) {
        p2p->message_ns[shorter] = fmin(p2p->message_ns[shorter], *slowest_ns);
    }
    return PL_OK;
}

static bool is_long_link(const struct pl_p2p *p2p)
{
    return p2p->message_ns[0] > LONG_LINK_NS;
}

static enum pl_status measure(struct pl_p2p *p2p, int64_t deadline_ns, struct pl_error *reterr)
{
    char *data = pl_memory_new(2, PROBE_MOST_BYTES, reterr);
    enum pl_status status;
    bool idle = false; /* whether no message is under way */
    double round_ns = HUGE_VAL;

    status = pl_bootstrap_vote(pl_world_bootstrap(p2p->world), data ? PL_OK : PL_MEMORY, deadline_ns, reterr);
    if (status != PL_OK) {
        free(data);
        return status;
    }
    /* The first messages only open connections. */
    status = time_ring_round(p2p, data, PROBE_MOST_BYTES, 1, deadline_ns, &round_ns, reterr);
    for (int probe = 0; status == PL_OK && probe < PL_P2P_PROBES; probe++) {
        int rounds = probe > 0 && is_long_link(p2p) ? 1 : PROBE_ROUNDS;

        p2p->message_ns[probe] = HUGE_VAL;
        for (int i = 0; status == PL_OK && i < rounds; i++) {
            status =
                time_ring_round(p2p, data, probes[probe].bytes, probes[probe].turns, deadline_ns, &round_ns, reterr);
            p2p->message_ns[probe] = fmin(p2p->message_ns[probe], round_ns);
        }
        idle = status == PL_OK;
        if (idle) {
            status = share_probe(p2p, probe, deadline_ns, reterr);
        }
    }
    if (idle) {
        free(data); /* otherwise leak it: a message may still access it */
    }
    return status;
}

/* The time per byte of long messages. */
static double ns_per_byte(const struct pl_p2p *p2p)
{
    double ns = p2p->message_ns[PL_P2P_PROBES - 1] - p2p->message_ns[0];

    return fmax(ns / PROBE_MOST_BYTES, 1e-3);
}

/*
 * The time of a round with messages of `bytes`, interpolated between the timed sizes. Above these a byte costs at least
 * the average: if messages of the second-largest size were delayed, extrapolation could make bytes free.
 */
static double message_ns(const struct pl_p2p *p2p, double bytes)
{
    const double *timed_ns = p2p->message_ns;
    int above = 1;
    double slope;

    while (above < PL_P2P_PROBES - 1 && bytes > (double)probes[above].bytes) {
        above++;
    }
    slope = (timed_ns[above] - timed_ns[above - 1]) / (double)(probes[above].bytes - probes[above - 1].bytes);
    if (bytes > PROBE_MOST_BYTES) {
        slope = fmax(slope, ns_per_byte(p2p));
    }
    return timed_ns[above] + (bytes - (double)probes[above].bytes) * slope;
}

static double rounds_below(int n)
{
    int rounds = 0;

    while (1 << rounds < n) {
        rounds++;
    }
    return rounds;
}

/* The cost by the formulas of algorithm.h, with the measured time of messages instead of a + B b. */
static double cost_ns(const struct pl_p2p *p2p, enum pl_algorithm algorithm, int positions, double bytes)
{
    double n = positions;
    double rounds = rounds_below(positions);
    bool power = (positions & (positions - 1)) == 0;
    double cost = power ? 0 : 2 * message_ns(p2p, bytes);

    switch (algorithm) {
    case PL_ALGORITHM_HALVING:
        for (int parts = 2; parts <= positions; parts *= 2) {
            cost += 2 * message_ns(p2p, bytes / parts);
        }
        /* Halving sends as many bytes as a ring, but in messages of very different sizes: 0.86 of the ring's rate was
         * measured between four hosts. */
        return cost / 0.86;
    case PL_ALGORITHM_DOUBLING:
        /* Doubling has the fewest messages. Other algorithms must gain more than the difference between two
         * measurements of a link. */
        return (rounds + (power ? 0 : 1)) * message_ns(p2p, bytes) * 0.9;
    default:
        return 2 * (n - 1) * message_ns(p2p, bytes / n);
    }
}

static enum pl_algorithm cheapest(const struct pl_p2p *p2p, int positions, uint64_t bytes)
{
    static const enum pl_algorithm candidates[] = {PL_ALGORITHM_RING, PL_ALGORITHM_HALVING, PL_ALGORITHM_DOUBLING};
    enum pl_algorithm best = PL_ALGORITHM_RING;

    for (unsigned i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        if (cost_ns(p2p, candidates[i], positions, (double)bytes) < cost_ns(p2p, best, positions, (double)bytes)) {
            best = candidates[i];
        }
    }
    return best;
}

/* The algorithm that the setting `algorithm` names; -1 if it names none. */
static int forced_algorithm(const struct pl_p2p *p2p)
{
    const char *wanted = pl_knob_text(pl_world_knobs(p2p->world), PL_KNOB_ALGORITHM);

    for (int p = PL_ALGORITHM_RING; p <= PL_ALGORITHM_DIRECT; p++) {
        if (strcmp(wanted, pl_algorithm_text((enum pl_algorithm)p)) == 0) {
            return p;
        }
    }
    return -1;
}

enum pl_algorithm pl_p2p_choose(const struct pl_p2p *p2p, uint64_t bytes)
{
    int forced = forced_algorithm(p2p);

    return forced >= 0 ? (enum pl_algorithm)forced : cheapest(p2p, p2p->size, bytes);
}

/* The longest allreduce that the call check reduces on the way. If the number of hosts is a power of two, the call
 * check does recursive doubling between them anyway. */
static uint64_t find_sum_most(const struct pl_p2p *p2p)
{
    uint64_t bytes = pl_check_calls_can_sum(&p2p->check) && forced_algorithm(p2p) < 0 ? PL_CHECK_CALLS_ROOM_BYTES : 0;

    while (bytes && cheapest(p2p, p2p->check.hosts, bytes) != PL_ALGORITHM_DOUBLING) {
        bytes /= 2;
    }
    return bytes;
}

/* Fills the model for a link with this latency and time per byte. */
static void assume(struct pl_p2p *p2p, double latency_ns, double byte_ns)
{
    for (int probe = 0; probe < PL_P2P_PROBES; probe++) {
        p2p->message_ns[probe] = latency_ns + (double)probes[probe].bytes * byte_ns;
    }
}

enum pl_status pl_p2p_model(struct pl_p2p *p2p, struct pl_error *reterr)
{
    const struct pl_knobs *knobs = pl_world_knobs(p2p->world);
    double latency_us = pl_knob_real(knobs, PL_KNOB_LINK_LATENCY_US);
    double gbps = pl_knob_real(knobs, PL_KNOB_LINK_GBPS);
    bool apart = pl_world_cross_size(p2p->world) > 1 && !p2p->world->topology.one_process;

    /* Inside a host without shared memory, a guess is enough. */
    assume(p2p, 2000, 0.5);
    if (apart && (latency_us <= 0 || gbps <= 0)) {
        PL_TRY(measure(p2p, pl_world_deadline_ns(p2p->world), reterr));
    }
    if (latency_us > 0 || gbps > 0) {
        assume(p2p, latency_us > 0 ? latency_us * 1e3 : p2p->message_ns[0], gbps > 0 ? 8.0 / gbps : ns_per_byte(p2p));
    }
    p2p->sum_most_bytes = find_sum_most(p2p);
    return PL_OK;
}

/* False for reproducible sums and 16-bit floats: these need the inputs of all ranks at once. */
bool pl_p2p_sums_eagerly(const struct pl_p2p *p2p, const struct pl_collective *c)
{
    return c->kind == PL_ALLREDUCE && c->count && c->count <= p2p->sum_most_bytes / pl_dtype_bytes(c->dtype) &&
           !pl_p2p_needs_direct(c) && !pl_is_half(c->dtype) && !pl_p2p_is_compressed(c);
}

uint64_t pl_p2p_eager_bytes(const struct pl_p2p *p2p, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    uint64_t elems = c->kind == PL_REDUCE_SCATTER ? p2p->recv_at[p2p->size] : c->count;

    if (pl_p2p_sums_eagerly(p2p, c)) {
        return elems * item;
    }
    if (!pl_kind_reduces(c->kind) && (c->kind != PL_ALLGATHER || c->counts)) {
        return 0;
    }
    return elems <= PL_CHECK_CALLS_ROOM_BYTES / ((uint64_t)p2p->size * item) ? elems * item : 0;
}

static enum pl_algorithm algorithm_for(const struct pl_p2p *p2p, const struct pl_collective *c, uint64_t bytes)
{
    bool direct = pl_p2p_needs_direct(c);
    bool half = pl_is_half(c->dtype);

    switch (c->kind) {
    case PL_ALLREDUCE:
        /* Half-width sums are rounded once if that costs nothing. */
        if (direct || (half && p2p->size <= DIRECT_MOST_RANKS && (c->op == PL_SUM || c->op == PL_AVERAGE))) {
            return PL_ALGORITHM_DIRECT;
        }
        return pl_p2p_is_compressed(c) ? PL_ALGORITHM_RING : pl_p2p_choose(p2p, bytes);
    case PL_REDUCE_SCATTER:
        return direct || half ? PL_ALGORITHM_DIRECT_REDUCE_SCATTER : PL_ALGORITHM_RING_REDUCE_SCATTER;
    case PL_ALLGATHER:
        return PL_ALGORITHM_RING_ALLGATHER;
    case PL_BROADCAST:
        return bytes > PIPELINE_LEAST_BYTES ? PL_ALGORITHM_CHAIN_BROADCAST : PL_ALGORITHM_TREE_BROADCAST;
    case PL_REDUCE:
        if (direct || half) {
            return PL_ALGORITHM_DIRECT_REDUCE;
        }
        return bytes > PIPELINE_LEAST_BYTES ? PL_ALGORITHM_CHAIN_REDUCE : PL_ALGORITHM_TREE_REDUCE;
    case PL_ALLTOALL:
        return PL_ALGORITHM_PAIRWISE;
    case PL_BARRIER:
        break;
    }
    return PL_ALGORITHM_TREE;
}

static uint64_t longest_block(const struct pl_p2p *p2p, const struct pl_collective *c)
{
    /* The result is equal on all ranks except in a ragged alltoall: there each pair has its own block length, and the
     * last segments may be empty. */
    uint64_t sent = pl_counts_max(c->counts, c->count, p2p->size);
    uint64_t received = c->recv_counts ? pl_counts_max(c->recv_counts, c->count, p2p->size) : 0;

    return sent > received ? sent : received;
}

/*
 * The bytes under way on a link are its rate times its latency; the slots together must hold twice as many. On a long
 * link a probe's message is mostly latency, and the measured rate is far too low: there the latency alone decides.
 */
static uint64_t longest_message(const struct pl_p2p *p2p)
{
    double on_the_way = p2p->message_ns[0] / ns_per_byte(p2p);

    return is_long_link(p2p) || 2 * on_the_way > PL_P2P_SLOTS * (double)MESSAGE_MOST_BYTES ? MESSAGE_LONG_BYTES
                                                                                           : MESSAGE_MOST_BYTES;
}

void pl_p2p_plan(struct pl_p2p *p2p, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    int64_t wanted = pl_knob_int(pl_world_knobs(p2p->world), PL_KNOB_SEGMENT_BYTES);
    uint64_t span; /* number of elements that are cut into segments */
    uint64_t parts;
    uint64_t message_bytes;
    uint64_t most = longest_message(p2p);

    p2p->ragged = c->kind == PL_ALLGATHER || c->kind == PL_REDUCE_SCATTER || c->kind == PL_ALLTOALL;
    span = p2p->ragged ? longest_block(p2p, c) : c->count;
    p2p->algorithm = algorithm_for(p2p, c, span * item);
    p2p->by_position = p2p->algorithm == PL_ALGORITHM_RING || p2p->algorithm == PL_ALGORITHM_RING_REDUCE_SCATTER ||
                       p2p->algorithm == PL_ALGORITHM_RING_ALLGATHER;
    p2p->rounds = pl_algorithm_rounds(p2p->algorithm, p2p->size);
    p2p->blocks = pl_algorithm_blocks(p2p->algorithm, p2p->size);
    parts = p2p->ragged ? 1 : (uint64_t)p2p->blocks;
    /* Small vectors are cut too, so that all slots have work. */
    message_bytes = span * item / parts / PL_P2P_SLOTS;
    message_bytes = message_bytes > most ? most : message_bytes;
    message_bytes = message_bytes < MESSAGE_LEAST_BYTES ? MESSAGE_LEAST_BYTES : message_bytes;
    /* On a short link a rendezvous costs little, and its data may be received without a copy. */
    p2p->piece_bytes = wanted <= 0 && is_long_link(p2p) ? MESSAGE_MOST_BYTES : SEGMENT_MOST_BYTES;
    if (c->kind == PL_ALLTOALL) {
        message_bytes = most;                  /* independent of the counts, because each rank knows only its own */
        p2p->piece_bytes = SEGMENT_MOST_BYTES; /* one piece, so that a message of another length is noticed */
    }
    message_bytes = wanted > 0 ? (uint64_t)wanted : message_bytes;
    message_bytes = message_bytes > SEGMENT_MOST_BYTES / parts ? SEGMENT_MOST_BYTES / parts : message_bytes;
    p2p->segment_elems = (message_bytes + item - 1) / item * parts;
    if (c->kind != PL_ALLTOALL && p2p->segment_elems > span) {
        p2p->segment_elems = span ? span : 1; /* a slot's buffers are as large as its segment */
    }
    /* A block of an alltoall ends with a message that is not full, or with an empty one, so that two ranks with
     * different block lengths detect it. */
    p2p->segment_count =
        c->kind == PL_ALLTOALL ? span / p2p->segment_elems + 1 : (span + p2p->segment_elems - 1) / p2p->segment_elems;
}

void pl_p2p_describe(void *state, struct pl_text *text)
{
    const struct pl_p2p *p2p = state;
    uint64_t eager_bytes = pl_p2p_eager_most_bytes(p2p);
    int last = -1;

    pl_text_printf(text, "  link model: %.1f us per message, %.3f GB/s\n", p2p->message_ns[0] / 1e3,
                   1.0 / ns_per_byte(p2p));
    pl_text_printf(text, "  float32 allreduce up to %llu bytes: with the call check, %s\n",
                   (unsigned long long)eager_bytes, p2p->sum_most_bytes ? "reduced on the way" : "rank order");
    for (uint64_t bytes = 1024; bytes <= UINT64_C(1) << 30; bytes *= 2) {
        enum pl_algorithm algorithm = pl_p2p_choose(p2p, bytes);

        if (bytes > eager_bytes && (int)algorithm != last) {
            pl_text_printf(text, "  float32 allreduce from %llu bytes: %s\n", (unsigned long long)bytes,
                           pl_algorithm_text(algorithm));
            last = (int)algorithm;
        }
    }
}

bool pl_p2p_needs_direct(const struct pl_collective *c)
{
    bool whole = !pl_dtype_is_float(c->dtype);

    /* An exact integer average, or a scaled integer, cannot be computed from partial results of the same type. */
    return pl_kind_reduces(c->kind) && ((c->flags & PL_REPRODUCIBLE) || (whole && (c->op == PL_AVERAGE || c->scaled)));
}

bool pl_p2p_is_compressed(const struct pl_collective *c)
{
    return (c->flags & PL_WIRES) && c->kind == PL_ALLREDUCE && c->dtype == PL_FLOAT32 &&
           (c->op == PL_SUM || c->op == PL_AVERAGE) && !pl_p2p_needs_direct(c);
}
