/* SPDX-License-Identifier: Apache-2.0 */
/** Making a plan's list of steps. */
#ifndef PL_ENTRYPOINT_LAUNCH_STEPS_H
#define PL_ENTRYPOINT_LAUNCH_STEPS_H

#include "entrypoint/launch/plan.h"

/**
 * Add a step without words yet; `*ret_argv`, where they go, is valid until the next step is added. `cwd` may be NULL.
 */
enum pl_status pl_steps_add(struct pl_plan_steps *steps, const char *what, const char *cwd, struct pl_words **ret_argv,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Set a variable for the step that was added last. */
enum pl_status pl_steps_set(struct pl_plan_steps *steps, const char *name, const char *value,
                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
