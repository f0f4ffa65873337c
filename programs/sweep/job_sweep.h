/* SPDX-License-Identifier: Apache-2.0 */
/** Finds the sweep that a job asks for by PACELINE_SWEEP or the hyperparameter paceline_sweep. */
#ifndef PL_PROGRAMS_SWEEP_JOB_SWEEP_H
#define PL_PROGRAMS_SWEEP_JOB_SWEEP_H

#include "entrypoint/job/job.h"
#include "programs/sweep/space/space.h"

/**
 * Reads the job's specification: the setting itself if it begins with { (after blanks), else the file that it names. A
 * relative name is in the code directory. `*ret_space` becomes NULL if the job has no sweep.
 *
 * Errors  PL_NOT_FOUND: no such file. Also the errors of pl_sweep_space_parse().
 */
enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Reads the specification in the file at `path`. */
enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
