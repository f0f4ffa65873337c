/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Random mixtures of collectives on a world and two sub-worlds at once, with every element of every answer looked at.
 */
#ifndef PL_TESTS_SCENARIOS_MIXED_H
#define PL_TESTS_SCENARIOS_MIXED_H

#include "base/knob.h"
#include "collectives/world.h"

enum { MIXED_TEXT_BYTES = 1300 };

/**
 * Collective. `seed` and `steps` are equal on all ranks. Stops at the first wrong answer, whose description goes to
 * `failure`; "" when all is well.
 */
void mixed_run(struct pl_world *world, uint64_t seed, int steps, char failure[MIXED_TEXT_BYTES]);

/** Draw settings for a world of `size` ranks, and how many of them pretend to share a host: struct pl_world_options. */
int mixed_settings(uint64_t *seed, int size, struct pl_knobs *ret_knobs);

/** The next of the numbers that `*seed` stands for, below `below`. */
uint64_t mixed_draw(uint64_t *seed, uint64_t below);

#endif
