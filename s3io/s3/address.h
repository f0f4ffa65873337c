/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Makes URLs from bucket and key: endpoints, regions, path style and virtual-host style.
 *
 * Source  Amazon S3 user guide: "Virtual hosting of buckets", "Bucket naming rules"; AWS General Reference: "Amazon S3
 *         endpoints", "AWS STS endpoints".
 * Test    tests/unit/s3io/s3/test_texts.c
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
    const char *endpoint_url; /* NULL for AWS's own endpoint of the region */
    const char *region;
    enum pl_s3_style style;
    bool dual_stack;
    bool fips;
};

/** Zero-initialise; release with pl_s3_address_done(). */
struct pl_s3_address {
    char *url;  /* percent-encoded, without a query */
    char *host; /* value of the Host header: with a port unless it is the default port of the scheme */
    char *path; /* not encoded, for signing */
    bool plain; /* whether the scheme is http:// */
};

#define PL_AUTO_ADDRESS __attribute__((cleanup(pl_s3_address_done)))

/**
 * Makes the address of `key` in `bucket`, or of the bucket itself if `key` is NULL or "".
 *
 * Errors  PL_INVALID: the endpoint is not an http or https URL, or the bucket's name is not a valid one.
 */
enum pl_status pl_s3_address_build(const struct pl_s3_endpoint_config *endpoint_config, const char *bucket,
                                   const char *key, struct pl_s3_address *ret_address,
                                   struct pl_error *reterr) PL_MUST_CHECK;

void pl_s3_address_done(struct pl_s3_address *address);

/**
 * Makes the address of `path` at another service ("sts"). It is below the path of the configured endpoint, or else at
 * AWS's own host of `service` in the region. Errors as for an endpoint.
 */
enum pl_status pl_s3_address_service(const struct pl_s3_endpoint_config *endpoint_config, const char *service,
                                     const char *path, struct pl_s3_address *ret_address,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Splits "s3://BUCKET/KEY". The key may be empty. The caller frees both strings. */
enum pl_status pl_s3_uri_parse(const char *uri, char **ret_bucket, char **ret_key,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Returns whether `uri` begins with "s3://". */
bool pl_s3_uri_is(const char *uri);

#endif
