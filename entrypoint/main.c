/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front binary. What a container's start needs is in here; every other verb is a program of its own, so that starting
 * a job does not load what it never uses.
 */
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job.h"
#include "entrypoint/verb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, SELF_PATH_BYTES = 4096 };

static const char usage[] = "paceline: run a SageMaker training job in this container\n"
                            "\n"
                            "  paceline train         run the job that /opt/ml/input/config describes\n"
                            "  paceline -- CMD...     the same with CMD as the program\n"
                            "  paceline plan          print as JSON what train would run here\n"
                            "  paceline env           print as JSON the variables that train adds\n"
                            "  paceline VERB...       run the companion program paceline-VERB (info, bench, s3, ...)\n"
                            "\n"
                            "Without a word it is `train` where /opt/ml/input/config/resourceconfig.json exists.\n"
                            "SAGEMAKER_BASE_DIR stands for /opt/ml where it is set.\n";

static const struct {
    const char *name;
    int (*run)(const struct pl_call *call);
} verbs[] = {
    {"train", pl_train_main}, {"rank", pl_rank_main}, {"relay", pl_relay_main}, {"plan", pl_plan_main}, {"env", pl_env_main},
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

/* Run paceline-VERB in our place. Returns only when there is none. */
static int exec_companion(const struct pl_call *call, const char *verb, char **argv)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    pl_text_printf(&name, "paceline-%s", verb);
    if (strchr(verb, '/') != NULL || pl_verb_find_companion(call->self_path, pl_text_string(&name), &path, NULL) != PL_OK) {
        pl_log(PL_LOG_ERROR, "there is no verb '%s'; `paceline help` lists them", verb);
        return EXIT_USAGE;
    }
    (void)execv(path, argv);
    pl_log(PL_LOG_ERROR, "running %s: %s", path, strerror(errno));
    return EXIT_FAILURE;
}

static int run_verb(const char *verb, const struct pl_call *call, char **argv)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(verbs); i++) {
        if (strcmp(verb, verbs[i].name) == 0) {
            return verbs[i].run(call);
        }
    }
    return exec_companion(call, verb, argv);
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_WORDS struct pl_words words = PL_WORDS_NONE;
    struct pl_error error = PL_ERROR_NONE;
    char self[SELF_PATH_BYTES];
    struct pl_call call;
    const char *verb = argc > 1 ? argv[1] : NULL;

    if (pl_environment_new(&environment, &error) != PL_OK) {
        pl_log_error(&error, "starting");
        return EXIT_FAILURE;
    }
    for (int i = 2; i < argc; i++) {
        if (pl_words_add(&words, argv[i], &error) != PL_OK) {
            pl_log_error(&error, "starting");
            return EXIT_FAILURE;
        }
    }
    call = (struct pl_call){.words = words, .environment = environment, .self_path = find_self(argv[0], self, sizeof(self))};
    if (verb != NULL && (strcmp(verb, "help") == 0 || strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0)) {
        (void)fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (verb == NULL && !has_config(environment)) {
        (void)fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (verb == NULL || (strcmp(verb, "--") == 0 && argc > 2)) {
        verb = "train";
    }
    return run_verb(verb, &call, argc > 1 ? argv + 1 : argv);
}
