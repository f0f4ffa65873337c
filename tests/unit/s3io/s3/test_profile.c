/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/credentials_read.c. */
#include "base/environment.h"
#include "s3io/s3/credentials.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <string.h>

static void parse(const char *text, const char *name, bool is_config, struct pl_profile *profile)
{
    ck_ok(pl_profile_parse, text, strlen(text), name, is_config, profile);
}

START_TEST(the_right_section_is_read)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse("# keys\n[default]\naws_access_key_id=A\naws_secret_access_key = S = s \n[other]\naws_access_key_id = B\n",
          "default", false, &profile);
    ck_assert_str_eq(profile.access_key, "A");
    ck_assert_str_eq(profile.secret_key, "S = s");
    ck_assert_ptr_null(profile.session_token);
}
END_TEST

START_TEST(config_sections_are_called_profile)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse("[work]\nregion = wrong\n[profile work]\r\nregion = eu-west-1\r\ns3 =\n  region = nested\n", "work", true,
          &profile);
    ck_assert_str_eq(profile.region, "eu-west-1");
}
END_TEST

START_TEST(lines_deeper_than_the_setting_before_them_belong_to_it)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    PL_AUTO_PROFILE struct pl_profile all = {.access_key = NULL};

    parse(
        "[default]\ns3 =\n  region = nested\n\n\tendpoint_url = nested\nca_bundle = b\n [other]\nregion = still here\n",
        "default", true, &profile);
    ck_assert_str_eq(profile.ca_bundle, "b");
    ck_assert_str_eq(profile.region, "still here");
    ck_assert_ptr_null(profile.endpoint_url);
    parse("[other]\nx = y\n[default]\n  s3 =\n    region = nested\n  region = us-east-2\n", "default", true, &all);
    ck_assert_str_eq(all.region, "us-east-2");
}
END_TEST

START_TEST(what_is_there_stays)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse("[default]\nregion = a\nregion = b", "default", false, &profile);
    parse("[default]\nregion = c\nendpoint_url = http://x\n", "default", true, &profile);
    ck_assert_str_eq(profile.region, "a");
    ck_assert_str_eq(profile.endpoint_url, "http://x");
}
END_TEST

START_TEST(files_are_found_and_may_be_missing)
{
    struct scratch scratch = scratch_new();
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    PL_AUTO_PROFILE struct pl_profile none = {.access_key = NULL};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    char path[PATH_MAX];

    scratch_write(&scratch, "keys", "[p]\naws_access_key_id=A\n", 24);
    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_profile_read, environment, &none);
    ck_ok(pl_environment_set, environment, "AWS_PROFILE", "p");
    ck_ok(pl_environment_set, environment, "AWS_SHARED_CREDENTIALS_FILE", scratch_path(&scratch, "keys", path));
    ck_ok(pl_environment_set, environment, "AWS_CONFIG_FILE", "/nonexistent/config");
    ck_ok(pl_profile_read, environment, &profile);
    ck_assert_str_eq(profile.access_key, "A");
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("s3io/profile", the_right_section_is_read, config_sections_are_called_profile,
          lines_deeper_than_the_setting_before_them_belong_to_it, what_is_there_stays,
          files_are_found_and_may_be_missing)
