/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The journal of a sweep: a file of one JSON object a line, appended and brought to disk before what it tells counts.
 * After a crash or a stop it brings the scheduler back; trials that ran then are lost runs, which go on from their
 * checkpoints.
 *
 * A last line without its end is cut off; any other line that cannot be read is an error with the file and the line.
 * A journal of another specification is refused: "JOURNAL is of another sweep: ...; remove it to begin anew".
 *
 * Test  tests/unit/entrypoint/sweep/test_journal.c
 */
#ifndef PL_ENTRYPOINT_SWEEP_JOURNAL_H
#define PL_ENTRYPOINT_SWEEP_JOURNAL_H

#include "entrypoint/sweep/scheduler.h"

struct pl_sweep_journal;

/** What is kept of a trial beside the scheduler's state. */
struct pl_sweep_record {
    double seconds; /* of all its runs together */
    char *host;     /* where it ran last; NULL */
    char *reason;   /* why it failed; NULL */
};

/**
 * Open or make the journal at `path`, whose folder exists, and apply what it holds to `scheduler`, which is new.
 * `records` has space->trials_count items, filled from it; the caller frees their texts.
 *
 * Errors  PL_INVALID (above), PL_SYSTEM, PL_MEMORY.
 */
enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     struct pl_scheduler *scheduler, struct pl_sweep_record *records,
                                     struct pl_sweep_journal **ret_journal, struct pl_error *reterr) PL_MUST_CHECK;
void pl_sweep_journal_close(struct pl_sweep_journal *journal);

/* Each writes one line and brings it to disk (fdatasync); PL_SYSTEM where that fails, disk full included. A report is
 * written without waiting for the disk: a lost one is reported again. */
enum pl_status pl_sweep_journal_start(struct pl_sweep_journal *journal, size_t trial, const char *host,
                                      struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_journal_report(struct pl_sweep_journal *journal, size_t trial, int64_t step, double value,
                                       struct pl_error *reterr) PL_MUST_CHECK;
/** `reason` may be NULL. */
enum pl_status pl_sweep_journal_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end,
                                    double seconds, const char *reason, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_journal_closed(struct pl_sweep_journal *journal, struct pl_error *reterr) PL_MUST_CHECK;

#endif
