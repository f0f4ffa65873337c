/* SPDX-License-Identifier: Apache-2.0 */
/** Random mixtures of collectives on a world and two sub-worlds at once; every element of every result is checked. */
#ifndef PL_TESTS_SCENARIOS_MIXED_H
#define PL_TESTS_SCENARIOS_MIXED_H

#include "base/knob.h"
#include "collectives/world.h"

enum { MIXED_TEXT_BYTES = 1300 };

/**
 * Run the mixture. Collective; `seed` and `steps` are equal on all ranks. Stops at the first wrong result and describes
 * it in `failure`; "" if all results are right.
 */
void mixed_run(struct pl_world *world, uint64_t seed, int steps, char failure[MIXED_TEXT_BYTES]);

/** Draw settings for a world of `size` ranks. Returns pl_world_options.pretend_ranks_per_host. */
int mixed_settings(uint64_t *seed, int size, struct pl_knobs *ret_knobs);

/** The next number of the random sequence `*seed`, below `below`. */
uint64_t mixed_draw(uint64_t *seed, uint64_t below);

#endif
