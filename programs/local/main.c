/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline local [OPTION...] [-- PROGRAM [ARGUMENT...]]
 *
 * Runs a training job on this machine as SageMaker would: lays out /opt/ml for each host, starts `paceline train`
 * there, prints the log, packs the model, and tells how the job ended. The exit code is the job's.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/options.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"
#include "programs/local/local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_S = 120 };

struct options {
    struct pl_local local;
    struct pl_local_job job;
    const char *folder, *image;
    uint64_t processes;
};

static enum pl_status read_job(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    (void)name;
    return pl_local_job_read(field, text, reterr);
}

static enum pl_status read_max_run(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    uint64_t ns, *max_run_s = field;

    PL_TRY(pl_local_simulate_seconds(name, text, &ns, reterr));
    *max_run_s = ns < (uint64_t)PL_NS_PER_S ? 1 : ns / (uint64_t)PL_NS_PER_S;
    return PL_OK;
}

static enum pl_status add_engine_option(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_local *local = field;

    (void)name;
    pl_strv_add(&local->engine_options, text);
    return pl_strv_check(&local->engine_options, reterr);
}

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_LOCAL_OPTIONS(PL_OPTION) PL_OPTIONS_END};

static enum pl_status add_processes(struct options *options, struct pl_error *reterr)
{
    char text[80];

    if (options->processes == 0) {
        return PL_OK;
    }
    PL_TRY(pl_local_job_add("hyperparameter", "sagemaker_mpi_enabled=true", &options->job, reterr));
    snprintf(text, sizeof(text), "sagemaker_mpi_num_of_processes_per_host=%u", (unsigned)options->processes);
    return pl_local_job_add("hyperparameter", text, &options->job, reterr);
}

static enum pl_status read_options(int argc, char **argv, struct options *options, struct pl_error *reterr)
{
    struct pl_local *local = &options->local;

    PL_TRY(pl_local_job_init(&options->job, reterr));
    PL_TRY(pl_verbs_read("local", table, argc, argv, options, reterr));
    if (options->image && local->kind != PL_LOCAL_AUTO) {
        return pl_error_set(reterr, PL_INVALID, "found --kind and --image: hosts of an image are containers");
    }
    if (options->image) {
        local->kind = PL_LOCAL_CONTAINERS;
        options->job.image = options->image;
    }
    if (local->kind != PL_LOCAL_CONTAINERS && (local->engine_name || local->engine_options.count > 0)) {
        return pl_error_set(reterr, PL_INVALID, "--%s is for containers: give --image IMAGE too",
                            local->engine_name ? "engine" : "engine-option");
    }
    PL_TRY(add_processes(options, reterr));
    if (optind < argc && strcmp(argv[optind - 1], "--") != 0) {
        return pl_error_set(reterr, PL_INVALID, "found '%s', expected an option, or -- before the program",
                            argv[optind]);
    }
    if (optind < argc) {
        PL_TRY(pl_local_job_set_words(&options->job, argv + optind, (size_t)(argc - optind), reterr));
    }
    PL_TRY(pl_local_job_check(&options->job, reterr));
    local->job = &options->job;
    return pl_local_metrics_new(&local->job->metrics, NULL, NULL, &local->metrics, reterr);
}

static void say_ignored(const struct pl_local *local)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    for (size_t i = 0; i < local->job->ignored.count; i++) {
        pl_text_printf(&names, "%s%s", i > 0 ? ", " : "", local->job->ignored.items[i]);
    }
    if (names.length > 0) {
        pl_log(PL_LOG_INFO, "these keys have no meaning here: %s", pl_text_string(&names));
    }
    if (local->job->image && local->kind != PL_LOCAL_CONTAINERS) {
        pl_log(PL_LOG_INFO,
               "the program runs with the files of this machine, not with those of the image %s; --image IMAGE "
               "runs it in containers",
               local->job->image);
    }
}

static bool names_program(const struct pl_local_job *job)
{
    for (size_t i = 0; i < job->hyperparameters.count; i++) {
        if (strcmp(job->hyperparameters.items[i].name, "sagemaker_program") == 0) {
            return true;
        }
    }
    return job->arguments.count + job->entrypoint.count > 0;
}

static bool is_below(const char *path, const char *folder)
{
    const size_t length = strlen(folder);

    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Checks the checkpoints' folder: a mount needs it, and none is made outside of the hosts' own folders. */
static enum pl_status check_checkpoints(const struct pl_local *local, struct pl_error *reterr)
{
    const char *path = local->job->checkpoint_path;

    if (!path || strcmp(path, "/opt/ml/checkpoints") == 0 || local->kind == PL_LOCAL_CONTAINERS) {
        return PL_OK;
    }
    if (local->kind == PL_LOCAL_PLAIN) {
        return pl_error_set(reterr, PL_INVALID,
                            "CheckpointConfig.LocalPath is '%s', expected /opt/ml/checkpoints: a plain host has no "
                            "other",
                            path);
    }
    return is_below(path, "/opt/ml") || is_below(path, "/tmp") || is_below(path, "/run") || access(path, F_OK) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID,
                              "CheckpointConfig.LocalPath is '%s', and this machine has no such folder: make it, or "
                              "name one below /opt/ml",
                              path);
}

/* Runs the job once, from its trees to its end. */
static enum pl_status run_once(struct pl_local *local, struct pl_error *reterr)
{
    PL_TRY(pl_local_tree_write(local, reterr));
    PL_TRY(pl_local_channels_lay_out(local, reterr));
    PL_TRY(pl_local_run(local, reterr));
    return local->kind == PL_LOCAL_CONTAINERS ? pl_local_containers_give_back(local, reterr) : PL_OK;
}

static enum pl_status run_job(struct pl_local *local, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(pl_local_tree_name_hosts(local, reterr));
    PL_TRY(check_checkpoints(local, reterr));
    PL_TRY(pl_local_channels_check(local, reterr));
    local->has_cleared = true;
    PL_TRY(pl_local_tree_clear(local, reterr));
    PL_TRY(pl_local_channels_fetch(local, reterr));
    PL_TRY(pl_local_tree_make_secret(local, reterr));
    PL_TRY(pl_local_tree_open_logs(local, reterr));
    PL_TRY(run_once(local, reterr));
    pl_local_result_say_stop(local);
    pl_local_simulate_say(local);
    if (local->end == PL_LOCAL_SPOT) {
        pl_log(PL_LOG_INFO, "the job starts again: each host has a new /opt/ml, and the checkpoints stay");
        pl_local_spot_look(local);
        local->spot_ns = 0;
        PL_TRY(run_once(local, reterr));
        pl_local_result_say_stop(local);
        pl_local_spot_say(local);
    } else if (local->spot_ns > 0) {
        pl_log(PL_LOG_WARNING, "spot stop: there was none, because the job ended before it");
    }
    status = pl_local_result_pack(local, reterr);
    pl_local_result_write(local);
    pl_local_result_print(local); /* prints also if the disk is full */
    return status;
}

static enum pl_status run_all(struct pl_local *local, const struct options *options, int *ret_code,
                              struct pl_error *reterr)
{
    const struct pl_local_host *failed;
    enum pl_status status;
    char text[64];

    local->begin_ns = pl_clock_now_ns();
    local->has_code = names_program(local->job);
    local->colour = isatty(STDOUT_FILENO) && !pl_environment_own("NO_COLOR");
    PL_TRY(pl_environment_new(&local->environment, reterr));
    PL_TRY(pl_companion_find_paceline(&local->paceline, reterr));
    PL_TRY(pl_memory_alloc(&local->hosts, local->job->hosts, sizeof(*local->hosts), reterr));
    PL_TRY(pl_signals_open(&local->signals, reterr));
    pl_process_adopt_orphans();
    pl_local_tree_remove_secrets(options->folder);
    PL_TRY(pl_local_tree_open_folder(local, options->folder, reterr));
    PL_TRY(pl_local_simulate_check(local, reterr));
    PL_TRY(pl_local_hosts_choose(local, reterr));
    PL_TRY(pl_local_simulate_check(local, reterr));
    say_ignored(local);
    pl_log(PL_LOG_INFO, "job %s on %s, in %s", local->job->name, pl_local_hosts_describe(local, text), local->folder);
    status = run_job(local, reterr);
    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].log) {
            fclose(local->hosts[i].log);
        }
    }
    if (local->kind == PL_LOCAL_CONTAINERS) {
        pl_local_containers_remove(local);
    }
    pl_local_tree_remove(local);
    pl_local_tree_give(local);
    *ret_code = pl_local_run_code(local, &failed);
    return status;
}

static int exit_code(enum pl_status status, int code)
{
    return status == PL_OK ? code : status == PL_INVALID || status == PL_NOT_FOUND ? PL_EXIT_USAGE : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct options options = {.folder = "paceline-local"}; /* too large for the stack */
    struct pl_local *const local = &options.local;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    char text[1200];
    int code = 0;

    local->lock_fd = local->network.link_fd = local->network.flags_fd = local->reasons_fd = -1;
    local->signals = PL_SIGNALS_NONE;
    local->stop_time_ns = STOP_S * (uint64_t)PL_NS_PER_S;
    pl_log_open("paceline local");
    status = read_options(argc, argv, &options, &error);
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    status = run_all(local, &options, &code, &error);
    if (status != PL_OK && local->run_ns == 0 && local->has_made_folder && *local->folder) {
        pl_local_tree_remove_folder(local); /* a refused job leaves no files */
    }
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    pl_local_job_done(&options.job);
    return exit_code(status, code);
}
