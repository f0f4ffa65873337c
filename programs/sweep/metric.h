/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The metric of a trial, found in the lines that its program prints. Of a line the first PL_METRIC_LINE_BYTES count; a
 * carriage return ends one too, since progress bars have no other end.
 *
 * Test  tests/unit/programs/sweep/test_metric.c
 */
#ifndef PL_PROGRAMS_SWEEP_METRIC_H
#define PL_PROGRAMS_SWEEP_METRIC_H

#include "base/status.h"

#include <regex.h>
#include <stddef.h>

enum {
    PL_METRIC_LINE_BYTES = 4096,
    PL_METRIC_LINES = 2,     /* stderr and stdout */
    PL_METRIC_WAITING = 256, /* reports that wait to be taken; of more the last */
};

struct pl_metric;

/** One stream's line so far. */
struct pl_metric_line {
    struct pl_metric *metric;
    size_t used;
    char bytes[PL_METRIC_LINE_BYTES];
};

struct pl_metric {
    bool is_open, has_step, counts;
    regex_t value_regex, step_regex;
    int64_t step; /* the last that was found, or the number of the last report */
    size_t waiting, taken;
    struct {
        int64_t step;
        double value;
    } reports[PL_METRIC_WAITING];
    struct pl_metric_line lines[PL_METRIC_LINES];
};

#define PL_METRIC_NONE ((struct pl_metric){.is_open = false})

/** `step_regex` NULL: reports are counted, the first is number `last_step` + 1. PL_INVALID: one does not compile. */
enum pl_status pl_metric_open(struct pl_metric *metric, const char *value_regex, const char *step_regex,
                              int64_t last_step, struct pl_error *reterr) PL_MUST_CHECK;

/** `bytes` more have come. */
void pl_metric_add(struct pl_metric_line *line, const char *bytes, size_t count);

/** Nothing follows: a line without its end counts too. */
void pl_metric_end(struct pl_metric_line *line);

/** Take the next report; false: none waits. */
bool pl_metric_next(struct pl_metric *metric, int64_t *ret_step, double *ret_value);

void pl_metric_close(struct pl_metric *metric);

#endif
