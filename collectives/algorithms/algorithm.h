/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The arithmetic of the algorithms, apart from buffers and messages: n positions, a vector cut into blocks, and for
 * each position and round which blocks go to which position. In every round a position sends at most one message and
 * receives at most one.
 *
 * Test  tests/unit/collectives/algorithms/test_algorithm.c runs each on paper for 1 to 33 positions and draws five.
 */
#ifndef PL_COLLECTIVES_ALGORITHMS_ALGORITHM_H
#define PL_COLLECTIVES_ALGORITHMS_ALGORITHM_H

#include <stdbool.h>

/*
 * NAME, text. n positions, B bytes in the vector of each, a = time of an empty message, b = time a byte on a link;
 * adding up comes on top.
 *
 *   ring                 2(n-1)a + 2(n-1)/n B b     least bytes, neighbours only
 *   halving              2 log2(n) a + 2(n-1)/n B b  Rabenseifner's: least bytes, few rounds; one more round each
 *                        way unless n is a power of two
 *   doubling             log2(n) a + log2(n) B b     recursive doubling: fewest rounds
 *   tree                 2 log2(n) (a + B b)         least work in all: n-1 messages each way
 *   direct               2(n-1)a + 2(n-1)/n B b      each block is added up once, from all inputs, in position order
 */
#define PL_ALGORITHM_LIST(X)                                                                                           \
    X(RING, "ring")                                                                                                    \
    X(HALVING, "halving")                                                                                              \
    X(DOUBLING, "doubling")                                                                                            \
    X(TREE, "tree")                                                                                                    \
    X(DIRECT, "direct")                                                                                                \
    X(RING_REDUCE_SCATTER, "ring reduce_scatter")                                                                      \
    X(RING_ALLGATHER, "ring allgather")                                                                                \
    X(DIRECT_REDUCE_SCATTER, "direct reduce_scatter")                                                                  \
    X(DIRECT_REDUCE, "direct reduce")                                                                                  \
    X(TREE_BROADCAST, "tree broadcast")                                                                                \
    X(CHAIN_BROADCAST, "chain broadcast")                                                                              \
    X(TREE_REDUCE, "tree reduce")                                                                                      \
    X(CHAIN_REDUCE, "chain reduce")                                                                                    \
    X(PAIRWISE, "pairwise alltoall")

enum pl_algorithm {
#define PL_ALGORITHM_ENUM(name, text) PL_ALGORITHM_##name,
    PL_ALGORITHM_LIST(PL_ALGORITHM_ENUM)
#undef PL_ALGORITHM_ENUM
};

enum { PL_ALGORITHM_COUNT = PL_ALGORITHM_PAIRWISE + 1 };

/** What one position does in one round. A peer of -1 means that there is no message in that direction. */
struct pl_algorithm_step {
    int to;
    int send_first; /* blocks */
    int send_blocks;
    int from;
    int recv_first;
    int recv_blocks;
    bool combine;       /* what comes in is added to the position's own; otherwise it replaces it */
    bool received_left; /* what comes in is the left operand: both ends of an exchange then compute the same bits */
    bool per_sender;    /* what comes in is kept apart, by sender, until pl_algorithm_reduces_per_sender() */
};

const char *pl_algorithm_text(enum pl_algorithm algorithm);

int pl_algorithm_rounds(enum pl_algorithm algorithm, int n);

/** Blocks that the vector is cut into. */
int pl_algorithm_blocks(enum pl_algorithm algorithm, int n);

/** The round of position `position`; `root` matters to algorithms that have one. */
struct pl_algorithm_step pl_algorithm_step_at(enum pl_algorithm algorithm, int n, int position, int root, int round);

/** True for the round after which the blocks kept apart are added up, in order of positions, to the own block. */
bool pl_algorithm_reduces_per_sender(enum pl_algorithm algorithm, int n, int round);

#endif
