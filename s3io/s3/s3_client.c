/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 client: its settings, HEAD, and calls that wait for an operation on the engine's thread. */
#include "s3io/s3/s3_client.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/s3_operation.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEFAULT_CONNECTIONS = 16, MAX_CONNECTIONS = 1024, DEFAULT_ATTEMPTS = 8, MAX_ATTEMPTS = 100 };

void pl_s3_info_done(struct pl_s3_info *info)
{
    free(info->etag);
    free(info->head);
    *info = (struct pl_s3_info){.etag = NULL};
}

static const char *first_set(const struct pl_environment *environment, const char *given, const char *const *names,
                             size_t count, const char *fallback)
{
    const char *value = given;

    for (size_t i = 0; i < count && !value; i++) {
        value = pl_environment_get_or(environment, names[i], NULL);
    }
    return value ? value : fallback;
}

static bool is_true(const struct pl_environment *environment, const char *name)
{
    return strcasecmp(pl_environment_get_or(environment, name, ""), "true") == 0;
}

/* Chooses endpoint, region and certificates, from the most to the least specific source. */
static enum pl_status choose_endpoint(struct pl_s3_client *client, const struct pl_s3_options *options,
                                      struct pl_http_options *http, struct pl_profile *profile, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text own_endpoint = PL_TEXT_NONE;
    static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION"};
    static const char *const bundles[] = {"AWS_CA_BUNDLE"};
    const struct pl_environment *environment = client->environment;
    PL_AUTO_ADDRESS struct pl_s3_address probe = {.url = NULL};
    const char *endpoint, *region;

    PL_TRY(pl_profile_read(environment, profile, reterr));
    pl_text_append(&own_endpoint, "AWS_ENDPOINT_URL_");
    for (const char *at = client->service ? client->service : "S3"; *at; at++) {
        pl_text_append_char(&own_endpoint, (char)toupper((unsigned char)*at));
    }
    PL_TRY(pl_text_check(&own_endpoint, reterr));
    endpoint = first_set(environment, options->endpoint_url,
                         (const char *const[]){own_endpoint.data, "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"},
                         client->service ? 2 : 3, profile->endpoint_url);
    region = first_set(environment, options->region, regions, PL_ARRAY_ITEMS(regions),
                       profile->region ? profile->region : "us-east-1");
    http->ca_bundle = first_set(environment, options->ca_bundle, bundles, PL_ARRAY_ITEMS(bundles), profile->ca_bundle);
    if (endpoint && !(client->endpoint_url = pl_memory_string(endpoint, reterr))) {
        return PL_MEMORY;
    }
    if (!(client->region = pl_memory_string(region, reterr))) {
        return PL_MEMORY;
    }
    client->endpoint_config = (struct pl_s3_endpoint_config){
        .endpoint_url = client->endpoint_url,
        .region = client->region,
        .style = options->style,
        .dual_stack = !client->service && is_true(environment, "AWS_USE_DUALSTACK_ENDPOINT"),
        .fips = !client->service && is_true(environment, "AWS_USE_FIPS_ENDPOINT")};
    /* Invalid settings must fail here, not in the first request. */
    PL_TRY(pl_s3_address_build(&client->endpoint_config, "bucket", NULL, &probe, reterr));
    client->plain = probe.plain;
    return PL_OK;
}

static unsigned choose_number(unsigned given, unsigned fallback, unsigned most)
{
    return given == 0 ? fallback : given < most ? given : most;
}

static enum pl_status open_parts(struct pl_s3_client *client, const struct pl_s3_options *options,
                                 struct pl_error *reterr)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    struct pl_credentials_options credentials = options->credentials;
    struct pl_http_options http = {.idle_connections = client->connections, .stall_ns = options->stall_ns};

    PL_TRY(choose_endpoint(client, options, &http, &profile, reterr));
    PL_TRY(pl_http_new(&http, &client->http, reterr));
    credentials.region = client->region;
    return pl_credentials_new(client->environment, &credentials, client->http, &client->credentials, reterr);
}

enum pl_status pl_s3_client_new(const struct pl_environment *environment, const struct pl_s3_options *options,
                                struct pl_s3_client **ret_client, struct pl_error *reterr)
{
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;

    PL_TRY(pl_memory_alloc(&client, 1, sizeof(*client), reterr));
    PL_TRY(pl_environment_new_copy(environment, &client->environment, reterr));
    if (options->service && !(client->service = pl_memory_string(options->service, reterr))) {
        return PL_MEMORY;
    }
    client->connections = choose_number(options->connections, DEFAULT_CONNECTIONS, MAX_CONNECTIONS);
    PL_TRY(pl_environment_get_number_or(environment, "AWS_MAX_ATTEMPTS", DEFAULT_ATTEMPTS, MAX_ATTEMPTS,
                                        &client->attempts, reterr));
    client->attempts = choose_number(options->attempts, client->attempts, MAX_ATTEMPTS);
    client->requester_pays = options->requester_pays;
    client->window = client->connections;
    client->pending_last = &client->pending;
    client->retry_quota = pl_s3_retry_quota_full(pl_clock_now_ns());
    client->random = (uint64_t)pl_clock_now_ns() ^ (uint64_t)(uintptr_t)client;
    PL_TRY(open_parts(client, options, reterr));
    *ret_client = PL_TAKE(client);
    return PL_OK;
}

void pl_s3_client_free(struct pl_s3_client *client)
{
    if (!client) {
        return;
    }
    pl_http_free(client->http);
    pl_credentials_free(client->credentials);
    while (client->regions) {
        struct pl_s3_region *next = client->regions->next;

        free(client->regions->bucket);
        free(client->regions);
        client->regions = next;
    }
    pl_environment_free(client->environment);
    free(client->endpoint_url);
    free(client->region);
    free(client->service);
    free(client);
}

/*
 * Returns the checksum of the whole object from a HEAD. If the object was uploaded in parts (its ETag is "...-N"), some
 * servers send the checksum of the parts' checksums without a type that distinguishes it. CRC64NVME is always of the
 * whole object.
 */
static struct pl_checksum whole_checksum(const struct pl_http_head *head)
{
    bool in_parts = strchr(head->etag, '-');

    return in_parts && !head->full_object && head->checksum.kind != PL_CHECKSUM_CRC64NVME
               ? (struct pl_checksum){.kind = PL_CHECKSUM_NONE}
               : head->checksum;
}

enum pl_status pl_s3_head(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                          struct pl_s3_info *ret_info, struct pl_error *reterr)
{
    struct pl_s3_operation operation = {
        .method = "HEAD", .bucket = bucket, .key = key, .keep_head = true, .deadline_ns = deadline_ns};
    struct pl_s3_info info = {.etag = NULL};
    enum pl_status status;

    operation.extra[operation.extra_count++] = (struct pl_sigv4_header){"x-amz-checksum-mode", "ENABLED"};
    status = pl_s3_call(client, &operation, NULL, reterr);
    if (status == PL_OK && operation.head.content_length < 0) {
        status = pl_error_set(reterr, PL_CORRUPT, "HEAD s3://%s/%s: the answer has no size", bucket, key);
    }
    if (status == PL_OK && operation.head.etag[0] && !(info.etag = pl_memory_string(operation.head.etag, reterr))) {
        status = PL_MEMORY;
    }
    if (status == PL_OK) {
        status = pl_text_take(&operation.head_text, &info.head, reterr);
    }
    if (status == PL_OK) {
        info.size_bytes = (uint64_t)operation.head.content_length;
        info.modified_s = operation.head.last_modified_s;
        info.checksum = whole_checksum(&operation.head);
        *ret_info = info;
    } else {
        pl_s3_info_done(&info);
    }
    pl_s3_operation_done(&operation);
    return status;
}

#define CANCEL_CHECK_NS (100 * PL_NS_PER_MS) /* how often a waiting thread calls go_on() */

struct call {
    struct pl_http_call head;
    struct pl_s3_operation *operation;
    const struct pl_s3_cancel_check *cancel_check;
    enum pl_status status; /* set at the end */
};

static void call_done(struct pl_s3_operation *operation, enum pl_status status)
{
    struct call *call = operation->context;

    call->status = status;
    pl_http_end(&call->head);
}

static void start_posted(struct pl_http_task *task)
{
    pl_s3_operation_start(PL_CONTAINER_OF(task, struct pl_s3_operation, start_task));
}

void pl_s3_operation_post(struct pl_s3_operation *operation)
{
    operation->start_task.run = start_posted;
    pl_http_post(operation->client->http, &operation->start_task);
}

struct cancelling {
    struct pl_http_task task;
    struct pl_s3_operation *operation;
};

static void cancel_posted(struct pl_http_task *task)
{
    struct pl_s3_operation *operation = ((struct cancelling *)task)->operation;

    if (operation->state != PL_S3_IDLE) {
        pl_s3_operation_cancel(operation);
        pl_error_set(&operation->error, PL_CANCELLED, "%s s3://%s/%s was cancelled", operation->method,
                     operation->bucket, operation->key);
        operation->handler->done(operation, PL_CANCELLED);
    }
}

void pl_s3_operation_cancel_wait(struct pl_s3_operation *operation)
{
    struct cancelling cancelling = {.task = {.run = cancel_posted}, .operation = operation};

    pl_http_run(operation->client->http, &cancelling.task);
}

/* Without a callback it waits only for the end: the engine ends every operation at its deadline. */
void pl_s3_cancel_wait(const struct pl_s3_cancel_check *cancel_check, pthread_cond_t *cond, pthread_mutex_t *lock)
{
    pl_deadline_wait(cancel_check && cancel_check->go_on ? pl_deadline_after_ns(CANCEL_CHECK_NS) : PL_DEADLINE_NEVER,
                     cond, lock);
}

static void start_call(struct pl_http_task *task)
{
    pl_s3_operation_start(PL_CONTAINER_OF(task, struct call, head.task)->operation);
}

static void check_cancelled(struct pl_http_call *head)
{
    struct call *call = PL_CONTAINER_OF(head, struct call, head);

    if (pl_s3_is_cancelled(call->cancel_check)) {
        pl_s3_operation_cancel_wait(call->operation);
    }
}

enum pl_status pl_s3_call(struct pl_s3_client *client, struct pl_s3_operation *operation,
                          const struct pl_s3_cancel_check *cancel_check, struct pl_error *reterr)
{
    static const struct pl_s3_operation_handler handler = {.done = call_done};
    struct call call = {.head = {.task = {.run = start_call}}, .operation = operation, .cancel_check = cancel_check};

    operation->client = client;
    operation->handler = &handler;
    operation->context = &call;
    pl_http_call(client->http, &call.head, cancel_check && cancel_check->go_on ? check_cancelled : NULL);
    if (call.status != PL_OK && reterr) {
        *reterr = operation->error;
    }
    return call.status;
}
