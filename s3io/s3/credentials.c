/* SPDX-License-Identifier: Apache-2.0 */
/* Finds AWS credentials, and fetches new ones before they expire. */
#include "s3io/s3/credentials.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/address.h"
#include "s3io/s3/s3_reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    REFRESH_BEFORE_S = 300, /* seconds before the expiration at which the fetch of new credentials begins */
    /* seconds before the expiration from which on the old credentials are not used: a request takes some time */
    USABLE_BEFORE_S = 15,
    RETRY_LATER_S = 30,
    MAX_ATTEMPTS = 5,
    FETCH_S = 5,
    /* attempts of the metadata service's first request: outside AWS there is no response, so fail soon */
    MAX_FIRST_ATTEMPTS = 2,
    FIRST_S = 1, /* seconds until such an attempt times out, unless AWS_METADATA_SERVICE_TIMEOUT is set */
    MOST_FIRST_S = 3600,
    MAX_BODY_BYTES = 64 * 1024,
    MAX_TOKEN_BYTES = 20 * 1024, /* largest token that STS accepts */
    MAX_HEADERS = 2,
};

enum kind { ANONYMOUS, GIVEN, PROFILE, WEB_IDENTITY, CONTAINER, METADATA };
enum step { STEP_TOKEN, STEP_ROLE, STEP_CREDENTIALS };

struct pl_credentials {
    enum kind kind;
    struct pl_http *http;
    const struct pl_environment *environment;
    struct pl_credentials_reply current; /* its access_key is NULL until there are credentials */
    struct pl_sigv4_key key;
    uint64_t generation;
    int64_t refresh_s; /* when to fetch new credentials */
    unsigned first_s;  /* timeout of the metadata service's first response */
    char *url;         /* the container's endpoint, or STS, or the base of the metadata service */
    struct pl_credentials_waiter *waiters;

    /* The fetch that is in progress. */
    bool fetching;
    enum step step;
    unsigned attempt;
    struct pl_http_request request;
    struct pl_text request_url, form, body, metadata_token, role;
    struct pl_text header_text[MAX_HEADERS];
    const char *headers[MAX_HEADERS];
};

static int64_t now_s(void)
{
    return (int64_t)time(NULL);
}

static void use(struct pl_credentials *credentials, struct pl_credentials_reply *reply)
{
    int64_t now = now_s();
    int64_t left_s = reply->expires_s == INT64_MAX ? INT64_MAX : reply->expires_s - now;

    pl_credentials_reply_done(&credentials->current);
    credentials->current = *reply;
    credentials->key = (struct pl_sigv4_key){reply->access_key, reply->secret_key, reply->session_token};
    credentials->generation++;
    /* Credentials that are valid for less than the usual margin are fetched again after half of their time. */
    credentials->refresh_s = left_s == INT64_MAX
                                 ? INT64_MAX
                                 : now + (left_s > 2 * REFRESH_BEFORE_S ? left_s - REFRESH_BEFORE_S : left_s / 2);
}

static enum pl_status use_texts(struct pl_credentials *credentials, const char *access_key, const char *secret_key,
                                const char *token, struct pl_error *reterr)
{
    struct pl_credentials_reply reply;

    PL_TRY(pl_credentials_reply_make(access_key, secret_key, token, &reply, reterr));
    use(credentials, &reply);
    return PL_OK;
}

/* Uses the profile. If its credentials come from an unsupported source, that is an error: the next source belongs to
 * another identity. */
static enum pl_status use_profile(struct pl_credentials *credentials, bool *ret_found, struct pl_error *reterr)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    const char *name = pl_environment_get_or(credentials->environment, "AWS_PROFILE", "default");
    const char *unsupported;

    PL_TRY(pl_profile_read(credentials->environment, &profile, reterr));
    if (!profile.found && strcmp(name, "default") != 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "AWS_PROFILE is '%s', but no profile file of AWS has that profile",
                            name);
    }
    unsupported = profile.unsupported                      ? profile.unsupported
                  : profile.process && !profile.access_key ? "credential_process"
                                                           : NULL;
    if (unsupported) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "the AWS credentials of profile '%s' come from '%s', which is not supported: export keys "
                            "(aws configure export-credentials), or choose another profile",
                            name, unsupported);
    }
    if (profile.access_key && !profile.secret_key) {
        return pl_error_set(reterr, PL_INVALID,
                            "profile '%s' has an aws_access_key_id without its aws_secret_access_key", name);
    }
    *ret_found = profile.access_key;
    return *ret_found ? use_texts(credentials, profile.access_key, profile.secret_key, profile.session_token, reterr)
                      : PL_OK;
}

static enum pl_status set_container_url(struct pl_credentials *credentials, const char *relative, const char *full,
                                        struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text url = PL_TEXT_NONE;

    if (relative) {
        pl_text_printf(&url, "http://169.254.170.2%s%s", *relative == '/' ? "" : "/", relative);
    } else {
        pl_text_append(&url, full);
    }
    PL_TRY(pl_text_take(&url, &credentials->url, reterr));
    if (!pl_credentials_reply_url_allowed(credentials->url)) {
        return pl_error_set(reterr, PL_INVALID,
                            "AWS_CONTAINER_CREDENTIALS_FULL_URI '%s' is neither https nor a local address",
                            credentials->url);
    }
    return PL_OK;
}

static enum pl_status set_sts_url(struct pl_credentials *credentials, const char *region, struct pl_error *reterr)
{
    const struct pl_environment *environment = credentials->environment;
    const char *everywhere = pl_environment_get_or(environment, "AWS_ENDPOINT_URL", NULL);
    PL_AUTO_ADDRESS struct pl_s3_address address = {.url = NULL};
    struct pl_s3_endpoint_config endpoint_config = {
        .endpoint_url = pl_environment_get_or(environment, "AWS_ENDPOINT_URL_STS", everywhere),
        .region = region,
        .fips = strcasecmp(pl_environment_get_or(environment, "AWS_USE_FIPS_ENDPOINT", ""), "true") == 0};

    if (!pl_environment_get_or(environment, "AWS_ROLE_ARN", NULL)) {
        return pl_error_set(reterr, PL_INVALID,
                            "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN, its role, is not");
    }
    PL_TRY(pl_s3_address_service(&endpoint_config, "sts", "/", &address, reterr));
    credentials->url = PL_TAKE(address.url);
    return PL_OK;
}

/* Chooses the first source that is configured. */
static enum pl_status choose(struct pl_credentials *credentials, const struct pl_credentials_options *options,
                             struct pl_error *reterr)
{
    const struct pl_environment *environment = credentials->environment;
    const char *access_key = pl_environment_get_or(environment, "AWS_ACCESS_KEY_ID", NULL);
    const char *secret_key = pl_environment_get_or(environment, "AWS_SECRET_ACCESS_KEY", NULL);
    const char *relative = pl_environment_get_or(environment, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL);
    const char *full = pl_environment_get_or(environment, "AWS_CONTAINER_CREDENTIALS_FULL_URI", NULL);
    bool found = false;

    credentials->kind = GIVEN;
    if (options->anonymous) {
        credentials->kind = ANONYMOUS;
        return PL_OK;
    }
    if (options->access_key && options->secret_key) {
        return use_texts(credentials, options->access_key, options->secret_key, options->session_token, reterr);
    }
    if (access_key && !secret_key) {
        return pl_error_set(reterr, PL_INVALID, "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    }
    if (access_key) {
        return use_texts(credentials, access_key, secret_key, pl_environment_get(environment, "AWS_SESSION_TOKEN"),
                         reterr);
    }
    if (pl_environment_get_or(environment, "AWS_WEB_IDENTITY_TOKEN_FILE", NULL)) {
        credentials->kind = WEB_IDENTITY;
        return set_sts_url(credentials, options->region, reterr);
    }
    credentials->kind = PROFILE;
    PL_TRY(use_profile(credentials, &found, reterr));
    if (found) {
        return PL_OK;
    }
    if (relative || full) {
        credentials->kind = CONTAINER;
        return set_container_url(credentials, relative, full, reterr);
    }
    if (options->allow_metadata &&
        strcasecmp(pl_environment_get_or(environment, "AWS_EC2_METADATA_DISABLED", "false"), "true") != 0) {
        const char *base =
            pl_environment_get_or(environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254");
        size_t length = strlen(base);

        PL_TRY(pl_environment_get_number_or(environment, "AWS_METADATA_SERVICE_TIMEOUT", FIRST_S, MOST_FIRST_S,
                                            &credentials->first_s, reterr));
        credentials->kind = METADATA;
        credentials->url = pl_memory_string_n(base, base[length - 1] == '/' ? length - 1 : length, reterr);
        return credentials->url ? PL_OK : PL_MEMORY;
    }
    return pl_error_set(
        reterr, PL_NOT_FOUND,
        "found no AWS credentials. On SageMaker the job's role provides them by the variable "
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, which is not set: look in the image's ENTRYPOINT for what unsets it, "
        "such as `env -i`. Elsewhere, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE%s",
        options->allow_metadata ? "; AWS_EC2_METADATA_DISABLED is set" : "");
}

enum pl_status pl_credentials_new(const struct pl_environment *environment,
                                  const struct pl_credentials_options *options, struct pl_http *http,
                                  struct pl_credentials **ret_credentials, struct pl_error *reterr)
{
    struct pl_credentials *credentials;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&credentials, 1, sizeof(*credentials), reterr));
    credentials->http = http;
    credentials->environment = environment;
    status = choose(credentials, options, reterr);
    if (status != PL_OK) {
        pl_credentials_free(credentials);
        return status;
    }
    *ret_credentials = credentials;
    return PL_OK;
}

void pl_credentials_free(struct pl_credentials *credentials)
{
    if (!credentials) {
        return;
    }
    PL_BUG_IF(credentials->fetching);
    pl_credentials_reply_done(&credentials->current);
    free(credentials->url);
    pl_text_done(&credentials->request_url);
    pl_text_done(&credentials->form);
    pl_text_done(&credentials->body);
    pl_text_done(&credentials->metadata_token);
    pl_text_done(&credentials->role);
    for (size_t i = 0; i < MAX_HEADERS; i++) {
        pl_text_done(&credentials->header_text[i]);
    }
    free(credentials);
}

static bool usable(const struct pl_credentials *credentials)
{
    return credentials->kind == ANONYMOUS ||
           (credentials->current.access_key && (credentials->current.expires_s == INT64_MAX ||
                                                now_s() < credentials->current.expires_s - USABLE_BEFORE_S));
}

static void wake_waiters(struct pl_credentials *credentials, enum pl_status status, const struct pl_error *error)
{
    struct pl_credentials_waiter *waiter = credentials->waiters;

    credentials->waiters = NULL;
    while (waiter) {
        struct pl_credentials_waiter *next = waiter->next;

        waiter->ready(waiter, status, error);
        waiter = next;
    }
}

static void end_fetch(struct pl_credentials *credentials, enum pl_status status, struct pl_error *error)
{
    credentials->fetching = false;
    if (status != PL_OK) {
        pl_error_context(error, "fetching AWS credentials from '%s'", credentials->url);
        credentials->refresh_s = now_s() + RETRY_LATER_S;
        pl_log(PL_LOG_DEBUG, "s3: no new credentials from '%s': %s", credentials->url, error->cause);
    }
    wake_waiters(credentials, usable(credentials) ? PL_OK : status, error);
}

/* Adds the token, which is read again for every fetch: the platform replaces the file while a job runs. */
static enum pl_status add_container_token(struct pl_credentials *credentials, struct pl_text *header,
                                          struct pl_error *reterr)
{
    const char *file = pl_environment_get_or(credentials->environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", NULL);
    const char *given = pl_environment_get_or(credentials->environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN", NULL);
    PL_AUTO_FREE char *data = NULL;

    if (file) {
        PL_TRY(pl_file_read(file, MAX_TOKEN_BYTES, &data, NULL, reterr));
        data[strcspn(data, "\r\n")] = '\0';
        given = data;
    }
    if (given) {
        if (strpbrk(given, "\r\n")) {
            return pl_error_set(reterr, PL_INVALID, "AWS_CONTAINER_AUTHORIZATION_TOKEN contains a line end");
        }
        pl_text_printf(header, "Authorization: %s", given);
    }
    return PL_OK;
}

static void append_field(struct pl_text *form, const char *name, const char *value)
{
    pl_text_printf(form, "&%s=", name);
    pl_sigv4_encode(value, strlen(value), false, form);
}

/* Builds the form of AssumeRoleWithWebIdentity. It needs no signature: the token proves the identity. */
static enum pl_status build_form(struct pl_credentials *credentials, struct pl_error *reterr)
{
    const struct pl_environment *environment = credentials->environment;
    struct pl_text *form = &credentials->form;
    PL_AUTO_FREE char *token = NULL;

    PL_TRY(pl_file_read(pl_environment_get(environment, "AWS_WEB_IDENTITY_TOKEN_FILE"), MAX_TOKEN_BYTES, &token, NULL,
                        reterr));
    token[strcspn(token, "\r\n")] = '\0';
    pl_text_clear(form);
    pl_text_append(form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    append_field(form, "RoleArn", pl_environment_get(environment, "AWS_ROLE_ARN"));
    append_field(form, "RoleSessionName", pl_environment_get_or(environment, "AWS_ROLE_SESSION_NAME", "paceline"));
    append_field(form, "WebIdentityToken", token);
    return pl_text_check(form, reterr);
}

static enum pl_status build_request(struct pl_credentials *credentials, struct pl_error *reterr)
{
    static const char role_path[] = "/latest/meta-data/iam/security-credentials/";
    struct pl_http_request *request = &credentials->request;
    struct pl_text *url = &credentials->request_url, *headers = credentials->header_text;

    pl_text_clear(url);
    pl_text_clear(&credentials->body);
    for (size_t i = 0; i < MAX_HEADERS; i++) {
        pl_text_clear(&headers[i]);
    }
    pl_text_append(url, credentials->url);
    request->method = "GET";
    request->direct = credentials->kind != WEB_IDENTITY; /* the other services are on this machine or local to it */
    if (credentials->kind == WEB_IDENTITY) {
        PL_TRY(build_form(credentials, reterr));
        request->method = "POST";
        request->body = credentials->form.data;
        request->body_bytes = credentials->form.length;
        pl_text_append(&headers[0], "Content-Type: application/x-www-form-urlencoded");
    } else if (credentials->kind == CONTAINER) {
        PL_TRY(add_container_token(credentials, &headers[0], reterr));
    } else if (credentials->step == STEP_TOKEN) {
        request->method = "PUT";
        pl_text_append(url, "/latest/api/token");
        pl_text_append(&headers[0], "X-aws-ec2-metadata-token-ttl-seconds: 21600");
    } else {
        pl_text_append(url, role_path);
        pl_text_append(url, credentials->step == STEP_CREDENTIALS ? pl_text_string(&credentials->role) : "");
        pl_text_printf(&headers[0], "X-aws-ec2-metadata-token: %s", pl_text_string(&credentials->metadata_token));
    }
    request->header_count = 0;
    for (size_t i = 0; i < MAX_HEADERS; i++) {
        PL_TRY(pl_text_check(&headers[i], reterr));
        if (headers[i].length) {
            credentials->headers[request->header_count++] = headers[i].data;
        }
    }
    PL_TRY(pl_text_check(url, reterr));
    request->url = url->data;
    request->headers = credentials->headers;
    request->plain_allowed = true;
    return PL_OK;
}

/* Whether this is the metadata service's first request. After a response the service is known to exist. */
static bool may_be_unanswered(const struct pl_credentials *credentials)
{
    return credentials->kind == METADATA && credentials->step == STEP_TOKEN;
}

/* Returns how long one request may take. */
static int64_t limit_ns(const struct pl_credentials *credentials)
{
    return (may_be_unanswered(credentials) ? credentials->first_s : FETCH_S) * PL_NS_PER_S;
}

static void send_fetch(struct pl_credentials *credentials, int64_t delay_ns)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = build_request(credentials, &error);

    if (status != PL_OK) {
        end_fetch(credentials, status, &error);
        return;
    }
    credentials->request.start_ns = delay_ns ? pl_deadline_after_ns(delay_ns) : 0;
    credentials->request.deadline_ns = pl_deadline_after_ns(delay_ns + limit_ns(credentials));
    pl_http_send(credentials->http, &credentials->request);
}

/* Handles a complete response: continues with the next step, or takes the credentials. */
static enum pl_status take_answer(struct pl_credentials *credentials, bool *ret_more, struct pl_error *reterr)
{
    struct pl_text *body = &credentials->body;
    int64_t date_s = credentials->request.head.date_s;
    struct pl_credentials_reply reply;

    PL_TRY(pl_text_check(body, reterr));
    *ret_more = false;
    if (credentials->kind == METADATA && credentials->step != STEP_CREDENTIALS) {
        struct pl_text *target = credentials->step == STEP_TOKEN ? &credentials->metadata_token : &credentials->role;

        pl_text_clear(target);
        pl_text_append_n(target, pl_text_string(body), strcspn(pl_text_string(body), "\r\n"));
        credentials->step = credentials->step == STEP_TOKEN ? STEP_ROLE : STEP_CREDENTIALS;
        *ret_more = true;
        return pl_text_check(target, reterr);
    }
    if (credentials->kind == WEB_IDENTITY) {
        PL_TRY(pl_credentials_reply_parse_sts(pl_text_string(body), body->length, &reply, reterr));
    } else {
        PL_TRY(pl_credentials_reply_parse(pl_text_string(body), body->length, &reply, reterr));
    }
    /* Measure their lifetime by the server's clock, which has set the expiration: our clock may be wrong by hours. */
    if (reply.expires_s != INT64_MAX && date_s >= 0) {
        reply.expires_s += now_s() - date_s;
    }
    use(credentials, &reply);
    return PL_OK;
}

static enum pl_status fetch_body(struct pl_http_request *request, const void *data, size_t bytes,
                                 struct pl_error *reterr)
{
    struct pl_credentials *credentials = PL_CONTAINER_OF(request, struct pl_credentials, request);

    if (credentials->body.length + bytes > MAX_BODY_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "the answer has more than %d bytes", MAX_BODY_BYTES);
    }
    pl_text_append_n(&credentials->body, data, bytes);
    return pl_text_check(&credentials->body, reterr);
}

/* Sets the error of a response whose status is not 200. */
static enum pl_status error_answer(const struct pl_credentials *credentials, int http_status, struct pl_error *reterr)
{
    struct pl_s3_error_document document;
    enum pl_s3_retry_action action;
    enum pl_status status;

    pl_s3_error_parse(pl_text_string(&credentials->body), credentials->body.length, &document);
    if (document.code[0]) {
        status = pl_error_raise(reterr, PL_FAILED, PL_DOMAIN_HTTP, http_status, "HTTP %d %s: %s", http_status,
                                document.code, document.message);
    } else {
        status = pl_error_raise(reterr, PL_FAILED, PL_DOMAIN_HTTP, http_status, "HTTP %d: %.200s", http_status,
                                pl_text_string(&credentials->body));
    }
    action = pl_s3_retry_classify(http_status, document.code);
    reterr->retryable = http_status >= 500 || action == PL_S3_RETRY || action == PL_S3_SLOWER;
    return status;
}

static void fetch_done(struct pl_http_request *request, enum pl_status status)
{
    struct pl_credentials *credentials = PL_CONTAINER_OF(request, struct pl_credentials, request);
    unsigned attempts = may_be_unanswered(credentials) ? MAX_FIRST_ATTEMPTS : MAX_ATTEMPTS;
    struct pl_error error = request->error;
    bool more = false;

    if (status == PL_OK && request->head.status != 200) {
        status = error_answer(credentials, request->head.status, &error);
    } else if (status == PL_OK) {
        status = take_answer(credentials, &more, &error);
    } else {
        error.retryable = status == PL_TIMEOUT || error.retryable;
    }
    if (more && status == PL_OK) {
        send_fetch(credentials, 0);
    } else if (status != PL_OK && status != PL_CANCELLED && error.retryable && ++credentials->attempt < attempts) {
        send_fetch(credentials, (INT64_C(100) << credentials->attempt) * PL_NS_PER_MS);
    } else {
        end_fetch(credentials, status, &error);
    }
}

static void start_fetch(struct pl_credentials *credentials)
{
    static const struct pl_http_handler handler = {.body = fetch_body, .done = fetch_done};

    credentials->fetching = true;
    credentials->attempt = 0;
    credentials->step = credentials->kind == METADATA ? STEP_TOKEN : STEP_CREDENTIALS;
    credentials->request = (struct pl_http_request){.handler = &handler};
    send_fetch(credentials, 0);
}

bool pl_credentials_ask(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter)
{
    bool ready = usable(credentials);
    bool due = !ready || (credentials->kind != ANONYMOUS && now_s() >= credentials->refresh_s);

    if (!ready) {
        waiter->next = credentials->waiters;
        credentials->waiters = waiter;
    }
    if (due && !credentials->fetching && credentials->url) {
        start_fetch(credentials);
    }
    return ready;
}

void pl_credentials_forget(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter)
{
    for (struct pl_credentials_waiter **at = &credentials->waiters; *at; at = &(*at)->next) {
        if (*at == waiter) {
            *at = waiter->next;
            return;
        }
    }
}

const struct pl_sigv4_key *pl_credentials_key(const struct pl_credentials *credentials)
{
    return credentials->kind == ANONYMOUS ? NULL : &credentials->key;
}

uint64_t pl_credentials_generation(const struct pl_credentials *credentials)
{
    return credentials->generation;
}

bool pl_credentials_expired(struct pl_credentials *credentials, uint64_t generation)
{
    struct pl_error error = PL_ERROR_NONE;
    bool found = false;

    if (generation != credentials->generation) {
        return true; /* another request has noticed it before, and there are new credentials already */
    }
    switch (credentials->kind) {
    case ANONYMOUS:
    case GIVEN:
        return false;
    case PROFILE:
        /* Another program may have written new credentials to the file. The old ones would not help. */
        {
            PL_AUTO_FREE char *old = pl_memory_string(credentials->current.access_key, NULL);

            return use_profile(credentials, &found, &error) == PL_OK && found && old &&
                   strcmp(old, credentials->current.access_key) != 0;
        }
    case WEB_IDENTITY:
    case CONTAINER:
    case METADATA:
        credentials->current.expires_s = 0;
        credentials->refresh_s = 0;
        return true;
    }
    return false;
}
