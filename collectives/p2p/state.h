/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collectives over point-to-point messages; internal to collectives/.
 *
 * A collective is one pattern (algorithm.h) run over many lanes. A lane is a piece of the vector, small enough to stay
 * in cache; up to PL_EXCHANGE_LANES are under way at once, so that one is added up while others are on the wire. Beside
 * the lanes runs the agreement (check_calls.h), which also carries the data of small collectives.
 */
#ifndef PL_COLLECTIVES_P2P_STATE_H
#define PL_COLLECTIVES_P2P_STATE_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/backend.h"
#include "collectives/core/deferred_error.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/reduce/kernel.h"

/* Lanes under way: together their messages have to cover what a link holds on its way. */
enum { PL_EXCHANGE_LANES = 8 };

enum { PL_EXCHANGE_PROBES = 5 }; /* message sizes that are timed */

struct pl_residual; /* compress.c */

/* A message of a lane, in pieces of which each is one of the transport's and the first is under way. */
struct pl_train {
    struct pl_transfer transfer;
    char *data;
    size_t piece_bytes;
    size_t left_bytes; /* with that piece */
    int peer;
    uint32_t tag;
};

struct pl_lane {
    bool active;
    uint64_t number;
    int round;
    struct pl_step step;
    struct pl_train in;
    struct pl_train out;
    char *arrived; /* what came in and is still to be combined; blocks put aside */
    char *work;    /* where there is no other place for partial results */
};

struct pl_exchange {
    struct pl_world *world;
    const struct pl_transport *transport;
    const struct pl_kernel *kernel;
    int rank;
    int size;
    const int *order;                      /* ring place -> rank */
    int *place_of;                         /* rank -> ring place */
    double message_ns[PL_EXCHANGE_PROBES]; /* what a turn of such messages takes: the cost model */
    /* allreduces up to this long ride with the agreement and are added up on the way */
    uint64_t sum_most_bytes;
    struct pl_agree agree;
    struct pl_lane lanes[PL_EXCHANGE_LANES];
    size_t lane_room_bytes; /* of each lane's two buffers */
    struct pl_residual *residuals;

    /* The collective under way: */
    struct pl_request *request;
    enum pl_pattern pattern;
    bool by_place; /* the pattern runs over ring places, not ranks */
    bool ragged;   /* blocks are the ranks' counts, not equal parts of a lane */
    int rounds;
    int blocks;
    uint64_t lane_elems; /* a lane: this much of the vector, or of each block where ragged */
    uint64_t lane_count;
    uint64_t lanes_started;
    uint64_t lanes_ended;
    size_t piece_bytes; /* a lane's message is cut into these */
    uint64_t *send_at;  /* [size + 1] starts of the ranks' blocks, where ragged */
    uint64_t *recv_at;
    const void **sources; /* [size] scratch: one pointer a rank */
    bool wired;           /* float32 travels as `wire` */
    enum pl_dtype wire;
    float *lost;                      /* [count] of the collective's name; NULL: not kept */
    struct pl_deferred_error failure; /* of a lane */
};

/** How much of every rank's data rides with the agreement; 0: none does. */
uint64_t pl_exchange_inline_bytes(const struct pl_exchange *exchange, const struct pl_collective *collective);

/** The longest float32 allreduce that rides with the agreement. */
static inline uint64_t pl_exchange_inline_most_bytes(const struct pl_exchange *exchange)
{
    uint64_t blocks = PL_AGREE_ROOM_BYTES / (uint64_t)exchange->size;

    return blocks > exchange->sum_most_bytes ? blocks : exchange->sum_most_bytes;
}

/** Whether an allreduce rides with the agreement and is added up on the way. */
bool pl_exchange_sums_inline(const struct pl_exchange *exchange, const struct pl_collective *collective);

/**
 * Choose pattern and lane size for the collective. Sets pattern, by_place, ragged, rounds, blocks, lane_elems,
 * lane_count, piece_bytes.
 */
void pl_exchange_plan(struct pl_exchange *exchange, const struct pl_collective *collective);

/**
 * Fill in the cost model, and what follows from it: from settings, else by measuring between hosts (some 30 ms at 1
 * Gbit/s). Collective.
 */
enum pl_status pl_exchange_model(struct pl_exchange *exchange, struct pl_error *reterr) PL_MUST_CHECK;

/** The pattern that the cost model or the setting `algorithm` gives an allreduce of `bytes`. */
enum pl_pattern pl_exchange_choose(const struct pl_exchange *exchange, uint64_t bytes);

void pl_exchange_describe(void *state, struct pl_text *text);

/** Find or make what earlier calls of this name have lost. */
enum pl_status pl_wire_start(struct pl_exchange *exchange, struct pl_error *reterr) PL_MUST_CHECK;
void pl_wire_done(struct pl_exchange *exchange);

/** Add what was lost to `data`, which is the vector's elements from `at`. */
void pl_wire_load(const struct pl_exchange *exchange, float *data, uint64_t at, uint64_t count);

enum pl_wire_step {
    PL_WIRE_PARTIAL,  /* note what is lost */
    PL_WIRE_FINISHED, /* and put what is left in its place */
    PL_WIRE_PASS,     /* nothing is lost: it came over the wire */
};

void pl_wire_pack(const struct pl_exchange *exchange, uint16_t *packed, float *data, uint64_t at, uint64_t count,
                  enum pl_wire_step step);

/** Replace `data`, or add what came as the left operand. */
void pl_wire_unpack(const struct pl_exchange *exchange, float *data, const uint16_t *packed, uint64_t count,
                    bool combine);

#endif
