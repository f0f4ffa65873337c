/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: trials of the job's program on all hosts, which entrypoint/sweep starts, each as a job of its own. The plan
 * has no program; it brings the code and its requirements into place, once for all trials.
 */
#include "entrypoint/launch/launcher.h"

static bool matches(const struct pl_job *job)
{
    return !job->is_check && pl_job_option(job, "PACELINE_SWEEP", NULL) != NULL;
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_PROGRAM struct pl_program program = {.kind = PL_PROGRAM_COMMAND};

    if (job->hosts.count > 1) {
        PL_TRY(pl_launcher_use_hosts(job, &job->hosts, job->host_index, PL_LAUNCH_PLAN_LINK_NEEDED, plan, reterr));
    } else {
        PL_TRY(pl_strv_add(&plan->hosts, job->current_host, reterr));
    }
    plan->processes = 1;
    return pl_program_find(job, &program, plan, reterr);
}

const struct pl_launcher pl_launcher_sweep = {.name = "sweep", .matches = matches, .plan = make_plan};
