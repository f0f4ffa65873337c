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
#include "base/options.h"
#include "entrypoint/verbs.h"
#include "programs/sweep/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

    if (path) {
        PL_TRY(pl_sweep_space_read(path, &space, reterr));
    } else {
        PL_TRY(pl_job_new(environment, "", NULL, &job, reterr));
        PL_TRY(pl_sweep_space_of_job(job, &space, reterr));
    }
    for (size_t i = 0; i < space->trials_count; i++) {
        pl_text_printf(&text, "{\"trial\": %zu, \"point\": %zu, \"hyperparameters\": ", i, i % space->points_count);
        pl_sweep_space_print(space, i, &text);
        pl_text_append(&text, "}\n");
    }
    return print(&text, reterr);
}

static enum pl_status describe(const struct pl_sweep_space *space, const struct pl_slots *slots,
                               struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text,
                   "{\"trials\": %zu, \"processes\": %d, \"slots\": %d, \"cpus\": %d, \"gpus\": %d, \"metric\": ",
                   space->trials_count, space->processes, slots->count, slots->cpus, slots->gpus);
    pl_python_json_print_string(space->metric_name, &text);
    pl_text_append(&text, "}");
    return print(&text, reterr);
}

/* Runs the part that process 1 asks for by an option; `words` are the option, PACELINE, "--" and COMMAND. */
static enum pl_status run_part(const struct pl_environment *environment, char **words, int *ret_code,
                               struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_slots slots;

    pl_strv_add_list(&command, (const char *const *)words + 3);
    if (strcmp(words[0], "--run") == 0) {
        PL_TRY(pl_signals_open(&signals, reterr));
        PL_TRY(pl_job_new(environment, words[1], &command, &job, reterr));
        *ret_code = pl_sweep_run(job, &signals);
        return PL_OK;
    }
    PL_TRY(pl_job_new(environment, words[1], &command, &job, reterr));
    PL_TRY(pl_sweep_space_of_job(job, &space, reterr));
    PL_TRY(pl_slots_of_job(job, space, &slots, reterr));
    return strcmp(words[0], "--describe") == 0 ? describe(space, &slots, reterr) : PL_OK;
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const bool is_part =
        argc >= 4 && strcmp(argv[3], "--") == 0 &&
        (strcmp(argv[1], "--look") == 0 || strcmp(argv[1], "--describe") == 0 || strcmp(argv[1], "--run") == 0);
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    int code = EXIT_SUCCESS;

    pl_log_open(is_part ? "paceline-sweep" : "paceline");
    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "starting");
        return EXIT_FAILURE;
    }
    if (is_part) {
        if (run_part(environment, argv + 1, &code, &error) != PL_OK) {
            pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
            return EXIT_FAILURE;
        }
        return code;
    }
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        pl_verbs_print_help("sweep", stdout);
        return EXIT_SUCCESS;
    }
    if (argc < 2 || argc > 3 || strcmp(argv[1], "--dry-run") != 0) {
        pl_log(PL_LOG_ERROR, "sweep: expected --dry-run [FILE]%s%s%s", argc > 1 ? ", found '" : ", found nothing",
               argc > 1 ? argv[argc > 3 ? 3 : 1] : "", argc > 1 ? "'" : "");
        return PL_EXIT_USAGE;
    }
    if (print_trials(environment, argv[2], &error) != PL_OK) { /* NULL without FILE */
        pl_log_error(&error, "sweep");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
