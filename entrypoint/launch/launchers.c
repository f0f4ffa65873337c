/* SPDX-License-Identifier: Apache-2.0 */
/* The table of launchers, and the choice of one for a job. */
#include "entrypoint/launch/launchers.h"

#include "entrypoint/launch/launcher.h"

/* A job gets the first launcher that matches. The last matches every job. */
static const struct pl_launcher *const launchers[] = {
    &pl_launcher_sweep,
    &pl_launcher_mpi,
    &pl_launcher_native_server,
    &pl_launcher_smddp,
    &pl_launcher_torchrun,
    &pl_launcher_parameter_server,
    &pl_launcher_multi_worker_mirrored,
    &pl_launcher_xla,
    &pl_launcher_direct,
};

const struct pl_launcher *pl_launchers_choose(const struct pl_job *job)
{
    size_t at = 0;

    while (!launchers[at]->matches(job)) {
        at++;
    }
    return launchers[at];
}
