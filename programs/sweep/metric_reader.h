/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reads the metric from what a trial's program prints. The regular expressions run in a thread of their own, so that
 * one that is slow does not keep anybody from reading the program's pipe. Of a line the first PL_METRIC_LINE_BYTES
 * count; a carriage return ends one too, since progress bars have no other end.
 *
 * No value is lost silently: where more than PL_METRIC_WAITING_BYTES wait, pl_metric_reader_add() waits for the thread;
 * and where a line takes more than 10 s, or lines wait and 64 KiB of them take more than a second, of the thread's own
 * time, the reader has failed, and says so.
 *
 * Threads  one thread calls; no more than that one may be in the process when pl_metric_reader_open() forks it.
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

/** No thread runs yet: a process may be forked and use it. The arguments as in pl_metric_open(), the texts copied. */
enum pl_status pl_metric_reader_new(const char *name, const char *value_regex, const char *step_regex,
                                    int64_t last_step, struct pl_metric_reader **ret_reader,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** A descriptor that can be read when there is something to take; -1 with errno. */
int pl_metric_reader_open(struct pl_metric_reader *reader);

/** `count` more bytes of a stream have come. */
void pl_metric_reader_add(struct pl_metric_reader *reader, size_t stream, const char *bytes, size_t count);

/** Nothing follows: lines without their ends count too, and all lines have been searched, or the reader has failed. */
void pl_metric_reader_end(struct pl_metric_reader *reader);

/** Take the next report; false: none waits, and the descriptor is not readable until one does. */
bool pl_metric_reader_next(struct pl_metric_reader *reader, int64_t *ret_step, double *ret_value);

/** Why it has failed, or NULL. */
const char *pl_metric_reader_failure(struct pl_metric_reader *reader);

/** Append what the log should say and has not been told yet: a slow expression, a line that is too long. */
void pl_metric_reader_warn(struct pl_metric_reader *reader, struct pl_text *words);

/** After the end: append why there was no report at all; nothing where there was one. */
void pl_metric_reader_why_not(struct pl_metric_reader *reader, struct pl_text *words);

/** Of one whose thread has ended, or has not begun. */
void pl_metric_reader_free(struct pl_metric_reader *reader);

#endif
