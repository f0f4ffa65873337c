/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What services that hand out keys answer, and to which of them a token may be sent.
 *
 * Source  as credentials.h
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
    char *session_token; /* NULL: none */
    int64_t expires_s;   /* seconds since 1970; INT64_MAX: never */
};

/**
 * Copies of the three texts, of which `session_token` may be NULL or "". PL_INVALID for an empty key, or for bytes
 * in access key or token that no header may hold.
 */
enum pl_status pl_credentials_reply_make(const char *access_key, const char *secret_key, const char *session_token,
                                         struct pl_credentials_reply *ret_reply, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Parse a container endpoint's or the metadata service's answer. PL_INVALID when it is not one; an answer {"code",
 * "message"} is quoted.
 */
enum pl_status pl_credentials_reply_parse(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_credentials_reply_parse() for what STS answers to AssumeRoleWithWebIdentity. */
enum pl_status pl_credentials_reply_parse_sts(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                              struct pl_error *reterr) PL_MUST_CHECK;

void pl_credentials_reply_done(struct pl_credentials_reply *reply);

/**
 * Whether a token may be sent to `url`: any https host, otherwise only loopback and the container services' own
 * addresses.
 */
bool pl_credentials_reply_url_allowed(const char *url);

#endif
