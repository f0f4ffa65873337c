/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collectives over point-to-point messages. Internal to collectives/.
 *
 * A collective is one algorithm (algorithm.h) that runs over many segments of the vector. A segment is small enough to
 * stay in cache; up to PL_P2P_SLOTS are under way at once, so that one is reduced while others are on the wire. Next to
 * the segments runs the call check (check_calls.h), which also carries the data of small collectives.
 */
#ifndef PL_COLLECTIVES_P2P_STATE_H
#define PL_COLLECTIVES_P2P_STATE_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/collective.h"
#include "collectives/core/backend.h"
#include "collectives/p2p/check_calls.h"
#include "collectives/reduce/kernel.h"

/* Number of segments under way. Together their messages must have more bytes than a link holds. */
enum { PL_P2P_SLOTS = 8 };

enum { PL_P2P_PROBES = 5 }; /* number of message sizes that are timed */

struct pl_residual; /* defined in residuals.c */

/* A long message of a slot, sent as pieces. Each piece is one message of the transport; one piece is under way at a
 * time. */
struct pl_p2p_segmented {
    struct pl_transfer transfer;
    char *data;
    size_t piece_bytes;
    size_t left_bytes; /* bytes left, including the piece under way */
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
    char *recv_buffer; /* received data that is not combined yet, or one block per sender */
    char *accumulator; /* partial results, if the caller's buffers cannot hold them */
};

struct pl_p2p {
    struct pl_world *world;
    const struct pl_transport *transport;
    const struct pl_kernel *kernel;
    int rank;
    int size;
    const int *order;                 /* rank at each ring position */
    int *position_of;                 /* ring position of each rank */
    double message_ns[PL_P2P_PROBES]; /* cost model: time of a round for each timed message size */
    /* size of the longest allreduce that is sent with the call check and reduced on the way */
    uint64_t sum_most_bytes;
    struct pl_check_calls check;
    struct pl_p2p_slot slots[PL_P2P_SLOTS];
    size_t slot_room_bytes; /* size of each slot's two buffers */
    struct pl_residual *residuals;

    /* The collective under way: */
    struct pl_request *request;
    uint64_t messages_number; /* number that gives the tags of the messages */
    enum pl_algorithm algorithm;
    bool by_position; /* the algorithm runs over ring positions, not ranks */
    bool ragged;      /* blocks have the ranks' counts and are not equal parts of a segment */
    int rounds;
    int blocks;
    uint64_t segment_elems; /* elements of the vector in a segment; if `ragged`, elements of each block */
    uint64_t segment_count;
    uint64_t segments_started;
    uint64_t segments_ended;
    size_t piece_bytes; /* size of the pieces that a slot's message is cut into */
    uint64_t *send_at;  /* [size + 1]: starts of the ranks' blocks, if `ragged` */
    uint64_t *recv_at;
    const void **sources;             /* [size], scratch memory: one pointer per rank */
    unsigned wire;                    /* flag PL_WIRE_* that says how float32 is compressed; 0: not compressed */
    float *residual;                  /* [count]: residual of the collective's name; may be NULL */
    struct pl_deferred_error failure; /* failure of a segment */
};

/** Bytes of each rank's data that are sent with the call check; may be 0. */
uint64_t pl_p2p_eager_bytes(const struct pl_p2p *p2p, const struct pl_collective *collective);

/** Size of the longest float32 allreduce that is sent with the call check. */
static inline uint64_t pl_p2p_eager_most_bytes(const struct pl_p2p *p2p)
{
    uint64_t blocks = PL_CHECK_CALLS_ROOM_BYTES / (uint64_t)p2p->size;

    return blocks > p2p->sum_most_bytes ? blocks : p2p->sum_most_bytes;
}

/** Whether an allreduce is sent with the call check and reduced on the way. */
bool pl_p2p_sums_eagerly(const struct pl_p2p *p2p, const struct pl_collective *collective);

/**
 * Choose algorithm and segment size for the collective. Sets the fields from `algorithm` to `segment_count`, and
 * `piece_bytes`.
 */
void pl_p2p_plan(struct pl_p2p *p2p, const struct pl_collective *collective);

/**
 * Fill the cost model and the fields that follow from it: from settings, or by measurement between hosts (about 30 ms
 * at 1 Gbit/s). Collective.
 */
enum pl_status pl_p2p_model(struct pl_p2p *p2p, struct pl_error *reterr) PL_MUST_CHECK;

/** The algorithm for an allreduce of `bytes`, by the cost model or the setting `algorithm`. */
enum pl_algorithm pl_p2p_choose(const struct pl_p2p *p2p, uint64_t bytes);

void pl_p2p_describe(void *state, struct pl_text *text);

/** Find the residual that earlier calls of this name have left, or make a new one. */
enum pl_status pl_residuals_find(struct pl_p2p *p2p, struct pl_error *reterr) PL_MUST_CHECK;
void pl_residuals_done(struct pl_p2p *p2p);

/** Add the residual to `data`, the vector's elements from `at`. */
void pl_residuals_add(const struct pl_p2p *p2p, float *data, uint64_t at, uint64_t count);

/** Pack the vector's elements from `at`, keep the rounding error; `finished`: also round `data` itself. */
void pl_residuals_pack(const struct pl_p2p *p2p, void *packed, float *data, uint64_t at, uint64_t count, bool finished);

/** Whether blocks must be reduced once, from all inputs, in rank order. */
bool pl_p2p_needs_direct(const struct pl_collective *collective);

/** Whether the collective asks for compression, and is of a kind that can be compressed. */
bool pl_p2p_is_compressed(const struct pl_collective *collective);

#endif
