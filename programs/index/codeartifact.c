/* SPDX-License-Identifier: Apache-2.0 */
/* Asks AWS CodeArtifact for a token and for a repository's address, and makes the URL of pip's index from both. */
#include "programs/index/codeartifact.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "s3io/http/http.h"
#include "s3io/s3/address.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/s3_reply.h"
#include "s3io/s3/sigv4.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BODY_BYTES = 64 << 10, MAX_ATTEMPTS = 4, MAX_LINES = 4, SHOWN_BYTES = 300 };

#define CALL_NS (60 * PL_NS_PER_S)

/* The parts of an ARN, in a copy that it owns. */
struct repository {
    char *text;
    const char *region, *owner, *domain, *name;
};

struct service {
    const struct pl_environment *environment;
    struct repository repository;
    struct pl_profile profile;
    struct pl_s3_endpoint_config endpoint_config;
    struct pl_http *http;
    struct pl_credentials *credentials;
};

/* One request. After its start it belongs to the engine until its end. */
struct call {
    struct pl_http_call head;
    struct pl_credentials_waiter waiter;
    struct pl_http_request request;
    const struct service *service;
    const char *name, *method, *query;
    struct pl_s3_address address;
    struct pl_text url, lines[MAX_LINES], body;
    const char *headers[MAX_LINES];
    unsigned attempt;
    enum pl_status status; /* result, once it has ended */
    struct pl_error error;
};

/* Cuts off and returns the text before the next `end` at `*at_at`; NULL if there is no `end` or the text is empty. */
static const char *take_part(char **at_at, char end)
{
    char *begin = *at_at, *stop = begin ? strchr(begin, end) : NULL;

    if (!stop || stop == begin) {
        *at_at = NULL;
        return NULL;
    }
    *stop = '\0';
    *at_at = stop + 1;
    return begin;
}

static enum pl_status split_arn(const char *arn, struct repository *repository, struct pl_error *reterr)
{
    const char *word, *partition, *service, *kind;
    char *at;

    repository->text = at = pl_memory_string(arn, reterr);
    if (!at) {
        return PL_MEMORY;
    }
    word = take_part(&at, ':');
    partition = take_part(&at, ':');
    service = take_part(&at, ':');
    repository->region = take_part(&at, ':');
    repository->owner = take_part(&at, ':');
    kind = take_part(&at, '/');
    repository->domain = take_part(&at, '/');
    repository->name = at;
    if (!at || *at == '\0' || strcmp(word, "arn") != 0 || !partition || strcmp(service, "codeartifact") != 0 ||
        strcmp(kind, "repository") != 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "CA_REPOSITORY_ARN is '%.200s': expected "
                            "arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY",
                            arn);
    }
    return PL_OK;
}

static void end_call(struct call *call, enum pl_status status)
{
    call->status = status;
    pl_http_end(&call->head);
}

/* Makes the headers of the request, with a signature of this moment. */
static enum pl_status sign(struct call *call, struct pl_error *reterr)
{
    const struct pl_sigv4_key *key = pl_credentials_key(call->service->credentials);
    struct pl_sigv4_scope scope = {call->service->repository.region, "codeartifact", (int64_t)time(NULL)};
    char date[PL_SIGV4_DATE_BYTES], hash[PL_SIGV4_HEX_BYTES];
    struct pl_sigv4_header headers[] = {
        {"host", call->address.host}, {"x-amz-date", date}, {"x-amz-security-token", key->session_token}};
    struct pl_sigv4_request request = {.method = call->method,
                                       .path = call->address.path,
                                       .query = call->query,
                                       .headers = headers,
                                       .header_count = key->session_token ? 3 : 2,
                                       .payload_hash = hash};

    for (size_t i = 0; i < MAX_LINES; i++) {
        pl_text_clear(&call->lines[i]);
    }
    PL_TRY(pl_sigv4_hash("", 0, hash, reterr));
    pl_sigv4_date(scope.time_s, date);
    pl_text_append(&call->lines[0], "Authorization: ");
    PL_TRY(pl_sigv4_authorize(key, &scope, &request, &call->lines[0], reterr));
    pl_text_append(&call->lines[1], "Content-Type:");   /* without this libcurl would add a Content-Type to a POST */
    for (size_t i = 1; i < request.header_count; i++) { /* libcurl writes the Host header itself, from the same URL */
        pl_text_printf(&call->lines[i + 1], "%s: %s", headers[i].name, headers[i].value);
    }
    call->request.header_count = request.header_count + 1;
    for (size_t i = 0; i < call->request.header_count; i++) {
        PL_TRY(pl_text_check(&call->lines[i], reterr));
        call->headers[i] = call->lines[i].data;
    }
    return PL_OK;
}

static void send_call(struct call *call)
{
    enum pl_status status = sign(call, &call->error);

    if (status != PL_OK) {
        end_call(call, status);
        return;
    }
    pl_text_clear(&call->body);
    pl_http_send(call->service->http, &call->request);
}

static void credentials_ready(struct pl_credentials_waiter *waiter, enum pl_status status, const struct pl_error *error)
{
    struct call *call = PL_CONTAINER_OF(waiter, struct call, waiter);

    if (status == PL_OK) {
        send_call(call);
    } else {
        call->error = *error;
        end_call(call, status);
    }
}

static void start_call(struct pl_http_task *task)
{
    struct call *call = PL_CONTAINER_OF(task, struct call, head.task);

    if (pl_credentials_ask(call->service->credentials, &call->waiter)) {
        send_call(call);
    }
}

static enum pl_status take_body(struct pl_http_request *request, const void *data, size_t bytes,
                                struct pl_error *reterr)
{
    struct call *call = PL_CONTAINER_OF(request, struct call, request);

    if (call->body.length + bytes > MAX_BODY_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "an answer of more than %d bytes", MAX_BODY_BYTES);
    }
    pl_text_append_n(&call->body, data, bytes);
    return pl_text_check(&call->body, reterr);
}

/* Reports a refused request with the service's message, {"message": ...}, or else with its text. */
static enum pl_status refused(const struct call *call, int http_status, struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    const char *words = pl_text_string(&call->body), *message = NULL;

    if (pl_json_parse(words, call->body.length, "an answer", &document, NULL) == PL_OK &&
        pl_json_kind(pl_json_root(document)) == PL_JSON_OBJECT &&
        pl_json_text_or(pl_json_member(pl_json_root(document), "message"), words, &message, NULL) == PL_OK) {
        words = message;
    }
    return pl_error_raise(reterr, PL_FAILED, PL_DOMAIN_HTTP, http_status, "HTTP %d: %.*s", http_status, SHOWN_BYTES,
                          *words != '\0' ? words : "without a word");
}

static void call_done(struct pl_http_request *request, enum pl_status status)
{
    struct call *call = PL_CONTAINER_OF(request, struct call, request);
    const int http_status = request->head.status;
    bool again = status == PL_TIMEOUT || request->error.retryable;

    call->error = request->error;
    if (status == PL_OK && http_status != 200) {
        status = refused(call, http_status, &call->error);
        again = http_status == 429 || http_status >= 500;
    }
    if (status == PL_OK || status == PL_CANCELLED || !again || ++call->attempt == MAX_ATTEMPTS ||
        pl_deadline_passed(request->deadline_ns)) {
        end_call(call, status);
        return;
    }
    request->start_ns = pl_deadline_after_ns(pl_s3_retry_delay_ns(call->attempt, -1, (uint64_t)pl_clock_now_ns()));
    send_call(call);
}

static void free_call(struct call *call)
{
    pl_s3_address_done(&call->address);
    pl_text_done(&call->url);
    pl_text_done(&call->body);
    for (size_t i = 0; i < MAX_LINES; i++) {
        pl_text_done(&call->lines[i]);
    }
}

static enum pl_status run_call(struct call *call, struct pl_error *reterr)
{
    static const struct pl_http_handler handler = {.body = take_body, .done = call_done};

    PL_TRY(pl_text_check(&call->url, reterr));
    call->request = (struct pl_http_request){.handler = &handler,
                                             .method = call->method,
                                             .url = call->url.data,
                                             .headers = call->headers,
                                             .plain_allowed = call->address.plain,
                                             .deadline_ns = pl_deadline_after_ns(CALL_NS)};
    call->waiter.ready = credentials_ready;
    call->head.task.run = start_call;
    pl_http_call(call->service->http, &call->head, NULL); /* credentials and requests have deadlines of their own */
    if (call->status != PL_OK && reterr) {
        *reterr = call->error;
    }
    return call->status;
}

/* Sets *ret_value to the text `member` in the answer to `method` PATH?QUERY. */
static enum pl_status ask(const struct service *service, const char *name, const char *method, const char *path,
                          const char *query, const char *member, char **ret_value, struct pl_error *reterr)
{
    struct call call = {.service = service, .name = name, .method = method, .query = query};
    PL_AUTO_JSON struct pl_json *document = NULL;
    const char *value;
    enum pl_status status =
        pl_s3_address_service(&service->endpoint_config, "codeartifact", path, &call.address, reterr);

    if (status == PL_OK) {
        pl_text_printf(&call.url, "%s?%s", call.address.url, query);
        status = run_call(&call, reterr);
    }
    if (status == PL_OK) {
        status = pl_json_parse(pl_text_string(&call.body), call.body.length, "the answer", &document, reterr);
    }
    if (status == PL_OK) {
        status = pl_json_text(pl_json_member(pl_json_root(document), member), &value, reterr);
    }
    if (status == PL_OK) {
        *ret_value = pl_memory_string(value, reterr);
        status = *ret_value ? PL_OK : PL_MEMORY;
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "CodeArtifact's %s for the repository '%.100s' in the domain '%.100s'", name,
                         service->repository.name, service->repository.domain);
    }
    free_call(&call);
    return status;
}

static void append_field(struct pl_text *query, const char *name, const char *value)
{
    pl_text_printf(query, "%s%s=", query->length > 0 ? "&" : "", name);
    pl_sigv4_encode(value, strlen(value), false, query);
}

static enum pl_status open_service(struct service *service, const char *arn, struct pl_error *reterr)
{
    const struct pl_environment *environment = service->environment;
    struct pl_credentials_options credentials = {.region = NULL};
    struct pl_http_options http = {.idle_connections = 1};

    PL_TRY(split_arn(arn, &service->repository, reterr));
    PL_TRY(pl_profile_read(environment, &service->profile, reterr));
    http.ca_bundle = pl_environment_get_or(environment, "AWS_CA_BUNDLE", service->profile.ca_bundle);
    service->endpoint_config.region = credentials.region = service->repository.region;
    service->endpoint_config.endpoint_url =
        pl_environment_get_or(environment, "AWS_ENDPOINT_URL_CODEARTIFACT",
                              pl_environment_get_or(environment, "AWS_ENDPOINT_URL", service->profile.endpoint_url));
    PL_TRY(pl_http_new(&http, &service->http, reterr));
    return pl_credentials_new(environment, &credentials, service->http, &service->credentials, reterr);
}

static void close_service(struct service *service)
{
    pl_http_free(service->http);
    pl_credentials_free(service->credentials);
    pl_profile_done(&service->profile);
    free(service->repository.text);
}

/* Makes https://aws:TOKEN@HOST/.../simple/ */
static enum pl_status join_index(const char *endpoint, const char *token, bool plain, char **ret_url,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text url = PL_TEXT_NONE;
    const char *host = strstr(endpoint, "://");
    size_t length;

    if (!host || strpbrk(endpoint, "@?# \t\r\n") ||
        (strncmp(endpoint, "https://", 8) != 0 && !(plain && strncmp(endpoint, "http://", 7) == 0))) {
        return pl_error_set(reterr, PL_CORRUPT,
                            "CodeArtifact's GetRepositoryEndpoint: expected an https:// address, found '%.200s'",
                            endpoint);
    }
    host += strlen("://");
    length = strlen(host);
    while (length > 0 && host[length - 1] == '/') {
        length--;
    }
    pl_text_append_n(&url, endpoint, (size_t)(host - endpoint));
    pl_text_append(&url, "aws:");
    pl_sigv4_encode(token, strlen(token), false, &url);
    pl_text_append(&url, "@");
    pl_text_append_n(&url, host, length);
    pl_text_append(&url, "/simple/");
    return pl_text_take(&url, ret_url, reterr);
}

static enum pl_status ask_both(const struct service *service, char **ret_url, struct pl_error *reterr)
{
    const char *const endpoint_url = service->endpoint_config.endpoint_url;
    PL_AUTO_TEXT struct pl_text query = PL_TEXT_NONE;
    PL_AUTO_FREE char *token = NULL, *endpoint = NULL;

    append_field(&query, "domain", service->repository.domain);
    append_field(&query, "domain-owner", service->repository.owner);
    PL_TRY(pl_text_check(&query, reterr));
    PL_TRY(ask(service, "GetAuthorizationToken", "POST", "/v1/authorization-token", pl_text_string(&query),
               "authorizationToken", &token, reterr));
    append_field(&query, "repository", service->repository.name);
    append_field(&query, "format", "pypi");
    PL_TRY(pl_text_check(&query, reterr));
    PL_TRY(ask(service, "GetRepositoryEndpoint", "GET", "/v1/repository/endpoint", pl_text_string(&query),
               "repositoryEndpoint", &endpoint, reterr));
    return join_index(endpoint, token, endpoint_url && strncmp(endpoint_url, "http://", 7) == 0, ret_url, reterr);
}

enum pl_status pl_codeartifact_index(const struct pl_environment *environment, const char *arn, char **ret_url,
                                     struct pl_error *reterr)
{
    struct service service = {.environment = environment};
    enum pl_status status = open_service(&service, arn, reterr);

    if (status == PL_OK) {
        status = ask_both(&service, ret_url, reterr);
    }
    close_service(&service);
    return status;
}
