/* SPDX-License-Identifier: Apache-2.0 */
/* What the launchers share: hosts, roles, instance types with EFA. */
#include "entrypoint/launch/launcher.h"

#include "base/memory.h"

#include <string.h>

bool pl_launcher_includes(const struct pl_job *job)
{
    return pl_strv_find(&job->distribution_groups, job->group_name) >= 0 && job->distribution_index >= 0;
}

enum pl_status pl_launcher_use_hosts(const struct pl_job *job, bool linked, struct pl_launch_plan *plan,
                                     struct pl_error *reterr)
{
    PL_TRY(pl_strv_add_all(&plan->hosts, &job->distribution_hosts, reterr));
    plan->host_index = job->distribution_index;
    plan->role = plan->host_index == 0 ? PL_LAUNCH_PLAN_MASTER : PL_LAUNCH_PLAN_WORKER;
    plan->needs_link = linked && plan->hosts.count > 1;
    return PL_OK;
}

enum pl_status pl_launcher_set(struct pl_launch_plan *plan, const char *name, const char *value,
                               struct pl_error *reterr)
{
    return pl_environment_set(plan->additions, name, value, reterr);
}

enum fabric { FABRIC_EFA = 1, FABRIC_RDMA = 2 };

/* The toolkit's two lists as of its version 5.1.4, and after the comment what they lack. */
static const struct {
    const char *type;
    int fabric;
} fabrics[] = {
    {"ml.g4dn.8xlarge", FABRIC_EFA},
    {"ml.g4dn.12xlarge", FABRIC_EFA},
    {"ml.g5.48xlarge", FABRIC_EFA},
    {"ml.p3dn.24xlarge", FABRIC_EFA},
    {"ml.p4d.24xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p4de.24xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p5.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p5e.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn1.32xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p6e-gb200.36xlarge", FABRIC_EFA | FABRIC_RDMA},
    /* not in the toolkit */
    {"ml.g6.8xlarge", FABRIC_EFA},
    {"ml.g6.12xlarge", FABRIC_EFA},
    {"ml.g6.16xlarge", FABRIC_EFA},
    {"ml.g6.24xlarge", FABRIC_EFA},
    {"ml.g6.48xlarge", FABRIC_EFA},
    {"ml.g6e.8xlarge", FABRIC_EFA},
    {"ml.g6e.12xlarge", FABRIC_EFA},
    {"ml.g6e.16xlarge", FABRIC_EFA},
    {"ml.g6e.24xlarge", FABRIC_EFA},
    {"ml.g6e.48xlarge", FABRIC_EFA},
    {"ml.p5en.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p6-b200.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn1n.32xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn2.48xlarge", FABRIC_EFA | FABRIC_RDMA},
};

static int fabric_of(const char *instance_type)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(fabrics); i++) {
        if (strcmp(instance_type, fabrics[i].type) == 0) {
            return fabrics[i].fabric;
        }
    }
    return 0;
}

bool pl_launcher_has_efa(const char *instance_type)
{
    return (fabric_of(instance_type) & FABRIC_EFA) != 0;
}

bool pl_launcher_has_efa_rdma(const char *instance_type)
{
    return (fabric_of(instance_type) & FABRIC_RDMA) != 0;
}
