/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/local/job/job.c, programs/local/job/job_save.c, programs/local/job/limits.c. */
/* The description of a job: what is taken, and where a file that breaks one rule is refused. */
#include "base/file.h"
#include "base/memory.h"
#include "programs/local/job/job.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <string.h>

#define JOB(members) "{\"TrainingJobName\": \"job\",\n" members "}"
#define SOURCE(members)                                                                                                \
    "\"DataSource\": {\"S3DataSource\": {\"S3DataType\": \"S3Prefix\", \"S3Uri\": \"s3://bucket/a\"" members "}}"

static struct pl_local_job *made(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_local_job *job = NULL;

    ck_assert_ok(pl_local_job_new(&job, &error), &error);
    return job;
}

static const struct pl_local_view *checked(struct pl_local_job *job)
{
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_local_view *view = NULL;

    ck_assert_ok(pl_local_job_check(job, &view, &error), &error);
    return view;
}

static enum pl_status read_text(struct pl_local_job *job, const char *text, struct pl_error *error)
{
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    enum pl_status status;

    scratch_write(&scratch, "job.json", text, strlen(text));
    status = pl_local_job_read(job, scratch_path(&scratch, "job.json", path), error);
    scratch_done(&scratch);
    return status;
}

/* The text must be refused with `expected`: LINE:COLUMN: and the words after it, or the words alone. */
static void check_refused(const char *text, const char *expected)
{
    struct pl_local_job *job = made();
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_local_view *view;
    enum pl_status status = read_text(job, text, &error);
    char place[PL_ERROR_CAUSE_BYTES];
    const char *found;

    if (status == PL_OK) {
        status = pl_local_job_check(job, &view, &error);
    }
    ck_assert_int_eq(status, PL_INVALID);
    found = strstr(error.cause, "job.json, line ");
    if (found) {
        unsigned line = 0, column = 0;
        int rest = 0;

        ck_assert_int_eq(sscanf(found, "job.json, line %u, column %u: %n", &line, &column, &rest), 2);
        snprintf(place, sizeof(place), "%u:%u: %s", line, column, found + rest);
    }
    ck_assert_str_eq(found ? place : error.cause, expected);
    pl_local_job_free(job);
}

START_TEST(a_whole_body_is_taken)
{
    struct pl_local_job *job = made();
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_local_view *view;

    ck_assert_ok(
        read_text(job,
                  JOB("\"RoleArn\": \"arn:aws:iam::123456789012:role/r\", \"Tags\": [], \"VpcConfig\": {\"any\": 1},\n"
                      "\"OutputDataConfig\": {\"S3OutputPath\": \"s3://b/o\"},\n"
                      "\"HyperParameters\": {\"epochs\": \"3\"}, \"Environment\": {\"A_1\": \"x\\ny\"},\n"
                      "\"AlgorithmSpecification\": {\"TrainingImage\": \"i:1\", \"TrainingInputMode\": \"Pipe\",\n"
                      "\"MetricDefinitions\": [{\"Name\": \"loss\", \"Regex\": \"loss=([0-9.]+)\"}],\n"
                      "\"ContainerArguments\": [\"train\", \"\"], \"AlgorithmName\": \"x\"},\n"
                      "\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(
                          ", \"S3DataDistributionType\": "
                          "\"ShardedByS3Key\", \"InstanceGroupNames\": "
                          "[\"g2\"]") ", "
                                      "\"ShuffleConfig\": {\"Seed\": "
                                      "7}, \"RecordWrapperType\": "
                                      "\"RecordIO\"},\n"
                                      "{\"ChannelName\": \"b\", "
                                      "\"InputMode\": "
                                      "\"FastFile\", " SOURCE("") "}],\n"
                                                                  "\"ResourceConfig\": "
                                                                  "{\"VolumeSizeInGB\": 1, "
                                                                  "\"InstanceGroups\": [\n"
                                                                  "{\"InstanceGroupName\": "
                                                                  "\"g1\", "
                                                                  "\"InstanceType\": "
                                                                  "\"ml.a\", "
                                                                  "\"InstanceCount\": 2},\n"
                                                                  "{\"InstanceGroupName\": "
                                                                  "\"g2\", "
                                                                  "\"InstanceType\": "
                                                                  "\"ml.b\", "
                                                                  "\"InstanceCount\": "
                                                                  "1}]},\n"
                                                                  "\"StoppingCondition\": "
                                                                  "{\"MaxRuntimeInSeconds\":"
                                                                  " 60, "
                                                                  "\"MaxWaitTimeInSeconds\":"
                                                                  " 60},\n"
                                                                  "\"EnableManagedSpotTraini"
                                                                  "ng\": true,\n"
                                                                  "\"CheckpointConfig\": "
                                                                  "{\"S3Uri\": "
                                                                  "\"s3://b/c\", "
                                                                  "\"LocalPath\": "
                                                                  "\"/opt/ml/c\"}"),
                  &error),
        &error);
    view = checked(job);
    ck_assert_str_eq(view->name, "job");
    ck_assert_str_eq(view->image, "i:1");
    ck_assert_uint_eq(view->hosts, 3);
    ck_assert_uint_eq(view->group_count, 2);
    ck_assert_str_eq(view->groups[1].name, "g2");
    ck_assert_str_eq(view->hyperparameters[0].value, "3");
    ck_assert_str_eq(view->environment[0].value, "x\ny");
    ck_assert_str_eq(view->metrics[0].value, "loss=([0-9.]+)");
    ck_assert_uint_eq(view->argument_words, 2);
    ck_assert_uint_eq(view->channel_count, 2);
    ck_assert(view->channels[0].mode == PL_LOCAL_PIPE && view->channels[0].sharded && view->channels[0].recordio);
    ck_assert(view->channels[0].is_shuffled && view->channels[0].shuffle_seed == 7);
    ck_assert_str_eq(view->channels[0].groups[0], "g2");
    ck_assert(view->channels[1].mode == PL_LOCAL_FAST_FILE && !view->channels[1].sharded);
    ck_assert(view->max_run_s == 60 && view->is_spot);
    ck_assert_str_eq(view->checkpoint_path, "/opt/ml/c");
    ck_assert_uint_eq(view->ignored_count, 6);
    ck_assert_str_eq(view->ignored[0], "RoleArn");
    pl_local_job_free(job);
}
END_TEST

START_TEST(each_broken_rule_is_refused_at_its_place)
{
    check_refused("{\"TrainingJobName\": \"a_b\"}",
                  "1:21: TrainingJobName: expected a text that matches [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}, found 'a_b'");
    check_refused("{\"TrainingJobName\": 7}", "1:21: TrainingJobName: expected a string, found a number");
    check_refused("[]", "1:1: expected an object, found a list");
    check_refused(JOB("\"TraningJobName\": 1"),
                  "2:1: CreateTrainingJob has no key 'TraningJobName' here (did you mean 'TrainingJobName'?)");
    check_refused(JOB("\"ResourceConfig\": {\"InstanceKount\": 1}"),
                  "2:20: ResourceConfig: CreateTrainingJob has no key 'InstanceKount' here (did you mean "
                  "'InstanceCount'?)");
    check_refused(JOB("\"HyperParameters\": {\"epochs\": \"3\",\n  \"epochs\": \"4\"}"),
                  "3:3: HyperParameters.epochs: expected each key once, found it twice");
    check_refused(JOB("\"HyperParameters\": {\"epochs\": 3}"),
                  "2:31: HyperParameters.epochs: expected a string, found a number");
    check_refused(JOB("\"Environment\": {\n  \"1A\": \"x\"}"),
                  "3:3: Environment: expected a text that matches [a-zA-Z_][a-zA-Z0-9_]*, found '1A' as a name");
    check_refused(JOB("\"InputDataConfig\": []"), "2:20: InputDataConfig: expected entries: 1 to 20, found 0");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", \"DataSource\": {\n"
                      "\"FileSystemDataSource\": {\"FileSystemId\": \"fs-1\"}}}]"),
                  "3:25: InputDataConfig[0].DataSource.FileSystemDataSource: only S3 data sources are imitated: write "
                  "an S3DataSource here; --channel NAME=DIR takes a folder in its place");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\"}]"),
                  "2:21: InputDataConfig[0]: the key 'DataSource' is missing");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", \"InputMode\": \"Fast\", " SOURCE("") "}]"),
                  "2:55: InputDataConfig[0].InputMode: expected Pipe, File or FastFile, found 'Fast'");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(
                      "") "},\n{\"ChannelName\": \"a\", " SOURCE("") "}]"),
                  "3:17: InputDataConfig[1].ChannelName: another channel has this name");
    check_refused(
        JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(", \"InstanceGroupNames\": [\"g\"]") "}]"),
        "channel 'a': the job has no instance group 'g'");
    check_refused(JOB("\"StoppingCondition\": {\"MaxRuntimeInSeconds\": 0}"),
                  "2:46: StoppingCondition.MaxRuntimeInSeconds: expected 1 to 1073741824, found 0");
    check_refused(JOB("\"StoppingCondition\": {\"MaxRuntimeInSeconds\": 1.5}"),
                  "2:46: StoppingCondition.MaxRuntimeInSeconds: expected a whole number");
    check_refused(JOB("\"StoppingCondition\": {\"MaxWaitTimeInSeconds\": 9}"),
                  "2:47: StoppingCondition.MaxWaitTimeInSeconds: needs EnableManagedSpotTraining true");
    check_refused(JOB("\"EnableManagedSpotTraining\": true,\n"
                      "\"StoppingCondition\": {\"MaxRuntimeInSeconds\": 10, \"MaxWaitTimeInSeconds\": 9}"),
                  "3:74: StoppingCondition.MaxWaitTimeInSeconds: expected at least MaxRuntimeInSeconds, which is 10, "
                  "found 9");
    check_refused(JOB("\"EnableManagedSpotTraining\": \"yes\""),
                  "2:30: EnableManagedSpotTraining: expected true or false, found a string");
    check_refused(JOB("\"CheckpointConfig\": {\"S3Uri\": \"folder\"}"),
                  "2:31: CheckpointConfig.S3Uri: expected an address s3://BUCKET/PREFIX, found 'folder'");
    check_refused(JOB("\"ResourceConfig\": {\"InstanceCount\": 0}"),
                  "2:37: ResourceConfig.InstanceCount: expected at least 1, found 0");
    check_refused(JOB("\"AlgorithmSpecification\": {\"TrainingInputMode\": \"File\", \"MetricDefinitions\": [\n"
                      "{\"Name\": \"\", \"Regex\": \"x\"}]}"),
                  "3:10: AlgorithmSpecification.MetricDefinitions[0].Name: expected 1 to 255 characters, found 0");
}
END_TEST

/* Runs one option on a new job; `expected` is its error, NULL if it is taken. */
static void check_option(enum pl_status (*set)(struct pl_local_job *job, const char *value, struct pl_error *reterr),
                         const char *value, const char *expected)
{
    struct pl_local_job *job = made();
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = set(job, value, &error);

    ck_assert_int_eq(status, expected ? PL_INVALID : PL_OK);
    ck_assert_str_eq(error.cause, expected ? expected : "");
    pl_local_job_free(job);
}

START_TEST(options_are_checked_by_the_same_table)
{
    check_option(pl_local_job_set_name, "a b",
                 "--name: expected a text that matches [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}, found 'a b'");
    check_option(pl_local_job_add_hyperparameter, "epochs", "--hyperparameter is 'epochs', expected NAME=VALUE");
    check_option(pl_local_job_add_hyperparameter, "epochs=", NULL);
    check_option(pl_local_job_add_environment, "A-B=1",
                 "--environment A-B: expected a text that matches [a-zA-Z_][a-zA-Z0-9_]*, found 'A-B'");
    check_option(pl_local_job_add_metric, "loss=", "--metric loss: expected 1 to 500 characters, found 0");
    check_option(pl_local_job_add_channel, "training=", "--channel is 'training=', expected NAME=DIR[:WORD...]");
    check_option(pl_local_job_add_channel, "a b=dir",
                 "--channel a b: expected a text that matches [A-Za-z0-9\\.\\-_]+, found 'a b'");
    check_option(pl_local_job_add_channel, "a=dir:shuffle=x", "--channel a: 'shuffle=x' is not shuffle=NUMBER");
    check_option(pl_local_job_add_channel, "a=:pipe", "--channel is 'a=:pipe', expected NAME=DIR[:WORD...]");
}
END_TEST

START_TEST(options_win_over_the_file_and_a_channel_has_words_at_its_end)
{
    struct pl_local_job *job = made();
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_local_view *view;

    ck_assert_ok(read_text(job,
                           JOB("\"HyperParameters\": {\"a\": \"1\", \"b\": \"2\"},\n\"ResourceConfig\": "
                               "{\"InstanceCount\": 4},\n\"InputDataConfig\": [{\"ChannelName\": \"training\", " SOURCE(
                                   "") "}]"),
                           &error),
                 &error);
    ck_assert_ok(pl_local_job_add_hyperparameter(job, "b=3=4", &error), &error);
    ck_assert_ok(pl_local_job_set_hosts(job, 2, &error), &error);
    ck_assert_ok(pl_local_job_add_channel(job, "training=my:data:sharded:shuffle=5:pipe", &error), &error);
    ck_assert_ok(pl_local_job_add_channel(job, "list=x:manifest=m.json", &error), &error);
    ck_assert_ok(pl_local_job_add_channel(job, "far=s3://bucket/b", &error), &error);
    ck_assert_ok(pl_local_job_add_channel(job, "named=:sharded:manifest=s3://bucket/m", &error), &error);
    ck_assert_int_eq(pl_local_job_add_channel(job, "training=twice", &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "--channel training is given twice");
    view = checked(job);
    ck_assert_uint_eq(view->hyperparameter_count, 2);
    ck_assert_str_eq(view->hyperparameters[1].value, "3=4");
    ck_assert_uint_eq(view->hosts, 2);
    ck_assert_uint_eq(view->channel_count, 4);
    ck_assert_str_eq(view->channels[0].from, "my:data");
    ck_assert(view->channels[0].sharded && view->channels[0].is_shuffled && view->channels[0].mode == PL_LOCAL_PIPE);
    ck_assert(view->channels[1].kind == PL_LOCAL_FROM_MANIFEST);
    ck_assert_str_eq(view->channels[1].from, "x");
    ck_assert_str_eq(view->channels[1].manifest, "m.json");
    ck_assert_str_eq(view->channels[2].from, "s3://bucket/b");
    ck_assert_str_eq(view->channels[3].from, "s3://bucket/m");
    ck_assert(view->channels[3].sharded && view->channels[3].kind == PL_LOCAL_FROM_MANIFEST);
    ck_assert_ptr_null(view->channels[3].manifest);
    ck_assert_ptr_null(view->checkpoint_path); /* the file has no CheckpointConfig */
    pl_local_job_free(job);
}
END_TEST

START_TEST(what_is_saved_is_read_again_with_keys_that_have_no_meaning_here)
{
    struct scratch scratch = scratch_new();
    struct pl_local_job *job = made(), *again = made();
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_local_view *view;
    PL_AUTO_FREE char *text = NULL;
    char path[PATH_MAX];

    ck_assert_ok(
        read_text(job,
                  JOB("\"Tags\": [{\"Key\": \"k\", \"Value\": \"v\"}],\n\"ResourceConfig\": {\"InstanceType\": "
                      "\"ml.x\", \"VolumeSizeInGB\": 9},\n\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(
                          "") ", \"ContentType\": \"text/csv\"}]"),
                  &error),
        &error);
    ck_assert_ok(pl_local_job_add_channel(job, "b=dir:augmented=x,y:pipe", &error), &error);
    ck_assert_ok(pl_local_job_set_words(job, (char *const[]){"./train", "--x"}, 2, &error), &error);
    ck_assert_ok(pl_local_job_set_max_run(job, 30, &error), &error);
    checked(job);
    scratch_path(&scratch, "saved.json", path);
    ck_assert_ok(pl_local_job_save(job, path, &error), &error);
    ck_assert_ok(pl_file_read(path, 1 << 20, &text, NULL, &error), &error);
    ck_assert_ptr_nonnull(strstr(text, "\"Tags\""));
    ck_assert_ptr_nonnull(strstr(text, "\"VolumeSizeInGB\""));
    ck_assert_ptr_nonnull(strstr(text, "REPLACE-ROLE"));
    ck_assert_ok(pl_local_job_read(again, path, &error), &error);
    view = checked(again);
    ck_assert_uint_eq(view->channel_count, 2);
    ck_assert_str_eq(view->channels[0].content_type, "text/csv");
    ck_assert_str_eq(view->channels[1].attributes, "x,y");
    ck_assert_str_eq(view->arguments[1], "--x");
    ck_assert_str_eq(view->instance_type, "ml.x");
    ck_assert(view->max_run_s == 30 && view->hosts == 1);
    pl_local_job_free(job);
    pl_local_job_free(again);
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/local/job", a_whole_body_is_taken, each_broken_rule_is_refused_at_its_place,
          options_are_checked_by_the_same_table, options_win_over_the_file_and_a_channel_has_words_at_its_end,
          what_is_saved_is_read_again_with_keys_that_have_no_meaning_here)
