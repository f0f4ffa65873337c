/* SPDX-License-Identifier: Apache-2.0 */
/** Inputs of a collective whose results are exact, and a check of every element of the result. */
#ifndef PL_TESTS_SCENARIOS_TRIAL_H
#define PL_TESTS_SCENARIOS_TRIAL_H

#include "collectives/collective.h"

#include <stddef.h>
#include <stdint.h>

/** One collective with its buffers, and what every rank knows about the inputs of others. */
struct trial {
    struct pl_world *world;
    int rank;
    int size;
    struct pl_collective c; /* send and recv are filled in */
    bool in_place;
    uint64_t salt; /* different inputs for a different salt; equal on all ranks, as all fields above except `rank` */
    int quiet;     /* ALLTOALL with counts: this rank neither sends nor receives; -1: no such rank */
    char *send;    /* this and recv have room for the larger of the two */
    char *recv;
    char *before; /* copy of the input */
    char *failure;
    size_t failure_bytes;
};

/** Number of elements that this rank sends and receives. */
void trial_extents(const struct trial *t, uint64_t *ret_send, uint64_t *ret_recv);

/** Number of elements that `from` sends to `to` in an ALLTOALL. */
uint64_t trial_pair_count(const struct trial *t, int from, int to);

/** Write this rank's input and let the descriptor point to the buffers. */
void trial_fill(struct trial *t);

/** Whether recv and send have the expected content; if not, `failure` describes the difference. */
bool trial_check(const struct trial *t);

#endif
