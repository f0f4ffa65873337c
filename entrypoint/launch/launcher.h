/* SPDX-License-Identifier: Apache-2.0 */
/** The launchers, one file each, and what they share. launchers.c holds the table. */
#ifndef PL_ENTRYPOINT_LAUNCH_LAUNCHER_H
#define PL_ENTRYPOINT_LAUNCH_LAUNCHER_H

#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"

/** How many processes a rank starts, for `paceline rank`: its host's workers, where it is a parameter server. */
#define PL_LAUNCHER_WORKERS_VARIABLE "PACELINE_RANK_WORKERS"

/** The host of rank 0, for `paceline rank`, which makes MASTER_ADDR of it. */
#define PL_LAUNCHER_MASTER_VARIABLE "PACELINE_MASTER_ADDR"

/** "off": torchrun's ranks have no tag before their lines. `paceline rank` reads it. */
#define PL_LAUNCHER_TAGS_VARIABLE "PACELINE_RANK_TAGS"

extern const struct pl_launcher pl_launcher_sweep;
extern const struct pl_launcher pl_launcher_mpi;
extern const struct pl_launcher pl_launcher_native_server;
extern const struct pl_launcher pl_launcher_smddp;
extern const struct pl_launcher pl_launcher_torchrun;
extern const struct pl_launcher pl_launcher_parameter_server;
extern const struct pl_launcher pl_launcher_multi_worker_mirrored;
extern const struct pl_launcher pl_launcher_xla;
extern const struct pl_launcher pl_launcher_direct;

/** True when this host belongs to the job's distribution groups. */
bool pl_launcher_includes(const struct pl_job *job);

/**
 * Fill hosts, host_index, role and link for a launch over `hosts`, of which this one is number `index`. The link is the
 * one that plan->launcher needs; a link beside the program is left out where the settings or torchrun's own variables
 * ask for that.
 */
enum pl_status pl_launcher_use_hosts(const struct pl_job *job, const struct pl_strv *hosts, int index,
                                     struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Append "N ranks on N hosts". */
void pl_launcher_describe_ranks(const struct pl_launch_plan *plan, struct pl_text *text);

/**
 * True where torchrun is to survive the loss of ranks or hosts, by its variables (PET_MAX_RESTARTS, PET_NNODES) or by
 * the words of a command: then what the loss of one means is torchrun's to say.
 */
bool pl_launcher_is_elastic(const struct pl_environment *environment, const struct pl_strv *words);

/** Set a variable that train adds for the program. */
enum pl_status pl_launcher_set(struct pl_launch_plan *plan, const char *name, const char *value,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** True where this host has an Elastic Fabric Adapter, or its instance type is one of those with one. */
bool pl_launcher_has_efa(const struct pl_job *job);

/** True for instance types whose adapter reads and writes device memory. Of others libfabric knows it by itself. */
bool pl_launcher_has_efa_rdma(const char *instance_type);

/**
 * The network interface for traffic between hosts: the configured one where it exists, else the one that leads to the
 * other hosts, with a sentence in plan->warnings. The caller frees.
 */
enum pl_status pl_interface_choose(const struct pl_job *job, struct pl_launch_plan *plan, char **ret_name,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Set this interface in `environment`, in the variables of NCCL, Gloo and TensorPipe, which otherwise look up the
 * host's own name or take the first interface; what the container sets stays.
 */
enum pl_status pl_interface_set(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
