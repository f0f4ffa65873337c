/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The start and the end of a training program: its rank, the world of all ranks, and the settings.
 *
 * Test  tests/integration/lifecycle.py
 */
#ifndef PL_RUNTIME_START_H
#define PL_RUNTIME_START_H

#include "collectives/world.h"
#include "device/device.h"
#include "runtime/trace.h"

struct pl_runtime;
struct pl_bootstrap;

/**
 * Joins the job that the environment describes: MPI's ranks if mpirun started this process, otherwise one rank.
 *
 * Rank 0 warns once if variables of Horovod, or former settings, are set that have no effect.
 *
 * Collective  yes, over the processes of the job.
 * Errors      PL_INVALID: a setting; those of pl_bootstrap_new_mpi(), pl_world_new() and pl_trace_new().
 */
enum pl_status pl_runtime_start(struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Like pl_runtime_start(), but may give each rank a GPU, and may use the caller's ranks: `bootstrap` (NULL: none),
 * which still belongs to the caller. The knobs `device` and `share_device` and the hosts' GPUs decide; all ranks get a
 * GPU, or none does. `device` replaces the knob of that name unless it is NULL. The ranks of a host choose together
 * (device/choose.h); the process then runs on the CPUs near its device, unless CPUs were chosen for it before.
 *
 * Errors      also PL_INVALID (fewer devices than ranks, no device of that number), PL_MISMATCH (devices on some ranks
 *             only), PL_UNSUPPORTED (a device is required, but there is none), and errors of a driver: the rank returns
 *             its own error, the others an error that names the rank.
 */
enum pl_status pl_runtime_start_on_device(struct pl_bootstrap *bootstrap, const char *device,
                                          struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns this rank's GPU, or NULL if it has none. It belongs to the runtime. */
struct pl_device *pl_runtime_device(const struct pl_runtime *runtime);

struct pl_world *pl_runtime_world(const struct pl_runtime *runtime);

/** Returns the variable `name` of the environment as it was at the start, or `otherwise` if it is not set or empty. */
const char *pl_runtime_variable(const struct pl_runtime *runtime, const char *name, const char *otherwise);

/**
 * Returns how often the whole job was started again after a failure (PACELINE_MAX_RESTARTS): 0 in the first attempt. A
 * program need not ask: it can resume from its newest checkpoint in every attempt.
 */
int pl_runtime_restarts(const struct pl_runtime *runtime);

/** Returns this rank's trace. Collectives are recorded in it; the program may add spans of its own. */
struct pl_trace *pl_runtime_trace(const struct pl_runtime *runtime);

/**
 * Leaves the job. Free sub-worlds, process sets and plans before. MPI is finalised if pl_runtime_start() initialised it
 * and no other runtime is left. A program that failed does not call this: it ends at once with a status other than 0,
 * and mpirun ends the other ranks. NULL is fine.
 *
 * Waits for the other ranks as a collective does: a rank that still works, for example writes the model, may come
 * later, by up to the setting timeout_s. After stall_s a warning names it. A rank that has died is noticed at once if
 * possible. If a rank does not come, this rank warns and leaves without MPI_Finalize, and mpirun reports that the job
 * failed. After a failure of the world it does not wait.
 *
 * Collective  yes.
 */
void pl_runtime_stop(struct pl_runtime *runtime);

#endif
