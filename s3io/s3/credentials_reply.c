/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the responses of credential services, and decides which URLs may get a token. */
#include "s3io/s3/credentials.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "s3io/http/http_head.h"
#include "s3io/s3/s3_reply.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void wipe(char *text)
{
    if (text) {
        OPENSSL_cleanse(text, strlen(text));
        free(text);
    }
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
