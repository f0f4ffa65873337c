/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The journal of a sweep: a file of one JSON object a line, appended and synced to disk before what it tells counts.
 * After a crash or a stop it brings the scheduler back; trials that ran then are lost runs, which go on from their
 * checkpoints.
 *
 *   {"sweep": 1, "specification": "..."}                                        the first line
 *   {"start": 3, "host": "algo-1"}
 *   {"report": 3, "step": 2, "value": 0.93}                                     null: a value that is not finite
 *   {"end": 3, "how": "completed", "seconds": 12.5, "reason": null}             or stopped, failed, lost
 *   {"closed": true}
 *
 * A last line without its end is cut off; any other line that cannot be read, or tells of what cannot have happened, is
 * an error with the file and the line. A journal of another specification is refused: "'PATH' is of another sweep ...;
 * remove it to begin again". Two sweeps never share one: flock(2), which a process forked from this one also holds
 * until it closes the descriptor or executes another program.
 *
 * Test  tests/unit/programs/sweep/test_journal.c, tests/fuzz/fuzz_sweep_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_JOURNAL_H
#define PL_PROGRAMS_SWEEP_JOURNAL_H

#include "programs/sweep/scheduler.h"

struct pl_sweep_journal;

/** What is kept of a trial beside the scheduler's state. */
struct pl_sweep_record {
    double seconds; /* of all its runs together */
    char *host;     /* where it ran last; NULL */
    char *reason;   /* why it failed; NULL */
};

/**
 * Open or make the journal at `path`, whose folder exists, and apply what it holds to `scheduler`, which is new.
 * `records`, zeroed, has space->trials_count items, filled from it; the caller frees their texts, also after an error,
 * after which the scheduler is of no more use.
 *
 * Errors  PL_INVALID (above, or another sweep has it open), PL_SYSTEM, PL_MEMORY.
 */
enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     struct pl_scheduler *scheduler, struct pl_sweep_record *records,
                                     struct pl_sweep_journal **ret_journal, struct pl_error *reterr) PL_MUST_CHECK;
void pl_sweep_journal_close(struct pl_sweep_journal *journal);

/* Each writes one line and brings it to disk (fdatasync); PL_SYSTEM where that fails, disk full included: then the line
 * is not there, and the next may be written. A report is written without waiting for the disk: a lost one is reported
 * again. The order of the lines is that of the scheduler's events. */
enum pl_status pl_sweep_journal_start(struct pl_sweep_journal *journal, size_t trial, const char *host,
                                      struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_journal_report(struct pl_sweep_journal *journal, size_t trial, int64_t step, double value,
                                       struct pl_error *reterr) PL_MUST_CHECK;
/** `reason` may be NULL; `seconds` of this run alone. */
enum pl_status pl_sweep_journal_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end,
                                    double seconds, const char *reason, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_journal_closed(struct pl_sweep_journal *journal, struct pl_error *reterr) PL_MUST_CHECK;

#endif
