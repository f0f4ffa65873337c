/* SPDX-License-Identifier: Apache-2.0 */
/** The launchers, one file each, and their common functions. plan.c holds their table. */
#ifndef PL_ENTRYPOINT_LAUNCH_LAUNCHER_H
#define PL_ENTRYPOINT_LAUNCH_LAUNCHER_H

#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"

#include <netinet/in.h>

/**
 * For `paceline rank`: how many processes a rank starts. These are the workers of its host if the rank is a parameter
 * server.
 */
#define PL_LAUNCHER_WORKERS_VARIABLE "PACELINE_RANK_WORKERS"

/** For `paceline rank`: the host of rank 0, from which it makes MASTER_ADDR. */
#define PL_LAUNCHER_MASTER_VARIABLE "PACELINE_MASTER_ADDR"

/** The tag of ranks' lines: "auto" (mpirun's; under torchrun as "rank"), "rank" (`paceline rank`'s), "off" (none). */
#define PL_LAUNCHER_TAGS_VARIABLE "PACELINE_RANK_TAGS"

/**
 * A launcher: one file for each, and one table in plan.c. `plan` fills argv and side, and adds to plan->additions; the
 * hosts are chosen before. `describe` appends what runs on how many hosts, for the line that `paceline train` logs at
 * the start. If it is NULL or appends nothing, each host runs one program.
 */
struct pl_launcher {
    const char *name;
    unsigned launch; /* the enum pl_job_launch that asks for it; 0: none */
    bool needs_link; /* the job runs only if its hosts are linked: PL_LAUNCH_PLAN_LINK_NEEDED, else _BESIDE */
    /* fills role, hosts and link; NULL: the hosts of the distribution, by pl_launcher_use_hosts() */
    void (*use_hosts)(const struct pl_job *job, struct pl_launch_plan *plan);
    enum pl_status (*plan)(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr);
    const char *cause; /* if `plan` is NULL: why this launch of the toolkit is refused */
    void (*describe)(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text);
};

extern const struct pl_launcher pl_launcher_sweep;
extern const struct pl_launcher pl_launcher_mpi;
extern const struct pl_launcher pl_launcher_native_server;
extern const struct pl_launcher pl_launcher_torchrun;
extern const struct pl_launcher pl_launcher_parameter_server;
extern const struct pl_launcher pl_launcher_multi_worker_mirrored;
extern const struct pl_launcher pl_launcher_direct;

/** Whether this host belongs to the job's distribution groups. */
bool pl_launcher_includes(const struct pl_job *job);

/**
 * Fill hosts, host_index, role and link for a launch on `hosts`; `index` is the number of this host. The link is what
 * plan->launcher needs. If the launcher does not need a link, the settings or torchrun's own variables can switch it
 * off.
 */
void pl_launcher_use_hosts(const struct pl_job *job, const struct pl_strv *hosts, int index,
                           struct pl_launch_plan *plan);

/** Append "N ranks on N hosts". */
void pl_launcher_describe_ranks(const struct pl_launch_plan *plan, struct pl_text *text);

/**
 * Whether torchrun is to survive the loss of ranks or hosts, according to its variables (PET_MAX_RESTARTS, PET_NNODES)
 * or its options in the words of a command, or of a shell's command. If it is, torchrun decides what the loss of a rank
 * or host means.
 */
bool pl_launcher_is_elastic(const struct pl_environment *environment, const struct pl_strv *words);

/** Set a variable that train adds for the program. If memory is out, plan->pool remembers that. */
void pl_launcher_set(struct pl_launch_plan *plan, const char *name, const char *value);

/** pl_launcher_set(), unless the container has the variable. */
void pl_launcher_set_unless_set(const struct pl_job *job, struct pl_launch_plan *plan, const char *name,
                                const char *value);

/** Whether this host has an Elastic Fabric Adapter, or its instance type is in the list of types that have one. */
bool pl_launcher_has_efa(const struct pl_job *job);

/**
 * Whether the adapter of the instance type reads and writes device memory. For other types libfabric finds that out by
 * itself.
 */
bool pl_launcher_has_efa_rdma(const char *instance_type);

/**
 * Choose the network interface for traffic between hosts: the configured one if it exists, else the one that leads to
 * the other hosts, with a sentence in plan->warnings. Returns its name, which lives as long as the plan.
 */
const char *pl_interface_choose(const struct pl_job *job, struct pl_launch_plan *plan);

/**
 * Set this interface in `environment`, in the variables of NCCL, Gloo and TensorPipe, which otherwise look up the
 * host's own name or take the first interface; what the container sets stays.
 */
enum pl_status pl_interface_set(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Print this host's own address, which other hosts reach: this interface's first, IPv4 before IPv6. */
enum pl_status pl_interface_address(const struct pl_job *job, char text[static INET6_ADDRSTRLEN],
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Whether this host has the address, IPv4 or IPv6. */
bool pl_interface_has(const struct sockaddr *address);

#endif
