/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The beginning and the end of a training program: who am I among the ranks, and with which settings.
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
 * Join the job that the environment describes: MPI's ranks when mpirun started this process, otherwise one rank alone.
 *
 * Rank 0 warns once of Horovod's variables, and of settings that are gone, that are set and have no effect here.
 *
 * Collective  yes, over the processes of the job.
 * Errors      PL_INVALID: a setting; those of pl_bootstrap_new_mpi(), pl_world_new() and pl_trace_new().
 */
enum pl_status pl_runtime_start(struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_runtime_start(), or over ranks that the caller brings as `bootstrap`, which stays the caller's; and with a GPU
 * for each rank where the knobs `device` and `share_device` and the hosts have it so: all ranks get one, or none does.
 * `device` stands for the knob of that name, NULL: the knob's value. The ranks of a host choose together
 * (device/choose.h); the process then runs on the CPUs near its device, unless CPUs were chosen for it before.
 *
 * Errors      also PL_INVALID (fewer devices than ranks, no device of that number), PL_MISMATCH (devices on some ranks
 *             only), PL_UNSUPPORTED (wanted, and there are none), and a driver's own: on the rank itself, while the
 *             others name that rank.
 */
enum pl_status pl_runtime_start_on_device(struct pl_bootstrap *bootstrap, const char *device,
                                          struct pl_runtime **ret_runtime, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns this rank's GPU, or NULL if it has none. It belongs to the runtime. */
struct pl_device *pl_runtime_device(const struct pl_runtime *runtime);

struct pl_world *pl_runtime_world(const struct pl_runtime *runtime);

/** Returns the variable `name` of the environment as it was at the start, or `otherwise` if it is not set or empty. */
const char *pl_runtime_variable(const struct pl_runtime *runtime, const char *name, const char *otherwise);

/**
 * Returns how often the job was started again after a failure (PACELINE_MAX_RESTARTS), with all ranks: 0 in the first
 * attempt. A program need not ask: one that goes on from its newest checkpoint does so in each attempt.
 */
int pl_runtime_restarts(const struct pl_runtime *runtime);

/** Returns this rank's trace. Collectives are recorded in it; the program may add spans of its own. */
struct pl_trace *pl_runtime_trace(const struct pl_runtime *runtime);

/**
 * Leave; sub-worlds, process sets and plans are freed before. MPI is finalised if pl_runtime_start() initialised it and
 * no other runtime is left. A program that failed does not call this: it ends at once with a status other than 0, and
 * mpirun ends the other ranks. NULL is fine.
 *
 * Waits for the other ranks as a collective does: a rank that still has something to do, such as writing the model, may
 * come later by up to the setting timeout_s; a warning names it when that takes long (stall_s), and one that has died
 * is noticed at once where it can be. When it does not come, this rank warns and leaves without MPI_Finalize, which
 * mpirun takes for a failure of the job. After a failure of the world no rank is waited for.
 *
 * Collective  yes.
 */
void pl_runtime_stop(struct pl_runtime *runtime);

#endif
