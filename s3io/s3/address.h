/* SPDX-License-Identifier: Apache-2.0 */
/**
 * From bucket and key to a URL: endpoints, regions, path and virtual-host style.
 *
 * Source  Amazon S3 user guide: "Virtual hosting of buckets", "Bucket naming rules"; AWS General Reference: "Amazon S3
 *         endpoints", "AWS STS
 * endpoints". Test    tests/unit/s3io/s3/test_address.c
 */
#ifndef PL_S3IO_S3_ADDRESS_H
#define PL_S3IO_S3_ADDRESS_H

#include "base/status.h"

enum pl_s3_style {
    PL_S3_STYLE_AUTO, /* virtual-host style for AWS's own endpoints, path style for others */
    PL_S3_STYLE_PATH,
    PL_S3_STYLE_VIRTUAL,
};

struct pl_s3_endpoint_config {
    const char *endpoint_url; /* NULL: AWS's own for the region */
    const char *region;
    enum pl_s3_style style;
    bool dual_stack;
    bool fips;
};

/** Zero-initialise, release with pl_s3_address_done(). */
struct pl_s3_address {
    char *url;  /* without a query, percent-encoded */
    char *host; /* as the Host header has it: with a port unless it is the scheme's own */
    char *path; /* raw, for signing */
    bool plain; /* http:// */
};

#define PL_AUTO_ADDRESS __attribute__((cleanup(pl_s3_address_done)))

/**
 * The address of `key` in `bucket`; `key` NULL or "" for the bucket itself.
 *
 * Errors  PL_INVALID: an endpoint that is not an http or https URL, or a bucket name that cannot be one.
 */
enum pl_status pl_s3_address_build(const struct pl_s3_endpoint_config *endpoint_config, const char *bucket,
                                   const char *key, struct pl_s3_address *ret_address,
                                   struct pl_error *reterr) PL_MUST_CHECK;

void pl_s3_address_done(struct pl_s3_address *address);

/**
 * The address of `path` at another service: the place's endpoint and what path it has before that, or AWS's own host
 * `service` for the region. The errors are those of an endpoint.
 */
enum pl_status pl_s3_address_service(const struct pl_s3_endpoint_config *endpoint_config, const char *service,
                                     const char *path, struct pl_s3_address *ret_address,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The URL of the Security Token Service: the place's endpoint as it is, or AWS's own for the region. The caller
 * frees it.
 */
enum pl_status pl_s3_address_sts(const struct pl_s3_endpoint_config *endpoint_config, char **ret_url,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Take "s3://BUCKET/KEY" apart; the key may be empty. The caller frees both. */
enum pl_status pl_s3_uri_parse(const char *uri, char **ret_bucket, char **ret_key,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** True when `uri` begins with "s3://". */
bool pl_s3_uri_is(const char *uri);

#endif
