/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds credentials, and renews them while transfers run.
 *
 * The first of these sources that is configured is used: keys in the options; keys in the environment
 * (AWS_ACCESS_KEY_ID, ...); the role AWS_ROLE_ARN, whose keys STS issues for the token in AWS_WEB_IDENTITY_TOKEN_FILE;
 * keys in the profile files; the container's endpoint (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI); and, if
 * the options allow it, the machine's metadata service (IMDSv2). Credentials that expire are fetched again five minutes
 * before that. Meanwhile requests use the old ones.
 *
 * Threads  new and free: the owner's thread. All others: the engine's thread.
 * Source   "AWS SDKs and Tools Reference Guide": standardized credential providers; AWS STS API Reference:
 *          AssumeRoleWithWebIdentity.
 * Test     tests/unit/s3io/s3/test_credentials.c, tests/fuzz/fuzz_s3.c, tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_CREDENTIALS_H
#define PL_S3IO_S3_CREDENTIALS_H

#include "base/environment.h"
#include "s3io/http/http.h"
#include "s3io/s3/sigv4.h"

#include <stddef.h>

/** Zero-initialise, then set the options that differ from the defaults. Strings are copied. */
struct pl_credentials_options {
    const char *access_key; /* if set, with secret_key: no other source is used */
    const char *secret_key;
    const char *session_token;
    const char *region;  /* region of the STS endpoint */
    bool anonymous;      /* do not sign requests */
    bool allow_metadata; /* try the machine's metadata service as the last source */
};

struct pl_credentials;

/**
 * Chooses a source of credentials, without a request. `environment` must exist until pl_credentials_free(), `options`
 * only during the call.
 *
 * Errors  PL_NOT_FOUND: there is no source, or no profile of the given name; the text lists the sources.
 *         PL_UNSUPPORTED: the profile's credentials come from a source that is not supported. PL_INVALID: a key without
 *         its secret, a container address that must not get a token, a web identity without its role, or an STS
 *         endpoint that is not a URL.
 */
enum pl_status pl_credentials_new(const struct pl_environment *environment,
                                  const struct pl_credentials_options *options, struct pl_http *http,
                                  struct pl_credentials **ret_credentials, struct pl_error *reterr) PL_MUST_CHECK;

/** Call it after the engine's thread has ended, or before its first use. Does nothing for NULL. */
void pl_credentials_free(struct pl_credentials *credentials);

/** A request that needs credentials; embed it in a struct. `ready` runs once, on the engine's thread. */
struct pl_credentials_waiter {
    void (*ready)(struct pl_credentials_waiter *waiter, enum pl_status status, const struct pl_error *error);
    struct pl_credentials_waiter *next;
};

/** Returns true if pl_credentials_key() can be used now. Otherwise `waiter->ready` will run. */
bool pl_credentials_ask(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter);

/** Stops waiting: `ready` will not run. */
void pl_credentials_forget(struct pl_credentials *credentials, struct pl_credentials_waiter *waiter);

/**
 * Returns the current credentials, or NULL if requests are not signed. Valid until the calling function returns to the
 * engine.
 */
const struct pl_sigv4_key *pl_credentials_key(const struct pl_credentials *credentials);

/** Returns the generation of the current credentials, which grows with each new set. */
uint64_t pl_credentials_generation(const struct pl_credentials *credentials);

/**
 * Notes that, by a server's answer, the credentials of `generation` have expired. Returns false if there is no way to
 * get new ones.
 */
bool pl_credentials_expired(struct pl_credentials *credentials, uint64_t generation);

/* credentials_reply.c: parses the answers of services that issue credentials, and decides which may get a token. */

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
 * quotes the members "code" and "message" of an error answer.
 */
enum pl_status pl_credentials_reply_parse(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_credentials_reply_parse(), for the answer of STS to AssumeRoleWithWebIdentity. */
enum pl_status pl_credentials_reply_parse_sts(const char *text, size_t bytes, struct pl_credentials_reply *ret_reply,
                                              struct pl_error *reterr) PL_MUST_CHECK;

void pl_credentials_reply_done(struct pl_credentials_reply *reply);

/**
 * Returns whether a token may be sent to `url`: any https host, or by http a loopback address or an address of the
 * container services.
 */
bool pl_credentials_reply_url_allowed(const char *url);

/*
 * AWS's shared profile files: INI sections with keys. S3 access needs six of the keys.
 *
 * Source  "Configuration and credential file settings" in the AWS CLI user guide.
 * Test    tests/unit/s3io/s3/test_credentials.c, tests/fuzz/fuzz_s3.c
 */

/**
 * The settings of a profile; NULL if the files do not have them. Keys and their token come from one file.
 * Zero-initialise; release with pl_profile_done().
 */
struct pl_profile {
    char *access_key;
    char *secret_key;
    char *session_token;
    char *region;
    char *endpoint_url;
    char *ca_bundle;
    /* name (a static string) of a setting that asks for an unsupported source of credentials, for example "role_arn";
     * it is set even if there are keys next to that setting */
    const char *unsupported;
    bool process; /* there is a "credential_process"; it is not used if there are keys next to it */
    bool found;   /* there is a section of that name */
};

#define PL_AUTO_PROFILE __attribute__((cleanup(pl_profile_done)))

/** Releases a profile, and overwrites its secrets. */
void pl_profile_done(struct pl_profile *profile);

/**
 * Adds the settings in section `name` of an INI text. A setting that has a value already keeps it, and the keys of one
 * text are never combined with the token of another. In a config file the section is called "profile NAME", except for
 * "default". Nested blocks (lines that are indented deeper than the setting before them) are skipped.
 */
enum pl_status pl_profile_parse(const char *text, size_t bytes, const char *name, bool is_config,
                                struct pl_profile *profile, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the profile AWS_PROFILE ("default") from AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE
 * (~/.aws/config). If the files do not exist, the profile is empty.
 */
enum pl_status pl_profile_read(const struct pl_environment *environment, struct pl_profile *profile,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
