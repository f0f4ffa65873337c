/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/local/job.c. */
/* The description of a job: what is taken, and what is refused. */
#include "programs/local/job.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <string.h>

#define JOB(members) "{\"TrainingJobName\": \"job\",\n" members "}"
#define SOURCE(members)                                                                                                \
    "\"DataSource\": {\"S3DataSource\": {\"S3DataType\": \"S3Prefix\", \"S3Uri\": \"s3://bucket/a\"" members "}}"

static struct pl_local_job job; /* too large for the stack; each test has a process of its own */

static void make(void)
{
    ck_ok(pl_local_job_init, &job);
}

static enum pl_status read_text(const char *text, struct pl_error *error)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    enum pl_status status;

    scratch_write(&scratch, "job.json", text, strlen(text));
    status = pl_local_job_read(&job, scratch_path(&scratch, "job.json", path), error);
    return status;
}

/* The text must be refused with `expected`, which the file's name precedes. */
static void check_refused(const char *text, const char *expected)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    const char *found;

    make();
    status = read_text(text, &error);
    status = status == PL_OK ? pl_local_job_check(&job, &error) : status;
    ck_assert_int_eq(status, PL_INVALID);
    found = strstr(error.cause, "job.json");
    ck_assert_str_eq(found ? found + strlen("job.json") : error.cause, expected);
    pl_local_job_done(&job);
}

static const char whole_body[] =
    "{\"TrainingJobName\": \"job\", \"RoleArn\": \"arn:aws:iam::123456789012:role/r\", \"Tags\": [], \"VpcConfig\": "
    "{\"any\": 1}, "
    "\"OutputDataConfig\": {\"S3OutputPath\": \"s3://b/o\"}, \"HyperParameters\": {\"epochs\": \"3\"}, "
    "\"Environment\": {\"A_1\": \"x\\ny\"}, "
    "\"AlgorithmSpecification\": {\"TrainingImage\": \"i:1\", \"TrainingInputMode\": \"Pipe\", \"AlgorithmName\": "
    "\"x\", "
    "\"MetricDefinitions\": [{\"Name\": \"loss\", \"Regex\": \"loss=([0-9.]+)\"}], \"ContainerArguments\": [\"train\", "
    "\"\"]}, "
    "\"InputDataConfig\": [{\"ChannelName\": \"a\", \"ShuffleConfig\": {\"Seed\": 7}, \"RecordWrapperType\": "
    "\"RecordIO\", "
    "\"DataSource\": {\"S3DataSource\": {\"S3DataType\": \"S3Prefix\", \"S3Uri\": \"s3://bucket/a\", "
    "\"S3DataDistributionType\": \"ShardedByS3Key\", \"InstanceGroupNames\": [\"g2\"]}}}, "
    "{\"ChannelName\": \"b\", \"InputMode\": \"FastFile\", "
    "\"DataSource\": {\"S3DataSource\": {\"S3DataType\": \"S3Prefix\", \"S3Uri\": \"s3://bucket/a\"}}}], "
    "\"ResourceConfig\": {\"VolumeSizeInGB\": 1, \"InstanceGroups\": [ "
    "{\"InstanceGroupName\": \"g1\", \"InstanceType\": \"ml.a\", \"InstanceCount\": 2}, "
    "{\"InstanceGroupName\": \"g2\", \"InstanceType\": \"ml.b\", \"InstanceCount\": 1}]}, "
    "\"StoppingCondition\": {\"MaxRuntimeInSeconds\": 60, \"MaxWaitTimeInSeconds\": 60}, "
    "\"EnableManagedSpotTraining\": true, "
    "\"CheckpointConfig\": {\"S3Uri\": \"s3://b/c\", \"LocalPath\": \"/opt/ml/c\"}}";

TEST(a_whole_body_is_taken)
{
    make();
    ck_ok(read_text, whole_body);
    ck_ok(pl_local_job_check, &job);
    ck_assert_str_eq(job.name, "job");
    ck_assert_str_eq(job.image, "i:1");
    ck_assert_uint_eq(job.hosts, 3);
    ck_assert_uint_eq(job.group_count, 2);
    ck_assert_str_eq(job.groups[1].name, "g2");
    ck_assert_str_eq(job.hyperparameters.items[0].value, "3");
    ck_assert_str_eq(job.environment.items[0].value, "x\ny");
    ck_assert_str_eq(job.metrics.items[0].value, "loss=([0-9.]+)");
    ck_assert_uint_eq(job.arguments.count, 2);
    ck_assert_uint_eq(job.channel_count, 2);
    ck_assert(job.channels[0].mode == PL_LOCAL_PIPE && job.channels[0].sharded && job.channels[0].recordio);
    ck_assert(job.channels[0].is_shuffled && job.channels[0].shuffle_seed == 7);
    ck_assert(!pl_local_channel_is_of(&job.channels[0], "g1") && pl_local_channel_is_of(&job.channels[0], "g2"));
    ck_assert(pl_local_channel_is_of(&job.channels[1], "g1"));
    ck_assert(job.channels[1].mode == PL_LOCAL_FAST_FILE && !job.channels[1].sharded);
    ck_assert_uint_eq(job.max_run_s, 60);
    ck_assert_str_eq(job.checkpoint_path, "/opt/ml/c");
    ck_assert_uint_eq(job.ignored.count, 8);
    ck_assert_str_eq(job.ignored.items[0], "AlgorithmSpecification.AlgorithmName");
    pl_local_job_done(&job);
}

TEST(what_cannot_run_is_refused_at_its_place)
{
    check_refused("{\"TrainingJobName\": \"../a\"}", ": TrainingJobName: expected 1 to 63 letters, digits and hyphens, "
                                                     "the first one no hyphen, found a string");
    check_refused("{\"TrainingJobName\": 7}", ": TrainingJobName: expected a string, found the number 7");
    check_refused("[]", ": expected an object, found a list");
    check_refused(JOB("\"HyperParameters\": {\"epochs\": \"3\",\n  \"epochs\": \"4\"}"),
                  ", line 3, column 3: expected each key once, found \"epochs\" twice");
    check_refused(JOB("\"HyperParameters\": {\"epochs\": 3}"),
                  ": HyperParameters.epochs: expected a string, found the number 3");
    check_refused(JOB("\"HyperParameters\": [\"a\"]"), ": HyperParameters: expected an object, found a list");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"..\", " SOURCE("") "}]"),
                  ": InputDataConfig[0].ChannelName: expected 1 to 64 letters, digits, dots, hyphens and underscores, "
                  "found a string");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", \"DataSource\": {\n"
                      "\"FileSystemDataSource\": {\"FileSystemId\": \"fs-1\"}}}]"),
                  ": InputDataConfig[0].DataSource: expected an S3DataSource (only those are imitated; --channel "
                  "NAME=DIR takes a folder), found an object");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", \"InputMode\": \"Fast\", " SOURCE("") "}]"),
                  ": InputDataConfig[0].InputMode: expected Pipe, File or FastFile, found a string");
    check_refused(JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(
                      "") "},\n{\"ChannelName\": \"a\", " SOURCE("") "}]"),
                  "the channel 'a' is there twice");
    check_refused(
        JOB("\"InputDataConfig\": [{\"ChannelName\": \"a\", " SOURCE(", \"InstanceGroupNames\": [\"g\"]") "}]"),
        "channel 'a': the job has none of its instance groups");
    check_refused(JOB("\"StoppingCondition\": {\"MaxRuntimeInSeconds\": 0}"),
                  ": StoppingCondition.MaxRuntimeInSeconds: expected a whole number from 1 to 2147483647, found the "
                  "number 0");
    check_refused(JOB("\"ResourceConfig\": {\"InstanceCount\": 251}"),
                  ": ResourceConfig.InstanceCount: expected a whole number from 1 to 250, found the number 251");
    check_refused(JOB("\"AlgorithmSpecification\": {\"MetricDefinitions\": [{\"Name\": \"a\"}]}"),
                  ": AlgorithmSpecification.MetricDefinitions[0].Regex: expected a string, found nothing");
}

/* Runs --`option` on a new job; `expected` is its error, NULL if it is taken. */
static void check_option(const char *option, const char *value, const char *expected)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    make();
    status = (strcmp(option, "name") == 0      ? pl_local_job_set_name
              : strcmp(option, "channel") == 0 ? pl_local_job_add_channel
                                               : pl_local_job_add)(option, value, &job, &error);
    ck_assert_int_eq(status, expected ? PL_INVALID : PL_OK);
    ck_assert_str_eq(error.cause, expected ? expected : "");
    pl_local_job_done(&job);
}

TEST(a_wrong_option_is_refused)
{
    check_option("name", "a b",
                 "--name is 'a b', expected 1 to 63 letters, digits and hyphens, the first one no hyphen");
    check_option("hyperparameter", "epochs", "--hyperparameter is 'epochs', expected NAME=VALUE");
    check_option("hyperparameter", "epochs=", NULL);
    check_option("channel", "training=", "--channel is 'training=', expected NAME=DIR[:WORD...]");
    check_option("channel", "a b=dir",
                 "--channel a b: expected a name of 1 to 64 letters, digits, dots, hyphens and underscores");
    check_option("channel", "a=dir:shuffle=x", "--channel a: 'shuffle=x' is not shuffle=NUMBER");
    check_option("channel", "a=:pipe", "--channel is 'a=:pipe', expected NAME=DIR[:WORD...]");
}

TEST(options_win_over_the_file_and_a_channel_has_words_at_its_end)
{
    make();
    ck_ok(read_text,
          JOB("\"HyperParameters\": {\"a\": \"1\", \"b\": \"2\"},\n\"ResourceConfig\": "
              "{\"InstanceCount\": 4},\n\"InputDataConfig\": [{\"ChannelName\": \"training\", " SOURCE("") "}]"));
    ck_ok(pl_local_job_add, "hyperparameter", "b=3=4", &job);
    ck_ok(pl_local_job_set_words, &job, (char *const[]){"./train", "--x"}, 2);
    ck_ok(pl_local_job_set_hosts, "hosts", "2", &job);
    ck_ok(pl_local_job_add_channel, "channel", "training=my:data:sharded:shuffle=5:pipe", &job);
    ck_ok(pl_local_job_add_channel, "channel", "list=x:manifest=m.json", &job);
    ck_ok(pl_local_job_add_channel, "channel", "far=s3://bucket/b", &job);
    ck_ok(pl_local_job_add_channel, "channel", "named=:sharded:manifest=s3://bucket/m", &job);
    ck_fails_as(PL_INVALID, "--channel training is given twice", pl_local_job_add_channel, "channel", "training=twice",
                &job);
    ck_ok(pl_local_job_check, &job);
    ck_assert_uint_eq(job.hyperparameters.count, 2);
    ck_assert_str_eq(job.hyperparameters.items[1].value, "3=4");
    ck_assert_uint_eq(job.hosts, 2);
    ck_assert_uint_eq(job.channel_count, 4);
    ck_assert_str_eq(job.channels[0].from, "my:data");
    ck_assert(job.channels[0].sharded && job.channels[0].is_shuffled && job.channels[0].mode == PL_LOCAL_PIPE);
    ck_assert(job.channels[1].kind == PL_LOCAL_FROM_MANIFEST);
    ck_assert_str_eq(job.channels[1].from, "x");
    ck_assert_str_eq(job.channels[1].manifest, "m.json");
    ck_assert_str_eq(job.channels[2].from, "s3://bucket/b");
    ck_assert_str_eq(job.channels[3].from, "s3://bucket/m");
    ck_assert(job.channels[3].sharded && job.channels[3].kind == PL_LOCAL_FROM_MANIFEST);
    ck_assert_ptr_null(job.channels[3].manifest);
    ck_assert_str_eq(job.arguments.items[1], "--x");
    ck_assert_ptr_null(job.checkpoint_path); /* the file has no CheckpointConfig */
    pl_local_job_done(&job);
}

UNIT_MAIN("programs/local/job")
