/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun on every distribution host. The hosts find each other through torch; the link between them opens while the
 * program runs.
 */
#include "base/environment.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/needs.h"

#include <string.h>

static void add_environment(const struct pl_job *job, struct pl_launch_plan *plan)
{
    pl_interface_choose(job, plan); /* for the warning; the variables have it already */
    pl_launcher_set(plan, "NCCL_PROTO", "simple");
    if (pl_launcher_has_efa(job)) {
        pl_launcher_set(plan, "FI_PROVIDER", "efa");
    }
    if (pl_launcher_has_efa_rdma(job->instance_type)) {
        pl_launcher_set(plan, "FI_EFA_USE_DEVICE_RDMA", "1");
        pl_launcher_set(plan, "RDMAV_FORK_SAFE", "1");
    }
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const size_t hosts = job->distribution_hosts.count;
    struct pl_program program;
    struct pl_strv *argv = &plan->argv;

    plan->processes = (int)pl_hosts_sum_processes(job); /* sagemaker_mpi_num_processes is mpirun's alone */
    if (!pl_launcher_is_elastic(job->process, NULL)) {
        plan->ranks = PL_LAUNCH_PLAN_RANKS_TORCHRUN;
    }
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    if (program.kind == PL_PROGRAM_PACKAGE) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "the code has setup.py, which makes the program '%s' a module of a package, and torchrun "
                            "starts scripts: remove setup.py from the code",
                            job->program);
    }
    if (program.kind != PL_PROGRAM_SCRIPT) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s: expected a Python script for torchrun, found the program '%s'",
                            job->drivers.launch == PL_DRIVERS_LAUNCH_TORCHRUN ? "distributed.json"
                                                                              : "sagemaker_torch_distributed_enabled",
                            job->program ? job->program : program.words.items[0]);
    }
    add_environment(job, plan);
    if (strcmp(pl_environment_get_or(job->process, "RUN_NEURON_PARALLEL_COMPILE", ""), "1") == 0) {
        PL_TRY(pl_needs_tool(job, &program, "neuron_parallel_compile",
                             "build it with torch-neuronx, or leave RUN_NEURON_PARALLEL_COMPILE out", plan, reterr));
        pl_strv_add(argv, "neuron_parallel_compile");
    }
    PL_TRY(pl_needs_torchrun(job, &program, plan, reterr));
    pl_strv_add(argv, "torchrun");
    plan->program_words = argv->count;
    pl_strv_add(argv, "--nnodes");
    pl_strv_printf(argv, "%zu", hosts);
    pl_strv_add(argv, "--nproc_per_node");
    pl_strv_printf(argv, "%d", job->processes_per_host);
    if (hosts > 1) {
        pl_strv_add(argv, "--master_addr", job->master_host, "--master_port");
        pl_strv_printf(argv, "%d", PL_JOB_MASTER_PORT);
        pl_strv_add(argv, "--node_rank");
        pl_strv_printf(argv, "%d", plan->host_index);
    }
    pl_strv_add_all(argv, &program.words);
    return pl_program_add_arguments(job, &program, argv, reterr);
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
    .name = "torchrun", .launch = PL_JOB_TORCHRUN, .plan = make_plan, .describe = describe};
