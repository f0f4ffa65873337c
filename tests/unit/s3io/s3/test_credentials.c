/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/credentials.c, s3io/s3/credentials_reply.c, s3io/s3/profile.c. */
#include "base/environment.h"
#include "base/memory.h"
#include "s3io/s3/credentials.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <string.h>

TEST(tokens_go_only_where_they_may)
{
    static const char *const good[] = {
        "https://any.example/x",      "http://127.0.0.1:1234/get", "http://127.9.9.9/",     "http://localhost:80/x",
        "http://169.254.170.2/creds", "http://169.254.170.23/v1",  "http://[fd00:ec2::23]", "http://[::1]:99/x"};
    static const char *const bad[] = {"http://example.com/",
                                      "http://169.254.169.254/",
                                      "http://127.0.0.1.example.com/",
                                      "http://127.0.0.1@evil.example/",
                                      "http://127.0.0.256/",
                                      "http://localhost.evil/",
                                      "ftp://127.0.0.1/",
                                      "https://",
                                      "http://127.0.0.1\\@evil/",
                                      "http://[::1].evil.example"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(pl_credentials_reply_url_allowed(good[i]), "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(!pl_credentials_reply_url_allowed(bad[i]), "%s", bad[i]);
    }
}

static enum pl_status parse(const char *text, struct pl_credentials_reply *reply, struct pl_error *error)
{
    return pl_credentials_reply_parse(text, strlen(text), reply, error);
}

TEST(an_answer_is_read)
{
    struct pl_credentials_reply reply;

    ck_ok(parse,
          "{\"RoleArn\":\"x\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"T\","
          "\"Expiration\":\"2013-05-24T00:00:00Z\"}",
          &reply);
    ck_assert_str_eq(reply.access_key, "A");
    ck_assert_str_eq(reply.secret_key, "S");
    ck_assert_str_eq(reply.session_token, "T");
    ck_assert_int_eq(reply.expires_s, 1369353600);
    pl_credentials_reply_done(&reply);
}

TEST(an_error_reply_is_quoted)
{
    struct pl_credentials_reply reply;

    ck_fails(PL_INVALID, "NoRole: not yours", parse, "{\"code\":\"NoRole\",\"message\":\"not yours\"}", &reply);
}

TEST(keys_that_could_break_a_header_are_refused)
{
    struct pl_credentials_reply reply;

    ck_fails(PL_INVALID, "", parse, "{\"AccessKeyId\":\"A\\r\\nX: y\",\"SecretAccessKey\":\"S\"}", &reply);
    ck_fails(PL_INVALID, "", parse, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"\\u0000\"}", &reply);
    ck_fails(PL_INVALID, "", parse, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Expiration\":\"soon\"}",
             &reply);
    ck_fails(PL_INVALID, "", parse, "[]", &reply);
}

TEST(an_answer_that_json_readers_could_take_in_two_ways_is_refused)
{
    static const struct {
        const char *text, *cause;
    } cases[] = {
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"SecretAccessKey\":\"other\"}",
         "credentials, line 1, column 42: expected each key once, found \"SecretAccessKey\" twice"},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\\u0000x\"}",
         "credentials, line 1, column 40: expected no U+0000 in a string, found \\u0000"},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":[\"S\"]}",
         "credentials: SecretAccessKey: expected a string, found a list"},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":7}",
         "credentials: Token: expected a string, found the number 7"},
        {"{\"accesskeyid\":\"A\",\"SecretAccessKey\":\"S\"}",
         "the credentials service answered without credentials: no code: no message"},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"} more",
         "credentials, line 1, column 43: expected the end of the text, found 'm'"},
        {"[]", "credentials: expected an object, found a list"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_credentials_reply reply;

        ck_fails_as(PL_INVALID, cases[i].cause, parse, cases[i].text, &reply);
    }
}

TEST(no_keys_names_the_places)
{
    struct pl_credentials *credentials = NULL;
    struct pl_credentials_options options = {.access_key = NULL};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    ck_ok(pl_environment_new_empty, &environment);
    ck_fails(PL_NOT_FOUND, "AWS_ACCESS_KEY_ID", pl_credentials_new, environment, &options, NULL, &credentials);
    ck_ok(pl_environment_set, environment, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.example/");
    ck_fails(PL_INVALID, "", pl_credentials_new, environment, &options, NULL, &credentials);
}

#define KEYS(access) "aws_access_key_id = " access "\naws_secret_access_key = S\n"

/* In each of these cases botocore takes the same credentials, or refuses, or uses a source that we do not support. A
 * container's role never replaces them. */
TEST(profiles_are_resolved_as_botocore_does_and_no_other_role_is_taken)
{
    static const struct {
        const char *keys, *config, *profile; /* NULL: the file does not exist, the variable is not set */
        enum pl_status status;
        const char *word;  /* a word of the message, or the access key; NULL: the container's credentials are used */
        const char *token; /* the token that belongs to the key */
    } cases[] = {
        {NULL, "[default]\nregion = eu-west-1\nsso_session = mine\n", NULL, PL_UNSUPPORTED, "'sso_session'", NULL},
        {NULL, "[profile p]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = q\n[profile q]\n" KEYS("Q"), "p",
         PL_UNSUPPORTED, "'role_arn'", NULL},
        {"[p]\n" KEYS("A"), "[profile p]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = p\n", "p", PL_UNSUPPORTED,
         "'role_arn'", NULL},
        {NULL, "[default]\ncredential_process = /bin/keys\n", NULL, PL_UNSUPPORTED, "'credential_process'", NULL},
        {"[default]\n" KEYS("A"), "[default]\ncredential_process = /bin/keys\n", NULL, PL_OK, "A", NULL},
        {"[default]\n" KEYS("A"), "[default]\n" KEYS("B") "aws_session_token = of B\n", NULL, PL_OK, "A", NULL},
        {"[default]\n" KEYS("A"), "[profile p]\n" KEYS("B") "aws_session_token = T\n", "p", PL_OK, "B", "T"},
        {NULL, "[default]\nAWS_ACCESS_KEY_ID = C\naws_secret_access_key: S=\n", NULL, PL_OK, "C", NULL},
        {"[default]\naws_access_key_id = A\n", NULL, NULL, PL_INVALID, "aws_secret_access_key", NULL},
        {"[default]\n" KEYS("A"), NULL, "typo", PL_NOT_FOUND, "'typo'", NULL},
        {"[other]\n" KEYS("A"), "[default]\nregion = eu-west-1\n", NULL, PL_OK, NULL, NULL},
        {NULL, NULL, "default", PL_OK, NULL, NULL},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        AUTO_SCRATCH struct scratch scratch = scratch_new();
        struct pl_credentials *credentials = NULL;
        struct pl_credentials_options options = {.allow_metadata = true};
        PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status;
        char path[PATH_MAX];

        ck_ok(pl_environment_new_empty, &environment);
        ck_ok(pl_environment_set, environment, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/keys");
        ck_ok(pl_environment_set, environment, "AWS_SHARED_CREDENTIALS_FILE", scratch_path(&scratch, "keys", path));
        ck_ok(pl_environment_set, environment, "AWS_CONFIG_FILE", scratch_path(&scratch, "config", path));
        if (cases[i].keys) {
            scratch_write(&scratch, "keys", cases[i].keys, strlen(cases[i].keys));
        }
        if (cases[i].config) {
            scratch_write(&scratch, "config", cases[i].config, strlen(cases[i].config));
        }
        if (cases[i].profile) {
            ck_ok(pl_environment_set, environment, "AWS_PROFILE", cases[i].profile);
        }
        status = pl_credentials_new(environment, &options, NULL, &credentials, &error);
        ck_assert_msg(status == cases[i].status, "case %zu: status %d: %s", i, (int)status, error.cause);
        if (status != PL_OK) {
            ck_assert_msg(strstr(error.cause, cases[i].word), "case %zu: %s", i, error.cause);
        } else {
            const struct pl_sigv4_key *key = pl_credentials_key(credentials);

            ck_assert_pstr_eq(key->access_key, cases[i].word);
            ck_assert_pstr_eq(key->session_token, cases[i].token);
        }
        pl_credentials_free(credentials);
    }
}

TEST(an_answer_of_sts_is_read)
{
    const char text[] =
        "<AssumeRoleWithWebIdentityResponse "
        "xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleWithWebIdentityResult>"
        "<SubjectFromWebIdentityToken>x</SubjectFromWebIdentityToken><Credentials><SessionToken>T</SessionToken>"
        "<SecretAccessKey>S</SecretAccessKey><Expiration>2013-05-24T00:00:00Z</Expiration><AccessKeyId>A</AccessKeyId>"
        "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    static const char *const bad[] = {
        "", "{}", "<AssumeRoleWithWebIdentityResponse/>",
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</"
        "AccessKeyId><SecretAccessKey>S"
        /* a role always has a token */
        "</SecretAccessKey></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A&#10;</"
        "AccessKeyId><SecretAccessKey>S"
        "</SecretAccessKey><SessionToken>T</SessionToken></Credentials></AssumeRoleWithWebIdentityResult></"
        "AssumeRoleWithWebIdentityResponse>"};
    struct pl_credentials_reply reply;
    struct pl_error error = PL_ERROR_NONE;

    ck_ok(pl_credentials_reply_parse_sts, text, strlen(text), &reply);
    ck_assert_str_eq(reply.access_key, "A");
    ck_assert_str_eq(reply.secret_key, "S");
    ck_assert_str_eq(reply.session_token, "T");
    ck_assert_int_eq(reply.expires_s, 1369353600);
    pl_credentials_reply_done(&reply);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(bad); i++) {
        ck_assert_msg(pl_credentials_reply_parse_sts(bad[i], strlen(bad[i]), &reply, &error) != PL_OK, "%s", bad[i]);
    }
}

TEST(a_web_identity_needs_its_role_and_comes_before_profiles)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_credentials *credentials = NULL;
    struct pl_credentials_options options = {.region = "eu-west-1"};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char keys[] = "[default]\naws_access_key_id = A\naws_secret_access_key = S\n";
    char path[PATH_MAX];

    scratch_write(&scratch, "credentials", keys, sizeof(keys) - 1);
    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_environment_set, environment, "AWS_SHARED_CREDENTIALS_FILE", scratch_path(&scratch, "credentials", path));
    ck_ok(pl_environment_set, environment, "AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
    ck_fails(PL_INVALID, "AWS_ROLE_ARN", pl_credentials_new, environment, &options, NULL, &credentials);
    ck_ok(pl_environment_set, environment, "AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
    ck_ok(pl_credentials_new, environment, &options, NULL, &credentials);
    ck_assert_ptr_null(pl_credentials_key(credentials)->access_key); /* the profile's credentials are not used */
    pl_credentials_free(credentials);
    ck_ok(pl_environment_set, environment, "AWS_ENDPOINT_URL_STS", "ftp://sts.example");
    ck_fails(PL_INVALID, "", pl_credentials_new, environment, &options, NULL, &credentials);
}

TEST(keys_of_the_environment_are_used)
{
    struct pl_credentials *credentials = NULL;
    struct pl_credentials_options options = {.access_key = NULL};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_credentials_waiter waiter = {.ready = NULL};

    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_environment_set, environment, "AWS_ACCESS_KEY_ID", "A");
    ck_fails(PL_INVALID, "", pl_credentials_new, environment, &options, NULL, &credentials);
    ck_ok(pl_environment_set, environment, "AWS_SECRET_ACCESS_KEY", "S");
    ck_ok(pl_environment_set, environment, "AWS_SESSION_TOKEN", "T\nX: y");
    ck_fails(PL_INVALID, "", pl_credentials_new, environment, &options, NULL, &credentials);
    ck_ok(pl_environment_set, environment, "AWS_SESSION_TOKEN", "T");
    ck_ok(pl_credentials_new, environment, &options, NULL, &credentials);
    ck_assert(pl_credentials_ask(credentials, &waiter));
    ck_assert_str_eq(pl_credentials_key(credentials)->session_token, "T");
    ck_assert(!pl_credentials_expired(credentials, pl_credentials_generation(credentials)));
    pl_credentials_free(credentials);
}

static void parse_profile(const char *text, const char *name, bool is_config, struct pl_profile *profile)
{
    ck_ok(pl_profile_parse, text, strlen(text), name, is_config, profile);
}

TEST(the_right_section_is_read)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse_profile(
        "# keys\n[default]\naws_access_key_id=A\naws_secret_access_key = S = s \n[other]\naws_access_key_id = B\n",
        "default", false, &profile);
    ck_assert_str_eq(profile.access_key, "A");
    ck_assert_str_eq(profile.secret_key, "S = s");
    ck_assert_ptr_null(profile.session_token);
}

TEST(config_sections_are_called_profile)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse_profile("[work]\nregion = wrong\n[profile work]\r\nregion = eu-west-1\r\ns3 =\n  region = nested\n", "work",
                  true, &profile);
    ck_assert_str_eq(profile.region, "eu-west-1");
}

TEST(lines_deeper_than_the_setting_before_them_belong_to_it)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    PL_AUTO_PROFILE struct pl_profile all = {.access_key = NULL};

    parse_profile(
        "[default]\ns3 =\n  region = nested\n\n\tendpoint_url = nested\nca_bundle = b\n [other]\nregion = still here\n",
        "default", true, &profile);
    ck_assert_str_eq(profile.ca_bundle, "b");
    ck_assert_str_eq(profile.region, "still here");
    ck_assert_ptr_null(profile.endpoint_url);
    parse_profile("[other]\nx = y\n[default]\n  s3 =\n    region = nested\n  region = us-east-2\n", "default", true,
                  &all);
    ck_assert_str_eq(all.region, "us-east-2");
}

TEST(what_is_there_stays)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};

    parse_profile("[default]\nregion = a\nregion = b", "default", false, &profile);
    parse_profile("[default]\nregion = c\nendpoint_url = http://x\n", "default", true, &profile);
    ck_assert_str_eq(profile.region, "a");
    ck_assert_str_eq(profile.endpoint_url, "http://x");
}

TEST(files_are_found_and_may_be_missing)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
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
}

UNIT_MAIN("s3io/credentials")
