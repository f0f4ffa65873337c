/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one process on this host. In a job with several hosts each host starts its own. */
#include "entrypoint/launch/launcher.h"

#include "base/environment.h"
#include "base/memory.h"

#include <stdio.h>

/* Libraries start one thread per CPU of the machine, but a container with a CPU limit can keep only some of them
 * busy. */
static void limit_threads(const struct pl_job *job, struct pl_launch_plan *plan)
{
    const int limit = job->cpu_limit;
    char text[16];

    if (limit > 0 && limit < job->cpus) {
        snprintf(text, sizeof(text), "%d", limit);
        pl_launcher_set_unless_set(job, plan, "OMP_NUM_THREADS", text);
        pl_launcher_set_unless_set(job, plan, "OPENBLAS_NUM_THREADS", text);
    }
}

/* A host in no distribution group is outside the launch, and the master of the group links it. */
static void use_outside(const struct pl_job *job, struct pl_launch_plan *plan)
{
    struct pl_strv pair = {.pool = &plan->pool};

    pl_strv_add(&pair, job->master_host, job->current_host);
    pl_launcher_use_hosts(job, &pair, 1, plan);
    plan->is_outside = plan->link != PL_LAUNCH_PLAN_LINK_NONE;
}

static void use_alone(const struct pl_job *job, struct pl_launch_plan *plan)
{
    pl_strv_done(&plan->hosts);
    plan->role = PL_LAUNCH_PLAN_SINGLE;
    plan->host_index = 0;
    plan->link = PL_LAUNCH_PLAN_LINK_NONE;
    plan->is_outside = false;
    pl_strv_add(&plan->hosts, job->current_host);
}

/* Without distribution groups all hosts are linked with each other. */
static void use_hosts(const struct pl_job *job, struct pl_launch_plan *plan)
{
    const bool is_other = job->drivers.launch == PL_DRIVERS_LAUNCH_OTHER;
    const bool is_outside = pl_strv_find(&job->outside_hosts, job->current_host) >= 0;

    if (is_outside && !is_other) {
        use_outside(job, plan);
    }
    if (is_outside || job->hosts.count < 2 || (job->distribution_groups.count > 0 && !is_other)) {
        if (!plan->is_outside) {
            use_alone(job, plan);
        }
        return;
    }
    pl_launcher_use_hosts(job, &job->hosts, pl_strv_find(&job->hosts, job->current_host), plan);
    /* somebody else's driver may need sshd and its port for itself */
    plan->link = is_other ? PL_LAUNCH_PLAN_LINK_NONE : plan->link;
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    struct pl_program program;

    plan->processes = 1;
    plan->needs_no_peers = job->drivers.launch != PL_DRIVERS_LAUNCH_OTHER;
    limit_threads(job, plan);
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    PL_TRY(pl_program_use(job, &program, plan, reterr));
    if (pl_launcher_is_elastic(job->process, &plan->argv)) {
        plan->link = PL_LAUNCH_PLAN_LINK_NONE;
        if (plan->is_outside) {
            use_alone(job, plan);
        }
    }
    return PL_OK;
}

const struct pl_launcher pl_launcher_direct = {.name = "direct", .use_hosts = use_hosts, .plan = make_plan};
