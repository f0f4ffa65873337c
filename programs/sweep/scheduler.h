/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Decides which trial is next, and which one is stopped: a state machine without clock, processes or files. The same
 * events in the same order give the same decisions, so that a journal of events can restore it.
 *
 * ASHA: rung k is at step min_step * factor^k, below max_step. The first report at or beyond a rung enters its value
 * there. A report beyond several rungs enters its value in each of them, and the highest rung decides. A further
 * report of the same step replaces the value, but takes no decision. If the trial is among the best floor(n /
 * factor) of that rung's n values it runs on, else it pauses. A free slot goes to a paused trial that has become one
 * of the best of its highest rung in the meantime, from the highest rung down; it continues from its checkpoint. If
 * there is none, the slot goes to a trial that has not run yet. Trials that pause when nothing else is left stay
 * paused.
 * Median: each other trial that has reached the same step has an average of its values up to that step. From
 * min_step on, at the first report of each step, a trial is stopped for good if its best value so far is worse than
 * the median of these averages, once there are least_trials of them. If their number is even, the median is the
 * worse one of the two in the middle.
 * A step is a whole number from 0 on. Its value is that of its last report: a trial may report a step several times,
 * also after it was started again. The median compares at the first report of a step, and so its averages have the last
 * values of all steps before, and the first value of the step itself.
 * A value that is not finite is never the best value, and is worse than all others. Among equal values the one that was
 * reported first is better.
 * A lost trial comes before paused and new trials.
 *
 * Source  Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), algorithm 2; Golovin et al.,
 *         "Google Vizier" (2017), section 3.2.2.
 * Test    tests/unit/programs/sweep/test_scheduler.c
 */
#ifndef PL_PROGRAMS_SWEEP_SCHEDULER_H
#define PL_PROGRAMS_SWEEP_SCHEDULER_H

#include "programs/sweep/space/space.h"

enum pl_sweep_state {
    PL_SWEEP_WAITING, /* the trial has not run yet, or its run was lost */
    PL_SWEEP_RUNNING,
    PL_SWEEP_PAUSED,    /* stopped at a rung; may continue */
    PL_SWEEP_COMPLETED, /* its program has succeeded */
    PL_SWEEP_STOPPED,   /* stopped for good: by the median, by the user, or because the sweep's time was over */
    PL_SWEEP_FAILED,
};

/** How a run of a trial ended. */
enum pl_sweep_end {
    PL_SWEEP_END_COMPLETED, /* its program ended with exit code 0 by itself */
    /* after pl_scheduler_note_report() or _close() had asked for its stop, with any exit code */
    PL_SWEEP_END_STOPPED,
    PL_SWEEP_END_FAILED,
    /* its host, or the whole job, was stopped or lost: the trial runs again, from its checkpoint. If its stop had been
     * asked for, it counts as stopped */
    PL_SWEEP_END_LOST,
    PL_SWEEP_END_UNSEEN, /* its program succeeded without a value: the trial runs again, without its checkpoints */
};

struct pl_sweep_progress {
    enum pl_sweep_state state;
    bool has_step;     /* it has made a report, with any value */
    bool has_value;    /* a step has a finite value */
    double best;       /* best value of its steps */
    double last;       /* value of its last step */
    int64_t step;      /* its last step, or 0 */
    int64_t best_step; /* step of `best` */
    int runs;          /* how many times it was started */
};

struct pl_scheduler;

/** `space` must outlive the scheduler. */
enum pl_status pl_scheduler_new(const struct pl_sweep_space *space, struct pl_scheduler **ret_scheduler,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_scheduler_free(struct pl_scheduler *scheduler);

/** Stores the trial that a free slot should run now. Returns false if there is none at present. Changes nothing. */
bool pl_scheduler_next(const struct pl_scheduler *scheduler, size_t *ret_trial);

/**
 * Notes that `trial` runs. It is the trial of pl_scheduler_next(); from a journal it may be any that waits or pauses.
 */
void pl_scheduler_note_start(struct pl_scheduler *scheduler, size_t trial);

/**
 * Notes a report of a running trial. Returns true if the trial must be stopped, also if an earlier report has said so.
 *
 * Nothing changes if `step` is below the trial's last one (a run that continues from an older checkpoint), below 0, or
 * above PL_SWEEP_STEP_MAX. If there is no memory for the median's data, the report is left out of the median.
 */
bool pl_scheduler_note_report(struct pl_scheduler *scheduler, size_t trial, int64_t step, double value);

void pl_scheduler_note_end(struct pl_scheduler *scheduler, size_t trial, enum pl_sweep_end end);

/**
 * Ends the sweep because its time is over: no trial starts any more; those that pause, wait or run are stopped for
 * good.
 */
void pl_scheduler_close(struct pl_scheduler *scheduler);

/** Continues a sweep that pl_scheduler_close() has ended: trials that have never run wait again. */
void pl_scheduler_reopen(struct pl_scheduler *scheduler);

bool pl_scheduler_is_closed(const struct pl_scheduler *scheduler);

/** Returns whether no trial runs and no trial will run. */
bool pl_scheduler_is_done(const struct pl_scheduler *scheduler);

/** Returns whether more trials have failed than space->max_failed allows. */
bool pl_scheduler_has_failed(const struct pl_scheduler *scheduler);

const struct pl_sweep_progress *pl_scheduler_progress(const struct pl_scheduler *scheduler, size_t trial);

/** Stores the trial with the best value, without failed trials. Returns false if no trial has a value. */
bool pl_scheduler_best(const struct pl_scheduler *scheduler, size_t *ret_trial);

/** Returns "waiting", "running", "paused", "completed", "stopped" or "failed". */
const char *pl_sweep_state_text(enum pl_sweep_state state);

#endif
