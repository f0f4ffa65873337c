/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PL_ENTRYPOINT_REGION_H
#define PL_ENTRYPOINT_REGION_H

#include "base/environment.h"

/**
 * The default AWS region as boto3 finds it: AWS_DEFAULT_REGION, else `region` of the profile (s3io/profile.h), else "". The caller frees
 * `*ret_region`.
 */
enum pl_status pl_region_default(const struct pl_environment *environment, char **ret_region, struct pl_error *reterr) PL_MUST_CHECK;

#endif
