/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The beginning and the end of a training program: who am I among the ranks, and with which settings.
 *
 * Test  tests/unit/runtime/test_start.c
 */
#ifndef PL_RUNTIME_START_H
#define PL_RUNTIME_START_H

#include "base/environment.h"
#include "collectives/world.h"
#include "runtime/trace.h"

struct pl_runtime;

/**
 * Join the job that the environment describes: MPI's ranks when mpirun started this process, otherwise one rank alone.
 *
 * Collective  yes, over the processes of the job.
 * Errors      those of pl_bootstrap_new_mpi() and pl_world_new().
 */
enum pl_status pl_runtime_start(struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_runtime_start() over ranks that the caller brings; `bootstrap` stays the caller's. */
enum pl_status pl_runtime_start_over(struct pl_bootstrap *bootstrap, struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

struct pl_world *pl_runtime_world(const struct pl_runtime *runtime);

/** The environment as it was at the start. */
const struct pl_environment *pl_runtime_environment(const struct pl_runtime *runtime);

/** This rank's trace: collectives are in it already, the program may add spans of its own. */
struct pl_trace *pl_runtime_trace(const struct pl_runtime *runtime);

/**
 * Leave; MPI is finalised if pl_runtime_start() initialised it. A program that failed does not call this: it ends at
 * once with a status other than 0, and mpirun ends the other ranks. NULL is fine.
 *
 * Collective  yes.
 */
void pl_runtime_stop(struct pl_runtime *runtime);

#endif
