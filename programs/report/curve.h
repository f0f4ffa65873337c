/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The curve of a metric with its labels and its numbers.
 *
 * Test  tests/integration/report.py
 */
#ifndef PL_PROGRAMS_REPORT_CURVE_H
#define PL_PROGRAMS_REPORT_CURVE_H

#include "base/text.h"
#include "programs/report/series.h"

/** Appends the figure of a series that has a value. */
void pl_curve_append(struct pl_text *html, const struct pl_series *series);

#endif
