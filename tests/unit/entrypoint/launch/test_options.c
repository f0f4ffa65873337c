/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/mpi_options.c, entrypoint/launch/launcher.c. */
/* The options of launchers; what a plan makes of them has ../test_jobs.c. */
#include "entrypoint/launch/mpi_options.h"
#include "tests/unit/entrypoint/tree.h"

TEST(custom_options_take_the_nccl_level_out_in_every_form)
{
    static const struct {
        const char *text;
        const char *level;
        const char *words;
    } forms[] = {
        {"", "INFO", ""},
        {"--NCCL_DEBUG=WARN -x A", "WARN", "-x|A"},
        {"--NCCL_DEBUG VERSION --bind-to core", "VERSION", "--bind-to|core"},
        {"--NCCL X", "X", ""},
        {"-x NCCL_DEBUG=TRACE", "INFO", "-x|NCCL_DEBUG=TRACE"},
        {"-hostfile /tmp/h --help", "INFO", "-hostfile|/tmp/h|--help"},
        {"-verbose --NCCL_DEBUG=INFO -x OMPI_MCA_btl_vader_single_copy_mechanism=none", "INFO",
         "-verbose|-x|OMPI_MCA_btl_vader_single_copy_mechanism=none"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(forms); i++) {
        PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
        struct pl_mpi_options_custom custom = {.words = {.pool = &pool}};

        ck_ok(pl_mpi_options_split, forms[i].text, &custom);
        ck_assert_str_eq(custom.nccl_debug, forms[i].level);
        ck_assert_str_eq(joined(&custom.words), forms[i].words);
    }
}

TEST(a_level_or_a_variable_that_is_missing_is_an_error)
{
    static const char *const wrong[] = {"--NCCL_DEBUG", "--NCCL_DEBUG -x", "-x 'open", "-x A -x",
                                        "-x --NCCL_DEBUG=WARN"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
        struct pl_mpi_options_custom custom = {.words = {.pool = &pool}};

        ck_fails(PL_INVALID, "", pl_mpi_options_split, wrong[i], &custom);
    }
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
        {"/usr/bin/python3 train.py --max_restarts 3 --nnodes 1:4", false},
        {"torchrun --nnodes 2 train.py --max_restarts 3", false},
        {"bash -e -c 'cd x && torchrun --max_restarts 3 train.py'", true},
        {"bash -e -c 'python3 train.py --max_restarts 3'", false},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
        AUTO_TREE struct tree tree = tree_new();

        ck_ok(pl_strv_split, cases[i].command, "command", &words);
        ck_assert_msg(pl_launcher_is_elastic(tree.environment, &words) == cases[i].elastic, "%s", cases[i].command);
    }
}

TEST(a_value_that_no_argument_can_hold_is_refused_by_name)
{
    static char text[140000];
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_write(&tree, "input/config/hyperparameters.json", "{\"nul\": \"x\\u0000y\"}");
    ck_fails(PL_INVALID, "hyperparameter '--nul': expected a value without U+0000", tree_plan, &tree);
    for (int excess = 0; excess < 2; excess++) {
        /* a number followed by a dot is a text */
        snprintf(text, sizeof(text), "{\"long\": \"%0*d.\"}", 131070 + excess, 0);
        tree_write(&tree, "input/config/hyperparameters.json", text);
        ck_assert_int_eq(tree_plan(&tree, &tree.error), excess == 0 ? PL_OK : PL_LIMIT);
    }
    ck_has(tree.error.cause, "'--long': expected fewer than the 131072 bytes "
                             "that Linux passes in one argument, found 131072");
}

UNIT_MAIN("entrypoint/launch/options")
