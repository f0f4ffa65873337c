/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives the files of version 3 of the SDK precedence over hyperparameters, and notes what has no effect. The level of
 * the log is here too: a setting of Paceline, or the one that the SDK sends.
 */
#include "entrypoint/job/job.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/hyperparameters.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char requirements_name[] = "requirements.txt";

/*
 * Whether the SDK's script has started this process, or a program that Paceline started from the same files: both set
 * the variable. In that case the command in the files is running already, and this process is a part of it.
 */
static bool is_inside(const struct pl_job *job)
{
    return pl_environment_get(job->process, "SM_ENTRY_SCRIPT") && !job->drivers.names_paceline;
}

/* Warn if the SDK's script has started Paceline: the image's shell would have started it as process 1. The message says
 * what is lost. */
static void note_script(struct pl_job *job)
{
    const char *start = pl_environment_get_or(job->process, "BASH_ENV", NULL);
    const bool by_script = pl_environment_get(job->process, "SM_ENTRY_SCRIPT") &&
                           !pl_environment_get(job->process, "SM_MODULE_DIR"); /* Paceline also sets this variable */

    if (by_script && getpid() != 1) {
        pl_strv_printf(
            &job->conflicts,
            "the SDK's script sm_train.sh has started Paceline, which is not process 1%s%.200s%s: it does not get a "
            "stop signal, so no program has time to save; and the script needs python3 and pip",
            start ? " (the job's BASH_ENV is '" : "", start ? start : "", start ? "', in place of the image's)" : "");
    }
}

/* A number or a name of Python's logging. False for anything else. */
static bool read_python_level(const struct pl_python_json *value, enum pl_log_level *ret_level)
{
    static const struct {
        const char *name;
        double most; /* numbers up to here */
        enum pl_log_level level;
    } levels[] = {{"DEBUG", 10, PL_LOG_DEBUG},
                  {"INFO", 20, PL_LOG_INFO},
                  {"WARNING", 30, PL_LOG_WARNING},
                  {"ERROR", 40, PL_LOG_ERROR},
                  {"CRITICAL", 50, PL_LOG_ERROR}};
    const bool is_text = pl_python_json_kind(value) == PL_PYTHON_JSON_STRING;
    int64_t whole;
    double number;

    if (is_text ? !pl_text_number(pl_python_json_text(value), &number)
                : pl_python_json_int64(value, &whole, NULL) != PL_OK) {
        number = -1;
    } else if (!is_text) {
        number = (double)whole;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(levels); i++) {
        if ((number >= 0 && number <= levels[i].most) ||
            (is_text && strcmp(pl_python_json_text(value), levels[i].name) == 0)) {
            *ret_level = levels[i].level;
            return true;
        }
    }
    return false;
}

void pl_precedence_log(struct pl_job *job)
{
    static const char name[] = "sagemaker_container_log_level";
    const struct pl_python_json *value = pl_python_json_member(job->platform, name);

    job->own_log_level = job->settings.log_level;
    if (!job->settings.names_log_level && value && pl_python_json_kind(value) != PL_PYTHON_JSON_NULL &&
        !read_python_level(value, &job->own_log_level)) {
        pl_strv_printf(&job->conflicts,
                       "hyperparameter %s has no effect on Paceline's own lines: expected a number of Python's "
                       "logging from 0 to 50; PACELINE_LOG=debug, info, warning or error sets them too",
                       name);
    }
}

static enum pl_status use_code(struct pl_job *job, struct pl_error *reterr)
{
    const struct pl_drivers *drivers = &job->drivers;
    char here[4096];

    if (drivers->source_dir) {
        job->paths.code = pl_pool_printf(&job->pool, "%s/code", job->paths.input_data);
    } else if (drivers->command && !drivers->names_paceline) {
        /* without code, a command runs in the image's working directory */
        if (!getcwd(here, sizeof(here))) {
            return pl_error_errno(reterr, "asking for the working directory");
        }
        job->paths.code = pl_pool_string(&job->pool, here);
    } else {
        return PL_OK;
    }
    if (job->submit_uri && strcmp(job->submit_uri, job->paths.code) != 0) {
        pl_strv_printf(&job->conflicts,
                       "the code is that of sourcecode.json, in %s; the hyperparameter sagemaker_submit_directory, "
                       "'%.200s', has no effect",
                       job->paths.code, job->submit_uri);
    }
    job->submit_uri = NULL;
    job->module_dir = job->paths.code;
    return PL_OK;
}

/* Note that the program `chosen`, from the hyperparameter or the variable, is replaced by `what` of sourcecode.json. */
static void note_program(struct pl_job *job, const char *what, const char *chosen)
{
    const bool by_variable = pl_environment_get_or(job->process, "SAGEMAKER_PROGRAM", NULL);

    if (job->program && strcmp(job->program, chosen) != 0) {
        pl_strv_printf(&job->conflicts,
                       "sourcecode.json names the %s '%.200s', which is used; %s, '%.200s', has no effect", what,
                       chosen, by_variable ? "the variable SAGEMAKER_PROGRAM" : "the hyperparameter sagemaker_program",
                       job->program);
    }
}

/* Run the command as the SDK's script does: by bash, which ends at the first command that fails. */
static enum pl_status use_command(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *shell = NULL;
    const char *path = pl_environment_get(job->process, "PATH");

    note_program(job, "command", job->drivers.command);
    if (pl_file_find_program("bash", path, &shell, NULL) != PL_OK) {
        PL_TRY(pl_file_find_program("sh", path, &shell, reterr));
    }
    pl_strv_add(&job->command, shell, "-e", "-c", job->drivers.command);
    return PL_OK;
}

/* The whole script becomes the program: because the driver does not belong to the SDK, or because the user asks for the
 * SDK's driver. */
static void use_script(struct pl_job *job, bool wanted)
{
    struct pl_drivers *drivers = &job->drivers;

    pl_strv_printf(&job->conflicts,
                   "%s%.200s: the SDK's script %s runs, which needs bash, python3 and pip, on each host for itself",
                   wanted ? "PACELINE_SDK_DRIVERS is on" : "distributed.json has a driver of its own, ",
                   wanted ? "" : drivers->driver, drivers->script);
    drivers->launch = PL_DRIVERS_LAUNCH_OTHER;
    pl_strv_add(&job->command, "/bin/bash", drivers->script);
}

static enum pl_status choose_program(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_drivers *drivers = &job->drivers;
    const bool wanted = job->settings.sdk_drivers && !drivers->names_paceline;

    if (job->command.count > 0) {
        drivers->entry_script = NULL;
    } else if (wanted || drivers->launch == PL_DRIVERS_LAUNCH_OTHER) {
        use_script(job, wanted);
    } else if (drivers->command) {
        return use_command(job, reterr);
    } else if (drivers->entry_script) {
        note_program(job, "entry script", drivers->entry_script);
        job->program = drivers->entry_script;
        job->overridden_program = NULL;
    }
    return PL_OK;
}

enum pl_status pl_precedence_program(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_drivers *drivers = &job->drivers;

    job->requirements = requirements_name;
    if (!drivers->source) {
        return PL_OK;
    }
    if (job->settings.trial) { /* in a trial, the sweep decides how many processes it has */
        drivers->launch = PL_DRIVERS_LAUNCH_OPEN;
        drivers->processes_per_host = 0;
        drivers->mpi_options = NULL;
        drivers->ignores_driver = false;
    }
    note_script(job);
    PL_TRY(use_code(job, reterr));
    if (is_inside(job)) {
        drivers->entry_script = NULL;
        drivers->launch = PL_DRIVERS_LAUNCH_OPEN;
        return PL_OK;
    }
    PL_TRY(choose_program(job, reterr));
    if (drivers->ignores_driver) {
        pl_strv_add(&job->conflicts,
                    "sourcecode.json has a command, which each host runs once: distributed.json has no effect");
    }
    if (drivers->requirements && strcmp(drivers->requirements, "auto") != 0) {
        job->requirements = drivers->requirements;
    } else if (!drivers->requirements && !drivers->names_paceline) {
        job->requirements = NULL;
    }
    if (drivers->entry_script) {
        pl_job_set_arguments(job);
    }
    return PL_OK;
}

/* Note the hyperparameters that would switch on another launch. */
static void note_launches(struct pl_job *job, const char *chosen, unsigned same)
{
    const struct pl_hyperparameters_launch *other = pl_hyperparameters_launch_names;

    for (; other->name; other++) {
        if (other->launch != same && pl_hyperparameters_is_true(pl_python_json_member(job->framework, other->name))) {
            pl_strv_printf(&job->conflicts,
                           "distributed.json asks for %s; the hyperparameter %s has no effect: remove one of them",
                           chosen, other->name);
        }
    }
}

static void note_processes(struct pl_job *job)
{
    static const char name[] = "sagemaker_mpi_num_of_processes_per_host";
    const struct pl_python_json *named = pl_python_json_member(job->framework, name);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (job->drivers.processes_per_host > 0 && named) {
        pl_python_json_print(named, PL_PYTHON_JSON_SPACED, &text);
        pl_strv_printf(&job->conflicts,
                       "distributed.json asks for %d processes on each host; the hyperparameter %s, %.60s, has no "
                       "effect",
                       job->drivers.processes_per_host, name, pl_text_string(&text));
    }
}

void pl_precedence_launch(struct pl_job *job)
{
    static const struct {
        const char *text;
        unsigned launch;
    } launches[] = {[PL_DRIVERS_LAUNCH_MPI] = {"MPI", PL_JOB_MPI},
                    [PL_DRIVERS_LAUNCH_TORCHRUN] = {"torchrun", PL_JOB_TORCHRUN},
                    [PL_DRIVERS_LAUNCH_OTHER] = {"a launch of its own", 0}};

    if (job->drivers.launch != PL_DRIVERS_LAUNCH_OPEN) {
        note_launches(job, launches[job->drivers.launch].text, launches[job->drivers.launch].launch);
        job->launches = launches[job->drivers.launch].launch;
        note_processes(job);
    }
}
