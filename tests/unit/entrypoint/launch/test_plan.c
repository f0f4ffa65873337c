/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/launch/plan.c, entrypoint/launch/program.c, entrypoint/launch/source.c,
 * entrypoint/launch/interface.c, entrypoint/launch/mpi_options.c, entrypoint/launch/launcher.c,
 * entrypoint/launch/launcher_direct.c, entrypoint/launch/launcher_mpi.c. */
#include "base/environment.h"
#include "entrypoint/launch/mpi_options.h"
#include "tests/unit/entrypoint/tree.h"

/* Returns the part of the argument vector after `word`. */
static const char *argv_after(const struct tree *tree, const char *word)
{
    const char *text = joined(&tree->plan->argv);
    const char *at = strstr(text, word);

    ck_assert_msg(at, "no '%s' in %s", word, text);
    return at + strlen(word);
}

TEST(without_program_and_code_the_bundled_program_runs)
{
    AUTO_TREE struct tree tree = tree_new();
    char path[PATH_MAX];

    ck_fails(PL_NOT_FOUND, "no program is named", tree_plan, &tree);
    ck_assert_int_eq(remove(scratch_path(&tree.scratch, "code/train.py", path)), 0);
    tree_hyperparameters(&tree, "{\"epochs\": \"2\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(argv_after(&tree, "/programs/mnist"), "|--epochs|2");
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_SINGLE);
    ck_assert(!tree.plan->needs_names && tree.plan->link == PL_LAUNCH_PLAN_LINK_NONE);
}

TEST(what_is_nearly_a_setting_is_named)
{
    AUTO_TREE struct tree tree = tree_new();
    const char *warnings;

    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_env(&tree, "PACELINE_STOP_S", "20");
    tree_env(&tree, "PACELINE_BUCKET_BYTE", "1");
    tree_env(&tree, "PACELINE_MY_OWN_VARIABLE", "1");
    tree_hyperparameters(&tree, "{\"paceline_timeout_s\": 5, \"paceline_timout_s\": 5, \"paceline_wire\": \"float16\", "
                                "\"paceline_segment_byts\": 1, \"paceline_shm_store\": \"stream\"}");
    ck_ok(tree_plan, &tree);
    warnings = joined(&tree.plan->warnings);
    ck_assert_uint_eq(tree.plan->warnings.count, 4);
    ck_has(warnings,
           "PACELINE_BUCKET_BYTE is not a setting of Paceline and is ignored; did you mean PACELINE_BUCKET_BYTES?");
    ck_has(warnings, "hyperparameter paceline_timout_s is not a setting of Paceline and is "
                     "ignored; did you mean paceline_timeout_s?");
    ck_has(warnings, "hyperparameter paceline_segment_byts is not a setting of Paceline and is "
                     "ignored; did you mean paceline_segment_bytes?");
    ck_has(warnings, "hyperparameter paceline_wire is not a setting of Paceline and is ignored");
}

TEST(what_is_nearly_a_name_of_sagemakers_is_named)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_hyperparameters(
        &tree,
        "{\"sagemaker_mpi_enable\": true, \"sagemaker_mpi_num_processes_per_host\": 2, \"sagemaker_programm\": \"x\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(
        joined(&tree.plan->warnings),
        "the hyperparameter 'sagemaker_mpi_enable' has no effect, because SageMaker does not know it; did you mean "
        "'sagemaker_mpi_enabled'?"
        "|the hyperparameter 'sagemaker_mpi_num_processes_per_host' has no effect, because SageMaker does not know it; "
        "did you mean 'sagemaker_mpi_num_of_processes_per_host'?"
        "|the hyperparameter 'sagemaker_programm' has no effect, because SageMaker does not know it; did you mean "
        "'sagemaker_program'?");
    tree_hyperparameters(
        &tree,
        "{\"sagemaker_region\": \"x\", \"sagemaker_instance_type\": \"x\", \"sagemaker_estimator_module\": \"x\","
        " \"sagemaker_network_interface_name\": \"x\", \"sagemaker_toolkit_native_launcher_enabled\": false,"
        " \"sagemaker_distributed_dataparallel_custom_mpi_options\": \"\", \"sagemaker_recipe_local_path\": \"x\","
        " \"sagemaker_mpi_num_processes\": 1, \"sagemaker_of_another_library\": 1}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->warnings), "");
}

TEST(the_kind_of_program_follows_its_name_and_the_code_directory)
{
    static const char *const no[] = {"0", "false", "No"}; /* a hyperparameter that is false becomes the second value */
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/py|train.py");
    ck_assert_uint_eq(tree.plan->program_words, 2);
    tree_env(&tree, "SAGEMAKER_PROGRAM", "nope.py");
    ck_fails(PL_NOT_FOUND, "'nope.py' is not in", tree_plan, &tree);
    tree_env(&tree, "SAGEMAKER_PROGRAM", "run.sh");
    tree_write(&tree, "code/run.sh", "#!/bin/sh\n");
    tree_write(&tree, "code/setup.py", "");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "./run.sh");
    ck_assert_ptr_nonnull(tree.plan->chmod_path);
    ck_ok(pl_launch_plan_prepare, tree.job, tree.plan);
    ck_assert_int_eq(access(tree.plan->chmod_path, X_OK), 0);
    tree_env(&tree, "SAGEMAKER_PROGRAM", "pkg.pytorch.py");
    tree_write(&tree, "code/requirements.txt", "x\n");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/py|-m|pkg.pytorch");
    ck_assert_uint_eq(tree.plan->steps.count, 2);
    ck_has(joined(&tree.plan->steps.items[0].argv), "|the code has requirements.txt, but this image has no pip");
    ck_has(joined(&tree.plan->steps.items[1].argv), "/py|-m|pip|install|.|-r|requirements.txt");
    ck_assert_str_eq(pl_environment_get(tree.plan->steps.items[1].additions, "PIP_BREAK_SYSTEM_PACKAGES"), "1");
    ck_assert_ptr_null(pl_environment_get(tree.plan->additions, "PIP_BREAK_SYSTEM_PACKAGES"));
    ck_assert_str_eq(pl_environment_get(tree.plan->steps.items[1].additions, "PIP_DISABLE_PIP_VERSION_CHECK"), "1");
    ck_assert_ptr_null(pl_environment_get(tree.plan->steps.items[1].additions, "PIP_CACHE_DIR"));
    tree_write(&tree, "sagemaker/warmpoolcache/of-a-job-before", "");
    ck_ok(tree_plan, &tree);
    ck_has(pl_environment_get(tree.plan->steps.items[1].additions, "PIP_CACHE_DIR"), "/sagemaker/warmpoolcache/pip");
    tree_env(&tree, "PIP_CACHE_DIR", "");
    tree_env(&tree, "PIP_BREAK_SYSTEM_PACKAGES", "0");
    tree_env(&tree, "PIP_DISABLE_PIP_VERSION_CHECK", "0");
    tree_env(&tree, "HOROVOD_SKIP_COMPILE", "0");
    ck_ok(tree_plan, &tree);
    ck_assert_ptr_null(tree.plan->steps.items[1].additions);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(no); i++) {
        tree_env(&tree, "PACELINE_INSTALL", no[i]);
        ck_ok(tree_plan, &tree);
        ck_assert_uint_eq(tree.plan->steps.count, 0);
    }
    tree_env(&tree, "PACELINE_INSTALL", "never");
    ck_fails_as(PL_INVALID, "PACELINE_INSTALL is 'never': expected 1, 0, true, false, yes, no, on or off", tree_plan,
                &tree);
    pl_environment_unset(tree.environment, "PACELINE_INSTALL");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/bin/true");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/no/such");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
}

static bool has_horovod_modules(void) /* Whether this build has the modules for Horovod, which need Python.h. */
{
    return access(PL_TEST_BUILD "/libexec/paceline/libpaceline-horovod.so", R_OK) == 0;
}

TEST(a_horovod_that_is_required_is_not_compiled_but_gets_the_modules)
{
    static const char *const horovods[] = {"horovod", "numpy\n Horovod[pytorch]>=0.19 # a comment\n",
                                           "\r\n\nhorovod==0.27.0"};
    static const char *const others[] = {"", "horovod-x\n", "# horovod\nnumpy\n", "xhorovod"};
    const struct pl_launch_plan_step *steps;
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(horovods) + PL_ARRAY_ITEMS(others) && has_horovod_modules(); i++) {
        bool required = i < PL_ARRAY_ITEMS(horovods);

        tree_write(&tree, "code/requirements.txt", required ? horovods[i] : others[i - PL_ARRAY_ITEMS(horovods)]);
        ck_ok(tree_plan, &tree);
        steps = tree.plan->steps.items;
        ck_assert_str_eq(pl_environment_get(steps[1].additions, "HOROVOD_SKIP_COMPILE"), "1");
        ck_has(joined(&steps[1].argv), "|install|-r|requirements.txt|-c|");
        ck_has(joined(&steps[1].argv), "/horovod/constraint.txt");
        ck_assert_uint_eq(tree.plan->steps.count, required ? 3 : 2);
        ck_assert(!required || strstr(joined(&steps[2].argv), "/paceline-horovod|--python|/py|--unless-compiled"));
    }
    tree_write(&tree, "code/requirements.txt", "horovod\n");
    tree_env(&tree, "HOROVOD_SKIP_COMPILE", "0");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->steps.count, 2);
    ck_assert_str_eq(joined(&tree.plan->steps.items[1].argv), "/py|-m|pip|install|-r|requirements.txt");
}

TEST(a_program_that_gives_way_to_another_is_named)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "nope.py");
    tree_write(&tree, "code/train.py", "");
    tree_write(&tree, "input/config/hyperparameters.json", "{\"sagemaker_program\": \"\\\"train.py\\\"\"}");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_NOT_FOUND);
    ck_has(tree.error.context,
           "SAGEMAKER_PROGRAM names it; the hyperparameter sagemaker_program, 'train.py', has no effect");
    tree_write(&tree, "code/nope.py", "");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->warnings), "the variable SAGEMAKER_PROGRAM names 'nope.py', which is used; the "
                                                   "hyperparameter sagemaker_program, 'train.py', has no effect");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    ck_ok(tree_plan, &tree);
    ck_assert_uint_eq(tree.plan->warnings.count, 0);
}

TEST(text_without_a_shebang_runs_under_sh_and_names_are_found_on_path)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "plain");
    tree_write(&tree, "code/plain", "echo hello\n");
    tree_hyperparameters(&tree, "{\"a\": \"\\\"x y\\\"\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->argv), "/bin/sh|./plain|-a|x y");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "env");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->argv), "/bin/env|-a|x y");
}

TEST(an_image_without_python_says_so)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PATH", "/nowhere");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    ck_fails(PL_NOT_FOUND, "needs Python, but neither python3 nor python is on PATH", tree_plan, &tree);
    tree_env(&tree, "PACELINE_PYTHON", "python2.7");
    ck_fails(PL_NOT_FOUND, "needs Python, and 'python2.7', which PACELINE_PYTHON names, is not on PATH", tree_plan,
             &tree);
}

TEST(mpi_starts_on_the_master_and_waits_on_the_others)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_two_hosts(&tree, "algo-1");
    tree_hyperparameters(&tree,
                         "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", "
                         "\"sagemaker_mpi_num_processes\": \"3\","
                         " \"sagemaker_mpi_custom_mpi_options\": \"-verbose --NCCL_DEBUG=WARN -x 'A=b c'\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_MASTER);
    ck_assert(tree.plan->link == PL_LAUNCH_PLAN_LINK_NEEDED && tree.plan->needs_names &&
              tree.plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN);
    ck_assert_ptr_eq(strstr(joined(&tree.plan->argv), "mpirun|--host|algo-1:2,algo-2:2|-np|3|--allow-run-as-root|"),
                     joined(&tree.plan->argv));
    argv_after(&tree, "|NCCL_DEBUG=WARN|");
    argv_after(&tree, "|-verbose|-x|A=b c|");
    ck_assert_str_eq(argv_after(&tree, "|rank|"), "/bin/true|--");
    ck_assert_uint_eq(tree.plan->program_words, 1);
    tree_two_hosts(&tree, "algo-2");
    ck_ok(tree_plan, &tree);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_WORKER);
    ck_assert_uint_eq(tree.plan->argv.count, 0);
}

TEST(what_the_user_exports_comes_after_our_own_and_keeps_our_library)
{
    AUTO_TREE struct tree tree = tree_new();
    const char *at;

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_two_hosts(&tree, "algo-1");
    tree_hyperparameters(
        &tree, "{\"sagemaker_mpi_enabled\": \"true\", \"epochs\": \"2\", \"sagemaker_mpi_custom_mpi_options\": "
               "\"-x LD_LIBRARY_PATH=/opt/foo/lib -x LD_PRELOAD=/opt/mine.so -x SM_MINE=a -x SM_HP_EPOCHS=9\"}");
    ck_ok(tree_plan, &tree);
    at = argv_after(&tree, "|-x|LD_LIBRARY_PATH|");
    ck_has(at, "|-x|LD_LIBRARY_PATH=/opt/foo/lib|-x|LD_PRELOAD=/");
    argv_after(&tree, "/libpaceline-hostname.so:/opt/mine.so|-x|SM_MINE=a|");
    tree_two_hosts(&tree, "algo-2");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_MINE"), "a");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_HP_EPOCHS"), "2");
}

/* Make the plan of an MPI job on `host` and another host. */
static enum pl_status plan_with_name(struct tree *tree, const char *host, const char *options)
{
    char text[512];

    snprintf(text, sizeof(text),
             "{\"current_host\": \"algo-2\", \"hosts\": [\"%s\", \"algo-2\"], "
             "\"network_interface_name\": \"lo\"}",
             host);
    tree_write(tree, "input/config/resourceconfig.json", text);
    snprintf(text, sizeof(text), "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_custom_mpi_options\": \"%s\"}",
             options);
    tree_hyperparameters(tree, text);
    return tree_plan(tree, &tree->error);
}

TEST(host_names_that_open_mpi_4_does_not_take_are_refused_on_every_host)
{
    static const char *const odd[] = {"algo_1", "node[1-2]", "algo$", "n\u00e9", "a%b"};
    char name[64];
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_env(&tree, "PACELINE_MPI_VERSION", "4");
    ck_assert_ok(plan_with_name(&tree, "Algo.1-x", ""), &tree.error);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(odd); i++) {
        ck_assert_int_eq(plan_with_name(&tree, odd[i], ""), PL_INVALID);
        ck_has(tree.error.cause, "Open MPI 4 does not take the host name '");
    }
    ck_assert_int_eq(plan_with_name(&tree, "algo_1", ""), PL_INVALID);
    ck_assert_str_eq(tree.error.cause, "resourceconfig.json: Open MPI 4 does not take the host name 'algo_1': expected "
                                       "letters, digits, dots and hyphens, found '_'; rename the host, or for '_' put "
                                       "--mca regx naive into sagemaker_mpi_custom_mpi_options");
    ck_assert_ok(plan_with_name(&tree, "algo_1", "--mca regx naive"), &tree.error);
    memset(name, 'a', sizeof(name));
    name[57] = '\0';
    ck_assert_int_eq(plan_with_name(&tree, name, "--mca regx naive"), PL_INVALID);
    ck_has(tree.error.cause, "too long for Open MPI 4: expected at most 56 characters, found 57");
    name[56] = '\0';
    ck_assert_ok(plan_with_name(&tree, name, ""), &tree.error);
    name[56] = 'a';
    tree_env(&tree, "PACELINE_MPI_VERSION", "5");
    ck_assert_ok(plan_with_name(&tree, name, ""), &tree.error);
    ck_assert_ok(plan_with_name(&tree, "algo_1", ""), &tree.error);
}

TEST(a_number_of_processes_among_the_options_is_warned_of_unless_it_is_the_jobs)
{
    static const struct {
        const char *options;
        bool warns;
    } cases[] = {{"", false},          {"-np 2", false},           {"-np 100", true}, {"--n 100 -np 2", false},
                 {"-np 2 -c 3", true}, {"-x n -x np --np", false}, {"-n 1", true},    {"-np two", false}};
    AUTO_TREE struct tree tree = tree_new();
    char hps[256];

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        snprintf(hps, sizeof(hps),
                 "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", "
                 "\"sagemaker_mpi_custom_mpi_options\": \"%s\"}",
                 cases[i].options);
        tree_hyperparameters(&tree, hps);
        ck_ok(tree_plan, &tree);
        ck_assert_msg(!strstr(joined(&tree.plan->warnings), "makes mpirun start ") != cases[i].warns, "%s",
                      cases[i].options);
    }
    tree_hyperparameters(&tree,
                         "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", "
                         "\"sagemaker_mpi_custom_mpi_options\": \"-np 100\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(joined(&tree.plan->warnings),
                     "sagemaker_mpi_custom_mpi_options makes mpirun start 100 processes, not the 2 that the job has: "
                     "name the number in sagemaker_mpi_num_of_processes_per_host");
}

TEST(more_processes_than_slots_is_an_error_unless_allowed)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_processes\": \"4\"}");
    ck_fails(PL_INVALID, "4 processes do not fit", tree_plan, &tree);
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_processes\": \"4\", "
                                "\"sagemaker_mpi_custom_mpi_options\": \"--nooversubscribe\"}");
    ck_assert_int_eq(tree_plan(&tree, &tree.error), PL_INVALID);
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_processes\": \"4\", "
                                "\"sagemaker_mpi_custom_mpi_options\": \"--oversubscribe\"}");
    ck_ok(tree_plan, &tree);
}

TEST(python_prints_without_a_buffer_unless_the_container_says_otherwise)
{
    static const char *const launchers[] = {"sagemaker_parameter_server_enabled", "sagemaker_mpi_enabled",
                                            "sagemaker_torch_distributed_enabled",
                                            "sagemaker_multi_worker_mirrored_strategy_enabled"};
    AUTO_TREE struct tree tree = tree_new();
    char hps[128];

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(pl_environment_get(tree.plan->environment, "PYTHONUNBUFFERED"), "1");
    tree_two_hosts(&tree, "algo-1");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(launchers); i++) {
        snprintf(hps, sizeof(hps), "{\"%s\": \"true\"}", launchers[i]);
        tree_hyperparameters(&tree, hps);
        ck_ok(tree_plan, &tree);
        ck_assert_str_ne(tree.plan->launcher->name, "direct");
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "PYTHONUNBUFFERED"), "1");
    }
    tree_env(&tree, "PYTHONUNBUFFERED", "");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(pl_environment_get(tree.plan->environment, "PYTHONUNBUFFERED"), "");
}

TEST(native_servers_are_one_rank_a_host_with_the_program_as_their_workers)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "PACELINE_PYTHON", "/py");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_two_hosts(&tree, "algo-1");
    tree_hyperparameters(&tree, "{\"sagemaker_parameter_server_enabled\": \"true\", \"paceline_ps\": \"native\", "
                                "\"paceline_ps_workers_per_host\": \"3\", "
                                "\"sagemaker_mpi_num_of_processes_per_host\": \"8\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "native_server");
    ck_assert_int_eq(tree.plan->processes, 2);
    ck_has(joined(&tree.plan->argv), "mpirun|--host|algo-1,algo-2|-np|2|");
    argv_after(&tree, "/paceline-server|--workers|3|/py|");
    ck_assert_str_eq(pl_environment_get_or(tree.plan->additions, "PACELINE_RANK_WORKERS", ""), "3");
    tree_hyperparameters(&tree, "{\"paceline_ps\": \"native\", \"paceline_ps_min_workers\": \"1\"}");
    ck_ok(tree_plan, &tree);
    argv_after(&tree, "/paceline-server|--workers|1|--min-workers|1|/py|");
    tree_hyperparameters(&tree, "{\"paceline_ps\": \"native\", \"paceline_ps_min_workers\": \"-1\"}");
    ck_fails(PL_INVALID, "paceline_ps_min_workers", tree_plan, &tree);
    /* even without the switch, and on one host */
    tree_hyperparameters(&tree, "{\"paceline_ps\": \"native\"}");
    ck_ok(tree_plan, &tree);
    ck_assert_str_eq(tree.plan->launcher->name, "native_server");
    tree_hyperparameters(&tree, "{\"paceline_ps\": \"native\", \"sagemaker_mpi_enabled\": \"true\"}");
    ck_fails(PL_INVALID, "also asks for another distribution (mpi)", tree_plan, &tree);
    tree_hyperparameters(&tree, "{\"paceline_ps\": \"nativ\"}");
    ck_fails(PL_INVALID, "native tensorflow", tree_plan, &tree);
}

TEST(instances_with_the_fast_adapter_use_it)
{
    static const char efa[] = "|-x|FI_PROVIDER=efa|-x|NCCL_PROTO=simple|-x|SM_HOSTS|";
    static const char rdma[] = "|-x|FI_PROVIDER=efa|-x|NCCL_PROTO=simple|-x|FI_EFA_USE_DEVICE_RDMA=1|-x|SM_HOSTS|";
    const struct {
        const char *type;
        const char *options;
    } types[] = {{"ml.c5.xlarge", NULL}, {"ml.g5.48xlarge", efa}, {"ml.p4d.24xlarge", rdma}, {"ml.p5.48xlarge", rdma}};
    AUTO_TREE struct tree tree = tree_new();
    char text[160];

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(types); i++) {
        snprintf(text, sizeof(text),
                 "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"lo\", "
                 "\"current_instance_type\": \"%s\"}",
                 types[i].type);
        tree_write(&tree, "input/config/resourceconfig.json", text);
        ck_ok(tree_plan, &tree);
        argv_after(&tree, types[i].options ? types[i].options : "libpaceline-hostname.so|-x|SM_HOSTS|");
    }
}

TEST(open_mpi_5_gets_its_own_names)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_env(&tree, "PACELINE_MPI_VERSION", "5");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_ok(tree_plan, &tree);
    argv_after(&tree, "|--display|map|--output|tag|--mca|btl_tcp_if_include|lo|--prtemca|plm_ssh_no_tree_spawn|1|");
    ck_lacks(joined(&tree.plan->argv), "orte");
    ck_lacks(joined(&tree.plan->argv), "vader");
    tree_env(&tree, "PACELINE_MPI_VERSION", "6");
    ck_fails_as(PL_INVALID, "PACELINE_MPI_VERSION is '6': expected 4 or 5", tree_plan, &tree);
}

TEST(open_mpi_5_gets_an_option_once_and_from_the_user)
{
    AUTO_TREE struct tree tree = tree_new();
    const char *words;

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_env(&tree, "PACELINE_MPI_VERSION", "5");
    tree_hyperparameters(&tree,
                         "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_custom_mpi_options\": \"-bind-to core "
                         "--map-by node --display bind\"}");
    ck_ok(tree_plan, &tree);
    words = joined(&tree.plan->argv);
    ck_has(words, "|-bind-to|core|--map-by|node|--display|bind|");
    ck_lacks(words, "--bind-to|none");
    ck_lacks(words, "--map-by|slot");
    ck_lacks(words, "--display|map");
    tree_env(&tree, "PACELINE_MPI_VERSION", "4");
    ck_ok(tree_plan, &tree);
    ck_has(joined(&tree.plan->argv), "|-bind-to|none|-map-by|slot|");
}

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

TEST(missing_interfaces_are_replaced_with_a_warning)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    tree_write(&tree, "input/config/resourceconfig.json",
               "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"network_interface_name\": \"ethwe\"}");
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_ok(tree_plan, &tree);
    ck_lacks(joined(&tree.plan->argv), "ethwe");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_NETWORK_INTERFACE_NAME"), "ethwe");
    ck_has(joined(&tree.plan->warnings), "'ethwe'");
}

TEST(every_launcher_sets_the_interface_where_the_container_does_not)
{
    static const char *const launchers[] = {"{}", "{\"sagemaker_mpi_enabled\": true}",
                                            "{\"sagemaker_torch_distributed_enabled\": true}",
                                            "{\"sagemaker_multi_worker_mirrored_strategy_enabled\": true}"};
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "train.py");
    tree_env(&tree, "PACELINE_PYTHON", "/py");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(launchers); i++) {
        tree_hyperparameters(&tree, launchers[i]);
        ck_ok(tree_plan, &tree);
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "GLOO_SOCKET_IFNAME"), "lo");
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "TP_SOCKET_IFNAME"), "lo");
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "NCCL_SOCKET_IFNAME"), "lo");
    }
    tree_env(&tree, "GLOO_SOCKET_IFNAME", "mine0");
    tree_env(&tree, "NCCL_SOCKET_IFNAME", "mine1");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(launchers); i++) {
        tree_hyperparameters(&tree, launchers[i]);
        ck_ok(tree_plan, &tree);
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "GLOO_SOCKET_IFNAME"), "mine0");
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "TP_SOCKET_IFNAME"), "lo");
        ck_assert_str_eq(pl_environment_get(tree.plan->environment, "NCCL_SOCKET_IFNAME"), "mine1");
        ck_lacks(joined(&tree.plan->argv), "NCCL_SOCKET_IFNAME=lo");
    }
}

TEST(smddp_and_xla_are_refused_clearly)
{
    static const char smddp[] = "use distribution={\"torch_distributed\": {\"enabled\": True}} and "
                                "init_process_group(\"nccl\") in place of \"smddp\"";
    static const char *const switches[][2] = {{"sagemaker_distributed_dataparallel_enabled", smddp},
                                              {"sagemaker_pytorch_ddp_enabled", smddp},
                                              {"sagemaker_pytorch_xla_multi_worker_enabled", "use MPI"}};
    AUTO_TREE struct tree tree = tree_new();
    char text[128];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(switches); i++) {
        snprintf(text, sizeof(text), "{\"%s\": \"true\"}", switches[i][0]);
        tree_hyperparameters(&tree, text);
        ck_fails(PL_UNSUPPORTED, switches[i][1], tree_plan, &tree);
    }
}

TEST(words_after_two_dashes_are_run_as_they_are)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;

    tree_hyperparameters(&tree, "{\"epochs\": \"2\"}");
    ck_ok(pl_strv_split, "sh -c 'exit 3'", "command", &command);
    ck_ok(pl_job_new, tree.environment, PL_TEST_BUILD "/entrypoint/paceline", &command, &tree.job);
    ck_ok(pl_launch_plan_new, tree.job, &tree.plan);
    ck_assert_str_eq(joined(&tree.plan->argv), "sh|-c|exit 3");
    ck_assert_str_eq(pl_environment_get(tree.plan->additions, "SM_USER_ARGS"), "[\"--epochs\",\"2\"]");
}

TEST(code_is_fetched_only_into_an_empty_directory)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_STEPS struct pl_launch_plan_steps steps = {.count = 0};
    char path[PATH_MAX];

    tree_hyperparameters(&tree,
                         "{\"sagemaker_submit_directory\": \"/no/such.tar.gz\", \"sagemaker_program\": \"train.py\"}");
    ck_ok(tree_job, &tree);
    ck_ok(pl_source_plan, tree.job, &steps);
    ck_assert_uint_eq(steps.count, 0);
    ck_assert_int_eq(remove(scratch_path(&tree.scratch, "code/train.py", path)), 0);
    ck_assert_int_eq(pl_source_plan(tree.job, &steps, &tree.error), PL_NOT_FOUND);
    tree_hyperparameters(&tree,
                         "{\"sagemaker_submit_directory\": \"file:///bin/true\", \"sagemaker_program\": \"train.py\"}");
    ck_ok(tree_job, &tree);
    ck_ok(pl_source_plan, tree.job, &steps);
    ck_assert_uint_eq(steps.count, 2);
    ck_assert(steps.items[0].only_looks && !steps.items[1].only_looks);
    ck_has(joined(&steps.items[0].argv), "/paceline-unpack|--look|/bin/true");
    ck_has(joined(&steps.items[1].argv),
           "/paceline-unpack|--unfinished|.paceline-unfinished|--max-bytes|17179869184|/bin/true|");
    tree_hyperparameters(&tree,
                         "{\"sagemaker_submit_directory\": \"http://x/y\", \"sagemaker_program\": \"train.py\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(pl_source_plan(tree.job, &steps, &tree.error), PL_UNSUPPORTED);
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

/* Returns the plan of a job that cannot be read. */
static const struct pl_launch_plan *notify_plan(struct tree *tree)
{
    ck_assert_int_ne(tree_job(tree, &tree->error), PL_OK);
    ck_ok(pl_job_new_partial, tree->environment, PL_TEST_BUILD "/entrypoint/paceline", &tree->job);
    pl_launch_plan_free(tree->plan);
    ck_ok(pl_launch_plan_new_notify, tree->job, &tree->plan);
    ck_assert_uint_eq(tree->plan->argv.count, 0);
    return tree->plan;
}

TEST(a_job_that_cannot_be_read_has_a_link_where_its_hosts_may_wait)
{
    static const char no_number[] =
        "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"many\"}";
    AUTO_TREE struct tree tree = tree_new();

    tree_hyperparameters(&tree, "{");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NONE);
    tree_two_hosts(&tree, "algo-1");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_BESIDE);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_MASTER);
    tree_two_hosts(&tree, "algo-2");
    tree_hyperparameters(&tree, no_number);
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NEEDED);
    ck_assert_int_eq(tree.plan->role, PL_LAUNCH_PLAN_WORKER);
    ck_assert_str_eq(joined(&tree.plan->hosts), "algo-1|algo-2");
    tree_env(&tree, "PACELINE_LINK", "0");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NEEDED);
    /* the job is refused before the hosts of its distribution are known */
    tree_hyperparameters(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"paceline_ps\": \"native\"}");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NEEDED);
    tree_env(&tree, "PACELINE_SILENCE_S", "never");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NEEDED);
    tree_env(&tree, "PACELINE_SILENCE_S", "");
    tree_hyperparameters(&tree, "{");
    ck_assert_int_eq(notify_plan(&tree)->link, PL_LAUNCH_PLAN_LINK_NONE);
}

UNIT_MAIN("entrypoint/plan")
