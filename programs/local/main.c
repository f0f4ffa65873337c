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
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"
#include "programs/local/local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_S = 120 };

struct options {
    struct pl_local_job job;
    const char *folder;
    uint64_t processes;
    bool help;
};

static enum pl_status take_kind(const char *text, enum pl_local_kind *ret_kind, struct pl_error *reterr)
{
    if (strcmp(text, "plain") == 0) {
        *ret_kind = PL_LOCAL_PLAIN;
    } else if (strcmp(text, "namespaces") == 0) {
        *ret_kind = PL_LOCAL_NAMESPACES;
    } else {
        return pl_error_set(reterr, PL_INVALID, "--kind is '%s', expected plain or namespaces", text);
    }
    return PL_OK;
}

static enum pl_status take_option(struct pl_local *local, struct options *options, int option, struct pl_error *reterr)
{
    uint64_t number;

    switch (option) {
    case 'h':
        options->help = true;
        return PL_OK;
    case 'n':
        return pl_local_job_set_name(&options->job, optarg, reterr);
    case 'H':
        PL_TRY(pl_options_whole("hosts", optarg, 1, PL_LOCAL_MOST_HOSTS, &number, reterr));
        return pl_local_job_set_hosts(&options->job, number, reterr);
    case 'p':
        return pl_options_whole("processes-per-host", optarg, 1, 1024, &options->processes, reterr);
    case 'c':
        return pl_local_job_add_channel(&options->job, optarg, reterr);
    case 'y':
        return pl_local_job_add(&options->job, "hyperparameter", optarg, reterr);
    case 'e':
        return pl_local_job_add(&options->job, "environment", optarg, reterr);
    case 'm':
        return pl_local_job_add(&options->job, "metric", optarg, reterr);
    case 'r':
        PL_TRY(pl_local_rehearse_seconds("max-run", optarg, &number, reterr));
        number /= (uint64_t)PL_NS_PER_S;
        options->job.max_run_s = number > 0 ? number : 1;
        return PL_OK;
    case 's':
        return pl_local_rehearse_seconds("stop", optarg, &local->stop_ns, reterr);
    case 'S':
        return pl_local_rehearse_seconds("spot", optarg, &local->spot_ns, reterr);
    case 'l':
        return pl_local_rehearse_read("lose", optarg, false, &local->lose, reterr);
    case 'C':
        return pl_local_rehearse_read("cut", optarg, true, &local->cut, reterr);
    case 't':
        return pl_local_rehearse_seconds("stop-time", optarg, &local->stop_time_ns, reterr);
    case 'k':
        return take_kind(optarg, &local->kind, reterr);
    case 'i':
        local->kind = PL_LOCAL_CONTAINERS;
        options->job.image = optarg;
        return PL_OK;
    case 'E':
        local->engine_name = optarg;
        return PL_OK;
    case 'o':
        if (local->engine_option_count == PL_LOCAL_MOST_ENGINE_OPTIONS) {
            return pl_error_set(reterr, PL_INVALID, "--engine-option is given more than %d times",
                                PL_LOCAL_MOST_ENGINE_OPTIONS);
        }
        local->engine_options[local->engine_option_count++] = optarg;
        return PL_OK;
    case 'K':
        local->keep = true;
        return PL_OK;
    case 'f':
        options->folder = optarg;
        return PL_OK;
    default:
        return PL_OK; /* the job's file, which was read first */
    }
}

static const struct option table[] = {{"help", no_argument, NULL, 'h'},
                                      {"job", required_argument, NULL, 'j'},
                                      {"name", required_argument, NULL, 'n'},
                                      {"hosts", required_argument, NULL, 'H'},
                                      {"processes-per-host", required_argument, NULL, 'p'},
                                      {"channel", required_argument, NULL, 'c'},
                                      {"hyperparameter", required_argument, NULL, 'y'},
                                      {"environment", required_argument, NULL, 'e'},
                                      {"metric", required_argument, NULL, 'm'},
                                      {"max-run", required_argument, NULL, 'r'},
                                      {"stop", required_argument, NULL, 's'},
                                      {"spot", required_argument, NULL, 'S'},
                                      {"lose", required_argument, NULL, 'l'},
                                      {"cut", required_argument, NULL, 'C'},
                                      {"stop-time", required_argument, NULL, 't'},
                                      {"kind", required_argument, NULL, 'k'},
                                      {"image", required_argument, NULL, 'i'},
                                      {"engine", required_argument, NULL, 'E'},
                                      {"engine-option", required_argument, NULL, 'o'},
                                      {"keep", no_argument, NULL, 'K'},
                                      {"folder", required_argument, NULL, 'f'},
                                      {NULL, 0, NULL, 0}};

/* The job's file comes first, wherever its option is: the others edit it. */
static enum pl_status read_job(int argc, char **argv, struct options *options, struct pl_error *reterr)
{
    enum pl_status status;
    int option;

    PL_TRY(pl_local_job_init(&options->job, reterr));
    while ((status = pl_options_next(argc, argv, "h", table, &option, reterr)) == PL_OK) {
        if (option == 'j') {
            PL_TRY(pl_local_job_read(&options->job, optarg, reterr));
        }
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status add_processes(struct options *options, struct pl_error *reterr)
{
    char text[80];

    if (options->processes == 0) {
        return PL_OK;
    }
    PL_TRY(pl_local_job_add(&options->job, "hyperparameter", "sagemaker_mpi_enabled=true", reterr));
    snprintf(text, sizeof(text), "sagemaker_mpi_num_of_processes_per_host=%u", (unsigned)options->processes);
    return pl_local_job_add(&options->job, "hyperparameter", text, reterr);
}

static enum pl_status read_options(int argc, char **argv, struct pl_local *local, struct options *options,
                                   struct pl_error *reterr)
{
    enum pl_status status;
    int option;

    PL_TRY(read_job(argc, argv, options, reterr));
    optind = 0; /* glibc reads the command line from its beginning again */
    while ((status = pl_options_next(argc, argv, "h", table, &option, reterr)) == PL_OK) {
        PL_TRY(take_option(local, options, option, reterr));
    }
    if (status != PL_END || options->help) {
        return status == PL_END ? PL_OK : status;
    }
    if (local->kind != PL_LOCAL_CONTAINERS && (local->engine_name || local->engine_option_count > 0)) {
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
        pl_log(PL_LOG_INFO, "without a meaning here: %s", pl_text_string(&names));
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

/* A mount needs a folder, and none is made outside of those that are the hosts' own. */
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

/* One run of the job, from its trees to its end. */
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
    PL_TRY(pl_local_tree_clear(local, reterr));
    PL_TRY(pl_local_channels_fetch(local, reterr));
    PL_TRY(pl_local_tree_make_secret(local, reterr));
    PL_TRY(pl_local_tree_open_logs(local, reterr));
    PL_TRY(run_once(local, reterr));
    pl_local_result_say_stop(local);
    pl_local_rehearse_say(local);
    if (local->end == PL_LOCAL_SPOT) {
        pl_log(PL_LOG_INFO, "the job starts again, with new trees and its checkpoints");
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
    pl_local_result_print(local); /* on a full disk too */
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
    local->hosts = pl_memory_new(local->job->hosts, sizeof(*local->hosts), reterr);
    PL_TRY(local->hosts ? PL_OK : PL_MEMORY);
    PL_TRY(pl_signals_open(&local->signals, reterr));
    pl_process_adopt_orphans();
    pl_local_tree_remove_secrets(options->folder);
    PL_TRY(pl_local_tree_open_folder(local, options->folder, reterr));
    PL_TRY(pl_local_rehearse_check(local, reterr));
    PL_TRY(pl_local_hosts_choose(local, reterr));
    PL_TRY(pl_local_rehearse_check(local, reterr));
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
    static struct pl_local local; /* both are too large for the stack */
    static struct options options = {.folder = "paceline-local"};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    char text[1200];
    int code = 0;

    local.lock_fd = local.network_fd = local.reasons_fd = -1;
    local.signals = PL_SIGNALS_NONE;
    local.lose.due_ns = local.cut.due_ns = PL_DEADLINE_NEVER;
    local.stop_time_ns = STOP_S * (uint64_t)PL_NS_PER_S;
    pl_log_open("paceline local");
    if (read_options(argc, argv, &local, &options, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
        return PL_EXIT_USAGE;
    }
    if (options.help) {
        pl_verbs_print_help("local", stdout);
        return EXIT_SUCCESS;
    }
    status = run_all(&local, &options, &code, &error);
    if (status != PL_OK && local.run_ns == 0 && local.has_made_folder && *local.folder) {
        pl_local_tree_remove_folder(&local); /* a job that was refused leaves nothing */
    }
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    pl_local_job_done(&options.job);
    return exit_code(status, code);
}
