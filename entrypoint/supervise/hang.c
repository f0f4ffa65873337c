/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether the job hangs, has the hang reported, and ends the job if the settings ask for it. */
#include "entrypoint/supervise/hang.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/supervise.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_on(const struct pl_supervisor *supervisor)
{
    return supervisor->watch.hang_ns > 0 && !supervisor->failed && supervisor->stop_number == 0 &&
           !supervisor->main_ended;
}

static double hang_s(const struct pl_supervisor *supervisor)
{
    return (double)supervisor->watch.hang_ns / (double)PL_NS_PER_S;
}

void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    if (is_on(supervisor)) {
        pl_watch_look(&supervisor->watch, pl_supervise_runs(supervisor, PL_EXIT_SOURCE_STACKS), next_ns);
    }
}

static enum pl_status start_report(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_FREE char *path = NULL;
    char own[16];

    PL_TRY(pl_companion_find(supervisor->job->self_path, PL_WATCH_REPORTER, &path, reterr));
    snprintf(own, sizeof(own), "%d", (int)getpid());
    setup.argv = (const char *const[]){path, "--below", own, "--log", supervisor->job->current_host, NULL};
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = "/";
    return pl_supervise_start(supervisor, PL_EXIT_SOURCE_STACKS, &setup, NULL, reterr);
}

/* Do what the settings ask for after a hang. The line at `place` says what the first program of the report does; "" if
 * that is not known. */
static void end_job(struct pl_supervisor *supervisor, const char *place)
{
    if (!is_on(supervisor)) {
        return;
    }
    if (!supervisor->hang.ends) {
        pl_log(PL_LOG_WARNING, "the job keeps running; with PACELINE_HANG_ACTION=end it ends");
        return;
    }
    pl_supervise_fail(
        supervisor,
        "the job hangs, nothing has happened on any rank for %.0f s%s%.*s\n"
        "Next: find out why %s does not return; the log has the stacks of all ranks. If it is only slow, set the "
        "hyperparameter paceline_hang_s to more seconds; paceline_hang_action=end is what has ended the job.",
        hang_s(supervisor), place[0] != '\0' ? "; " : "", (int)strcspn(place, "\n"), place,
        place[0] != '\0' ? "the first call named here" : "the program");
}

void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet)
{
    struct pl_hang *hang = &supervisor->hang;
    struct pl_error error = PL_ERROR_NONE;

    if (!is_on(supervisor) || !supervisor->watch.quiet || !others_quiet) {
        hang->reported = hang->reported && pl_supervise_runs(supervisor, PL_EXIT_SOURCE_STACKS);
        return;
    }
    if (hang->reported) {
        return;
    }
    hang->reported = true;
    pl_log(PL_LOG_WARNING,
           "the job hangs: no rank has made progress for %.0f s (PACELINE_HANG_S): no output, no other input or "
           "output, no collective, no record. What each rank is doing, the one that differs first:",
           hang_s(supervisor));
    if (start_report(supervisor, &error) != PL_OK) {
        pl_log_error(&error, "what the ranks are doing is not shown");
        end_job(supervisor, "");
    }
}

void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const char *tail = exit_report->tail;
    const size_t bytes = strlen(tail);
    const char *before = bytes > 0 ? memrchr(tail, '\n', bytes - 1) : NULL;

    end_job(supervisor, !pl_exit_report_ok(exit_report) ? "" : before ? before + 1 : tail);
}
