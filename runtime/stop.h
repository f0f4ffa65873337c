/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Stop requests: after SIGTERM to any rank, all ranks stop after the same step and can write a checkpoint.
 *
 * Source  SageMaker sends SIGTERM and allows 120 s; Managed Spot Training restarts the job later from its checkpoints.
 * Test    tests/unit/runtime/test_stop.c, tests/integration/resume.py
 */
#ifndef PL_RUNTIME_STOP_H
#define PL_RUNTIME_STOP_H

#include "collectives/world.h"

/** From now on SIGTERM only records a stop request for this process. */
enum pl_status pl_stop_watch(struct pl_error *reterr) PL_MUST_CHECK;

/** Whether this process was asked to stop since pl_stop_watch(). */
bool pl_stop_requested(void);

/**
 * Returns a descriptor that becomes readable when this process is asked to stop, for waits to poll. It belongs to the
 * library. -1 before pl_stop_watch(). pl_channel_setup_find() gives it to the channels that it finds.
 */
int pl_stop_fd(void);

/** Finds out, once per step, whether any rank of a world was asked to stop. */
struct pl_stop;

/** `world` must outlive it. Not collective. */
enum pl_status pl_stop_new(struct pl_world *world, struct pl_stop **ret_stop, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Tells whether any rank had been asked to stop by the previous call; the same answer on all ranks. Call it once a
 * step. The answer is a step late, so that no rank waits: each call takes the result of the previous allreduce of four
 * bytes, and begins one that runs during the next step. After the first yes all answers are yes, without allreduces.
 *
 * Collective  yes, but waits only for a rank that has not made the previous call.
 */
enum pl_status pl_stop_agreed(struct pl_stop *stop, bool *ret_stop, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits until all ranks have made the call that this rank made last. NULL is fine. */
void pl_stop_free(struct pl_stop *stop);

#endif
