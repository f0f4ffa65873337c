/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Random training programs: named tensors in any order in several process sets, plans, joins, checkpoints; all drawn
 * from a seed by every rank alike, and every element of every answer looked at. And programs with one mistake, which
 * every rank has to report.
 */
#ifndef PL_TESTS_SCENARIOS_TRAINING_H
#define PL_TESTS_SCENARIOS_TRAINING_H

#include "collectives/world.h"

enum { TRAINING_TEXT_BYTES = 1300, TRAINING_MOST_RANKS = 8, TRAINING_MISTAKES = 11 };

#define TRAINING_LONG "100"

/**
 * Collective. `seed` and `steps` are equal on all ranks. Stops at the first wrong answer, whose description goes to
 * `failure`; "" when all is well.
 */
void training_run(struct pl_world *world, uint64_t seed, int steps, char failure[TRAINING_TEXT_BYTES]);

/**
 * Collective, over 2 ranks at least. Make mistake `seed` % TRAINING_MISTAKES on one rank; "" when each rank reported
 * what it has to report.
 */
void training_err(struct pl_world *world, uint64_t seed, char failure[TRAINING_TEXT_BYTES]);

/**
 * How long ranks may wait for each other in the mistake of `seed`, for PL_KNOB_TIMEOUT_S: TRAINING_LONG unless the
 * deadline is what ends it.
 */
const char *training_err_timeout(uint64_t seed);

#endif
