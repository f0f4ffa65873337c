/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/credentials.c, s3io/s3/credentials_reply.c, s3io/s3/profile.c. */
/*
 * The cases of tests/data/credentials.txt. `text` is an answer, for `reply` or `sts`, or an address; `lines` are those
 * of a profile's file, of which keys_section and config_section read one section more. `file keys` and `file config`
 * are AWS's files, which `new` and `read` find, and profile_name is AWS_PROFILE; "-" is none.
 */
#include "base/environment.h"
#include "s3io/s3/credentials.h"
#include "tests/support/cases.h"
#include "tests/support/scratch.h"

static struct scratch scratch;
static struct pl_environment *environment;
static struct pl_credentials *credentials;
static struct pl_credentials_reply answer;
static struct pl_profile profile;
static bool allow_metadata;
static char input[2048];

/* --- what a case writes --- */

static void set_text(char *rest)
{
    snprintf(input, sizeof(input), "%s", rest);
}

static void set_lines(char *rest)
{
    set_text(cases_unescape(rest));
}

static void set_env(char *rest)
{
    *strchr(rest, '=') = '\0';
    ck_ok(pl_environment_set, environment, rest, cases_unescape(rest + strlen(rest) + 1));
}

static void unset_env(char *rest)
{
    pl_environment_unset(environment, rest);
}

static void write_file(char *rest)
{
    const char *text = cases_unescape(cases_cut(rest));
    char path[PATH_MAX];

    remove(scratch_path(&scratch, rest, path));
    if (strcmp(text, "-") != 0) {
        scratch_write(&scratch, rest, text, strlen(text));
    }
}

static void set_profile_name(char *rest)
{
    if (strcmp(rest, "-") == 0) {
        pl_environment_unset(environment, "AWS_PROFILE");
    } else {
        ck_ok(pl_environment_set, environment, "AWS_PROFILE", rest);
    }
}

static void set_metadata(char *rest)
{
    allow_metadata = strcmp(rest, "yes") == 0;
}

static void read_section(const char *name, bool is_config)
{
    ck_ok(pl_profile_parse, input, strlen(input), name, is_config, &profile);
}

static void read_keys_section(char *rest)
{
    read_section(rest, false);
}

static void read_config_section(char *rest)
{
    read_section(rest, true);
}

static void forget_section(char *rest)
{
    pl_profile_done(&profile);
    profile = (struct pl_profile){.access_key = NULL};
}

static const struct cases_verb verbs[] = {{"text", set_text},
                                          {"lines", set_lines},
                                          {"env", set_env},
                                          {"unset", unset_env},
                                          {"file", write_file},
                                          {"profile_name", set_profile_name},
                                          {"metadata", set_metadata},
                                          {"keys_section", read_keys_section},
                                          {"config_section", read_config_section},
                                          {"fresh_section", forget_section},
                                          {NULL, NULL}};

/* --- what it does --- */

static enum pl_status do_reply(struct pl_error *reterr)
{
    return pl_credentials_reply_parse(input, strlen(input), &answer, reterr);
}

static enum pl_status do_sts(struct pl_error *reterr)
{
    return pl_credentials_reply_parse_sts(input, strlen(input), &answer, reterr);
}

static enum pl_status do_new(struct pl_error *reterr)
{
    const struct pl_credentials_options options = {.region = "eu-west-1", .allow_metadata = allow_metadata};

    pl_credentials_free(credentials);
    credentials = NULL;
    return pl_credentials_new(environment, &options, NULL, &credentials, reterr);
}

static enum pl_status do_read(struct pl_error *reterr)
{
    return pl_profile_read(environment, &profile, reterr);
}

static const struct cases_action actions[] = {
    {"reply", do_reply}, {"sts", do_sts}, {"new", do_new}, {"read", do_read}, {NULL, NULL}};

/* --- what it compares --- */

static const char *or_none(const char *text)
{
    return text ? text : "none";
}

static const char *is_ready(void)
{
    struct pl_credentials_waiter waiter = {.ready = NULL};

    return pl_credentials_ask(credentials, &waiter) &&
                   !pl_credentials_expired(credentials, pl_credentials_generation(credentials))
               ? "yes"
               : "no";
}

static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    if (strcmp(name, "allowed") == 0) {
        return pl_credentials_reply_url_allowed(input) ? "yes" : "no";
    }
    if (strcmp(name, "ready") == 0) {
        return is_ready();
    }
    if (strcmp(name, "keys") == 0) {
        pl_text_printf(text, "%s %s %s", answer.access_key, answer.secret_key, answer.session_token);
    } else if (strcmp(name, "expires") == 0) {
        pl_text_printf(text, "%lld", (long long)answer.expires_s);
    } else if (strcmp(name, "taken") == 0) {
        const struct pl_sigv4_key *key = pl_credentials_key(credentials);

        pl_text_printf(text, "%s %s", or_none(key->access_key), or_none(key->session_token));
    } else {
        *ret_known = strcmp(name, "section") == 0;
        pl_text_printf(text, "access %s, secret %s, token %s, region %s, endpoint %s, bundle %s",
                       or_none(profile.access_key), or_none(profile.secret_key), or_none(profile.session_token),
                       or_none(profile.region), or_none(profile.endpoint_url), or_none(profile.ca_bundle));
    }
    return pl_text_string(text);
}

static void begin(void)
{
    char path[PATH_MAX];

    scratch = scratch_new();
    cases_let("folder", scratch.path);
    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_environment_set, environment, "AWS_SHARED_CREDENTIALS_FILE", scratch_path(&scratch, "keys", path));
    ck_ok(pl_environment_set, environment, "AWS_CONFIG_FILE", scratch_path(&scratch, "config", path));
}

static void end(void)
{
    pl_credentials_free(credentials);
    pl_credentials_reply_done(&answer);
    pl_profile_done(&profile);
    pl_environment_free(environment);
    scratch_done(&scratch);
}

static struct cases cases = {.verbs = verbs, .actions = actions, .find = find, .begin = begin, .end = end};

CASES_MAIN("s3io/s3/credentials")
