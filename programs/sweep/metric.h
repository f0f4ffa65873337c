/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the metric of a trial in the lines that its program prints. If no line has it, finds the line that is most like
 * it.
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
    int64_t step; /* last step that was found; without `step_regex` the number of the last report */
    const char *name;
    bool has_reported;
    /* the following is kept until the first report: */
    bool lacks_step; /* a value was found, but no step before it */
    int nearness;
    char nearest[PL_METRIC_SHOWN_BYTES + 1];
};

#define PL_METRIC_NONE ((struct pl_metric){.is_open = false})

/**
 * If `step_regex` is NULL, the step is the number of the report; the first one has `last_step` + 1. `name` stays the
 * caller's.
 *
 * Errors  PL_INVALID: an expression does not compile.
 */
enum pl_status pl_metric_open(struct pl_metric *metric, const char *name, const char *value_regex,
                              const char *step_regex, int64_t last_step, struct pl_error *reterr) PL_MUST_CHECK;

/** Searches a line for a step. */
void pl_metric_find_step(struct pl_metric *metric, const char *line);

/** Searches a line for a value. Returns true if it makes a report. The value may be infinite or NaN. */
bool pl_metric_find_value(struct pl_metric *metric, const char *line, int64_t *ret_step, double *ret_value);

/** Appends why there is no report, with the line that is most like the metric. */
void pl_metric_why_not(const struct pl_metric *metric, struct pl_text *words);

void pl_metric_close(struct pl_metric *metric);

#endif
