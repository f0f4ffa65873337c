/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/needs.c, entrypoint/launch/program.c. */
#include "tests/unit/entrypoint/tree.h"

TEST(a_launcher_that_the_image_lacks_fails_the_plan_unless_pip_may_bring_it)
{
    static const char *const launchers[][2] = {{"{\"sagemaker_mpi_enabled\": true}", "mpirun"},
                                               {"{\"sagemaker_torch_distributed_enabled\": true}", "torchrun"}};
    char told[128];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(launchers); i++) {
        AUTO_TREE struct tree tree = tree_new();

        tree_env(&tree, "PACELINE_PYTHON", "/py");
        tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
        tree_hyperparameters(&tree, launchers[i][0]);
        ck_ok(tree_plan, &tree);
        tree_env(&tree, "PATH", "/nowhere");
        for (int host = 0; host < 2; host++) { /* a worker looks for the daemon next to its own mpirun */
            ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
            snprintf(told, sizeof(told),
                     "%s starts the job's program and is not on PATH in this image: ", launchers[i][1]);
            ck_assert_msg(strncmp(tree.error.cause, told, strlen(told)) == 0, "%s", tree.error.cause);
            tree_two_hosts(&tree, "algo-2");
        }
        tree_write(&tree, "code/requirements.txt", "x\n");
        ck_ok(tree_plan, &tree);
        ck_has(joined(&tree.plan->warnings), "is not on PATH: the packages that pip installs");
        tree_env(&tree, "PACELINE_INSTALL", "0");
        ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    }
}

TEST(debians_torchrun_is_refused_unless_pip_may_bring_another)
{
    static const char words[] = "/first/torchrun is of Debian's package python3-torch 1.13 and does not work with "
                                "Python 3.11: install torch 2 from PyPI (pip3 install --upgrade torch)";
    static const char of_debian_13[] =
        "/first/torchrun is of Debian's package python3-torch 2.6 and does not work: that "
        "torch has no libuv: install torch 2 from PyPI";
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_hyperparameters(&tree, "{\"sagemaker_torch_distributed_enabled\": true}");
    tree_write(&tree, "first/torchrun",
               "#!/usr/bin/python3.11\n# EASY-INSTALL-ENTRY-SCRIPT: 'torch==1.13.0a0','console_scripts','torchrun'\n");
    ck_fails(PL_UNSUPPORTED, words, tree_plan, &tree);
    tree_write(&tree, "code/requirements.txt", "torch\n");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->warnings), words);
    tree_write(&tree, "code/requirements.txt", "");
    tree_env(&tree, "PACELINE_INSTALL", "0");
    tree_write(&tree, "first/torchrun", "#!/usr/bin/python3.12\n# 'torch==1.13.0a0'\n");
    ck_ok(tree_plan, &tree);
    tree_write(
        &tree, "first/torchrun",
        "#!/usr/bin/python3.13\n# EASY-INSTALL-ENTRY-SCRIPT: 'torch==2.6.0+debian','console_scripts','torchrun'\n");
    ck_fails(PL_UNSUPPORTED, of_debian_13, tree_plan, &tree);
    tree_write(&tree, "first/torchrun", "#!/usr/bin/python3.13\n# 'torch==2.6.0'\n");
    ck_ok(tree_plan, &tree);
}

TEST(a_link_that_the_job_needs_takes_ssh)
{
    char path[PATH_MAX];
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    snprintf(path, sizeof(path), "%s/bin", tree.base);
    tree_env(&tree, "PATH", path);
    tree_two_hosts(&tree, "algo-1");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": true}");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(remove(scratch_path(&tree.scratch, "ssh/id_ed25519", path)), 0);
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_msg(strstr(tree.error.cause, "the training image that this job names has no ssh keys ('") &&
                      strstr(tree.error.cause, "the Dockerfile that builds this training image needs `RUN ") &&
                      strstr(tree.error.cause, "(File mode, FullyReplicated)"),
                  "%s", tree.error.cause);
    tree_env(&tree, "PACELINE_SSH_SECRET", "/opt/ml/input/data/secret/key");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(remove(scratch_path(&tree.scratch, "bin/ssh", path)), 0);
    ck_fails_as(PL_NOT_FOUND,
                "the job's hosts are linked by ssh, and this image has no ssh: build it with openssh-client", tree_plan,
                &tree);
    tree_hyperparameters(&tree, "{}"); /* plain programs run even without the link */
    ck_ok(tree_plan, &tree);
}

TEST(a_script_with_cr_lf_is_refused)
{
    static const char *const scripts[] = {"#!/bin/sh\r\n", "#! /bin/sh\r\n", "#!/bin/sh -e\r\n",
                                          "#!/usr/bin/env python3\r\n", "#!/usr/bin/env  python3\r\n"};
    static const char *const good[] = {"#!/bin/sh\ncat <<X\r\n", "#!/usr/bin/env -S python3 -u\r\n",
                                       "#!/usr/bin/perl -w\r\n"};
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "run.sh");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(scripts); i++) {
        tree_write(&tree, "code/run.sh", scripts[i]);
        ck_fails_as(PL_INVALID,
                    "the program './run.sh' cannot run: the script's lines end in CR LF, save it with LF alone",
                    tree_plan, &tree);
    }
    pl_strv_add(&tree.job->command, "./run.sh");
    ck_assert_int_eq(pl_launch_plan_new(tree.job, &tree.plan, &tree.error), PL_INVALID);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(good); i++) {
        tree_write(&tree, "code/run.sh", good[i]);
        ck_ok(tree_plan, &tree);
        ck_assert_uint_eq(tree.plan->warnings.count, 0);
    }
    tree_write(&tree, "code/run.sh", "set -e\r\ntrue\r\n");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->warnings), "the lines of './run.sh' end in CR LF");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_write(&tree, "code/train.py", "pass\r\n"); /* Python accepts both kinds of line end */
    ck_ok(tree_plan, &tree);
}

TEST(a_program_in_a_folder_below_is_named)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "main.py");
    tree_write(&tree, "code/src/deep/main.py", "");
    tree_write(&tree, "code/.git/main.py", "");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'src/deep/main.py': use that path");
    tree_write(&tree, "code/other/main.py", "");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'other/main.py', 'src/deep/main.py', 'train.py'");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "bin/run.sh");
    tree_write(&tree, "code/scripts/run.sh", "");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'scripts/run.sh': use that path");
}

TEST(of_the_files_that_are_there_the_nearest_names_are_listed_first)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "trian.py");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'train.py'");
    tree_write(&tree, "code/model.py", "");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'train.py', 'model.py'");
    tree_write(&tree, "code/data/a.py", "");
    tree_write(&tree, "code/data/b.py", "");
    tree_write(&tree, "code/data/c.py", "");
    tree_write(&tree, "code/src/trial.py", "");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "the code directory has 'src/trial.py', 'train.py', 'data/a.py', 'data/b.py', "
                                         "'data/c.py' and others");
}

UNIT_MAIN("entrypoint/needs")
