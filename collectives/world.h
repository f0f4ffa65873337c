/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A world: a fixed set of ranks that run collectives together. It is a handle, so that N ranks can be N processes or N
 * threads of one, and sub-worlds are worlds. The child of a fork has no part in it and neither uses nor frees it.
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
 * A world of the `count` ranks of `parent` listed, ascending or not; rank i of the new world is ranks[i]. Only those
 * ranks call. The two worlds are independent of each other, need not be freed in any order, and may be used by
 * different threads if the bootstrap allows that (MPI: with MPI_THREAD_MULTIPLE).
 *
 * Under MPI a sub-world should be idle on all its ranks before any rank frees it: end its use with a barrier there.
 * Otherwise a rank may fail in it after others have freed it, and its error message may reach a sub-world that those
 * make later: that one then fails, although nothing is wrong in it.
 *
 * Errors      PL_INVALID (empty list, rank out of range or twice, caller not in it) and those of pl_world_new(). Where
 *             a rank has not come, under MPI, `parent` has failed as well: its ranks are desynchronised.
 */
enum pl_status pl_world_new_sub(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Release on this rank; does not wait for others. Outstanding requests are cancelled and released too. NULL is fine.
 */
void pl_world_free(struct pl_world *world);
void pl_world_free_at(struct pl_world **world_at);

#define PL_AUTO_WORLD __attribute__((cleanup(pl_world_free_at)))

int pl_world_rank(const struct pl_world *world);
int pl_world_size(const struct pl_world *world);

/** Rank among, and number of, the ranks on this host. */
int pl_world_local_rank(const struct pl_world *world);
int pl_world_local_size(const struct pl_world *world);

/** This host's number, from 0 in order of the lowest rank on it, and the number of hosts. */
int pl_world_cross_rank(const struct pl_world *world);
int pl_world_cross_size(const struct pl_world *world);

/** True when every host has the same number of ranks. */
bool pl_world_is_homogeneous(const struct pl_world *world);

/** True when several threads of the program may use its ranks' way to each other at once (MPI_THREAD_MULTIPLE). */
bool pl_world_any_thread(const struct pl_world *world);

/** The host number of `rank`. */
int pl_world_host_of(const struct pl_world *world, int rank);

/**
 * The setting `name` in force, equal on all ranks: "device", "ps_staleness" and others whose value is a text or a word;
 * "" where it is not set. NULL: there is no such setting.
 */
const char *pl_world_setting(const struct pl_world *world, const char *name);

/** This rank's device, NULL without one. */
struct pl_device *pl_world_device(const struct pl_world *world);

/** The first failure that made the world unusable, or PL_OK. */
enum pl_status pl_world_failure(const struct pl_world *world, struct pl_error *reterr);

/**
 * Whether a message of a failed collective could not be cancelled. The memory that collectives of this world were given
 * may then be read and written until the process ends: do not release it (leak it), as the world does with its arena.
 */
bool pl_world_has_leaked(const struct pl_world *world);
#define pl_world_is_stranded pl_world_has_leaked /* its former name, for one release */

/** Append topology, backends (and why each is off) and which algorithm serves which size, as lines for people. */
void pl_world_describe(const struct pl_world *world, struct pl_text *text);

#endif
