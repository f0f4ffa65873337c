/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/job.c, entrypoint/job/config.c, entrypoint/job/hyperparameters.c, entrypoint/job/hosts.c. */
#include "tests/unit/entrypoint/tree.h"

static void write_hps(struct tree *tree, const char *text)
{
    tree_write(tree, "input/config/hyperparameters.json", text);
}

static void write_resource(struct tree *tree, const char *text)
{
    tree_write(tree, "input/config/resourceconfig.json", text);
}

/* Returns the cause of an error, without the scratch directory's name. */
static const char *cause(struct tree *tree)
{
    static char text[PL_ERROR_CAUSE_BYTES];
    const char *at = strstr(tree->error.cause, tree->base);

    ck_assert_int_ne(tree_job(tree, &tree->error), PL_OK);
    at = strstr(tree->error.cause, tree->base);
    if (!at) {
        return tree->error.cause;
    }
    snprintf(text, sizeof(text), "%.*s%s", (int)(at - tree->error.cause), tree->error.cause, at + strlen(tree->base));
    return text;
}

TEST(a_minimal_tree_has_defaults_for_everything)
{
    AUTO_TREE struct tree tree = tree_new();

    write_resource(&tree, "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"]}");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(tree.job->network_interface, "eth0");
    ck_assert_str_eq(tree.job->instance_type, "local");
    ck_assert_str_eq(tree.job->group_name, "homogeneousCluster");
    ck_assert_str_eq(tree.job->master_host, "algo-1");
    ck_assert_str_eq(tree.job->region, "");
    ck_assert_ptr_null(tree.job->program);
    ck_assert_int_eq(tree.job->processes, 1);
    ck_assert_uint_eq(tree.job->channels_count, 0);
}

TEST(faults_in_files_name_file_line_column_and_what_was_expected)
{
    AUTO_TREE struct tree tree = tree_new();

    write_resource(&tree, "{\"current_host\": \"algo-1\",\n \"hosts\": \"algo-1\"}");
    ck_assert_str_eq(
        cause(&tree),
        "/input/config/resourceconfig.json, line 2, column 11: hosts: expected a list, found a string \"algo-1\"");
    write_resource(&tree, "{\"hosts\": [\"algo-1\"]}");
    ck_assert_str_eq(cause(&tree), "/input/config/resourceconfig.json, line 1, column 1: expected the key "
                                   "\"current_host\" with a string, found none");
    write_resource(&tree, "{\"current_host\": \"algo-9\", \"hosts\": [\"algo-1\"]}");
    ck_assert_str_eq(cause(&tree),
                     "/input/config/resourceconfig.json, line 1, column 18: current_host: expected one of the names in "
                     "\"hosts\", found a string \"algo-9\"");
    write_resource(&tree, "{\"current_host\": \"algo-1\", \"hosts\": []}");
    ck_assert_str_eq(
        cause(&tree),
        "/input/config/resourceconfig.json, line 1, column 37: hosts: expected 1 to 4096 host names, found a list []");
    write_resource(&tree, "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\", 2]}");
    ck_assert_str_eq(cause(&tree),
                     "/input/config/resourceconfig.json, line 1, column 48: expected a host name, found an integer 2");
    write_resource(&tree, "[1]");
    ck_assert_str_eq(cause(&tree),
                     "/input/config/resourceconfig.json, line 1, column 1: expected an object, found a list [1]");
    tree_write(&tree, "input/config/resourceconfig.json", "null");
    ck_assert_int_eq(tree_job(&tree, &tree.error), PL_INVALID);
    ck_assert_str_eq(cause(&tree),
                     "/input/config/resourceconfig.json, line 1, column 1: expected an object, found null");
    write_resource(&tree, "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"]");
    ck_assert_str_eq(
        cause(&tree),
        "/input/config/resourceconfig.json, line 1, column 47: expected ',' or '}', found the end of the text");
}

TEST(only_resourceconfig_must_exist)
{
    AUTO_TREE struct tree tree = tree_new();
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/input/config/resourceconfig.json", tree.base);
    ck_assert_int_eq(remove(path), 0);
    ck_fails(PL_NOT_FOUND, "resourceconfig.json", tree_job, &tree);
}

TEST(values_are_decoded_once_and_names_sorted_by_owner)
{
    PL_AUTO_TEXT struct pl_text settings = PL_TEXT_NONE;
    AUTO_TREE struct tree tree = tree_new();

    write_hps(
        &tree,
        "{\"epochs\": \"60\", \"opt\": \"\\\"adam\\\"\", \"plain\": \"adam\", \"deep\": "
        "\"\\\"\\\\\\\"42\\\\\\\"\\\"\", \"n\": 7,"
        " \"sagemaker_program\": \"\\\"x.py\\\"\", \"sagemaker_mpi_enabled\": \"false\", \"SageMaker_upper\": \"1\","
        " \"_tuning_objective_metric\": \"loss\", \"paceline_trace_records\": \"30\", \"paceline_install\": "
        "\"\\\"no\\\"\"}");
    ck_ok(tree_job, &tree);
    ck_assert_uint_eq(pl_python_json_count(tree.job->hyperparameters), 6);
    ck_assert_int_eq(pl_python_json_kind(pl_python_json_member(tree.job->hyperparameters, "epochs")),
                     PL_PYTHON_JSON_INT);
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->hyperparameters, "opt")), "adam");
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->hyperparameters, "plain")), "adam");
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->hyperparameters, "deep")), "\"42\"");
    ck_assert_uint_eq(pl_python_json_count(tree.job->framework), 1);
    ck_assert_str_eq(tree.job->program, "x.py");
    pl_python_json_print(tree.job->setting_values, PL_PYTHON_JSON_COMPACT, &settings);
    ck_assert_str_eq(settings.data, "{\"PACELINE_TRACE_RECORDS\":\"30\",\"PACELINE_INSTALL\":\"no\"}");
    ck_assert(!tree.job->settings.install);
}

TEST(distribution_hosts_keep_the_groups_order_and_the_first_is_master)
{
    AUTO_TREE struct tree tree = tree_new();

    write_resource(
        &tree, "{\"current_host\": \"algo-1\", \"current_group_name\": \"gpu\", \"hosts\": [\"algo-1\", \"algo-2\", "
               "\"algo-3\"], \"instance_groups\": ["
               "{\"instance_group_name\": \"cpu\", \"instance_type\": \"c\", \"hosts\": [\"algo-2\"]},"
               "{\"instance_group_name\": \"gpu\", \"instance_type\": \"g\", \"hosts\": [\"algo-3\", \"algo-1\"]}]}");
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\"}");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(joined(&tree.job->distribution_hosts), "algo-3|algo-1");
    ck_assert_str_eq(tree.job->master_host, "algo-3");
    ck_assert_int_eq(tree.job->distribution_index, 1);
    ck_assert_int_eq(tree.job->processes, 4);
    write_hps(&tree, "{\"epochs\": \"1\"}");
    ck_ok(tree_job, &tree);
    ck_assert_uint_eq(tree.job->distribution_hosts.count, 0);
    ck_assert_str_eq(tree.job->master_host, "algo-1");
}

/* Returns the distribution's hosts of an MPI job on algo-1 to algo-6 with this topology, as algo-4 reads it. */
static const char *hosts_by(struct tree *tree, const char *topology)
{
    char text[1024];

    snprintf(text, sizeof(text),
             "{\"current_host\": \"algo-4\", \"hosts\": [\"algo-1\", \"algo-2\", \"algo-3\", \"algo-4\", \"algo-5\", "
             "\"algo-6\"], \"topology\": %s}",
             topology);
    write_resource(tree, text);
    write_hps(tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_ok(tree_job, tree);
    ck_assert_int_eq(tree->job->distribution_index, pl_strv_find(&tree->job->distribution_hosts, "algo-4"));
    ck_assert_str_eq(tree->job->master_host, "algo-1");
    ck_assert_str_eq(joined(&tree->job->hosts), "algo-1|algo-2|algo-3|algo-4|algo-5|algo-6");
    return joined(&tree->job->distribution_hosts);
}

TEST(hosts_of_one_capacity_unit_are_neighbours_and_else_keep_their_order)
{
    static const char in_order[] = "algo-1|algo-2|algo-3|algo-4|algo-5|algo-6";
    AUTO_TREE struct tree tree = tree_new();

    ck_assert_str_eq(hosts_by(&tree, "[{\"hostName\": \"algo-5\", \"capacityUnitId\": \"b\"},"
                                     "{\"hostName\": \"algo-1\", \"capacityUnitId\": \"a\"},"
                                     "{\"hostName\": \"algo-2\", \"capacityUnitId\": \"b\"},"
                                     "{\"hostName\": \"algo-4\", \"capacityUnitId\": \"a\"},"
                                     "{\"hostName\": \"algo-6\", \"capacityUnitId\": \"a\"}]"),
                     "algo-1|algo-4|algo-6|algo-2|algo-5|algo-3");
    ck_assert_str_eq(hosts_by(&tree, "[{\"hostName\": \"algo-1\", \"capacityUnitId\": \"a\"},"
                                     "{\"hostName\": \"algo-2\", \"capacityUnitId\": \"a\"}]"),
                     in_order);
    /* in another form the unit is not known */
    ck_assert_str_eq(hosts_by(&tree, "[{\"hostName\": \"algo-1\", \"capacityUnitId\": 7}, \"algo-6\", "
                                     "{\"hostName\": \"algo-6\", \"capacityUnitId\": 7}, {\"hostName\": \"algo-9\"}]"),
                     in_order);
    ck_assert_str_eq(hosts_by(&tree, "{\"algo-1\": \"a\", \"algo-6\": \"a\"}"), in_order);
    ck_assert_str_eq(hosts_by(&tree, "[]"), in_order);
}

TEST(every_host_is_named_once_and_groups_name_only_hosts)
{
    static const struct {
        const char *hosts;
        const char *first;
        const char *second;
        const char *expected;
    } wrong[] = {
        {"\"algo-1\", \"algo-1\"", "", "", "expected each host once, found a string \"algo-1\""},
        {"\"algo-1\"", "\"algo-1\", \"algo-1\"", "", "expected each host once, found a string \"algo-1\""},
        {"\"algo-1\"", "\"algo-1\"", "\"algo-1\"", "expected each host once, found a string \"algo-1\""},
        {"\"algo-1\"", "\"algo-1\"", "\"algo-2\"", "expected one of the names in \"hosts\", found a string \"algo-2\""},
    };
    AUTO_TREE struct tree tree = tree_new();
    char text[512];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        snprintf(text, sizeof(text),
                 "{\"current_host\": \"algo-1\", \"hosts\": [%s], \"instance_groups\": "
                 "[{\"instance_group_name\": \"a\", \"hosts\": [%s]}, "
                 "{\"instance_group_name\": \"b\", \"hosts\": [%s]}]}",
                 wrong[i].hosts, wrong[i].first, wrong[i].second);
        write_resource(&tree, text);
        ck_fails(PL_INVALID, wrong[i].expected, tree_job, &tree);
    }
}

TEST(products_of_hosts_and_processes_are_bounded)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    AUTO_TREE struct tree tree = tree_new();

    pl_text_append(&text, "{\"current_host\": \"algo-0\", \"hosts\": [\"algo-0\"");
    for (int i = 1; i < PL_JOB_HOSTS_MAX; i++) {
        pl_text_printf(&text, ", \"algo-%d\"", i);
    }
    pl_text_append(&text, "]}");
    write_resource(&tree, pl_text_string(&text));
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"16\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->processes, PL_JOB_PROCESSES_MAX);
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"65536\"}");
    ck_fails(PL_LIMIT, "4096 hosts with 65536 processes each", tree_job, &tree);
}

TEST(process_counts_are_checked)
{
    static const char *const wrong[] = {"0", "-1", "1.5", "\\\"x\\\"", "true", "999999", "99999999999999999999"};
    AUTO_TREE struct tree tree = tree_new();
    char text[256];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        snprintf(text, sizeof(text),
                 "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"%s\"}",
                 wrong[i]);
        write_hps(&tree, text);
        ck_fails(PL_INVALID, "sagemaker_mpi_num_of_processes_per_host: expected a whole number from 1 to 65536, found",
                 tree_job, &tree);
    }
    write_hps(&tree,
              "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"\\\"3\\\"\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->processes_per_host, 3);
    write_hps(&tree,
              "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"{\\\"b\\\": 3}\"}");
    ck_fails(PL_INVALID, "expected names of instance_groups in resourceconfig.json, found 'b'", tree_job, &tree);
    write_resource(&tree, "{\"current_host\": \"algo-1\", \"hosts\": [\"algo-1\"], \"current_group_name\": \"b\", "
                          "\"instance_groups\": [{\"instance_group_name\": \"b\", \"hosts\": [\"algo-1\"]}]}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->processes_per_host, 3);
    write_hps(&tree,
              "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"{\\\"b\\\": 0}\"}");
    ck_assert_int_eq(tree_job(&tree, &tree.error), PL_INVALID);
}

TEST(switches_follow_pythons_truth_but_for_the_text_false)
{
    static const struct {
        const char *value;
        bool on;
    } values[] = {{"true", true}, {"false", false}, {"1", true}, {"0", false},  {"False", false},
                  {"True", true}, {"null", false},  {"", false}, {"{}", false}, {"0.0", false}};
    AUTO_TREE struct tree tree = tree_new();
    char text[128];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(values); i++) {
        snprintf(text, sizeof(text), "{\"sagemaker_mpi_enabled\": \"%s\"}", values[i].value);
        write_hps(&tree, text);
        ck_ok(tree_job, &tree);
        ck_assert_msg((tree.job->launches == PL_JOB_MPI) == values[i].on, "%s", values[i].value);
    }
}

TEST(the_region_comes_from_where_boto3_looks)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_write(&tree, ".aws/config",
               "[other]\nregion = wrong\n[profile other]\ns3 =\n  region = wrong\nregion = eu-west-1\n[default]\n# "
               "region = x\n  region =  us-east-2 \r\n");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(tree.job->region, "us-east-2");
    tree_env(&tree, "AWS_PROFILE", "other");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(tree.job->region, "eu-west-1");
    tree_env(&tree, "AWS_DEFAULT_REGION", "ap-south-1");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(tree.job->region, "ap-south-1");
    write_hps(&tree, "{\"sagemaker_region\": \"\\\"us-west-2\\\"\"}");
    ck_ok(tree_job, &tree);
    ck_assert_str_eq(tree.job->region, "us-west-2");
}

TEST(deep_and_damaged_values_stay_text)
{
    AUTO_TREE struct tree tree = tree_new();
    char text[1024] = "{\"deep\": \"";

    memset(text + strlen(text), '[', 300);
    strcat(text, "\", \"cut\": \"{\\\"a\\\": \"}");
    write_hps(&tree, text);
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(pl_python_json_kind(pl_python_json_member(tree.job->hyperparameters, "deep")),
                     PL_PYTHON_JSON_STRING);
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->hyperparameters, "cut")), "{\"a\": ");
}

/* Returns the number of hosts of a refused job that are linked; -1 if its hosts are not known. */
static int partial_hosts(struct tree *tree)
{
    ck_assert_int_ne(tree_job(tree, &tree->error), PL_OK);
    if (pl_job_new_partial(tree->environment, PL_TEST_BUILD "/entrypoint/paceline", &tree->job, &tree->error) !=
        PL_OK) {
        return -1;
    }
    ck_assert_str_eq(tree->job->current_host, "algo-2");
    return (int)tree->job->distribution_hosts.count;
}

TEST(of_a_job_that_is_refused_the_hosts_are_known)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_two_hosts(&tree, "algo-2");
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": ");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert_int_eq(tree.job->distribution_index, 1);
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"many\"}");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert(tree.job->launches == PL_JOB_MPI && tree.job->distribution_index == 1);
    write_hps(&tree, "{\"paceline_ssh_port\": \"2222\", \"paceline_stop_s\": \"1e9\"}");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert_int_eq(tree.job->settings.ssh_port, 2222);
    write_hps(&tree, "{\"paceline_ssh_port\": \"2222\"}");
    write_hps(&tree, "{\"paceline_trial_cpus\": \"abc\", \"paceline_trial_gpus\": \"-1\"}");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    write_hps(&tree, "{\"paceline_ssh_port\": \"2222\"}");
    tree_write(&tree, "input/config/inputdataconfig.json", "{\"\": {}}");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert_int_eq(tree.job->settings.ssh_port, 2222);
    write_resource(&tree, "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\", \"algo-3\"], "
                          "\"current_group_name\": \"b\", \"instance_groups\": ["
                          "{\"instance_group_name\": \"a\", \"hosts\": [\"algo-1\"]}, "
                          "{\"instance_group_name\": \"b\", \"hosts\": [\"algo-2\", \"algo-3\"]}]}");
    ck_assert_int_eq(partial_hosts(&tree), 3);
    write_hps(&tree, "{\"sagemaker_mpi_enabled\": \"true\"}");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert_str_eq(tree.job->master_host, "algo-2");
    tree_env(&tree, "PACELINE_STOP_S", "soon");
    ck_assert_int_eq(partial_hosts(&tree), 2);
    ck_assert_int_eq(tree.job->settings.ssh_port, 22);
    write_resource(&tree, "{\"hosts\": [");
    ck_assert_int_eq(partial_hosts(&tree), -1);
}

UNIT_MAIN("entrypoint/job")
