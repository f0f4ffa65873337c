/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The address of a pip index in a repository of AWS CodeArtifact, and a token for it, by two signed requests.
 *
 * Source  AWS CodeArtifact API Reference: GetAuthorizationToken, GetRepositoryEndpoint; user guide: "Configure and use
 *         pip with CodeArtifact".
 * Test    tests/integration/codeartifact.py
 */
#ifndef PL_PROGRAMS_INDEX_CODEARTIFACT_H
#define PL_PROGRAMS_INDEX_CODEARTIFACT_H

#include "base/environment.h"
#include "base/status.h"

/**
 * Returns the index of the repository `arn`, "arn:PARTITION:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY",
 * as a URL that holds a token for it. The URL is a secret; the caller frees it. Credentials come from the same places
 * as for an S3 client. The service's address comes from AWS_ENDPOINT_URL_CODEARTIFACT, AWS_ENDPOINT_URL, the profile,
 * or else is AWS's own for the region.
 *
 * Errors  PL_INVALID for an ARN or an endpoint of another form; those of pl_credentials_new(); PL_FAILED with the name
 *         of the request, its HTTP status and the service's words; PL_TIMEOUT.
 */
enum pl_status pl_codeartifact_index(const struct pl_environment *environment, const char *arn, char **ret_url,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
