/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline check`, and `paceline_check` before a job: a separate job on the same hosts. Its program is paceline-check
 * (programs/check/check.h), and it is launched like an MPI job.
 *
 * Test  tests/unit/entrypoint/check/test_check.c, tests/integration/check.sh
 */
#ifndef PL_ENTRYPOINT_CHECK_CHECK_H
#define PL_ENTRYPOINT_CHECK_CHECK_H

#include "entrypoint/launch/plan.h"

/**
 * Make the check of `job` with the options `words`. If `words` is NULL, the setting PACELINE_CHECK has the options, and
 * `*ret_check` is NULL if the job wants no check.
 *
 * Errors  PL_INVALID (the setting), PL_NOT_FOUND (no paceline-check in this image), and those of pl_job_new().
 */
enum pl_status pl_check_new(const struct pl_job *job, const struct pl_strv *words, struct pl_job **ret_check,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Remove from the plan of a check the steps that only the job needs. Add a timeout to mpirun, and remove its own
 * tables.
 */
enum pl_status pl_check_adapt_plan(struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
