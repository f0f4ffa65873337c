/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/launcher_tensorflow.c. */
#include "base/environment.h"
#include "tests/unit/entrypoint/tree.h"

#include <string.h>

TEST(a_parameter_server_runs_beside_every_kind_of_program)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_two_hosts(&tree, "algo-2");
    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, "{\"sagemaker_parameter_server_enabled\": \"true\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/bin/true");
    ck_assert_str_eq(tree.plan->side->argv.items[0], "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    ck_ok(tree_plan, &tree);
    ck_assert_ptr_nonnull(tree.plan->side);
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "TF_CONFIG"),
                     "{\"cluster\": {\"master\": [\"algo-1:2222\"], \"ps\": [\"algo-1:2223\", \"algo-2:2223\"], "
                     "\"worker\": [\"algo-2:2222\"]}, "
                     "\"environment\": \"cloud\", \"task\": {\"index\": 0, \"type\": \"worker\"}}");
    ck_has(pl_environment_get(tree.plan->side->environment, "TF_CONFIG"), "\"task\": {\"index\": 1, \"type\": \"ps\"}");
    pl_environment_unset(tree.environment, "PACELINE_PYTHON");
    tree_env(&tree, "PATH", "/nowhere");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    ck_fails(PL_NOT_FOUND, "needs Python", tree_plan, &tree);
}

#define CHIEF_CLUSTER                                                                                                  \
    "{\"cluster\": {\"chief\": [\"algo-1:2222\"], \"ps\": [\"algo-1:2223\", \"algo-2:2223\"], "                        \
    "\"worker\": [\"algo-2:2222\"]}, \"environment\": \"cloud\", \"task\": "

TEST(the_chief_alone_runs_the_program_and_the_other_hosts_serve)
{
    AUTO_TREE struct tree tree = tree_new();
    const struct pl_sidecar *worker;

    tree_two_hosts(&tree, "algo-1");
    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, "{\"sagemaker_parameter_server_enabled\": \"true\", \"paceline_tf_chief\": \"yes\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/bin/true");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "TF_CONFIG"),
                     CHIEF_CLUSTER "{\"index\": 0, \"type\": \"chief\"}}");
    ck_assert_str_eq(pl_environment_get(tree.plan->side->environment, "TF_CONFIG"),
                     CHIEF_CLUSTER "{\"index\": 0, \"type\": \"ps\"}}");
    ck_assert_ptr_null(tree.plan->side->next);

    tree_two_hosts(&tree, "algo-2");
    tree_env(&tree, "CUDA_VISIBLE_DEVICES", "0,1");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->argv.count, 0);
    ck_assert_str_eq(pl_environment_get(tree.plan->side->environment, "TF_CONFIG"),
                     CHIEF_CLUSTER "{\"index\": 1, \"type\": \"ps\"}}");
    ck_assert_str_eq(pl_environment_get(tree.plan->side->environment, "CUDA_VISIBLE_DEVICES"), "");
    worker = tree.plan->side->next;
    ck_assert_str_eq(pl_environment_get(worker->environment, "TF_CONFIG"),
                     CHIEF_CLUSTER "{\"index\": 0, \"type\": \"worker\"}}");
    ck_assert_str_eq(pl_environment_get(worker->environment, "CUDA_VISIBLE_DEVICES"), "0,1");
    ck_assert_str_eq(worker->argv.items[2], tree.plan->side->argv.items[2]);
    ck_assert_ptr_null(worker->next);
}

TEST(a_chief_without_parameter_servers_is_warned_of)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_two_hosts(&tree, "algo-1");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_env(&tree, "PACELINE_TF_CHIEF", "0");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->warnings.count, 0);
    tree_env(&tree, "PACELINE_TF_CHIEF", "1");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->warnings.count, 1);
    ck_has(tree.plan->warnings.items[0], "PACELINE_TF_CHIEF has no effect here");
}

UNIT_MAIN("entrypoint/launcher_tensorflow")
