/* SPDX-License-Identifier: Apache-2.0 */
/** Inputs of a collective whose right answers are exact, and a look at every element of the answer. */
#ifndef PL_TESTS_SCENARIOS_TRIAL_H
#define PL_TESTS_SCENARIOS_TRIAL_H

#include "collectives/collective.h"

#include <stddef.h>
#include <stdint.h>

/** One collective with buffers, and what every rank knows about the others' inputs. */
struct trial {
    struct pl_world *world;
    int rank;
    int size;
    struct pl_collective c; /* send and recv are filled in */
    bool in_place;
    uint64_t salt; /* other inputs for another one; equal on all ranks, as all above but `rank` is */
    int quiet;     /* ALLTOALL with counts: this rank neither sends nor receives; -1: none */
    char *send;    /* room of the larger of the two, each */
    char *recv;
    char *before; /* the input as it was */
    char *failure;
    size_t failure_bytes;
};

/** Elements that this rank sends and receives. */
void trial_extents(const struct trial *t, uint64_t *ret_send, uint64_t *ret_recv);

/** What `from` sends to `to` in an ALLTOALL. */
uint64_t trial_pair_count(const struct trial *t, int from, int to);

/** Write this rank's input and let the descriptor point to the buffers. */
void trial_fill(struct trial *t);

/** Whether recv and send are what they should be; else `failure` says what is not. */
bool trial_check(const struct trial *t);

#endif
