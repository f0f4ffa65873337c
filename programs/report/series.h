/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The values of a metric in bounded memory: of each stretch of equally many values the lowest, the highest and the last
 * one. When there is no room for another stretch, each two neighbours become one.
 *
 * Test  tests/unit/programs/report/test_series.c
 */
#ifndef PL_PROGRAMS_REPORT_SERIES_H
#define PL_PROGRAMS_REPORT_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_SERIES_STRETCHES = 1000, /* even; a curve has at most two points of each */
    PL_SERIES_NAME_BYTES = 64,
    PL_SERIES_LINE_BYTES = 160,
};

struct pl_series_stretch {
    double first_x, last_x;
    double least, least_x, most, most_x, last;
    uint64_t count;
    unsigned line; /* of its first value */
};

/** Zero-initialise, and set `name`, and `has_steps` with the first value. */
struct pl_series {
    char name[PL_SERIES_NAME_BYTES + 1];
    char first_line[PL_SERIES_LINE_BYTES + 1]; /* the line of the log with the first value */
    uint64_t count;                            /* finite values */
    uint64_t not_finite;
    unsigned line, lines; /* that the next value belongs to, and how many there are: a sweep's trials have one each */
    bool has_steps;       /* x is a step, not the number of the value */
    double first, last, least, most;
    uint64_t width; /* values of a full stretch */
    size_t used;
    struct pl_series_stretch stretches[PL_SERIES_STRETCHES];
};

/** Adds the value `y` at `x`, the step or the number of the value. NaN and infinities are only counted. */
void pl_series_add(struct pl_series *series, double x, double y);

#endif
