/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline sweep --dry-run [FILE]                     print the trials of a specification; run nothing
 * paceline-sweep --look PACELINE -- [COMMAND...]      succeed if the job's sweep can run on this host
 * paceline-sweep --describe PACELINE -- [COMMAND...]  print what `paceline plan` shows of the sweep
 * paceline-sweep --run PACELINE -- [COMMAND...]       run it: the program of the job on its master
 *
 * PACELINE is the front binary, which runs each trial. COMMAND is the command that the job runs instead of a program.
 */
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/verbs.h"
#include "programs/sweep/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum pl_status read_job(const struct pl_environment *environment, const char *self_path,
                               const struct pl_strv *command, struct pl_job **ret_job,
                               struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_TRY(pl_job_new(environment, self_path, command, ret_job, reterr));
    return pl_sweep_space_of_job(*ret_job, ret_space, reterr);
}

static enum pl_status print(const struct pl_text *text, struct pl_error *reterr)
{
    PL_TRY(pl_text_check(text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, text->data, text->length, "standard output", reterr);
}

static enum pl_status print_trials(const struct pl_environment *environment, const char *path, struct pl_error *reterr)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(path ? pl_sweep_space_read(path, &space, reterr) : read_job(environment, "", NULL, &job, &space, reterr));
    for (size_t i = 0; i < space->trials_count; i++) {
        pl_text_printf(&text, "{\"trial\": %zu, \"point\": %zu, \"hyperparameters\": %s}\n", i, space->trials[i].point,
                       space->trials[i].hyperparameters);
    }
    return print(&text, reterr);
}

static enum pl_status describe(const struct pl_sweep_space *space, const struct pl_slots *slots,
                               struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *object = pl_python_json_new_object();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_python_json_set(object, "trials", pl_python_json_new_int64((int64_t)space->trials_count), reterr));
    PL_TRY(pl_python_json_set(object, "processes", pl_python_json_new_int64(space->processes), reterr));
    PL_TRY(pl_python_json_set(object, "slots", pl_python_json_new_int64(slots->count), reterr));
    PL_TRY(pl_python_json_set(object, "cpus", pl_python_json_new_int64(slots->cpus), reterr));
    PL_TRY(pl_python_json_set(object, "gpus", pl_python_json_new_int64(slots->gpus), reterr));
    PL_TRY(pl_python_json_set(object, "metric", pl_python_json_new_string(space->metric_name), reterr));
    pl_python_json_print(object, PL_PYTHON_JSON_SPACED, &text);
    return print(&text, reterr);
}

/* Runs the part that process 1 asks for by `option`; `words` are the arguments after it. */
static enum pl_status run_part(const struct pl_environment *environment, const char *option, int count, char **words,
                               int *ret_code, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_slots slots;

    for (int i = 2; i < count; i++) {
        pl_strv_add(&command, words[i]);
    }
    if (strcmp(option, "--run") == 0) {
        PL_TRY(pl_signals_open(&signals, reterr));
    }
    PL_TRY(read_job(environment, words[0], &command, &job, &space, reterr));
    if (strcmp(option, "--run") == 0) {
        *ret_code = pl_sweep_run(job, &signals);
        return PL_OK;
    }
    PL_TRY(pl_slots_of_job(job, space, &slots, reterr));
    return strcmp(option, "--describe") == 0 ? describe(space, &slots, reterr) : PL_OK;
}

static bool is_part(int argc, char **argv)
{
    static const char *const options[] = {"--look", "--describe", "--run"};
    bool found = false;

    for (size_t i = 0; argc >= 4 && strcmp(argv[3], "--") == 0 && i < PL_ARRAY_ITEMS(options) && !found; i++) {
        found = strcmp(argv[1], options[i]) == 0;
    }
    return found;
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    int code = EXIT_SUCCESS;
    enum pl_status status;

    pl_log_open("paceline-sweep");
    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "starting");
        return EXIT_FAILURE;
    }
    if (is_part(argc, argv)) {
        status = run_part(environment, argv[1], argc - 2, argv + 2, &code, &error);
        if (status != PL_OK) {
            pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
        }
        return status == PL_OK ? code : EXIT_FAILURE;
    }
    pl_log_open("paceline");
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        pl_verbs_print_help("sweep", stdout);
        return EXIT_SUCCESS;
    }
    if (argc < 2 || argc > 3 || strcmp(argv[1], "--dry-run") != 0) {
        pl_log(PL_LOG_ERROR, "sweep: expected --dry-run [FILE]%s%s%s", argc > 1 ? ", found '" : ", found nothing",
               argc > 1 ? argv[argc > 3 ? 3 : 1] : "", argc > 1 ? "'" : "");
        return PL_EXIT_USAGE;
    }
    if (print_trials(environment, argc == 3 ? argv[2] : NULL, &error) != PL_OK) {
        pl_log_error(&error, "sweep");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
