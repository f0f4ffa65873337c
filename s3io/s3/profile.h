/* SPDX-License-Identifier: Apache-2.0 */
/**
 * AWS's shared profile files: INI sections with keys, of which S3 access needs six.
 *
 * Source  "Configuration and credential file settings" in the AWS CLI user guide.
 * Test    tests/unit/s3io/s3/test_profile.c, tests/fuzz/fuzz_credentials.c
 */
#ifndef PL_S3IO_S3_PROFILE_H
#define PL_S3IO_S3_PROFILE_H

#include "base/environment.h"

#include <stddef.h>

/**
 * NULL where the files say nothing; keys and their token are of one file. Zero-initialise, release with
 * pl_profile_done().
 */
struct pl_profile {
    char *access_key;
    char *secret_key;
    char *session_token;
    char *region;
    char *endpoint_url;
    char *ca_bundle;
    /* a setting whose source of credentials is not supported, even if there are keys next to it: "role_arn"; static */
    const char *unsupported;
    bool process; /* there is a "credential_process", which is not needed if there are keys next to it */
    bool found;   /* there is a section of that name */
};

#define PL_AUTO_PROFILE __attribute__((cleanup(pl_profile_done)))

/** Release, wiping the secrets. */
void pl_profile_done(struct pl_profile *profile);

/**
 * Add what section `name` of an INI text says; a value that is already there stays, and keys stay without another
 * text's token. In a config file the section is called "profile NAME" but for "default". Nested blocks (lines that are
 * indented deeper than the setting before them) are skipped.
 */
enum pl_status pl_profile_parse(const char *text, size_t bytes, const char *name, bool is_config,
                                struct pl_profile *profile, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Read the profile AWS_PROFILE ("default") from AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE
 * (~/.aws/config). Missing files are an empty profile.
 */
enum pl_status pl_profile_read(const struct pl_environment *environment, struct pl_profile *profile,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
