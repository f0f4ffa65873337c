/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mpirun's first words: the hosts, how many processes each has room for, and how many there are in all.
 *
 * Test  tests/unit/entrypoint/launch/test_groups.c, tests/integration/groups.sh
 */
#ifndef PL_ENTRYPOINT_LAUNCH_MPI_HOSTS_H
#define PL_ENTRYPOINT_LAUNCH_MPI_HOSTS_H

#include "entrypoint/launch/plan.h"

/**
 * Begin plan->argv with mpirun, its hosts and its number of processes. A host that only itself knows its number is
 * taken to have this one's devices. `oversubscribe`: more processes than there is room for are allowed; else
 * PL_INVALID, unless a host's number is not known yet.
 */
enum pl_status pl_mpi_hosts_add(const struct pl_job *job, bool oversubscribe, struct pl_launch_plan *plan,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a host of the plan has still to tell how many processes it gets. */
bool pl_mpi_hosts_wait(const struct pl_launch_plan *plan);

/** All have told, in plan->slots: put the numbers into plan->argv. Errors as pl_mpi_hosts_add(). */
enum pl_status pl_mpi_hosts_apply(const struct pl_job *job, struct pl_launch_plan *plan,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
