/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the URL, headers and signature of one attempt of an operation. */
#include "s3io/s3/s3_operation.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_SIGNED = PL_S3_MAX_EXTRA + PL_S3_MOST_HEADERS + 6 };

/* Returns the region of `bucket`: a learned one, or the configured one. */
static const char *region_of(const struct pl_s3_client *client, const char *bucket)
{
    for (const struct pl_s3_region *known = client->regions; known; known = known->next) {
        if (strcmp(known->bucket, bucket) == 0) {
            return known->region;
        }
    }
    return client->region;
}

static enum pl_status payload_hash(struct pl_s3_operation *operation, char hex[static PL_SIGV4_HEX_BYTES],
                                   struct pl_error *reterr)
{
    if (operation->body_bytes == 0) {
        memcpy(hex, PL_SIGV4_EMPTY_HASH, PL_SIGV4_HEX_BYTES);
        return PL_OK;
    }
    if (!operation->client->plain) {
        memcpy(hex, PL_SIGV4_UNSIGNED, sizeof(PL_SIGV4_UNSIGNED)); /* TLS protects the body */
        return PL_OK;
    }
    if (operation->body_hash) {
        memcpy(hex, operation->body_hash, PL_SIGV4_HEX_BYTES);
        return PL_OK;
    }
    return pl_sigv4_hash(operation->body, operation->body_bytes, hex, reterr);
}

struct composer {
    struct pl_s3_operation *operation;
    struct pl_sigv4_header signed_headers[MAX_SIGNED];
    size_t signed_count;
    size_t line_count;
    bool has_type;
};

static struct pl_text *new_line(struct composer *composer)
{
    struct pl_text *line = &composer->operation->lines[composer->line_count++];

    PL_BUG_IF(composer->line_count > PL_S3_MAX_HEADERS);
    pl_text_clear(line);
    return line;
}

static void sign_header(struct composer *composer, const struct pl_sigv4_header *header)
{
    PL_BUG_IF(composer->signed_count == MAX_SIGNED);
    composer->signed_headers[composer->signed_count++] = *header;
}

static void add_signed(struct composer *composer, const char *name, const char *value)
{
    sign_header(composer, &(struct pl_sigv4_header){name, value});
    /* libcurl writes the Host header itself, from the same URL. */
    if (strcmp(name, "host") != 0) {
        pl_text_printf(new_line(composer), "%s: %s", name, value);
    }
}

static enum pl_status add_authorization(struct composer *composer, const struct pl_sigv4_key *key, const char *date,
                                        const char *hash, int64_t time_s, struct pl_error *reterr)
{
    struct pl_s3_operation *operation = composer->operation;
    const char *service = operation->client->service ? operation->client->service : "s3";
    struct pl_sigv4_scope scope = {region_of(operation->client, operation->bucket), service, time_s};
    struct pl_sigv4_request request = {.method = operation->method,
                                       .path = operation->address.path,
                                       .query = operation->query,
                                       .headers = composer->signed_headers,
                                       .payload_hash = hash};
    struct pl_text *line;

    add_signed(composer, "x-amz-date", date);
    add_signed(composer, "x-amz-content-sha256", hash);
    if (key->session_token) {
        add_signed(composer, "x-amz-security-token", key->session_token);
    }
    request.header_count = composer->signed_count;
    line = new_line(composer);
    pl_text_append(line, "Authorization: ");
    return pl_sigv4_authorize(key, &scope, &request, line, reterr);
}

/* Signs the object's own headers. Their lines exist already, the same in each attempt. */
static void sign_headers(struct composer *composer, const struct pl_s3_headers *headers)
{
    for (size_t i = 0; headers && i < headers->count; i++) {
        sign_header(composer, &headers->items[i]);
        composer->has_type = composer->has_type || strcmp(headers->items[i].name, "content-type") == 0;
    }
}

/* Collects all lines for the request. */
static enum pl_status collect_lines(const struct composer *composer, struct pl_error *reterr)
{
    struct pl_s3_operation *operation = composer->operation;
    const struct pl_s3_headers *headers = operation->headers;
    size_t count = 0;

    for (size_t i = 0; i < composer->line_count; i++) {
        PL_TRY(pl_text_check(&operation->lines[i], reterr));
        operation->line_pointers[count++] = operation->lines[i].data;
    }
    for (size_t i = 0; headers && i < headers->count; i++) {
        operation->line_pointers[count++] = headers->lines[i];
    }
    operation->request.headers = operation->line_pointers;
    operation->request.header_count = count;
    return PL_OK;
}

/* Adds the headers of a ranged GET that may change between attempts. They are not signed: the response is checked
 * against them instead. */
static void add_range(struct composer *composer)
{
    struct pl_s3_operation *operation = composer->operation;
    uint64_t wanted = operation->is_found ? operation->expected_bytes : operation->range_bytes;

    if (!operation->ranged) {
        return;
    }
    pl_text_printf(new_line(composer), "Range: bytes=%llu-%llu",
                   (unsigned long long)(operation->range_first + operation->received_bytes),
                   (unsigned long long)(operation->range_first + wanted - 1));
    if (operation->etag[0]) {
        pl_text_printf(new_line(composer), "If-Match: %s", operation->etag);
    }
}

enum pl_status pl_s3_build(struct pl_s3_operation *operation, struct pl_error *reterr)
{
    struct pl_s3_client *client = operation->client;
    const struct pl_sigv4_key *key = pl_credentials_key(client->credentials);
    struct composer composer = {.operation = operation};
    struct pl_http_request *request = &operation->request;
    struct pl_s3_endpoint_config endpoint_config = client->endpoint_config;
    int64_t time_s = (int64_t)time(NULL) + client->clock_offset_s;
    char date[PL_SIGV4_DATE_BYTES], hash[PL_SIGV4_HEX_BYTES];

    endpoint_config.region = region_of(client, operation->bucket);
    snprintf(operation->used_region, sizeof(operation->used_region), "%s", endpoint_config.region);
    pl_s3_address_done(&operation->address);
    PL_TRY(client->service
               ? pl_s3_address_service(&endpoint_config, client->service, operation->key, &operation->address, reterr)
               : pl_s3_address_build(&endpoint_config, operation->bucket, operation->key, &operation->address, reterr));
    pl_text_clear(&operation->url);
    pl_text_append(&operation->url, operation->address.url);
    if (operation->query && *operation->query) {
        pl_text_printf(&operation->url, "?%s", operation->query);
    }
    PL_TRY(pl_text_check(&operation->url, reterr));
    PL_TRY(payload_hash(operation, hash, reterr));
    pl_sigv4_date(time_s, date);
    add_signed(&composer, "host", operation->address.host);
    for (size_t i = 0; i < operation->extra_count; i++) {
        add_signed(&composer, operation->extra[i].name, operation->extra[i].value);
    }
    sign_headers(&composer, operation->headers);
    if (client->requester_pays) {
        add_signed(&composer, "x-amz-request-payer", "requester");
    }
    if (key) {
        PL_TRY(add_authorization(&composer, key, date, hash, time_s, reterr));
    }
    add_range(&composer);
    pl_text_append(new_line(&composer), "User-Agent: paceline");
    if (!composer.has_type) {
        pl_text_append(new_line(&composer), "Content-Type:"); /* removes the type that libcurl gives a POST */
    }
    PL_TRY(collect_lines(&composer, reterr));
    request->method = operation->method;
    request->url = operation->url.data;
    request->head_text = operation->keep_head ? &operation->head_text : NULL;
    request->body = operation->body;
    request->body_bytes = operation->body_bytes;
    request->plain_allowed = client->plain;
    request->long_timeout = operation->long_timeout;
    request->deadline_ns = operation->deadline_ns;
    return PL_OK;
}
