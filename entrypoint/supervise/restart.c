/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a job is started again after a failure, and keeps what one attempt leaves for the next. */
#include "entrypoint/supervise/restart.h"

#include "base/fd.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/kept_head.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* If one of these fails, the next attempt may succeed. */
#define RESTARTED (PL_PROCESS_SET_MAIN | PL_PROCESS_SET(RANK) | PL_PROCESS_SET(DAEMON) | PL_PROCESS_SET_SERVERS)

enum { OPENED_BYTES = 32 }; /* bytes of a file with a number of FIFOs */

int pl_restart_number(const struct pl_supervisor *supervisor)
{
    return supervisor->restarts ? supervisor->restarts->number : 0;
}

static void look_at_checkpoints(const struct pl_supervisor *supervisor, struct pl_changes *ret_changes)
{
    pl_changes_look(supervisor->job->checkpoint_dir, ret_changes);
}

/* Take over the upload that an earlier attempt has started. */
static void adopt_sync(struct pl_supervisor *supervisor)
{
    struct pl_restarts *restarts = supervisor->restarts;
    struct pl_error error = PL_ERROR_NONE;

    if (!restarts->sync) {
        return;
    }
    if (pl_memory_grow(&supervisor->connections, &supervisor->connections_capacity, supervisor->connections_count + 1,
                       sizeof(*supervisor->connections), &error) == PL_OK) {
        supervisor->connections[supervisor->connections_count++] = restarts->sync;
    } else {
        pl_log_error(&error, "intermediate output is not uploaded any more");
        kill(restarts->sync->pid, SIGKILL);
        pl_link_close(&restarts->sync->link);
        free(restarts->sync);
    }
    restarts->sync = NULL;
}

/* Returns the step of the newest copy that the programs have kept, and how many steps they have finished after it, as
 * far as they have said so; 0: there is none. */
static uint64_t kept_step(const struct pl_restarts *restarts, uint64_t *ret_after)
{
    uint64_t step = 0, reached = 0;
    const bool found = restarts->kept_fd > 0 && pl_kept_head_read(restarts->kept_fd, &step, &reached);

    *ret_after = found && reached > step ? reached - step : 0;
    return found ? step : 0;
}

enum pl_status pl_restart_give_memory(struct pl_restarts *restarts, struct pl_launch_plan *plan,
                                      struct pl_error *reterr)
{
    char path[64];
    uint64_t after;

    if (plan->restarts == 0 || plan->role == PL_LAUNCH_PLAN_WORKER) { /* rank 0 runs on the first host */
        return PL_OK;
    }
    if (restarts->kept_fd == 0) {
        const int fd = pl_fd_new_memory("paceline-kept", 0);

        if (fd < 0) {
            return pl_error_errno(reterr, "make memory for the state that programs keep");
        }
        restarts->kept_fd = fd;
    }
    restarts->kept_before = kept_step(restarts, &after);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), restarts->kept_fd);
    return pl_environment_set(plan->environment, PL_KEPT_VARIABLE, path, reterr);
}

void pl_restart_enter(struct pl_supervisor *supervisor, struct pl_restarts *restarts)
{
    supervisor->restarts = restarts;
    restarts->again = false;
    if (supervisor->job->settings.max_restarts > 0) {
        look_at_checkpoints(supervisor, &restarts->checkpoints_before);
    }
    if (restarts->number == 0) {
        restarts->begun_ns = supervisor->seen.begun_ns;
        restarts->model_before = supervisor->seen.model_before;
        return;
    }
    supervisor->state = PL_HOST_ENDED; /* the state in which the attempt before has ended */
    supervisor->seen.begun_ns = restarts->begun_ns;
    supervisor->seen.model_before = restarts->model_before;
    if (supervisor->peer_wait_ns > PL_RESTART_LINK_NS) {
        supervisor->peer_wait_ns = PL_RESTART_LINK_NS;
    }
    if (restarts->lost[0] == '\0') {
        /* The other hosts were linked and come again. One may have missed the stop, because the link of the attempt
         * before was closing: it would wait for this host, so this host leaves only when it has told that one. */
        supervisor->stop.join_ns = supervisor->stop.budget_ns / 10 * 9;
    }
    adopt_sync(supervisor);
}

bool pl_restart_is_possible(const struct pl_supervisor *supervisor)
{
    const struct pl_outcome *outcome = &supervisor->outcome;

    return supervisor->restarts && supervisor->plan && supervisor->plan->restarts > 0 &&
           supervisor->state != PL_HOST_PREPARING && outcome->failed && supervisor->stop.number == 0 &&
           (outcome->exit_report_known
                ? !outcome->exit_report.not_started && pl_process_kind_in(outcome->exit_report.kind, RESTARTED)
                : outcome->hangs);
}

bool pl_restart_must_wait(const struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const struct pl_launch_plan *plan = supervisor->plan;

    if (supervisor->state != PL_HOST_PREPARING || !supervisor->restarts || !plan || supervisor->stop.number != 0 ||
        supervisor->outcome.failed || supervisor->outcome.own_words || exit_report->not_started ||
        !pl_process_kind_in(exit_report->kind, RESTARTED)) {
        return false;
    }
    /* the plan does not know the number before it has its program */
    return supervisor->restarts->number <
           (plan->argv.count > 0 ? plan->restarts : supervisor->job->settings.max_restarts);
}

bool pl_restart_is_wanted(const struct pl_supervisor *supervisor)
{
    return pl_restart_is_possible(supervisor) && !supervisor->outcome.own_words &&
           supervisor->restarts->number < supervisor->plan->restarts;
}

bool pl_restart_follows(const struct pl_supervisor *supervisor)
{
    return supervisor->restarts && supervisor->restarts->again;
}

/* A program may log an exception and end by something else: the same exception before another code is another cause. */
static int cause_code(const struct pl_supervisor *supervisor)
{
    const struct pl_exit_report *exit_report = &supervisor->outcome.exit_report;

    return exit_report->signalled ? -exit_report->code : exit_report->code;
}

/* Whether the job failed as the attempt before, and has made and kept no checkpoint since. */
static bool is_programs_fault(const struct pl_supervisor *supervisor, const char *cause)
{
    const struct pl_restarts *restarts = supervisor->restarts;
    struct pl_changes now;
    uint64_t after;

    look_at_checkpoints(supervisor, &now);
    return restarts->number > 0 && strcmp(cause, restarts->cause) == 0 &&
           cause_code(supervisor) == restarts->cause_code && !pl_changes_since(&restarts->checkpoints_before, &now) &&
           kept_step(restarts, &after) <= restarts->kept_before;
}

/* Print the first line of a failure's text, as much of it as is kept. */
static void first_line(const char *text, char cause[static PL_RESTART_CAUSE_BYTES])
{
    size_t bytes = strcspn(text, "\n");

    bytes = bytes < PL_RESTART_CAUSE_BYTES ? bytes : pl_text_whole_bytes(text, PL_RESTART_CAUSE_BYTES - 1);
    snprintf(cause, PL_RESTART_CAUSE_BYTES, "%.*s", (int)bytes, text);
}

/* Append an object as a line to the file about restarts. `begins`: the job's first line, which empties the file
 * first. */
static void write_line(const struct pl_supervisor *supervisor, const struct pl_json_writer *writer, bool begins)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_CLOSE int fd = -1;
    enum pl_status status;

    pl_text_append_char(writer->text, '\n');
    pl_text_printf(&path, "%s/restarts.jsonl", supervisor->job->paths.output_data);
    status = pl_json_write_end(writer, &error);
    if (status == PL_OK) {
        fd = open(pl_text_string(&path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (begins ? O_TRUNC : 0), 0644);
        status = fd < 0 ? pl_error_errno(&error, "open the file")
                        : pl_file_write_fd(fd, writer->text->data, writer->text->length, "restarts.jsonl", &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "cannot write %s", pl_text_string(&path));
    }
}

static double seconds_since(int64_t begin_ns)
{
    return (double)((pl_clock_now_ns() - begin_ns) / PL_NS_PER_MS) / 1e3;
}

/* Another attempt follows this one, which failed by `cause`. */
static void go_on(struct pl_supervisor *supervisor, const char *cause)
{
    struct pl_restarts *restarts = supervisor->restarts;
    PL_AUTO_TEXT struct pl_text causes = PL_TEXT_NONE;
    uint64_t after;
    const uint64_t step = kept_step(restarts, &after);
    char kept[64] = "", repeated[48] = "";
    size_t bytes;

    restarts->again = true;
    restarts->number++;
    if (restarts->failed_ns == 0) { /* otherwise no program has run since an earlier failure */
        restarts->failed_ns = supervisor->outcome.failed_ns;
    }
    snprintf(restarts->cause, sizeof(restarts->cause), "%s", cause);
    restarts->cause_code = cause_code(supervisor);
    pl_text_printf(&causes, "Before restart %d: %s\n%s", restarts->number, cause, restarts->earlier);
    bytes = causes.length < sizeof(restarts->earlier) ? causes.length : sizeof(restarts->earlier) - 1;
    while (bytes > 0 && causes.data[bytes - 1] != '\n') { /* drop a line that has no room */
        bytes--;
    }
    snprintf(restarts->earlier, sizeof(restarts->earlier), "%.*s", (int)bytes, pl_text_string(&causes));
    if (step > 0) {
        snprintf(kept, sizeof(kept), "; step %" PRIu64 " is kept in memory", step);
    }
    if (after > 0) {
        snprintf(repeated, sizeof(repeated), ", %" PRIu64 " step%s repeated", after, after == 1 ? " is" : "s are");
    }
    pl_log(PL_LOG_WARNING, "restart %d of %d: %s%s%s", restarts->number, supervisor->plan->restarts, cause, kept,
           repeated);
}

static void write_restart(const struct pl_supervisor *supervisor)
{
    const struct pl_restarts *restarts = supervisor->restarts;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);

    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "restart", restarts->number);
    pl_json_write_int64(&writer, "of", supervisor->plan->restarts);
    pl_json_write_double(&writer, "after_s", seconds_since(restarts->begun_ns));
    pl_json_write_text(&writer, "cause", restarts->cause);
    pl_json_write_close(&writer);
    write_line(supervisor, &writer, restarts->number == 1);
}

void pl_restart_decide(struct pl_supervisor *supervisor, const char *text, bool linked)
{
    struct pl_restarts *restarts = supervisor->restarts;
    struct pl_outcome *outcome = &supervisor->outcome;
    char cause[PL_RESTART_CAUSE_BYTES];

    if (!pl_restart_is_possible(supervisor)) { /* a stop or the loss of a host has come meanwhile */
        return;
    }
    first_line(text, cause);
    pl_text_mask(cause, strlen(cause));
    if (outcome->own_words || pl_failure_has_own(supervisor->failure)) {
        outcome->not_again = PL_NOT_AGAIN_OWN_WORDS;
        pl_log(PL_LOG_WARNING,
               "the program%s has written %s/failure itself, which says that it has failed for good: the job is not "
               "started again. If it may be, the program must not write that file, also not where it catches the "
               "error of another rank",
               outcome->own_words ? " on another host" : "", supervisor->job->paths.output);
    } else if (restarts->number == supervisor->plan->restarts) {
        outcome->not_again = PL_NOT_AGAIN_USED_UP;
    } else if (is_programs_fault(supervisor, cause)) {
        outcome->not_again = PL_NOT_AGAIN_AS_BEFORE;
    } else if (!linked) {
        outcome->not_again = PL_NOT_AGAIN_UNLINKED;
    } else {
        go_on(supervisor, cause);
        write_restart(supervisor);
    }
}

void pl_restart_take(struct pl_supervisor *supervisor, const struct pl_frame *frame)
{
    char cause[PL_RESTART_CAUSE_BYTES];
    int64_t number;

    if (!supervisor->restarts || supervisor->plan->restarts == 0 || supervisor->state == PL_HOST_PREPARING ||
        strcmp(frame->fields[0], "again") != 0 ||
        pl_link_frame_number(frame, 2, supervisor->restarts->number + 1, supervisor->restarts->number + 1, &number,
                             NULL) != PL_OK) {
        return;
    }
    first_line(frame->fields[1], cause);
    go_on(supervisor, cause);
}

void pl_restart_note_lost(struct pl_supervisor *supervisor)
{
    struct pl_restarts *restarts = supervisor->restarts;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        if (supervisor->sessions.items[i].state != PL_SESSION_DONE && restarts->lost[0] == '\0') {
            snprintf(restarts->lost, sizeof(restarts->lost), "host %.200s went away before restart %d",
                     supervisor->sessions.items[i].host, restarts->number);
        }
    }
}

void pl_restart_note_begun(struct pl_supervisor *supervisor)
{
    struct pl_restarts *restarts = supervisor->restarts;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);
    double lost_s;

    if (!restarts || restarts->failed_ns == 0 || supervisor->role != PL_HOST_MASTER) {
        return;
    }
    lost_s = seconds_since(restarts->failed_ns);
    restarts->failed_ns = 0;
    pl_log(PL_LOG_INFO, "restart %d: the program runs again, %.1f s after the failure", restarts->number, lost_s);
    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "restart", restarts->number);
    pl_json_write_double(&writer, "lost_s", lost_s);
    pl_json_write_close(&writer);
    write_line(supervisor, &writer, false);
}

/* Keep the contents of the files `opened-NAME`, before they are removed with the run directory. */
static void keep_opened(const struct pl_supervisor *supervisor)
{
    struct pl_text *opened = &supervisor->restarts->opened;
    DIR *directory = supervisor->rundir.path[0] != '\0' ? opendir(supervisor->rundir.path) : NULL;
    const struct dirent *entry;

    pl_text_done(opened);
    while (directory && (entry = readdir(directory))) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        PL_AUTO_FREE char *number = NULL;

        pl_text_printf(&path, "%s/%s", supervisor->rundir.path, entry->d_name);
        if (pl_text_begins_with(entry->d_name, PL_RUNDIR_OPENED_BEGIN) &&
            pl_file_read(pl_text_string(&path), OPENED_BYTES, &number, NULL, NULL) == PL_OK) {
            pl_text_printf(opened, "%.*s %s\n", (int)strspn(number, "0123456789"), number,
                           entry->d_name + strlen(PL_RUNDIR_OPENED_BEGIN));
        }
    }
    if (directory) {
        closedir(directory);
    }
}

enum pl_status pl_restart_give_opened(const struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const char *at = supervisor->restarts ? pl_text_string(&supervisor->restarts->opened) : "";

    for (; *at; at += strcspn(at, "\n") + 1) {
        const size_t digits = strcspn(at, " ");
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

        pl_text_append(&name, PL_RUNDIR_OPENED_BEGIN);
        pl_text_append_n(&name, at + digits + 1, strcspn(at, "\n") - digits - 1);
        PL_TRY(pl_text_check(&name, reterr));
        PL_TRY(pl_rundir_write(&supervisor->rundir, name.data, at, digits, reterr));
    }
    return PL_OK;
}

void pl_restart_leave(struct pl_supervisor *supervisor)
{
    size_t kept = 0;

    keep_opened(supervisor);
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && connection->process_kind == PL_PROCESS_SYNC &&
            connection->state <= PL_CONNECTION_READY) {
            supervisor->restarts->sync = connection;
        } else {
            supervisor->connections[kept++] = connection;
        }
    }
    supervisor->connections_count = kept;
}

/* Why the job is not started again, as the end of the first line. */
static void print_reason(const struct pl_supervisor *supervisor, struct pl_text *text)
{
    switch (supervisor->outcome.not_again) {
    case PL_NOT_AGAIN_NONE:
        break;
    case PL_NOT_AGAIN_OWN_WORDS:
        pl_text_append(text, "; not started again: the program has written its own failure file");
        break;
    case PL_NOT_AGAIN_USED_UP:
        pl_text_printf(text, "; not started again: PACELINE_MAX_RESTARTS is %d", supervisor->plan->restarts);
        break;
    case PL_NOT_AGAIN_AS_BEFORE:
        pl_text_printf(text, ", as before restart %d, and no file in %s is newer: not started again",
                       supervisor->restarts->number, supervisor->job->checkpoint_dir);
        break;
    case PL_NOT_AGAIN_UNLINKED:
        pl_text_append(text, "; not started again: not all hosts are linked");
        break;
    }
}

/* Whether the reasons are to be added: if a worker has the master's words, those explain already. */
static bool explains(const struct pl_supervisor *supervisor)
{
    return supervisor->restarts && (supervisor->role == PL_HOST_MASTER || supervisor->outcome.exit_report_known);
}

size_t pl_restart_words_bytes(const struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;

    if (!explains(supervisor)) {
        return 0;
    }
    print_reason(supervisor, &reason);
    return reason.length + strlen(supervisor->restarts->earlier);
}

void pl_restart_explain(const struct pl_supervisor *supervisor, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text before = PL_TEXT_NONE;
    size_t first_bytes;

    if (!explains(supervisor) || pl_restart_words_bytes(supervisor) == 0) {
        return;
    }
    before = *text;
    *text = PL_TEXT_NONE;
    first_bytes = strcspn(pl_text_string(&before), "\n");
    pl_text_append_n(text, pl_text_string(&before), first_bytes);
    print_reason(supervisor, text);
    pl_text_append(text, pl_text_string(&before) + first_bytes);
    pl_text_append(text, supervisor->restarts->earlier);
}
