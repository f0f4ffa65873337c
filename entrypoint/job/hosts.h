/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The hosts of a job: those in resourceconfig.json, their groups, those of the distribution and how many processes each
 * of them gets.
 *
 * Source  docs/contract.md, "Launchers"
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/groups.sh
 */
#ifndef PL_ENTRYPOINT_JOB_HOSTS_H
#define PL_ENTRYPOINT_JOB_HOSTS_H

#include "entrypoint/job/job.h"

/** Read resourceconfig.json. Errors as pl_job_new(). */
enum pl_status pl_hosts_read(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the name of a group of job->groups. */
const char *pl_hosts_group_name(const struct pl_python_json *group);

/**
 * Choose the hosts of a job whose launches are known: those of the distribution's groups in file order, or all hosts if
 * the file has no groups, and those outside it.
 *
 * The hosts of one capacity unit in the file's `topology` have the fast links of an UltraServer between them, and ranks
 * send most data to their neighbours: they are put next to each other, at the place of the first of them. Otherwise the
 * order stays, and the first host remains the first. `topology` is a list of {"hostName": TEXT, "capacityUnitId":
 * TEXT}. If an entry has another form, or a host has no entry, its unit is not known, and the host stays where it is.
 */
enum pl_status pl_hosts_choose(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fill processes_per_host, host_processes, named_processes and processes of a job whose devices and distribution hosts
 * are known. sagemaker_mpi_num_of_processes_per_host gives the numbers: one number, or one for each group. Without it
 * the devices determine them. Only a host itself knows the devices of its instance type: until it has reported its
 * number, this host's number stands in for it.
 *
 * Errors  PL_INVALID, PL_LIMIT naming the hyperparameter and what was expected; PL_MEMORY.
 */
enum pl_status pl_hosts_count_processes(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the number of processes on all hosts of the distribution, whatever sagemaker_mpi_num_processes says. */
int64_t pl_hosts_sum_processes(const struct pl_job *job);

#endif
