/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a sweep, its times, and how it ends. */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* If a host is lost, process 1 reports it first: it has its own link to every host. If a trial's connection stays lost
 * for this much longer, only the connection is lost. */
#define LOST_SPARE_NS (15 * PL_NS_PER_S)

#define END_NS (10 * PL_NS_PER_S) /* how long trials that are killed and removals may take at the end */

enum { SIGNAL_EXIT = 128, NO_CONNECTION = 255 /* ssh's exit code */ };

static const char *host_of(const struct pl_sweep *sweep, size_t trial)
{
    return sweep->job->hosts.items[trial % sweep->hosts_count];
}

static void lower(int64_t *next_ns, int64_t due_ns)
{
    *next_ns = due_ns < *next_ns ? due_ns : *next_ns;
}

static void signal_trial(struct pl_sweep_run *run, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    if (PL_LINK_SEND(&run->link, PL_FRAME_SIGNAL, NULL, text) != PL_OK) {
        pl_link_close(&run->link);
    }
}

/* Asks a trial to end; it gets as much time as in a job that is stopped. */
static void stop_trial(struct pl_sweep *sweep, struct pl_sweep_run *run, enum pl_sweep_why why)
{
    if (run && run->why == PL_SWEEP_WHY_NONE) {
        run->why = why;
        run->due_ns = pl_deadline_after_ns(sweep->job->settings.stop_ns);
        signal_trial(run, SIGTERM);
    }
}

static void stop_all(struct pl_sweep *sweep, enum pl_sweep_why why)
{
    for (size_t i = 0; i < sweep->slots_count; i++) {
        stop_trial(sweep, sweep->in_slot[i], why);
    }
}

static void start_trial(struct pl_sweep *sweep, size_t trial, size_t slot)
{
    const double time_s = sweep->space->trial_time_s;
    struct pl_sweep_run *run = &sweep->runs[trial];
    PL_AUTO_TEXT struct pl_text values = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    run->begun_ns = pl_clock_now_ns();
    run->due_ns = time_s > 0 ? pl_deadline_after_ns((int64_t)(time_s * (double)PL_NS_PER_S)) : PL_DEADLINE_NEVER;
    run->why = PL_SWEEP_WHY_NONE;
    run->answered = run->failed = run->has_value = false;
    if (pl_sweep_hosts_start(sweep, trial, slot, &error) != PL_OK) {
        pl_sweep_fail(sweep, "cannot start trial %zu: %s", trial, error.cause);
        return;
    }
    pl_sweep_space_print(sweep->space, trial, &values);
    pl_log(PL_LOG_INFO, "trial %zu runs on host %s, slot %zu: %s", trial, host_of(sweep, trial),
           slot % (size_t)sweep->slots.count, pl_text_string(&values));
}

/* Starts trials in free slots. Each host runs its own, in order: trial i is on host i modulo the number of hosts. */
static void fill_slots(struct pl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->slots_count && !sweep->failed; i++) {
        size_t *next = &sweep->next[i / (size_t)sweep->slots.count];

        while (*next < sweep->space->trials_count &&
               (sweep->runs[*next].runs || pl_sweep_is_over(&sweep->runs[*next]))) {
            *next += sweep->hosts_count;
        }
        if (!sweep->in_slot[i] && *next < sweep->space->trials_count) {
            start_trial(sweep, *next, i);
        }
    }
}

static void log_end(const struct pl_sweep *sweep, size_t trial)
{
    const struct pl_sweep_run *run = &sweep->runs[trial];
    const bool completed = run->state == PL_SWEEP_COMPLETED;
    PL_AUTO_TEXT struct pl_text value = PL_TEXT_NONE;

    if (run->state == PL_SWEEP_FAILED) {
        pl_log(PL_LOG_WARNING, "trial %zu has failed after %.1f s: %s", trial, run->seconds,
               pl_text_string(&run->reason));
        return;
    }
    if (run->has_value) {
        pl_text_printf(&value, "%s %.6g", sweep->space->metric_name, run->value);
    } else {
        pl_text_printf(&value, "it has not printed the metric %s", sweep->space->metric_name);
    }
    pl_log(PL_LOG_INFO, "trial %zu %s after %.1f s; %s%s", trial, completed ? "has succeeded" : "was stopped",
           run->seconds, pl_text_string(&value),
           completed && sweep->space->model && !run->has_model ? "; it has left no model" : "");
}

/* Whether the metric was never seen: then other trials would print no value either. A trial that was started again with
 * nothing left to do may print none. */
static bool is_unseen(const struct pl_sweep *sweep, const struct pl_sweep_run *run)
{
    bool any = run->has_value || !run->fresh;

    for (size_t i = 0; i < sweep->space->trials_count && !any; i++) {
        any = pl_sweep_is_over(&sweep->runs[i]) && sweep->runs[i].has_value;
    }
    return !any;
}

/* If the disk is full, stops all trials; they continue when the job is started again. */
static bool stop_for_disk(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;

    pl_sweep_record_full(sweep, &words);
    if (words.length == 0 && !sweep->full) {
        return false;
    }
    sweep->full = true;
    pl_sweep_fail(sweep, "%s. The sweep continues when the job is started again with more disk space",
                  words.length > 0 ? words.data : "the disk of the checkpoints is full");
    stop_all(sweep, PL_SWEEP_WHY_DISK);
    return true;
}

static enum pl_sweep_state fail_trial(struct pl_sweep_run *run, int code, const char *format, ...) PL_PRINTF(3, 4);
static enum pl_sweep_state fail_trial(struct pl_sweep_run *run, int code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    pl_text_clear(&run->reason);
    pl_text_vprintf(&run->reason, format, arguments);
    va_end(arguments);
    run->code = code != 0 ? code : EXIT_FAILURE;
    return PL_SWEEP_FAILED;
}

/* Decides what the end of a run means: the trial stays waiting if it is to run again. */
static enum pl_sweep_state state_after(struct pl_sweep *sweep, size_t trial)
{
    struct pl_sweep_run *run = &sweep->runs[trial];

    if (run->why == PL_SWEEP_WHY_DISK || sweep->stop_number != 0 ||
        (!run->answered && run->exit_code == NO_CONNECTION && trial % sweep->hosts_count > 0)) {
        return PL_SWEEP_WAITING;
    }
    if (run->why == PL_SWEEP_WHY_TRIAL_TIME) {
        return fail_trial(run, run->code, "it ran longer than trial_time_s (%.6g s)", sweep->space->trial_time_s);
    }
    if (run->why == PL_SWEEP_WHY_SWEEP_TIME) {
        return PL_SWEEP_STOPPED;
    }
    if (!run->answered) {
        return fail_trial(run, run->exit_code,
                          "its `paceline trial` on host %s ended with code %d, and the trial with it",
                          host_of(sweep, trial), run->exit_code);
    }
    if (run->failed) {
        run->code = run->code != 0 ? run->code : EXIT_FAILURE;
        return stop_for_disk(sweep) ? PL_SWEEP_WAITING : PL_SWEEP_FAILED;
    }
    if (is_unseen(sweep, run)) {
        pl_sweep_fail(sweep,
                      "trial %zu succeeded, but the regular expression '%.300s' has found the metric '%s' in none of "
                      "its lines",
                      trial, sweep->space->metric_regex, sweep->space->metric_name);
        return PL_SWEEP_WAITING;
    }
    return PL_SWEEP_COMPLETED;
}

/* Whether more trials have failed than max_failed allows; with 0 the first one is too many. */
static void check_failed(struct pl_sweep *sweep)
{
    size_t failed = 0;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        failed += sweep->runs[i].state == PL_SWEEP_FAILED;
    }
    if ((double)failed / (double)sweep->space->trials_count > sweep->space->max_failed) {
        pl_sweep_fail(sweep, "%zu of %zu trials failed, more than max_failed (%.6g) allows; trial %d: %s", failed,
                      sweep->space->trials_count, sweep->space->max_failed, sweep->first_failed,
                      pl_text_string(&sweep->runs[sweep->first_failed].reason));
    }
}

/* Handles the end of a run whose trial is to run again. */
static void end_waiting(struct pl_sweep *sweep, size_t trial)
{
    struct pl_sweep_run *run = &sweep->runs[trial];

    if (sweep->stop_number != 0 && run->failed) {
        pl_sweep_fail(sweep, "trial %zu: %s", trial, run->reason.length > 0 ? run->reason.data : "it failed");
    } else if (sweep->stop_number == 0 && !run->answered && !sweep->full && sweep->lost_ns == 0) {
        sweep->lost_ns = pl_deadline_after_ns(sweep->job->settings.silence_ns + LOST_SPARE_NS);
    }
    pl_text_clear(&run->reason);
    run->has_value = false;
}

static void end_trial(struct pl_sweep *sweep, size_t slot)
{
    struct pl_sweep_run *run = sweep->in_slot[slot];
    const size_t trial = (size_t)(run - sweep->runs);

    run->state = state_after(sweep, trial);
    run->runs = false;
    sweep->in_slot[slot] = NULL;
    sweep->running--;
    if (!pl_sweep_is_over(run)) {
        end_waiting(sweep, trial);
        return;
    }
    run->seconds = (double)(pl_clock_now_ns() - run->begun_ns) / (double)PL_NS_PER_S;
    if (run->state == PL_SWEEP_FAILED && sweep->first_failed < 0) {
        sweep->first_failed = (int)trial;
    }
    log_end(sweep, trial);
    pl_sweep_record_write(sweep);
    if (sweep->full && !sweep->failed) {
        stop_for_disk(sweep);
    }
    check_failed(sweep);
    sweep->untidy = true;
}

static void take_result(struct pl_sweep *sweep, struct pl_sweep_run *run, const struct pl_frame *frame)
{
    int64_t code;

    if (frame->type != PL_FRAME_MESSAGE || frame->count != 7 ||
        pl_link_frame_number(frame, 2, 0, 255, &code, NULL) != PL_OK) {
        return; /* a shim's frame for process 1 */
    }
    run->answered = true;
    run->failed = strcmp(frame->fields[1], "completed") != 0;
    run->code = (int)code;
    run->has_value = pl_text_number(frame->fields[3], &run->value);
    run->fresh = strcmp(frame->fields[4], "1") == 0;
    run->has_model = strcmp(frame->fields[5], "1") == 0;
    pl_text_clear(&run->reason);
    pl_text_append(&run->reason, frame->fields[6]);
    if (strcmp(frame->fields[1], "wrong") == 0) {
        pl_sweep_fail(sweep, "%s", frame->fields[6]);
    }
}

static void read_trial(struct pl_sweep *sweep, struct pl_sweep_run *run)
{
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&run->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(&run->link, &frame, NULL);
        if (status == PL_OK) {
            take_result(sweep, run, &frame);
        }
    }
    if (status != PL_END) {
        pl_link_close(&run->link);
    }
}

/* Notes the processes that have ended. */
static void reap(struct pl_sweep *sweep)
{
    bool signalled;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int code = pl_process_status_code(status, &signalled);

        code += signalled ? SIGNAL_EXIT : 0;
        if (pid == sweep->placing) {
            pl_sweep_result_note_end(sweep, code);
        }
        for (size_t i = 0; i < sweep->hosts_count; i++) {
            sweep->removing[i] = sweep->removing[i] == pid ? 0 : sweep->removing[i];
        }
        for (size_t i = 0; i < sweep->slots_count; i++) {
            struct pl_sweep_run *run = sweep->in_slot[i];

            if (run && run->pid == pid) {
                run->pid = 0;
                run->exit_code = code;
            }
        }
    }
}

/* SIGCHLD is read before the ends are noted: otherwise one could be missed. */
static void take_signals(struct pl_sweep *sweep)
{
    for (int number = pl_signals_next(sweep->signals); number != 0; number = pl_signals_next(sweep->signals)) {
        if ((number != SIGTERM && number != SIGINT) || sweep->stop_number != 0) {
            continue;
        }
        sweep->stop_number = number;
        sweep->stop_ns = pl_deadline_after_ns(sweep->job->settings.stop_ns / 2);
        for (size_t i = 0; i < sweep->slots_count; i++) {
            if (sweep->in_slot[i]) {
                signal_trial(sweep->in_slot[i], number);
            }
        }
    }
    reap(sweep);
}

/* Stops trials that take too long. */
static void check_times(struct pl_sweep *sweep, int64_t *next_ns)
{
    for (size_t i = 0; i < sweep->slots_count; i++) {
        struct pl_sweep_run *run = sweep->in_slot[i];

        if (run && pl_deadline_passed(run->due_ns) && run->why != PL_SWEEP_WHY_NONE) {
            run->due_ns = PL_DEADLINE_NEVER;
            signal_trial(run, SIGKILL);
        } else if (run && pl_deadline_passed(run->due_ns)) {
            stop_trial(sweep, run, PL_SWEEP_WHY_TRIAL_TIME);
        }
        lower(next_ns, run ? run->due_ns : PL_DEADLINE_NEVER);
    }
    if (sweep->closed_s == 0 && pl_deadline_passed(sweep->end_ns)) {
        pl_log(PL_LOG_INFO, "the sweep's time is over: no more trials start");
        sweep->closed_s = (double)sweep->job->settings.sweep_time_ns / (double)PL_NS_PER_S;
        stop_all(sweep, PL_SWEEP_WHY_SWEEP_TIME);
        pl_sweep_record_write(sweep);
    }
    lower(next_ns, sweep->closed_s == 0 ? sweep->end_ns : PL_DEADLINE_NEVER);
    if (sweep->lost_ns != 0 && pl_deadline_passed(sweep->lost_ns)) {
        pl_sweep_fail(sweep, "the connection to a trial on another host ended: see whether its ssh was killed");
    }
    lower(next_ns, sweep->lost_ns != 0 ? sweep->lost_ns : PL_DEADLINE_NEVER);
    if (sweep->placing > 0 && sweep->stop_number != 0) {
        if (pl_deadline_passed(sweep->stop_ns)) {
            kill(-sweep->placing, SIGKILL);
            sweep->stop_ns = PL_DEADLINE_NEVER;
        }
        lower(next_ns, sweep->stop_ns);
    }
}

static size_t count_over(const struct pl_sweep *sweep)
{
    size_t over = 0;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        over += pl_sweep_is_over(&sweep->runs[i]);
    }
    return over;
}

/* Begins the end when nothing runs and nothing is to run. */
static void check_end(struct pl_sweep *sweep)
{
    if (sweep->running > 0 || sweep->finishing) {
        return;
    }
    if (sweep->stop_number != 0) {
        pl_log(PL_LOG_INFO, "the sweep was stopped; a job with the same checkpoints continues it");
        sweep->finishing = sweep->over = true;
    } else if (sweep->full ||
               (sweep->lost_ns == 0 && (sweep->closed_s > 0 || count_over(sweep) == sweep->space->trials_count))) {
        sweep->finishing = sweep->untidy = true;
        pl_sweep_result_begin(sweep);
    }
}

/* Does what is due now. Lowers `*next_ns` to the time when something is due next. */
static void tick(struct pl_sweep *sweep, int64_t *next_ns)
{
    take_signals(sweep);
    for (size_t i = 0; i < sweep->slots_count; i++) {
        const struct pl_sweep_run *run = sweep->in_slot[i];

        if (run && run->pid == 0 && run->link.fd < 0) {
            end_trial(sweep, i);
        }
    }
    if (sweep->failed && !sweep->full && sweep->stop_number == 0) {
        sweep->over = true;
        return;
    }
    check_times(sweep, next_ns);
    check_end(sweep);
    if (sweep->stop_number == 0 && sweep->closed_s == 0 && sweep->lost_ns == 0 && !sweep->finishing && !sweep->full) {
        fill_slots(sweep);
    }
    pl_sweep_result_tidy(sweep);
}

static enum pl_status await_events(struct pl_sweep *sweep, int64_t deadline_ns, struct pl_error *reterr)
{
    const size_t slots = sweep->slots_count;
    PL_AUTO_FREE struct pollfd *waits = pl_memory_new(slots + 1, sizeof(*waits), reterr);

    PL_TRY(waits ? PL_OK : PL_MEMORY);
    waits[slots] = (struct pollfd){.fd = sweep->signals->fd, .events = POLLIN};
    for (size_t i = 0; i < slots; i++) {
        const struct pl_sweep_run *run = sweep->in_slot[i];

        waits[i] = (struct pollfd){.fd = run ? run->link.fd : -1, .events = run ? run->link.events : (short)0};
    }
    if (poll(waits, (nfds_t)slots + 1, pl_deadline_poll_ms(deadline_ns)) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "wait for trials");
    }
    for (size_t i = 0; i < slots; i++) {
        if (waits[i].revents != 0) {
            pl_link_flush(&sweep->in_slot[i]->link);
            read_trial(sweep, sweep->in_slot[i]);
        }
    }
    return PL_OK;
}

static void begin_times(struct pl_sweep *sweep)
{
    const int64_t time_ns = sweep->job->settings.sweep_time_ns;
    const size_t over = count_over(sweep);

    pl_log(PL_LOG_INFO, "sweep: %zu trials on %zu host%s%s%s%s", sweep->space->trials_count, sweep->hosts_count,
           sweep->hosts_count == 1 ? "" : "s", over > 0 ? "; continues with " : "", over > 0 ? sweep->folder : "",
           over > 0 ? "/trials.jsonl" : "");
    sweep->untidy = over > 0; /* removals that an earlier run did not finish */
    sweep->end_ns = time_ns > 0 ? pl_deadline_after_ns(time_ns) : PL_DEADLINE_NEVER;
    if (time_ns == 0 || (double)time_ns / (double)PL_NS_PER_S > sweep->closed_s) {
        sweep->closed_s = 0;
    }
    if (sweep->closed_s > 0 && over < sweep->space->trials_count) {
        pl_log(PL_LOG_WARNING,
               "the sweep's time was over in an earlier job: %zu trials that have not run do not start. They start "
               "with a larger paceline_sweep_time_s than the one that was reached, with 0 for no limit, or with added "
               "trials; paceline_sweep_fresh=%lld starts a new sweep",
               sweep->space->trials_count - over, (long long)sweep->job->settings.sweep_fresh + 1);
    }
}

static enum pl_status open_sweep(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_TRY(pl_sweep_space_of_job(sweep->job, &sweep->space, reterr));
    PL_TRY(pl_slots_of_job(sweep->job, sweep->space, &sweep->slots, reterr));
    sweep->hosts_count = sweep->job->hosts.count;
    PL_TRY(pl_memory_alloc(&sweep->runs, sweep->space->trials_count, sizeof(*sweep->runs), reterr));
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        sweep->runs[i].link = PL_LINK_NONE;
    }
    PL_TRY(pl_sweep_hosts_open(sweep, reterr));
    PL_TRY(pl_sweep_record_open(sweep, reterr));
    begin_times(sweep);
    check_failed(sweep);
    return PL_OK;
}

static bool any_process(const struct pl_sweep *sweep)
{
    bool found = false;

    for (size_t i = 0; i < sweep->slots_count; i++) {
        const struct pl_sweep_run *run = sweep->in_slot[i];

        found = found || (run && run->pid > 0) || sweep->removing[i / (size_t)sweep->slots.count] > 0;
    }
    return found;
}

/* Ends all trials, and waits for the processes that remove files. */
static void end_processes(struct pl_sweep *sweep)
{
    const int64_t deadline_ns = pl_deadline_after_ns(END_NS);

    for (size_t i = 0; i < sweep->slots_count; i++) {
        if (sweep->in_slot[i]) {
            pl_link_close(&sweep->in_slot[i]->link); /* kills the trial */
        }
    }
    while (any_process(sweep) && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = sweep->signals->fd, .events = POLLIN};

        poll(&wait, 1, pl_deadline_poll_ms(deadline_ns));
        while (pl_signals_next(sweep->signals) != 0) {
        }
        reap(sweep);
    }
}

static void close_sweep(struct pl_sweep *sweep)
{
    end_processes(sweep);
    for (size_t i = 0; sweep->runs && i < sweep->space->trials_count; i++) {
        pl_link_close(&sweep->runs[i].link);
        pl_text_done(&sweep->runs[i].reason);
    }
    pl_file_close_at(&sweep->lock_fd);
    pl_file_close_at(&sweep->room_fd);
    free(sweep->trial_program);
    free(sweep->in_slot);
    free(sweep->removing);
    free(sweep->folder);
    free(sweep->fresh);
    free(sweep->next);
    free(sweep->runs);
    pl_sweep_space_free(sweep->space);
    pl_sshd_close(&sweep->sshd);
}

int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals)
{
    struct pl_sweep sweep = {
        .job = job, .signals = signals, .sshd = PL_SSHD_NONE, .first_failed = -1, .lock_fd = -1, .room_fd = -1};
    struct pl_error error = PL_ERROR_NONE;
    const bool opened = open_sweep(&sweep, &error) == PL_OK;
    enum pl_status status = opened ? PL_OK : error.status;
    int code = EXIT_SUCCESS;

    while (status == PL_OK && !sweep.over) {
        int64_t next_ns = PL_DEADLINE_NEVER;

        tick(&sweep, &next_ns);
        status = sweep.over ? PL_OK : await_events(&sweep, next_ns, &error);
    }
    if (status != PL_OK) {
        pl_sweep_fail(&sweep, "%s", error.cause);
    }
    if (opened) {
        pl_sweep_result_tidy(&sweep);
        pl_sweep_result_write(&sweep);
    }
    if (sweep.failed) {
        pl_log(PL_LOG_ERROR, "%s", sweep.reason); /* the failure file begins with the last line of the log */
        code = sweep.stop_number != 0 ? SIGNAL_EXIT + sweep.stop_number : EXIT_FAILURE;
    }
    close_sweep(&sweep);
    return code;
}
