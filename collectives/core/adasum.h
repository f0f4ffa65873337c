/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Adasum: an allreduce that adds what two gradients say differently and averages what they say alike,
 * a (1 - a.b / 2 a.a) + b (1 - a.b / 2 b.b), over a binary tree: ranks 0 and 1, 2 and 3, then 0-1 and 2-3, and so on.
 *
 * It is a chain of requests in the world's queue that other backends run: small vectors in one allgather, after which
 * each rank walks the whole tree; larger ones by recursive halving, where for each level of the tree ranks exchange
 * halves of what they hold and gather dot products, and at the end gather the parts. Half-width floats are float32 in
 * between; dot products and factors are float64. Internal to collectives/core.
 *
 * Cost    halving: each rank sends about twice the vector, and log2(n) + 1 small and large collectives each.
 * Source  Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv 2006.02924.
 * Test    tests/unit/collectives/core/test_adasum.c
 */
#ifndef PL_COLLECTIVES_CORE_ADASUM_H
#define PL_COLLECTIVES_CORE_ADASUM_H

#include "collectives/collective.h"

struct pl_request;
struct pl_adasum;

/** PL_OK where `collective`, an adasum, can be done by `size` ranks. */
enum pl_status pl_adasum_check(int size, const struct pl_collective *collective, struct pl_error *reterr) PL_MUST_CHECK;

/** The chain for `collective`, which has been checked, and how many requests it has. */
enum pl_status pl_adasum_new(const struct pl_world *world, const struct pl_collective *collective,
                             struct pl_adasum **ret_adasum, int *ret_steps, struct pl_error *reterr) PL_MUST_CHECK;

/** One of the chain's requests does not need it any more; the last one frees it. */
void pl_adasum_release(struct pl_adasum *adasum);

/** Whether `step` is the last one, whose request is the program's. */
bool pl_adasum_is_last(const struct pl_adasum *adasum, int step);

/** The collective of step `step` without its buffers. Counts are the chain's, and valid until the next call. */
struct pl_collective pl_adasum_describe(struct pl_adasum *adasum, int step);

/** Before the step of `request` starts: do what its data needs, and set its buffers. */
enum pl_status pl_adasum_start(struct pl_request *request, struct pl_error *reterr) PL_MUST_CHECK;

/** After the last step: the result into the program's buffer. */
void pl_adasum_finish(struct pl_request *request);

/** Release what the chains of a world share. */
void pl_adasum_drop(struct pl_world *world);

#endif
