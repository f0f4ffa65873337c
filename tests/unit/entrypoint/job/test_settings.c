/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/settings.c. */
#include "base/clock.h"
#include "entrypoint/job/settings.h"
#include "tests/unit/entrypoint/tree.h"

TEST(a_value_that_a_setting_cannot_have_refuses_the_job)
{
    static const struct {
        const char *name, *value, *told;
    } wrong[] = {
        {"PACELINE_STOP_S", "x", "PACELINE_STOP_S is 'x': expected seconds from 3 to 86400"},
        {"PACELINE_TRIAL_CPUS", "0", "PACELINE_TRIAL_CPUS is '0': expected CPUs from 1 to 65536"},
        {"PACELINE_TRIAL_GPUS", "-1", "PACELINE_TRIAL_GPUS is '-1': expected GPUs from 0 to 65536"},
        {"PACELINE_STOP_S", "2", "PACELINE_STOP_S is '2': expected seconds from 3 to 86400"},
        {"PACELINE_SILENCE_S", "nan", "PACELINE_SILENCE_S is 'nan': expected seconds from 1 to 3600"},
        {"PACELINE_PEER_WAIT_S", "1m", "PACELINE_PEER_WAIT_S is '1m': expected seconds from 1 to 86400"},
        {"PACELINE_INTERMEDIATE_S", "0", "PACELINE_INTERMEDIATE_S is '0': expected seconds from 1 to 3600"},
        {"PACELINE_SSH_PORT", "65536", "PACELINE_SSH_PORT is '65536': expected a port from 1 to 65535"},
        {"PACELINE_SSH_PORT", "2.5", "PACELINE_SSH_PORT is '2.5': expected a port from 1 to 65535"},
        {"PACELINE_SOURCE_MAX_BYTES", "1GiB",
         "PACELINE_SOURCE_MAX_BYTES is '1GiB': expected bytes from 0 to 9007199254740992"},
        {"PACELINE_INSTALL", "never", "PACELINE_INSTALL is 'never': expected 1, 0, true, false, yes, no, on or off"},
        {"PACELINE_SSE", "kms", "PACELINE_SSE is 'kms': expected AES256, aws:kms or aws:kms:dsse"},
        {"PACELINE_SSE_KMS_KEY_ID", "k",
         "PACELINE_SSE_KMS_KEY_ID needs PACELINE_SSE aws:kms or aws:kms:dsse, which is not given"},
        {"PACELINE_BUCKET_KEY_ENABLED", "1",
         "PACELINE_BUCKET_KEY_ENABLED needs PACELINE_SSE aws:kms, which is not given"},
        {"PACELINE_TF_CHIEF", "algo-1",
         "PACELINE_TF_CHIEF is 'algo-1': expected 1, 0, true, false, yes, no, on or off"},
        {"PACELINE_HANG_S", "-1", "PACELINE_HANG_S is '-1': expected seconds from 0 to 864000"},
        {"PACELINE_SWEEP_FRESH", "yes", "PACELINE_SWEEP_FRESH is 'yes': expected a number from 0 to 1000000"},
        {"PACELINE_SWEEP_TIME_S", "1h", "PACELINE_SWEEP_TIME_S is '1h': expected seconds from 0 to 8640000"},
        {"PACELINE_PROGRESS_S", "often", "PACELINE_PROGRESS_S is 'often': expected seconds from 0 to 86400, or keep"},
        {"PACELINE_PROGRESS_S", "-1", "PACELINE_PROGRESS_S is '-1': expected seconds from 0 to 86400, or keep"},
        {"PACELINE_HANG_ACTION", "kill", "PACELINE_HANG_ACTION is 'kill': expected one of report end"},
        {"PACELINE_STALL_S", "1m", "PACELINE_STALL_S is '1m': expected a number, at least 0"},
        {"PACELINE_ALGORITHM", "foo", "PACELINE_ALGORITHM is 'foo': expected one of ring halving doubling tree direct"},
        {"HOROVOD_STALL_CHECK_TIME_SECONDS", "soon",
         "HOROVOD_STALL_CHECK_TIME_SECONDS is 'soon': expected a number, at least 0"},
    };
    AUTO_TREE struct tree tree = tree_new();

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        tree_env(&tree, wrong[i].name, wrong[i].value);
        ck_fails_as(PL_INVALID, wrong[i].told, tree_job, &tree);
        tree_env(&tree, wrong[i].name, "");
    }
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->settings.stop_ns, 110 * PL_NS_PER_S);
}

TEST(hyperparameters_are_checked_where_no_variable_stands_before_them)
{
    AUTO_TREE struct tree tree = tree_new();

    tree_write(&tree, "input/config/hyperparameters.json", "{\"paceline_stop_s\": \"x\"}");
    ck_fails_as(PL_INVALID, "hyperparameter paceline_stop_s is 'x': expected seconds from 3 to 86400", tree_job, &tree);
    tree_env(&tree, "PACELINE_STOP_S", "7.5");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->settings.stop_ns, 15 * PL_NS_PER_S / 2);
    tree_write(&tree, "input/config/hyperparameters.json", "{\"paceline_wire_type\": \"int8\"}");
    ck_fails_as(PL_INVALID, "hyperparameter paceline_wire_type is 'int8': expected one of float16 bfloat16", tree_job,
                &tree);
    tree_write(&tree, "input/config/hyperparameters.json",
               "{\"paceline_stall_s\": \"60\", \"paceline_ssh_port\": \"\", \"paceline_my_own\": \"x\"}");
    tree_env(&tree, "HOROVOD_STALL_CHECK_TIME_SECONDS", "soon"); /* it has no effect if our own variable is set */
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(tree.job->settings.ssh_port, 22);
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

UNIT_MAIN("entrypoint/settings")
