/* SPDX-License-Identifier: Apache-2.0 */
/** Finds values of a job that must not be shown, by their names. */
#ifndef PL_ENTRYPOINT_JOB_SECRETS_H
#define PL_ENTRYPOINT_JOB_SECRETS_H

#include "entrypoint/job/job.h"

/**
 * Whether a variable or hyperparameter of this name probably holds a secret: the name contains PASSWORD, SECRET or
 * CREDENTIALS, or one of the words KEY, TOKEN, PRIVATE, CREDS.
 */
bool pl_secrets_is_name(const char *name);

/**
 * Replace by "***" every value whose name looks like the name of a secret, whatever its type and however deep it lies,
 * so that output made from `job` may be shown. This covers the hyperparameters of the user, of the framework
 * (sagemaker_*) and of Paceline, and the value of each NAME=value in the custom MPI options. Empty texts and null stay.
 * Use it for `paceline plan`: a job that is to run must not be masked.
 */
enum pl_status pl_secrets_mask(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
