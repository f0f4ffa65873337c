/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which trial is next, and which is stopped: a state machine without clock, processes or files. The same events in the
 * same order give the same decisions, so that a journal of events brings it back.
 *
 * ASHA: rung k is at step min_step * factor^k, below max_step. The first report at or beyond a rung enters its value
 * there; a report beyond several rungs enters each, and the highest decides. Where the trial is among the best
 * floor(n / factor) of that rung's n values it runs on, else it is to be stopped: it pauses. A free slot goes to a
 * paused trial that has become one of the best of its highest rung since, from the highest rung down, which goes on
 * from its checkpoint; then to a trial that has not run yet. Those that pause when nothing else is left stay so.
 * Median: from min_step on, a trial whose best value so far is worse than the median of the averages of the other
 * trials up to that step, where at least least_trials have come so far, is to be stopped for good. Of an even number of
 * averages the worse one in the middle is the median.
 *
 * A value that is not finite is never the best value, and is worse than all others. Among equal values the first that
 * was reported is better.
 * A trial that was lost comes first, before paused and new ones.
 *
 * Source  Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), algorithm 2; Golovin et al.,
 *         "Google Vizier" (2017), section 3.2.2.
 * Test    tests/unit/programs/sweep/test_scheduler.c
 */
#ifndef PL_PROGRAMS_SWEEP_SCHEDULER_H
#define PL_PROGRAMS_SWEEP_SCHEDULER_H

#include "programs/sweep/space/space.h"

enum pl_sweep_state {
    PL_SWEEP_WAITING, /* has not run yet, or was lost */
    PL_SWEEP_RUNNING,
    PL_SWEEP_PAUSED,    /* stopped at a rung; may go on */
    PL_SWEEP_COMPLETED, /* its program ended well by itself */
    PL_SWEEP_STOPPED,   /* for good: by the median, by the one who runs it, or the sweep's time was over */
    PL_SWEEP_FAILED,
};

/** How a run of a trial ended. */
enum pl_sweep_end {
    PL_SWEEP_END_COMPLETED, /* by itself with exit code 0 */
    PL_SWEEP_END_STOPPED,   /* after pl_scheduler_note_report() or _close() had asked for its stop, whatever its code */
    PL_SWEEP_END_FAILED,
    /* its host, or the whole job, was stopped or went away: it is run again, from its checkpoint; one whose stop had
     * been asked for has been stopped */
    PL_SWEEP_END_LOST,
    PL_SWEEP_END_UNSEEN, /* its program succeeded, and no value was seen: it is run again, without its checkpoints */
};

struct pl_sweep_progress {
    enum pl_sweep_state state;
    bool has_value;    /* it has reported one that is finite */
    double best;       /* of all its reports, by the goal */
    double last;       /* of its last report */
    int64_t step;      /* of its last report; 0: none */
    int64_t best_step; /* of `best` */
    int runs;          /* how often it was started */
};

struct pl_scheduler;

/** `space` outlives it. */
enum pl_status pl_scheduler_new(const struct pl_sweep_space *space, struct pl_scheduler **ret_scheduler,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_scheduler_free(struct pl_scheduler *scheduler);

/** The trial that a free slot is to run now: false if there is none at present. Changes nothing. */
bool pl_scheduler_next(const struct pl_scheduler *scheduler, size_t *ret_trial);

/** `trial` runs: one that pl_scheduler_next() gave (a journal may start one that waits or pauses). */
void pl_scheduler_note_start(struct pl_scheduler *scheduler, size_t trial);

/**
 * A running trial has reported. A step that is not above its last one (a run that goes on from an older checkpoint), or
 * above PL_SWEEP_STEP_MAX, changes nothing. True: it is to be stopped, also where an earlier report said so. Where
 * there is no memory for what a median needs, the report has no part in it.
 */
bool pl_scheduler_note_report(struct pl_scheduler *scheduler, size_t trial, int64_t step, double value);

void pl_scheduler_note_end(struct pl_scheduler *scheduler, size_t trial, enum pl_sweep_end end);

/** No trial starts any more, because the sweep's time is over; those that pause, wait or run are stopped for good. */
void pl_scheduler_close(struct pl_scheduler *scheduler);

/** Nothing runs and nothing will. */
bool pl_scheduler_is_done(const struct pl_scheduler *scheduler);

/** True where more trials have failed than space->max_failed allows. */
bool pl_scheduler_has_failed(const struct pl_scheduler *scheduler);

const struct pl_sweep_progress *pl_scheduler_progress(const struct pl_scheduler *scheduler, size_t trial);

/** The trial with the best value, of those that did not fail; false where none has one. */
bool pl_scheduler_best(const struct pl_scheduler *scheduler, size_t *ret_trial);

/** "waiting", "running", "paused", "completed", "stopped", "failed". */
const char *pl_sweep_state_text(enum pl_sweep_state state);

#endif
