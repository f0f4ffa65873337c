/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The variables that a program gets: SM_*, SAGEMAKER_*, CURRENT_HOST, byte for byte as the Python toolkit makes them.
 *
 * Source  docs/contract.md, "What a program sees"; differences: docs/differences.md
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/golden.py
 */
#ifndef PL_ENTRYPOINT_JOB_VARIABLES_H
#define PL_ENTRYPOINT_JOB_VARIABLES_H

#include "base/environment.h"
#include "entrypoint/job/job.h"

/** The most bytes that Linux passes in one argument or one "NAME=value", with the NUL (MAX_ARG_STRLEN). */
enum { PL_VARIABLES_STRING_MAX_BYTES = 131072 };

/**
 * Set in `environment` every variable that `job` gives its program, in the toolkit's order: SM_* (the names that mpirun
 * exports), then SAGEMAKER_JOB_NAME, CURRENT_HOST, SAGEMAKER_REGION, then PYTHONPATH, PYTHONUNBUFFERED if the container
 * does not set it, and Paceline's own settings.
 *
 * A value above Linux's limit for one string (128 KiB) is left out, because with it the program could not start; this
 * may happen to SM_HPS, SM_TRAINING_ENV, SM_USER_ARGS and similar variables. The name is also removed from `inherited`
 * (may be NULL), the program's other variables: its value there belongs to another job. A hyperparameter with '=' in
 * its name has no variable. Each such case adds a sentence to `warnings`.
 */
enum pl_status pl_variables_add(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_environment *inherited, struct pl_strv *warnings,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append the bytes that a program gets for a text in the inner form of base/json/python_json.h: lone surrogates
 * DC80..DCFF become the bytes that they stand for, others U+FFFD. PL_INVALID for U+0000, which neither arguments nor
 * variables can hold.
 */
enum pl_status pl_variables_os_text(const char *inner, struct pl_text *text) PL_MUST_CHECK;

#endif
