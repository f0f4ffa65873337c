/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pip's index in a repository of AWS CodeArtifact: its address and a token for it, by two signed requests.
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
 * The index of the repository `arn`, "arn:PARTITION:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY", as a URL
 * that holds a token for it: a secret. Credentials come from where an S3 client has them, the service's address from
 * AWS_ENDPOINT_URL_CODEARTIFACT, AWS_ENDPOINT_URL, the profile, else AWS's own for the region. The caller frees.
 *
 * Errors  PL_INVALID for an ARN or an endpoint of another form; those of pl_credentials_new(); PL_FAILED with the name
 *         of the request, its HTTP status and the service's words; PL_TIMEOUT.
 */
enum pl_status pl_codeartifact_index(const struct pl_environment *environment, const char *arn, char **ret_url,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
