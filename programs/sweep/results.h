/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a sweep has found, for people and for programs.
 *
 * Test  tests/unit/programs/sweep/test_results.c
 */
#ifndef PL_PROGRAMS_SWEEP_RESULTS_H
#define PL_PROGRAMS_SWEEP_RESULTS_H

#include "base/text.h"
#include "programs/sweep/journal.h"

/**
 * Append trials.jsonl: one JSON object a trial, by number: trial, point, state, hyperparameters, METRIC (the best
 * value), best_step, step (the last), runs, seconds, host, reason; null where there is nothing. A trial that pauses
 * when the sweep is done has been stopped.
 */
enum pl_status pl_sweep_results_jsonl(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                                      const struct pl_sweep_record *records, struct pl_text *text,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append a table for a terminal: the best first, those that failed last with the first words of their reason; at most
 * `most_rows` rows, then how many more there are. With seeds, a row a point, the best mean first: mean, spread (the
 * standard deviation of a sample) and count of the trials that have a value and did not fail.
 */
void pl_sweep_results_table(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                            const struct pl_sweep_record *records, size_t most_rows, struct pl_text *text);

/**
 * The trial whose model is the result: the best one; with seeds the best trial of the point with the best mean, of
 * those that did not fail. False where no trial has a value.
 */
bool pl_sweep_results_best(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler, size_t *ret_trial);

#endif
