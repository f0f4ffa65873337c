/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Random training programs: named tensors in any order in several process sets, plans, joins, checkpoints. Every rank
 * draws the same from a seed, and every element of every result is checked. Also programs with one mistake, which every
 * rank has to report.
 */
#ifndef PL_TESTS_SCENARIOS_TRAINING_H
#define PL_TESTS_SCENARIOS_TRAINING_H

#include "collectives/world.h"

enum { TRAINING_TEXT_BYTES = 1300, TRAINING_MOST_RANKS = 8, TRAINING_MISTAKES = 11 };

#define TRAINING_LONG "100"

/**
 * Run the program. Collective; `seed` and `steps` are equal on all ranks. Stops at the first wrong result and describes
 * it in `failure`; "" if all results are right.
 */
void training_run(struct pl_world *world, uint64_t seed, int steps, char failure[TRAINING_TEXT_BYTES]);

/**
 * Make mistake `seed` % TRAINING_MISTAKES on one rank. Collective, over at least 2 ranks. `failure` is "" if each rank
 * has reported the expected error.
 */
void training_err(struct pl_world *world, uint64_t seed, char failure[TRAINING_TEXT_BYTES]);

/**
 * How long ranks may wait for each other in the mistake of `seed`, for PL_KNOB_TIMEOUT_S: TRAINING_LONG unless the
 * deadline is meant to end it.
 */
const char *training_err_timeout(uint64_t seed);

#endif
