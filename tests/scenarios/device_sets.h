/* SPDX-License-Identifier: Apache-2.0 */
/** Process sets whose operations in device memory come in opposite orders on two ranks, the first ones too. */
#ifndef PL_TESTS_SCENARIOS_DEVICE_SETS_H
#define PL_TESTS_SCENARIOS_DEVICE_SETS_H

#include "collectives/world.h"

enum { DEVICE_SETS_TEXT_BYTES = 1400 };

/**
 * Run `rounds` times, each with a service of its own on `world`, which has two ranks at least: all ranks in two sets,
 * and sets of some. Each rank submits to all sets that it is in, ranks with an odd number in the opposite order, and
 * sums in host memory meanwhile; rank r uses device r mod `devices`. Collective. Stops at the first wrong result and
 * describes it in `failure`; "" if all results are right.
 */
void device_sets_run(struct pl_world *world, int devices, int rounds, char failure[DEVICE_SETS_TEXT_BYTES]);

/**
 * Make a sub-world of all ranks and a world as for their devices at the same time, `rounds` times, in two threads; the
 * threads change their roles on ranks with an odd number. Collective; `failure` as above.
 */
void device_sets_beside(struct pl_world *world, int rounds, char failure[DEVICE_SETS_TEXT_BYTES]);

#endif
