/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which trial of a sweep runs where and until when, and handles its end. */
#include "programs/sweep/state.h"

#include "base/log.h"
#include "base/memory.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

void pl_sweep_trials_note_slots(struct pl_sweep *sweep, int host, int slots)
{
    struct pl_sweep_host *there = &sweep->hosts[host];
    struct pl_error error = PL_ERROR_NONE;

    if (there->trials) {
        return;
    }
    there->trials = pl_memory_new((size_t)slots, sizeof(*there->trials), &error);
    if (!there->trials) {
        pl_sweep_fail_status(sweep, PL_MEMORY, &error);
        return;
    }
    for (int i = 0; i < slots; i++) {
        there->trials[i] = -1;
    }
    there->slots = slots;
}

bool pl_sweep_trials_is_over(const struct pl_sweep *sweep, size_t trial)
{
    const enum pl_sweep_state state = pl_scheduler_progress(sweep->scheduler, trial)->state;

    return state == PL_SWEEP_COMPLETED || state == PL_SWEEP_STOPPED || state == PL_SWEEP_FAILED;
}

/* Returns the host with most free slots, or -1 if no slot is free. */
static int free_host(const struct pl_sweep *sweep)
{
    int best = -1, most = 0;

    for (size_t i = 0; i < sweep->hosts_count; i++) {
        const int unused = sweep->hosts[i].slots - sweep->hosts[i].used;

        if (unused > most) {
            most = unused;
            best = (int)i;
        }
    }
    return best;
}

static void take_slot(struct pl_sweep *sweep, int trial, int host)
{
    struct pl_sweep_host *there = &sweep->hosts[host];
    int slot = 0;

    while (there->trials[slot] >= 0) {
        slot++;
    }
    there->trials[slot] = trial;
    there->used++;
    sweep->running++;
    sweep->runs[trial].host = host;
    sweep->runs[trial].slot = slot;
}

void pl_sweep_trials_free_slot(struct pl_sweep *sweep, int trial)
{
    struct pl_sweep_run *run = &sweep->runs[trial];

    sweep->hosts[run->host].trials[run->slot] = -1;
    sweep->hosts[run->host].used--;
    sweep->running--;
    run->state = PL_SWEEP_RUN_NONE;
}

static enum pl_status replace_text(char **text_at, const char *text, struct pl_error *reterr)
{
    char *copy = pl_memory_string(text, reterr);

    if (!copy) {
        return PL_MEMORY;
    }
    free(*text_at);
    *text_at = copy;
    return PL_OK;
}

void pl_sweep_trials_start(struct pl_sweep *sweep, int trial)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const struct pl_sweep_space *space = sweep->space;
    const char *host = sweep->job->hosts.items[run->host];
    const struct pl_trial_order order = {.trial = trial,
                                         .slot = run->slot,
                                         .processes = space->processes,
                                         .is_first = !sweep->records[trial].has_begun,
                                         .last_step = pl_scheduler_progress(sweep->scheduler, (size_t)trial)->step,
                                         .hyperparameters = space->trials[trial].hyperparameters,
                                         .metric_name = space->metric_name,
                                         .metric_regex = space->metric_regex,
                                         .step_regex = space->step_regex};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_sweep_journal_start(sweep->journal, (size_t)trial, host, &error);

    if (status != PL_OK && pl_sweep_room_give_back(sweep, &error)) {
        status = pl_sweep_journal_start(sweep->journal, (size_t)trial, host, &error);
    }
    status = status == PL_OK ? replace_text(&sweep->records[trial].host, host, &error) : status;
    if (status != PL_OK) {
        pl_sweep_fail_status(sweep, status, &error);
        return;
    }
    sweep->records[trial].has_begun = true;
    run->state = PL_SWEEP_RUN_RUNS;
    run->begun_ns = pl_clock_now_ns();
    run->limit_ns = space->trial_time_s > 0 ? pl_deadline_after_ns((int64_t)(space->trial_time_s * (double)PL_NS_PER_S))
                                            : PL_DEADLINE_NEVER;
    run->kill_ns = PL_DEADLINE_NEVER;
    run->why = PL_SWEEP_WHY_NONE;
    run->model_gone = run->has_model = false;
    run->is_first = order.is_first;
    run->words[0] = '\0';
    pl_log(PL_LOG_INFO, "trial %d runs on host %s, slot %d: %s", trial, host, run->slot, order.hyperparameters);
    pl_sweep_hosts_start_trial(sweep, run->host, &order);
}

/* A trial that has run before runs on the host with its checkpoints if that host has a free slot; else its checkpoints
 * move. */
void pl_sweep_trials_fill(struct pl_sweep *sweep)
{
    size_t next;

    while (!sweep->failed && !sweep->full && pl_scheduler_next(sweep->scheduler, &next)) {
        const char *before = sweep->records[next].host;
        const int home = before ? pl_sweep_hosts_find(sweep, before) : -1;
        const int host = home >= 0 && sweep->hosts[home].used < sweep->hosts[home].slots ? home : free_host(sweep);
        struct pl_sweep_run *run = &sweep->runs[next];

        if (host < 0 || (home >= 0 && sweep->hosts[home].slots == 0)) {
            return; /* no slot is free, or the trial's own host has not sent its number of slots yet */
        }
        pl_scheduler_note_start(sweep->scheduler, next);
        take_slot(sweep, (int)next, host);
        if (home >= 0 && home != host) {
            run->state = PL_SWEEP_RUN_MOVES;
            run->from_host = home;
        } else {
            pl_sweep_trials_start(sweep, (int)next);
        }
    }
}

void pl_sweep_trials_begin_move(struct pl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->hosts_count && !sweep->move.is_on; i++) {
        for (int slot = 0; slot < sweep->hosts[i].slots && !sweep->move.is_on; slot++) {
            const int trial = sweep->hosts[i].trials[slot];

            if (trial >= 0 && sweep->runs[trial].state == PL_SWEEP_RUN_MOVES) {
                pl_sweep_move_begin(sweep, trial, PL_SWEEP_CHECKPOINTS, sweep->runs[trial].from_host, (int)i);
            }
        }
    }
}

void pl_sweep_trials_stop(struct pl_sweep *sweep, int trial, enum pl_sweep_why why)
{
    struct pl_sweep_run *run = &sweep->runs[trial];

    if (run->state != PL_SWEEP_RUN_RUNS || run->why != PL_SWEEP_WHY_NONE) {
        return;
    }
    run->why = why;
    run->kill_ns = pl_deadline_after_ns(sweep->job->settings.stop_ns);
    pl_sweep_hosts_signal_trial(sweep, run->host, trial, SIGTERM);
}

void pl_sweep_trials_note_report(struct pl_sweep *sweep, int trial, int64_t step, double value)
{
    const struct pl_sweep_progress *progress;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    bool is_again;

    if ((size_t)trial >= sweep->space->trials_count || sweep->runs[trial].state != PL_SWEEP_RUN_RUNS) {
        return;
    }
    progress = pl_scheduler_progress(sweep->scheduler, (size_t)trial);
    is_again = progress->has_step && step == progress->step;
    status = pl_sweep_journal_report(sweep->journal, (size_t)trial, step, value, is_again, &error);
    if (status != PL_OK && pl_sweep_room_give_back(sweep, &error)) {
        status = pl_sweep_journal_report(sweep->journal, (size_t)trial, step, value, is_again, &error);
    }
    if (status != PL_OK) {
        pl_sweep_fail_status(sweep, status, &error);
    } else if (pl_scheduler_note_report(sweep->scheduler, (size_t)trial, step, value)) {
        pl_sweep_trials_stop(sweep, trial, PL_SWEEP_WHY_SCHEDULER);
    }
}

/* Whether a finished trial needs its checkpoints no more. It needs them if it has left nothing else and may be the
 * best. */
static bool may_forget_checkpoints(const struct pl_sweep *sweep, size_t trial, bool is_beaten)
{
    return is_beaten || sweep->runs[trial].has_model || !sweep->space->model ||
           pl_scheduler_progress(sweep->scheduler, trial)->state == PL_SWEEP_FAILED;
}

/* Only the best finished trial's model is kept, and the others are removed when the best trial is over: until then it
 * may fail. With seeds the best trial is known at the end. A failed trial is never the best. */
void pl_sweep_trials_forget_beaten(struct pl_sweep *sweep)
{
    size_t best = 0;
    const bool is_known = !pl_sweep_space_has_seeds(sweep->space) && pl_scheduler_best(sweep->scheduler, &best) &&
                          pl_sweep_trials_is_over(sweep, best);

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        struct pl_sweep_run *run = &sweep->runs[i];
        const bool failed = pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED;
        const bool is_beaten = is_known && i != best;

        if (!sweep->records[i].host || !pl_sweep_trials_is_over(sweep, i)) {
            continue;
        }
        if (!run->model_gone && (failed || is_beaten)) {
            run->model_gone = true;
            pl_sweep_hosts_forget_trial(sweep, (int)i, true);
        }
        if (!run->checkpoints_gone && may_forget_checkpoints(sweep, i, is_beaten)) {
            run->checkpoints_gone = true;
            pl_sweep_hosts_forget_trial(sweep, (int)i, false);
        }
    }
}

/* Returns how a run has ended, by the reason of its stop and its success. */
static enum pl_sweep_end classify(const struct pl_sweep *sweep, const struct pl_sweep_run *run, bool ok)
{
    if (sweep->stop_number != 0) {
        return PL_SWEEP_END_LOST;
    }
    switch (run->why) {
    case PL_SWEEP_WHY_SCHEDULER:
    case PL_SWEEP_WHY_SWEEP_TIME:
        return PL_SWEEP_END_STOPPED;
    case PL_SWEEP_WHY_TRIAL_TIME:
    case PL_SWEEP_WHY_UNREAD:
        return PL_SWEEP_END_FAILED;
    case PL_SWEEP_WHY_DISK:
        return PL_SWEEP_END_LOST;
    case PL_SWEEP_WHY_NONE:
        break;
    }
    if (ok && run->is_first && run->words[0] != '\0' && !pl_sweep_journal_has_reports(sweep->journal)) {
        return PL_SWEEP_END_UNSEEN;
    }
    return ok ? PL_SWEEP_END_COMPLETED : PL_SWEEP_END_FAILED;
}

static void log_end(const struct pl_sweep *sweep, int trial, enum pl_sweep_end end, double seconds, const char *reason)
{
    static const char *const words[] = {[PL_SWEEP_END_COMPLETED] = "has succeeded",
                                        [PL_SWEEP_END_STOPPED] = "was stopped",
                                        [PL_SWEEP_END_FAILED] = "has failed",
                                        [PL_SWEEP_END_LOST] = "will continue",
                                        [PL_SWEEP_END_UNSEEN] = "succeeded without a value"};
    const struct pl_sweep_progress *progress = pl_scheduler_progress(sweep->scheduler, (size_t)trial);
    const struct pl_sweep_run *run = &sweep->runs[trial];

    if (end == PL_SWEEP_END_FAILED) {
        pl_log(PL_LOG_WARNING, "trial %d has failed after %.1f s: %s", trial, seconds, reason);
    } else if (progress->has_value) {
        pl_log(PL_LOG_INFO, "trial %d %s after %.1f s; best %s %.6g", trial, words[end], seconds,
               sweep->space->metric_name, progress->best);
    } else {
        pl_log(PL_LOG_INFO, "trial %d %s after %.1f s; it has not printed %sthe metric %s%s%s", trial, words[end],
               seconds, progress->has_step ? "a finite value of " : "", sweep->space->metric_name,
               run->words[0] != '\0' ? ": " : "", run->words);
    }
}

static enum pl_status journal_end(struct pl_sweep *sweep, int trial, enum pl_sweep_end end, double seconds,
                                  const struct pl_text *words, struct pl_error *reterr)
{
    const char *reason = end == PL_SWEEP_END_FAILED ? pl_text_string(words) : NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_sweep_journal_end(sweep->journal, (size_t)trial, end, seconds, reason, &error) == PL_OK) {
        return PL_OK;
    }
    if (!pl_sweep_room_give_back(sweep, &error)) {
        *reterr = error;
        return error.status;
    }
    return pl_sweep_journal_end(sweep->journal, (size_t)trial, end, seconds, reason, reterr);
}

void pl_sweep_trials_note_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_sweep_run *run;
    enum pl_sweep_end end;
    enum pl_status status = PL_OK;
    double seconds;

    if ((size_t)trial >= sweep->space->trials_count || sweep->runs[trial].state == PL_SWEEP_RUN_NONE) {
        return;
    }
    run = &sweep->runs[trial];
    seconds = run->state == PL_SWEEP_RUN_RUNS ? (double)(pl_clock_now_ns() - run->begun_ns) / (double)PL_NS_PER_S : 0;
    end = classify(sweep, run, ok);
    if (run->why == PL_SWEEP_WHY_TRIAL_TIME) {
        pl_text_printf(&words, "it ran longer than trial_time_s (%.6g s)", sweep->space->trial_time_s);
    } else {
        pl_text_append(&words, run->why == PL_SWEEP_WHY_UNREAD ? run->words : reason);
    }
    sweep->records[trial].seconds += seconds;
    if (run->state == PL_SWEEP_RUN_MOVES) { /* its run ends before it has begun */
        status = pl_sweep_journal_start(sweep->journal, (size_t)trial, sweep->job->hosts.items[run->from_host], &error);
    }
    status = status == PL_OK ? journal_end(sweep, trial, end, seconds, &words, &error) : status;
    if (status == PL_OK && end == PL_SWEEP_END_FAILED) {
        status = replace_text(&sweep->records[trial].reason, pl_text_string(&words), &error);
        sweep->first_failed = sweep->first_failed < 0 ? trial : sweep->first_failed;
    }
    pl_scheduler_note_end(sweep->scheduler, (size_t)trial, end);
    pl_sweep_trials_free_slot(sweep, trial);
    log_end(sweep, trial, end, seconds, pl_text_string(&words));
    if (end == PL_SWEEP_END_LOST && !ok && !sweep->failure_in_stop) {
        pl_text_clear(&words);
        pl_text_printf(&words, "trial %d: %s", trial, reason);
        /* the reason of the failure, after the others have saved */
        sweep->failure_in_stop = pl_memory_string(pl_text_string(&words), NULL);
    }
    pl_sweep_fail_status(sweep, status, &error);
    if (end == PL_SWEEP_END_UNSEEN) { /* the other trials would print no value either */
        sweep->records[trial].has_begun = false;
        pl_sweep_fail(sweep,
                      "trial %d succeeded, but the regular expression '%.300s' has found the metric '%s' in none of "
                      "its lines: %s",
                      trial, sweep->space->metric_regex, sweep->space->metric_name, run->words);
    }
    if (end != PL_SWEEP_END_LOST) {
        pl_sweep_trials_forget_beaten(sweep);
    }
}
