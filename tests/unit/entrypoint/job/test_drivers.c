/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/drivers.c. */
#include "base/environment.h"
#include "entrypoint/job/job.h"
#include "tests/unit/entrypoint/tree.h"

static void write_source(struct tree *tree, const char *text)
{
    tree_write(tree, "input/data/sm_drivers/sourcecode.json", text);
}

static void write_distributed(struct tree *tree, const char *text)
{
    tree_write(tree, "input/data/sm_drivers/distributed.json", text);
}

static struct tree tree_of_drivers(const char *source, const char *distributed)
{
    struct tree tree = tree_new();

    tree_write(&tree, "input/data/code/train.py", "pass\n");
    tree_write(&tree, "input/data/code/run.sh", "#!/bin/sh\n");
    tree_env(&tree, "PACELINE_PYTHON", "sh"); /* a program that every machine has */
    write_source(&tree, source);
    write_distributed(&tree, distributed);
    return tree;
}

/* Returns the cause of the error, without the scratch directory's name. */
static const char *cause(struct tree *tree)
{
    const char *at;

    ck_assert_int_eq(tree_plan(tree, &tree->error), PL_INVALID);
    at = strstr(tree->error.cause, "sm_drivers/");
    return at ? at + strlen("sm_drivers/") : tree->error.cause;
}

static const char *warned(const struct tree *tree)
{
    return joined(&tree->plan->warnings);
}

static const char script[] = "{\"source_dir\": \"./src\", \"entry_script\": \"train.py\", \"command\": null, "
                             "\"requirements\": null}";
static const char mpi[] = "{\"process_count_per_node\": 4, \"mpi_additional_options\": [\"-x\", \"FOO=a b\"]}";

TEST(without_the_files_nothing_changes)
{
    AUTO_TREE struct tree tree = tree_new();

    write_distributed(&tree, "{\"process_count_per_node\": \"many\"}");
    ck_ok(tree_job, &tree);
    ck_assert_ptr_null(tree.job->drivers.source);
    ck_assert_str_eq(tree.job->requirements, "requirements.txt");
    ck_has(tree.job->paths.code, "/code");
    ck_lacks(tree.job->paths.code, "/input/data/code");
}

TEST(an_entry_script_runs_in_the_code_channel_with_the_sdks_arguments)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{}");

    tree_hyperparameters(&tree, "{\"b\": \"true\", \"a\": \"null\", \"list\": \"[1, 2]\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "direct");
    ck_has(joined(&tree.plan->argv), "/sh|train.py|--b|true|--a|null|--list|[1, 2]");
    ck_has(tree.plan->cwd, "/input/data/code");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_ENTRY_SCRIPT"), "train.py");
    ck_assert_uint_eq(tree.plan->warnings.count, 0);
    ck_ok(pl_secrets_mask, tree.job);
    ck_assert_str_eq(joined(&tree.job->user_args), "--b|true|--a|null|--list|[1, 2]");
}

TEST(mpi_has_its_processes_on_every_host)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, mpi);

    tree_two_hosts(&tree, "algo-1");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "mpi");
    ck_assert_int_eq(tree.plan->processes, 8);
    ck_has(joined(&tree.plan->argv), "algo-1:4,algo-2:4");
    ck_has(joined(&tree.plan->argv), "|-x|FOO=a b|");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_MASTER_ADDR"), "algo-1");
    tree_two_hosts(&tree, "algo-2");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq((int)tree.plan->role, PL_LAUNCH_PLAN_WORKER);
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_CURRENT_HOST_RANK"), "1");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_HOST_COUNT"), "2");
}

TEST(all_groups_take_part_and_the_first_host_leads)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, mpi);

    tree_write(&tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\"], \"current_group_name\": \"b\", "
               "\"network_interface_name\": \"lo\", \"instance_groups\": [{\"instance_group_name\": \"a\", \"hosts\": "
               "[\"algo-1\"]}, {\"instance_group_name\": \"b\", \"hosts\": [\"algo-2\"]}]}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1|algo-2");
    ck_assert_int_eq((int)tree.plan->role, PL_LAUNCH_PLAN_WORKER);
}

TEST(torchrun_is_told_by_its_settings_and_by_the_script)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{\"process_count_per_node\": \"2\", \"smp\": null}");

    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "torchrun");
    ck_has(joined(&tree.plan->argv), "--nproc_per_node|2|train.py");
    write_distributed(&tree, "{\"process_count_per_node\": null}");
    tree_write(&tree, "input/data/sm_drivers/sm_train.sh", "$PY /x/distributed_drivers/torchrun_driver.py\n");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "torchrun");
}

TEST(a_driver_of_anothers_making_runs_through_the_script)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{\"nodes\": 3}");

    tree_write(&tree, "input/data/sm_drivers/sm_train.sh", "$PY /x/distributed_drivers/ray_driver.py\n");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "direct");
    ck_has(joined(&tree.plan->argv), "/bin/bash|");
    ck_has(joined(&tree.plan->argv), "/sm_drivers/sm_train.sh");
    ck_has(warned(&tree), "a driver of its own, ray_driver.py");
}

TEST(a_command_is_the_shells_with_its_arguments_quoted)
{
    AUTO_TREE struct tree tree = tree_of_drivers(
        "{\"source_dir\": \"s\", \"command\": \"echo $A\", \"args\": [\"a b\", 3, 0.5, \"it's\"]}", "{}");

    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->argv), "bash|-e|-c|echo $A 'a b' '3' '0.5' 'it'\\''s'");
    ck_has(tree.plan->cwd, "/input/data/code");
    write_source(&tree, "{\"command\": \"./train\"}");
    ck_ok(tree_plan, &tree);
    ck_lacks(tree.plan->cwd, tree.base);
}

TEST(a_command_that_is_paceline_does_not_start_itself)
{
    AUTO_TREE struct tree tree = tree_of_drivers("{\"source_dir\": \"s\", \"command\": \"paceline train\"}", "{}");

    tree_hyperparameters(&tree, "{\"sagemaker_program\": \"run.sh\", \"a-b\": \"1\", \"sagemaker_mpi_enabled\": true}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "mpi");
    ck_has(joined(&tree.plan->argv), "|./run.sh|--|--a-b|1");
    write_source(&tree, "{\"source_dir\": \"s\", \"command\": \" exec  paceline -- ./run.sh $X\"}");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->argv), "-e|-c|./run.sh $X");
}

TEST(a_program_that_is_part_of_the_job_does_not_start_it_again)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, mpi);

    tree_env(&tree, "SM_ENTRY_SCRIPT", "train.py");
    tree_env(&tree, "BASH_ENV", "/x/env");
    tree_hyperparameters(&tree, "{\"sagemaker_program\": \"run.sh\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "direct");
    ck_assert_str_eq(joined(&tree.plan->argv), "./run.sh");
    ck_has(warned(&tree), "is not process 1 (the job's BASH_ENV is '/x/env', in place");
    tree_env(&tree, "SM_MODULE_DIR", "x"); /* the program is Paceline's own, which gave its warnings at its start */
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->warnings.count, 0);
}

TEST(the_files_win_over_hyperparameters_and_a_warning_says_so)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, mpi);

    tree_hyperparameters(
        &tree, "{\"sagemaker_program\": \"other.py\", \"sagemaker_torch_distributed_enabled\": true, "
               "\"sagemaker_mpi_num_of_processes_per_host\": 2, \"sagemaker_mpi_custom_mpi_options\": \"-x BAR\", "
               "\"sagemaker_submit_directory\": \"s3://b/k\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "mpi");
    ck_assert_int_eq(tree.plan->processes, 4);
    ck_lacks(joined(&tree.plan->argv), "BAR");
    ck_assert_uint_eq(tree.plan->warnings.count, 5);
    ck_has(warned(&tree), "the hyperparameter sagemaker_program, 'other.py', has no effect");
    ck_has(warned(&tree), "sagemaker_torch_distributed_enabled has no effect");
    ck_has(warned(&tree), "sagemaker_mpi_num_of_processes_per_host, 2, has no effect");
    ck_has(warned(&tree), "sagemaker_mpi_custom_mpi_options has no effect");
    ck_has(warned(&tree), "sagemaker_submit_directory, 's3://b/k', has no effect");
}

TEST(what_the_files_leave_open_hyperparameters_decide)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{}");

    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": true, \"sagemaker_mpi_num_of_processes_per_host\": 2}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "mpi");
    ck_assert_int_eq(tree.plan->processes, 2);
    ck_assert_uint_eq(tree.plan->warnings.count, 0);
}

TEST(requirements_are_those_that_are_named)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{}");

    tree_write(&tree, "input/data/code/requirements.txt", "x\n");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->steps.count, 0);
    write_source(&tree, "{\"source_dir\": \"s\", \"entry_script\": \"run.sh\", \"requirements\": \"pip/all.txt\"}");
    ck_fails(PL_NOT_FOUND, "sourcecode.json: requirements: expected a file in ", tree_plan, &tree);
    tree_write(&tree, "input/data/code/pip/all.txt", "x\n");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->steps.count, 2);
    ck_has(joined(&tree.plan->steps.items[1].argv), "pip|install|-r|pip/all.txt");
}

TEST(an_archive_is_unpacked_where_it_is)
{
    AUTO_TREE struct tree tree =
        tree_of_drivers("{\"source_dir\": \"s3://b/k/src.tar.gz\", \"entry_script\": \"later.sh\"}", "{}");
    struct pl_launch_plan_steps steps = {.count = 0};

    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "./later.sh");
    ck_assert_int_ne(pl_source_plan(tree.job, &steps, &tree.error), PL_OK);
    ck_has(tree.error.cause, "code/src.tar.gz', which sourcecode.json names");
    pl_launch_plan_steps_done(&steps);
}

TEST(faults_name_file_place_and_what_was_expected)
{
    static const struct {
        const char *source, *distributed, *cause;
    } faults[] = {
        {"[]", "{}", "sourcecode.json, line 1, column 1: expected an object, found a list []"},
        {"{\"command\":\n 3}", "{}",
         "sourcecode.json, line 2, column 2: command: expected a string, found an integer 3"},
        {"{\"entry_script\": [\"a\"]}", "{}",
         "sourcecode.json, line 1, column 18: entry_script: expected a string, found a list [\"a\"]"},
        {"{\"command\": \"x\", \"args\": \"y\"}", "{}",
         "sourcecode.json, line 1, column 26: args: expected a list, found a string \"y\""},
        {"{\"command\": \"x\", \"args\": [null]}", "{}",
         "sourcecode.json, line 1, column 27: expected a string or a number as an argument of the command, found null"},
        {"{\"command\": \"x\"", "{}",
         "sourcecode.json, line 1, column 16: expected ',' or '}', found the end of the text"},
        {script, "3", "distributed.json, line 1, column 1: expected an object, found an integer 3"},
        {script, "{\"nodes\": 3}",
         "distributed.json, line 1, column 1: expected the settings of MPI (with mpi_additional_options), of Torchrun "
         "(with smp) or "
         "none, found an object {\"nodes\": 3}"},
        {script, "{\"process_count_per_node\": 1.5, \"smp\": null}",
         "distributed.json, line 1, column 28: process_count_per_node: expected the processes of one host, a whole "
         "number from 1 to "
         "65536, or null, found a float 1.5"},
        {script, "{\"process_count_per_node\": \"-1\", \"smp\": null}",
         "distributed.json, line 1, column 28: process_count_per_node: expected the processes of one host, a whole "
         "number from 1 to "
         "65536, or null, found a string \"-1\""},
        {script, "{\"mpi_additional_options\": \"-x A\"}",
         "distributed.json, line 1, column 28: mpi_additional_options: expected a list, found a string \"-x A\""},
        {script, "{\"mpi_additional_options\": [1]}",
         "distributed.json, line 1, column 29: expected an option of mpirun as a string, found an integer 1"},
        {script, "{\"mpi_additional_options\": [\"-x\"]}",
         "mpi_additional_options of distributed.json: expected a variable after the last -x, such as NAME or "
         "NAME=VALUE"},
    };
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{}");

    for (size_t i = 0; i < PL_ARRAY_ITEMS(faults); i++) {
        write_source(&tree, faults[i].source);
        write_distributed(&tree, faults[i].distributed);
        tree.error = PL_ERROR_NONE;
        ck_assert_str_eq(cause(&tree), faults[i].cause);
    }
}

TEST(secrets_in_the_options_are_masked)
{
    AUTO_TREE struct tree tree = tree_of_drivers(script, "{\"mpi_additional_options\": [\"-x\", \"API_KEY=abc\"]}");

    ck_ok(tree_job, &tree);
    ck_ok(pl_secrets_mask, tree.job);
    ck_ok(pl_launch_plan_new, tree.job, &tree.plan);
    ck_lacks(joined(&tree.plan->argv), "abc");
    ck_lacks(pl_environment_get(tree.plan->additions, "SM_DISTRIBUTED_CONFIG"), "abc");
}

UNIT_MAIN("entrypoint/drivers")
