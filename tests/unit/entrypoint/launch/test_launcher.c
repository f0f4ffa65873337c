/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/launcher.c, entrypoint/launch/launcher_torchrun.c. */
/* Which hosts are linked, and which program starts the ranks. */
#include "entrypoint/launch/launcher.h"
#include "tests/unit/entrypoint/tree.h"

TEST(hosts_with_programs_of_their_own_are_linked_beside_them_unless_torchrun_or_a_setting_says_no)
{
    static const struct {
        const char *hyperparameters, *variable, *value;
        enum pl_launch_plan_link link;
        enum pl_launch_plan_ranks ranks;
    } cases[] = {
        {"{}", "X", "", PL_LAUNCH_PLAN_LINK_BESIDE, PL_LAUNCH_PLAN_RANKS_NONE},
        {"{}", "PACELINE_LINK", "0", PL_LAUNCH_PLAN_LINK_NONE, PL_LAUNCH_PLAN_RANKS_NONE},
        {"{\"paceline_link\": \"false\"}", "X", "", PL_LAUNCH_PLAN_LINK_NONE, PL_LAUNCH_PLAN_RANKS_NONE},
        {"{\"sagemaker_multi_worker_mirrored_strategy_enabled\": true}", "X", "", PL_LAUNCH_PLAN_LINK_BESIDE,
         PL_LAUNCH_PLAN_RANKS_NONE},
        {"{\"sagemaker_torch_distributed_enabled\": true}", "X", "", PL_LAUNCH_PLAN_LINK_BESIDE,
         PL_LAUNCH_PLAN_RANKS_TORCHRUN},
        {"{\"sagemaker_torch_distributed_enabled\": true}", "PET_MAX_RESTARTS", "0", PL_LAUNCH_PLAN_LINK_BESIDE,
         PL_LAUNCH_PLAN_RANKS_TORCHRUN},
        {"{\"sagemaker_torch_distributed_enabled\": true}", "PET_MAX_RESTARTS", "2", PL_LAUNCH_PLAN_LINK_NONE,
         PL_LAUNCH_PLAN_RANKS_NONE},
        {"{}", "PET_NNODES", "1:4", PL_LAUNCH_PLAN_LINK_NONE, PL_LAUNCH_PLAN_RANKS_NONE},
        {"{}", "PET_NNODES", "2", PL_LAUNCH_PLAN_LINK_BESIDE, PL_LAUNCH_PLAN_RANKS_NONE},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        for (int host = 1; host <= 2; host++) {
            AUTO_TREE struct tree tree = tree_new();

            tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
            tree_env(&tree, cases[i].variable, cases[i].value);
            tree_two_hosts(&tree, host == 1 ? "algo-1" : "algo-2");
            tree_hyperparameters(&tree, cases[i].hyperparameters);
            ck_ok(tree_plan, &tree);
            ck_assert_msg(tree.plan->link == cases[i].link && tree.plan->ranks == cases[i].ranks, "case %zu", i);
            ck_assert_int_eq(tree.plan->role, host == 1 ? PL_LAUNCH_PLAN_MASTER : PL_LAUNCH_PLAN_WORKER);
            ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1|algo-2");
        }
    }
}

TEST(torchruns_options_say_whether_it_survives_a_loss)
{
    static const struct {
        const char *command;
        bool elastic;
    } cases[] = {
        {"torchrun --nnodes 1:4 train.py", true},
        {"torchrun --nnodes=2:2 train.py", true},
        {"torchrun --nnodes 2 train.py", false},
        {"torchrun --max-restarts 3 train.py", true},
        {"torchrun --max_restarts=1 train.py", true},
        {"torchrun --max-restarts 0 train.py", false},
        {"python3 train.py --nnodes-file 1:4", false},
        {"torchrun train.py --nnodes", false},
        {"python3 -m torch.distributed.run --nnodes 1:2", true},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
        AUTO_TREE struct tree tree = tree_new();

        ck_ok(pl_strv_split, cases[i].command, "command", &words);
        ck_assert_msg(pl_launcher_is_elastic(tree.environment, &words) == cases[i].elastic, "%s", cases[i].command);
    }
}

TEST(a_host_whose_plan_fails_can_still_be_linked)
{
    static const struct {
        const char *hyperparameters;
        enum pl_launch_plan_link link;
    } cases[] = {{"{\"sagemaker_mpi_enabled\": true}", PL_LAUNCH_PLAN_LINK_NEEDED},
                 {"{\"sagemaker_torch_distributed_enabled\": true}", PL_LAUNCH_PLAN_LINK_BESIDE}};
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "missing.py");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        tree_hyperparameters(&tree, cases[i].hyperparameters);
        tree_two_hosts(&tree, "algo-2");
        pl_launch_plan_free(PL_TAKE(tree.plan));
        ck_ok(tree_job, &tree);
        ck_ok(pl_launch_plan_new_hosts, tree.job, &tree.plan);
        ck_assert_int_eq(pl_launch_plan_fill(tree.job, tree.plan, &tree.error), PL_NOT_FOUND);
        ck_assert_int_eq(tree.plan->link, cases[i].link);
        ck_assert_uint_eq(tree.plan->argv.count, 0);
        ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1|algo-2");
        tree_write(&tree, "input/config/resourceconfig.json",
                   "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"lo\"}");
        ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
        ck_assert_ptr_null(tree.plan);
    }
}

UNIT_MAIN("entrypoint/launcher")
