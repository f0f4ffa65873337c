/* SPDX-License-Identifier: Apache-2.0 */
/* Parses what credentials come in: AWS's shared profile files and the answers of services; decides which URLs may get a
 * token. */
#include "s3io/s3/credentials.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/http/http_head.h"
#include "s3io/s3/s3_reply.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE_BYTES = 1 << 20 };

static void wipe(char *text)
{
    if (text) {
        OPENSSL_cleanse(text, strlen(text));
        free(text);
    }
}

void pl_profile_done(struct pl_profile *profile)
{
    wipe(profile->access_key);
    wipe(profile->secret_key);
    wipe(profile->session_token);
    free(profile->region);
    free(profile->endpoint_url);
    free(profile->ca_bundle);
    *profile = (struct pl_profile){.access_key = NULL};
}

static void trim(const char **at, size_t *bytes)
{
    while (*bytes && strchr(" \t\r", **at) && **at) {
        (*at)++;
        (*bytes)--;
    }
    while (*bytes && (*at)[*bytes - 1] && strchr(" \t\r", (*at)[*bytes - 1])) {
        (*bytes)--;
    }
}

/* Whether the setting has this name. Case is ignored: people paste lines here that are meant for the environment. */
static bool is_setting(const char *at, size_t bytes, const char *name)
{
    return strlen(name) == bytes && strncasecmp(at, name, bytes) == 0;
}

static bool equals(const char *at, size_t bytes, const char *text)
{
    return strlen(text) == bytes && memcmp(at, text, bytes) == 0;
}

/* Whether "[...]" is the section of profile `name`. */
static bool is_section(const char *at, size_t bytes, const char *name, bool is_config)
{
    const char *close = memchr(at, ']', bytes);

    if (!close) {
        return false;
    }
    at++;
    bytes = (size_t)(close - at);
    trim(&at, &bytes);
    if (is_config && bytes > 8 && memcmp(at, "profile", 7) == 0 && (at[7] == ' ' || at[7] == '\t')) {
        at += 8;
        bytes -= 8;
        trim(&at, &bytes);
        return equals(at, bytes, name);
    }
    return equals(at, bytes, name) && (!is_config || strcmp(name, "default") == 0);
}

/* Takes a setting. `has_keys` means that another file has keys: then this file's keys are ignored. */
static enum pl_status take_setting(const char *line, size_t bytes, bool has_keys, struct pl_profile *profile,
                                   struct pl_error *reterr)
{
    const struct {
        const char *key;
        char **value;
        bool counts;
    } settings[] = {{"aws_access_key_id", &profile->access_key, !has_keys},
                    {"aws_secret_access_key", &profile->secret_key, !has_keys},
                    {"aws_session_token", &profile->session_token, !has_keys},
                    {"region", &profile->region, true},
                    {"endpoint_url", &profile->endpoint_url, true},
                    {"ca_bundle", &profile->ca_bundle, true}};
    static const char *const unsupported[] = {"sso_session", "sso_start_url", "role_arn"};
    const char *equal = memchr(line, '=', bytes);
    /* Python's readers accept ":" in place of "=" */
    const char *colon = memchr(line, ':', equal ? (size_t)(equal - line) : bytes);
    const char *value;
    size_t key_bytes, value_bytes;

    equal = colon ? colon : equal;
    if (!equal) {
        return PL_OK;
    }
    key_bytes = (size_t)(equal - line);
    value = equal + 1;
    value_bytes = bytes - key_bytes - 1;
    trim(&line, &key_bytes);
    trim(&value, &value_bytes);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(unsupported); i++) {
        if (is_setting(line, key_bytes, unsupported[i])) {
            profile->unsupported = unsupported[i];
            return PL_OK;
        }
    }
    profile->process = profile->process || is_setting(line, key_bytes, "credential_process");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        if (!is_setting(line, key_bytes, settings[i].key) || !settings[i].counts || *settings[i].value) {
            continue;
        }
        if (memchr(value, '\0', value_bytes)) {
            return pl_error_set(reterr, PL_INVALID, "the value of '%s' contains a zero byte", settings[i].key);
        }
        *settings[i].value = pl_memory_string_n(value, value_bytes, reterr);
        return *settings[i].value ? PL_OK : PL_MEMORY;
    }
    return PL_OK;
}

enum pl_status pl_profile_parse(const char *text, size_t bytes, const char *name, bool is_config,
                                struct pl_profile *profile, struct pl_error *reterr)
{
    const char *end = text + bytes;
    size_t setting_indent = SIZE_MAX; /* SIZE_MAX until this section has a setting */
    bool has_keys = profile->access_key, inside = false;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *start = text, *line = text;
        size_t length = (size_t)((newline ? newline : end) - text);
        size_t indent;

        text += length + (newline ? 1 : 0);
        trim(&line, &length);
        indent = (size_t)(line - start);
        if (length == 0 || *line == '#' || *line == ';' || indent > setting_indent) {
            continue;
        }
        if (*line == '[') {
            inside = is_section(line, length, name, is_config);
            profile->found = profile->found || inside;
            setting_indent = SIZE_MAX;
            continue;
        }
        setting_indent = indent;
        if (inside) {
            PL_TRY(take_setting(line, length, has_keys, profile, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status read_one(const struct pl_environment *environment, const char *variable, const char *file,
                               bool is_config, struct pl_profile *profile, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *data = NULL;
    const char *given = pl_environment_get_or(environment, variable, NULL);
    const char *home = pl_environment_get_or(environment, "HOME", NULL);
    size_t bytes = 0;
    enum pl_status status;

    if (given) {
        pl_text_append(&path, given);
    } else if (home) {
        pl_text_printf(&path, "%s/.aws/%s", home, file);
    } else {
        return PL_OK;
    }
    PL_TRY(pl_text_check(&path, reterr));
    status = pl_file_read(path.data, MAX_FILE_BYTES, &data, &bytes, reterr);
    if (status == PL_NOT_FOUND) {
        return PL_OK;
    }
    if (status == PL_OK) {
        status = pl_profile_parse(data, bytes, pl_environment_get_or(environment, "AWS_PROFILE", "default"), is_config,
                                  profile, reterr);
        explicit_bzero(data, bytes);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "profile file '%s'", path.data);
    }
    return status;
}

enum pl_status pl_profile_read(const struct pl_environment *environment, struct pl_profile *profile,
                               struct pl_error *reterr)
{
    PL_TRY(read_one(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials", false, profile, reterr));
    return read_one(environment, "AWS_CONFIG_FILE", "config", true, profile, reterr);
}

void pl_credentials_reply_done(struct pl_credentials_reply *reply)
{
    wipe(reply->access_key);
    wipe(reply->secret_key);
    wipe(reply->session_token);
    *reply = (struct pl_credentials_reply){.expires_s = 0};
}

/* Returns the text of an error response's member `name` or `other_name`, or `fallback`. */
static const char *quoted(struct pl_json_value root, const char *name, const char *other_name, const char *fallback)
{
    const char *text;

    if (pl_json_text(pl_json_member(root, name), &text, NULL) == PL_OK ||
        pl_json_text(pl_json_member(root, other_name), &text, NULL) == PL_OK) {
        return text;
    }
    return fallback;
}

/* Whether the text can be an access key or a token in a header: it must have no byte that could end a line. */
static bool is_key_text(const char *text)
{
    for (; *text; text++) {
        if (*text <= ' ' || *text > '~') {
            return false;
        }
    }
    return true;
}

enum pl_status pl_credentials_reply_make(const char *access_key, const char *secret_key, const char *token,
                                         struct pl_credentials_reply *ret_reply, struct pl_error *reterr)
{
    struct pl_credentials_reply reply = {.expires_s = INT64_MAX};

    if (!*access_key || !*secret_key || !is_key_text(access_key) || (token && !is_key_text(token))) {
        return pl_error_set(
            reterr, PL_INVALID,
            "unusable AWS keys: a key is empty, or the access key or the token has blanks or control characters");
    }
    reply.access_key = pl_memory_string(access_key, reterr);
    reply.secret_key = pl_memory_string(secret_key, reterr);
    reply.session_token = token && *token ? pl_memory_string(token, reterr) : NULL;
    if (!reply.access_key || !reply.secret_key || (token && *token && !reply.session_token)) {
        pl_credentials_reply_done(&reply);
        return PL_MEMORY;
    }
    *ret_reply = reply;
    return PL_OK;
}

/* Takes the credentials of a response. `token` and `expiration` may be NULL or "". */
static enum pl_status take_credentials(const char *access_key, const char *secret_key, const char *token,
                                       const char *expiration, struct pl_credentials_reply *ret_reply,
                                       struct pl_error *reterr)
{
    int64_t expires_s = INT64_MAX;

    if (expiration && *expiration && !pl_http_head_iso_time(expiration, &expires_s)) {
        return pl_error_set(reterr, PL_INVALID,
                            "the credentials service answered with an Expiration that is not a time: '%.40s'",
                            expiration);
    }
    PL_TRY(pl_credentials_reply_make(access_key, secret_key, token, ret_reply, reterr));
    ret_reply->expires_s = expires_s;
    return PL_OK;
}

enum pl_status pl_credentials_reply_parse(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                          struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    struct pl_json_value root;
    const char *access_key, *secret_key, *token, *expiration;

    PL_TRY(pl_json_parse(text, bytes, "credentials", &document, reterr));
    root = pl_json_root(document);
    PL_TRY(pl_json_expect(root, PL_JSON_OBJECT, reterr));
    PL_TRY(pl_json_text_or(pl_json_member(root, "AccessKeyId"), NULL, &access_key, reterr));
    PL_TRY(pl_json_text_or(pl_json_member(root, "SecretAccessKey"), NULL, &secret_key, reterr));
    PL_TRY(pl_json_text_or(pl_json_member(root, "Token"), NULL, &token, reterr));
    PL_TRY(pl_json_text_or(pl_json_member(root, "Expiration"), NULL, &expiration, reterr));
    if (!access_key || !secret_key) {
        return pl_error_set(reterr, PL_INVALID, "the credentials service answered without credentials: %s: %s",
                            quoted(root, "code", "Code", "no code"), quoted(root, "message", "Message", "no message"));
    }
    return take_credentials(access_key, secret_key, token, expiration, ret_reply, reterr);
}

struct sts_credentials {
    char *access_key, *secret_key, *token, *expiration;
};

static enum pl_status on_sts_element(void *context, const char *path, const char *text, size_t bytes,
                                     struct pl_error *reterr)
{
    static const char prefix[] = "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/";
    struct sts_credentials *keys = context;
    const struct {
        const char *name;
        char **value;
    } elements[] = {{"AccessKeyId", &keys->access_key},
                    {"SecretAccessKey", &keys->secret_key},
                    {"SessionToken", &keys->token},
                    {"Expiration", &keys->expiration}};

    if (strncmp(path, prefix, sizeof(prefix) - 1) != 0) {
        return PL_OK;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(elements); i++) {
        if (strcmp(path + sizeof(prefix) - 1, elements[i].name) == 0) {
            wipe(*elements[i].value);
            *elements[i].value = pl_memory_string_n(text, bytes, reterr);
            return *elements[i].value ? PL_OK : PL_MEMORY;
        }
    }
    return PL_OK;
}

enum pl_status pl_credentials_reply_parse_sts(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                              struct pl_error *reterr)
{
    struct sts_credentials keys = {.access_key = NULL};
    struct pl_s3_xml_visitor visitor = {&keys, on_sts_element};
    enum pl_status status = pl_s3_xml_walk(text, bytes, &visitor, reterr);

    if (status == PL_OK && (!keys.access_key || !keys.secret_key || !keys.token)) {
        status = pl_error_set(reterr, PL_INVALID, "STS answered without credentials");
    }
    if (status == PL_OK) {
        status = take_credentials(keys.access_key, keys.secret_key, keys.token, keys.expiration, ret_reply, reterr);
    }
    wipe(keys.access_key);
    wipe(keys.secret_key);
    wipe(keys.token);
    free(keys.expiration);
    return status;
}

static bool host_is(const char *host, size_t bytes, const char *text)
{
    return strlen(text) == bytes && strncasecmp(host, text, bytes) == 0;
}

/* Whether the host is "127.a.b.c" with numbers only: "127.0.0.1.example.com" is not a loopback address. */
static bool is_loopback4(const char *host, size_t bytes)
{
    unsigned a, b, c;
    char text[16], tail;

    if (bytes >= sizeof(text)) {
        return false;
    }
    memcpy(text, host, bytes);
    text[bytes] = '\0';
    return strspn(text, "0123456789.") == bytes && sscanf(text, "127.%3u.%3u.%3u%c", &a, &b, &c, &tail) == 3 &&
           a < 256 && b < 256 && c < 256;
}

bool pl_credentials_reply_url_allowed(const char *url)
{
    static const char *const services[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[::1]", "localhost"};
    const char *host;
    size_t bytes;

    if (strncmp(url, "https://", 8) == 0) {
        return url[8] != '\0';
    }
    if (strncmp(url, "http://", 7) != 0) {
        return false;
    }
    host = url + 7;
    bytes = strcspn(host, "/?#");
    if (memchr(host, '@', bytes) || memchr(host, '\\', bytes)) {
        return false; /* the real host would be a different one from the host that the URL shows */
    }
    if (*host == '[') {
        size_t length = strcspn(host, "]");

        if (length >= bytes || (length + 1 < bytes && host[length + 1] != ':')) {
            return false;
        }
        bytes = length + 1;
    } else {
        bytes = strcspn(host, ":/?#");
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(services); i++) {
        if (host_is(host, bytes, services[i])) {
            return true;
        }
    }
    return is_loopback4(host, bytes);
}
