/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The arithmetic of the algorithms, without buffers and messages: n positions and a vector cut into blocks. For each
 * position and round it tells which blocks go to which position. In every round a position sends at most one message
 * and receives at most one.
 *
 * Test  tests/unit/collectives/algorithms/test_algorithm.c runs each on paper for 1 to 33 positions and draws five.
 */
#ifndef PL_COLLECTIVES_ALGORITHMS_ALGORITHM_H
#define PL_COLLECTIVES_ALGORITHMS_ALGORITHM_H

#include <stdbool.h>

/*
 * NAME, text. n positions, B bytes in the vector of each, a = time of an empty message, b = time per byte on a link.
 * The time for adding comes on top.
 *
 *   ring                 2(n-1)a + 2(n-1)/n B b     fewest bytes, neighbours only
 *   halving              2 log2(n) a + 2(n-1)/n B b  Rabenseifner's: fewest bytes, few rounds; one more round each
 *                        way unless n is a power of two
 *   doubling             log2(n) a + log2(n) B b     recursive doubling: fewest rounds
 *   tree                 2 log2(n) (a + B b)         fewest messages: n-1 each way
 *   direct               2(n-1)a + 2(n-1)/n B b      each block is reduced once, from all inputs in position order
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
    int send_first; /* first block that is sent */
    int send_blocks;
    int from;
    int recv_first;
    int recv_blocks;
    bool combine;       /* whether received data is added to the position's own; otherwise it replaces it */
    bool received_left; /* whether received data is the left operand, so that both ends of an exchange compute the
                         * same bits */
    bool per_sender;    /* whether received data is kept in a buffer per sender until
                         * pl_algorithm_reduces_per_sender() */
};

const char *pl_algorithm_text(enum pl_algorithm algorithm);

int pl_algorithm_rounds(enum pl_algorithm algorithm, int n);

/** Number of blocks that the vector is cut into. */
int pl_algorithm_blocks(enum pl_algorithm algorithm, int n);

/** The step of `position` in `round`; `root` matters to algorithms that have one. */
struct pl_algorithm_step pl_algorithm_step_at(enum pl_algorithm algorithm, int n, int position, int root, int round);

/** Whether after this round the blocks kept per sender are added to the own block, in order of positions. */
bool pl_algorithm_reduces_per_sender(enum pl_algorithm algorithm, int n, int round);

#endif
