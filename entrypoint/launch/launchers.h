/* SPDX-License-Identifier: Apache-2.0 */
/** Which launcher a job gets. */
#ifndef PL_ENTRYPOINT_LAUNCH_LAUNCHERS_H
#define PL_ENTRYPOINT_LAUNCH_LAUNCHERS_H

#include "entrypoint/launch/plan.h"

/** The first launcher of the table that matches the job; the last matches every job. Never NULL. */
const struct pl_launcher *pl_launchers_choose(const struct pl_job *job);

#endif
