/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/variables.c, entrypoint/job/devices.c. */
#include "base/environment.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/job.h"
#include "tests/unit/entrypoint/tree.h"

/* Add the variables. If `warnings` is NULL, there must be no warnings. */
static void add(struct tree *tree, struct pl_environment **ret_environment, struct pl_strv *warnings)
{
    PL_AUTO_STRV struct pl_strv none = PL_STRV_NONE;

    ck_ok(tree_job, tree);
    ck_ok(pl_environment_new_empty, ret_environment);
    ck_ok(pl_variables_add, tree->job, *ret_environment, NULL, warnings ? warnings : &none);
    ck_assert_uint_eq(none.count, 0);
}

TEST(names_are_upper_cased_later_collisions_win_and_values_are_compact_sorted_json)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    tree_write(&tree, "input/config/hyperparameters.json",
               "{\"k\": \"1\", \"batch-size\": \"2\", \"K\": \"3\", \"\xC3\xBC\": \"null\", \"c\": \"a b\", "
               "\"d\": {\"b\": [1,  NaN, true], \"a\": \"\xC3\xA9\"}}");
    tree_write(&tree, "input/config/inputdataconfig.json",
               "{\"my.val-set\": {\"TrainingInputMode\": \"Pipe\"}, \"a\": {}}");
    add(&tree, &environment, NULL);
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_K"), "3");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_BATCH-SIZE"), "2");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_\xC3\xBC"), "");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_C"), "a b");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_D"), "{\"a\":\"\\u00e9\",\"b\":[1,NaN,true]}");
    ck_assert_str_eq(pl_environment_get(environment, "SM_CHANNELS"), "[\"a\",\"my.val-set\"]");
    ck_has(pl_environment_get(environment, "SM_CHANNEL_MY.VAL-SET"), "/input/data/my.val-set");
}

TEST(values_beyond_linuxs_limit_are_left_out_with_a_warning)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_ENVIRONMENT struct pl_environment *inherited = NULL;
    PL_AUTO_STRV struct pl_strv warnings = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append_char(&text, '{');
    for (int i = 0; i < 100; i++) {
        pl_text_printf(&text, "%s\"p%d\": \"%02500d\"", i == 0 ? "" : ",", i, 0);
    }
    pl_text_append_char(&text, '}');
    tree_write(&tree, "input/config/hyperparameters.json", pl_text_string(&text));
    ck_ok(tree_job, &tree);
    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_environment_new_empty, &inherited);
    ck_ok(pl_environment_put, inherited, "SM_HPS=of another job");
    ck_ok(pl_environment_put, inherited, "MINE=kept");
    ck_ok(pl_variables_add, tree.job, environment, inherited, &warnings);
    ck_assert_ptr_null(pl_environment_get(inherited, "SM_HPS"));
    ck_assert_str_eq(pl_environment_get(inherited, "MINE"), "kept");
    ck_assert_ptr_null(pl_environment_get(environment, "SM_HPS"));
    ck_assert_ptr_null(pl_environment_get(environment, "SM_TRAINING_ENV"));
    ck_assert_ptr_null(pl_environment_get(environment, "SM_USER_ARGS"));
    ck_assert_uint_eq(strlen(pl_environment_get(environment, "SM_HP_P99")), 2500);
    ck_assert_uint_eq(warnings.count, 3);
    ck_has(warnings.items[0], "SM_HPS is not set");
}

TEST(names_with_equals_and_values_with_nul_are_skipped_with_a_warning)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv warnings = PL_STRV_NONE;

    tree_write(&tree, "input/config/hyperparameters.json",
               "{\"a=b\": \"1\", \"nul\": \"\\\"x\\\\u0000y\\\"\", \"odd\": \"\\\"\\\\udc41\\\\udcff\\\\ud800\\\"\"}");
    add(&tree, &environment, &warnings);
    ck_assert_uint_eq(warnings.count, 2);
    ck_assert_str_eq(pl_environment_get(environment, "SM_HPS"),
                     "{\"a=b\":1,\"nul\":\"x\\u0000y\",\"odd\":\"\\udc41\\udcff\\ud800\"}");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HP_ODD"), "\xEF\xBF\xBD\xFF\xEF\xBF\xBD");
    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    ck_fails(PL_INVALID, "--nul", tree_plan, &tree);
}

TEST(own_options_become_variables_unless_the_environment_has_them)
{
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    tree_env(&tree, "PACELINE_B", "mine");
    tree_env(&tree, "PACELINE_C", "");
    tree_write(&tree, "input/config/hyperparameters.json",
               "{\"paceline_a\": \"true\", \"paceline_b\": \"2\", \"paceline_c\": \"3\"}");
    add(&tree, &environment, NULL);
    ck_assert_str_eq(pl_environment_get(environment, "PACELINE_A"), "true");
    ck_assert_ptr_null(pl_environment_get(environment, "PACELINE_B"));
    ck_assert_str_eq(pl_environment_get(environment, "PACELINE_C"), "3");
    ck_assert_str_eq(pl_environment_get(environment, "SM_HPS"), "{}");
    ck_assert_str_eq(pl_environment_get(environment, "SM_USER_ARGS"), "[]");
}

TEST(the_jobs_checkpoint_directory_is_the_runtimes_unless_it_is_set)
{
    static const char file[] = "input/config/checkpointconfig.json", name[] = "PACELINE_CHECKPOINT_DIR";
    AUTO_TREE struct tree tree = tree_new();
    PL_AUTO_ENVIRONMENT struct pl_environment *plain = NULL, *named = NULL, *set = NULL;

    tree_write(&tree, file, "{\"S3Uri\": \"s3://b/c\", \"LocalPath\": null}");
    add(&tree, &plain, NULL);
    ck_assert_ptr_null(pl_environment_get(plain, name));
    tree_write(&tree, file, "{\"LocalPath\": \"/state\"}");
    add(&tree, &named, NULL);
    ck_assert_str_eq(pl_environment_get(named, name), "/state");
    tree_write(&tree, "input/config/hyperparameters.json", "{\"paceline_checkpoint_dir\": \"/mine\"}");
    add(&tree, &set, NULL);
    ck_assert_str_eq(pl_environment_get(set, name), "/mine");
    tree_write(&tree, file, "{\"LocalPath\": \"state\"}");
    ck_fails(PL_INVALID, ", line 1, column 15: LocalPath: expected an absolute path, found a string \"state\"",
             tree_job, &tree);
}

TEST(devices_are_counted_from_the_kernels_files)
{
    AUTO_TREE struct tree tree = tree_new();

    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 0);
    tree_write(&tree, "proc/driver/nvidia/gpus/0000:00:1e.0/information", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus,
                     0); /* devices of the host, which this container may not use */
    tree_write(&tree, "dev/nvidiactl", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 1);
    tree_write(&tree, "dev/nvidia0", "");
    tree_write(&tree, "dev/nvidia1", "");
    tree_write(&tree, "dev/nvidia-uvm", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 2);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 0);
    tree_write(&tree, "dev/neuron0", "");
    tree_write(&tree, "dev/neuron1", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 4);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.inf1.2xlarge").neuron_cores, 8);
    tree_write(&tree, "sys/devices/virtual/neuron_device/neuron1/core_count", "8\n");
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 10);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn2.48xlarge").neuron_cores, 64);
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "120000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 3);
    tree_write(&tree, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 4);
    tree_write(&tree, "sys/fs/cgroup/cpu.max", "max 100000\n");
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n"); /* a value that no kernel writes */
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
}

UNIT_MAIN("entrypoint/variables")
