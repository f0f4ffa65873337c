/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/secrets.c, entrypoint/launch/plan_print.c. */
#include "entrypoint/job/job.h"
#include "tests/unit/entrypoint/tree.h"

/* Returns the output of `paceline plan` for the hyperparameters `text`; valid until the next call. */
static const char *printed(struct tree *tree, const char *text)
{
    static struct pl_text output;
    const struct pl_launch_plan_steps none = {.count = 0};

    tree_write(tree, "input/config/hyperparameters.json", text);
    ck_ok(tree_job, tree);
    ck_ok(pl_secrets_mask, tree->job);
    pl_launch_plan_free(tree->plan);
    ck_ok(pl_launch_plan_new, tree->job, &tree->plan);
    pl_text_done(&output);
    ck_ok(pl_launch_plan_print, tree->job, tree->plan, &none, &output);
    return pl_text_string(&output);
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

TEST(arguments_hide_values_of_every_kind_at_every_depth)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    printed(&tree, "{\"api_key\": \"12\", \"monkey\": \"chimp\", \"hf-token\": \"\\\"t\\\"\", \"token\": \"\", "
                   "\"keys\": \"[1, 2]\", "
                   "\"cfg\": \"{\\\"a\\\": [{\\\"password\\\": 1.5, \\\"n\\\": 2}]}\", \"paceline_secret\": \"hush\"}");
    ck_assert_str_eq(
        joined(&tree.job->user_args),
        "--api_key|***|--cfg|a=[{'password': '***', 'n': 2}]|--hf-token|***|--keys|***|--monkey|chimp|--token|");
    ck_assert_str_eq(pl_python_json_text(pl_python_json_member(tree.job->setting_values, "PACELINE_SECRET")), "***");
}

TEST(no_secret_is_anywhere_in_a_printed_plan)
{
    static const char *const hyperparameters[] = {
        "{\"password\": \"hush\"}",
        "{\"api_key\": \"4711\"}",
        "{\"cfg\": \"{\\\"password\\\": \\\"hush\\\"}\"}",
        "{\"cfg\": \"[[{\\\"db_password\\\": [\\\"hush\\\"]}]]\"}",
        "{\"aws_credentials\": \"{\\\"id\\\": \\\"hush\\\", \\\"n\\\": 4711}\"}",
        "{\"sagemaker_private_token\": \"hush\"}",
        "{\"sagemaker_thing\": \"{\\\"secret\\\": 4711}\"}",
        "{\"paceline_secret\": \"hush\"}",
        "{\"sagemaker_mpi_custom_mpi_options\": \"-x DB_PASSWORD=hush\"}",
        ("{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_custom_mpi_options\": \"-x 'DB_PASSWORD=a hush' -mca "
         "mca_base_env_list "
         "API_KEY=hush\"}"),
        "{\"sagemaker_mpi_custom_mpi_options\": \"-x 'DB_PASSWORD=hush\"}",
        ("{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_custom_mpi_options\": \"--mca mca_base_env_list "
         "'LEVEL=1;API_KEY=4711;hush'\"}"),
        "{\"authToken\": \"hush\"}",
    };
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(hyperparameters); i++) {
        const char *text = printed(&tree, hyperparameters[i]);

        ck_assert_msg(!strstr(text, "hush") && !strstr(text, "4711") && strstr(text, "***"), "%s", text);
    }
}

TEST(a_setting_whose_name_is_a_secrets_is_masked_and_the_others_keep_their_values)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    printed(&tree, "{\"paceline_sse\": \"aws:kms\", \"paceline_sse_kms_key_id\": \"hush\", "
                   "\"paceline_bucket_key_enabled\": \"1\"}");
    ck_assert_str_eq(tree.job->settings.sse_kms_key_id, "***");
    ck_assert_str_eq(tree.job->settings.sse, "aws:kms");
    ck_assert(tree.job->settings.bucket_key_enabled);
}

TEST(what_is_no_secret_prints_as_it_is)
{
    AUTO_TREE struct tree tree = tree_new();
    const char *text;

    tree_env(&tree, "SAGEMAKER_PROGRAM", "/bin/true");
    text = printed(
        &tree, "{\"sagemaker_mpi_enabled\": \"true\", \"lr\": \"1e400\", \"big\": \"123456789012345678901234567890\","
               " \"sagemaker_mpi_custom_mpi_options\": \"-x 'A=b  c' -x B=\\\"it's\\\" ''\"}");
    ck_has(text, "\"-x\", \"A=b  c\", \"-x\", \"B=it's\", \"\"");
    ck_has(text, "123456789012345678901234567890");
}

UNIT_MAIN("entrypoint/secrets")
