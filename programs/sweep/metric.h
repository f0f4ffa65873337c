/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The metric of a trial, found in a line that its program has printed, and where it is in none, the line that comes
 * nearest to it.
 *
 * Test  tests/unit/programs/sweep/test_metric.c
 */
#ifndef PL_PROGRAMS_SWEEP_METRIC_H
#define PL_PROGRAMS_SWEEP_METRIC_H

#include "base/text.h"

#include <regex.h>

enum { PL_METRIC_SHOWN_BYTES = 200 };

struct pl_metric {
    bool is_open, has_step, counts;
    regex_t value_regex, step_regex;
    int64_t step; /* the last that was found, or the number of the last report */
    const char *name;
    bool has_reported;
    /* until it has: */
    bool lacks_step; /* a value was found, and no step before it */
    int nearness;
    char nearest[PL_METRIC_SHOWN_BYTES + 1];
};

#define PL_METRIC_NONE ((struct pl_metric){.is_open = false})

/**
 * `step_regex` NULL: reports are counted, the first is number `last_step` + 1. `name` stays the caller's.
 *
 * Errors  PL_INVALID: an expression does not compile.
 */
enum pl_status pl_metric_open(struct pl_metric *metric, const char *name, const char *value_regex,
                              const char *step_regex, int64_t last_step, struct pl_error *reterr) PL_MUST_CHECK;

/** Look for a step in a line. */
void pl_metric_find_step(struct pl_metric *metric, const char *line);

/** Look for a value in it: true where it makes a report. The value may be one that is not finite. */
bool pl_metric_find_value(struct pl_metric *metric, const char *line, int64_t *ret_step, double *ret_value);

/** Append why there is no report, with the nearest line. */
void pl_metric_why_not(const struct pl_metric *metric, struct pl_text *words);

void pl_metric_close(struct pl_metric *metric);

#endif
