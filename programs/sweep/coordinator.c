/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of a sweep: which trial runs where and until when. */
#include "programs/sweep/state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "programs/sweep/job_sweep.h"
#include "programs/sweep/trial_folder.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the first trials wait for all hosts. */
#define BEGIN_NS (10 * PL_NS_PER_S)

enum { SIGNAL_EXIT = 128 };

static void note_slots(struct pl_sweep *sweep, int host, int slots)
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

static bool is_over(const struct pl_sweep *sweep, size_t trial)
{
    const enum pl_sweep_state state = pl_scheduler_progress(sweep->scheduler, trial)->state;

    return state == PL_SWEEP_COMPLETED || state == PL_SWEEP_STOPPED || state == PL_SWEEP_FAILED;
}

/* The journal of an earlier run of this job, if there is one, is what is known. */
static enum pl_status open_journal(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const int64_t time_ns = sweep->job->settings.sweep_time_ns;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    size_t over = 0;

    pl_trial_folder_root(sweep->job, &path);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_file_make_dirs(pl_text_string(&path), 0755, reterr));
    pl_text_append(&path, "/sweep.journal");
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_scheduler_new(sweep->space, &sweep->scheduler, reterr));
    PL_TRY(pl_sweep_journal_open(pl_text_string(&path), sweep->space, sweep->scheduler, sweep->records, &sweep->journal,
                                 reterr));
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        over += is_over(sweep, i);
        if (pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED && sweep->first_failed < 0) {
            sweep->first_failed = (int)i;
        }
    }
    pl_log(PL_LOG_INFO, "sweep: %zu trials on %zu host%s%s%s", sweep->space->trials_count, sweep->hosts_count,
           sweep->hosts_count == 1 ? "" : "s", over > 0 ? "; the journal goes on: " : "",
           over > 0 ? pl_text_string(&path) : "");
    sweep->begin_ns = pl_deadline_after_ns(BEGIN_NS);
    sweep->end_ns = time_ns > 0 ? pl_deadline_after_ns(time_ns) : PL_DEADLINE_NEVER;
    return PL_OK;
}

/* The host with most free slots; -1: none is free. */
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

static void free_slot(struct pl_sweep *sweep, int trial)
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

/* Its checkpoints, if it has any, are on its host. */
static void start_trial(struct pl_sweep *sweep, int trial)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const struct pl_sweep_space *space = sweep->space;
    const char *host = sweep->job->hosts.items[run->host];
    const struct pl_trial_order order = {.trial = trial,
                                         .slot = run->slot,
                                         .processes = space->processes,
                                         .last_step = pl_scheduler_progress(sweep->scheduler, (size_t)trial)->step,
                                         .hyperparameters = space->trials[trial].hyperparameters,
                                         .metric_regex = space->metric_regex,
                                         .step_regex = space->step_regex};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_sweep_journal_start(sweep->journal, (size_t)trial, host, &error);

    status = status == PL_OK ? replace_text(&sweep->records[trial].host, host, &error) : status;
    if (status != PL_OK) {
        pl_sweep_fail_status(sweep, status, &error);
        return;
    }
    run->state = PL_SWEEP_RUN_RUNS;
    run->begun_ns = pl_clock_now_ns();
    run->limit_ns = space->trial_time_s > 0 ? pl_deadline_after_ns((int64_t)(space->trial_time_s * (double)PL_NS_PER_S))
                                            : PL_DEADLINE_NEVER;
    run->kill_ns = PL_DEADLINE_NEVER;
    run->why = PL_SWEEP_WHY_NONE;
    run->model_gone = false;
    pl_log(PL_LOG_INFO, "trial %d runs on host %s, slot %d: %s", trial, host, run->slot, order.hyperparameters);
    pl_sweep_hosts_start_trial(sweep, run->host, &order);
}

/* Trials into free slots, as long as there are both. One that has run before goes where its checkpoints are, or they
 * move. */
static void fill(struct pl_sweep *sweep)
{
    size_t next;

    while (!sweep->failed && pl_scheduler_next(sweep->scheduler, &next)) {
        const char *before = sweep->records[next].host;
        const int home = before ? pl_sweep_hosts_find(sweep, before) : -1;
        const int host = home >= 0 && sweep->hosts[home].used < sweep->hosts[home].slots ? home : free_host(sweep);
        struct pl_sweep_run *run = &sweep->runs[next];

        if (host < 0 || (home >= 0 && sweep->hosts[home].slots == 0)) {
            return; /* there is none, or its own host has not said yet how many it has */
        }
        pl_scheduler_note_start(sweep->scheduler, next);
        take_slot(sweep, (int)next, host);
        if (home >= 0 && home != host) {
            run->state = PL_SWEEP_RUN_MOVES;
            run->from_host = home;
        } else {
            start_trial(sweep, (int)next);
        }
    }
}

/* The next trial whose checkpoints are to move. */
static void begin_move(struct pl_sweep *sweep)
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

/* Ask it to end; it has the time of a job that is stopped. */
static void stop_trial(struct pl_sweep *sweep, int trial, enum pl_sweep_why why)
{
    struct pl_sweep_run *run = &sweep->runs[trial];

    if (run->state != PL_SWEEP_RUN_RUNS || run->why != PL_SWEEP_WHY_NONE) {
        return;
    }
    run->why = why;
    run->kill_ns = pl_deadline_after_ns(sweep->job->settings.stop_ns);
    pl_sweep_hosts_signal_trial(sweep, run->host, trial, SIGTERM);
}

static void note_report(struct pl_sweep *sweep, int trial, int64_t step, double value)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if ((size_t)trial >= sweep->space->trials_count || sweep->runs[trial].state != PL_SWEEP_RUN_RUNS) {
        return;
    }
    status = pl_sweep_journal_report(sweep->journal, (size_t)trial, step, value, &error);
    if (status != PL_OK) {
        pl_sweep_fail_status(sweep, status, &error);
    } else if (pl_scheduler_note_report(sweep->scheduler, (size_t)trial, step, value)) {
        stop_trial(sweep, trial, PL_SWEEP_WHY_SCHEDULER);
    }
}

static void forget_model(struct pl_sweep *sweep, int trial)
{
    sweep->runs[trial].model_gone = true;
    pl_sweep_hosts_forget_trial(sweep, pl_sweep_hosts_find(sweep, sweep->records[trial].host), trial);
}

/* Of the trials that are over only the best one's model is kept, once that one is over too: until then it may fail.
 * With seeds the best is known at the end. One that has failed is never the best. */
static void forget_beaten(struct pl_sweep *sweep)
{
    const bool has_seeds = sweep->space->points_count != sweep->space->trials_count;
    size_t best = 0;
    const bool is_known = !has_seeds && pl_scheduler_best(sweep->scheduler, &best) && is_over(sweep, best);

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        const bool failed = pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED;

        if (!sweep->runs[i].model_gone && sweep->records[i].host &&
            (failed || (is_known && i != best && is_over(sweep, i)))) {
            forget_model(sweep, (int)i);
        }
    }
}

/* What an end means. */
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
        return PL_SWEEP_END_FAILED;
    case PL_SWEEP_WHY_NONE:
        break;
    }
    return ok ? PL_SWEEP_END_COMPLETED : PL_SWEEP_END_FAILED;
}

static void log_end(const struct pl_sweep *sweep, int trial, enum pl_sweep_end end, double seconds, const char *reason)
{
    static const char *const words[] = {[PL_SWEEP_END_COMPLETED] = "has ended",
                                        [PL_SWEEP_END_STOPPED] = "was stopped",
                                        [PL_SWEEP_END_FAILED] = "has failed",
                                        [PL_SWEEP_END_LOST] = "is to go on"};
    const struct pl_sweep_progress *progress = pl_scheduler_progress(sweep->scheduler, (size_t)trial);

    if (end == PL_SWEEP_END_FAILED) {
        pl_log(PL_LOG_WARNING, "trial %d has failed after %.1f s: %s", trial, seconds, reason);
    } else if (progress->has_value) {
        pl_log(PL_LOG_INFO, "trial %d %s after %.1f s; best %s %.6g", trial, words[end], seconds,
               sweep->space->metric_name, progress->best);
    } else {
        pl_log(PL_LOG_INFO, "trial %d %s after %.1f s; it has not printed %s", trial, words[end], seconds,
               sweep->space->metric_name);
    }
}

static void note_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason)
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
        pl_text_printf(&words, "it ran longer than trial_time_s, %.6g s", sweep->space->trial_time_s);
    } else {
        pl_text_append(&words, reason);
    }
    sweep->records[trial].seconds += seconds;
    if (run->state == PL_SWEEP_RUN_MOVES) { /* its run ends before it has begun */
        status = pl_sweep_journal_start(sweep->journal, (size_t)trial, sweep->job->hosts.items[run->from_host], &error);
    }
    status = status != PL_OK ? status
                             : pl_sweep_journal_end(sweep->journal, (size_t)trial, end, seconds,
                                                    end == PL_SWEEP_END_FAILED ? pl_text_string(&words) : NULL, &error);
    if (status == PL_OK && end == PL_SWEEP_END_FAILED) {
        status = replace_text(&sweep->records[trial].reason, pl_text_string(&words), &error);
        sweep->first_failed = sweep->first_failed < 0 ? trial : sweep->first_failed;
    }
    pl_scheduler_note_end(sweep->scheduler, (size_t)trial, end);
    free_slot(sweep, trial);
    log_end(sweep, trial, end, seconds, pl_text_string(&words));
    if (end == PL_SWEEP_END_LOST && !ok && !sweep->ended_badly) {
        pl_text_clear(&words);
        pl_text_printf(&words, "trial %d: %s", trial, reason);
        sweep->ended_badly = pl_memory_string(pl_text_string(&words), NULL); /* told when the others have saved */
    }
    pl_sweep_fail_status(sweep, status, &error);
    if (end != PL_SWEEP_END_LOST) {
        forget_beaten(sweep);
    }
}

/* The sweep's time is over: what runs is stopped, and the best so far is the result. */
static void close_sweep(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->closed = true;
    pl_log(PL_LOG_INFO, "the time of the sweep is over: no trial starts any more");
    pl_sweep_fail_status(sweep, pl_sweep_journal_closed(sweep->journal, &error), &error);
    pl_scheduler_close(sweep->scheduler);
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        stop_trial(sweep, (int)i, PL_SWEEP_WHY_SWEEP_TIME);
    }
}

/* Trials that take too long, or do not end although they were asked to. */
static void check_times(struct pl_sweep *sweep, int64_t *next_ns)
{
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        for (int slot = 0; slot < sweep->hosts[i].slots; slot++) {
            const int trial = sweep->hosts[i].trials[slot];
            struct pl_sweep_run *run = trial >= 0 ? &sweep->runs[trial] : NULL;
            int64_t due_ns;

            if (!run || run->state != PL_SWEEP_RUN_RUNS) {
                continue;
            }
            if (run->why == PL_SWEEP_WHY_NONE && pl_deadline_passed(run->limit_ns)) {
                stop_trial(sweep, trial, PL_SWEEP_WHY_TRIAL_TIME);
            }
            if (pl_deadline_passed(run->kill_ns)) {
                run->kill_ns = PL_DEADLINE_NEVER;
                pl_sweep_hosts_signal_trial(sweep, run->host, trial, SIGKILL);
            }
            due_ns = run->why == PL_SWEEP_WHY_NONE ? run->limit_ns : run->kill_ns;
            *next_ns = due_ns < *next_ns ? due_ns : *next_ns;
        }
    }
}

/* More trials have failed than may. */
static void fail(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;
    const char *reason = sweep->first_failed >= 0 ? sweep->records[sweep->first_failed].reason : NULL;
    size_t failed = 0;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        failed += pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED;
    }
    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "write trials.jsonl");
    }
    pl_sweep_fail(sweep, "%zu of %zu trials failed, more than max_failed (%.6g) allows; trial %d: %s", failed,
                  sweep->space->trials_count, sweep->space->max_failed, sweep->first_failed, reason ? reason : "");
}

/* All that ran has saved and ended. */
static void end_stopped(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->finishing = true;
    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "write trials.jsonl");
    }
    pl_log(PL_LOG_INFO, "the sweep was stopped; with the same checkpoints it goes on where it was");
    if (sweep->ended_badly) {
        pl_sweep_fail(sweep, "%s", sweep->ended_badly);
    }
    sweep->over = true;
}

/* Whether programs of trials run anywhere. */
static bool any_runs(const struct pl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        for (int slot = 0; slot < sweep->hosts[i].slots; slot++) {
            const int trial = sweep->hosts[i].trials[slot];

            if (trial >= 0 && sweep->runs[trial].state == PL_SWEEP_RUN_RUNS) {
                return true;
            }
        }
    }
    return false;
}

/* A folder has arrived, or will not: what waited for it goes on. */
static void take_move(struct pl_sweep *sweep, int64_t *next_ns)
{
    struct pl_sweep_move *move = &sweep->move;

    if (!move->is_over) {
        return;
    }
    move->is_over = false;
    if (move->folder == PL_SWEEP_MODEL) {
        pl_sweep_result_note_model(sweep, move->reason[0] != '\0' ? move->reason : NULL);
    } else if (move->reason[0] != '\0') {
        note_end(sweep, move->trial, false, move->reason);
    } else {
        start_trial(sweep, move->trial);
    }
    *next_ns = 0; /* there may be another */
}

/* The first trials start when all hosts have said how many they take; one that is slow is not waited for. */
static bool has_begun(struct pl_sweep *sweep, int64_t *next_ns)
{
    bool all = true;

    for (size_t i = 0; i < sweep->hosts_count; i++) {
        all = all && sweep->hosts[i].slots > 0;
    }
    if (all) {
        sweep->begin_ns = 0;
    }
    if (!pl_deadline_passed(sweep->begin_ns)) {
        *next_ns = sweep->begin_ns < *next_ns ? sweep->begin_ns : *next_ns;
        return false;
    }
    return true;
}

/* What is due of a sweep that is not stopped. */
static void go_on(struct pl_sweep *sweep, int64_t *next_ns)
{
    if (!sweep->closed && pl_deadline_passed(sweep->end_ns)) {
        close_sweep(sweep);
    }
    if (!sweep->closed && sweep->end_ns < *next_ns) {
        *next_ns = sweep->end_ns;
    }
    if (!sweep->failed && !sweep->finishing && pl_scheduler_has_failed(sweep->scheduler)) {
        sweep->finishing = true;
        fail(sweep);
    } else if (!sweep->failed && !sweep->finishing && sweep->running == 0 && pl_scheduler_is_done(sweep->scheduler)) {
        sweep->finishing = true;
        pl_sweep_result_begin(sweep);
    }
    if (!sweep->finishing && has_begun(sweep, next_ns)) {
        fill(sweep);
        begin_move(sweep);
    }
    check_times(sweep, next_ns);
}

static void handle_slots(void *context, int host, const struct pl_frame *frame)
{
    int64_t slots;

    if (pl_link_frame_number(frame, 1, 1, INT32_MAX, &slots, NULL) == PL_OK) {
        note_slots(context, host, (int)slots);
    }
}

static void handle_failed(void *context, int host, const struct pl_frame *frame)
{
    (void)host;
    pl_sweep_fail(context, "%s", frame->fields[1]);
}

static void handle_report(void *context, int host, const struct pl_frame *frame)
{
    int64_t trial, step;
    double value;

    (void)host;
    if (pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, NULL) == PL_OK &&
        pl_link_frame_number(frame, 2, INT64_MIN, INT64_MAX, &step, NULL) == PL_OK &&
        pl_text_number(frame->fields[3], &value) && isfinite(value)) {
        note_report(context, (int)trial, step, value);
    }
}

static void handle_ended(void *context, int host, const struct pl_frame *frame)
{
    int64_t trial, failed;

    (void)host;
    if (pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, NULL) == PL_OK &&
        pl_link_frame_number(frame, 2, 0, 1, &failed, NULL) == PL_OK) {
        note_end(context, (int)trial, failed == 0, frame->fields[3]);
    }
}

static const struct pl_sweep_message messages[] = {
    {"slots", 2, handle_slots}, {"failed", 2, handle_failed}, {"report", 4, handle_report}, {"ended", 4, handle_ended}};

/* The job is stopped: all trials get the signal, with the time that the job has. */
static void pass_stop(struct pl_sweep *sweep, int number)
{
    if (sweep->stop_number != 0) {
        return; /* they have it */
    }
    sweep->stop_number = number;
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        if (sweep->runs[i].state == PL_SWEEP_RUN_RUNS) {
            pl_sweep_hosts_signal_trial(sweep, sweep->runs[i].host, (int)i, number);
        }
    }
}

static void take_signals(struct pl_sweep *sweep)
{
    for (int number = pl_signals_next(sweep->signals); number != 0; number = pl_signals_next(sweep->signals)) {
        if (number == SIGTERM || number == SIGINT) {
            pass_stop(sweep, number);
        }
    }
    pl_sweep_hosts_reap(sweep);
}

/* What is due now; `*next_ns` becomes earlier where more is due before it. */
static void tick(struct pl_sweep *sweep, int64_t *next_ns)
{
    take_signals(sweep);
    take_move(sweep, next_ns);
    if (sweep->stop_number == 0) {
        go_on(sweep, next_ns);
        pl_sweep_hosts_check(sweep, next_ns);
    } else if (!sweep->finishing && !any_runs(sweep)) {
        end_stopped(sweep);
    }
    sweep->over = sweep->over || (sweep->failed && sweep->stop_number == 0);
}

static enum pl_status open_sweep(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_TRY(pl_sweep_space_of_job(sweep->job, &sweep->space, reterr));
    PL_TRY(sweep->space ? PL_OK : pl_error_set(reterr, PL_INVALID, "this job asks for no sweep"));
    sweep->hosts_count = sweep->job->hosts.count;
    sweep->hosts = pl_memory_new(sweep->hosts_count, sizeof(*sweep->hosts), reterr);
    sweep->records = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->records), reterr);
    sweep->runs = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->runs), reterr);
    PL_TRY(sweep->hosts && sweep->records && sweep->runs ? PL_OK : PL_MEMORY);
    PL_TRY(open_journal(sweep, reterr));
    return pl_sweep_hosts_open(sweep, reterr);
}

static void close_sweep_at_end(struct pl_sweep *sweep)
{
    pl_sweep_move_done(sweep);
    pl_sweep_hosts_close(sweep);
    for (size_t i = 0; sweep->records && i < sweep->space->trials_count; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    if (sweep->journal) {
        pl_sweep_journal_close(sweep->journal);
    }
    pl_scheduler_free(sweep->scheduler);
    free(sweep->ended_badly);
    free(sweep->records);
    free(sweep->runs);
    free(sweep->hosts);
    pl_sweep_space_free(sweep->space);
    pl_sshd_close(&sweep->sshd);
}

int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals)
{
    struct pl_sweep sweep = {.job = job, .signals = signals, .sshd = PL_SSHD_NONE, .first_failed = -1};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = open_sweep(&sweep, &error);
    int code = EXIT_SUCCESS;

    while (status == PL_OK && !sweep.over) {
        int64_t next_ns = PL_DEADLINE_NEVER;

        tick(&sweep, &next_ns);
        status = sweep.over ? PL_OK : pl_sweep_hosts_poll(&sweep, messages, PL_ARRAY_ITEMS(messages), next_ns, &error);
    }
    pl_sweep_fail_status(&sweep, status, &error);
    if (sweep.failed) {
        pl_log(PL_LOG_ERROR, "%s", sweep.reason); /* the last line is what the failure file begins with */
        code = sweep.stop_number != 0 ? SIGNAL_EXIT + sweep.stop_number : EXIT_FAILURE;
    }
    close_sweep_at_end(&sweep);
    return code;
}
