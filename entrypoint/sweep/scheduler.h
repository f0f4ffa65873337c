/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which trial is next, and which is stopped: a state machine without clock, processes or files. The same events in the
 * same order give the same decisions, so that a journal of events brings it back.
 *
 * ASHA: rung k is at step min_step * factor^k. A trial that reports at or beyond a rung enters its value there. Where
 * it is among the best floor(n / factor) of the n values of that rung it runs on, else it is to be stopped: it pauses.
 * A free slot goes to a paused trial that has become one of the best of its rung since, from the highest rung down,
 * which goes on from its checkpoint; then to a trial that has not run yet.
 * Median: from min_step on, a trial whose best value so far is worse than the median of the running averages of the
 * other trials at that step, where at least least_trials have one, is to be stopped for good.
 *
 * Source  Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), algorithm 2; Golovin et al.,
 *         "Google Vizier" (2017), section 3.2.2.
 * Test    tests/unit/entrypoint/sweep/test_scheduler.c
 */
#ifndef PL_ENTRYPOINT_SWEEP_SCHEDULER_H
#define PL_ENTRYPOINT_SWEEP_SCHEDULER_H

#include "entrypoint/sweep/space.h"

enum pl_sweep_state {
    PL_SWEEP_WAITING, /* has not run yet */
    PL_SWEEP_RUNNING,
    PL_SWEEP_PAUSED,    /* stopped at a rung; may go on */
    PL_SWEEP_COMPLETED, /* its program ended well by itself */
    PL_SWEEP_STOPPED,   /* for good: by the median, or the sweep's time was over */
    PL_SWEEP_FAILED,
};

/** How a run of a trial ended. */
enum pl_sweep_end {
    PL_SWEEP_END_COMPLETED, /* by itself with exit code 0 */
    PL_SWEEP_END_STOPPED,   /* after pl_sweep_scheduler_report() had asked for its stop, whatever its code */
    PL_SWEEP_END_FAILED,
    PL_SWEEP_END_LOST, /* its host, or the whole job, was stopped or went away: it is run again, from its checkpoint */
};

struct pl_sweep_progress {
    enum pl_sweep_state state;
    bool has_value;
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

/** The trial that a free slot is to run now: false where there is none at present. Changes nothing. */
bool pl_scheduler_next(const struct pl_scheduler *scheduler, size_t *ret_trial);

/** `trial` runs: one that pl_scheduler_next() gave. */
void pl_scheduler_note_start(struct pl_scheduler *scheduler, size_t trial);

/**
 * A running trial has reported. A step that is not above its last one (a run that goes on from an older checkpoint)
 * changes nothing. True: it is to be stopped.
 */
bool pl_scheduler_note_report(struct pl_scheduler *scheduler, size_t trial, int64_t step, double value);

void pl_scheduler_note_end(struct pl_scheduler *scheduler, size_t trial, enum pl_sweep_end end);

/** No trial starts any more, because the sweep's time is over; those that pause or wait are stopped for good. */
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
