/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Paceline's settings: their names, their values, and warnings for mistyped names, which would otherwise be ignored in
 * silence. The runtime's settings are in base/knob.h.
 *
 * `environment` is the container's, and `hyperparameters` has "PACELINE_NAME=value" for each one named paceline_*; a
 * variable that is not empty wins. pl_job_option() and pl_job_number() read those of a job.
 *
 * Test  tests/unit/entrypoint/launch/test_plan.c, tests/unit/entrypoint/job/test_settings.c
 */
#ifndef PL_ENTRYPOINT_JOB_SETTINGS_H
#define PL_ENTRYPOINT_JOB_SETTINGS_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/**
 * Whether `name` ("PACELINE_STOP_S") is a setting: of this folder, a knob, one that is gone, or a variable that
 * Paceline sets for its own processes.
 */
bool pl_settings_have(const char *name);

/**
 * Whether each setting, and each variable of Horovod's that stands for one, has a value that it can have. pl_job_new()
 * asks, so that a job is refused before anything is fetched or started.
 *
 * Errors  PL_INVALID naming the variable or hyperparameter, its value and what was expected.
 */
enum pl_status pl_settings_check_values(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** The value of the setting `name` ("PACELINE_PYTHON"), else `fallback`. */
const char *pl_settings_text(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                             const char *name, const char *fallback);

/** The number that the setting `name` of this folder has. */
double pl_settings_number(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                          const char *name);

/**
 * Add a warning for each hyperparameter paceline_* that is no setting, since no program sees it either, and for each
 * variable PACELINE_* that is nearly one. Other variables of that form may belong to the user's program.
 */
enum pl_status pl_settings_check(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                 struct pl_strv *warnings, struct pl_error *reterr) PL_MUST_CHECK;

#endif
