/* SPDX-License-Identifier: Apache-2.0 */
/**
 * AWS Signature Version 4: the Authorization header of a request. Pure functions; the time is an argument.
 *
 * Source  "Signing AWS API requests" in the AWS General Reference; "Authenticating Requests (AWS Signature Version 4)"
 *         in the Amazon S3 API Reference.
 * Test    tests/unit/s3io/s3/test_sigv4.c runs AWS's published suite and S3's documented examples
 */
#ifndef PL_S3IO_S3_SIGV4_H
#define PL_S3IO_S3_SIGV4_H

#include "base/text.h"

#include <stddef.h>

/** The keys. Strings stay the owner's. */
struct pl_sigv4_key {
    const char *access_key;
    const char *secret_key;
    const char *session_token; /* NULL if there is none */
};

struct pl_sigv4_scope {
    const char *region;
    const char *service;
    int64_t time_s; /* seconds since 1970, UTC */
};

struct pl_sigv4_header {
    const char *name;
    const char *value;
};

/** A request to sign. All `headers` are signed. The values of repeated names are joined in their order. */
struct pl_sigv4_request {
    const char *method;
    const char *path;  /* raw bytes, not percent-encoded; they are encoded once, as S3 requires */
    const char *query; /* the part after the '?', percent-encoded or not; NULL or "" if there is none */
    const struct pl_sigv4_header *headers;
    size_t header_count;
    const char *payload_hash; /* hex SHA-256 of the body or PL_SIGV4_UNSIGNED */
    bool normalize_path;      /* resolve "." and ".." and double slashes: for other services, never for S3 */
};

#define PL_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"
#define PL_SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum {
    PL_SIGV4_HEX_BYTES = 65,  /* a SHA-256 as hex with its NUL */
    PL_SIGV4_DATE_BYTES = 17, /* "20150830T123600Z" with its NUL */
};

/** Writes `time_s` in the format of x-amz-date. */
void pl_sigv4_date(int64_t time_s, char date[static PL_SIGV4_DATE_BYTES]);

/** Writes the hex SHA-256 of `data`. */
enum pl_status pl_sigv4_hash(const void *data, size_t bytes, char hex[static PL_SIGV4_HEX_BYTES],
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Appends `bytes` of `raw` percent-encoded: all except A-Z a-z 0-9 - . _ ~, and '/' if `keep_slash`. */
void pl_sigv4_encode(const char *raw, size_t bytes, bool keep_slash, struct pl_text *text);

/** Appends the canonical request. */
enum pl_status pl_sigv4_canonical(const struct pl_sigv4_request *request, struct pl_text *text,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Appends the string to sign of a canonical request. */
enum pl_status pl_sigv4_string_to_sign(const struct pl_sigv4_scope *scope, const char *canonical, struct pl_text *text,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the hex signature of a string to sign. */
enum pl_status pl_sigv4_signature(const struct pl_sigv4_key *key, const struct pl_sigv4_scope *scope,
                                  const char *string_to_sign, char hex[static PL_SIGV4_HEX_BYTES],
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the value of the Authorization header. `request` must already have every header that is signed: host,
 * x-amz-date and, if they apply, x-amz-content-sha256 and x-amz-security-token.
 */
enum pl_status pl_sigv4_authorize(const struct pl_sigv4_key *key, const struct pl_sigv4_scope *scope,
                                  const struct pl_sigv4_request *request, struct pl_text *text,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
