/* SPDX-License-Identifier: Apache-2.0 */
/** What must not be shown of a job, found by names. */
#ifndef PL_ENTRYPOINT_JOB_SECRETS_H
#define PL_ENTRYPOINT_JOB_SECRETS_H

#include "entrypoint/job/job.h"

/**
 * True when a variable or hyperparameter of this name probably holds a secret: PASSWORD, SECRET, CREDENTIALS, or a word
 * KEY, TOKEN, PRIVATE, CREDS.
 */
bool pl_secrets_is_name(const char *name);

/**
 * Replace by "***" every value under a name that looks like a secret, whatever its kind and however deep it lies, so
 * that what is made from `job` afterwards may be shown. Hyperparameters of the user, of the framework (sagemaker_*) and
 * Paceline's own; in the custom MPI options the value of each NAME=value. Empty texts and null stay. For `paceline
 * plan`: a job that is to run is never masked.
 */
enum pl_status pl_secrets_mask(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
