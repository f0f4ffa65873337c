/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The first words of mpirun's command: the hosts, how many processes each has room for, and the total number.
 *
 * Test  tests/unit/entrypoint/launch/test_groups.c, tests/integration/groups.sh
 */
#ifndef PL_ENTRYPOINT_LAUNCH_MPI_HOSTS_H
#define PL_ENTRYPOINT_LAUNCH_MPI_HOSTS_H

#include "entrypoint/launch/plan.h"

/**
 * Begin plan->argv with mpirun, its hosts and its number of processes. If only a host itself knows how many processes
 * it runs, the plan assumes this host's number of devices. `oversubscribe` allows more processes than there is room
 * for; otherwise this is PL_INVALID, unless the number of a host is not known yet.
 */
enum pl_status pl_mpi_hosts_add(const struct pl_job *job, bool oversubscribe, struct pl_launch_plan *plan,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a host of the plan must still report how many processes it gets. */
bool pl_mpi_hosts_wait(const struct pl_launch_plan *plan);

/**
 * All hosts have reported their numbers, which are in plan->slots: put them into plan->argv. Errors as
 * pl_mpi_hosts_add().
 */
enum pl_status pl_mpi_hosts_apply(const struct pl_job *job, struct pl_launch_plan *plan,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
