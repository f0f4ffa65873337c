/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one S3 request through its attempts: sends it, classifies the response, retries, resumes, follows regions. */
#include "s3io/s3/s3_operation.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "s3io/s3/s3_reply.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* an attempt that received this much has made progress: the count of attempts starts again */
    PROGRESS_BYTES = 16 * 1024,
    MAX_REDIRECTS = 3,
    SKEW_S = 300,
};

static void get_credentials(struct pl_s3_operation *operation);
static void start_pending(struct pl_s3_client *client);

static struct pl_s3_operation *of_request(struct pl_http_request *request)
{
    return PL_CONTAINER_OF(request, struct pl_s3_operation, request);
}

/* After a success: puts back the tokens that the retries took from the quota. */
static void on_success(struct pl_s3_operation *operation)
{
    pl_s3_retry_quota_put(&operation->client->retry_quota, operation->taken + 1);
    operation->taken = 0;
}

static void finish(struct pl_s3_operation *operation, enum pl_status status)
{
    struct pl_s3_client *client = operation->client;

    if (status == PL_OK) {
        on_success(operation);
    }
    operation->state = PL_S3_IDLE;
    client->active--;
    if (status == PL_OK && client->window < client->connections) {
        client->window += 1.0 / client->window;
    }
    operation->handler->done(operation, status);
    start_pending(client);
}

static void fail(struct pl_s3_operation *operation, enum pl_status status, const struct pl_error *error)
{
    const struct pl_s3_client *client = operation->client;

    if (error != &operation->error) {
        operation->error = *error;
    }
    if (operation->tries > 1) {
        pl_error_context(&operation->error, "request %u", operation->tries);
    }
    if (operation->ranged) {
        pl_error_context(&operation->error, "bytes from %llu",
                         (unsigned long long)(operation->range_first + operation->received_bytes));
    }
    if (client->service) {
        pl_error_context(&operation->error, "%s %s", operation->method, operation->key);
    } else {
        pl_error_context(&operation->error, "%s s3://%s/%s", operation->method, operation->bucket,
                         operation->key ? operation->key : "");
    }
    finish(operation, status);
}

/* Sends the next attempt after `delay_ns`. */
static void send_attempt(struct pl_s3_operation *operation, int64_t delay_ns)
{
    struct pl_s3_client *client = operation->client;
    enum pl_status status = pl_s3_build(operation, &operation->error);

    if (status != PL_OK) {
        fail(operation, status, &operation->error);
        return;
    }
    pl_text_clear(&operation->reply);
    operation->generation = pl_credentials_generation(client->credentials);
    operation->resumed_bytes = operation->received_bytes;
    operation->request.start_ns = delay_ns ? pl_deadline_after_ns(delay_ns) : 0;
    operation->state = PL_S3_SENT;
    operation->tries++;
    pl_http_send(client->http, &operation->request);
}

static void credentials_ready(struct pl_credentials_waiter *waiter, enum pl_status status, const struct pl_error *error)
{
    struct pl_s3_operation *operation = PL_CONTAINER_OF(waiter, struct pl_s3_operation, waiter);

    if (status == PL_OK) {
        send_attempt(operation, 0);
    } else {
        fail(operation, status, error);
    }
}

/* Gets credentials, then sends the request. */
static void get_credentials(struct pl_s3_operation *operation)
{
    operation->state = PL_S3_CREDENTIALS;
    operation->waiter.ready = credentials_ready;
    if (pl_credentials_ask(operation->client->credentials, &operation->waiter)) {
        send_attempt(operation, 0);
    }
}

static void slow_down(struct pl_s3_client *client)
{
    int64_t now_ns = pl_clock_now_ns();

    /* Errors within one second count once. */
    if (now_ns - client->halved_ns > PL_NS_PER_S) {
        client->halved_ns = now_ns;
        client->window = client->window > 2 ? client->window / 2 : 1;
    }
}

static void retry_later(struct pl_s3_operation *operation, enum pl_status status, const struct pl_error *error,
                        int64_t retry_after_s)
{
    struct pl_s3_client *client = operation->client;
    int64_t delay_ns, now_ns = pl_clock_now_ns(), turn_ns;

    if (operation->received_bytes >= operation->resumed_bytes + PROGRESS_BYTES) {
        operation->attempt = 0;
        on_success(operation);
    }
    operation->error = *error;
    if (++operation->attempt >= client->attempts) {
        pl_error_context(&operation->error, "stopped after %u attempts", operation->attempt);
        fail(operation, status, &operation->error);
        return;
    }
    delay_ns = pl_s3_retry_delay_ns(operation->attempt, retry_after_s, pl_random_next(&client->random));
    turn_ns = pl_s3_retry_quota_take(&client->retry_quota, now_ns);
    operation->taken++;
    delay_ns = delay_ns > turn_ns ? delay_ns : turn_ns;
    if (now_ns >= operation->deadline_ns - delay_ns) {
        pl_error_context(&operation->error, "no time is left for another attempt");
        fail(operation, status, &operation->error);
        return;
    }
    pl_log(PL_LOG_DEBUG, "s3: %s s3://%s/%s: attempt %u in %lld ms: %s", operation->method, operation->bucket,
           operation->key ? operation->key : "", operation->attempt + 1, (long long)(delay_ns / PL_NS_PER_MS),
           error->cause);
    operation->error = PL_ERROR_NONE;
    send_attempt(operation, delay_ns);
}

static enum pl_status not_the_range(struct pl_error *reterr, const struct pl_http_head *head, uint64_t first,
                                    uint64_t bytes)
{
    enum pl_status status =
        pl_error_raise(reterr, PL_FAILED, PL_DOMAIN_HTTP, head->status,
                       "expected bytes %llu to %llu, found status %d with bytes %lld to %lld of %lld",
                       (unsigned long long)first, (unsigned long long)(first + bytes - 1), head->status,
                       (long long)head->range_first, (long long)head->range_last, (long long)head->range_total);

    if (reterr) {
        reterr->retryable = true;
    }
    return status;
}

/* Checks that the response has the requested range of the same version of the object. */
static enum pl_status check_range(struct pl_s3_operation *operation, const struct pl_http_head *head,
                                  struct pl_error *reterr)
{
    uint64_t first = operation->range_first + operation->received_bytes;
    uint64_t wanted =
        (operation->is_found ? operation->expected_bytes : operation->range_bytes) - operation->received_bytes;
    uint64_t total, left;

    if (head->status == 206 && head->range_first >= 0 && head->range_total >= 0) {
        total = (uint64_t)head->range_total;
        if ((uint64_t)head->range_first != first || (operation->total_known && total != operation->object_bytes)) {
            return not_the_range(reterr, head, first, wanted);
        }
        left = total - first; /* the parser of the head has checked that first < total */
        left = left < wanted ? left : wanted;
        if ((uint64_t)(head->range_last - head->range_first) + 1 != left ||
            (head->content_length >= 0 && (uint64_t)head->content_length != left)) {
            return not_the_range(reterr, head, first, wanted);
        }
    } else if (head->status == 200 && first == 0 && head->content_length >= 0 &&
               (uint64_t)head->content_length <= wanted) {
        total = left = (uint64_t)head->content_length; /* the whole object, which was requested */
        if (operation->total_known && total != operation->object_bytes) {
            return not_the_range(reterr, head, first, wanted);
        }
    } else {
        return not_the_range(reterr, head, first, wanted);
    }
    if (operation->etag[0] && head->etag[0] && strcmp(operation->etag, head->etag) != 0) {
        return pl_error_raise(reterr, PL_FAILED, PL_DOMAIN_HTTP, head->status,
                              "the object changed while it was read (ETag was %.40s, is %.40s)", operation->etag,
                              head->etag);
    }
    if (!operation->is_found) {
        operation->is_found = operation->total_known = true;
        operation->object_bytes = total;
        operation->expected_bytes = left;
        memcpy(operation->etag, head->etag, sizeof(operation->etag));
        /* Some servers send the whole object's checksum with every range. It can be checked only if the range is the
         * whole object. */
        operation->crc_checked = head->checksum.kind != PL_CHECKSUM_NONE && first == 0 && left == total;
        operation->wanted = head->checksum;
        operation->checksum = (struct pl_checksum){.kind = head->checksum.kind};
        if (operation->handler->found) {
            operation->handler->found(operation);
        }
    }
    return PL_OK;
}

static enum pl_status on_head(struct pl_http_request *request, struct pl_error *reterr)
{
    struct pl_s3_operation *operation = of_request(request);

    if (operation->ranged && request->head.status >= 200 && request->head.status < 300) {
        return check_range(operation, &request->head, reterr);
    }
    return PL_OK;
}

static enum pl_status on_body(struct pl_http_request *request, const void *data, size_t bytes, struct pl_error *reterr)
{
    struct pl_s3_operation *operation = of_request(request);

    if (!operation->ranged || request->head.status >= 300) {
        if (operation->reply.length + bytes > PL_S3_MAX_REPLY_BYTES) {
            return pl_error_set(reterr, PL_LIMIT, "the answer has more than %d bytes", PL_S3_MAX_REPLY_BYTES);
        }
        pl_text_append_n(&operation->reply, data, bytes);
        return pl_text_check(&operation->reply, reterr);
    }
    if (bytes > operation->expected_bytes - operation->received_bytes) {
        return not_the_range(reterr, &request->head, operation->range_first, operation->expected_bytes);
    }
    if (operation->crc_checked) {
        pl_checksum_add(&operation->checksum, data, bytes);
    }
    PL_TRY(operation->handler->sink(operation, operation->received_bytes, data, bytes, reterr));
    operation->received_bytes += bytes;
    return PL_OK;
}

/* Handles the end of the response: all bytes of the range must have come. */
static void range_ended(struct pl_s3_operation *operation)
{
    struct pl_error error = PL_ERROR_NONE;

    if (operation->received_bytes != operation->expected_bytes) {
        pl_error_set(&error, PL_FAILED, "the answer ended after %llu of %llu bytes",
                     (unsigned long long)operation->received_bytes, (unsigned long long)operation->expected_bytes);
        retry_later(operation, PL_FAILED, &error, -1);
        return;
    }
    if (operation->crc_checked && operation->checksum.value != operation->wanted.value) {
        pl_error_set(&error, PL_CORRUPT, "%s is %llx, the server sent %llx", pl_checksum_name(&operation->wanted),
                     (unsigned long long)operation->checksum.value, (unsigned long long)operation->wanted.value);
        operation->received_bytes = operation->resumed_bytes = 0;
        operation->checksum.value = 0;
        if (operation->handler->rewind) {
            operation->handler->rewind(operation);
        }
        retry_later(operation, PL_CORRUPT, &error, -1);
        return;
    }
    finish(operation, PL_OK);
}

/* Notes the region of a bucket. Returns whether the next attempt goes to a different region from the last one; another
 * request may have learned the region before. */
static bool learn_region(struct pl_s3_operation *operation, const char *region)
{
    struct pl_s3_client *client = operation->client;
    struct pl_s3_region *known = client->regions;

    if (!*region || strcmp(region, operation->used_region) == 0) {
        return false;
    }
    while (known && strcmp(known->bucket, operation->bucket) != 0) {
        known = known->next;
    }
    if (!known) {
        known = pl_memory_new(1, sizeof(*known), NULL);
        if (!known || !(known->bucket = pl_memory_string(operation->bucket, NULL))) {
            free(known);
            return false;
        }
        known->next = client->regions;
        client->regions = known;
    }
    pl_s3_xml_copy(known->region, sizeof(known->region), region, strlen(region));
    return true;
}

static bool learn_clock(struct pl_s3_operation *operation)
{
    int64_t offset_s = operation->head.date_s - (int64_t)time(NULL);

    if (operation->clock_set || operation->head.date_s < 0) {
        return false;
    }
    operation->clock_set = true;
    operation->client->clock_offset_s = offset_s;
    return true;
}

/* Classifies an error response to HEAD, which has no document: a wrong region and expired credentials are recognised by
 * other signs. */
static enum pl_s3_retry_action classify_head(const struct pl_s3_operation *operation, enum pl_s3_retry_action action)
{
    const struct pl_sigv4_key *key = pl_credentials_key(operation->client->credentials);
    int64_t skew_s = operation->head.date_s - (int64_t)time(NULL) - operation->client->clock_offset_s;

    if (operation->head.region[0] && strcmp(operation->head.region, operation->used_region) != 0 &&
        (operation->head.status == 400 || operation->head.status == 403)) {
        return PL_S3_REGION;
    }
    if (operation->head.status == 400 && key && key->session_token) {
        return PL_S3_NEW_CREDENTIALS;
    }
    if (operation->head.status == 403 && operation->head.date_s >= 0 && (skew_s > SKEW_S || skew_s < -SKEW_S)) {
        return PL_S3_CLOCK;
    }
    return action;
}

/* Returns what the user can do about an error response that is final; NULL if that is not known. */
static const char *next_step(int status, const char *code)
{
    static const struct {
        const char *code, *text;
    } steps[] = {
        {"NoSuchBucket", "check the bucket's name"},
        {"NoSuchKey", "check the key: `paceline s3 ls` lists what is there"},
        {"InvalidAccessKeyId",
         "AWS does not know these keys: check AWS_ACCESS_KEY_ID, or let the job's role give them"},
        {"SignatureDoesNotMatch", "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY"},
        {"RequestTimeTooSkewed", "set this machine's clock, for example by NTP"},
        {"ExpiredToken", "fetch new credentials"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(steps); i++) {
        if (strcmp(code, steps[i].code) == 0) {
            return steps[i].text;
        }
    }
    if (status == 403 && (code[0] == '\0' || strcmp(code, "AccessDenied") == 0)) {
        return "allow s3:GetObject, s3:PutObject and s3:ListBucket there in the policy of the role; a key of KMS needs "
               "kms:Decrypt and kms:GenerateDataKey";
    }
    return NULL;
}

/* Makes the error of an error response. */
static enum pl_status make_error(const struct pl_s3_operation *operation, const struct pl_s3_error_document *document,
                                 struct pl_error *ret_error)
{
    const struct pl_http_head *head = &operation->head;
    enum pl_status status = pl_s3_retry_status(head->status, document->code);

    if (head->status == 412) {
        return pl_error_raise(ret_error, status, PL_DOMAIN_HTTP, 412,
                              "the object changed while it was read (ETag was %.60s)", operation->etag);
    }
    return pl_error_raise(ret_error, status, PL_DOMAIN_HTTP, head->status, "HTTP %d%s%s%s%s (request id %s)",
                          head->status, document->code[0] ? " " : "", document->code, document->message[0] ? ": " : "",
                          document->message, head->request_id[0] ? head->request_id : "none");
}

/* Takes from the response what another attempt at once needs (region, credentials, clock). False if nothing is new. */
static bool learn(struct pl_s3_operation *operation, enum pl_s3_retry_action action, const char *region)
{
    switch (action) {
    case PL_S3_NEW_CREDENTIALS:
        if (operation->refreshed || !pl_credentials_expired(operation->client->credentials, operation->generation)) {
            return false;
        }
        operation->refreshed = true;
        return true;
    case PL_S3_REGION:
        if (operation->redirects >= MAX_REDIRECTS || !learn_region(operation, region)) {
            return false;
        }
        operation->redirects++;
        return true;
    case PL_S3_CLOCK:
        return learn_clock(operation);
    case PL_S3_FINAL:
    case PL_S3_RETRY:
    case PL_S3_SLOWER:
        break;
    }
    return false;
}

static void on_error(struct pl_s3_operation *operation, const struct pl_s3_error_document *document)
{
    const struct pl_http_head *head = &operation->head;
    enum pl_s3_retry_action action = pl_s3_retry_classify(head->status, document->code);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = make_error(operation, document, &error);
    const char *next = NULL;

    if (!document->code[0] && operation->reply.length == 0) {
        action = classify_head(operation, action);
    }
    if (learn(operation, action, head->region[0] ? head->region : document->region)) {
        get_credentials(operation);
        return;
    }
    error.retryable = action == PL_S3_RETRY || action == PL_S3_SLOWER;
    if (action == PL_S3_SLOWER) {
        slow_down(operation->client);
    }
    if (error.retryable || (action == PL_S3_REGION && head->status == 307)) {
        retry_later(operation, status, &error, head->retry_after_s);
        return;
    }
    if (action == PL_S3_REGION) {
        pl_error_context(&error, "the bucket is not in region '%s': set AWS_REGION to its region",
                         operation->used_region);
    } else if (!operation->client->service && (next = next_step(head->status, document->code))) {
        pl_error_context(&error, "%s", next);
    }
    fail(operation, status, &error);
}

static void on_response(struct pl_s3_operation *operation)
{
    const struct pl_http_head *head = &operation->head;
    struct pl_s3_error_document document = {.code = ""};

    if (head->composite && head->checksum.kind == PL_CHECKSUM_NONE && operation->range_first == 0) {
        pl_log(PL_LOG_DEBUG, "s3: s3://%s/%s has only a checksum of its parts, which is not checked", operation->bucket,
               operation->key);
    }
    if (head->status >= 200 && head->status < 300 && operation->ranged) {
        range_ended(operation);
        return;
    }
    if (operation->ranged && head->status == 416 && operation->range_first == 0 && !operation->is_found &&
        head->range_total <= 0) {
        operation->is_found = true; /* an empty object has no range */
        operation->object_bytes = operation->expected_bytes = 0;
        if (operation->handler->found) {
            operation->handler->found(operation);
        }
        finish(operation, PL_OK);
        return;
    }
    if (head->status >= 300 || operation->check_reply) {
        pl_s3_error_parse(pl_text_string(&operation->reply), operation->reply.length, &document);
    }
    if (head->status >= 300 || document.code[0]) {
        on_error(operation, &document);
        return;
    }
    finish(operation, PL_OK);
}

static void on_done(struct pl_http_request *request, enum pl_status status)
{
    struct pl_s3_operation *operation = of_request(request);
    /* no range is left to request */
    bool all_came = operation->is_found && operation->received_bytes == operation->expected_bytes;

    operation->head = request->head;
    if (status == PL_OK) {
        on_response(operation);
    } else if (request->error.retryable && all_came && request->callback_status == PL_OK) {
        range_ended(operation); /* only the end of the response is missing */
    } else if (request->error.retryable && !all_came) {
        retry_later(operation, status, &request->error, -1);
    } else {
        fail(operation, status, &request->error);
    }
}

static void start_pending(struct pl_s3_client *client)
{
    while (client->pending && client->active < (unsigned)client->window) {
        struct pl_s3_operation *operation = client->pending;

        client->pending = operation->next_pending;
        if (!client->pending) {
            client->pending_last = &client->pending;
        }
        client->active++;
        get_credentials(operation);
    }
}

void pl_s3_operation_start(struct pl_s3_operation *operation)
{
    static const struct pl_http_handler handler = {on_head, on_body, on_done};
    struct pl_s3_client *client = operation->client;

    operation->request.handler = &handler;
    operation->state = PL_S3_PENDING;
    operation->next_pending = NULL;
    *client->pending_last = operation;
    client->pending_last = &operation->next_pending;
    start_pending(client);
}

static void forget_pending(struct pl_s3_client *client, const struct pl_s3_operation *operation)
{
    struct pl_s3_operation **at = &client->pending;

    while (*at != operation) {
        at = &(*at)->next_pending;
    }
    *at = operation->next_pending;
    if (!*at) {
        client->pending_last = at;
    }
}

void pl_s3_operation_cancel(struct pl_s3_operation *operation)
{
    struct pl_s3_client *client = operation->client;

    switch (operation->state) {
    case PL_S3_IDLE:
        return;
    case PL_S3_PENDING:
        forget_pending(client, operation);
        operation->state = PL_S3_IDLE;
        return;
    case PL_S3_CREDENTIALS:
        pl_credentials_forget(client->credentials, &operation->waiter);
        break;
    case PL_S3_SENT:
        pl_http_cancel(client->http, &operation->request);
        break;
    }
    operation->state = PL_S3_IDLE;
    client->active--;
    start_pending(client);
}

void pl_s3_operation_done(struct pl_s3_operation *operation)
{
    pl_s3_address_done(&operation->address);
    pl_text_done(&operation->url);
    pl_text_done(&operation->reply);
    pl_text_done(&operation->head_text);
    for (size_t i = 0; i < PL_S3_MAX_HEADERS; i++) {
        pl_text_done(&operation->lines[i]);
    }
}
