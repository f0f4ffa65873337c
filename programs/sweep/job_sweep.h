/* SPDX-License-Identifier: Apache-2.0 */
/** What a job asks for by PACELINE_SWEEP or the hyperparameter paceline_sweep. */
#ifndef PL_PROGRAMS_SWEEP_JOB_SWEEP_H
#define PL_PROGRAMS_SWEEP_JOB_SWEEP_H

#include "entrypoint/job/job.h"
#include "programs/sweep/space/space.h"

/**
 * The job's specification: inline where its first character that is not a blank is {, else what is in the file that it
 * names, in the code directory unless the path is absolute. NULL: the job asks for no sweep.
 *
 * Errors  PL_NOT_FOUND: no such file; and as pl_sweep_space_parse().
 */
enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** The specification in the file at `path`. */
enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
