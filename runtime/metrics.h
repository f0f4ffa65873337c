/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Metric lines for people and for SageMaker's regular expressions ("epoch=3 train_loss=0.0712"), also as JSON lines in
 * a file, and a progress line that is shown only on a terminal.
 *
 * Test  tests/unit/runtime/test_metrics.c
 */
#ifndef PL_RUNTIME_METRICS_H
#define PL_RUNTIME_METRICS_H

#include "base/status.h"
#include "base/text.h"

#include <stdio.h>

/** A line under construction. Initialise it with PL_METRICS_NONE. */
struct pl_metrics {
    struct pl_text line;
    struct pl_text json;
};

#define PL_METRICS_NONE ((struct pl_metrics){.line = PL_TEXT_NONE})

void pl_metrics_whole(struct pl_metrics *metrics, const char *name, int64_t value);

/**
 * Adds a number, with `decimals` digits after the point in the line, and with full precision in JSON. JSON has no NaN
 * or infinity: they are "nan", "inf" and "-inf" in the line and null in JSON, which pandas reads as a missing value.
 */
void pl_metrics_real(struct pl_metrics *metrics, const char *name, int decimals, double value);

/**
 * Writes the line to `stream` with one write, appends the JSON object to the file `jsonl_path` unless that is NULL, and
 * empties `metrics`. Creates missing directories of the file.
 */
enum pl_status pl_metrics_write(struct pl_metrics *metrics, FILE *stream, const char *jsonl_path,
                                struct pl_error *reterr) PL_MUST_CHECK;

void pl_metrics_done(struct pl_metrics *metrics);

/** Shows the formatted line instead of the last progress line if stderr is a terminal; otherwise does nothing. */
void pl_metrics_show_progress(const char *format, ...) PL_PRINTF(1, 2);
#define pl_progress_show pl_metrics_show_progress /* former name, kept for one release */

/** Erases the progress line, before another line is printed. */
void pl_metrics_clear_progress(void);
#define pl_progress_clear pl_metrics_clear_progress /* former name, kept for one release */

#endif
