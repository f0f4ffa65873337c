/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads sourcecode.json and distributed.json, which version 3 of the SageMaker SDK puts into the channel sm_drivers,
 * gives them precedence over hyperparameters, and notes what has no effect.
 */
#include "entrypoint/job/drivers.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/config.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/pyrepr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCRIPT_BYTES = 1 << 20 };

static bool is_argument(const struct pl_python_json *item)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(item);

    return kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT ||
           (kind == PL_PYTHON_JSON_STRING && !strstr(pl_python_json_text(item), "\xC0\x80"));
}

/* Append the command's list `args`; each item is one word. */
static enum pl_status append_arguments(const char *path, const struct pl_drivers *drivers, struct pl_text *text,
                                       struct pl_error *reterr)
{
    const struct pl_python_json *list = NULL;
    const struct pl_config_member args = {"args", .list = &list, .is_optional = true};

    PL_TRY(pl_config_members(path, drivers->source, &args, 1, reterr));
    PL_PYTHON_JSON_EACH(item, list) {
        PL_AUTO_TEXT struct pl_text word = PL_TEXT_NONE;

        if (!is_argument(item)) {
            return pl_config_wrong(path, item, "a string or a number as an argument of the command", reterr);
        }
        pl_pyrepr_append_argument(item, &word);
        PL_TRY(pl_text_check(&word, reterr));
        pl_text_append_char(text, ' ');
        pl_text_append_quoted(text, pl_text_string(&word));
    }
    return PL_OK;
}

/* Returns the text after `word`, if `text` begins with the word and a blank or the end follows; else NULL. */
static const char *after_word(const char *text, const char *word)
{
    const size_t length = strlen(word);

    if (strncmp(text, word, length) != 0 || (text[length] != '\0' && !strchr(PL_STRV_BLANKS, text[length]))) {
        return NULL;
    }
    return text + length + strspn(text + length, PL_STRV_BLANKS);
}

/*
 * A command may name Paceline itself, for an image whose shell starts the SDK's script. With `paceline train` the
 * hyperparameters name the program. With `paceline -- COMMAND`, COMMAND is the command. If the command were run
 * unchanged, it would start itself without end.
 */
static const char *without_paceline(const char *command, bool *ret_named)
{
    const char *text = command + strspn(command, PL_STRV_BLANKS);
    const char *rest = after_word(text, "exec");

    rest = after_word(rest ? rest : text, "paceline");
    *ret_named = false;
    if (!rest) {
        return command;
    }
    text = after_word(rest, "--");
    if (text && *text != '\0') {
        *ret_named = true;
        return text;
    }
    text = after_word(rest, "train");
    *ret_named = *rest == '\0' || (text && !strpbrk(text, ";&|"));
    return *ret_named ? NULL : command;
}

static enum pl_status read_source(const char *path, struct pl_pool *pool, struct pl_drivers *drivers,
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *command = NULL;
    const struct pl_config_member members[] = {
        {"source_dir", .text = &drivers->source_dir, .is_optional = true},
        {"requirements", .text = &drivers->requirements, .is_optional = true},
        {"entry_script", .text = &drivers->entry_script, .is_optional = true},
        {"command", .text = &command, .is_optional = true},
    };

    PL_TRY(pl_config_members(path, drivers->source, members, PL_ARRAY_ITEMS(members), reterr));
    if (drivers->source_dir && pl_text_ends_with(drivers->source_dir, ".tar.gz")) {
        drivers->archive = basename(drivers->source_dir);
    }
    if (!command || command[strspn(command, PL_STRV_BLANKS)] == '\0') {
        return PL_OK;
    }
    command = without_paceline(command, &drivers->names_paceline);
    if (!command) {
        return PL_OK;
    }
    drivers->entry_script = NULL;
    pl_text_append(&text, command);
    PL_TRY(append_arguments(path, drivers, &text, reterr));
    PL_TRY(pl_text_check(&text, reterr));
    drivers->command = pl_pool_string(pool, pl_text_string(&text));
    return PL_OK;
}

/* Read a number, or a text that is a number. 0 counts as null. */
static enum pl_status read_processes(const char *path, struct pl_drivers *drivers, struct pl_error *reterr)
{
    const struct pl_python_json *node = pl_python_json_member(drivers->distributed, "process_count_per_node");
    char *end = NULL;
    long value;

    if (!node || pl_python_json_kind(node) == PL_PYTHON_JSON_NULL) {
        return PL_OK;
    }
    if (pl_python_json_kind(node) == PL_PYTHON_JSON_INT || pl_python_json_kind(node) == PL_PYTHON_JSON_STRING) {
        const char *text = pl_python_json_text(node);

        value = strtol(text, &end, 10);
        if (end != text && *end == '\0' && value >= 0 && value <= PL_JOB_PROCESSES_MAX) {
            drivers->processes_per_host = (int)value;
            return PL_OK;
        }
    }
    return pl_config_wrong(path, node, "the processes of one host, a whole number from 1 to 65536, or null", reterr);
}

/* Read the name in the last "distributed_drivers/NAME" of sm_train.sh. */
static enum pl_status read_driver(struct pl_pool *pool, struct pl_drivers *drivers, struct pl_error *reterr)
{
    static const char folder[] = "/distributed_drivers/";
    PL_AUTO_FREE char *text = NULL;
    const char *name = "";
    enum pl_status status = pl_file_read(drivers->script, SCRIPT_BYTES, &text, NULL, reterr);

    if (status != PL_OK && status != PL_NOT_FOUND) {
        return status;
    }
    for (const char *at = text ? strstr(text, folder) : NULL; at; at = strstr(name, folder)) {
        name = at + strlen(folder);
    }
    drivers->driver = pl_pool_string_n(pool, name, strcspn(name, PL_STRV_BLANKS));
    return PL_OK;
}

/* Choose the launch by the driver's name if sm_train.sh has one, else by the settings that only one driver has. */
static enum pl_status choose_launch(const char *path, struct pl_drivers *drivers, struct pl_error *reterr)
{
    const bool named = *drivers->driver != '\0' && strcmp(drivers->driver, "basic_script_driver.py") != 0;

    if (named ? strcmp(drivers->driver, "mpi_driver.py") == 0
              : !!pl_python_json_member(drivers->distributed, "mpi_additional_options")) {
        drivers->launch = PL_DRIVERS_LAUNCH_MPI;
    } else if (named ? strcmp(drivers->driver, "torchrun_driver.py") == 0
                     : !!pl_python_json_member(drivers->distributed, "smp")) {
        drivers->launch = PL_DRIVERS_LAUNCH_TORCHRUN;
    } else if (named) {
        drivers->launch = PL_DRIVERS_LAUNCH_OTHER;
    } else if (pl_python_json_count(drivers->distributed) > 0) {
        return pl_config_wrong(path, drivers->distributed,
                               "the settings of MPI (with mpi_additional_options), of Torchrun (with smp) or none",
                               reterr);
    }
    return PL_OK;
}

static enum pl_status read_distributed(struct pl_pool *pool, struct pl_drivers *drivers, struct pl_error *reterr)
{
    const char *path = pl_pool_printf(pool, "%s/distributed.json", drivers->directory);
    const struct pl_config_member options = {"mpi_additional_options", .list = &drivers->mpi_options,
                                             .is_optional = true};

    PL_TRY(pl_config_read(path, false, &drivers->distributed, reterr));
    if (drivers->command && !drivers->names_paceline) {
        drivers->ignores_driver = pl_python_json_count(drivers->distributed) > 0;
        return PL_OK;
    }
    PL_TRY(choose_launch(path, drivers, reterr));
    if (drivers->launch != PL_DRIVERS_LAUNCH_MPI && drivers->launch != PL_DRIVERS_LAUNCH_TORCHRUN) {
        return PL_OK;
    }
    PL_TRY(read_processes(path, drivers, reterr));
    PL_TRY(pl_config_members(path, drivers->distributed, &options, 1, reterr));
    return pl_config_check_names(path, drivers->mpi_options, "an option of mpirun as a string", reterr);
}

enum pl_status pl_drivers_read(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_drivers *drivers = &job->drivers;
    const char *path;
    enum pl_status status;

    drivers->directory = pl_pool_printf(&job->pool, "%s/sm_drivers", job->paths.input_data);
    drivers->script = pl_pool_printf(&job->pool, "%s/sm_train.sh", drivers->directory);
    path = pl_pool_printf(&job->pool, "%s/sourcecode.json", drivers->directory);
    status = pl_config_read(path, true, &drivers->source, reterr);
    if (status == PL_NOT_FOUND) {
        return PL_OK;
    }
    PL_TRY(status);
    PL_TRY(read_source(path, &job->pool, drivers, reterr));
    PL_TRY(read_driver(&job->pool, drivers, reterr));
    return read_distributed(&job->pool, drivers, reterr);
}

/*
 * Whether the SDK's script has started this process, or a program that Paceline started from the same files: both set
 * the variable. In that case the command in the files is running already, and this process is a part of it.
 */
static bool is_inside(const struct pl_job *job)
{
    return pl_environment_get(job->process, "SM_ENTRY_SCRIPT") && !job->drivers.names_paceline;
}

/* Warn if the SDK's script has started Paceline: the image's shell would have started it as process 1. The message says
 * what does not work then. */
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
            start ? " (the job's BASH_ENV is '" : "", start ? start : "", start ? "', instead of the image's)" : "");
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
            return pl_error_errno(reterr, "find the working directory");
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

enum pl_status pl_drivers_choose_program(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_drivers *drivers = &job->drivers;

    job->requirements = "requirements.txt";
    if (!drivers->source) {
        return PL_OK;
    }
    if (job->settings.trial) { /* the sweep decides how many processes a trial has */
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

void pl_drivers_choose_launch(struct pl_job *job)
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

void pl_drivers_done(struct pl_drivers *drivers)
{
    pl_python_json_free(drivers->source);
    pl_python_json_free(drivers->distributed);
    *drivers = (struct pl_drivers){.source = NULL};
}
