/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front binary. What a container's start needs is in here; every other subcommand is a separate program, so that
 * starting a job does not load what it never uses.
 */
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/subcommand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SELF_PATH_BYTES = 4096 };

static const char usage[] =
    "paceline: run a SageMaker training job in this container\n"
    "\n"
    "  paceline train         run the job that /opt/ml/input/config describes\n"
    "  paceline -- CMD...     the same with CMD as the program\n"
    "  paceline plan          print as JSON what train would run here; plan -- CMD... likewise\n"
    "  paceline check         whether the job's hosts and the links between them are as they should be\n"
    "  paceline env           print as JSON the variables that train adds\n"
    "  paceline sweep         print the trials of a job that trains several models\n"
    "\n"
    "  paceline info          what this machine offers, and every setting of the runtime\n"
    "  paceline horovod       put Paceline under an installed Horovod's Python\n"
    "  paceline stacks        where the programs of this host stand (built with libdw)\n"
    "  paceline shell HOST    a shell on another host of the job that runs here; shell HOST CMD... one command\n"
    "  paceline bench         measure the collectives\n"
    "  paceline server        a parameter server of this host, with its workers\n"
    "  paceline trace         traces that ranks left, for chrome://tracing\n"
    "  paceline feed          Pipe Mode's side of the platform: a directory or S3 into FIFOs\n"
    "  paceline s3            copy to and from S3\n"
    "  paceline index         run pip with the index of a CodeArtifact repository\n"
    "  paceline sync          upload a directory's files as they are closed\n"
    "\n"
    "`paceline COMMAND --help` explains it, `paceline --version` prints the version. Without arguments it is `train` "
    "where\n"
    "/opt/ml/input/config/resourceconfig.json exists. SAGEMAKER_BASE_DIR stands for /opt/ml where it is set.\n";

static int run_relay(const struct pl_invocation *call)
{
    return pl_relay_run(&call->words, call->environment, call->self_path);
}

static const struct {
    const char *name;
    int (*run)(const struct pl_invocation *call);
} subcommands[] = {
    {"train", pl_train_main}, {"check", pl_check_main},          {"rank", pl_rank_main},
    {"relay", run_relay},     {"plan", pl_subcommand_plan_main}, {"env", pl_subcommand_plan_env_main},
};

/* Find this binary's own path; argv[0] where /proc is not mounted. */
static const char *find_self(const char *argv0, char *path, size_t path_bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, path_bytes - 1);

    if (length <= 0) {
        return argv0;
    }
    path[length] = '\0';
    return path;
}

static bool has_config(const struct pl_environment *environment)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/input/config/resourceconfig.json", pl_job_base_dir(environment));
    return access(pl_text_string(&path), F_OK) == 0;
}

/* Replace this process by paceline-SUBCOMMAND. Returns only when there is none. */
static int exec_companion(const struct pl_invocation *call, const char *subcommand, char **argv)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    pl_text_printf(&name, "paceline-%s", subcommand);
    if (strchr(subcommand, '/') != NULL ||
        pl_companion_find(call->self_path, pl_text_string(&name), &path, NULL) != PL_OK) {
        pl_log(PL_LOG_ERROR, "there is no subcommand '%s'; `paceline help` lists them", subcommand);
        return PL_EXIT_USAGE;
    }
    (void)execv(path, argv);
    pl_log(PL_LOG_ERROR, "running %s: %s", path, strerror(errno));
    return EXIT_FAILURE;
}

static int run_subcommand(const char *subcommand, const struct pl_invocation *call, char **argv)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(subcommands); i++) {
        if (strcmp(subcommand, subcommands[i].name) == 0) {
            return subcommands[i].run(call);
        }
    }
    return exec_companion(call, subcommand, argv);
}

static bool is_known(const struct pl_invocation *call, const char *subcommand)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(subcommands); i++) {
        if (strcmp(subcommand, subcommands[i].name) == 0) {
            return true;
        }
    }
    pl_text_printf(&name, "paceline-%s", subcommand);
    return pl_companion_find(call->self_path, pl_text_string(&name), &path, NULL) == PL_OK;
}

/*
 * The subcommand to run. A job may give its container any arguments; where they are no subcommand of
 * ours, a container that has a job runs it, as the toolkit would. Only as process 1: a mistyped subcommand in a shell
 * starts no job.
 */
static const char *choose_subcommand(const struct pl_invocation *call, const char *word)
{
    if (word == NULL || strcmp(word, "--") == 0) {
        return "train";
    }
    if (getpid() == 1 && !is_known(call, word) && has_config(call->environment)) {
        pl_log(PL_LOG_WARNING, "'%s' is no subcommand of paceline; the job runs and the arguments are ignored", word);
        return "train";
    }
    return word;
}

/*
 * True when the help text above is wanted. `train --help` does not count where there is a job, which may give
 * its container any arguments.
 */
static bool asks_for_help(int argc, char **argv, const struct pl_environment *environment)
{
    const char *last = argv[argc - 1];
    bool help = strcmp(last, "--help") == 0 || strcmp(last, "-h") == 0;

    if (argc == 3 && strcmp(argv[1], "help") == 0) {
        return strcmp(last, "train") == 0 || strcmp(last, "plan") == 0 || strcmp(last, "env") == 0;
    }
    if (argc == 3 && help && strcmp(argv[1], "train") == 0) {
        return !has_config(environment);
    }
    return (argc == 2 && (help || strcmp(last, "help") == 0)) ||
           (argc == 3 && help && (strcmp(argv[1], "plan") == 0 || strcmp(argv[1], "env") == 0));
}

static bool is_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash != NULL ? slash + 1 : path, name) == 0;
}

/* The image's BASH_ENV starts a job from the first shell; those of the job are ordinary ones. */
static void forget_bash_env(struct pl_environment *environment)
{
    if (is_named(pl_environment_get_or(environment, "BASH_ENV", ""), "bash-env.sh")) {
        pl_environment_unset(environment, "BASH_ENV");
    }
}

static enum pl_status copy_arguments(int argc, char **argv, struct pl_strv *words, struct pl_error *reterr)
{
    for (int i = 0; i < argc; i++) {
        PL_TRY(pl_strv_add(words, argv[i], reterr));
    }
    return PL_OK;
}

/* A closed standard descriptor would be reused by the next file or socket, which would then get what is printed.
 * Writing to this one fails. */
static void fill_standard_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;
    static char help[] = "--help";
    char self[SELF_PATH_BYTES];
    struct pl_invocation call;
    const char *word, *subcommand;

    fill_standard_fds();
    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "starting");
        return EXIT_FAILURE;
    }
    forget_bash_env(environment);
    if (is_named(argv[0], PL_RUNDIR_PYTHON)) {
        if (copy_arguments(argc - 1, argv + 1, &words, &error) != PL_OK) {
            pl_log_error(&error, "starting");
            return EXIT_FAILURE;
        }
        call = (struct pl_invocation){
            .words = words, .environment = environment, .self_path = find_self(argv[0], self, sizeof(self))};
        return pl_rank_python_main(&call);
    }
    if (asks_for_help(argc, argv, environment)) {
        (void)fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)puts("paceline " PACELINE_VERSION);
        return EXIT_SUCCESS;
    }
    if (argc == 3 && strcmp(argv[1], "help") == 0) { /* `help COMMAND` is `COMMAND --help` */
        argv[1] = argv[2];
        argv[2] = help;
    }
    word = argc > 1 ? argv[1] : NULL;
    if (argc > 2 && copy_arguments(argc - 2, argv + 2, &words, &error) != PL_OK) {
        pl_log_error(&error, "starting");
        return EXIT_FAILURE;
    }
    if (word == NULL && !has_config(environment)) {
        (void)fputs(usage, stderr);
        return PL_EXIT_USAGE;
    }
    call = (struct pl_invocation){
        .words = words, .environment = environment, .self_path = find_self(argv[0], self, sizeof(self))};
    subcommand = choose_subcommand(&call, word);
    if (strcmp(subcommand, "train") == 0 && word != NULL && strcmp(word, "--") != 0) {
        call.words = PL_STRV_NONE; /* as in the toolkit, train takes no arguments */
    }
    if (strcmp(subcommand, "check") == 0 && argc == 3 && strcmp(argv[2], help) == 0) {
        return exec_companion(&call, subcommand, argv + 1);
    }
    return run_subcommand(subcommand, &call, argc > 1 ? argv + 1 : argv);
}
