/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The results of a sweep, for people and for programs.
 *
 * Test  tests/unit/programs/sweep/test_results.c
 */
#ifndef PL_PROGRAMS_SWEEP_RESULTS_H
#define PL_PROGRAMS_SWEEP_RESULTS_H

#include "base/text.h"
#include "programs/sweep/journal.h"

/**
 * Appends trials.jsonl: one JSON object per trial, in the order of their numbers. Members: trial, point, state,
 * hyperparameters, METRIC (the best value), best_step, step (the last), runs, seconds, host, reason; null if there is
 * no value. A trial that pauses when the sweep is done counts as stopped.
 */
enum pl_status pl_sweep_results_jsonl(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                                      const struct pl_sweep_record *records, struct pl_text *text,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends a table for a terminal with at most `most_rows` rows, then the number of rows left out. The best trials come
 * first; the failed ones come last, with the first words of their reasons. With seeds there is a row per point, with
 * mean, spread (the standard deviation of a sample) and number of the trials that have a value and did not fail. Points
 * with more values come first, and among these the best mean.
 */
void pl_sweep_results_table(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                            const struct pl_sweep_record *records, size_t most_rows, struct pl_text *text);

/**
 * Stores the trial whose model is the result: the best one. With seeds it is the best trial of the first point in
 * the table, without failed trials. Returns false if no trial has a value.
 */
bool pl_sweep_results_best(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler, size_t *ret_trial);

#endif
