/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a sweep: trials.jsonl, a table, the best model with its hyperparameters, and a line for the
 * platform. */
#include "programs/sweep/state.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "programs/sweep/results.h"
#include "programs/sweep/trial_folder.h"

#include <string.h>
#include <unistd.h>

enum { TABLE_ROWS = 20 };

#define RESULT_NS (5 * PL_NS_PER_S) /* how long a blocked reader of the log is waited for */

static enum pl_status write_file(const char *folder, const char *name, const struct pl_text *text,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", folder, name);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_file_write_atomic(pl_text_string(&path), text->data, text->length, 0644, reterr);
}

static void log_lines(const char *text)
{
    while (*text != '\0') {
        const size_t bytes = strcspn(text, "\n");

        pl_log(PL_LOG_INFO, "%.*s", (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
}

enum pl_status pl_sweep_result_write_trials(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text lines = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE;

    PL_TRY(pl_sweep_results_jsonl(sweep->space, sweep->scheduler, sweep->records, &lines, reterr));
    pl_sweep_results_table(sweep->space, sweep->scheduler, sweep->records, TABLE_ROWS, &table);
    PL_TRY(pl_text_check(&table, reterr));
    log_lines(pl_text_string(&table));
    return write_file(sweep->job->paths.output_data, "trials.jsonl", &lines, reterr);
}

/* Prints the best value: the platform reads it from the log by a regular expression. If nobody reads the log, that is
 * no failure. */
static enum pl_status print_best(const struct pl_sweep *sweep, size_t best, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    PL_AUTO_CLOSE int own_fd = pl_file_open_own(STDOUT_FILENO);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_text_printf(&line, "best_%s=", sweep->space->metric_name);
    pl_python_json_print_double(pl_scheduler_progress(sweep->scheduler, best)->best, &line);
    pl_text_printf(&line, " trial=%zu\n", best);
    PL_TRY(pl_text_check(&line, reterr));
    status = pl_file_write_by(own_fd >= 0 ? own_fd : STDOUT_FILENO, line.data, line.length,
                              pl_deadline_after_ns(RESULT_NS), "standard output", &error);
    if (status == PL_TIMEOUT) {
        pl_log_error(&error, "printing the line with the best value");
        return PL_OK;
    }
    if (status != PL_OK && reterr) {
        *reterr = error;
    }
    return status;
}

/* Writes the results; the file of hyperparameters has a name that no program gives a file of its model. */
static enum pl_status write_result(struct pl_sweep *sweep, size_t best, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text values = PL_TEXT_NONE;

    PL_TRY(pl_sweep_result_write_trials(sweep, reterr));
    pl_text_printf(&values, "%s\n", sweep->space->trials[best].hyperparameters);
    PL_TRY(pl_text_check(&values, reterr));
    PL_TRY(pl_file_make_dirs(sweep->job->paths.model, 0755, reterr));
    PL_TRY(write_file(sweep->job->paths.model, "sweep-hyperparameters.json", &values, reterr));
    return print_best(sweep, best, reterr);
}

/* Removes the folders of the other trials that are over. The best trial's model stays in its own folder: a job that is
 * started again in a new container copies it from there, however this job ends. A trial that pauses keeps its folders:
 * if a later job adds trials, it may be promoted. If that is the best trial it may then fail, and another one is the
 * best. */
static void forget_others(struct pl_sweep *sweep, size_t best)
{
    if (!pl_sweep_trials_is_over(sweep, best)) {
        return;
    }
    for (size_t trial = 0; trial < sweep->space->trials_count; trial++) {
        if (!sweep->records[trial].host || !pl_sweep_trials_is_over(sweep, trial)) {
            continue;
        }
        if (trial != best && !sweep->runs[trial].model_gone) {
            pl_sweep_hosts_forget_trial(sweep, (int)trial, true);
        }
        if (!sweep->runs[trial].checkpoints_gone) {
            pl_sweep_hosts_forget_trial(sweep, (int)trial, false);
        }
    }
}

void pl_sweep_result_note_model(struct pl_sweep *sweep, const char *error)
{
    struct pl_error write_error = PL_ERROR_NONE;
    size_t best = 0;

    if (!pl_sweep_results_best(sweep->space, sweep->scheduler, &best)) {
        best = sweep->space->trials_count; /* the model was in place when this sweep began */
    } else if (error) {
        if (pl_sweep_result_write_trials(sweep, &write_error) != PL_OK) {
            pl_log_error(&write_error, "writing trials.jsonl");
        }
        pl_sweep_fail(sweep, "the model of the best trial, %zu, cannot be the job's model: %s", best, error);
        if (sweep->full) {
            pl_log(PL_LOG_ERROR, "the model of trial %zu: %s", best, error);
        }
    } else if (write_result(sweep, best, &write_error) != PL_OK) {
        pl_sweep_fail_status(sweep, write_error.status, &write_error);
    } else if (!sweep->full) {
        forget_others(sweep, best);
    }
    sweep->over = true;
}

/* Fails the sweep: without any value there is no best trial. */
static void fail_without_best(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    if (pl_sweep_result_write_trials(sweep, &error) != PL_OK) {
        pl_log_error(&error, "writing trials.jsonl");
    }
    sweep->over = true;
    if (sweep->first_failed >= 0 && sweep->records[sweep->first_failed].reason) {
        pl_sweep_fail(sweep, "no trial has succeeded with a value of the metric '%s'; trial %d: %s",
                      sweep->space->metric_name, sweep->first_failed, sweep->records[sweep->first_failed].reason);
        return;
    }
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        if (pl_scheduler_progress(sweep->scheduler, i)->has_step) {
            pl_sweep_fail(sweep, "no trial has printed a finite value of the metric '%s': all values were nan or inf",
                          sweep->space->metric_name);
            return;
        }
    }
    pl_sweep_fail(sweep,
                  "no trial that succeeded has printed the metric '%s': expected a line in which the regular "
                  "expression %.300s finds a number",
                  sweep->space->metric_name, sweep->space->metric_regex);
}

void pl_sweep_result_begin(struct pl_sweep *sweep)
{
    size_t best;
    int host;

    pl_file_close_at(&sweep->room.result_fd);
    if (!pl_sweep_results_best(sweep->space, sweep->scheduler, &best)) {
        fail_without_best(sweep);
    } else if (!sweep->space->model) {
        pl_sweep_result_note_model(sweep, NULL);
    } else {
        host = sweep->records[best].host ? pl_sweep_hosts_find(sweep, sweep->records[best].host) : 0;
        pl_sweep_move_begin(sweep, (int)best, PL_SWEEP_MODEL, host > 0 ? host : 0, 0);
    }
}
