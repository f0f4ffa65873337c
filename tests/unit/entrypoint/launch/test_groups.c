/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/mpi_options.c. What `paceline check` changes in the options of mpirun. */
#include "entrypoint/launch/mpi_options.h"
#include "tests/unit/entrypoint/tree.h"

/* Make a job on two groups. This host is the first of the first group, or the only host of the second, whose type is
 * `type`. */
static void two_groups(struct tree *tree, bool first, const char *type)
{
    char text[640];

    snprintf(text, sizeof(text),
             "{\"current_host\": \"%s\", \"current_instance_type\": \"%s\", \"current_group_name\": \"%s\", "
             "\"network_interface_name\": \"lo\", "
             "\"hosts\": [\"algo-1\", \"algo-2\"], \"instance_groups\": ["
             "{\"instance_group_name\": \"a\", \"instance_type\": \"ml.p4d.24xlarge\", \"hosts\": [\"algo-1\"]}, "
             "{\"instance_group_name\": \"b\", \"instance_type\": \"%s\", \"hosts\": [\"algo-2\"]}]}",
             first ? "algo-1" : "algo-2", first ? "ml.p4d.24xlarge" : type, first ? "a" : "b", type);
    tree_write(tree, "input/config/resourceconfig.json", text);
}

TEST(a_worker_leaves_the_count_of_processes_to_the_master)
{
    static const char hps[] = "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_processes\": \"4\", "
                              "\"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", \\\"b\\\"]\"}";
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, hps);
    two_groups(&tree, true, "ml.p4d.24xlarge");
    ck_fails(PL_INVALID, "4 processes do not fit: 2 hosts with 1 each make 2", tree_plan, &tree);
    two_groups(&tree, false, "ml.g5.xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_WORKER);
}

TEST(hosts_of_several_types_are_warned_of_unless_their_count_is_named)
{
    static const char groups[] =
        "\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", \\\"b\\\"]\"";
    static const char warning[] = "sagemaker_mpi_num_of_processes_per_host names the number";
    AUTO_TREE struct tree tree = tree_new();
    char hps[256];

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    snprintf(hps, sizeof(hps), "{%s}", groups);
    tree_hyperparameters(&tree, hps);
    two_groups(&tree, true, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->warnings), warning);
    ck_has(joined(&tree.plan->warnings), "(ml.g5.12xlarge)");
    two_groups(&tree, true, "ml.p4d.24xlarge");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->warnings), warning);
    snprintf(hps, sizeof(hps), "{%s, \"sagemaker_mpi_num_of_processes_per_host\": \"1\"}", groups);
    tree_hyperparameters(&tree, hps);
    two_groups(&tree, true, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->warnings), warning);
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->warnings), warning);
}

TEST(hosts_of_another_type_give_their_number_of_processes)
{
    static const char groups[] =
        "\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", \\\"b\\\"]\"";
    AUTO_TREE struct tree tree = tree_new();
    char hps[256];

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    snprintf(hps, sizeof(hps), "{%s}", groups);
    tree_hyperparameters(&tree, hps);
    two_groups(&tree, true, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert(pl_mpi_hosts_wait(tree.plan));
    ck_assert_int_eq(tree.plan->slots[0], 1);
    tree.plan->slots[1] = 4;
    ck_assert(!pl_mpi_hosts_wait(tree.plan));
    ck_ok(pl_mpi_hosts_apply, tree.job, tree.plan);
    ck_assert_str_eq(tree.plan->argv.items[2], "algo-1:1,algo-2:4");
    ck_assert_str_eq(tree.plan->argv.items[4], "5");
    ck_assert_int_eq(tree.plan->processes, 5);
    snprintf(hps, sizeof(hps), "{%s, \"sagemaker_mpi_num_processes\": \"4\"}", groups);
    tree_hyperparameters(&tree, hps);
    ck_ok(tree_plan, &tree);
    tree.plan->slots[1] = 2;
    ck_fails(PL_INVALID, "4 processes do not fit: 2 hosts have room for 3; raise", pl_mpi_hosts_apply, tree.job,
             tree.plan);
    snprintf(hps, sizeof(hps), "{%s, \"sagemaker_mpi_num_of_processes_per_host\": \"{\\\"b\\\": 3}\"}", groups);
    tree_hyperparameters(&tree, hps);
    ck_ok(tree_plan, &tree);
    ck_assert(!pl_mpi_hosts_wait(tree.plan));
    ck_assert_str_eq(tree.plan->argv.items[2], "algo-1:1,algo-2:3");
    two_groups(&tree, false, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(tree.job->processes_per_host, 3);
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_write(&tree, "code/train.py", "");
    tree_hyperparameters(&tree, "{\"sagemaker_torch_distributed_enabled\": \"true\", "
                                "\"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", \\\"b\\\"]\", "
                                "\"sagemaker_mpi_num_of_processes_per_host\": \"{\\\"a\\\": 8, \\\"b\\\": 3}\"}");
    for (int first = 0; first < 2; first++) {
        two_groups(&tree, first, "ml.g5.12xlarge");
        ck_ok(tree_plan, &tree);
        ck_assert_int_eq(tree.plan->processes, 11);
    }
}

TEST(hosts_outside_the_distribution_are_linked_by_its_master_and_run_their_program)
{
    static const char hps[] =
        "{\"sagemaker_torch_distributed_enabled\": \"true\", \"sagemaker_mpi_enabled\": \"true\", "
        "\"sagemaker_distribution_instance_groups\": \"[\\\"a\\\"]\"}";
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, hps);
    two_groups(&tree, true, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "mpi");
    ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1");
    ck_assert_str_eq(joined(&tree.plan->outside_hosts), "algo-2");
    ck_assert_int_eq(tree.plan->link, PL_LAUNCH_PLAN_LINK_BESIDE);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_MASTER);
    two_groups(&tree, false, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "direct");
    ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1|algo-2");
    ck_assert(tree.plan->is_outside && tree.plan->role == PL_LAUNCH_PLAN_WORKER);
    ck_assert_int_eq(tree.plan->link, PL_LAUNCH_PLAN_LINK_BESIDE);
    tree_env(&tree, "PACELINE_LINK", "0");
    ck_ok(tree_plan, &tree);
    ck_assert(!tree.plan->is_outside && tree.plan->role == PL_LAUNCH_PLAN_SINGLE);
    ck_assert_str_eq(joined(&tree.plan->hosts), "algo-2");
    two_groups(&tree, true, "ml.g5.12xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert(tree.plan->outside_hosts.count == 0 && tree.plan->link == PL_LAUNCH_PLAN_LINK_NONE);
    /* without named groups each group is a separate distribution */
    tree_env(&tree, "PACELINE_LINK", "1");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_ok(tree_plan, &tree);
    ck_assert(tree.plan->outside_hosts.count == 0 && tree.plan->link == PL_LAUNCH_PLAN_LINK_NONE);
}

TEST(a_distribution_group_that_the_job_does_not_have_is_warned_of)
{
    static const char names[] = "sagemaker_distribution_instance_groups names '";
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(
        &tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", "
               "\\\"bb\\\"]\"}");
    two_groups(&tree, false, "ml.g5.xlarge");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "direct");
    ck_has(joined(&tree.plan->warnings), "names 'bb', and the job has no such group");
    ck_lacks(joined(&tree.plan->warnings), "names 'a'");
    tree_hyperparameters(
        &tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_distribution_instance_groups\": \"[\\\"a\\\", "
               "\\\"b\\\"]\"}");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->warnings), names);
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    tree_write(&tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"lo\"}");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->warnings), names);
}

TEST(a_check_leaves_the_users_mapping_out)
{
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    struct pl_mpi_options_custom custom = {.words = {.pool = &pool}};

    ck_ok(pl_mpi_options_split,
          "-np 8 --map-by ppr:8:node -x -N -mca btl tcp,self -npernode 4 -pernode --tag -N 2 "
          "--rankfile /f --bind-to core -n",
          &custom);
    pl_mpi_options_remove_mapping(&custom);
    ck_assert_str_eq(joined(&custom.words), "-x|-N|-mca|btl|tcp,self|--tag|--bind-to|core");
    ck_assert_int_eq(custom.processes, -1);
}

UNIT_MAIN("entrypoint/groups")
