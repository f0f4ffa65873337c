/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline sweep --dry-run`: the trials that a specification means, and nothing else. */
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/job/job.h"
#include "entrypoint/subcommand.h"
#include "entrypoint/sweep/job_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: paceline sweep --dry-run [FILE]\n"
    "\n"
    "Print the trials of a job that trains several models, one JSON object a line, and start nothing.\n"
    "\n"
    "FILE holds the specification, a JSON object; without it, it is that of the job that /opt/ml/input/config\n"
    "describes: the variable PACELINE_SWEEP or the hyperparameter paceline_sweep. A sweep itself runs as the job\n"
    "that asks for it, by `paceline train`.\n";

static enum pl_status read_job(const struct pl_invocation *call, struct pl_sweep_space **ret_space,
                               struct pl_error *reterr)
{
    PL_AUTO_JOB struct pl_job *job = NULL;

    PL_TRY(pl_job_new(call->environment, call->self_path, NULL, &job, reterr));
    PL_TRY(pl_sweep_space_of_job(job, ret_space, reterr));
    return *ret_space != NULL ? PL_OK
                              : pl_error_set(reterr, PL_NOT_FOUND,
                                             "the job asks for none: expected PACELINE_SWEEP, the hyperparameter "
                                             "paceline_sweep, or a file as an argument");
}

static enum pl_status print_trials(const struct pl_invocation *call, const char *path, struct pl_error *reterr)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(path != NULL ? pl_sweep_space_read(path, &space, reterr) : read_job(call, &space, reterr));
    for (size_t i = 0; i < space->trials_count; i++) {
        pl_text_printf(&text, "{\"trial\": %zu, \"point\": %zu, \"hyperparameters\": %s}\n", i, space->trials[i].point,
                       space->trials[i].hyperparameters);
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "standard output", reterr);
}

int pl_subcommand_sweep_main(const struct pl_invocation *call)
{
    const struct pl_strv *words = &call->words;
    struct pl_error error = PL_ERROR_NONE;

    if (words->count == 1 && (strcmp(words->items[0], "--help") == 0 || strcmp(words->items[0], "-h") == 0)) {
        (void)fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (words->count == 0 || words->count > 2 || strcmp(words->items[0], "--dry-run") != 0) {
        pl_log(PL_LOG_ERROR, "sweep: expected --dry-run [FILE]%s%s%s",
               words->count > 0 ? ", found '" : ", found nothing",
               words->count > 0 ? words->items[words->count > 2 ? 2 : 0] : "", words->count > 0 ? "'" : "");
        return PL_EXIT_USAGE;
    }
    if (print_trials(call, words->count == 2 ? words->items[1] : NULL, &error) != PL_OK) {
        pl_log_error(&error, "no sweep");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
