/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a sweep: takes events, and gives the next trial and the trials to stop. */
#include "programs/sweep/scheduler.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct report {
    int64_t step;
    double average; /* of the last values of all steps before, and of the first value of this step */
};

/* The best value of a trial's steps, or of some of them. */
struct best {
    bool has_value;
    double value;
    int64_t step;
    uint64_t at; /* number of the report with this value, counted over all trials */
};

struct trial {
    struct pl_sweep_progress progress;
    bool stop_asked;        /* the stop of its present run was asked for */
    int rung;               /* ASHA: the highest rung that it has reached, or -1 */
    int step_rung;          /* ASHA: the first rung that it has reached with its last step; above `rung` if none */
    struct best best;       /* of all steps; progress.best is the same */
    struct best earlier;    /* of the steps before the last one */
    struct report *reports; /* only for the median */
    size_t reports_count, reports_capacity;
    size_t steps; /* number of its steps */
    double sum;   /* of the values of the steps before the last one */
};

struct entry {
    double value;
    size_t trial;
};

struct rung {
    int64_t step;
    struct entry *entries; /* the best first; has room for all trials */
    size_t count;
};

struct pl_scheduler {
    const struct pl_sweep_space *space;
    struct trial *trials;
    struct rung rungs[PL_SWEEP_RUNGS_MAX];
    int rungs_count;
    uint64_t reports;
    size_t failed;
    size_t running;
    bool closed;
};

const char *pl_sweep_state_text(enum pl_sweep_state state)
{
    static const char *const texts[] = {
        [PL_SWEEP_WAITING] = "waiting",     [PL_SWEEP_RUNNING] = "running", [PL_SWEEP_PAUSED] = "paused",
        [PL_SWEEP_COMPLETED] = "completed", [PL_SWEEP_STOPPED] = "stopped", [PL_SWEEP_FAILED] = "failed",
    };

    return texts[state];
}

static enum pl_status make_rungs(struct pl_scheduler *scheduler, struct pl_error *reterr)
{
    const struct pl_sweep_space *space = scheduler->space;
    int64_t step = space->min_step;

    while (scheduler->rungs_count < PL_SWEEP_RUNGS_MAX && step < space->max_step) {
        struct rung *rung = &scheduler->rungs[scheduler->rungs_count];

        rung->step = step;
        rung->entries = pl_memory_new(space->trials_count, sizeof(*rung->entries), reterr);
        if (!rung->entries) {
            return PL_MEMORY;
        }
        scheduler->rungs_count++;
        if (step > INT64_MAX / space->factor) {
            break;
        }
        step *= space->factor;
    }
    return PL_OK;
}

enum pl_status pl_scheduler_new(const struct pl_sweep_space *space, struct pl_scheduler **ret_scheduler,
                                struct pl_error *reterr)
{
    struct pl_scheduler *scheduler = pl_memory_new(1, sizeof(*scheduler), reterr);

    if (!scheduler) {
        return PL_MEMORY;
    }
    scheduler->space = space;
    scheduler->trials = pl_memory_new(space->trials_count, sizeof(*scheduler->trials), reterr);
    if (!scheduler->trials || (space->scheduler == PL_SWEEP_SCHEDULER_ASHA && make_rungs(scheduler, reterr) != PL_OK)) {
        pl_scheduler_free(scheduler);
        return PL_MEMORY;
    }
    for (size_t i = 0; i < space->trials_count; i++) {
        scheduler->trials[i].rung = -1; /* and step_rung is above it */
    }
    *ret_scheduler = scheduler;
    return PL_OK;
}

void pl_scheduler_free(struct pl_scheduler *scheduler)
{
    if (!scheduler) {
        return;
    }
    for (int i = 0; i < scheduler->rungs_count; i++) {
        free(scheduler->rungs[i].entries);
    }
    for (size_t i = 0; scheduler->trials && i < scheduler->space->trials_count; i++) {
        free(scheduler->trials[i].reports);
    }
    free(scheduler->trials);
    free(scheduler);
}

static struct trial *trial_of(const struct pl_scheduler *scheduler, size_t trial)
{
    PL_BUG_IF(trial >= scheduler->space->trials_count);
    return &scheduler->trials[trial];
}

/* Whether `a` is better than `b`. If both are not finite, neither is better. */
static bool is_better(const struct pl_scheduler *scheduler, double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) {
        return isfinite(a) && !isfinite(b);
    }
    return scheduler->space->maximize ? a > b : a < b;
}

/* How many trials of a rung may continue. */
static size_t promoted(const struct pl_scheduler *scheduler, const struct rung *rung)
{
    return rung->count / (size_t)scheduler->space->factor;
}

/* Finds a paused trial that is one of the best of the highest rung that it has reached. */
static bool find_promotion(const struct pl_scheduler *scheduler, size_t *ret_trial)
{
    for (int i = scheduler->rungs_count - 1; i >= 0; i--) {
        const struct rung *rung = &scheduler->rungs[i];

        for (size_t place = 0; place < promoted(scheduler, rung); place++) {
            const struct trial *trial = &scheduler->trials[rung->entries[place].trial];

            if (trial->progress.state == PL_SWEEP_PAUSED && trial->rung == i) {
                *ret_trial = rung->entries[place].trial;
                return true;
            }
        }
    }
    return false;
}

/* Finds the first trial that waits: a lost one, or a new one. */
static bool find_waiting(const struct pl_scheduler *scheduler, bool lost, size_t *ret_trial)
{
    for (size_t i = 0; i < scheduler->space->trials_count; i++) {
        const struct pl_sweep_progress *progress = &scheduler->trials[i].progress;

        if (progress->state == PL_SWEEP_WAITING && (progress->runs > 0) == lost) {
            *ret_trial = i;
            return true;
        }
    }
    return false;
}

bool pl_scheduler_next(const struct pl_scheduler *scheduler, size_t *ret_trial)
{
    return !scheduler->closed && (find_waiting(scheduler, true, ret_trial) || find_promotion(scheduler, ret_trial) ||
                                  find_waiting(scheduler, false, ret_trial));
}

void pl_scheduler_note_start(struct pl_scheduler *scheduler, size_t number)
{
    struct trial *trial = trial_of(scheduler, number);

    PL_BUG_IF(trial->progress.state != PL_SWEEP_WAITING && trial->progress.state != PL_SWEEP_PAUSED);
    trial->progress.state = PL_SWEEP_RUNNING;
    trial->progress.runs++;
    trial->stop_asked = false;
    scheduler->running++;
}

/* Enters the value after those that are as good, and returns its place. */
static size_t enter(const struct pl_scheduler *scheduler, struct rung *rung, size_t trial, double value)
{
    size_t place = rung->count;

    while (place > 0 && is_better(scheduler, value, rung->entries[place - 1].value)) {
        place--;
    }
    memmove(&rung->entries[place + 1], &rung->entries[place], (rung->count - place) * sizeof(*rung->entries));
    rung->entries[place] = (struct entry){.value = value, .trial = trial};
    rung->count++;
    return place;
}

/* Replaces the value of the trial's last step in the rungs that it has reached with this step. */
static void correct_rungs(struct pl_scheduler *scheduler, size_t number, double value)
{
    const struct trial *trial = &scheduler->trials[number];

    for (int i = trial->step_rung; i <= trial->rung; i++) {
        struct rung *rung = &scheduler->rungs[i];
        size_t place = 0;

        while (rung->entries[place].trial != number) {
            place++;
        }
        rung->count--;
        memmove(&rung->entries[place], &rung->entries[place + 1], (rung->count - place) * sizeof(*rung->entries));
        enter(scheduler, rung, number, value);
    }
}

/* Enters the value at the rungs that the trial has reached now. Returns whether the trial must pause. */
static bool pauses(struct pl_scheduler *scheduler, size_t number, double value)
{
    struct trial *trial = &scheduler->trials[number];
    bool pause = false;

    trial->step_rung = trial->rung + 1;
    while (trial->rung + 1 < scheduler->rungs_count && trial->progress.step >= scheduler->rungs[trial->rung + 1].step) {
        struct rung *rung = &scheduler->rungs[++trial->rung];

        pause = enter(scheduler, rung, number, value) >= promoted(scheduler, rung);
    }
    return pause;
}

static void remember(struct trial *trial, double value)
{
    size_t count = trial->reports_count;

    if (pl_memory_grow(&trial->reports, &trial->reports_capacity, count + 1, sizeof(*trial->reports), NULL) == PL_OK) {
        /* after the first step whose value is not finite, the sum is worse than all others */
        trial->reports[count] =
            (struct report){.step = trial->progress.step, .average = (trial->sum + value) / (double)trial->steps};
        trial->reports_count = count + 1;
    }
}

/* Stores the average of a trial's values up to `step`. Returns false if the trial has not reached that step. */
static bool average_at(const struct trial *trial, int64_t step, double *ret_average)
{
    size_t low = 0, high = trial->reports_count; /* the first report after `step` is in this part */

    if (trial->progress.step < step) {
        return false;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (trial->reports[middle].step <= step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return false;
    }
    *ret_average = trial->reports[low - 1].average;
    return true;
}

static bool is_below_median(const struct pl_scheduler *scheduler, const struct trial *trial)
{
    double best = trial->progress.has_value ? trial->progress.best : (double)NAN;
    size_t others = 0, better = 0;
    double average = 0;

    if (trial->progress.step < scheduler->space->min_step) {
        return false;
    }
    for (size_t i = 0; i < scheduler->space->trials_count; i++) {
        if (&scheduler->trials[i] != trial && average_at(&scheduler->trials[i], trial->progress.step, &average)) {
            others++;
            better += is_better(scheduler, average, best);
        }
    }
    return others >= (size_t)scheduler->space->least_trials && better > others / 2;
}

/* Sets the trial's best value, after its last step has got `value`. */
static void note_best(const struct pl_scheduler *scheduler, struct trial *trial, double value)
{
    struct pl_sweep_progress *progress = &trial->progress;

    trial->best = trial->earlier;
    if (isfinite(value) && (!trial->earlier.has_value || is_better(scheduler, value, trial->earlier.value))) {
        trial->best =
            (struct best){.has_value = true, .value = value, .step = progress->step, .at = scheduler->reports};
    }
    progress->has_value = trial->best.has_value;
    progress->best = trial->best.value;
    progress->best_step = trial->best.step;
}

bool pl_scheduler_note_report(struct pl_scheduler *scheduler, size_t number, int64_t step, double value)
{
    struct trial *trial = trial_of(scheduler, number);
    struct pl_sweep_progress *progress = &trial->progress;
    const bool is_again = progress->has_step && step == progress->step;
    bool stop = false;

    PL_BUG_IF(progress->state != PL_SWEEP_RUNNING);
    if (step < 0 || (progress->has_step && step < progress->step) || step > PL_SWEEP_STEP_MAX) {
        return trial->stop_asked;
    }
    scheduler->reports++;
    if (!is_again) {
        trial->earlier = trial->best;
        trial->sum += progress->has_step ? progress->last : 0;
        trial->steps++;
    }
    progress->has_step = true;
    progress->step = step;
    progress->last = value;
    note_best(scheduler, trial, value);
    if (is_again) {
        correct_rungs(scheduler, number, value);
        return trial->stop_asked;
    }
    switch (scheduler->space->scheduler) {
    case PL_SWEEP_SCHEDULER_NONE:
        break;
    case PL_SWEEP_SCHEDULER_ASHA:
        stop = pauses(scheduler, number, value);
        break;
    case PL_SWEEP_SCHEDULER_MEDIAN:
        remember(trial, value);
        stop = is_below_median(scheduler, trial);
        break;
    }
    trial->stop_asked = trial->stop_asked || stop;
    return trial->stop_asked;
}

/* Returns the state of a trial that was stopped: paused if it may continue later. */
static enum pl_sweep_state stopped(const struct pl_scheduler *scheduler, const struct trial *trial)
{
    bool pauses_here = scheduler->space->scheduler == PL_SWEEP_SCHEDULER_ASHA && trial->stop_asked;

    return pauses_here && !scheduler->closed ? PL_SWEEP_PAUSED : PL_SWEEP_STOPPED;
}

void pl_scheduler_note_end(struct pl_scheduler *scheduler, size_t number, enum pl_sweep_end end)
{
    struct trial *trial = trial_of(scheduler, number);

    PL_BUG_IF(trial->progress.state != PL_SWEEP_RUNNING);
    scheduler->running--;
    switch (end) {
    case PL_SWEEP_END_COMPLETED:
        trial->progress.state = PL_SWEEP_COMPLETED;
        break;
    case PL_SWEEP_END_STOPPED:
        trial->progress.state = stopped(scheduler, trial);
        break;
    case PL_SWEEP_END_FAILED:
        trial->progress.state = PL_SWEEP_FAILED;
        scheduler->failed++;
        break;
    case PL_SWEEP_END_LOST:
    case PL_SWEEP_END_UNSEEN:
        trial->progress.state = trial->stop_asked || scheduler->closed ? stopped(scheduler, trial) : PL_SWEEP_WAITING;
        break;
    }
}

void pl_scheduler_close(struct pl_scheduler *scheduler)
{
    scheduler->closed = true;
    for (size_t i = 0; i < scheduler->space->trials_count; i++) {
        struct pl_sweep_progress *progress = &scheduler->trials[i].progress;

        if (progress->state == PL_SWEEP_WAITING || progress->state == PL_SWEEP_PAUSED) {
            progress->state = PL_SWEEP_STOPPED;
        }
    }
}

void pl_scheduler_reopen(struct pl_scheduler *scheduler)
{
    scheduler->closed = false;
    for (size_t i = 0; i < scheduler->space->trials_count; i++) {
        struct pl_sweep_progress *progress = &scheduler->trials[i].progress;

        if (progress->state == PL_SWEEP_STOPPED && progress->runs == 0) {
            progress->state = PL_SWEEP_WAITING;
        }
    }
}

bool pl_scheduler_is_closed(const struct pl_scheduler *scheduler)
{
    return scheduler->closed;
}

bool pl_scheduler_is_done(const struct pl_scheduler *scheduler)
{
    size_t next;

    return scheduler->running == 0 && !pl_scheduler_next(scheduler, &next);
}

bool pl_scheduler_has_failed(const struct pl_scheduler *scheduler)
{
    return (double)scheduler->failed > scheduler->space->max_failed * (double)scheduler->space->trials_count;
}

const struct pl_sweep_progress *pl_scheduler_progress(const struct pl_scheduler *scheduler, size_t trial)
{
    return &trial_of(scheduler, trial)->progress;
}

/* Whether trial `a` is better than trial `b`. If their values are equal, the one that was reported first is better. */
static bool comes_before(const struct pl_scheduler *scheduler, const struct trial *a, const struct trial *b)
{
    return is_better(scheduler, a->progress.best, b->progress.best) ||
           (!is_better(scheduler, b->progress.best, a->progress.best) && a->best.at < b->best.at);
}

bool pl_scheduler_best(const struct pl_scheduler *scheduler, size_t *ret_trial)
{
    const struct trial *best = NULL;

    for (size_t i = 0; i < scheduler->space->trials_count; i++) {
        const struct trial *trial = &scheduler->trials[i];

        if (trial->progress.has_value && trial->progress.state != PL_SWEEP_FAILED &&
            (!best || comes_before(scheduler, trial, best))) {
            best = trial;
            *ret_trial = i;
        }
    }
    return best;
}
