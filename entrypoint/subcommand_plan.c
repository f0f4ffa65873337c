/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `paceline plan` and `paceline env`: show what train would do. They run only the steps by which train looks before it
 * changes anything.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/check/check.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/options.h"
#include "entrypoint/subcommand.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/supervise.h"
#include "entrypoint/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Run the steps that only look, up to the first that changes something. Returns false if there is such a step. */
static bool run_looks(struct pl_supervisor *supervisor, const struct pl_launch_plan_steps *steps,
                      const struct pl_environment *environment, enum pl_status *status_at, struct pl_error *reterr)
{
    for (size_t i = 0; i < steps->count && *status_at == PL_OK; i++) {
        if (!steps->items[i].only_looks) {
            return false;
        }
        *status_at = pl_supervise_step(supervisor, &steps->items[i], pl_environment_strings(environment), reterr);
    }
    return true;
}

static bool begins_with_look(const struct pl_launch_plan_steps *steps)
{
    return steps->count > 0 && steps->items[0].only_looks;
}

/* Find out what train would find out before its first step that changes something, with the same messages. */
static enum pl_status look(const struct pl_job *job, const struct pl_launch_plan_steps *source,
                           const struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_supervisor supervisor;
    enum pl_status status = PL_OK;

    if (!begins_with_look(source) && (source->count > 0 || !begins_with_look(&plan->steps))) {
        return PL_OK;
    }
    PL_TRY(pl_signals_open(&signals, reterr));
    pl_supervise_open(&supervisor, job, &signals, NULL, &pl_host_calls);
    if (run_looks(&supervisor, source, job->process, &status, &error)) {
        run_looks(&supervisor, &plan->steps, plan->environment, &status, &error);
    }
    if (status != PL_OK) {
        pl_supervise_fail_status(&supervisor, status, &error);
        pl_supervise_failure_text(&supervisor, &text);
        status = pl_error_set(reterr, status, "%.*s", (int)strcspn(pl_text_string(&text), "\n"), pl_text_string(&text));
    }
    pl_supervise_close(&supervisor);
    pl_signals_restore(&signals);
    pl_file_close_at(&signals.fd);
    return status;
}

/* Get the object that the plan's own program has to show. */
static enum pl_status show(struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const struct pl_process_setup setup = {.argv = (const char *const *)plan->show.items,
                                           .environment = pl_environment_strings(plan->environment),
                                           .stdin_fd = -1,
                                           .stdout_fd = PL_PROCESS_ANSWER,
                                           .stderr_fd = -1};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const enum pl_status status = pl_process_run(&setup, PL_DEADLINE_NEVER, &text, reterr);

    if (status == PL_FAILED || (status == PL_OK && text.length == 0)) {
        return pl_error_set(reterr, PL_FAILED, "cannot print the plan of %s, see above", plan->launcher->name);
    }
    PL_TRY(status);
    return pl_python_json_parse(text.data, text.length, plan->launcher->name, &plan->shown, reterr);
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan_steps *source,
                                struct pl_launch_plan **ret_plan, struct pl_error *reterr)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;

    PL_TRY(pl_source_plan(job, source, reterr));
    PL_TRY(pl_launch_plan_new(job, &plan, reterr));
    if (plan->show.count > 0) {
        PL_TRY(show(plan, reterr));
    }
    *ret_plan = PL_TAKE(plan);
    return PL_OK;
}

/* Check the plan that train would execute. The printed plan is another one, made from the job with its secrets
 * masked. */
static enum pl_status check_plan(const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL, *plan_of_check = NULL;
    PL_AUTO_STEPS struct pl_launch_plan_steps source = {.count = 0};

    PL_TRY(pl_check_new(job, NULL, &check, reterr)); /* the check of the job's hosts, if the job wants one first */
    if (check) {
        PL_TRY(pl_launch_plan_new(check, &plan_of_check, reterr));
    }
    PL_TRY(make_plan(job, &source, &plan, reterr));
    return look(job, &source, plan, reterr);
}

static enum pl_status print_plan(const struct pl_invocation *call, char **command_words, bool json,
                                 struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    PL_AUTO_STEPS struct pl_launch_plan_steps source = {.count = 0};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_strv_add_list(&command, (const char *const *)command_words);
    PL_TRY(pl_job_new(call->environment, call->self_path, &command, &job, reterr));
    PL_TRY(check_plan(job, reterr));
    PL_TRY(pl_secrets_mask(job, reterr));
    PL_TRY(make_plan(job, &source, &plan, reterr));
    PL_TRY((json ? pl_launch_plan_print : pl_launch_plan_print_lines)(job, plan, &source, &text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "standard output", reterr);
}

struct options {
    bool json;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_PLAN_OPTIONS(PL_OPTION) PL_OPTIONS_THEN_PROGRAM};

int pl_subcommand_plan_main(const struct pl_invocation *call)
{
    struct options options = {.json = !isatty(STDOUT_FILENO)};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_verbs_read("plan", table, call->argc, call->argv, &options, &error);

    if (status == PL_OK && optind < call->argc && strcmp(call->argv[optind - 1], "--") != 0) {
        status =
            pl_error_set(&error, PL_INVALID, "plan: expected --json, or -- COMMAND..., found '%s'", call->argv[optind]);
    }
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (print_plan(call, call->argv + optind, options.json, &error) != PL_OK) {
        pl_log_error(&error, "cannot plan the job");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static enum pl_status print_env(const struct pl_invocation *call, struct pl_error *reterr)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv warnings = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_job_new(call->environment, call->self_path, NULL, &job, reterr));
    PL_TRY(pl_environment_new_empty(&environment, reterr));
    PL_TRY(pl_variables_add(job, environment, NULL, &warnings, reterr));
    PL_TRY(pl_interface_set(job, environment, reterr));
    for (size_t i = 0; i < warnings.count; i++) {
        pl_log(PL_LOG_WARNING, "%s", warnings.items[i]);
    }
    PL_TRY(pl_launch_plan_print_environment(environment, &text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "standard output", reterr);
}

int pl_subcommand_plan_env_main(const struct pl_invocation *call)
{
    struct pl_error error = PL_ERROR_NONE;

    if (call->words.count > 0) {
        pl_log(PL_LOG_ERROR, "env: expected nothing, found '%s'", call->words.items[0]);
        return PL_EXIT_USAGE;
    }
    if (print_env(call, &error) != PL_OK) {
        pl_log_error(&error, "cannot print the environment");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
