/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Worlds of a simulation, instead of those of collectives/: an allgather is a table of bytes, and a sum a loop. When a
 * collective arrives at a rank is drawn from the seed of virtual_threads.h. Ranks that post different collectives are a
 * fault, which the simulation reports: whoever uses a world must agree beforehand.
 */
#ifndef PL_TESTS_FAKES_VIRTUAL_WORLD_H
#define PL_TESTS_FAKES_VIRTUAL_WORLD_H

#include "collectives/world.h"

/** How long a rank of a virtual world waits for another. */
#define VIRTUAL_TIMEOUT_NS (INT64_C(200) * 1000000)

/** Makes the worlds of `size` ranks; ret_worlds[r] is that of rank r. */
void virtual_world_new(int size, struct pl_world **ret_worlds);

/** The process of rank `rank` of the whole world ends: all its worlds fail, here at once and elsewhere soon. */
void virtual_world_kill(struct pl_world *world);

#endif
