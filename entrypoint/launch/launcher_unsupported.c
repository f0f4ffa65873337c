/* SPDX-License-Identifier: Apache-2.0 */
/* Distributions that the toolkit starts and Paceline does not: they are refused at once with a clear message. */
#include "entrypoint/launch/launcher.h"

static bool matches_smddp(const struct pl_job *job)
{
    return job->switches.smddp && pl_launcher_includes(job);
}

static enum pl_status refuse_smddp(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    (void)job;
    (void)plan;
    return pl_error_set(reterr, PL_UNSUPPORTED,
                        "SageMaker's distributed data parallel library (smddp) is not supported: use "
                        "distribution={\"torch_distributed\": {\"enabled\": True}} and "
                        "init_process_group(\"nccl\") in place of \"smddp\"; for a program with Horovod "
                        "distribution={\"mpi\": {\"enabled\": True}}");
}

static bool matches_xla(const struct pl_job *job)
{
    return job->switches.xla && pl_launcher_includes(job);
}

static enum pl_status refuse_xla(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    (void)job;
    (void)plan;
    return pl_error_set(reterr, PL_UNSUPPORTED,
                        "PyTorch/XLA workers (Training Compiler) are not supported, use MPI: distribution={\"mpi\": "
                        "{\"enabled\": True}}");
}

const struct pl_launcher pl_launcher_smddp = {.name = "smddp", .matches = matches_smddp, .plan = refuse_smddp};
const struct pl_launcher pl_launcher_xla = {.name = "xla", .matches = matches_xla, .plan = refuse_xla};
