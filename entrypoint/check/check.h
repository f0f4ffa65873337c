/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline check`, and `paceline_check` before a job: a job of its own on the same hosts, whose program is
 * paceline-check (programs/check/check.h) and which is launched as an MPI job is.
 *
 * Test  tests/unit/entrypoint/check/test_check.c, tests/integration/check.sh
 */
#ifndef PL_ENTRYPOINT_CHECK_CHECK_H
#define PL_ENTRYPOINT_CHECK_CHECK_H

#include "entrypoint/launch/plan.h"

/**
 * The check of `job` with the options `words`, or, where they are NULL, those of the setting PACELINE_CHECK: then
 * `*ret_check` is NULL where the job wants none.
 *
 * Errors  PL_INVALID (the setting), PL_NOT_FOUND (no paceline-check in this image), and those of pl_job_new().
 */
enum pl_status pl_check_new(const struct pl_job *job, const struct pl_strv *words, struct pl_job **ret_check,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Take out of the plan of a check what only the job needs, and have mpirun end in time, without its own tables. */
enum pl_status pl_check_adapt_plan(const struct pl_job *check, struct pl_launch_plan *plan,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
