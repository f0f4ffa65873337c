/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/channel.c. */
#include "s3io/channel.h"

#include "base/environment.h"
#include "tests/support/unit.h"

static struct pl_environment *environment;
static struct pl_error error;

static void set(const char *name, const char *value)
{
    ck_ok(pl_environment_set, environment, name, value);
}

static void start(void)
{
    ck_ok(pl_environment_new_empty, &environment);
    set("SM_CHANNEL_TRAINING", "/opt/ml/input/data/training");
}

TEST(a_channel_without_configuration_is_a_replicated_directory)
{
    struct pl_channel_setup setup = {0};

    start();
    ck_ok(pl_channel_setup_find_in, environment, "training", &setup);
    ck_assert_str_eq(setup.info.name, "training");
    ck_assert_str_eq(setup.info.path, "/opt/ml/input/data/training");
    ck_assert_int_eq(setup.info.mode, PL_CHANNEL_FILE);
    ck_assert_int_eq(setup.info.distribution, PL_CHANNEL_FULLY_REPLICATED);
    ck_assert_int_eq(setup.info.wrapper, PL_CHANNEL_WRAPPER_NONE);
    pl_channel_setup_done(&setup);
    pl_environment_free(environment);
}

TEST(mode_distribution_and_wrapper_come_from_the_configuration)
{
    struct pl_channel_setup setup = {0};

    start();
    set("SM_INPUT_DATA_CONFIG",
        "{\"training\": {\"TrainingInputMode\": \"Pipe\", \"S3DistributionType\": \"ShardedByS3Key\", "
        "\"RecordWrapperType\": \"RecordIO\"}}");
    ck_ok(pl_channel_setup_find_in, environment, "training", &setup);
    ck_assert_int_eq(setup.info.mode, PL_CHANNEL_PIPE);
    ck_assert_int_eq(setup.info.distribution, PL_CHANNEL_SHARDED_BY_KEY);
    ck_assert_int_eq(setup.info.wrapper, PL_CHANNEL_WRAPPER_RECORDIO);
    pl_channel_setup_done(&setup);
    pl_environment_free(environment);
}

TEST(an_absent_channel_names_those_that_are_there)
{
    struct pl_channel_setup setup = {0};
    char text[1200];

    start();
    set("SM_CHANNELS", "[\"training\"]");
    ck_assert_int_eq(pl_channel_setup_find_in(environment, "testing", &setup, &error), PL_NOT_FOUND);
    ck_has(pl_error_text(&error, text, sizeof(text)), "[\"training\"]");
    pl_environment_free(environment);
}

TEST(unknown_words_are_refused)
{
    struct pl_channel_setup setup = {0};

    start();
    set("SM_INPUT_DATA_CONFIG", "{\"training\": {\"TrainingInputMode\": \"Tube\"}}");
    ck_assert_int_eq(pl_channel_setup_find_in(environment, "training", &setup, &error), PL_INVALID);
    set("SM_INPUT_DATA_CONFIG", "{\"training\": {\"S3DistributionType\": \"Some\"}}");
    ck_assert_int_eq(pl_channel_setup_find_in(environment, "training", &setup, &error), PL_INVALID);
    set("SM_INPUT_DATA_CONFIG", "{\"training\": {\"RecordWrapperType\": \"Tape\"}}");
    ck_assert_int_eq(pl_channel_setup_find_in(environment, "training", &setup, &error), PL_INVALID);
    set("SM_INPUT_DATA_CONFIG", "{\"training\": ");
    ck_assert_int_eq(pl_channel_setup_find_in(environment, "training", &setup, &error), PL_INVALID);
    ck_assert_ptr_null(setup.name);
    pl_environment_free(environment);
}

/* The entry point passes on what Python takes; a rank reads strictly and says what it cannot read. */
TEST(a_configuration_that_is_read_in_two_ways_is_refused_with_its_place)
{
    static const struct {
        const char *config, *cause;
    } cases[] = {
        {"{\"training\": {\"TrainingInputMode\": 7}}",
         "SM_INPUT_DATA_CONFIG: training.TrainingInputMode: expected a string, found the number 7"},
        {"{\"training\": [\"Pipe\"]}", "SM_INPUT_DATA_CONFIG: training: expected an object, found a list"},
        {"[]", "SM_INPUT_DATA_CONFIG: expected an object, found a list"},
        {"{\"other\": {\"rate\": NaN}}", "SM_INPUT_DATA_CONFIG, line 1, column 20: expected a value, found 'N'"},
        {"{\"training\": {\"a\": 1, \"a\": 2}}",
         "SM_INPUT_DATA_CONFIG, line 1, column 23: expected each key once, found \"a\" twice"},
        {"{\"other\": {\"a\": \"\\ud800\"}}",
         "SM_INPUT_DATA_CONFIG, line 1, column 18: expected both halves of a surrogate pair, found \\ud800"},
    };
    struct pl_channel_setup setup = {0};

    start();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set("SM_INPUT_DATA_CONFIG", cases[i].config);
        ck_fails_as(PL_INVALID, cases[i].cause, pl_channel_setup_find_in, environment, "training", &setup);
        ck_assert_ptr_null(setup.name);
    }
    set("SM_INPUT_DATA_CONFIG", "{\"training\": {\"TrainingInputMode\": null, \"InputMode\": \"\"}, \"other\": 1}");
    ck_ok(pl_channel_setup_find_in, environment, "training", &setup);
    ck_assert_int_eq(setup.info.mode, PL_CHANNEL_FILE);
    pl_channel_setup_done(&setup);
    pl_environment_free(environment);
}

UNIT_MAIN("s3io/channel")
