/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the URL, host and path of a bucket or key. */
#include "s3io/s3/address.h"

#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/sigv4.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BUCKET_BYTES = 255, MAX_KEY_BYTES = 1024 };

void pl_s3_address_done(struct pl_s3_address *address)
{
    free(address->url);
    free(address->host);
    free(address->path);
    *address = (struct pl_s3_address){.url = NULL};
}

/* Old bucket names may have capitals, underscores and up to 255 bytes. No other bytes may get into a host or a path. */
static bool is_bucket(const char *bucket)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    size_t length = strlen(bucket);

    return length >= 3 && length <= MAX_BUCKET_BYTES && strspn(bucket, letters) == length && !strstr(bucket, "..");
}

/* Whether the bucket can be a part of a host name. With a dot in it, no TLS certificate would match. */
static bool fits_host(const char *bucket, bool plain)
{
    size_t length = strlen(bucket);

    return length <= 63 &&
           strspn(bucket, plain ? "abcdefghijklmnopqrstuvwxyz0123456789-." : "abcdefghijklmnopqrstuvwxyz0123456789-") ==
               length &&
           bucket[0] != '-' && bucket[0] != '.' && bucket[length - 1] != '-' && bucket[length - 1] != '.';
}

static bool is_number_host(const char *host)
{
    size_t length = strcspn(host, ":");

    return host[0] == '[' || strspn(host, "0123456789.") == length;
}

/* Appends "s3.eu-west-1.amazonaws.com" and the like. */
static enum pl_status append_aws_host(const struct pl_s3_endpoint_config *endpoint_config, const char *service,
                                      struct pl_text *text, struct pl_error *reterr)
{
    if (strspn(endpoint_config->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(endpoint_config->region) ||
        !*endpoint_config->region) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not an AWS region: set AWS_REGION to one such as us-east-1",
                            endpoint_config->region);
    }
    pl_text_printf(text, "%s%s.%s%s.amazonaws.com%s", service, endpoint_config->fips ? "-fips" : "",
                   endpoint_config->dual_stack ? "dualstack." : "", endpoint_config->region,
                   strncmp(endpoint_config->region, "cn-", 3) == 0 ? ".cn" : "");
    return PL_OK;
}

/* Splits an endpoint into scheme, host with port, and base path. */
static enum pl_status split_endpoint(const char *url, bool *ret_plain, struct pl_text *host, struct pl_text *base,
                                     struct pl_error *reterr)
{
    const char *at;
    size_t length;

    if (strncmp(url, "https://", 8) == 0) {
        *ret_plain = false;
        at = url + 8;
    } else if (strncmp(url, "http://", 7) == 0) {
        *ret_plain = true;
        at = url + 7;
    } else {
        return pl_error_set(
            reterr, PL_INVALID,
            "the endpoint '%s' is neither an https:// nor an http:// URL: set AWS_ENDPOINT_URL to one such as "
            "https://s3.us-east-1.amazonaws.com",
            url);
    }
    length = strcspn(at, "/");
    if (length == 0 || strpbrk(url, "?#@ \t\r\n\\")) {
        return pl_error_set(reterr, PL_INVALID, "the endpoint '%s' is not a URL with only host, port and path", url);
    }
    pl_text_append_n(host, at, length);
    at += length;
    length = strlen(at);
    while (length && at[length - 1] == '/') {
        length--;
    }
    pl_text_append_n(base, at, length);
    return PL_OK;
}

/* Removes the default port: libcurl leaves it out of the Host header, and the signed host must be the same. */
static void drop_default_port(struct pl_text *host, bool plain)
{
    const char *port = plain ? ":80" : ":443";
    size_t length = strlen(port);

    if (host->length > length && strcmp(host->data + host->length - length, port) == 0) {
        host->length -= length;
        host->data[host->length] = '\0';
    }
}

/* Takes over host and path, and makes the URL from both. */
static enum pl_status take_address(bool plain, struct pl_text *host, struct pl_text *path, bool encodes,
                                   struct pl_s3_address *ret_address, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text url = PL_TEXT_NONE;
    PL_AUTO_ADDRESS struct pl_s3_address address = {.plain = plain};

    pl_text_printf(&url, "%s://%s", plain ? "http" : "https", pl_text_string(host));
    if (encodes) {
        pl_sigv4_encode(pl_text_string(path), path->length, true, &url);
    } else {
        pl_text_append(&url, pl_text_string(path));
    }
    PL_TRY(pl_text_check(host, reterr));
    drop_default_port(host, plain);
    PL_TRY(pl_text_take(&url, &address.url, reterr));
    PL_TRY(pl_text_take(host, &address.host, reterr));
    PL_TRY(pl_text_take(path, &address.path, reterr));
    *ret_address = address;
    address = (struct pl_s3_address){.url = NULL};
    return PL_OK;
}

/* Finds host and base path of the configured endpoint; if there is none, AWS's own host of `service`. */
static enum pl_status find_endpoint(const struct pl_s3_endpoint_config *endpoint_config, const char *service,
                                    bool *ret_plain, struct pl_text *host, struct pl_text *base,
                                    struct pl_error *reterr)
{
    *ret_plain = false;
    PL_TRY(endpoint_config->endpoint_url ? split_endpoint(endpoint_config->endpoint_url, ret_plain, host, base, reterr)
                                         : append_aws_host(endpoint_config, service, host, reterr));
    return pl_text_check(host, reterr);
}

enum pl_status pl_s3_address_build(const struct pl_s3_endpoint_config *endpoint_config, const char *bucket,
                                   const char *key, struct pl_s3_address *ret_address, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text endpoint = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text host = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    bool plain, virtual;

    if (!is_bucket(bucket)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a bucket name", bucket);
    }
    if (key && strlen(key) > MAX_KEY_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "a key has %zu bytes: S3 allows %d", strlen(key), MAX_KEY_BYTES);
    }
    PL_TRY(find_endpoint(endpoint_config, "s3", &plain, &endpoint, &path, reterr));
    virtual = endpoint_config->style != PL_S3_STYLE_PATH &&
              (endpoint_config->style == PL_S3_STYLE_VIRTUAL || !endpoint_config->endpoint_url) &&
              fits_host(bucket, plain) && !is_number_host(endpoint.data);
    if (virtual) {
        pl_text_printf(&host, "%s.", bucket);
    }
    pl_text_append(&host, endpoint.data);
    if (!virtual) {
        pl_text_printf(&path, "/%s", bucket);
    }
    pl_text_append_char(&path, '/');
    pl_text_append(&path, key ? key : "");
    PL_TRY(pl_text_check(&path, reterr));
    /* In path style a bucket alone is "/bucket": for some servers a trailing slash means an empty key. */
    if ((!key || !*key) && !virtual) {
        path.data[--path.length] = '\0';
    }
    return take_address(plain, &host, &path, true, ret_address, reterr);
}

enum pl_status pl_s3_address_service(const struct pl_s3_endpoint_config *endpoint_config, const char *service,
                                     const char *path, struct pl_s3_address *ret_address, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text host = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text full = PL_TEXT_NONE;
    bool plain;

    PL_TRY(find_endpoint(endpoint_config, service, &plain, &host, &full, reterr));
    pl_text_append(&full, path);
    return take_address(plain, &host, &full, false, ret_address, reterr);
}

bool pl_s3_uri_is(const char *uri)
{
    return strncmp(uri, "s3://", 5) == 0;
}

enum pl_status pl_s3_uri_parse(const char *uri, char **ret_bucket, char **ret_key, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    size_t length;
    char *key;

    if (!pl_s3_uri_is(uri)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not an s3://BUCKET/KEY address", uri);
    }
    uri += 5;
    length = strcspn(uri, "/");
    bucket = pl_memory_string_n(uri, length, reterr);
    if (!bucket) {
        return PL_MEMORY;
    }
    if (!is_bucket(bucket)) {
        return pl_error_set(
            reterr, PL_INVALID,
            "'%s' is not a bucket name (in 's3://%s'): expected 3 to 63 lower-case letters, digits, dots and hyphens",
            bucket, uri);
    }
    key = pl_memory_string(uri[length] ? uri + length + 1 : "", reterr);
    if (!key) {
        return PL_MEMORY;
    }
    *ret_bucket = PL_TAKE(bucket);
    *ret_key = key;
    return PL_OK;
}
