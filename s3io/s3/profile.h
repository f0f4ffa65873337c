/* SPDX-License-Identifier: Apache-2.0 */
/**
 * AWS's shared profile files: INI sections with keys. S3 access needs six of the keys.
 *
 * Source  "Configuration and credential file settings" in the AWS CLI user guide.
 * Test    tests/unit/s3io/s3/test_profile.c, tests/fuzz/fuzz_credentials.c
 */
#ifndef PL_S3IO_S3_PROFILE_H
#define PL_S3IO_S3_PROFILE_H

#include "base/environment.h"

#include <stddef.h>

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
    /* name of a setting, for example "role_arn", whose source of credentials is not supported, even if there are keys
     * next to it; a static string */
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
