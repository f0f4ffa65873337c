/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one process on this host. In a job with several hosts each host starts its own. */
#include "entrypoint/launch/launcher.h"

#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/job/devices.h"

#include <stdio.h>

static bool matches(const struct pl_job *job)
{
    (void)job;
    return true;
}

/* Libraries start one thread per CPU of the machine, but a container with a CPU limit can keep only some of them
 * busy. */
static enum pl_status limit_threads(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char *const variables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    int limit = pl_devices_cpu_limit("");
    char text[16];

    snprintf(text, sizeof(text), "%d", limit);
    for (size_t i = 0; limit > 0 && limit < job->cpus && i < PL_ARRAY_ITEMS(variables); i++) {
        if (!pl_environment_get(job->process, variables[i])) {
            PL_TRY(pl_launcher_set(plan, variables[i], text, reterr));
        }
    }
    return PL_OK;
}

/* A host in no distribution group is outside the launch, and the master of the group links it. */
static enum pl_status use_outside(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv pair = PL_STRV_NONE;

    PL_TRY(pl_strv_add_list(&pair, (const char *const[]){job->master_host, job->current_host, NULL}, reterr));
    PL_TRY(pl_launcher_use_hosts(job, &pair, 1, plan, reterr));
    plan->is_outside = plan->link != PL_LAUNCH_PLAN_LINK_NONE;
    return PL_OK;
}

static enum pl_status use_alone(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    pl_strv_done(&plan->hosts);
    plan->role = PL_LAUNCH_PLAN_SINGLE;
    plan->host_index = 0;
    plan->link = PL_LAUNCH_PLAN_LINK_NONE;
    plan->is_outside = false;
    return pl_strv_add(&plan->hosts, job->current_host, reterr);
}

/* Without distribution groups all hosts are linked with each other. */
static enum pl_status use_hosts(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const bool is_other = job->drivers.launch == PL_DRIVERS_LAUNCH_OTHER;

    if (pl_strv_find(&job->outside_hosts, job->current_host) >= 0) {
        PL_TRY(is_other ? PL_OK : use_outside(job, plan, reterr));
        return plan->is_outside ? PL_OK : use_alone(job, plan, reterr);
    }
    if (job->hosts.count < 2 || (job->distribution_groups.count > 0 && !is_other)) {
        return use_alone(job, plan, reterr);
    }
    PL_TRY(pl_launcher_use_hosts(job, &job->hosts, pl_strv_find(&job->hosts, job->current_host), plan, reterr));
    /* somebody else's driver may need sshd and its port for itself */
    plan->link = is_other ? PL_LAUNCH_PLAN_LINK_NONE : plan->link;
    return PL_OK;
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_PROGRAM struct pl_program program = {.kind = PL_PROGRAM_COMMAND};

    PL_TRY(use_hosts(job, plan, reterr));
    plan->processes = 1;
    plan->needs_no_peers = job->drivers.launch != PL_DRIVERS_LAUNCH_OTHER;
    PL_TRY(limit_threads(job, plan, reterr));
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    PL_TRY(pl_program_use(job, &program, plan, reterr));
    if (!pl_launcher_is_elastic(job->process, &plan->argv)) {
        return PL_OK;
    }
    if (plan->is_outside) {
        return use_alone(job, plan, reterr);
    }
    plan->link = PL_LAUNCH_PLAN_LINK_NONE;
    return PL_OK;
}

const struct pl_launcher pl_launcher_direct = {
    .name = "direct", .matches = matches, .use_hosts = use_hosts, .plan = make_plan};
