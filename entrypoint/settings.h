/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The names of Paceline's settings, and those that look like one and are none: a mistyped setting would be ignored in silence.
 *
 * Test  tests/unit/entrypoint/test_plan.c
 */
#ifndef PL_ENTRYPOINT_SETTINGS_H
#define PL_ENTRYPOINT_SETTINGS_H

#include "entrypoint/job.h"

/** Whether `name` ("PACELINE_STOP_S") is a setting: of this folder, a knob, or a variable that Paceline sets for its own processes. */
bool pl_settings_have(const char *name);

/**
 * Add a warning for each hyperparameter paceline_* that is no setting, since no program sees it either, and for each variable PACELINE_*
 * that is nearly one. Other variables of that name are somebody's own.
 */
enum pl_status pl_settings_check(const struct pl_job *job, struct pl_words *warnings, struct pl_error *reterr) PL_MUST_CHECK;

#endif
