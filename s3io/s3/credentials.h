/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Where the credentials come from, and keeping them fresh while transfers run.
 *
 * The first of these that is configured is used: keys in the options, in the environment (AWS_ACCESS_KEY_ID, ...),
 * those of the role AWS_ROLE_ARN that STS gives for the token in AWS_WEB_IDENTITY_TOKEN_FILE, keys in the profile
 * files, the container's endpoint (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI), and, only when the options
 * allow it, the machine's metadata service (IMDSv2). Credentials that expire are fetched again five minutes before;
 * requests go on with the old ones meanwhile.
 *
 * Threads  new and free from the owner's thread, everything else on the engine's.
 * Source   "AWS SDKs and Tools Reference Guide": standardized credential providers; AWS STS API Reference:
 *          AssumeRoleWithWebIdentity.
 * Test     tests/unit/s3io/s3/test_credentials.c, tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_CREDENTIALS_H
#define PL_S3IO_S3_CREDENTIALS_H

#include "base/environment.h"
#include "s3io/http/http.h"
#include "s3io/s3/sigv4.h"

/** Zero-initialise, then set what differs. Strings are copied. */
struct pl_credentials_options {
    const char *access_key; /* with secret_key: use these and nothing else */
    const char *secret_key;
    const char *session_token;
    const char *region;  /* whose STS is asked */
    bool anonymous;      /* do not sign */
    bool allow_metadata; /* ask the machine's metadata service as the last resort */
};

struct pl_credentials;

/**
 * Choose a source of credentials. No request is sent yet. `environment` must stay until
 * pl_credentials_free(), `options` only during the call.
 *
 * Errors  PL_NOT_FOUND, naming the places looked at, when there is none, or the profile that is not there;
 *         PL_UNSUPPORTED for a profile whose credentials come from a source that is not supported; PL_INVALID for a key
 *         without its secret, a container address that must not be given a token, a web identity without its role, or
 *         an STS endpoint that is not a URL.
 */
enum pl_status pl_credentials_new(const struct pl_environment *environment,
                                  const struct pl_credentials_options *options, struct pl_http *http,
                                  struct pl_credentials **ret_credentials, struct pl_error *reterr) PL_MUST_CHECK;

/** After the engine's thread has ended, or before it has been asked anything. NULL is fine. */
void pl_credentials_free(struct pl_credentials *credentials);

/** A request that needs credentials; embed it. `ready` runs once, on the engine's thread. */
struct pl_credentials_waiter {
    void (*ready)(struct pl_credentials_waiter *waiter, enum pl_status status, const struct pl_error *error);
    struct pl_credentials_waiter *next;
};

/** True: pl_credentials_key() can be used now. False: `waiter->ready` will run. */
bool pl_credentials_ask(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter);

/** Stop waiting. */
void pl_credentials_forget(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter);

/** The current credentials; NULL when requests are not signed. Valid until the engine's thread next gets control. */
const struct pl_sigv4_key *pl_credentials_key(const struct pl_credentials *credentials);

/** The generation of those: grows with every new set. */
uint64_t pl_credentials_generation(const struct pl_credentials *credentials);

/** A server says that the credentials of `generation` have expired. False when there is no way to get others. */
bool pl_credentials_expired(struct pl_credentials *credentials, uint64_t generation);

#endif
