/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/scheduler.c. */
#include "base/memory.h"
#include "base/random.h"
#include "programs/sweep/scheduler.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

enum { TRIALS = 12, REPORTS = 64, EVENTS = 160, WORLDS = 1500 };

static struct pl_scheduler *made(const struct pl_sweep_space *space)
{
    struct pl_scheduler *scheduler = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_scheduler_new(space, &scheduler, &error), &error);
    return scheduler;
}

static struct pl_sweep_space asha(size_t trials)
{
    return (struct pl_sweep_space){.maximize = true,
                                   .trials_count = trials,
                                   .max_failed = 0.5,
                                   .scheduler = PL_SWEEP_SCHEDULER_ASHA,
                                   .min_step = 1,
                                   .factor = 3,
                                   .max_step = 9,
                                   .least_trials = 3};
}

/* Starts the next trial, which must be `expected`. */
static void start(struct pl_scheduler *scheduler, size_t expected)
{
    size_t trial = SIZE_MAX;

    ck_assert(pl_scheduler_next(scheduler, &trial));
    ck_assert_uint_eq(trial, expected);
    pl_scheduler_note_start(scheduler, trial);
}

/* Runs a trial that makes one report and then pauses. */
static void run_to_pause(struct pl_scheduler *scheduler, size_t trial, int64_t step, double value)
{
    start(scheduler, trial);
    ck_assert(pl_scheduler_note_report(scheduler, trial, step, value));
    pl_scheduler_note_end(scheduler, trial, PL_SWEEP_END_STOPPED);
}

static enum pl_sweep_state state_of(const struct pl_scheduler *scheduler, size_t trial)
{
    return pl_scheduler_progress(scheduler, trial)->state;
}

START_TEST(a_paused_trial_goes_on_when_it_has_become_one_of_the_best_of_its_rung)
{
    struct pl_sweep_space space = asha(4);
    struct pl_scheduler *scheduler = made(&space);
    size_t best;

    run_to_pause(scheduler, 0, 1, 0.5);
    run_to_pause(scheduler, 1, 1, 0.7);
    run_to_pause(scheduler, 2, 1, 0.7); /* of two equal values the one that was reported first is better */
    start(scheduler, 1);
    ck_assert(!pl_scheduler_note_report(scheduler, 1, 2, 0.71));
    /* the trial continues from an older checkpoint: the report is not new */
    ck_assert(!pl_scheduler_note_report(scheduler, 1, 1, 0.9));
    ck_assert_double_eq(pl_scheduler_progress(scheduler, 1)->best, 0.71);
    start(scheduler, 3);
    ck_assert(!pl_scheduler_note_report(scheduler, 3, 1, 0.9)); /* it is the best of 4 */
    ck_assert(pl_scheduler_note_report(scheduler, 3, 3, 0.6));  /* it is the first at the next rung */
    pl_scheduler_note_end(scheduler, 3, PL_SWEEP_END_STOPPED);
    ck_assert_int_eq(state_of(scheduler, 3), PL_SWEEP_PAUSED);
    ck_assert(!pl_scheduler_next(scheduler, &best) && !pl_scheduler_is_done(scheduler));
    pl_scheduler_note_end(scheduler, 1, PL_SWEEP_END_COMPLETED);
    ck_assert(pl_scheduler_is_done(scheduler)); /* paused trials stay paused */
    ck_assert(pl_scheduler_best(scheduler, &best) && best == 3);
    ck_assert_int_eq(pl_scheduler_progress(scheduler, 3)->best_step, 1);
    ck_assert_int_eq(pl_scheduler_progress(scheduler, 3)->step, 3);
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_report_beyond_several_rungs_enters_each_and_the_highest_decides)
{
    struct pl_sweep_space space = asha(4);
    struct pl_scheduler *scheduler = made(&space);

    run_to_pause(scheduler, 0, 1, 0.5);
    run_to_pause(scheduler, 1, 1, 0.4);
    start(scheduler, 2);
    /* the best of three at step 1, and the only one at step 3 */
    ck_assert(pl_scheduler_note_report(scheduler, 2, 4, 0.9));
    start(scheduler, 3); /* trial 2 still runs, and takes the place among the best */
    ck_assert(pl_scheduler_note_report(scheduler, 2, 5, 0.9)); /* a second report before its end */
    pl_scheduler_note_end(scheduler, 2, PL_SWEEP_END_STOPPED);
    ck_assert(pl_scheduler_note_report(scheduler, 3, 100, -1.0));
    pl_scheduler_note_end(scheduler, 3, PL_SWEEP_END_STOPPED);
    ck_assert(pl_scheduler_is_done(scheduler));
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_step_has_the_value_that_was_reported_last_for_it)
{
    struct pl_sweep_space space = asha(2);
    struct pl_scheduler *scheduler;
    const struct pl_sweep_progress *progress;

    space.scheduler = PL_SWEEP_SCHEDULER_NONE;
    scheduler = made(&space);
    progress = pl_scheduler_progress(scheduler, 0);
    start(scheduler, 0);
    ck_assert(!progress->has_step);
    pl_scheduler_note_report(scheduler, 0, -1, 0.9); /* no step */
    ck_assert(!progress->has_step && !progress->has_value);
    pl_scheduler_note_report(scheduler, 0, 0, 0.9); /* epochs may be counted from 0 */
    ck_assert(progress->has_step && progress->has_value && progress->step == 0);
    pl_scheduler_note_report(scheduler, 0, 0, 0.2);
    ck_assert_double_eq(progress->best, 0.2);
    pl_scheduler_note_report(scheduler, 0, 1, 0.6);
    ck_assert(progress->best == 0.6 && progress->best_step == 1);
    pl_scheduler_note_report(scheduler, 0, 1, 0.1);
    ck_assert(progress->best == 0.2 && progress->best_step == 0 && progress->last == 0.1 && progress->step == 1);
    pl_scheduler_note_report(scheduler, 0, 1, 0.3);
    ck_assert(progress->best == 0.3 && progress->best_step == 1);
    pl_scheduler_note_report(scheduler, 0, 1, (double)NAN);
    ck_assert(progress->best == 0.2 && progress->best_step == 0);
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_rung_compares_the_last_values_of_its_step)
{
    struct pl_sweep_space space = asha(4);
    struct pl_scheduler *scheduler = made(&space);

    run_to_pause(scheduler, 0, 1, 0.5);
    start(scheduler, 1);
    ck_assert(pl_scheduler_note_report(scheduler, 1, 1, 0.4));
    ck_assert(pl_scheduler_note_report(scheduler, 1, 1, 0.7)); /* before it has ended: it still pauses */
    pl_scheduler_note_end(scheduler, 1, PL_SWEEP_END_STOPPED);
    run_to_pause(scheduler, 2, 1, 0.6);
    start(scheduler, 1);                                        /* the best third of 0.5, 0.7, 0.6 */
    ck_assert(!pl_scheduler_note_report(scheduler, 1, 1, 0.1)); /* it repeats the step, and no decision is taken */
    start(scheduler, 2);                                        /* the best third of 0.5, 0.1, 0.6 */
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(the_median_compares_first_values_of_a_step_with_first_values)
{
    struct pl_sweep_space space = asha(3);
    struct pl_scheduler *scheduler;

    space.scheduler = PL_SWEEP_SCHEDULER_MEDIAN;
    space.least_trials = 1;
    scheduler = made(&space);
    for (size_t i = 0; i < 2; i++) { /* of each step the first value is bad */
        start(scheduler, i);
        for (int64_t step = 0; step < 4; step++) {
            ck_assert(!pl_scheduler_note_report(scheduler, i, step, 0.1));
            ck_assert(!pl_scheduler_note_report(scheduler, i, step, i == 0 ? 0.9 : 0.8));
        }
    }
    start(scheduler, 2);
    ck_assert(!pl_scheduler_note_report(scheduler, 2, 0, 0.1));
    ck_assert(!pl_scheduler_note_report(scheduler, 2, 0, 0.2));
    ck_assert(pl_scheduler_note_report(scheduler, 2, 1, 0.1)); /* 0.2 is worse than the averages 0.5 and 0.45 */
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(values_that_are_not_finite_are_never_the_best)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};

    for (int maximize = 0; maximize < 2; maximize++) {
        struct pl_sweep_space space = asha(4);
        struct pl_scheduler *scheduler;
        size_t best;

        space.maximize = maximize;
        scheduler = made(&space);
        for (size_t i = 0; i < PL_ARRAY_ITEMS(odd); i++) {
            run_to_pause(scheduler, i, 1, odd[i]);
            if (i < 2) {
                ck_assert(!pl_scheduler_best(scheduler, &best));
            }
            ck_assert(!pl_scheduler_progress(scheduler, i)->has_value);
        }
        start(scheduler, 0); /* the best third of three equal trials is the first */
        start(scheduler, 3);
        ck_assert(!pl_scheduler_note_report(scheduler, 3, 1, maximize ? -1e300 : 1e300));
        ck_assert(pl_scheduler_best(scheduler, &best) && best == 3);
        pl_scheduler_free(scheduler);
    }
}
END_TEST

START_TEST(a_lost_trial_comes_before_paused_and_new_ones_unless_it_was_to_stop)
{
    struct pl_sweep_space space = asha(5);
    struct pl_scheduler *scheduler = made(&space);

    for (size_t i = 0; i < 2; i++) {
        run_to_pause(scheduler, i, 1, 0.1);
    }
    start(scheduler, 2);
    start(scheduler, 3);
    ck_assert(pl_scheduler_note_report(scheduler, 2, 1, 0.0));
    pl_scheduler_note_end(scheduler, 2, PL_SWEEP_END_LOST); /* the trial was asked to stop */
    ck_assert_int_eq(state_of(scheduler, 2), PL_SWEEP_PAUSED);
    pl_scheduler_note_end(scheduler, 3, PL_SWEEP_END_LOST);
    ck_assert_int_eq(state_of(scheduler, 3), PL_SWEEP_WAITING);
    start(scheduler, 3);
    ck_assert_int_eq(pl_scheduler_progress(scheduler, 3)->runs, 2);
    start(scheduler, 0); /* it is one of the best */
    start(scheduler, 4);
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(nothing_starts_after_the_time_is_over)
{
    struct pl_sweep_space space = asha(4);
    struct pl_scheduler *scheduler = made(&space);
    size_t next;

    run_to_pause(scheduler, 0, 1, 0.1);
    start(scheduler, 1);
    start(scheduler, 2);
    pl_scheduler_close(scheduler);
    ck_assert(!pl_scheduler_next(scheduler, &next) && !pl_scheduler_is_done(scheduler));
    pl_scheduler_note_end(scheduler, 1, PL_SWEEP_END_STOPPED);
    pl_scheduler_note_end(scheduler, 2, PL_SWEEP_END_LOST);
    ck_assert(pl_scheduler_is_done(scheduler));
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(state_of(scheduler, i), PL_SWEEP_STOPPED);
    }
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_sweep_fails_when_more_than_the_given_part_of_its_trials_did)
{
    struct pl_sweep_space space = asha(4);
    struct pl_scheduler *scheduler;

    for (int strict = 0; strict < 2; strict++) {
        space.max_failed = strict ? 0 : 0.5;
        scheduler = made(&space);
        for (size_t i = 0; i < 3; i++) {
            ck_assert_int_eq(pl_scheduler_has_failed(scheduler), i > (strict ? 0 : 2));
            start(scheduler, i);
            pl_scheduler_note_end(scheduler, i, PL_SWEEP_END_FAILED);
        }
        ck_assert(pl_scheduler_has_failed(scheduler));
        pl_scheduler_free(scheduler);
    }
}
END_TEST

/* The model: the steps of each trial, in order. Everything else is computed from them at each call, slowly. */
struct model_trial {
    enum pl_sweep_state state;
    int runs;
    bool stop;
    size_t count;
    struct {
        int64_t step;
        double first, value; /* value of the first and of the last report of the step */
        unsigned at;
    } reports[REPORTS]; /* by step */
};

struct model {
    const struct pl_sweep_space *space;
    struct model_trial trials[TRIALS];
    unsigned reports;
    bool closed;
};

struct model_entry {
    double value;
    unsigned at;
    size_t trial;
};

static double badness(const struct model *model, double value)
{
    return !isfinite(value) ? (double)INFINITY : model->space->maximize ? -value : value;
}

/* Sorts the best first; of equal values the one that was reported first. */
static void sort(const struct model *model, struct model_entry *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0; j--) {
            double a = badness(model, entries[j - 1].value), b = badness(model, entries[j].value);

            if (a > b || (a == b && entries[j - 1].at > entries[j].at)) {
                struct model_entry swapped = entries[j];

                entries[j] = entries[j - 1];
                entries[j - 1] = swapped;
            }
        }
    }
}

/* Returns the number of entries of the rung at `step`, and the sorted entries. */
static size_t rung_of(const struct model *model, int64_t step, struct model_entry entries[TRIALS])
{
    size_t count = 0;

    for (size_t i = 0; i < model->space->trials_count; i++) {
        for (size_t j = 0; j < model->trials[i].count; j++) {
            if (model->trials[i].reports[j].step >= step) {
                entries[count++] = (struct model_entry){
                    .value = model->trials[i].reports[j].value, .at = model->trials[i].reports[j].at, .trial = i};
                break;
            }
        }
    }
    sort(model, entries, count);
    return count;
}

/* Returns the highest rung at or below `step`, or 0. */
static int64_t rung_below(const struct model *model, int64_t step)
{
    int64_t rung = 0;

    for (int64_t at = model->space->min_step; at < model->space->max_step && at <= step; at *= model->space->factor) {
        rung = at;
    }
    return rung;
}

static int64_t step_of(const struct model_trial *trial)
{
    return trial->count > 0 ? trial->reports[trial->count - 1].step : -1;
}

/* Whether the trial is among those of its highest rung that continue. */
static bool is_promoted(const struct model *model, size_t trial)
{
    struct model_entry entries[TRIALS];
    size_t count = rung_of(model, rung_below(model, step_of(&model->trials[trial])), entries);

    for (size_t i = 0; i < count / (size_t)model->space->factor; i++) {
        if (entries[i].trial == trial) {
            return true;
        }
    }
    return false;
}

static bool model_next(const struct model *model, size_t *ret_trial)
{
    struct model_entry entries[TRIALS];
    int64_t highest = 0;

    if (model->closed) {
        return false;
    }
    for (size_t i = 0; i < model->space->trials_count; i++) {
        if (model->trials[i].state == PL_SWEEP_WAITING && model->trials[i].runs > 0) {
            *ret_trial = i;
            return true;
        }
        if (model->trials[i].state == PL_SWEEP_PAUSED && is_promoted(model, i)) {
            int64_t rung = rung_below(model, step_of(&model->trials[i]));

            highest = rung > highest ? rung : highest;
        }
    }
    for (size_t i = 0, count = highest > 0 ? rung_of(model, highest, entries) : 0; i < count; i++) {
        size_t trial = entries[i].trial;

        if (model->trials[trial].state == PL_SWEEP_PAUSED && is_promoted(model, trial) &&
            rung_below(model, step_of(&model->trials[trial])) == highest) {
            *ret_trial = trial;
            return true;
        }
    }
    for (size_t i = 0; i < model->space->trials_count; i++) {
        if (model->trials[i].state == PL_SWEEP_WAITING) {
            *ret_trial = i;
            return true;
        }
    }
    return false;
}

/* Gets the best value of a trial as an entry; false if it has none. */
static bool best_of(const struct model *model, size_t trial, struct model_entry *ret_best)
{
    struct model_entry entries[REPORTS];

    for (size_t i = 0; i < model->trials[trial].count; i++) {
        entries[i] = (struct model_entry){
            .value = model->trials[trial].reports[i].value, .at = model->trials[trial].reports[i].at, .trial = trial};
    }
    sort(model, entries, model->trials[trial].count);
    *ret_best = entries[0];
    return model->trials[trial].count > 0 && isfinite(entries[0].value);
}

static bool model_is_below_median(const struct model *model, size_t trial)
{
    struct model_entry averages[TRIALS], best = {.value = (double)NAN};
    int64_t step = step_of(&model->trials[trial]);
    size_t count = 0;

    if (!best_of(model, trial, &best)) {
        best.value = (double)NAN;
    }
    for (size_t i = 0; i < model->space->trials_count; i++) {
        const struct model_trial *other = &model->trials[i];
        double sum = 0;
        size_t values = 0;

        for (; values < other->count && other->reports[values].step <= step; values++) {
            sum += values > 0 ? other->reports[values - 1].value : 0;
        }
        sum += values > 0 ? other->reports[values - 1].first : 0;
        if (i != trial && step_of(other) >= step && values > 0) {
            averages[count++] = (struct model_entry){.value = sum / (double)values};
        }
    }
    sort(model, averages, count);
    return step >= model->space->min_step && count >= (size_t)model->space->least_trials &&
           badness(model, averages[count / 2].value) < badness(model, best.value);
}

static bool model_report(struct model *model, size_t number, int64_t step, double value)
{
    struct model_trial *trial = &model->trials[number];
    int64_t before = step_of(trial);

    if (trial->count > 0 && step == before) { /* a value that replaces the step's earlier one */
        trial->reports[trial->count - 1].value = value;
        trial->reports[trial->count - 1].at = model->reports++;
    } else if (step >= 0 && step > before) {
        trial->reports[trial->count].first = value;
        trial->reports[trial->count].step = step;
        trial->reports[trial->count].value = value;
        trial->reports[trial->count++].at = model->reports++;
        if (model->space->scheduler == PL_SWEEP_SCHEDULER_ASHA && rung_below(model, step) > rung_below(model, before)) {
            trial->stop = trial->stop || !is_promoted(model, number);
        } else if (model->space->scheduler == PL_SWEEP_SCHEDULER_MEDIAN) {
            trial->stop = trial->stop || model_is_below_median(model, number);
        }
    }
    return trial->stop;
}

static void model_end(struct model *model, size_t number, enum pl_sweep_end end)
{
    struct model_trial *trial = &model->trials[number];
    bool may_go_on = model->space->scheduler == PL_SWEEP_SCHEDULER_ASHA && !model->closed;

    if (end == PL_SWEEP_END_COMPLETED || end == PL_SWEEP_END_FAILED) {
        trial->state = end == PL_SWEEP_END_COMPLETED ? PL_SWEEP_COMPLETED : PL_SWEEP_FAILED;
    } else if (end == PL_SWEEP_END_LOST && !trial->stop && !model->closed) {
        trial->state = PL_SWEEP_WAITING;
    } else {
        trial->state = trial->stop && may_go_on ? PL_SWEEP_PAUSED : PL_SWEEP_STOPPED;
    }
}

/* Returns a description of a difference between the scheduler and the model, or NULL. (Each assertion of Check is a
 * system call.) */
static const char *difference(const struct model *model, const struct pl_scheduler *scheduler)
{
    size_t next = SIZE_MAX, model_said = SIZE_MAX, best = SIZE_MAX, failed = 0;
    struct model_entry entries[TRIALS], of_trial = {.value = 0};
    size_t count = 0;
    bool runs = false;

    if (pl_scheduler_next(scheduler, &next) != model_next(model, &model_said) || next != model_said) {
        return "the next trial";
    }
    for (size_t i = 0; i < model->space->trials_count; i++) {
        const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, i);
        const struct model_trial *trial = &model->trials[i];
        bool has_value = best_of(model, i, &of_trial);

        if (progress->state != trial->state || progress->runs != trial->runs ||
            progress->has_step != (trial->count > 0) || (trial->count > 0 && progress->step != step_of(trial))) {
            return "a trial's state";
        }
        if (progress->has_value != has_value || (has_value && memcmp(&progress->best, &of_trial.value, 8) != 0)) {
            return "a trial's value";
        }
        if (has_value && trial->state != PL_SWEEP_FAILED) {
            entries[count++] = of_trial;
        }
        runs = runs || trial->state == PL_SWEEP_RUNNING;
        failed += trial->state == PL_SWEEP_FAILED;
    }
    sort(model, entries, count);
    if (pl_scheduler_best(scheduler, &best) != (count > 0) || best != (count > 0 ? entries[0].trial : SIZE_MAX)) {
        return "the best trial";
    }
    if (pl_scheduler_is_done(scheduler) != (!runs && next == SIZE_MAX)) {
        return "whether it is done";
    }
    return pl_scheduler_has_failed(scheduler) !=
                   ((double)failed > model->space->max_failed * (double)model->space->trials_count)
               ? "whether it has failed"
               : NULL;
}

/* Does one event if it is possible. Returns false if the scheduler's answer differs from the model's. */
static bool happen(struct model *model, struct pl_scheduler *scheduler, uint64_t *state)
{
    static const double values[] = {0, 1, 2, 3, -4, 1, 2, (double)NAN, (double)INFINITY, -(double)INFINITY};
    size_t number = pl_random_next(state) % model->space->trials_count;
    struct model_trial *trial = &model->trials[number];
    uint64_t drawn = pl_random_next(state) % 100;

    if (drawn == 0) {
        model->closed = true;
        for (size_t i = 0; i < model->space->trials_count; i++) {
            if (model->trials[i].state == PL_SWEEP_WAITING || model->trials[i].state == PL_SWEEP_PAUSED) {
                model->trials[i].state = PL_SWEEP_STOPPED;
            }
        }
        pl_scheduler_close(scheduler);
    } else if (drawn < 35) {
        if (model_next(model, &number)) {
            model->trials[number].state = PL_SWEEP_RUNNING;
            model->trials[number].runs++;
            model->trials[number].stop = false;
            pl_scheduler_note_start(scheduler, number);
        }
    } else if (trial->state == PL_SWEEP_RUNNING && drawn < 85 && trial->count < REPORTS) {
        int64_t step = step_of(trial) + (int64_t)(pl_random_next(state) % 5) - 1;
        double value = values[pl_random_next(state) % PL_ARRAY_ITEMS(values)];

        return pl_scheduler_note_report(scheduler, number, step, value) == model_report(model, number, step, value);
    } else if (trial->state == PL_SWEEP_RUNNING && (trial->stop || drawn > 92)) {
        enum pl_sweep_end end = (enum pl_sweep_end)(trial->stop && drawn % 4 ? PL_SWEEP_END_STOPPED : drawn % 4);

        model_end(model, number, end);
        pl_scheduler_note_end(scheduler, number, end);
    }
    return true;
}

START_TEST(any_order_of_events_gives_what_a_slow_model_finds)
{
    const char *given = getenv("PACELINE_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 0;

    for (uint64_t world = first; world < first + WORLDS; world++) {
        uint64_t state = world;
        struct pl_sweep_space space = {
            .maximize = pl_random_next(&state) % 2,
            .trials_count = 1 + pl_random_next(&state) % TRIALS,
            .max_failed = (double)(pl_random_next(&state) % 5) / 4,
            .scheduler = (enum pl_sweep_scheduler)(pl_random_next(&state) % 3),
            .min_step = 1 + (int64_t)(pl_random_next(&state) % 3),
            .factor = 2 + (int64_t)(pl_random_next(&state) % 3),
            .max_step = pl_random_next(&state) % 2 ? INT64_C(1) << 40 : 20,
            .least_trials = 1 + (int64_t)(pl_random_next(&state) % 4),
        };
        struct model model = {.space = &space};
        struct pl_scheduler *scheduler = made(&space);

        for (int event = 0; event < EVENTS; event++) {
            const char *wrong = happen(&model, scheduler, &state) ? difference(&model, scheduler) : "a stop";

            if (wrong) {
                ck_abort_msg("seed %llu, event %d: %s differs from the model's", (unsigned long long)world, event,
                             wrong);
            }
        }
        pl_scheduler_free(scheduler);
    }
}
END_TEST

UNIT_MAIN("programs/sweep/scheduler", a_paused_trial_goes_on_when_it_has_become_one_of_the_best_of_its_rung,
          a_report_beyond_several_rungs_enters_each_and_the_highest_decides,
          a_step_has_the_value_that_was_reported_last_for_it, a_rung_compares_the_last_values_of_its_step,
          the_median_compares_first_values_of_a_step_with_first_values, values_that_are_not_finite_are_never_the_best,
          a_lost_trial_comes_before_paused_and_new_ones_unless_it_was_to_stop, nothing_starts_after_the_time_is_over,
          a_sweep_fails_when_more_than_the_given_part_of_its_trials_did,
          any_order_of_events_gives_what_a_slow_model_finds)
