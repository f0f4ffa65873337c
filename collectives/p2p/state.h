/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collectives over point-to-point messages; internal to collectives/.
 *
 * A collective is one algorithm (algorithm.h) run over many lanes. A lane is a piece of the vector, small enough to
 * stay in cache; up to PL_P2P_SLOTS are under way at once, so that one is added up while others are on the wire. Next
 * to the lanes runs the agreement (check_calls.h), which also carries the data of small collectives.
 */
#ifndef PL_COLLECTIVES_P2P_STATE_H
#define PL_COLLECTIVES_P2P_STATE_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/bootstrap/transport.h"
#include "collectives/core/backend.h"
#include "collectives/core/deferred_error.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/reduce/kernel.h"

/* Segments under way: together their messages have to cover the bytes under way on a link. */
enum { PL_P2P_SLOTS = 8 };

enum { PL_P2P_PROBES = 5 }; /* message sizes that are timed */

struct pl_residual; /* residuals.c */

/* A segmented message of a slot: each piece is one message of the transport, and the first is under way. */
struct pl_p2p_segmented {
    struct pl_transfer transfer;
    char *data;
    size_t piece_bytes;
    size_t left_bytes; /* with that piece */
    int peer;
    uint32_t tag;
};

struct pl_p2p_slot {
    bool active;
    uint64_t number;
    int round;
    struct pl_algorithm_step step;
    struct pl_p2p_segmented in;
    struct pl_p2p_segmented out;
    char *recv_buffer; /* received and still to be combined; blocks that are kept apart */
    char *accumulator; /* accumulator, where the caller's buffers cannot hold partial results */
};

struct pl_p2p {
    struct pl_world *world;
    const struct pl_transport *transport;
    const struct pl_kernel *kernel;
    int rank;
    int size;
    const int *order;                 /* ring position -> rank */
    int *position_of;                 /* rank -> ring position */
    double message_ns[PL_P2P_PROBES]; /* what a round of such messages takes: the cost model */
    /* allreduces up to this long are sent with the call check and added up on the way */
    uint64_t sum_most_bytes;
    struct pl_check_calls check;
    struct pl_p2p_slot slots[PL_P2P_SLOTS];
    size_t slot_room_bytes; /* of each slot's two buffers */
    struct pl_residual *residuals;

    /* The collective under way: */
    struct pl_request *request;
    enum pl_algorithm algorithm;
    bool by_position; /* the algorithm runs over ring positions, not ranks */
    bool ragged;      /* blocks are the ranks' counts, not equal parts of a segment */
    int rounds;
    int blocks;
    uint64_t segment_elems; /* a segment: this much of the vector, or of each block where ragged */
    uint64_t segment_count;
    uint64_t segments_started;
    uint64_t segments_ended;
    size_t piece_bytes; /* a slot's message is cut into these */
    uint64_t *send_at;  /* [size + 1] starts of the ranks' blocks, where ragged */
    uint64_t *recv_at;
    const void **sources;             /* [size] scratch: one pointer a rank */
    unsigned wire;                    /* a flag PL_WIRE_*: float32 is compressed so; 0: it is not */
    float *residual;                  /* [count] of the collective's name; NULL: not kept */
    struct pl_deferred_error failure; /* of a lane */
};

/** How much of every rank's data is sent with the call check; 0: none is. */
uint64_t pl_p2p_eager_bytes(const struct pl_p2p *p2p, const struct pl_collective *collective);

/** The longest float32 allreduce that is sent with the call check. */
static inline uint64_t pl_p2p_eager_most_bytes(const struct pl_p2p *p2p)
{
    uint64_t blocks = PL_CHECK_CALLS_ROOM_BYTES / (uint64_t)p2p->size;

    return blocks > p2p->sum_most_bytes ? blocks : p2p->sum_most_bytes;
}

/** Whether an allreduce is sent with the call check and added up on the way. */
bool pl_p2p_sums_eagerly(const struct pl_p2p *p2p, const struct pl_collective *collective);

/**
 * Choose algorithm and segment size for the collective. Sets the fields from `algorithm` to `segment_count`, and
 * `piece_bytes`.
 */
void pl_p2p_plan(struct pl_p2p *p2p, const struct pl_collective *collective);

/**
 * Fill in the cost model, and what follows from it: from settings, else by measuring between hosts (some 30 ms at 1
 * Gbit/s). Collective.
 */
enum pl_status pl_p2p_model(struct pl_p2p *p2p, struct pl_error *reterr) PL_MUST_CHECK;

/** The algorithm that the cost model or the setting `algorithm` gives an allreduce of `bytes`. */
enum pl_algorithm pl_p2p_choose(const struct pl_p2p *p2p, uint64_t bytes);

void pl_p2p_describe(void *state, struct pl_text *text);

/** Find or make the residual that earlier calls of this name have left. */
enum pl_status pl_residuals_find(struct pl_p2p *p2p, struct pl_error *reterr) PL_MUST_CHECK;
void pl_residuals_done(struct pl_p2p *p2p);

/** Add the residual to `data`, which is the vector's elements from `at`. */
void pl_residuals_add(const struct pl_p2p *p2p, float *data, uint64_t at, uint64_t count);

enum pl_residuals_step {
    PL_RESIDUALS_PARTIAL,  /* keep the rounding error */
    PL_RESIDUALS_FINISHED, /* and replace the data by its rounded form */
    PL_RESIDUALS_PASS,     /* exact: it was received in 16 bits */
};

void pl_residuals_pack(const struct pl_p2p *p2p, void *packed, float *data, uint64_t at, uint64_t count,
                       enum pl_residuals_step step);

#endif
