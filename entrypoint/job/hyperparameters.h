/* SPDX-License-Identifier: Apache-2.0 */
/** hyperparameters.json: decodes each value as the toolkit does, and sorts the names by who reads them. */
#ifndef PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H
#define PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H

#include "entrypoint/job/job.h"

/** The hyperparameters of which each switches on a launch; the last name is NULL. */
extern const struct pl_hyperparameters_launch {
    const char *name;
    enum pl_job_launch launch;
} pl_hyperparameters_launch_names[];

/**
 * Decode and sort the members of `raw`, the whole file, into hyperparameters, framework, platform and setting_values of
 * `job`.
 */
enum pl_status pl_hyperparameters_sort(const struct pl_python_json *raw, struct pl_job *job,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the set of the launches that are switched on in `framework`. */
unsigned pl_hyperparameters_launches(const struct pl_python_json *framework);

/**
 * Add a warning for each name in `framework` that is similar to a name that SageMaker knows: it is probably mistyped,
 * and would be ignored without a message.
 */
void pl_hyperparameters_check(const struct pl_python_json *framework, struct pl_strv *warnings);

/**
 * Whether a decoded value is true in Python; absent and null are false. One difference: the text "False", in any case,
 * is false, because some SDK calls send the boolean in this form.
 */
bool pl_hyperparameters_is_true(const struct pl_python_json *node);

#endif
