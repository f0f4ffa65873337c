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
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "programs/sweep/sweep.h"

#include <stdio.h>
#include <stdlib.h>
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

struct options {
    bool dry_run;
    const char *look, *describe, *run; /* the value of --look, --describe or --run: PACELINE; else NULL */
};

#define PART_OPTIONS(ROW)                                                                                              \
    ROW("--look", "PACELINE", NULL, PL_TO(look))                                                                       \
    ROW("--describe", "PACELINE", NULL, PL_TO(describe))                                                               \
    ROW("--run", "PACELINE", NULL, PL_TO(run))
#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_SWEEP_OPTIONS(PL_OPTION) PART_OPTIONS(PL_OPTION) PL_OPTIONS_END};

/* Does what process 1 asks for with --run, --describe or --look. `words` are COMMAND. */
static enum pl_status run_part(const struct pl_environment *environment, const struct options *options, char **words,
                               int *ret_code, struct pl_error *reterr)
{
    const char *paceline = options->run ? options->run : options->describe ? options->describe : options->look;
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_slots slots;

    pl_strv_add_list(&command, (const char *const *)words);
    if (options->run) {
        PL_TRY(pl_signals_open(&signals, reterr));
        PL_TRY(pl_job_new(environment, paceline, &command, &job, reterr));
        *ret_code = pl_sweep_run(job, &signals);
        return PL_OK;
    }
    PL_TRY(pl_job_new(environment, paceline, &command, &job, reterr));
    PL_TRY(pl_sweep_space_of_job(job, &space, reterr));
    PL_TRY(pl_slots_of_job(job, space, &slots, reterr));
    return options->describe ? describe(space, &slots, reterr) : pl_job_check_checkpoints(job, reterr);
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct options options = {.dry_run = false};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_verbs_read("sweep", table, argc, argv, &options, &error);
    const bool is_part = options.look || options.describe || options.run;
    int code = EXIT_SUCCESS;

    pl_log_open(is_part ? "paceline-sweep" : "paceline");
    if (status == PL_OK && !is_part && (!options.dry_run || argc - optind > 1)) {
        const char *found = !options.dry_run ? argv[1] : argv[optind + 1];

        status = pl_error_set(&error, PL_INVALID, "sweep: expected --dry-run [FILE]%s%s%s",
                              found ? ", found '" : ", found nothing", found ? found : "", found ? "'" : "");
    }
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "cannot start");
        return EXIT_FAILURE;
    }
    if (is_part) {
        if (run_part(environment, &options, argv + optind, &code, &error) != PL_OK) {
            pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
            return EXIT_FAILURE;
        }
        return code;
    }
    if (print_trials(environment, argv[optind], &error) != PL_OK) { /* NULL without FILE */
        pl_log_error(&error, "sweep");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
