/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Paceline's settings: their names, their values, and warnings for mistyped names, which would otherwise be ignored in
 * silence. The runtime's settings are in base/knob.h.
 *
 * Test  tests/unit/entrypoint/launch/test_plan.c, tests/unit/entrypoint/job/test_settings.c
 */
#ifndef PL_ENTRYPOINT_JOB_SETTINGS_H
#define PL_ENTRYPOINT_JOB_SETTINGS_H

#include "entrypoint/job/job.h"

/**
 * Whether `name` ("PACELINE_STOP_S") is a setting: of this folder, of the runtime, or a variable that Paceline sets for
 * its own processes.
 */
bool pl_settings_have(const char *name);

/**
 * Whether each setting of the job, and each Horovod variable that is an alias for one, has a valid value.
 * pl_job_new() calls it, so that a job is refused before anything is fetched or started.
 *
 * Errors  PL_INVALID naming the variable or hyperparameter, its value and what was expected.
 */
enum pl_status pl_settings_check_values(const struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** The number that the setting `name` of this folder has in the job. */
double pl_settings_number(const struct pl_job *job, const char *name);

/**
 * Add a warning for each hyperparameter paceline_* that is no setting, since no program sees it either, and for each
 * variable PACELINE_* that is nearly one. Other variables of that form may belong to the user's program.
 */
enum pl_status pl_settings_check(const struct pl_job *job, struct pl_words *warnings,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
