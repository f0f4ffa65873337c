/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/identity.c. */
#include "programs/sweep/identity.h"

#include "base/file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static const char specification[] = "{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2]}}";

/* A job in the scratch folder. */
struct made {
    struct scratch scratch;
    struct pl_environment *environment;
    struct pl_error error;
};

static void write_file(const struct made *made, const char *name, const char *text)
{
    char path[PATH_MAX];

    scratch_path(&made->scratch, name, path);
    ck_assert_ok(pl_file_make_parents(path, 0755, NULL), NULL);
    ck_assert_ok(pl_file_write_atomic(path, text, strlen(text), 0644, NULL), NULL);
}

static void made_init(struct made *made)
{
    *made = (struct made){.scratch = scratch_new()};
    ck_assert_ok(pl_environment_new_empty(&made->environment, &made->error), &made->error);
    ck_assert_ok(pl_environment_set(made->environment, "SAGEMAKER_BASE_DIR", made->scratch.path, &made->error),
                 &made->error);
    write_file(made, "input/config/resourceconfig.json", "{\"current_host\": \"a\", \"hosts\": [\"a\"]}");
    write_file(made, "code/train.py", "print(1)\n");
    write_file(made, "code/lib/net.py", "layers = 3\n");
}

static void made_done(struct made *made)
{
    pl_environment_free(made->environment);
    scratch_done(&made->scratch);
}

static struct pl_python_json *identity_of(struct made *made, const char *hyperparameters)
{
    PL_AUTO_JOB struct pl_job *job = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_python_json *identity = NULL;

    write_file(made, "input/config/hyperparameters.json", hyperparameters);
    ck_assert_ok(pl_job_new(made->environment, "/paceline", NULL, &job, &made->error), &made->error);
    ck_assert_ok(pl_sweep_space_parse(specification, strlen(specification), "S", &space, &made->error), &made->error);
    ck_assert_ok(pl_sweep_identity_new(job, space, &identity, &made->error), &made->error);
    return identity;
}

static const char base[] =
    "{\"epochs\": \"9\", \"out\": \"\\\"s3://b/job-1/model\\\"\", \"sagemaker_job_name\": \"\\\"job-1\\\"\", "
    "\"sagemaker_program\": \"\\\"train.py\\\"\"}";

START_TEST(what_changes_trials_differs_and_what_changes_with_each_job_does_not)
{
    static const struct {
        const char *file, *text, *hyperparameters, *told; /* told "": there is no difference */
    } cases[] = {
        {"code/train.py", "print(1)\n", base, ""},
        {"code/train.py", "print(2)\n", base, "code.train.py was 9 bytes, "},
        {"code/lib/net.py", "layers = 4\n", base, "code.lib/net.py was 11 bytes, "},
        {"code/__pycache__/train.pyc", "x", base, ""},
        {"code/written", "by a program", base, ""},
        {"code/train.py", "print(1)\n",
         "{\"epochs\": \"9\", \"out\": \"\\\"s3://b/job-2/model\\\"\", \"sagemaker_job_name\": \"\\\"job-2\\\"\", "
         "\"sagemaker_program\": \"\\\"train.py\\\"\", \"sagemaker_region\": \"\\\"eu-west-1\\\"\", "
         "\"sagemaker_container_log_level\": \"10\", \"paceline_stop_s\": \"20\", \"api_key\": \"\\\"hush\\\"\"}",
         ""},
        {"code/train.py", "print(1)\n",
         "{\"epochs\": \"9\", \"out\": \"\\\"s3://c\\\"\", \"sagemaker_job_name\": \"\\\"job-1\\\"\", "
         "\"sagemaker_program\": \"\\\"train.py\\\"\"}",
         "hyperparameters.out was \"s3://b/JOB/model\" and is \"s3://c\""},
        {"code/train.py", "print(1)\n",
         "{\"epochs\": \"9\", \"out\": \"\\\"s3://b/job-1/model\\\"\", \"sagemaker_job_name\": \"\\\"job-1\\\"\", "
         "\"sagemaker_program\": \"\\\"other.py\\\"\"}",
         "program was train.py and is other.py"},
        {"code/train.py", "print(1)\n",
         "{\"epochs\": \"9\", \"out\": \"\\\"s3://b/job-1/model\\\"\", \"sagemaker_job_name\": \"\\\"job-1\\\"\", "
         "\"sagemaker_program\": \"\\\"train.py\\\"\", \"paceline_wire_type\": \"\\\"float16\\\"\"}",
         "settings.PACELINE_WIRE_TYPE was nothing and is float16"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *before = NULL, *now = NULL;
        PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
        struct made made;

        made_init(&made);
        before = identity_of(&made, base);
        write_file(&made, cases[i].file, cases[i].text);
        now = identity_of(&made, cases[i].hyperparameters);
        ck_assert_int_eq(
            pl_sweep_identity_differs(before, now, PL_SWEEP_IDENTITY_TRIALS | PL_SWEEP_IDENTITY_METRIC, &words),
            cases[i].told[0] != '\0');
        ck_assert_int_eq(strncmp(pl_text_string(&words), cases[i].told, strlen(cases[i].told)), 0);
        made_done(&made);
    }
}
END_TEST

START_TEST(a_file_that_is_gone_differs)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *before = NULL, *now = NULL;
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    char path[PATH_MAX];
    struct made made;

    made_init(&made);
    before = identity_of(&made, base);
    ck_assert_int_eq(unlink(scratch_path(&made.scratch, "code/lib/net.py", path)), 0);
    now = identity_of(&made, base);
    ck_assert(pl_sweep_identity_differs(before, now, 0, &words));
    ck_assert_ptr_nonnull(strstr(pl_text_string(&words), "code.lib/net.py was "));
    ck_assert_ptr_nonnull(strstr(pl_text_string(&words), " and is nothing"));
    made_done(&made);
}
END_TEST

UNIT_MAIN("programs/sweep/identity", what_changes_trials_differs_and_what_changes_with_each_job_does_not,
          a_file_that_is_gone_differs)
