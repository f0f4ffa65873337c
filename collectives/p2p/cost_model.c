/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: which algorithm, and how large its segments, by measured or given latency and rate of the links. */
#include "collectives/core/counts.h"
#include "collectives/p2p/eligible.h"
#include "collectives/p2p/state.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap/bootstrap_private.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROBE_MOST_BYTES = 256 * 1024,
    PROBE_ROUNDS = 4, /* of which the quickest counts: busy processors only ever add to a link's time */
    /* below Open MPI's eager limit on TCP: the rendezvous of longer ones waits for queued data */
    MESSAGE_MOST_BYTES = 60 * 1024,
    /* on links so long or so fast that short messages of all slots would not fill them */
    MESSAGE_LONG_BYTES = 1024 * 1024,
    LONG_LINK_NS = 2 * 1000 * 1000, /* hosts of one data centre are never so far apart */
    PIPELINE_LEAST_BYTES = 512 * 1024,
    MESSAGE_LEAST_BYTES = 16 * 1024,
    DIRECT_MOST_RANKS = 16,
    /* of all its blocks: halving sends half of them in one message, and MPI counts in an int */
    LANE_MOST_BYTES = 1 << 30,
};

/* Messages that are timed, and rounds of them in one measurement. */
static const struct {
    size_t bytes;
    int turns;
} probes[PL_EXCHANGE_PROBES] = {{8, 5}, {4096, 5}, {16384, 2}, {MESSAGE_MOST_BYTES, 2}, {PROBE_MOST_BYTES, 2}};

/* Every rank sends `bytes` to the next at the same time, as a ring does: nanoseconds a round. */
static enum pl_status time_shift(const struct pl_exchange *exchange, char *data, size_t bytes, int turns,
                                 int64_t deadline_ns, double *ret_ns, struct pl_error *reterr)
{
    const struct pl_transport *transport = exchange->transport;
    int place = exchange->place_of[exchange->rank];
    int to = exchange->order[(place + 1) % exchange->size];
    int from = exchange->order[(place - 1 + exchange->size) % exchange->size];
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
                return pl_error_set(reterr, PL_TIMEOUT, "measuring links: no answer from rank %d or %d",
                                    pl_world_label(exchange->world, from), pl_world_label(exchange->world, to));
            }
            sched_yield();
        }
    }
    *ret_ns = (double)(pl_clock_now_ns() - begin_ns) / turns;
    return PL_OK;
}

/* The slowest rank's time, so that all ranks choose alike; and a shorter message, which busy processors may have
 * delayed, never takes more. */
static enum pl_status agree_on_probe(struct pl_exchange *exchange, int probe, int64_t deadline_ns,
                                     struct pl_error *reterr)
{
    PL_AUTO_FREE double *all = NULL;
    const struct pl_bootstrap *bootstrap = pl_world_bootstrap(exchange->world);
    double *slowest_ns = &exchange->message_ns[probe];

    PL_TRY(pl_bootstrap_gather(bootstrap, slowest_ns, sizeof(*all), deadline_ns, &all, reterr));
    *slowest_ns = 0;
    for (int r = 0; r < exchange->size; r++) {
        *slowest_ns = fmax(*slowest_ns, all[r]);
    }
    for (int shorter = 0; shorter < probe; shorter++) {
        exchange->message_ns[shorter] = fmin(exchange->message_ns[shorter], *slowest_ns);
    }
    return PL_OK;
}

static bool is_long_link(const struct pl_exchange *exchange)
{
    return exchange->message_ns[0] > LONG_LINK_NS;
}

static enum pl_status measure(struct pl_exchange *exchange, int64_t deadline_ns, struct pl_error *reterr)
{
    char *data = pl_memory_new(2, PROBE_MOST_BYTES, reterr);
    enum pl_status status;
    bool idle = false; /* no message is under way */
    double round_ns = HUGE_VAL;

    status = pl_bootstrap_ready(pl_world_bootstrap(exchange->world), data ? PL_OK : PL_MEMORY, deadline_ns, reterr);
    if (status != PL_OK) {
        free(data);
        return status;
    }
    /* The first messages open connections. */
    status = time_shift(exchange, data, PROBE_MOST_BYTES, 1, deadline_ns, &round_ns, reterr);
    for (int probe = 0; status == PL_OK && probe < PL_EXCHANGE_PROBES; probe++) {
        int rounds = probe > 0 && is_long_link(exchange) ? 1 : PROBE_ROUNDS;

        exchange->message_ns[probe] = HUGE_VAL;
        for (int i = 0; status == PL_OK && i < rounds; i++) {
            status =
                time_shift(exchange, data, probes[probe].bytes, probes[probe].turns, deadline_ns, &round_ns, reterr);
            exchange->message_ns[probe] = fmin(exchange->message_ns[probe], round_ns);
        }
        idle = status == PL_OK;
        if (idle) {
            status = agree_on_probe(exchange, probe, deadline_ns, reterr);
        }
    }
    if (idle) {
        free(data); /* else leak it: a message may still access it */
    }
    return status;
}

/* Of long messages. */
static double ns_per_byte(const struct pl_exchange *exchange)
{
    double ns = exchange->message_ns[PL_EXCHANGE_PROBES - 1] - exchange->message_ns[0];

    return fmax(ns / PROBE_MOST_BYTES, 1e-3);
}

/*
 * A round of messages of `bytes`, interpolated between those that were timed. Beyond them a byte costs no less than on
 * average: if those of the last size but one were delayed, extrapolation would say that bytes are free.
 */
static double message_ns(const struct pl_exchange *exchange, double bytes)
{
    const double *timed_ns = exchange->message_ns;
    int above = 1;
    double slope;

    while (above < PL_EXCHANGE_PROBES - 1 && bytes > (double)probes[above].bytes) {
        above++;
    }
    slope = (timed_ns[above] - timed_ns[above - 1]) / (double)(probes[above].bytes - probes[above - 1].bytes);
    if (bytes > PROBE_MOST_BYTES) {
        slope = fmax(slope, ns_per_byte(exchange));
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

/* See algorithm.h: with what messages of these lengths took, where it has a + B b. */
static double cost_ns(const struct pl_exchange *exchange, enum pl_pattern pattern, int places, double bytes)
{
    double n = places;
    double rounds = rounds_below(places);
    bool power = (places & (places - 1)) == 0;
    double cost = power ? 0 : 2 * message_ns(exchange, bytes);

    switch (pattern) {
    case PL_PATTERN_HALVING:
        for (int parts = 2; parts <= places; parts *= 2) {
            cost += 2 * message_ns(exchange, bytes / parts);
        }
        /* The same bytes as a ring, but in messages of very unlike sizes: 0.86 of the ring's rate was measured between
         * four hosts. */
        return cost / 0.86;
    case PL_PATTERN_DOUBLING:
        /* Fewest messages; others have to gain more than two measurements of the same link differ by. */
        return (rounds + (power ? 0 : 1)) * message_ns(exchange, bytes) * 0.9;
    default:
        return 2 * (n - 1) * message_ns(exchange, bytes / n);
    }
}

static enum pl_pattern cheapest(const struct pl_exchange *exchange, int places, uint64_t bytes)
{
    static const enum pl_pattern candidates[] = {PL_PATTERN_RING, PL_PATTERN_HALVING, PL_PATTERN_DOUBLING};
    enum pl_pattern best = PL_PATTERN_RING;

    for (unsigned i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        if (cost_ns(exchange, candidates[i], places, (double)bytes) < cost_ns(exchange, best, places, (double)bytes)) {
            best = candidates[i];
        }
    }
    return best;
}

/* What the setting `algorithm` says; -1: nothing. */
static int forced_pattern(const struct pl_exchange *exchange)
{
    const char *wanted = pl_knob_text(pl_world_knobs(exchange->world), PL_KNOB_ALGORITHM);

    for (int p = PL_PATTERN_RING; p <= PL_PATTERN_DIRECT; p++) {
        if (strcmp(wanted, pl_pattern_text((enum pl_pattern)p)) == 0) {
            return p;
        }
    }
    return -1;
}

enum pl_pattern pl_exchange_choose(const struct pl_exchange *exchange, uint64_t bytes)
{
    int forced = forced_pattern(exchange);

    return forced >= 0 ? (enum pl_pattern)forced : cheapest(exchange, exchange->size, bytes);
}

/* Where the number of hosts is a power of two, the call check does recursive doubling between them anyway. */
static uint64_t find_sum_most(const struct pl_exchange *exchange)
{
    uint64_t bytes = pl_agree_sums(&exchange->agree) && forced_pattern(exchange) < 0 ? PL_AGREE_ROOM_BYTES : 0;

    while (bytes && cheapest(exchange, exchange->agree.hosts, bytes) != PL_PATTERN_DOUBLING) {
        bytes /= 2;
    }
    return bytes;
}

/* A link as the settings describe it. */
static void assume(struct pl_exchange *exchange, double latency_ns, double byte_ns)
{
    for (int probe = 0; probe < PL_EXCHANGE_PROBES; probe++) {
        exchange->message_ns[probe] = latency_ns + (double)probes[probe].bytes * byte_ns;
    }
}

enum pl_status pl_exchange_model(struct pl_exchange *exchange, struct pl_error *reterr)
{
    const struct pl_knobs *knobs = pl_world_knobs(exchange->world);
    double latency_us = pl_knob_real(knobs, PL_KNOB_LINK_LATENCY_US);
    double gbps = pl_knob_real(knobs, PL_KNOB_LINK_GBPS);
    bool apart = pl_world_cross_size(exchange->world) > 1 && !pl_world_is_one_process(exchange->world);

    /* Inside a host, where shared memory is off: a guess will do. */
    assume(exchange, 2000, 0.5);
    if (apart && (latency_us <= 0 || gbps <= 0)) {
        PL_TRY(measure(exchange, pl_world_deadline_ns(exchange->world), reterr));
    }
    if (latency_us > 0 || gbps > 0) {
        assume(exchange, latency_us > 0 ? latency_us * 1e3 : exchange->message_ns[0],
               gbps > 0 ? 8.0 / gbps : ns_per_byte(exchange));
    }
    exchange->sum_most_bytes = find_sum_most(exchange);
    return PL_OK;
}

/* Not for reproducible sums and 16-bit floats: these need the inputs of all ranks at once. */
bool pl_exchange_sums_inline(const struct pl_exchange *exchange, const struct pl_collective *c)
{
    return c->kind == PL_ALLREDUCE && c->count && c->count <= exchange->sum_most_bytes / pl_dtype_bytes(c->dtype) &&
           !pl_exchange_needs_direct(c) && !pl_is_half(c->dtype) && !pl_wire_is_wanted(c);
}

uint64_t pl_exchange_inline_bytes(const struct pl_exchange *exchange, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    uint64_t elems = c->kind == PL_REDUCE_SCATTER ? exchange->recv_at[exchange->size] : c->count;

    if (pl_exchange_sums_inline(exchange, c)) {
        return elems * item;
    }
    if (!pl_kind_reduces(c->kind) && (c->kind != PL_ALLGATHER || c->counts)) {
        return 0;
    }
    return elems <= PL_AGREE_ROOM_BYTES / ((uint64_t)exchange->size * item) ? elems * item : 0;
}

static enum pl_pattern pattern_for(const struct pl_exchange *exchange, const struct pl_collective *c, uint64_t bytes)
{
    bool direct = pl_exchange_needs_direct(c);
    bool half = pl_is_half(c->dtype);

    switch (c->kind) {
    case PL_ALLREDUCE:
        /* Half-width sums are rounded once where that costs nothing. */
        if (direct || (half && exchange->size <= DIRECT_MOST_RANKS && (c->op == PL_SUM || c->op == PL_AVERAGE))) {
            return PL_PATTERN_DIRECT;
        }
        return pl_wire_is_wanted(c) ? PL_PATTERN_RING : pl_exchange_choose(exchange, bytes);
    case PL_REDUCE_SCATTER:
        return direct || half ? PL_PATTERN_DIRECT_REDUCE_SCATTER : PL_PATTERN_RING_REDUCE_SCATTER;
    case PL_ALLGATHER:
        return PL_PATTERN_RING_ALLGATHER;
    case PL_BROADCAST:
        return bytes > PIPELINE_LEAST_BYTES ? PL_PATTERN_CHAIN_BROADCAST : PL_PATTERN_TREE_BROADCAST;
    case PL_REDUCE:
        if (direct || half) {
            return PL_PATTERN_DIRECT_REDUCE;
        }
        return bytes > PIPELINE_LEAST_BYTES ? PL_PATTERN_CHAIN_REDUCE : PL_PATTERN_TREE_REDUCE;
    case PL_ALLTOALL:
        return PL_PATTERN_PAIRWISE;
    case PL_BARRIER:
        break;
    }
    return PL_PATTERN_TREE;
}

static uint64_t longest_block(const struct pl_exchange *exchange, const struct pl_collective *c)
{
    /* Equal on all ranks except in a ragged alltoall, where each pair has its own block length and the last segments
     * are empty. */
    uint64_t sent = pl_counts_max(c->counts, c->count, exchange->size);
    uint64_t received = c->recv_counts ? pl_counts_max(c->recv_counts, c->count, exchange->size) : 0;

    return sent > received ? sent : received;
}

/*
 * The bytes under way on a link are its rate times its latency; all slots together have to cover that twice. On a link
 * so long that a probe's message is mostly latency, the measured rate is far too low: there the latency alone decides.
 */
static uint64_t longest_message(const struct pl_exchange *exchange)
{
    double on_the_way = exchange->message_ns[0] / ns_per_byte(exchange);

    return is_long_link(exchange) || 2 * on_the_way > PL_EXCHANGE_LANES * (double)MESSAGE_MOST_BYTES
               ? MESSAGE_LONG_BYTES
               : MESSAGE_MOST_BYTES;
}

void pl_exchange_plan(struct pl_exchange *exchange, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    int64_t wanted = pl_knob_int(pl_world_knobs(exchange->world), PL_KNOB_SEGMENT_BYTES);
    uint64_t span; /* elements that are cut into segments */
    uint64_t parts;
    uint64_t message_bytes;
    uint64_t most = longest_message(exchange);

    exchange->ragged = c->kind == PL_ALLGATHER || c->kind == PL_REDUCE_SCATTER || c->kind == PL_ALLTOALL;
    span = exchange->ragged ? longest_block(exchange, c) : c->count;
    exchange->pattern = pattern_for(exchange, c, span * item);
    exchange->by_place = exchange->pattern == PL_PATTERN_RING || exchange->pattern == PL_PATTERN_RING_REDUCE_SCATTER ||
                         exchange->pattern == PL_PATTERN_RING_ALLGATHER;
    exchange->rounds = pl_pattern_rounds(exchange->pattern, exchange->size);
    exchange->blocks = pl_pattern_blocks(exchange->pattern, exchange->size);
    parts = exchange->ragged ? 1 : (uint64_t)exchange->blocks;
    /* Small vectors are cut too, so that all slots have work. */
    message_bytes = span * item / parts / PL_EXCHANGE_LANES;
    message_bytes = message_bytes > most ? most : message_bytes;
    message_bytes = message_bytes < MESSAGE_LEAST_BYTES ? MESSAGE_LEAST_BYTES : message_bytes;
    /* On a short link a rendezvous costs little, and its data may be received without a copy. */
    exchange->piece_bytes = wanted <= 0 && is_long_link(exchange) ? MESSAGE_MOST_BYTES : LANE_MOST_BYTES;
    if (c->kind == PL_ALLTOALL) {
        message_bytes = most;                    /* each rank knows only its own counts, so these must not matter */
        exchange->piece_bytes = LANE_MOST_BYTES; /* and a message that ends elsewhere than expected must be noticed */
    }
    message_bytes = wanted > 0 ? (uint64_t)wanted : message_bytes;
    message_bytes = message_bytes > LANE_MOST_BYTES / parts ? LANE_MOST_BYTES / parts : message_bytes;
    exchange->lane_elems = (message_bytes + item - 1) / item * parts;
    if (c->kind != PL_ALLTOALL && exchange->lane_elems > span) {
        exchange->lane_elems = span ? span : 1; /* its buffers are as large as the segment */
    }
    /* An alltoall's blocks end with a message that is not full, if need be an empty one: two ends that differ must not
     * miss it. */
    exchange->lane_count = c->kind == PL_ALLTOALL ? span / exchange->lane_elems + 1
                                                  : (span + exchange->lane_elems - 1) / exchange->lane_elems;
}

void pl_exchange_describe(void *state, struct pl_text *text)
{
    const struct pl_exchange *exchange = state;
    uint64_t inline_bytes = pl_exchange_inline_most_bytes(exchange);
    int last = -1;

    pl_text_printf(text, "  link model: %.1f us a message, %.3f GB/s\n", exchange->message_ns[0] / 1e3,
                   1.0 / ns_per_byte(exchange));
    pl_text_printf(text, "  float32 allreduce up to %llu bytes: with the call check, %s\n",
                   (unsigned long long)inline_bytes, exchange->sum_most_bytes ? "added up on the way" : "rank order");
    for (uint64_t bytes = 1024; bytes <= UINT64_C(1) << 30; bytes *= 2) {
        enum pl_pattern pattern = pl_exchange_choose(exchange, bytes);

        if (bytes > inline_bytes && (int)pattern != last) {
            pl_text_printf(text, "  float32 allreduce from %llu bytes: %s\n", (unsigned long long)bytes,
                           pl_pattern_text(pattern));
            last = (int)pattern;
        }
    }
}
