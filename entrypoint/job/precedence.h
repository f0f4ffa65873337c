/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Decides how a job runs if both version 3 of the SDK and hyperparameters say it: the SDK's files take precedence, and
 * hyperparameters decide what these leave open. Values without an effect are listed in job->conflicts.
 *
 * The level of the log is here too: a setting of Paceline, or the one that the SDK sends.
 *
 * Source  docs/contract.md, "Version 3 of the SDK"
 * Test    tests/unit/entrypoint/job/test_drivers.c
 */
#ifndef PL_ENTRYPOINT_JOB_PRECEDENCE_H
#define PL_ENTRYPOINT_JOB_PRECEDENCE_H

#include "entrypoint/job/job.h"

/** Choose program, command, code directory and requirements. Call it after the hyperparameters have been read. */
enum pl_status pl_precedence_program(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Choose the level of Paceline's own lines: the setting, else sagemaker_container_log_level. */
enum pl_status pl_precedence_log(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Choose the launch: job->switches. */
enum pl_status pl_precedence_launch(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
