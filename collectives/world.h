/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A world: a fixed set of ranks that run collectives together. It is a handle: N ranks can be N processes or N threads
 * of one process, and a sub-world is a world too. A child process after fork() must neither use nor free it.
 */
#ifndef PL_COLLECTIVES_WORLD_H
#define PL_COLLECTIVES_WORLD_H

#include "base/status.h"
#include "collectives/collective.h"

#include <stddef.h>
#include <stdint.h>

struct pl_world;
struct pl_device;
struct pl_text;

/**
 * Make a world of the `count` listed ranks of `parent`, in any order; rank i of the new world is ranks[i]. Only those
 * ranks call. The two worlds are independent of each other, may be freed in any order, and may be used by different
 * threads if the bootstrap allows that (MPI: with MPI_THREAD_MULTIPLE).
 *
 * Under MPI, no rank should free a sub-world before it is idle on all its ranks: end its use with a barrier there.
 * Otherwise a rank may fail in it after others have freed it, and its error message may reach a sub-world that those
 * ranks make later. Then that sub-world fails without a reason of its own.
 *
 * Errors      PL_INVALID (empty list, rank out of range or listed twice, caller not in it) and those of pl_world_new().
 *             If a rank has not come, then under MPI `parent` has failed as well: its ranks are desynchronised.
 */
enum pl_status pl_world_new_sub(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Release `world` on this rank, without waiting for others. Outstanding requests are cancelled and released too. NULL
 * is fine.
 */
void pl_world_free(struct pl_world *world);

PL_CLEANUP(pl_world_free_at, struct pl_world, pl_world_free)
#define PL_AUTO_WORLD __attribute__((cleanup(pl_world_free_at)))

int pl_world_rank(const struct pl_world *world);
int pl_world_size(const struct pl_world *world);

/** This rank's number among the ranks on this host, and the number of these ranks. */
int pl_world_local_rank(const struct pl_world *world);
int pl_world_local_size(const struct pl_world *world);

/** This host's number, counted from 0 in order of the lowest rank on each host, and the number of hosts. */
int pl_world_cross_rank(const struct pl_world *world);
int pl_world_cross_size(const struct pl_world *world);

/** True when every host has the same number of ranks. */
bool pl_world_is_homogeneous(const struct pl_world *world);

/** Whether several threads may use the ranks' transport at the same time (MPI_THREAD_MULTIPLE). */
bool pl_world_any_thread(const struct pl_world *world);

/** The host number of `rank`. */
int pl_world_host_of(const struct pl_world *world, int rank);

/**
 * The text of the setting `name` (for example "device", "ps_staleness"), equal on all ranks; "" if it is not set. NULL
 * if there is no such setting or its value is not text.
 */
const char *pl_world_setting(const struct pl_world *world, const char *name);

/** This rank's device; NULL if it has none. */
struct pl_device *pl_world_device(const struct pl_world *world);

/** The first failure that made the world unusable, or PL_OK. */
enum pl_status pl_world_failure(const struct pl_world *world, struct pl_error *reterr);

/**
 * Whether a message of a failed collective could not be cancelled. The memory that collectives of this world were given
 * may then be read and written until the process ends: do not release it (leak it), as the world does with its arena.
 */
bool pl_world_has_leaked(const struct pl_world *world);
#define pl_world_is_stranded pl_world_has_leaked /* former name, kept for one release */

/**
 * Append topology, backends (with the reason why a backend is off) and the algorithm for each size, as lines for
 * people.
 */
void pl_world_describe(const struct pl_world *world, struct pl_text *text);

#endif
