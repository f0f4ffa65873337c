/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline rank PROGRAM... -- [ARGUMENTS...]
 * RUN_DIR/paceline-python -u [-m] SCRIPT [ARGUMENTS...]
 *
 * The process that mpirun and its daemons start for every rank. mpirun gives each rank the SM_* variables of the
 * master: this process restores those of its own host, sets the thread counts for the ranks that share the host, and
 * runs the program under a shim that reports to this host's process 1. It ends as the program ended. torchrun uses the
 * second form, because it takes this binary for Python: the interpreter is torchrun's own, and the variables are set
 * for the rank already.
 */
#include "entrypoint/subcommand.h"

#include "base/clock.h"
#include "base/cpus.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/kept_head.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/settings.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/blas.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/supervise/watch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMAND_MAX_BYTES = 4 * 1024 * 1024 };

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Get a whole number from the first variable that is set, else `fallback`. */
static int number_of(const struct pl_environment *environment, const char *const *names, int fallback)
{
    for (size_t i = 0; names[i]; i++) {
        const char *value = pl_environment_get(environment, names[i]);
        char *end = NULL;
        long number = value ? strtol(value, &end, 10) : -1;

        if (value && end != value && *end == '\0' && number >= 0 && number <= INT32_MAX) {
            return (int)number;
        }
    }
    return fallback;
}

static int cpus_of(pid_t pid)
{
    struct pl_cpus cpus;

    return sched_getaffinity(pid, sizeof(cpus), cpus.sets) == 0 ? CPU_COUNT_S(sizeof(cpus), cpus.sets) : 1;
}

/* Returns a rank's share of the CPUs. If mpirun has bound the rank to some CPUs, these are its own; otherwise the ranks
 * share the CPUs of mpirun or its daemon. */
static int threads_for(int local_size)
{
    int own = cpus_of(0), host = cpus_of(getppid()), limit = pl_devices_cpu_limit("");
    int share = (limit > 0 && limit < host ? limit : host) / (local_size > 0 ? local_size : 1);

    return share < 1 ? 1 : share < own ? share : own;
}

static int local_size_of(const struct pl_environment *environment, int fallback)
{
    return number_of(environment, NAMES("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"), fallback);
}

/* Returns how many workers this rank starts if it is a parameter server, else 0. */
static int workers_of(const struct pl_environment *environment)
{
    return number_of(environment, NAMES(PL_LAUNCHER_WORKERS_VARIABLE), 0);
}

/* Workers wait for their server without a limit, so a server that stays stopped would block the job for ever: limit
 * that time. */
static enum pl_status set_most_stopped(const struct pl_environment *environment, struct pl_shim_options *options,
                                       struct pl_error *reterr)
{
    struct pl_knobs knobs;

    if (workers_of(environment) > 0) {
        PL_TRY(pl_knobs_resolve(environment, &knobs, reterr));
        options->most_stopped_ns = pl_knob_ns(&knobs, PL_KNOB_TIMEOUT_S, PL_NS_PER_S);
    }
    return PL_OK;
}

/* Set a variable to a number, unless it is set already. */
static enum pl_status set_number(struct pl_environment *environment, const char *name, int number,
                                 struct pl_error *reterr)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    return pl_environment_get(environment, name) ? PL_OK : pl_environment_set(environment, name, text, reterr);
}

/* Returns the rank's place in the job, by the numbers of its launcher; -1 for what is unknown. */
static struct pl_rundir_place place_of(const struct pl_environment *environment)
{
    return (struct pl_rundir_place){.rank = number_of(environment, NAMES("OMPI_COMM_WORLD_RANK", "RANK"), -1),
                                    .size = number_of(environment, NAMES("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"), -1),
                                    .local_rank =
                                        number_of(environment, NAMES("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"), -1),
                                    .local_size = local_size_of(environment, 0)};
}

static enum pl_status set_thread_counts(struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const variables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    const int workers = workers_of(environment);
    const int local_size = local_size_of(environment, 1) * (workers > 0 ? workers : 1);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(variables); i++) {
        PL_TRY(set_number(environment, variables[i], threads_for(local_size), reterr));
    }
    return PL_OK;
}

/* Set the variables that torch.distributed reads for `env://`, unless the job or the program's own options set them.
 * Accelerate, DeepSpeed and transformers take the rank numbers from Open MPI, and the address from these variables. */
static enum pl_status set_torch(struct pl_environment *environment, struct pl_error *reterr)
{
    static const struct {
        const char *name, *mpi_name;
    } numbers[] = {{"RANK", "OMPI_COMM_WORLD_RANK"},
                   {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
                   {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
                   {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}};
    const char *master = pl_environment_get(environment, PL_LAUNCHER_MASTER_VARIABLE);

    if (!master || workers_of(environment) > 0) {
        return PL_OK;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        const int number = number_of(environment, NAMES(numbers[i].mpi_name), -1);

        PL_TRY(number < 0 ? PL_OK : set_number(environment, numbers[i].name, number, reterr));
    }
    if (!pl_environment_get(environment, "MASTER_ADDR")) {
        PL_TRY(pl_environment_set(environment, "MASTER_ADDR", master, reterr));
    }
    pl_environment_unset(environment, PL_LAUNCHER_MASTER_VARIABLE);
    return set_number(environment, "MASTER_PORT", PL_JOB_MASTER_PORT, reterr);
}

/* Accelerate joins its ranks over CPUs only if it is told to use them. Without the variable each rank of a host without
 * a GPU would train by itself. */
static enum pl_status set_accelerate(struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const devices[] = {"SM_NUM_GPUS", "SM_NUM_NEURONS"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(devices); i++) {
        if (strcmp(pl_environment_get_or(environment, devices[i], ""), "0") != 0) {
            return PL_OK;
        }
    }
    return pl_environment_get(environment, "ACCELERATE_USE_CPU")
               ? PL_OK
               : pl_environment_set(environment, "ACCELERATE_USE_CPU", "true", reterr);
}

/* torchrun begins again in each attempt of a job, so that its own variables for elastic programs would say 0. */
static enum pl_status set_torchelastic(struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const names[][2] = {{"TORCHELASTIC_RESTART_COUNT", "PACELINE_RESTART"},
                                           {"TORCHELASTIC_MAX_RESTARTS", "PACELINE_MAX_RESTARTS"}};

    for (size_t i = 0; pl_environment_get(environment, "PACELINE_RESTART") && i < PL_ARRAY_ITEMS(names); i++) {
        const char *value = pl_environment_get_or(environment, names[i][1], "0");

        PL_TRY(pl_environment_set(environment, names[i][0], value, reterr));
    }
    return PL_OK;
}

/*
 * mpirun's fixed options contain `btl ^openib`, which enables the ofi component that Open MPI's packages switch off.
 * That component is of no use to the ob1 messaging that the same options select, but loads libfabric and its providers,
 * which costs 1.5 s per rank, most of it a sleep when the process ends. It stays enabled if the user sets any of its
 * parameters.
 */
static enum pl_status exclude_ofi(struct pl_environment *environment, struct pl_error *reterr)
{
    const char *components = pl_environment_get_or(environment, "OMPI_MCA_btl", "");

    if (strcmp(components, "^openib") != 0 || pl_environment_get(environment, "OMPI_MCA_btl_ofi_mode")) {
        return PL_OK;
    }
    return pl_environment_set(environment, "OMPI_MCA_btl", "^openib,ofi", reterr);
}

/* Split the words: those before the first `--` name the program, those after it are its arguments. */
static enum pl_status split_arguments(const struct pl_strv *words, struct pl_strv *argv, size_t *ret_program_words,
                                      struct pl_error *reterr)
{
    size_t separator = 1;

    while (separator < words->count && strcmp(words->items[separator], "--") != 0) {
        separator++;
    }
    if (separator >= words->count) {
        return pl_error_set(reterr, PL_INVALID, "usage: paceline rank PROGRAM... -- [ARGUMENTS...]");
    }
    for (size_t i = 0; i < words->count; i++) {
        if (i != separator) {
            pl_strv_add(argv, pl_mpi_options_unguard(words->items[i]));
        }
    }
    *ret_program_words = separator;
    return pl_strv_check(argv, reterr);
}

/* Whether `path` leads to the file that `info` describes. */
static bool leads_to(const char *path, const struct stat *info)
{
    struct stat other;

    return stat(path, &other) == 0 && other.st_dev == info->st_dev && other.st_ino == info->st_ino;
}

/* Find the interpreter that torchrun would have started: torchrun's own, by the name under which it was started,
 * because Python finds its packages by that name. The variable keeps an earlier value of PYTHON_EXEC. */
static enum pl_status find_python(const struct pl_environment *environment, char **ret_path, struct pl_error *reterr)
{
    const char *named = pl_environment_get_or(environment, PL_RUNDIR_PYTHON_VARIABLE, NULL);
    PL_AUTO_FREE char *word = NULL;
    char file[64], exe[PATH_MAX];
    struct stat info;
    ssize_t length;

    if (named) {
        *ret_path = pl_memory_string(named, reterr);
        return *ret_path ? PL_OK : PL_MEMORY;
    }
    snprintf(file, sizeof(file), "/proc/%d/exe", (int)getppid());
    length = readlink(file, exe, sizeof(exe) - 1);
    if (length <= 0 || stat(file, &info) != 0) {
        return pl_error_errno(reterr, "find torchrun's interpreter by %s", file);
    }
    exe[length] = '\0';
    snprintf(file, sizeof(file), "/proc/%d/cmdline", (int)getppid());
    PL_TRY(pl_file_read(file, COMMAND_MAX_BYTES, &word, NULL, reterr)); /* each word ends with NUL */
    if (strchr(word, '/') && leads_to(word, &info)) {
        *ret_path = word;
        word = NULL;
        return PL_OK;
    }
    if (!strchr(word, '/') && *word != '\0' &&
        pl_file_find_program(word, pl_environment_get(environment, "PATH"), ret_path, NULL) == PL_OK) {
        if (leads_to(*ret_path, &info)) {
            return PL_OK;
        }
        free(*ret_path);
    }
    *ret_path = pl_memory_string(exe, reterr);
    return *ret_path ? PL_OK : PL_MEMORY;
}

/* Split the words that torchrun passes: the interpreter, its options and the script name the program. */
static enum pl_status split_python(const struct pl_strv *words, struct pl_environment *environment,
                                   struct pl_strv *argv, size_t *ret_program_words, struct pl_error *reterr)
{
    const char *before = pl_environment_get(environment, PL_RUNDIR_PYTHON_VARIABLE);
    PL_AUTO_FREE char *python = NULL;
    size_t options = 0;

    PL_TRY(find_python(environment, &python, reterr));
    if (before) {
        PL_TRY(pl_environment_set(environment, "PYTHON_EXEC", before, reterr));
    } else {
        pl_environment_unset(environment, "PYTHON_EXEC");
    }
    pl_environment_unset(environment, PL_RUNDIR_PYTHON_VARIABLE);
    pl_strv_add(argv, python);
    pl_strv_add_all(argv, words);
    while (options < words->count && words->items[options][0] == '-') {
        options++;
    }
    *ret_program_words = 1 + (options < words->count ? options + 1 : words->count);
    return pl_strv_check(argv, reterr);
}

static enum pl_status run(const struct pl_invocation *call, bool by_torchrun, struct pl_signals *signals,
                          struct pl_exit_report *ret_report, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    const char *const disks[] = {pl_environment_get_or(call->environment, "SM_MODEL_DIR", "/opt/ml/model"),
                                 pl_environment_get_or(call->environment, "SM_OUTPUT_DATA_DIR", "/opt/ml/output/data"),
                                 "/tmp", "/dev/shm", NULL};
    const char *run_dir = pl_environment_get(call->environment, PL_RUNDIR_VARIABLE);
    struct pl_shim_options options = {.kind = PL_PROCESS_RANK, .setup = PL_PROCESS_SETUP_NONE, .disks = disks};
    struct pl_link link = PL_LINK_NONE;
    struct pl_job_settings settings;
    struct pl_rundir_place place;
    char tag[32];

    PL_TRY(pl_settings_read(call->environment, NULL, &settings, reterr));
    PL_TRY(pl_environment_new_copy(call->environment, &environment, reterr));
    PL_TRY(by_torchrun ? split_python(&call->words, environment, &argv, &options.program_words, reterr)
                       : split_arguments(&call->words, &argv, &options.program_words, reterr));
    pl_environment_unset(environment, PL_RUNDIR_PIPES_VARIABLE);
    if (pl_rundir_is_one(pl_environment_get_or(environment, "OMPI_MCA_" PL_RUNDIR_MPIRUN_FILES, ""))) {
        pl_environment_unset(environment, "OMPI_MCA_" PL_RUNDIR_MPIRUN_FILES);
    }
    if (!by_torchrun) {
        PL_TRY(run_dir ? pl_rundir_load_environment(run_dir, environment, reterr) : PL_OK);
        PL_TRY(set_thread_counts(environment, reterr));
        PL_TRY(set_torch(environment, reterr));
        PL_TRY(exclude_ofi(environment, reterr));
        PL_TRY(set_most_stopped(environment, &options, reterr));
    } else {
        PL_TRY(set_torchelastic(environment, reterr));
    }
    PL_TRY(set_accelerate(environment, reterr));
    PL_TRY(pl_blas_set_core((const char *const *)argv.items, environment, reterr));
    if (pl_environment_get(environment, PL_WATCH_PYTHON_VARIABLE)) {
        PL_TRY(pl_watch_hook_python(environment, call->self_path, reterr));
    }
    place = place_of(environment);
    if (workers_of(environment) == 0) { /* a parameter server takes FIFOs for its workers itself */
        PL_TRY(pl_rundir_take_fifos(run_dir, &place, environment, reterr));
    }
    if (run_dir) {
        PL_TRY(pl_rundir_connect(run_dir, &link, reterr));
    }
    options.stdout_as = by_torchrun ? PL_SHIM_STDOUT_LINES : PL_SHIM_STDOUT_MPIRUN;
    options.rank = by_torchrun ? number_of(environment, NAMES("RANK"), 0)
                               : number_of(environment, NAMES("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"), 0);
    options.local_size = local_size_of(environment, 0);
    if (options.rank != 0) {
        pl_environment_unset(environment, PL_KEPT_VARIABLE); /* this memory of process 1 is for rank 0 only */
    }
    if (strcmp(settings.rank_tags, "rank") == 0 || (by_torchrun && strcmp(settings.rank_tags, "auto") == 0)) {
        snprintf(tag, sizeof(tag), "[rank%d]: ", options.rank); /* the tag that torch writes before a traceback */
        options.tag = tag;
    }
    options.progress_ns = settings.progress_ns;
    options.host = pl_environment_get_or(environment, "SM_CURRENT_HOST", "");
    options.setup.argv = (const char *const *)argv.items;
    options.setup.environment = pl_environment_strings(environment);
    pl_shim_run(&options, signals, &link, ret_report);
    if (pl_environment_get(environment, PL_RUNDIR_FIFOS_VARIABLE)) {
        pl_rundir_leave_fifos(run_dir, place.local_rank);
    }
    pl_link_close(&link);
    return PL_OK;
}

static int run_rank(const struct pl_invocation *call, bool by_torchrun)
{
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_signals_open(&signals, &error) != PL_OK || run(call, by_torchrun, &signals, &exit_report, &error) != PL_OK) {
        pl_log_error(&error, "paceline rank");
        return 1;
    }
    if (exit_report.signalled) { /* mpirun distinguishes a rank that a signal killed from a rank that exits */
        pl_process_end_by_signal(exit_report.code);
        return 128 + exit_report.code;
    }
    return exit_report.code;
}

int pl_rank_main(const struct pl_invocation *call)
{
    return run_rank(call, false);
}

int pl_rank_python_main(const struct pl_invocation *call)
{
    return run_rank(call, true);
}
