/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of a sweep: its events, its times, and how it ends. */
#include "programs/sweep/state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "programs/sweep/identity.h"
#include "programs/sweep/job_sweep.h"
#include "programs/sweep/results.h"
#include "programs/sweep/trial_folder.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the first trials wait for all hosts. */
#define BEGIN_NS (10 * PL_NS_PER_S)

/* How long the receiver of a move may take to remove what it has received. */
#define ABORT_NS (PL_NS_PER_S)

enum { SIGNAL_EXIT = 128 };

/* Opens the journal. If an earlier run of this job has left one, the sweep continues from it. */
static enum pl_status open_journal(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const struct pl_job *job = sweep->job;
    const int64_t time_ns = job->settings.sweep_time_ns;
    const char *name = job->job_name ? job->job_name : job->sagemaker_job_name ? job->sagemaker_job_name : "";
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, fresh = PL_TEXT_NONE;
    struct pl_sweep_asked asked = {.fresh = NULL};
    size_t over = 0, never = 0;

    pl_trial_folder_root(job, &path);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_file_make_dirs(pl_text_string(&path), 0755, reterr));
    pl_text_append(&path, "/sweep.journal");
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_scheduler_new(sweep->space, &sweep->scheduler, reterr));
    PL_TRY(pl_sweep_identity_new(job, sweep->space, &identity, reterr));
    pl_text_printf(&fresh, "%lld %s", (long long)job->settings.sweep_fresh, name);
    PL_TRY(pl_text_check(&fresh, reterr));
    asked.identity = identity;
    asked.fresh = job->settings.sweep_fresh != 0 ? pl_text_string(&fresh) : NULL;
    asked.limit_s = time_ns > 0 ? (double)time_ns / (double)PL_NS_PER_S : (double)INFINITY;
    PL_TRY(pl_sweep_journal_open(pl_text_string(&path), sweep->space, &asked, sweep->scheduler, sweep->records,
                                 &sweep->journal, reterr));
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        over += pl_sweep_trials_is_over(sweep, i);
        never += pl_sweep_trials_is_over(sweep, i) && pl_scheduler_progress(sweep->scheduler, i)->runs == 0;
        if (pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED && sweep->first_failed < 0) {
            sweep->first_failed = (int)i;
        }
    }
    pl_log(PL_LOG_INFO, "sweep: %zu trials on %zu host%s%s%s", sweep->space->trials_count, sweep->hosts_count,
           sweep->hosts_count == 1 ? "" : "s", over > 0 ? "; continues with the journal " : "",
           over > 0 ? pl_text_string(&path) : "");
    sweep->closed = pl_scheduler_is_closed(sweep->scheduler);
    if (sweep->closed && never > 0) {
        pl_log(PL_LOG_WARNING,
               "the sweep's time was over in an earlier job: %zu trial%s that ha%s not run do%s not start. They start "
               "with a larger paceline_sweep_time_s than the one that was reached, with 0 for no limit, or with added "
               "trials; paceline_sweep_fresh=%lld starts a new sweep",
               never, never == 1 ? "" : "s", never == 1 ? "s" : "ve", never == 1 ? "es" : "",
               (long long)job->settings.sweep_fresh + 1);
    }
    sweep->begin_ns = pl_deadline_after_ns(BEGIN_NS);
    sweep->end_ns = time_ns > 0 ? pl_deadline_after_ns(time_ns) : PL_DEADLINE_NEVER;
    return PL_OK;
}

/* Ends the sweep because its time is over: running trials are stopped, and the best result so far counts. */
static void close_sweep(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->closed = true;
    pl_log(PL_LOG_INFO, "the sweep's time is over: no more trials start");
    pl_sweep_fail_status(sweep,
                         pl_sweep_journal_closed(
                             sweep->journal, (double)sweep->job->settings.sweep_time_ns / (double)PL_NS_PER_S, &error),
                         &error);
    pl_scheduler_close(sweep->scheduler);
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        pl_sweep_trials_stop(sweep, (int)i, PL_SWEEP_WHY_SWEEP_TIME);
    }
}

/* Stops trials that take too long, and kills those that did not end after they were asked to. */
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
                pl_sweep_trials_stop(sweep, trial, PL_SWEEP_WHY_TRIAL_TIME);
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

/* Stops all trials because the disk is full; they continue when the job is started again. Afterwards the results so far
 * are written: disk space is reserved for them. */
static void stop_for_disk(struct pl_sweep *sweep)
{
    sweep->full = sweep->full_handled = true;
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        if (sweep->runs[i].state == PL_SWEEP_RUN_MOVES) {
            pl_scheduler_note_end(sweep->scheduler, i, PL_SWEEP_END_LOST);
            pl_sweep_trials_free_slot(sweep, (int)i);
        }
        pl_sweep_trials_stop(sweep, (int)i, PL_SWEEP_WHY_DISK);
    }
    pl_sweep_move_done(sweep);
}

static void fail_for_disk(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;

    pl_sweep_room_describe(sweep, &words);
    pl_sweep_fail(sweep, "%s. The sweep continues when the job is started again with more disk space",
                  words.length > 0 ? pl_text_string(&words) : "the disk of the checkpoints is full");
    stop_for_disk(sweep);
}

/* Writes the results so far after a full disk: also the best model, if its trial is over. */
static void end_full(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;
    size_t best;

    sweep->finishing = true;
    if (pl_sweep_results_best(sweep->space, sweep->scheduler, &best) && pl_sweep_trials_is_over(sweep, best)) {
        pl_sweep_result_begin(sweep);
        return;
    }
    pl_file_close_at(&sweep->room.result_fd);
    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "writing trials.jsonl");
    }
    sweep->over = true;
}

/* Fails the sweep because more trials have failed than max_failed allows. */
static void fail(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text disk = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    const char *reason = sweep->first_failed >= 0 ? sweep->records[sweep->first_failed].reason : NULL;
    size_t failed = 0;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        failed += pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_FAILED;
    }
    pl_sweep_room_describe(sweep, &disk);
    pl_sweep_fail(sweep, "%zu of %zu trials failed, more than max_failed (%.6g) allows; trial %d: %s%s%s", failed,
                  sweep->space->trials_count, sweep->space->max_failed, sweep->first_failed, reason ? reason : "",
                  disk.length > 0 ? "; " : "", pl_text_string(&disk));
    if (disk.length > 0) {
        stop_for_disk(sweep);
        return;
    }
    sweep->finishing = true;
    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "writing trials.jsonl");
    }
}

/* Ends a stopped sweep after all running trials have saved and ended. */
static void end_stopped(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->finishing = true;
    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "writing trials.jsonl");
    }
    pl_log(PL_LOG_INFO, "the sweep was stopped; a job with the same checkpoints continues it");
    if (sweep->failure_in_stop) {
        pl_sweep_fail(sweep, "%s", sweep->failure_in_stop);
    }
    sweep->over = true;
}

/* Whether a trial's program runs on any host. */
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

/* Handles the end of a move, successful or not: continues with the trial or the result that waited for the folder. */
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
        pl_sweep_trials_note_end(sweep, move->trial, false, move->reason);
    } else if (move->folder == PL_SWEEP_CHECKPOINTS && sweep->space->model) {
        pl_sweep_move_begin(sweep, move->trial, PL_SWEEP_OWN_MODEL, move->from, move->to);
    } else {
        pl_sweep_trials_start(sweep, move->trial);
    }
    *next_ns = 0; /* another move may be waiting */
}

/* Whether trials may start: when all hosts have sent their numbers of slots, or at `begin_ns`, so that a slow host
 * delays no others. */
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

/* Does what is due in a sweep that is not being stopped. */
static void go_on(struct pl_sweep *sweep, int64_t *next_ns)
{
    if (!sweep->closed && pl_deadline_passed(sweep->end_ns)) {
        close_sweep(sweep);
    }
    if (!sweep->closed && sweep->end_ns < *next_ns) {
        *next_ns = sweep->end_ns;
    }
    if (sweep->full && !sweep->full_handled) {
        fail_for_disk(sweep);
    }
    if (!sweep->failed && !sweep->finishing && pl_scheduler_has_failed(sweep->scheduler)) {
        fail(sweep);
    } else if (sweep->full_handled && !sweep->finishing && sweep->running == 0) {
        end_full(sweep);
    } else if (!sweep->failed && !sweep->finishing && sweep->running == 0 && pl_scheduler_is_done(sweep->scheduler)) {
        sweep->finishing = true;
        pl_sweep_result_begin(sweep);
    }
    if (!sweep->finishing && has_begun(sweep, next_ns)) {
        pl_sweep_trials_fill(sweep);
        pl_sweep_trials_begin_move(sweep);
    }
    check_times(sweep, next_ns);
}

static void handle_slots(void *context, int host, const struct pl_frame *frame)
{
    int64_t slots;

    if (pl_link_frame_number(frame, 1, 1, INT32_MAX, &slots, NULL) == PL_OK) {
        pl_sweep_trials_note_slots(context, host, (int)slots);
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
        pl_text_number(frame->fields[3], &value)) {
        pl_sweep_trials_note_report(context, (int)trial, step, value);
    }
}

/* Keeps the reason in `frame` why a running trial has printed no value, or why no value can be found any more. Returns
 * the run, or NULL if the trial does not run. */
static struct pl_sweep_run *note_words(struct pl_sweep *sweep, const struct pl_frame *frame, int *ret_trial)
{
    struct pl_sweep_run *run = NULL;
    int64_t trial;

    if (pl_link_frame_number(frame, 1, 0, (int64_t)sweep->space->trials_count - 1, &trial, NULL) == PL_OK &&
        sweep->runs[trial].state == PL_SWEEP_RUN_RUNS) {
        run = &sweep->runs[trial];
        snprintf(run->words, sizeof(run->words), "%s", frame->fields[2]);
        *ret_trial = (int)trial;
    }
    return run;
}

static void handle_unseen(void *context, int host, const struct pl_frame *frame)
{
    int trial;

    (void)host;
    note_words(context, frame, &trial);
}

static void handle_unread(void *context, int host, const struct pl_frame *frame)
{
    struct pl_sweep_run *run;
    int trial;

    (void)host;
    run = note_words(context, frame, &trial);
    if (run) {
        pl_sweep_trials_stop(context, trial, PL_SWEEP_WHY_UNREAD);
        run->why = PL_SWEEP_WHY_UNREAD;
    }
}

static void handle_ended(void *context, int host, const struct pl_frame *frame)
{
    struct pl_sweep *sweep = context;
    int64_t trial, failed;

    (void)host;
    if (pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, NULL) == PL_OK &&
        pl_link_frame_number(frame, 2, 0, 1, &failed, NULL) == PL_OK && (size_t)trial < sweep->space->trials_count) {
        sweep->runs[trial].has_model = strcmp(frame->fields[3], "1") == 0;
        pl_sweep_trials_note_end(sweep, (int)trial, failed == 0, frame->fields[4]);
    }
}

static const struct pl_sweep_message messages[] = {{"slots", 2, handle_slots},   {"failed", 2, handle_failed},
                                                   {"report", 4, handle_report}, {"unseen", 3, handle_unseen},
                                                   {"unread", 3, handle_unread}, {"ended", 5, handle_ended}};

/* Passes the stop of the job to all running trials. */
static void pass_stop(struct pl_sweep *sweep, int number)
{
    if (sweep->stop_number != 0) {
        return; /* the trials have the signal already */
    }
    sweep->stop_number = number;
    sweep->move_end_ns = pl_deadline_after_ns((int64_t)(pl_sweep_stop_s(sweep->job) * (double)PL_NS_PER_S));
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

/* Waits for the best model after a stop of the job: its move may finish while the job has time. */
static void await_model(struct pl_sweep *sweep, int64_t *next_ns)
{
    if (pl_deadline_passed(sweep->move_end_ns)) {
        pl_sweep_move_abort(sweep, sweep->move.is_aborted);
        sweep->move_end_ns = pl_deadline_after_ns(ABORT_NS);
    }
    if (sweep->move_end_ns < *next_ns) {
        *next_ns = sweep->move_end_ns;
    }
    take_move(sweep, next_ns);
}

/* Does what is due now. Lowers `*next_ns` to the time when something is due next. */
static void tick(struct pl_sweep *sweep, int64_t *next_ns)
{
    take_signals(sweep);
    take_move(sweep, next_ns);
    if (sweep->stop_number == 0) {
        go_on(sweep, next_ns);
        pl_sweep_hosts_check(sweep, next_ns);
    } else if (!sweep->finishing && !any_runs(sweep)) {
        end_stopped(sweep);
    } else if (sweep->finishing && sweep->move.is_on) {
        await_model(sweep, next_ns);
    }
    sweep->over = sweep->over || (sweep->failed && sweep->stop_number == 0 && !sweep->full);
}

static enum pl_status open_sweep(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_TRY(pl_sweep_space_of_job(sweep->job, &sweep->space, reterr));
    PL_TRY(sweep->space ? PL_OK : pl_error_set(reterr, PL_INVALID, "this job has no sweep"));
    sweep->hosts_count = sweep->job->hosts.count;
    sweep->hosts = pl_memory_new(sweep->hosts_count, sizeof(*sweep->hosts), reterr);
    sweep->records = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->records), reterr);
    sweep->runs = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->runs), reterr);
    PL_TRY(sweep->hosts && sweep->records && sweep->runs ? PL_OK : PL_MEMORY);
    PL_TRY(open_journal(sweep, reterr));
    pl_sweep_room_open(sweep);
    PL_TRY(pl_sweep_hosts_open(sweep, reterr));
    pl_sweep_trials_forget_beaten(sweep); /* removals that an earlier run did not finish */
    return PL_OK;
}

static void close_sweep_at_end(struct pl_sweep *sweep)
{
    pl_sweep_move_done(sweep);
    pl_sweep_hosts_close(sweep);
    pl_sweep_room_close(sweep);
    for (size_t i = 0; sweep->records && i < sweep->space->trials_count; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    if (sweep->journal) {
        pl_sweep_journal_close(sweep->journal);
    }
    pl_scheduler_free(sweep->scheduler);
    free(sweep->failure_in_stop);
    free(sweep->records);
    free(sweep->runs);
    free(sweep->hosts);
    pl_sweep_space_free(sweep->space);
    pl_sshd_close(&sweep->sshd);
}

int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals)
{
    struct pl_sweep sweep = {
        .job = job, .signals = signals, .sshd = PL_SSHD_NONE, .first_failed = -1, .room = {-1, -1}};
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
        pl_log(PL_LOG_ERROR, "%s", sweep.reason); /* the failure file begins with the last line of the log */
        code = sweep.stop_number != 0 ? SIGNAL_EXIT + sweep.stop_number : EXIT_FAILURE;
    }
    close_sweep_at_end(&sweep);
    return code;
}
