/* SPDX-License-Identifier: Apache-2.0 */
/** Chooses the launcher of a job. */
#ifndef PL_ENTRYPOINT_LAUNCH_LAUNCHERS_H
#define PL_ENTRYPOINT_LAUNCH_LAUNCHERS_H

#include "entrypoint/launch/plan.h"

/**
 * Returns the first launcher of the table that matches the job. It is never NULL, because the last matches every job.
 */
const struct pl_launcher *pl_launchers_choose(const struct pl_job *job);

#endif
