/* SPDX-License-Identifier: Apache-2.0 */
/** The files of a job in a scratch directory, and the job that is read from them. */
#ifndef PL_TESTS_UNIT_ENTRYPOINT_TREE_H
#define PL_TESTS_UNIT_ENTRYPOINT_TREE_H

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/plan.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#ifndef PL_TEST_BUILD /* the build sets it; the header itself does not need it */
#define PL_TEST_BUILD "."
#endif

struct tree {
    struct scratch scratch;
    const char *base;
    struct pl_environment *environment;
    struct pl_job *job;
    struct pl_launch_plan *plan;
    struct pl_error error;
};

/* Write `text` to the file `name` below the base directory, making its directories. */
static inline void tree_write(struct tree *tree, const char *name, const char *text)
{
    char path[2 * PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", tree->base, name);
    *strrchr(path, '/') = '\0';
    ck_assert_ok(pl_file_make_dirs(path, 0755, &tree->error), &tree->error);
    snprintf(path, sizeof(path), "%s/%s", tree->base, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    fclose(file);
}

static inline void tree_env(struct tree *tree, const char *name, const char *value)
{
    ck_assert_ok(pl_environment_set(tree->environment, name, value, &tree->error), &tree->error);
}

static inline void tree_hyperparameters(struct tree *tree, const char *text)
{
    tree_write(tree, "input/config/hyperparameters.json", text);
}

static inline void tree_two_hosts(struct tree *tree, const char *current)
{
    char text[256];

    snprintf(text, sizeof(text),
             "{\"current_host\": \"%s\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"lo\"}",
             current);
    tree_write(tree, "input/config/resourceconfig.json", text);
}

/* Make a program in the last directory of PATH, for machines without the real program. */
static inline void tree_tool(struct tree *tree, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "bin/%s", name);
    tree_write(tree, path, "#!/bin/sh\n");
    snprintf(path, sizeof(path), "%s/bin/%s", tree->base, name);
    ck_assert_int_eq(chmod(path, 0755), 0);
}

static inline void tree_setup(struct tree *tree)
{
    char path[PATH_MAX];

    memset(tree, 0, sizeof(*tree));
    tree->scratch = scratch_new();
    tree->base = tree->scratch.path;
    ck_assert_ok(pl_environment_new_empty(&tree->environment, &tree->error), &tree->error);
    tree_env(tree, "SAGEMAKER_BASE_DIR", tree->base);
    snprintf(path, sizeof(path), "%s/first:/usr/local/bin:/usr/bin:/bin:%s/bin", tree->base, tree->base);
    tree_env(tree, "PATH", path);
    tree_tool(tree, "mpirun");
    tree_write(tree, "first/torchrun", "#!/bin/sh\n"); /* Debian's own one is refused */
    ck_assert_int_eq(chmod(scratch_path(&tree->scratch, "first/torchrun", path), 0755), 0);
    tree_tool(tree, "ssh");
    tree_env(tree, "HOME", tree->base);
    snprintf(path, sizeof(path), "%s/ssh", tree->base);
    tree_env(tree, "PACELINE_SSH_DIR", path);
    tree_write(tree, "ssh/id_ed25519", "");
    tree_write(tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"lo\"}");
    tree_write(tree, "code/train.py", "pass\n");
}

static inline void tree_done(struct tree *tree)
{
    pl_launch_plan_free(tree->plan);
    pl_job_free(tree->job);
    pl_environment_free(tree->environment);
    scratch_done(&tree->scratch);
}

/* Read the job again. The path of the binary is one from which the build tree's companions are found. */
static inline enum pl_status tree_job(struct tree *tree)
{
    pl_job_free(tree->job);
    tree->job = NULL;
    return pl_job_new(tree->environment, PL_TEST_BUILD "/entrypoint/paceline", NULL, &tree->job, &tree->error);
}

/* Read the job and make its plan. */
static inline enum pl_status tree_plan(struct tree *tree)
{
    enum pl_status status;

    pl_launch_plan_free(tree->plan);
    tree->plan = NULL;
    status = tree_job(tree);
    return status == PL_OK ? pl_launch_plan_new(tree->job, &tree->plan, &tree->error) : status;
}

/* Returns the words of a list with '|' between them; valid until the next call. */
static inline const char *joined(const struct pl_strv *words)
{
    static char text[65536];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < words->count && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : "|", words->items[i]);
    }
    return text;
}

#endif
