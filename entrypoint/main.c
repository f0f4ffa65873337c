/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front binary. It contains what a container needs at its start. Every other subcommand is a separate program, so
 * that the start of a job does not load code that it never uses.
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
#include "entrypoint/verbs.h"
#include "entrypoint/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SELF_PATH_BYTES = 4096, NO_HELP = -1 };

static int run_relay(const struct pl_invocation *call)
{
    return pl_relay_run(&call->words, call->environment);
}

/* Whether train has arguments, which it refuses. SageMaker passes `train` to an image whose entry point is `paceline
 * train`: that word does not count. */
static bool has_train_words(const char *word, const struct pl_strv *words)
{
    return strcmp(word, "train") == 0 && words->count > 0 &&
           !(words->count == 1 && strcmp(words->items[0], "train") == 0);
}

/* The function of each verb that has no program. */
static const struct {
    const char *name;
    int (*run)(const struct pl_invocation *call);
} built_in[] = {
    {"train", pl_train_main}, {"check", pl_check_main},          {"rank", pl_rank_main},
    {"relay", run_relay},     {"plan", pl_subcommand_plan_main}, {"env", pl_subcommand_plan_env_main},
};

/* Find this binary's own path; argv[0] if /proc is not mounted. */
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

/* Find the program of a verb that has a program. */
static bool find_program(const struct pl_invocation *call, const struct pl_verb *verb, char **ret_path)
{
    return verb && verb->program && pl_companion_find(call->self_path, verb->program, ret_path, NULL) == PL_OK;
}

static bool is_known(const struct pl_invocation *call, const char *word)
{
    const struct pl_verb *verb = pl_verbs_find(word);
    PL_AUTO_FREE char *path = NULL;

    return verb && (!verb->program || find_program(call, verb, &path));
}

static int refuse_subcommand(const char *word)
{
    const struct pl_verb *verb = pl_verbs_find(word);
    struct pl_text_near spelling = {.name = word};
    char hint[100];

    for (size_t i = 0; i < pl_verbs_count; i++) {
        if (pl_verbs[i].summary) {
            pl_text_near_compare(&spelling, pl_verbs[i].name, PL_TEXT_NEAR_EDITS);
        }
    }
    if (verb && verb->summary) {
        pl_log(PL_LOG_ERROR, "this Paceline was built without `paceline %s`; `paceline help` lists all", word);
    } else {
        pl_log(PL_LOG_ERROR, "unknown command '%s'%s; `paceline help` lists the commands", word,
               pl_text_near_hint(&spelling, "", hint, sizeof(hint)));
    }
    return PL_EXIT_USAGE;
}

/* Run the verb's function, or replace this process by the verb's program. */
static int run_subcommand(const char *subcommand, const struct pl_invocation *call)
{
    PL_AUTO_FREE char *path = NULL;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(built_in); i++) {
        if (strcmp(subcommand, built_in[i].name) == 0) {
            return built_in[i].run(call);
        }
    }
    if (!find_program(call, pl_verbs_find(subcommand), &path)) {
        return refuse_subcommand(subcommand);
    }
    execve(path, call->argv, pl_environment_strings(call->environment));
    pl_log(PL_LOG_ERROR, "cannot run %s: %s", path, strerror(errno));
    return EXIT_FAILURE;
}

/*
 * Choose the subcommand to run. A job may pass any arguments to its container: if they are not a subcommand of ours, a
 * container that has a job runs the job, as the toolkit does. This holds only for process 1: a mistyped subcommand in a
 * shell starts no job.
 */
static const char *choose_subcommand(const struct pl_invocation *call, const char *word)
{
    if (!word || strcmp(word, "--") == 0) {
        return "train";
    }
    if (getpid() == 1 && !is_known(call, word) && has_config(call->environment)) {
        pl_log(PL_LOG_WARNING,
               "unknown command '%s': the job (train) runs, and all arguments are ignored. `paceline help` lists the "
               "commands",
               word);
        return "train";
    }
    return word;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Print the help or the version if the command line asks for it, and return the exit code; otherwise return NO_HELP.
 * `train --help` does not count if there is a job, which would succeed without training. */
static int print_help(int argc, char **argv, const struct pl_environment *environment)
{
    const bool after_help = argc == 3 && strcmp(argv[1], "help") == 0;
    const struct pl_verb *verb = argc == 3 ? pl_verbs_find(argv[after_help ? 2 : 1]) : NULL;
    const bool is_listed = verb && verb->summary;
    const bool is_job = is_listed && !after_help && strcmp(verb->name, "train") == 0 && has_config(environment);

    if (argc == 2 && (is_help(argv[1]) || strcmp(argv[1], "help") == 0)) {
        pl_verbs_print_list(stdout);
        return EXIT_SUCCESS;
    }
    if ((argc == 2 || (is_listed && !is_job)) && strcmp(argv[argc - 1], "--version") == 0) {
        printf("paceline %s\n", pl_version);
        return EXIT_SUCCESS;
    }
    if (after_help && !is_listed) {
        return refuse_subcommand(argv[2]);
    }
    if (!is_listed || is_job || !(after_help || is_help(argv[2]))) {
        return NO_HELP;
    }
    pl_verbs_print_help(verb->name, stdout);
    return EXIT_SUCCESS;
}

/* The image's BASH_ENV makes the first shell start the job. The job's own shells are ordinary shells, so the variable
 * is removed; `paceline info` removes it itself. */
static void forget_bash_env(struct pl_environment *environment)
{
    if (strcmp(basename(pl_environment_get_or(environment, "BASH_ENV", "")), "bash-env.sh") == 0) {
        pl_environment_unset(environment, "BASH_ENV");
    }
}

/* Make SAGEMAKER_BASE_DIR absolute: programs that get it run in other directories. */
static enum pl_status complete_base_dir(struct pl_environment *environment, struct pl_error *reterr)
{
    const char *base = pl_job_base_dir(environment);
    PL_AUTO_FREE char *here = *base == '/' ? NULL : getcwd(NULL, 0);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (*base == '/') {
        return PL_OK;
    }
    if (!here) {
        return pl_error_errno(reterr, "find the current directory, for SAGEMAKER_BASE_DIR=%.200s", base);
    }
    pl_text_printf(&path, "%s/%s", strcmp(here, "/") == 0 ? "" : here, base);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_environment_set(environment, "SAGEMAKER_BASE_DIR", pl_text_string(&path), reterr);
}

/* The settings' check reports a wrong level. */
static void set_log_level(const struct pl_environment *environment)
{
    enum pl_log_level level = PL_LOG_INFO;

    if (pl_log_level_read(pl_environment_get_or(environment, "PACELINE_LOG", ""), &level)) {
        pl_log_set_level(level);
    }
}

/* argv[0] is the subcommand's name, or PL_RUNDIR_PYTHON, by which torchrun starts this binary instead of Python. */
static void take_words(int argc, char **argv, struct pl_invocation *call)
{
    call->argc = argc;
    call->argv = argv;
    call->words = (struct pl_strv){.items = argv + 1, .count = argc > 1 ? (size_t)argc - 1 : 0};
}

/* Fill closed standard descriptors. Otherwise the next file or socket would get such a number, and would receive what
 * is printed. Writing to the descriptor that is opened here fails. */
static void fill_standard_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *const word = argc > 1 ? argv[1] : NULL;
    struct pl_error error = PL_ERROR_NONE;
    char self[SELF_PATH_BYTES];
    struct pl_invocation call;
    const char *subcommand;
    int code;

    fill_standard_fds();
    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "cannot start");
        return EXIT_FAILURE;
    }
    if (!word || strcmp(word, "info") != 0) {
        forget_bash_env(environment);
    }
    if (complete_base_dir(environment, &error) != PL_OK) {
        pl_log_error(&error, "cannot start");
        return EXIT_FAILURE;
    }
    set_log_level(environment);
    call = (struct pl_invocation){.environment = environment, .self_path = find_self(argv[0], self, sizeof(self))};
    take_words(argc, argv, &call);
    if (strcmp(basename(argv[0]), PL_RUNDIR_PYTHON) == 0) {
        return pl_rank_python_main(&call);
    }
    take_words(argc - 1, argv + 1, &call);
    code = print_help(argc, argv, environment);
    if (code != NO_HELP) {
        return code;
    }
    if (!word && !has_config(environment)) {
        pl_verbs_print_list(stderr);
        return PL_EXIT_USAGE;
    }
    subcommand = choose_subcommand(&call, word);
    if (strcmp(subcommand, "train") == 0 && word && strcmp(word, "--") != 0) {
        if (has_train_words(word, &call.words)) {
            return pl_train_refuse(&call, has_config(environment));
        }
        call.words = PL_STRV_NONE;
    }
    return run_subcommand(subcommand, &call);
}
