/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Counts how many processes each host of a distribution gets.
 *
 * Source  docs/contract.md, "Launchers"
 * Test    tests/unit/entrypoint/job/test_job.c, tests/integration/groups.sh
 */
#ifndef PL_ENTRYPOINT_JOB_PROCESSES_H
#define PL_ENTRYPOINT_JOB_PROCESSES_H

#include "entrypoint/job/job.h"

/**
 * Fill processes_per_host, host_processes, named_processes and processes of a job whose devices and distribution hosts
 * are known. sagemaker_mpi_num_of_processes_per_host gives the numbers: one number, or one for each group. Without it
 * the devices determine them. Only a host itself knows the devices of its instance type: until it has reported its
 * number, this host's number stands in for it.
 *
 * Errors  PL_INVALID, PL_LIMIT naming the hyperparameter and what was expected; PL_MEMORY.
 */
enum pl_status pl_processes_count(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the number of processes on all hosts of the distribution, whatever sagemaker_mpi_num_processes says. */
int64_t pl_processes_sum(const struct pl_job *job);

#endif
