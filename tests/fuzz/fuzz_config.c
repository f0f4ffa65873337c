/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One configuration file with arbitrary content, and the others valid: a job is read, or refused with a cause. A job
 * that is read gives variables and a plan, or a cause. The first byte of the input chooses the file.
 */
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/plan.h"
#include "tests/support/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The files of version 3 of the SDK exist only if one of them is chosen, because they change the rest of the job. */
enum { FIRST_DRIVER = 3 };
static const struct {
    const char *path, *plain;
} files[] = {
    {"input/config/hyperparameters.json", "{}"},
    {"input/config/resourceconfig.json",
     "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"lo\"}"},
    {"input/config/inputdataconfig.json", "{}"},
    {"input/data/sm_drivers/sourcecode.json",
     "{\"source_dir\": \"src\", \"entry_script\": \"train.py\", \"command\": null, \"requirements\": null}"},
    {"input/data/sm_drivers/distributed.json", "{\"process_count_per_node\": 2, \"mpi_additional_options\": []}"},
    {"input/data/sm_drivers/sm_train.sh", ""},
};

/* The files that a plan looks for: a script, and a library next to the binary. */
static const char *const beside[] = {"input/data/code/train.py", "libpaceline-hostname.so"};

static void write_file(const char *base, const char *name, const void *data, size_t bytes)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", base, name);
    file = fopen(path, "we");
    PL_BUG_IF(!file || fwrite(data, 1, bytes, file) != bytes);
    fclose(file);
}

static void make_folders(const char *base)
{
    static const char *const folders[] = {"input/config", "input/data/sm_drivers", "input/data/code"};
    struct pl_error error = PL_ERROR_NONE;
    char path[256];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", base, folders[i]);
        PL_BUG_IF(pl_file_make_dirs(path, 0755, &error) != PL_OK);
    }
}

static void remove_tree(const char *base)
{
    static const char *const parts[] = {"input/data/code/train.py",
                                        "input/data/code",
                                        "input/data/sm_drivers",
                                        "input/data",
                                        "input/config",
                                        "input",
                                        ""};
    char path[256];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", base, files[i].path);
        remove(path);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(beside); i++) {
        snprintf(path, sizeof(path), "%s/%s", base, beside[i]);
        remove(path);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        snprintf(path, sizeof(path), "%s/%s", base, parts[i]);
        remove(path);
    }
}

/* Check the properties that the rest of the program relies on. */
static void check_drivers(const struct pl_drivers *drivers, bool wanted)
{
    PL_BUG_IF(!drivers->source == wanted);
    PL_BUG_IF(drivers->command && drivers->entry_script);
    PL_BUG_IF(drivers->processes_per_host < 0 || drivers->processes_per_host > PL_JOB_PROCESSES_MAX);
    PL_BUG_IF(wanted && (!drivers->distributed || !drivers->driver));
    PL_BUG_IF(drivers->ignores_driver && drivers->launch != PL_DRIVERS_LAUNCH_OPEN);
}

/* The hosts of a refused job may still be known. */
static void read_refused_job(const struct pl_environment *environment)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_job_new_partial(environment, "/nowhere/bin/paceline", &job, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        return;
    }
    PL_BUG_IF(pl_launch_plan_begin(job, &plan, &error) != PL_OK);
    PL_BUG_IF(plan->link != PL_LAUNCH_PLAN_LINK_NONE && plan->hosts.count < 2);
}

static void read_job(const char *base, bool has_drivers)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const struct pl_launch_plan_steps none = {.count = 0};
    struct pl_error error = PL_ERROR_NONE;
    char self_path[256];

    snprintf(self_path, sizeof(self_path), "%s/paceline", base);
    PL_BUG_IF(pl_environment_new_empty(&environment, &error) != PL_OK ||
              pl_environment_set(environment, "SAGEMAKER_BASE_DIR", base, &error) != PL_OK ||
              pl_environment_set(environment, "PACELINE_PYTHON", "/bin/sh", &error) != PL_OK ||
              pl_environment_set(environment, "SAGEMAKER_PROGRAM", "/bin/true", &error) != PL_OK);
    if (pl_job_new(environment, self_path, NULL, &job, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        read_refused_job(environment);
        return;
    }
    check_drivers(&job->drivers, has_drivers);
    if (pl_secrets_mask(job, &error) != PL_OK || pl_launch_plan_new(job, &plan, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        read_refused_job(environment);
        return;
    }
    PL_BUG_IF(pl_launch_plan_print(job, plan, &none, &text, &error) != PL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char base[64];
    size_t chosen = bytes > 0 ? data[0] % PL_ARRAY_ITEMS(files) : 0;
    size_t count = chosen < FIRST_DRIVER ? FIRST_DRIVER : PL_ARRAY_ITEMS(files);

    if (bytes == 0) {
        return 0;
    }
    /* In memory if that is possible, because thousands of runs are mostly calls of the file system. */
    snprintf(base, sizeof(base), "%s/paceline-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PL_BUG_IF(!mkdtemp(base));
    make_folders(base);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(beside); i++) {
        write_file(base, beside[i], "", 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (i == chosen) {
            write_file(base, files[i].path, data + 1, bytes - 1);
        } else {
            write_file(base, files[i].path, files[i].plain, strlen(files[i].plain));
        }
    }
    read_job(base, chosen >= FIRST_DRIVER);
    remove_tree(base);
    return 0;
}
