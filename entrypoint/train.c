/* SPDX-License-Identifier: Apache-2.0 */
/* paceline train: read the job, fetch the code, plan, execute the plan, and report how it ended. */
#include "entrypoint/subcommand.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/check/check.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/supervise/failure.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/supervise.h"
#include "entrypoint/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the page about the job may take. SageMaker kills a stopped job after 120 s, of which the job may use 110. */
#define PAGE_NS (5 * PL_NS_PER_S)

/* Run the probes: checks that only the image's own programs can answer, after the job's requirements have been
 * installed. */
static enum pl_status run_probes(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                                 struct pl_error *reterr)
{
    enum pl_status status = pl_supervise_steps(supervisor, &plan->probes, plan->environment, reterr);

    if (status == PL_NOT_FOUND) {
        pl_log(PL_LOG_DEBUG, "mpi4py is not installed; the program does not need it");
        supervisor->restarts->without_optional = true;
        return PL_OK;
    }
    return status;
}

static enum pl_status fetch_source(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_STEPS struct pl_launch_plan_steps source = {.count = 0};

    PL_TRY(pl_source_plan(job, &source, reterr));
    return pl_supervise_steps(supervisor, &source, job->process, reterr);
}

/* The first line of the log: what runs where. In a sweep the line of its coordinator is enough. */
static void log_start(const struct pl_job *job, const struct pl_launch_plan *plan)
{
    const enum pl_log_level level = job->settings.trial || job->is_check ? PL_LOG_DEBUG : PL_LOG_INFO;
    const struct pl_launcher *launcher = plan->launcher;
    const size_t hosts = plan->hosts.count;
    PL_AUTO_TEXT struct pl_text what = PL_TEXT_NONE;

    if (plan->is_outside) {
        pl_log(level,
               "version %s, %s: one program; this is %s, which is not in the distribution's instance "
               "groups: its program ends with the job of %s",
               pl_version, launcher->name, job->current_host, job->master_host);
        return;
    }
    if (launcher->describe) {
        launcher->describe(job, plan, &what);
    }
    if (what.length == 0 && hosts == 1) {
        pl_text_append(&what, "one program");
    } else if (what.length == 0) {
        pl_text_printf(&what, "one program on each of %zu hosts", hosts);
    }
    pl_log(level, "version %s, %s: %s; this is %s, the %s", pl_version, launcher->name, pl_text_string(&what),
           job->current_host, hosts > 1 ? pl_launch_plan_role_text(plan->role) : "only host");
}

/* Run the plan's parts that only the first attempt of a job runs. */
static enum pl_status run_steps(struct pl_supervisor *supervisor, const struct pl_job *job,
                                const struct pl_launch_plan *plan, struct pl_error *reterr)
{
    log_start(job, plan);
    for (size_t i = 0; i < plan->warnings.count; i++) {
        pl_log(PL_LOG_WARNING, "%s", plan->warnings.items[i]);
    }
    PL_TRY(pl_launch_plan_prepare(job, plan, reterr));
    PL_TRY(pl_supervise_steps(supervisor, &plan->steps, plan->environment, reterr));
    return run_probes(supervisor, plan, reterr);
}

/* Do on this host everything that comes before its program. The plan is complete before a step of it runs, and is what
 * `paceline plan` prints. Only the first attempt fetches code and runs steps and probes. */
static enum pl_status prepare(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_launch_plan *plan,
                              struct pl_error *reterr)
{
    const bool first = pl_restart_number(supervisor) == 0;

    PL_TRY(pl_supervise_may_go_on(supervisor));
    PL_TRY(first ? fetch_source(supervisor, job, reterr) : PL_OK);
    PL_TRY(pl_launch_plan_fill(job, plan, reterr));
    PL_TRY(job->is_check ? pl_check_adapt_plan(plan, reterr) : PL_OK);
    PL_TRY(first ? run_steps(supervisor, job, plan, reterr) : PL_OK);
    if (supervisor->restarts->without_optional) {
        pl_launch_plan_drop_optional(plan);
    }
    PL_TRY(pl_restart_give_memory(supervisor->restarts, plan, reterr));
    PL_TRY(pl_supervise_set_plan(supervisor, plan, reterr));
    if (first) {
        pl_supervise_start_sync(supervisor);
    }
    /* ranks that another host starts need this host's name; a program of this host waits for all names */
    return plan->role == PL_LAUNCH_PLAN_WORKER && plan->link == PL_LAUNCH_PLAN_LINK_NEEDED
               ? pl_peers_resolve(supervisor, false, reterr)
               : PL_OK;
}

/* Tell the programs which attempt this is, if there may be others. */
static enum pl_status set_attempt(const struct pl_job *job, const struct pl_restarts *restarts,
                                  struct pl_launch_plan *plan, struct pl_error *reterr)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", restarts->number);
    return job->settings.max_restarts > 0 && !job->is_check
               ? pl_environment_set(plan->environment, PL_RESTART_VARIABLE, number, reterr)
               : PL_OK;
}

/* Run an attempt of the job that has been read: from here on the supervisor handles signals and children.
 * `*stop_number` is the signal that asked for the end before, or 0; on return also one that came meanwhile. */
static int run_attempt(const struct pl_job *job, struct pl_signals *signals, struct pl_failure *failure,
                       struct pl_restarts *restarts, int *stop_number)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    struct pl_supervisor supervisor;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    int exit_code;

    pl_supervise_open(&supervisor, job, signals, failure, &pl_host_calls);
    pl_restart_enter(&supervisor, restarts);
    if (restarts->number > 0) {
        pl_host_go(&supervisor.state, PL_HOST_PREPARING);
    }
    if (*stop_number != 0) { /* this stop takes precedence over other events */
        pl_supervise_stop(&supervisor, *stop_number, false);
    } else if (restarts->lost[0] != '\0') {
        pl_supervise_fail(&supervisor, "%s", restarts->lost);
    }
    status = pl_launch_plan_begin(job, &plan, &error);
    status = status == PL_OK ? set_attempt(job, restarts, plan, &error) : status;
    status = status == PL_OK ? pl_supervise_link(&supervisor, plan, &error) : status;
    status = status == PL_OK ? prepare(&supervisor, job, plan, &error) : status;
    pl_supervise_fail_status(&supervisor, status, &error);
    exit_code = pl_host_execute(&supervisor);
    *stop_number = supervisor.stop.number;
    pl_supervise_close(&supervisor);
    return exit_code;
}

/* Open the output directory, for the failure file. The job may still be useful without it. */
static void open_outputs(const struct pl_invocation *call, struct pl_failure *failure)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    *failure = PL_FAILURE_NONE;
    pl_text_printf(&path, "%s/output", pl_job_base_dir(call->environment));
    status = pl_text_check(&path, &error);
    if (status != PL_OK || pl_failure_open(failure, pl_text_string(&path), &error) != PL_OK) {
        pl_log_error(&error, "cannot open the output directory %s/output", pl_job_base_dir(call->environment));
    }
}

/* Run a job: one attempt after the other, until one is the last. */
static int run_job(const struct pl_invocation *call, const struct pl_job *job, struct pl_signals *signals,
                   struct pl_failure *failure, int *stop_number)
{
    struct pl_restarts restarts = {.number = 0};
    int exit_code = run_attempt(job, signals, failure, &restarts, stop_number);

    while (restarts.again) {
        pl_failure_close(failure); /* a failure file that was written before was not final */
        open_outputs(call, failure);
        exit_code = run_attempt(job, signals, failure, &restarts, stop_number);
    }
    if (restarts.kept_fd > 0) {
        pl_file_close_at(&restarts.kept_fd);
    }
    pl_text_done(&restarts.opened);
    return exit_code;
}

/* The job cannot be read, but its hosts are known. The other hosts would wait for this one, so connect to them to
 * report the failure. The message names this host, because its configuration may differ from theirs. */
static int notify_unreadable_job(const struct pl_job *job, struct pl_launch_plan *plan, const struct pl_error *error,
                                 struct pl_signals *signals, struct pl_failure *failure)
{
    struct pl_supervisor supervisor;
    struct pl_error link_error = PL_ERROR_NONE;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    int exit_code;

    pl_supervise_open(&supervisor, job, signals, failure, &pl_host_calls);
    pl_supervise_fail(&supervisor, "host %.200s: %s", job->current_host, pl_error_text(error, text, sizeof(text)));
    if (pl_supervise_link(&supervisor, plan, &link_error) != PL_OK) {
        pl_log_error(&link_error, "cannot notify the other hosts");
    }
    exit_code = pl_host_execute(&supervisor);
    pl_supervise_close(&supervisor);
    return exit_code;
}

/* The job cannot be read: the failure file is all that people will see. */
static int report_unreadable_job(const struct pl_error *error, struct pl_failure *failure)
{
    struct pl_error write_error = PL_ERROR_NONE;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES + 2];

    pl_error_text(error, text, sizeof(text) - 1);
    pl_log(PL_LOG_ERROR, "%s", text);
    strcat(text, "\n");
    if (pl_failure_write(failure, text, &write_error) != PL_OK) {
        pl_log_error(&write_error, "cannot write the failure file");
    }
    return 1;
}

static int run_unreadable_job(const struct pl_invocation *call, const struct pl_error *error,
                              struct pl_signals *signals, struct pl_failure *failure)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;

    if (pl_job_new_partial(call->environment, call->self_path, &job, NULL) == PL_OK &&
        pl_launch_plan_begin(job, &plan, NULL) == PL_OK && plan->link != PL_LAUNCH_PLAN_LINK_NONE) {
        return notify_unreadable_job(job, plan, error, signals, failure);
    }
    return report_unreadable_job(error, failure);
}

/* Write the page about the job, which has ended: a failure of this is a warning. */
static void write_page(const struct pl_job *job, const struct pl_signals *signals)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_text_printf(&path, "%s/report.html", job->paths.output_data);
    status = pl_text_check(&path, &error);
    if (status == PL_OK) {
        const char *const words[] = {job->self_path, "report", "--output", path.data, job->paths.base, NULL};

        setup.argv = words;
        setup.environment = pl_environment_strings(job->process);
        setup.signals = signals;
        setup.death_signal = SIGKILL;
        status = pl_process_run(&setup, pl_deadline_after_ns(PAGE_NS), NULL, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "cannot write the report");
    }
}

/* Run the check of the job's hosts if it is wanted, then the job, unless the check failed or only the check is wanted.
 * `words` are the options of `paceline check`; NULL for `paceline train`. */
static int run_checked(const struct pl_invocation *call, const struct pl_job *job, const struct pl_strv *words,
                       struct pl_signals *signals, struct pl_failure *failure)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    struct pl_error error = PL_ERROR_NONE;
    int exit_code = 0, stop_number = 0;

    if (pl_check_new(job, words, &check, &error) != PL_OK) {
        return run_unreadable_job(call, &error, signals, failure);
    }
    if (check) { /* NULL: none is wanted, as in most jobs */
        exit_code = run_job(call, check, signals, failure, &stop_number);
    }
    if (exit_code != 0 || words) {
        return exit_code;
    }
    if (check) {
        pl_failure_close(failure); /* the success of the check is not the success of the job */
        open_outputs(call, failure);
    }
    exit_code = run_job(call, job, signals, failure, &stop_number);
    if (job->settings.report && strcmp(job->current_host, job->master_host) == 0) {
        write_page(job, signals);
    }
    return exit_code;
}

static int run_train(const struct pl_invocation *call, const struct pl_strv *command, const struct pl_strv *check_words)
{
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_failure failure;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    /* Signals become events before anything else: from now on none of them ends the process. Without this, process 1
     * would lose them. */
    bool listening = pl_signals_open(&signals, &error) == PL_OK;
    const int log_fd = pl_file_open_own(STDERR_FILENO);
    int exit_code;

    if (log_fd >= 0) {
        pl_log_set_fd(log_fd); /* all programs of the job write into the same log */
    }
    open_outputs(call, &failure);
    if (!listening) {
        exit_code = report_unreadable_job(&error, &failure);
    } else if (pl_job_new(call->environment, call->self_path, command, &job, &error) != PL_OK) {
        exit_code = run_unreadable_job(call, &error, &signals, &failure);
    } else {
        pl_log_set_level(job->own_log_level);
        exit_code = run_checked(call, job, check_words, &signals, &failure);
    }
    pl_failure_close(&failure);
    /* signals stay blocked: a signal that arrives now must not change what the failure or success file says */
    return exit_code;
}

int pl_train_main(const struct pl_invocation *call)
{
    return run_train(call, &call->words, NULL);
}

int pl_train_refuse(const struct pl_invocation *call, bool has_job)
{
    struct pl_failure failure;
    struct pl_error error = PL_ERROR_NONE;

    pl_error_set(&error, PL_INVALID,
                 "train takes no arguments, found '%.200s'; the program gets its arguments from "
                 "/opt/ml/input/config/hyperparameters.json, and `paceline -- COMMAND [ARGUMENT...]` runs another "
                 "command",
                 call->words.items[0]);
    if (!has_job) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    open_outputs(call, &failure);
    report_unreadable_job(&error, &failure);
    pl_failure_close(&failure);
    return PL_EXIT_USAGE;
}

int pl_check_main(const struct pl_invocation *call)
{
    return run_train(call, NULL, &call->words);
}
