/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/job.c, entrypoint/job/variables.c, entrypoint/job/settings.c, entrypoint/job/secrets.c. */
/* Limits, and names that mean something; what is read of a job's files has ../test_jobs.c. */
#include "base/environment.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/settings.h"
#include "tests/unit/entrypoint/tree.h"

TEST(products_of_hosts_and_processes_are_bounded)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    AUTO_TREE struct tree tree = tree_new();

    pl_text_append(&text, "{\"current_host\": \"algo-0\", \"hosts\": [\"algo-0\"");
    for (int i = 1; i < PL_JOB_HOSTS_MAX; i++) {
        pl_text_printf(&text, ", \"algo-%d\"", i);
    }
    pl_text_append(&text, "]}");
    tree_write(&tree, "input/config/resourceconfig.json", pl_text_string(&text));
    tree_hyperparameters(&tree,
                         "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"16\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->processes, PL_JOB_PROCESSES_MAX);
    tree_hyperparameters(
        &tree, "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"65536\"}");
    ck_fails(PL_LIMIT, "4096 hosts with 65536 processes each", tree_job, &tree);
}

TEST(deep_and_damaged_values_stay_text)
{
    AUTO_TREE struct tree tree = tree_new();
    char text[1024] = "{\"deep\": \"";

    memset(text + strlen(text), '[', 300);
    strcat(text, "\", \"cut\": \"{\\\"a\\\": \"}");
    tree_hyperparameters(&tree, text);
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(pl_python_json_kind(pl_python_json_member(tree.job->hyperparameters, "deep")),
                     PL_PYTHON_JSON_STRING);
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->hyperparameters, "cut")), "{\"a\": ");
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

TEST(a_value_is_compared_with_the_default_by_its_meaning)
{
    static const struct {
        const char *name, *value;
        bool is_default;
    } cases[] = {{"PACELINE_STOP_S", "110", true},         {"paceline_stop_s", "110.0", true},
                 {"PACELINE_STOP_S", "111", false},        {"PACELINE_STOP_S", "x", false},
                 {"PACELINE_INSTALL", "yes", true},        {"PACELINE_INSTALL", "off", false},
                 {"PACELINE_HANG_ACTION", "report", true}, {"PACELINE_HANG_ACTION", "end", false},
                 {"PACELINE_PYTHON", "python3", false},    {"paceline_bucket_bytes", "4194304", true},
                 {"paceline_bucket_bytes", "4MiB", true},  {"paceline_bucket_bytes", "8MiB", false},
                 {"PACELINE_WIRE_TYPE", "", true},         {"PACELINE_WIRE_TYPE", "float16", false},
                 {"PACELINE_MY_OWN", "0", false},          {"epochs", "1", false}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_assert_msg(pl_settings_is_default(cases[i].name, cases[i].value) == cases[i].is_default, "%s=%s",
                      cases[i].name, cases[i].value);
    }
}

TEST(names_reveal_secrets)
{
    static const char *const secret[] = {"AWS_SECRET_ACCESS_KEY", "dbPassword", "api_key", "hf-token", "keys",
                                         "aws_credentials",       "apikey",     "hfToken", "tokenId"};
    static const char *const harmless[] = {"max_tokens", "tokenizer", "monkey", "epochs", "maxTokens", "myTokenizer"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(secret); i++) {
        ck_assert_msg(pl_secrets_is_name(secret[i]), "%s", secret[i]);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(harmless); i++) {
        ck_assert_msg(!pl_secrets_is_name(harmless[i]), "%s", harmless[i]);
    }
}

UNIT_MAIN("entrypoint/job/job")
