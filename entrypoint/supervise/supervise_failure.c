/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a job ended: which of several reasons is the cause, the exit code, and the failure or success file. */
#include "entrypoint/supervise/supervise.h"

#include "base/log.h"
#include "base/text.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* For how long an exit report of higher severity, closer to the root cause, may replace the first. */
#define ROOT_CAUSE_WINDOW_NS (PL_NS_PER_S / 2)

enum { MPI_UNKNOWN_ERROR = 14 }; /* Open MPI's MPI_ERR_UNKNOWN */

enum severity {
    AFTER_ITS_RANKS, /* a launcher or daemon has exited, as it does because of its ranks */
    SENT_TO_ALL,     /* ended by a signal that all processes get: SIGTERM for the program, SIGKILL for its shim */
    /* A launcher or daemon was killed, and its ranks end with it. Or Open MPI 5 has ended a rank because its peer had
     * closed its socket; this may be reported before the exit of the peer. */
    PERHAPS_CAUSE,
    ROOT_CAUSE, /* a program, rank or server that has failed by itself */
};

/* The outcome has changed: decide again what depends on it. */
static void wake_timers(struct pl_supervisor *supervisor)
{
    PL_TIMER_WAKE(supervisor, HOLDING);
    PL_TIMER_WAKE(supervisor, WAIT);
}

/* Returns the exit code of a failed job whose own program gives none: 143 after SIGTERM. */
static int failure_code(const struct pl_supervisor *supervisor)
{
    return supervisor->stop.number != 0 ? 128 + supervisor->stop.number : 1;
}

static enum severity severity_of(const struct pl_exit_report *exit_report)
{
    if (!pl_process_kind_in(exit_report->kind,
                            PL_PROCESS_SET(RANK) | PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET_SERVERS)) {
        return exit_report->signalled ? PERHAPS_CAUSE : AFTER_ITS_RANKS;
    }
    if (exit_report->signalled && (exit_report->code == SIGTERM || exit_report->program[0] == '\0')) {
        return SENT_TO_ALL;
    }
    return exit_report->kind == PL_PROCESS_RANK && !exit_report->signalled && exit_report->code == MPI_UNKNOWN_ERROR
               ? PERHAPS_CAUSE
               : ROOT_CAUSE;
}

void pl_supervise_fail_exit(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const bool waits = pl_restart_must_wait(supervisor, exit_report);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (supervisor->outcome.failed || (waits && supervisor->outcome.exit_report_known)) {
        bool late = pl_clock_now_ns() - supervisor->outcome.failed_ns > ROOT_CAUSE_WINDOW_NS;

        if (!supervisor->outcome.exit_report_known || late ||
            severity_of(exit_report) <= severity_of(&supervisor->outcome.exit_report)) {
            return;
        }
    } else {
        supervisor->outcome.failed_ns = pl_clock_now_ns();
        if (waits) {
            pl_exit_report_sentence(exit_report, &text);
            pl_log(PL_LOG_WARNING, "%s; the job is started again when this host is prepared", pl_text_string(&text));
        }
    }
    wake_timers(supervisor);
    supervisor->outcome.failed = !waits;
    supervisor->outcome.exit_report_known = true;
    supervisor->outcome.exit_report = *exit_report;
    supervisor->outcome.exit_code = failure_code(supervisor);
    if (exit_report->kind == PL_PROCESS_PROGRAM && strcmp(exit_report->host, supervisor->job->current_host) == 0) {
        supervisor->outcome.exit_code = exit_report->signalled ? 128 + exit_report->code : exit_report->code;
    }
}

void pl_supervise_fail(struct pl_supervisor *supervisor, const char *format, ...)
{
    va_list args;

    if (supervisor->outcome.failed) {
        return;
    }
    wake_timers(supervisor);
    supervisor->outcome.failed = true;
    supervisor->outcome.exit_report_known = false;
    supervisor->outcome.failed_ns = pl_clock_now_ns();
    supervisor->outcome.exit_code = failure_code(supervisor);
    va_start(args, format);
    vsnprintf(supervisor->outcome.reason, sizeof(supervisor->outcome.reason), format, args);
    va_end(args);
}

void pl_supervise_fail_as(struct pl_supervisor *supervisor, const char *text)
{
    if (!supervisor->outcome.failed) {
        pl_supervise_fail(supervisor, "%s", text);
        return;
    }
    wake_timers(supervisor);
    supervisor->outcome.exit_report_known = false;
    snprintf(supervisor->outcome.reason, sizeof(supervisor->outcome.reason), "%s", text);
}

bool pl_supervise_failed_in_stop(const struct pl_supervisor *supervisor)
{
    const bool theirs = supervisor->outcome.exit_report_known || supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE;

    return supervisor->outcome.failed && theirs && supervisor->stop.number != 0 &&
           supervisor->stop.ns <= supervisor->outcome.failed_ns && supervisor->ranks == PL_LAUNCH_PLAN_RANKS_NONE;
}

enum pl_status pl_supervise_without_link(struct pl_supervisor *supervisor, enum pl_status status,
                                         const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    if (status == PL_OK || status == PL_CANCELLED) {
        return status;
    }
    pl_log(PL_LOG_WARNING,
           "the hosts of this job are not linked: %s. If one fails, the others do not notice; fix the cause, or set "
           "PACELINE_LINK=0 to accept this",
           supervisor->outcome.failed ? supervisor->outcome.reason : pl_error_text(error, text, sizeof(text)));
    supervisor->outcome.failed = supervisor->outcome.exit_report_known = false;
    supervisor->outcome.exit_code = 0;
    return PL_OK;
}

void pl_supervise_fail_lost(struct pl_supervisor *supervisor, const char *whose, const char *host, const char *why)
{
    if (supervisor->outcome.failed && supervisor->outcome.exit_report_known && supervisor->stop.number == 0 &&
        severity_of(&supervisor->outcome.exit_report) < ROOT_CAUSE) {
        supervisor->outcome.failed = false;
        supervisor->outcome.exit_report_known = false;
    }
    pl_supervise_fail(supervisor, "%s %.200s went away: %.300s", whose, host, why);
}

void pl_supervise_fail_status(struct pl_supervisor *supervisor, enum pl_status status, const struct pl_error *error)
{
    char name[16], text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    if (status == PL_CANCELLED) {
        pl_supervise_fail(supervisor, "the job was stopped by %s before its program started%s",
                          pl_signals_name(supervisor->stop.number, name),
                          pl_restart_number(supervisor) > 0 ? " again" : "");
    } else if (status != PL_OK) {
        pl_supervise_fail(supervisor, "%s", pl_error_text(error, text, sizeof(text)));
    }
}

void pl_supervise_note_suspended(struct pl_supervisor *supervisor, const struct pl_frame *frame)
{
    if (frame->count < 2 || supervisor->outcome.failed) {
        return;
    }
    if (frame->fields[1][0] != '\0') {
        snprintf(supervisor->outcome.suspended.name, sizeof(supervisor->outcome.suspended.name), "%s",
                 frame->fields[0]);
        snprintf(supervisor->outcome.suspended.how, sizeof(supervisor->outcome.suspended.how), "%s", frame->fields[1]);
    } else if (strcmp(frame->fields[0], supervisor->outcome.suspended.name) == 0) {
        supervisor->outcome.suspended.name[0] = '\0';
    }
}

/* Returns the check's message about what the job's hosts lack; NULL if the check did not get so far. */
static const char *check_words(const struct pl_supervisor *supervisor)
{
    static const char begin[] = "check: ";
    const char *tail = supervisor->outcome.exit_report.tail, *found = strstr(tail, begin);

    while (found && found != tail && found[-1] != '\n') {
        found = strstr(found + 1, begin);
    }
    return supervisor->job->is_check && supervisor->outcome.exit_report_known ? found : NULL;
}

void pl_supervise_failure_text(const struct pl_supervisor *supervisor, struct pl_text *text)
{
    size_t used = pl_restart_words_bytes(supervisor);
    char name[16];

    if (supervisor->stop.number == 0 && check_words(supervisor)) {
        pl_text_printf(text, "%.*s", PL_FAILURE_SHOWN_BYTES - 1, check_words(supervisor));
        return;
    }
    if (supervisor->stop.number != 0 && supervisor->outcome.exit_report_known) {
        pl_text_printf(text, "the job was stopped by %s; ", pl_signals_name(supervisor->stop.number, name));
    }
    if (supervisor->outcome.suspended.name[0] != '\0' && supervisor->outcome.exit_report_known) {
        pl_text_printf(text, "%s %s; ", supervisor->outcome.suspended.name, supervisor->outcome.suspended.how);
    }
    if (supervisor->outcome.exit_report_known) {
        used += text->length;
        pl_exit_report_print(&supervisor->outcome.exit_report, supervisor->stop.number,
                             used < PL_FAILURE_SHOWN_BYTES ? PL_FAILURE_SHOWN_BYTES - used : 0, text);
    } else {
        pl_text_append(text, supervisor->outcome.reason);
        if (text->length > 0 && text->data[text->length - 1] != '\n') {
            pl_text_append_char(text, '\n');
        }
        if (!strstr(supervisor->outcome.reason, "\nNext: ")) { /* another host's report has it already */
            pl_text_append(text, pl_exit_report_stop_step(supervisor->stop.number));
        }
    }
    pl_restart_explain(supervisor, text);
}

void pl_supervise_write_failure(struct pl_supervisor *supervisor, const char *text)
{
    struct pl_error error = PL_ERROR_NONE;

    if (pl_failure_write(supervisor->failure, text, &error) != PL_OK) {
        pl_log_error(&error, "cannot write %s/failure", supervisor->job->paths.output);
    }
}

static long long seconds_of(const struct pl_supervisor *supervisor)
{
    return (long long)((pl_clock_now_ns() - supervisor->seen.begun_ns) / PL_NS_PER_S);
}

/* Log the last line of a successful job: whether it has left a model. A job that was asked to stop counts as stopped,
 * even if it has saved its model. */
static void log_success(const struct pl_supervisor *supervisor)
{
    const char *model = supervisor->job->paths.model;
    struct pl_changes now;
    char name[16], by[24] = "";

    pl_changes_look(model, &now);
    if (supervisor->stop.number != 0) {
        snprintf(by, sizeof(by), " by %s", pl_signals_name(supervisor->stop.number, name));
    }
    pl_log(supervisor->job->settings.trial ? PL_LOG_DEBUG : PL_LOG_INFO, "%s after %lld s%s; %s %s",
           supervisor->stop.number != 0 ? "stopped" : "succeeded", seconds_of(supervisor), by, model,
           now.files == 0                                           ? "is empty"
           : pl_changes_since(&supervisor->seen.model_before, &now) ? "has the model"
                                                                    : "has only files from before this job");
}

/* Log the last line of a job that has failed, also during a stop. The check has words of its own. */
static void log_failure(const struct pl_supervisor *supervisor, const char *text)
{
    const int bytes = (int)strcspn(text, "\n");

    if (supervisor->job->is_check) {
        pl_log(PL_LOG_ERROR, "%.*s", bytes, text);
    } else {
        pl_log(PL_LOG_ERROR, "%s after %lld s: %.*s", supervisor->stop.number != 0 ? "stopped" : "failed",
               seconds_of(supervisor), bytes, text);
    }
}

int pl_supervise_write_result(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (!supervisor->outcome.failed) {
        if (pl_failure_succeed(supervisor->failure, &error) != PL_OK) {
            pl_log_error(&error, "cannot write %s/success", supervisor->job->paths.output);
        }
        if (!supervisor->job->is_check) {
            log_success(supervisor);
        }
        return 0;
    }
    pl_supervise_failure_text(supervisor, &text);
    if (text.length > 0) {
        log_failure(supervisor, pl_text_string(&text));
    }
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    return supervisor->outcome.exit_code != 0 ? supervisor->outcome.exit_code : 1;
}
