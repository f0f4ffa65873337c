/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One configuration file with arbitrary content, the others valid: a job is read or refused with a cause, and what is
 * read gives variables and a plan, or a cause. The first byte of the input chooses the file.
 */
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/secrets.h"
#include "entrypoint/launch/launchers.h"
#include "entrypoint/launch/plan.h"
#include "tests/support/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"hyperparameters.json", "resourceconfig.json", "inputdataconfig.json"};
static const char *const plain[] = {
    "{}", "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"lo\"}",
    "{}"};

static void write_file(const char *base, const char *name, const void *data, size_t bytes)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/input/config/%s", base, name);
    file = fopen(path, "we");
    PL_BUG_IF(file == NULL || fwrite(data, 1, bytes, file) != bytes);
    (void)fclose(file);
}

static void remove_tree(const char *base)
{
    static const char *const parts[] = {"input/config/hyperparameters.json",
                                        "input/config/resourceconfig.json",
                                        "input/config/inputdataconfig.json",
                                        "input/config",
                                        "input",
                                        ""};
    char path[256];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", base, parts[i]);
        (void)remove(path);
    }
}

/* Of a job that is refused the hosts may be known all the same. */
static void read_refused_job(const struct pl_environment *environment)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_job_new_partial(environment, "/nowhere/bin/paceline", &job, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        return;
    }
    PL_BUG_IF(pl_launch_plan_new_notify(job, &plan, &error) != PL_OK);
    PL_BUG_IF(plan->link != PL_LAUNCH_PLAN_LINK_NONE && plan->hosts.count < 2);
}

static void read_job(const char *base)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const struct pl_launch_plan_steps none = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;

    PL_BUG_IF(pl_environment_new_empty(&environment, &error) != PL_OK ||
              pl_environment_set(environment, "SAGEMAKER_BASE_DIR", base, &error) != PL_OK ||
              pl_environment_set(environment, "SAGEMAKER_PROGRAM", "/bin/true", &error) != PL_OK);
    if (pl_job_new(environment, "/nowhere/bin/paceline", NULL, &job, &error) != PL_OK ||
        pl_secrets_mask(job, &error) != PL_OK ||
        pl_launch_plan_new(job, pl_launchers_choose(job), &plan, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        read_refused_job(environment);
        return;
    }
    PL_BUG_IF(pl_launch_plan_print(job, plan, &none, &text, &error) != PL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char base[64];
    char path[256];
    struct pl_error error = PL_ERROR_NONE;
    size_t chosen = bytes > 0 ? data[0] % PL_ARRAY_ITEMS(names) : 0;

    if (bytes == 0) {
        return 0;
    }
    /* In memory where that is possible: thousands of runs are mostly file system calls. */
    (void)snprintf(base, sizeof(base), "%s/paceline-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PL_BUG_IF(mkdtemp(base) == NULL);
    (void)snprintf(path, sizeof(path), "%s/input/config", base);
    PL_BUG_IF(pl_file_make_dirs(path, 0755, &error) != PL_OK);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (i == chosen) {
            write_file(base, names[i], data + 1, bytes - 1);
        } else {
            write_file(base, names[i], plain[i], strlen(plain[i]));
        }
    }
    read_job(base);
    remove_tree(base);
    return 0;
}
