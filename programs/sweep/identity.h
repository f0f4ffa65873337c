/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The identity of a sweep: everything that changes what its trials mean, as a JSON object whose values are strings. Two
 * sweeps are the same if no value differs.
 *
 *   space, search, seed, seeds    as the user wrote them; they explain a difference of the digest of the trials
 *   metric, scheduler             they decide which trial is best, and which one is stopped
 *   processes, launcher, program, command, settings (wire_type, reproducible)
 *   hyperparameters               the job's own, without those that look secret; the job's name in them is replaced
 *   code                          for each file of the code directory its size and a checksum of its first MiB
 *
 * The identity leaves out what changes no trial (slots, max_failed, times), all sagemaker_* except the program,
 * variables of the environment, the image and the data. In the code directory it leaves out names that begin with a
 * dot, __pycache__, *.pyc, and all files after the first 5000. After 256 MiB it has only the sizes of files. A new file
 * is no difference, because a program may write into its code directory.
 *
 * Test  tests/unit/programs/sweep/test_identity.c
 */
#ifndef PL_PROGRAMS_SWEEP_IDENTITY_H
#define PL_PROGRAMS_SWEEP_IDENTITY_H

#include "entrypoint/job/job.h"
#include "programs/sweep/space/space.h"

enum pl_status pl_sweep_identity_new(const struct pl_job *job, const struct pl_sweep_space *space,
                                     struct pl_python_json **ret_identity, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a checksum of the first `count` trials; the sweep must have that many. */
uint64_t pl_sweep_identity_trials(const struct pl_sweep_space *space, size_t count);

enum {
    PL_SWEEP_IDENTITY_TRIALS = 1, /* compare space, search, seed and seeds */
    PL_SWEEP_IDENTITY_METRIC = 2, /* compare metric and scheduler */
};

/**
 * Appends the first difference as text, `hyperparameters.epochs was 9 and is 90`, and returns true. Returns false if
 * there is none.
 */
bool pl_sweep_identity_differs(const struct pl_python_json *before, const struct pl_python_json *now, unsigned also,
                               struct pl_text *words);

#endif
