/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The journal of a sweep: a file of one JSON object a line, appended and synced to disk before what it tells counts.
 * After a crash or a stop it brings the scheduler back; trials that ran then are lost runs, which go on from their
 * checkpoints.
 *
 *   {"sweep": 2, "fresh": null, "asked": {...}, "trials": 16, "digest": "..."}  the first line: what the sweep is
 *   {"asked": {...}, "trials": 32, "digest": "..."}                             it goes on with what may change
 *   {"start": 3, "host": "algo-1"}
 *   {"report": 3, "step": 2, "value": 0.93}                                     null: a value that is not finite
 *   {"end": 3, "how": "completed", "seconds": 12.5, "reason": null}             or stopped, failed, lost, unseen
 *   {"closed": true}
 *
 * Each line ends with `, "crc": "89abcdef"}`: the CRC-32C of all lines up to this member, those members themselves left
 * out. So a line that was changed, doubled, moved or taken from another journal is found. A last line without its end
 * is cut off; any other line that cannot be read, or tells of what cannot have happened, is an error with the file, the
 * line and the column.
 *
 * A journal of another sweep (identity.h) is refused with the first difference. What may change: more trials, where the
 * first are the same; metric and scheduler, where no trial has reported a value. Two sweeps never share a journal:
 * flock(2), which a process forked from this one also holds until it closes the descriptor or executes another program.
 * Where there is no journal, or a new one is asked for, what lies in its folder of an earlier sweep is archived
 * (archive.h).
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
    bool has_begun; /* what is in its folders is this sweep's */
};

/** What the job asks for. */
struct pl_sweep_asked {
    const struct pl_python_json *identity;
    /* NULL, or a number and the job's name: a journal that was not begun with the same text is archived. A job that the
     * platform starts again has the same, and goes on. */
    const char *fresh;
};

/**
 * Open or make the journal at `path`, whose folder exists, and apply what it holds to `scheduler`, which is new.
 * `records`, zeroed, has space->trials_count items, filled from it; the caller frees their texts, also after an error,
 * after which the scheduler is of no more use.
 *
 * Errors  PL_INVALID (above, or another sweep has it open), PL_SYSTEM, PL_MEMORY.
 */
enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     const struct pl_sweep_asked *asked, struct pl_scheduler *scheduler,
                                     struct pl_sweep_record *records, struct pl_sweep_journal **ret_journal,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Whether any trial has reported. */
bool pl_sweep_journal_has_reports(const struct pl_sweep_journal *journal);
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
