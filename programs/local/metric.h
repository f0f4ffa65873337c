/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the values of a job's metrics in the lines of its log, by the regular expressions of MetricDefinitions
 * (PCRE2). Of each metric it keeps the last value, the least, the greatest, the count and the first line.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_METRIC_H
#define PL_PROGRAMS_LOCAL_METRIC_H

#include "programs/local/job.h"

#include <stdio.h>

struct pl_local_metrics;

typedef void pl_local_metrics_found(void *argument, size_t index, double value, const char *line, size_t length);

/**
 * Each value is also given to `found`, unless it is NULL, with the metric's number. `pairs` stays the caller's.
 *
 * Errors  PL_INVALID if an expression does not compile, with the place in it.
 */
enum pl_status pl_local_metrics_new(const struct pl_local_pairs *pairs, pl_local_metrics_found *found, void *argument,
                                    struct pl_local_metrics **ret_metrics, struct pl_error *reterr) PL_MUST_CHECK;

/** Searches a line of `length` bytes. */
void pl_local_metrics_read(struct pl_local_metrics *metrics, const char *line, size_t length);

/** Reads the whole number, of at most 19 digits, that follows `words` in a line; false if there is none. */
bool pl_local_metrics_number_after(const char *line, size_t length, const char *words, uint64_t *ret_number);

/** Prints a line for each metric with a value, and warns of each one without. */
void pl_local_metrics_print(const struct pl_local_metrics *metrics, FILE *out);

void pl_local_metrics_free(struct pl_local_metrics *metrics);

#endif
