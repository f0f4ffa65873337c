/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Adasum: an allreduce that adds orthogonal parts of two gradients and averages parallel ones,
 * a (1 - a.b / 2 a.a) + b (1 - a.b / 2 b.b), over a binary tree: ranks 0 and 1, 2 and 3, then 0-1 and 2-3, and so on.
 *
 * It is a chain of collectives (core/types.h) that any backend runs. Small vectors are exchanged in one allgather,
 * after which each rank computes the whole tree. Larger ones use recursive halving: for each level of the tree, ranks
 * exchange halves of their parts and gather dot products; at the end they gather the parts. Half-width floats are
 * converted to float32 in between; dot products and factors are float64. Internal to collectives/calls.
 *
 * Cost    halving: each rank sends about twice the vector, in log2(n) + 1 large and log2(n) small collectives.
 * Source  Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv 2006.02924.
 * Test    tests/unit/collectives/calls/test_adasum.c
 */
#ifndef PL_COLLECTIVES_CALLS_ADASUM_H
#define PL_COLLECTIVES_CALLS_ADASUM_H

#include "collectives/collective.h"

/** PL_OK if the ranks of `world` can run `collective`, which is an adasum. */
enum pl_status pl_adasum_check(const struct pl_world *world, const struct pl_collective *collective,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Check `collective`, which is an adasum, and queue its chain. Call with the world's lock held. */
enum pl_status pl_adasum_enqueue(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

#endif
