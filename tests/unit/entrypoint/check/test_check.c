/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/check/check.c. */
#include "entrypoint/check/check.h"
#include "tests/unit/entrypoint/tree.h"

/* Read the job and make the check for which its settings ask. */
static enum pl_status make_check(struct tree *tree, const struct pl_strv *words, struct pl_job **ret_check)
{
    ck_ok(tree_job, tree);
    return pl_check_new(tree->job, words, ret_check, &tree->error);
}

TEST(a_job_is_checked_only_where_it_says_so)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    AUTO_TREE struct tree tree = tree_new();

    ck_assert_ok(make_check(&tree, NULL, &check), &tree.error);
    ck_assert_ptr_null(check);
    tree_env(&tree, "PACELINE_CHECK", "no");
    ck_assert_ok(make_check(&tree, NULL, &check), &tree.error);
    ck_assert_ptr_null(check);
    tree_env(&tree, "PACELINE_CHECK", "efa");
    ck_assert_int_eq(make_check(&tree, NULL, &check), PL_INVALID);
    ck_assert_str_eq(tree.error.cause, "PACELINE_CHECK is 'efa': expected 1, 0, or options of `paceline check`");
}

TEST(the_check_has_two_ranks_on_each_of_the_jobs_hosts_and_its_options)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    AUTO_TREE struct tree tree = tree_new();

    tree_two_hosts(&tree, "algo-1");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": true, \"sagemaker_mpi_num_of_processes_per_host\": 8, "
                                "\"sagemaker_submit_directory\": \"s3://bucket/code.tar.gz\", \"epochs\": 3, "
                                "\"paceline_check\": \"--expect efa --expect-mbit 5000\"}");
    ck_assert_ok(make_check(&tree, NULL, &check), &tree.error);
    ck_assert(check->is_check && check->launches == PL_JOB_MPI);
    ck_assert_int_eq(check->processes_per_host, 2);
    ck_assert_int_eq(check->processes, 4);
    ck_assert_ptr_null(check->submit_uri);
    ck_has(joined(&check->command), "/paceline-check|--ranks|8|--hosts|algo-1,algo-2|--expect|efa|"
                                    "--expect-mbit|5000");
}

TEST(the_plan_of_a_check_has_no_step_of_the_job_and_no_table_of_mpirun)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    PL_AUTO_STRV struct pl_strv none = PL_STRV_NONE;
    AUTO_TREE struct tree tree = tree_new();

    tree_two_hosts(&tree, "algo-1");
    tree_write(&tree, "code/requirements.txt", "numpy\n");
    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "PACELINE_MPI_VERSION", "4");
    ck_assert_ok(make_check(&tree, &none, &check), &tree.error);
    ck_ok(pl_launch_plan_new, check, &plan);
    ck_has(joined(&plan->argv), "|--tag-output|");
    ck_assert_uint_gt(plan->steps.count, 0);
    ck_ok(pl_check_adapt_plan, plan);
    ck_assert_uint_eq(plan->steps.count, 0);
    ck_assert_ptr_eq(strstr(joined(&plan->argv), "mpirun|--host|algo-1,algo-2|-np|2|--timeout|180|"),
                     joined(&plan->argv));
    ck_lacks(joined(&plan->argv), "--tag-output");
    ck_lacks(joined(&plan->argv), "--display-map");
}

TEST(a_host_outside_the_distribution_checks_itself)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;
    PL_AUTO_JOB struct pl_job *check = NULL;
    PL_AUTO_STRV struct pl_strv none = PL_STRV_NONE;
    AUTO_TREE struct tree tree = tree_new();

    tree_write(
        &tree, "input/config/resourceconfig.json",
        "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"lo\", "
        "\"current_group_name\": \"data\", \"instance_groups\": [{\"instance_group_name\": \"train\", "
        "\"hosts\": [\"algo-1\"]}, {\"instance_group_name\": \"data\", \"hosts\": [\"algo-2\"]}]}");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": true, "
                                "\"sagemaker_distribution_instance_groups\": [\"train\"]}");
    ck_assert_ok(make_check(&tree, &none, &check), &tree.error);
    ck_assert_str_eq(joined(&check->distribution_hosts), "algo-2");
    ck_ok(pl_launch_plan_begin, check, &plan);
    ck_assert_str_eq(plan->launcher->name, "mpi");
}

TEST(groups_without_a_distribution_are_checked_as_one)
{
    PL_AUTO_JOB struct pl_job *check = NULL;
    PL_AUTO_STRV struct pl_strv none = PL_STRV_NONE;
    AUTO_TREE struct tree tree = tree_new();

    tree_write(&tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\", \"algo-3\"], "
               "\"network_interface_name\": \"lo\", \"current_group_name\": \"data\", \"instance_groups\": "
               "[{\"instance_group_name\": \"train\", \"hosts\": [\"algo-1\", \"algo-3\"]}, "
               "{\"instance_group_name\": \"data\", \"hosts\": [\"algo-2\"]}]}");
    ck_assert_ok(make_check(&tree, &none, &check), &tree.error);
    ck_assert_str_eq(joined(&check->distribution_hosts), "algo-1|algo-2|algo-3");
    ck_assert_int_eq(check->distribution_index, 1);
    ck_assert_int_eq(check->processes, 3);
    ck_assert_int_eq(check->host_processes[2], 1);
}

UNIT_MAIN("entrypoint/check/check")
