/* SPDX-License-Identifier: Apache-2.0 */
/* Parses AWS's shared profile files. */
#include "s3io/s3/credentials.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE_BYTES = 1 << 20 };

static void wipe(char **text)
{
    if (*text) {
        explicit_bzero(*text, strlen(*text));
        free(*text);
        *text = NULL;
    }
}

void pl_profile_done(struct pl_profile *profile)
{
    wipe(&profile->access_key);
    wipe(&profile->secret_key);
    wipe(&profile->session_token);
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
    /* Python's readers accept ":" instead of "=" */
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
