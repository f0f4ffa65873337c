/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The one state of a process that Horovod's Python uses: the C interface has no handles, and the modules of several
 * frameworks are one Horovod.
 *
 * Threads  any.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_STATE_H
#define PL_RUNTIME_HOROVOD_STATE_H

#include "runtime/service.h"
#include "runtime/start.h"

/**
 * Join the job, over the MPI communicator at `communicator_at`, or where that is NULL as pl_runtime_start() does,
 * without a deadline unless one is set. Nothing happens where that was done. Collective.
 */
enum pl_status pl_state_start(const void *communicator_at, struct pl_error *reterr) PL_MUST_CHECK;

/** Leave, see pl_service_shutdown() and pl_runtime_stop(); waits for calls that others are in. Collective. */
void pl_state_stop(void);

/** The service, which stays until pl_state_release(); NULL where there is none, and nothing to release. */
struct pl_service *pl_state_hold(void);
void pl_state_release(void);

/** Between hold and release. */
const struct pl_runtime *pl_state_runtime(void);

#endif
