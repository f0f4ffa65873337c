/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sourcecode.json and distributed.json, which version 3 of the SageMaker SDK puts into the channel sm_drivers. */
#include "entrypoint/job/drivers.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/config.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/pyrepr.h"

#include <stdlib.h>
#include <string.h>

enum { SCRIPT_BYTES = 1 << 20 };

/* Get the string `name`; NULL if it is absent, null or empty. */
static enum pl_status read_text(const char *path, const struct pl_python_json *object, const char *name,
                                const char **ret_text, struct pl_error *reterr)
{
    PL_TRY(pl_config_string(path, object, name, "", ret_text, reterr));
    if (**ret_text == '\0') {
        *ret_text = NULL;
    }
    return PL_OK;
}

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

    PL_TRY(pl_config_member(path, drivers->source, "args", PL_PYTHON_JSON_ARRAY, false, &list, reterr));
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
 * hyperparameters name the program. With `paceline -- COMMAND` the rest is the command. If the command were run
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

static enum pl_status read_command(const char *path, struct pl_pool *pool, struct pl_drivers *drivers,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *command = NULL;

    PL_TRY(read_text(path, drivers->source, "command", &command, reterr));
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

static enum pl_status read_source(const char *path, struct pl_pool *pool, struct pl_drivers *drivers,
                                  struct pl_error *reterr)
{
    PL_TRY(read_text(path, drivers->source, "source_dir", &drivers->source_dir, reterr));
    PL_TRY(read_text(path, drivers->source, "requirements", &drivers->requirements, reterr));
    PL_TRY(read_text(path, drivers->source, "entry_script", &drivers->entry_script, reterr));
    return read_command(path, pool, drivers, reterr);
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
    PL_TRY(pl_config_member(path, drivers->distributed, "mpi_additional_options", PL_PYTHON_JSON_ARRAY, false,
                            &drivers->mpi_options, reterr));
    if (!drivers->mpi_options) {
        return PL_OK;
    }
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

const char *pl_drivers_archive(const struct pl_drivers *drivers)
{
    const char *name = drivers->source_dir;

    return name && pl_text_ends_with(name, ".tar.gz") ? basename(name) : NULL;
}

void pl_drivers_done(struct pl_drivers *drivers)
{
    pl_python_json_free(drivers->source);
    pl_python_json_free(drivers->distributed);
    *drivers = (struct pl_drivers){.source = NULL};
}
