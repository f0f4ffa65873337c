/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Being asked to stop: SIGTERM to any rank leads all ranks to stop behind the same step, where they can write a checkpoint.
 *
 * Source  SageMaker sends SIGTERM and allows 120 s; Managed Spot Training restarts the job later from its checkpoints.
 * Test    tests/unit/runtime/test_stop.c, tests/integration/resume.py
 */
#ifndef PL_RUNTIME_STOP_H
#define PL_RUNTIME_STOP_H

#include "collectives/world.h"

/** From now on SIGTERM is only noted. Signals are the process's, and so is this note. */
enum pl_status pl_stop_watch(struct pl_error *reterr) PL_MUST_CHECK;

/** Whether this process was asked to stop since pl_stop_watch(). */
bool pl_stop_requested(void);

/**
 * Whether any rank was; the same answer on all. One allreduce of four bytes: call it once a step.
 *
 * Collective  yes.
 */
enum pl_status pl_stop_agreed(struct pl_world *world, bool *ret_stop, struct pl_error *reterr) PL_MUST_CHECK;

#endif
