/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun on every distribution host. The hosts find each other through torch; the link between them opens while the
 * program runs.
 */
#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/job/processes.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/needs.h"

#include <stdio.h>
#include <string.h>

static bool matches(const struct pl_job *job)
{
    return job->switches.torch_distributed && pl_launcher_includes(job);
}

static enum pl_status add_environment(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_FREE char *interface = NULL;

    PL_TRY(pl_interface_choose(job, plan, &interface, reterr)); /* for the warning; the variables have it already */
    PL_TRY(pl_launcher_set(plan, "NCCL_PROTO", "simple", reterr));
    if (pl_launcher_has_efa(job)) {
        PL_TRY(pl_launcher_set(plan, "FI_PROVIDER", "efa", reterr));
    }
    if (pl_launcher_has_efa_rdma(job->instance_type)) {
        PL_TRY(pl_launcher_set(plan, "FI_EFA_USE_DEVICE_RDMA", "1", reterr));
        PL_TRY(pl_launcher_set(plan, "RDMAV_FORK_SAFE", "1", reterr));
    }
    return PL_OK;
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_PROGRAM struct pl_program program = {.kind = PL_PROGRAM_COMMAND};
    size_t hosts = job->distribution_hosts.count;

    PL_TRY(pl_launcher_use_hosts(job, &job->distribution_hosts, job->distribution_index, plan, reterr));
    plan->processes = (int)pl_processes_sum(job); /* sagemaker_mpi_num_processes is mpirun's alone */
    if (!pl_launcher_is_elastic(job->process, NULL)) {
        plan->ranks = PL_LAUNCH_PLAN_RANKS_TORCHRUN;
    }
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    if (program.kind != PL_PROGRAM_SCRIPT) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s: expected a Python script for torchrun, found the program '%s'",
                            job->drivers.launch == PL_DRIVERS_LAUNCH_TORCHRUN ? "distributed.json"
                                                                              : "sagemaker_torch_distributed_enabled",
                            job->program ? job->program : program.words.items[0]);
    }
    PL_TRY(add_environment(job, plan, reterr));
    if (strcmp(pl_environment_get_or(job->process, "RUN_NEURON_PARALLEL_COMPILE", ""), "1") == 0) {
        PL_TRY(pl_needs_tool(job, &program, "neuron_parallel_compile",
                             "build it with torch-neuronx, or leave RUN_NEURON_PARALLEL_COMPILE out", plan, reterr));
        PL_TRY(pl_strv_add(&plan->argv, "neuron_parallel_compile", reterr));
    }
    PL_TRY(pl_needs_torchrun(job, &program, plan, reterr));
    PL_TRY(pl_strv_add(&plan->argv, "torchrun", reterr));
    plan->program_words = plan->argv.count;
    PL_TRY(pl_strv_add(&plan->argv, "--nnodes", reterr));
    PL_TRY(pl_strv_printf(&plan->argv, reterr, "%zu", hosts));
    PL_TRY(pl_strv_add(&plan->argv, "--nproc_per_node", reterr));
    PL_TRY(pl_strv_printf(&plan->argv, reterr, "%d", job->processes_per_host));
    if (hosts > 1) {
        PL_TRY(pl_strv_add_list(
            &plan->argv, (const char *const[]){"--master_addr", job->master_host, "--master_port", NULL}, reterr));
        PL_TRY(pl_strv_printf(&plan->argv, reterr, "%d", PL_JOB_MASTER_PORT));
        PL_TRY(pl_strv_add(&plan->argv, "--node_rank", reterr));
        PL_TRY(pl_strv_printf(&plan->argv, reterr, "%d", plan->host_index));
    }
    PL_TRY(pl_strv_add_all(&plan->argv, &program.words, reterr));
    return pl_program_add_arguments(job, &program, &plan->argv, reterr);
}

/* In an elastic launch torchrun decides how many ranks there are, so nothing is appended. */
static void describe(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    (void)job;
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_TORCHRUN) {
        pl_launcher_describe_ranks(plan, text);
    }
}

const struct pl_launcher pl_launcher_torchrun = {
    .name = "torchrun", .matches = matches, .plan = make_plan, .describe = describe};
