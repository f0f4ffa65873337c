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
    char base[PATH_MAX / 4]; /* the directory's path */
    struct pl_environment *environment;
    struct pl_job *job;
    struct pl_launch_plan *plan;
    struct pl_error error;
};

/* Write `text` to the file `name` below the base directory, making its directories. */
static inline void tree_write(struct tree *tree, const char *name, const char *text)
{
    char path[PATH_MAX];

    *strrchr(scratch_path(&tree->scratch, name, path), '/') = '\0';
    ck_ok(pl_file_make_dirs, path, 0755);
    scratch_write(&tree->scratch, name, text, strlen(text));
}

static inline void tree_env(struct tree *tree, const char *name, const char *value)
{
    ck_ok(pl_environment_set, tree->environment, name, value);
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

/* Make a program, for machines without the real one. */
static inline void tree_tool(struct tree *tree, const char *name)
{
    char path[PATH_MAX];

    tree_write(tree, name, "#!/bin/sh\n");
    ck_assert_int_eq(chmod(scratch_path(&tree->scratch, name, path), 0755), 0);
}

static inline void tree_done(struct tree *tree)
{
    pl_launch_plan_free(tree->plan);
    pl_job_free(tree->job);
    pl_environment_free(tree->environment);
    scratch_done(&tree->scratch);
}

/** Files of a job that go with their variable. */
#define AUTO_TREE __attribute__((cleanup(tree_done)))

static inline void tree_setup(struct tree *tree)
{
    char path[PATH_MAX];

    *tree = (struct tree){.scratch = scratch_new()};
    memcpy(tree->base, tree->scratch.path, sizeof(tree->base));
    ck_ok(pl_environment_new_empty, &tree->environment);
    tree_env(tree, "SAGEMAKER_BASE_DIR", tree->base);
    snprintf(path, sizeof(path), "%s/first:/usr/local/bin:/usr/bin:/bin:%s/bin", tree->base, tree->base);
    tree_env(tree, "PATH", path);
    tree_tool(tree, "bin/mpirun");
    tree_tool(tree, "first/torchrun"); /* Debian's own one is refused */
    tree_tool(tree, "bin/ssh");
    tree_env(tree, "HOME", tree->base);
    snprintf(path, sizeof(path), "%s/ssh", tree->base);
    tree_env(tree, "PACELINE_SSH_DIR", path);
    tree_write(tree, "ssh/id_ed25519", "");
    tree_write(tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"lo\"}");
    tree_write(tree, "code/train.py", "pass\n");
}

static inline struct tree tree_new(void)
{
    struct tree tree;

    tree_setup(&tree);
    return tree;
}

/* Read the job again. The path of the binary is one from which the build tree's companions are found. */
static inline enum pl_status tree_job(struct tree *tree, struct pl_error *reterr)
{
    pl_job_free(tree->job);
    tree->job = NULL;
    return pl_job_new(tree->environment, PL_TEST_BUILD "/entrypoint/paceline", NULL, &tree->job, reterr);
}

/* Read the job and make its plan. */
static inline enum pl_status tree_plan(struct tree *tree, struct pl_error *reterr)
{
    enum pl_status status = tree_job(tree, reterr);

    pl_launch_plan_free(tree->plan);
    tree->plan = NULL;
    return status == PL_OK ? pl_launch_plan_new(tree->job, &tree->plan, reterr) : status;
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
