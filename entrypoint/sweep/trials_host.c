/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, stops and ends the trials of this host. */
#include "entrypoint/sweep/trials_host.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/sweep/trial_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A trial's own stop ends before this host's. */
#define STOP_EARLIER_S 5.0
#define STOP_LEAST_S 3.0
#define STOP_SHARE 0.6

void pl_trials_host_done(struct pl_trials_host *host)
{
    pl_trials_host_abort(host);
}

static enum pl_status set_number(struct pl_environment *environment, const char *name, double number,
                                 struct pl_error *reterr)
{
    char text[32];

    snprintf(text, sizeof(text), "%.10g", number);
    return pl_environment_set(environment, name, text, reterr);
}

/* Libraries start a thread for every CPU of the host. */
static enum pl_status set_threads(const struct pl_trials_host *host, const struct pl_trial_order *order,
                                  struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const variables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    const int threads = host->slots.cpus / order->processes;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(variables); i++) {
        if (pl_environment_get(environment, variables[i]) == NULL) {
            PL_TRY(set_number(environment, variables[i], threads > 0 ? threads : 1, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status make_environment(const struct pl_trials_host *host, const struct pl_trial_order *order,
                                       const struct pl_trial_folder *folder, struct pl_environment **ret_environment,
                                       struct pl_error *reterr)
{
    static const char *const ours[] = {"PACELINE_SWEEP", "PACELINE_SWEEP_TIME_S", "PACELINE_CHECK",
                                       "PACELINE_CHECKPOINT_DIR", "PACELINE_PS"};
    const struct pl_job *job = host->supervisor->job;
    const double stop_s = pl_job_number(job, "PACELINE_STOP_S");
    const double own_stop_s =
        stop_s - STOP_EARLIER_S > stop_s * STOP_SHARE ? stop_s - STOP_EARLIER_S : stop_s * STOP_SHARE;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_TEXT struct pl_text visible = PL_TEXT_NONE;

    PL_TRY(pl_environment_new_copy(job->process, &environment, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(ours); i++) {
        pl_environment_unset(environment, ours[i]);
    }
    PL_TRY(pl_environment_set(environment, "SAGEMAKER_BASE_DIR", folder->base, reterr));
    PL_TRY(pl_environment_set(environment, "PACELINE_INSTALL", "0", reterr)); /* it was, once for all */
    PL_TRY(set_number(environment, "PACELINE_TRIAL", order->trial, reterr));
    PL_TRY(set_number(environment, "PACELINE_TRIAL_CPUS", host->slots.cpus, reterr));
    PL_TRY(set_number(environment, "PACELINE_TRIAL_GPUS", host->slots.gpus, reterr));
    PL_TRY(set_number(environment, "PACELINE_STOP_S", own_stop_s > STOP_LEAST_S ? own_stop_s : STOP_LEAST_S, reterr));
    PL_TRY(set_threads(host, order, environment, reterr));
    pl_slots_visible(&host->slots, order->slot, &visible);
    PL_TRY(pl_text_check(&visible, reterr));
    if (visible.length > 0) {
        PL_TRY(pl_environment_set(environment, "CUDA_VISIBLE_DEVICES", pl_text_string(&visible), reterr));
    }
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

enum pl_status pl_trials_host_start(struct pl_trials_host *host, const struct pl_trial_order *order,
                                    struct pl_error *reterr)
{
    const struct pl_job *job = host->supervisor->job;
    struct pl_shim_trial trial = {.number = order->trial,
                                  .metric_regex = order->metric_regex,
                                  .step_regex = order->step_regex,
                                  .last_step = order->last_step};
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;

    PL_TRY(pl_trial_folder_name(job, order->trial, &folder, reterr));
    PL_TRY(pl_trial_folder_make(job, &folder, order->processes, order->hyperparameters, reterr));
    PL_TRY(make_environment(host, order, &folder, &environment, reterr));
    PL_TRY(pl_strv_add(&argv, job->self_path, reterr));
    PL_TRY(pl_strv_add(&argv, job->command.count > 0 ? "--" : "train", reterr));
    PL_TRY(pl_strv_add_all(&argv, &job->command, reterr));
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(environment);
    setup.cwd = folder.base;
    return pl_supervise_start_trial(host->supervisor, &trial, &setup, reterr);
}

void pl_trials_host_signal(struct pl_trials_host *host, int trial, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    for (size_t i = 0; i < host->supervisor->connections_count; i++) {
        struct pl_connection *connection = host->supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && connection->source == PL_EXIT_SOURCE_TRIAL &&
            connection->rank == trial && !connection->ended && !connection->dropped) {
            PL_SUPERVISE_SEND(host->supervisor, connection, PL_FRAME_STOP, text);
        }
    }
}

void pl_trials_host_end(struct pl_trials_host *host, const struct pl_exit_report *exit_report, struct pl_text *reason)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

    if (pl_trial_folder_name(host->supervisor->job, exit_report->rank, &folder, NULL) == PL_OK) {
        if (!pl_exit_report_ok(exit_report)) {
            pl_trial_folder_reason(&folder, reason);
        }
        pl_trial_folder_remove(&folder);
    }
    if (!pl_exit_report_ok(exit_report) && reason->length == 0) {
        pl_exit_report_sentence(exit_report, reason);
    }
}

void pl_trials_host_forget(struct pl_trials_host *host, int trial)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

    if (pl_trial_folder_name(host->supervisor->job, trial, &folder, NULL) == PL_OK) {
        pl_file_remove_tree(folder.model);
    }
}

enum pl_status pl_trials_host_fetch(struct pl_trials_host *host, int trial, enum pl_trials_host_kind kind, bool begins,
                                    struct pl_files_piece *piece, struct pl_error *reterr)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

    if (begins) {
        pl_files_reader_free(host->reader);
        host->reader = NULL;
        PL_TRY(pl_trial_folder_name(host->supervisor->job, trial, &folder, reterr));
        PL_TRY(pl_files_reader_open(kind == PL_TRIALS_HOST_MODEL ? folder.model : folder.checkpoints, &host->reader,
                                    reterr));
    }
    if (host->reader == NULL) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: a piece of a folder that nobody has begun to move");
    }
    PL_TRY(pl_files_read(host->reader, piece, reterr));
    if (piece->path.length == 0) {
        pl_files_reader_free(host->reader);
        host->reader = NULL;
    }
    return PL_OK;
}

enum pl_status pl_trials_host_store(struct pl_trials_host *host, int trial, enum pl_trials_host_kind kind, bool begins,
                                    const struct pl_files_piece *piece, struct pl_error *reterr)
{
    const struct pl_job *job = host->supervisor->job;
    const bool is_model = kind == PL_TRIALS_HOST_MODEL;
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

    if (begins) {
        pl_files_writer_free(host->writer);
        host->writer = NULL;
        PL_TRY(pl_trial_folder_name(job, trial, &folder, reterr));
        PL_TRY(pl_files_writer_open(is_model ? job->paths.model : folder.checkpoints, is_model, &host->writer, reterr));
    }
    if (host->writer == NULL) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: a piece of a folder that nobody has begun to move");
    }
    PL_TRY(pl_files_write(host->writer, piece, reterr));
    if (piece->path.length == 0) {
        pl_files_writer_free(host->writer);
        host->writer = NULL;
    }
    return PL_OK;
}

void pl_trials_host_abort(struct pl_trials_host *host)
{
    pl_files_reader_free(host->reader);
    pl_files_writer_free(host->writer);
    host->reader = NULL;
    host->writer = NULL;
}

void pl_trials_host_send_order(struct pl_supervisor *supervisor, struct pl_connection *connection,
                               const struct pl_trial_order *order)
{
    char trial[16], slot[16], processes[16], last_step[32];

    snprintf(trial, sizeof(trial), "%d", order->trial);
    snprintf(slot, sizeof(slot), "%d", order->slot);
    snprintf(processes, sizeof(processes), "%d", order->processes);
    snprintf(last_step, sizeof(last_step), "%lld", (long long)order->last_step);
    PL_SUPERVISE_SEND(supervisor, connection, PL_FRAME_TRIAL, trial, slot, processes, last_step, order->hyperparameters,
                      order->metric_regex, order->step_regex != NULL ? order->step_regex : "");
}

enum pl_status pl_trials_host_read_order(const struct pl_frame *frame, struct pl_trial_order *ret_order,
                                         struct pl_error *reterr)
{
    int64_t trial, slot, processes, last_step;

    if (frame->count < 7) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: a TRIAL frame with %zu fields, not 7", frame->count);
    }
    PL_TRY(pl_link_frame_number(frame, 0, 0, INT32_MAX, &trial, reterr));
    PL_TRY(pl_link_frame_number(frame, 1, 0, INT32_MAX, &slot, reterr));
    PL_TRY(pl_link_frame_number(frame, 2, 1, INT32_MAX, &processes, reterr));
    PL_TRY(pl_link_frame_number(frame, 3, 0, INT64_MAX, &last_step, reterr));
    *ret_order = (struct pl_trial_order){.trial = (int)trial,
                                         .slot = (int)slot,
                                         .processes = (int)processes,
                                         .last_step = last_step,
                                         .hyperparameters = frame->fields[4],
                                         .metric_regex = frame->fields[5],
                                         .step_regex = *frame->fields[6] != '\0' ? frame->fields[6] : NULL};
    return PL_OK;
}
