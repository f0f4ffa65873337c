/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reads the metric from the output of a trial's program. The regular expressions run in a thread of their own, so that
 * a slow one does not delay the reader of the program's pipe. Only the first PL_METRIC_LINE_BYTES of a line are
 * searched. A carriage return also ends a line, because progress bars have no other line end.
 *
 * No value is lost silently. If more than PL_METRIC_WAITING_BYTES wait, pl_metric_reader_add() waits for the thread.
 * The reader fails, and reports that, if a line takes more than 10 s of the thread's CPU time, or if lines wait and 64
 * KiB of them take more than a second.
 *
 * Threads  one thread calls. When pl_metric_reader_open() starts in a forked process, that process may have only this
 *          thread.
 * Test     tests/unit/programs/sweep/test_metric_reader.c
 */
#ifndef PL_PROGRAMS_SWEEP_METRIC_READER_H
#define PL_PROGRAMS_SWEEP_METRIC_READER_H

#include "base/text.h"

enum {
    PL_METRIC_LINE_BYTES = 1 << 20,
    PL_METRIC_WAITING_BYTES = 2 << 20,
    PL_METRIC_STREAMS = 2, /* stderr and stdout */
};

struct pl_metric_reader;

/**
 * Makes a reader whose thread does not run yet, so that a forked process can use it. The arguments are those of
 * pl_metric_open(); the strings are copied.
 */
enum pl_status pl_metric_reader_new(const char *name, const char *value_regex, const char *step_regex,
                                    int64_t last_step, struct pl_metric_reader **ret_reader,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a descriptor that is readable while a report, a warning or a failure waits; -1 with errno. */
int pl_metric_reader_open(struct pl_metric_reader *reader);

/** Adds `count` bytes of a stream. */
void pl_metric_reader_add(struct pl_metric_reader *reader, size_t stream, const char *bytes, size_t count);

/**
 * Ends both streams: incomplete last lines count too. Returns when all lines have been searched or the reader has
 * failed.
 */
void pl_metric_reader_end(struct pl_metric_reader *reader);

/** Takes the next report. Returns false if there is none; then the descriptor is not readable until there is one. */
bool pl_metric_reader_next(struct pl_metric_reader *reader, int64_t *ret_step, double *ret_value);

/** Returns why the reader has failed, or NULL. */
const char *pl_metric_reader_failure(struct pl_metric_reader *reader);

/** Appends warnings for the log, each once: a slow expression, or a line that is too long. */
void pl_metric_reader_warn(struct pl_metric_reader *reader, struct pl_text *words);

/** After the end: appends why there was no report at all. Appends nothing if there was one. */
void pl_metric_reader_why_not(struct pl_metric_reader *reader, struct pl_text *words);

/** Frees a reader whose thread has ended or never ran. */
void pl_metric_reader_free(struct pl_metric_reader *reader);

#endif
