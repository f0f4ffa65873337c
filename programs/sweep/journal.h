/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The journal of a sweep: a file with one JSON object per line. Each line is appended, and synced to disk, before its
 * event takes effect. After a crash or a stop the journal restores the scheduler. Trials that ran at that time are lost
 * runs, which continue from their checkpoints.
 *
 *   {"sweep": 2, "fresh": null, "asked": {...}, "trials": 16, "digest": "..."}  the first line: what the sweep is
 *   {"asked": {...}, "trials": 32, "digest": "..."}                             the sweep continues, changed
 *   {"start": 3, "host": "algo-1"}
 *   {"report": 3, "step": 2, "value": 0.93}                                     null if the value is not finite
 *   {"report": 3, "step": 2, "value": 0.94, "again": true}                      the same step has another value now
 *   {"end": 3, "how": "completed", "seconds": 12.5, "reason": null}             or stopped, failed, lost, unseen
 *   {"closed": true, "limit_s": 3600.0}                                         the time of the sweep was over
 *   {"closed": false}                                                           a later job has more time or trials
 *
 * Each line ends with `, "crc": "89abcdef"}`: the CRC-32C of all lines up to this member, without the crc members
 * themselves. So the reader finds a line that was changed, doubled, moved or taken from another journal. An incomplete
 * last line is cut off. Any other line that cannot be read, or that tells of an impossible event, is an error with the
 * file, the line and the column.
 *
 * A journal of another sweep (identity.h) is refused, with the first difference. These may change: the number of trials
 * may grow if the first ones are the same; metric and scheduler may change if no trial has reported a value. Two sweeps
 * never share a journal: flock(2) locks it, and a process that was forked from this one also holds the lock until it
 * closes the descriptor or executes another program. If there is no journal, or if the job asks for a new one, the
 * files of an earlier sweep in its folder are archived (archive.h).
 *
 * A sweep whose time was over is continued if the job has a larger limit than the one that was reached, or more trials:
 * then the trials that have never run wait again. If the line has no limit, an earlier version has written it, and the
 * limit of the job counts as larger if it is infinite.
 *
 * Test  tests/unit/programs/sweep/test_journal.c, test_journal_lines.c, tests/fuzz/fuzz_sweep_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_JOURNAL_H
#define PL_PROGRAMS_SWEEP_JOURNAL_H

#include "programs/sweep/scheduler.h"

struct pl_sweep_journal;

/** The information about a trial that the scheduler does not hold. */
struct pl_sweep_record {
    double seconds; /* sum over all its runs */
    char *host;     /* host of its last run, or NULL */
    char *reason;   /* why it failed, or NULL */
    bool has_begun; /* the contents of its folders belong to this sweep */
};

/** The sweep that the job asks for. */
struct pl_sweep_asked {
    const struct pl_python_json *identity;
    /* NULL, or a number and the job's name. A journal that began with a different text is archived. A job that the
     * platform starts again has the same text, and continues. */
    const char *fresh;
    double limit_s; /* how long the sweep may take; infinite if there is no limit */
};

/**
 * Opens the journal at `path`, or makes it in a folder that exists. Applies its events to `scheduler`, which must be
 * new, and fills `records`, space->trials_count zeroed items. The caller frees the strings of the records, also after
 * an error. After an error the scheduler must not be used.
 *
 * Errors  PL_INVALID: see above, or another sweep has the journal open. PL_SYSTEM, PL_MEMORY.
 */
enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     const struct pl_sweep_asked *asked, struct pl_scheduler *scheduler,
                                     struct pl_sweep_record *records, struct pl_sweep_journal **ret_journal,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Returns whether any trial has reported a value. */
bool pl_sweep_journal_has_reports(const struct pl_sweep_journal *journal);
void pl_sweep_journal_close(struct pl_sweep_journal *journal);

/* Each of these functions writes one line and syncs it to disk (fdatasync). PL_SYSTEM if that fails, for example
 * because the disk is full: then the line is not in the journal, and the next one may be written. Only a report does
 * not wait for the disk: a lost one is reported again. The lines have the order of the scheduler's events. */
enum pl_status pl_sweep_journal_start(struct pl_sweep_journal *journal, size_t trial, const char *host,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** `is_again` tells whether `step` is the trial's last one: then `value` replaces its value. */
enum pl_status pl_sweep_journal_report(struct pl_sweep_journal *journal, size_t trial, int64_t step, double value,
                                       bool is_again, struct pl_error *reterr) PL_MUST_CHECK;
/** `reason` may be NULL; `seconds` is the time of this run alone. */
enum pl_status pl_sweep_journal_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end,
                                    double seconds, const char *reason, struct pl_error *reterr) PL_MUST_CHECK;
/** `limit_s` is the time that the sweep has reached. */
enum pl_status pl_sweep_journal_closed(struct pl_sweep_journal *journal, double limit_s,
                                       struct pl_error *reterr) PL_MUST_CHECK;

#endif
