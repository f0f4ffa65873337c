/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Parses the answers of services that issue credentials, and decides which services may get a token.
 *
 * Source  see credentials.h
 * Test    tests/unit/s3io/s3/test_credentials.c and the fuzz target in tests/fuzz
 */
#ifndef PL_S3IO_S3_CREDENTIALS_REPLY_H
#define PL_S3IO_S3_CREDENTIALS_REPLY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The answer of a service that issues credentials. Release with pl_credentials_reply_done(). */
struct pl_credentials_reply {
    char *access_key;
    char *secret_key;
    char *session_token; /* NULL if there is none */
    int64_t expires_s;   /* seconds since 1970; INT64_MAX if they never expire */
};

/**
 * Copies the three strings; `session_token` may be NULL or "". PL_INVALID if a key is empty, or if the access key or
 * the token has bytes that are not allowed in a header.
 */
enum pl_status pl_credentials_reply_make(const char *access_key, const char *secret_key, const char *session_token,
                                         struct pl_credentials_reply *ret_reply, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Parses an answer of a container's endpoint or of the metadata service. PL_INVALID for any other text. The error
 * quotes an answer {"code", "message"}.
 */
enum pl_status pl_credentials_reply_parse(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_credentials_reply_parse(), for the answer of STS to AssumeRoleWithWebIdentity. */
enum pl_status pl_credentials_reply_parse_sts(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                              struct pl_error *reterr) PL_MUST_CHECK;

void pl_credentials_reply_done(struct pl_credentials_reply *reply);

/**
 * Returns whether a token may be sent to `url`: to any https host, else only to loopback addresses and the addresses of
 * the container services.
 */
bool pl_credentials_reply_url_allowed(const char *url);

#endif
