/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a sweep is: all that changes what its trials mean, as a JSON object whose values are texts. Two sweeps are the
 * same where nothing in it differs.
 *
 *   space, search, seed, seeds    as they are written: they say why trials differ, which the digest of the trials finds
 *   metric, scheduler             what is best, and which trial is stopped
 *   processes, launcher, program, command, settings (wire_type, reproducible)
 *   hyperparameters               the job's own, without those that look secret; the job's name in them is replaced
 *   code                          each file of the code directory: its bytes, and a checksum of its first MiB
 *
 * Not in it: what changes no trial (slots, max_failed, times), sagemaker_* beside the program, variables of the
 * environment, the image and the data. In the code directory names that begin with a dot, __pycache__ and *.pyc are
 * left out, and files after the first 5000; after 256 MiB only the sizes count. A new file is not a difference, since a
 * program may write where it runs.
 *
 * Test  tests/unit/programs/sweep/test_identity.c
 */
#ifndef PL_PROGRAMS_SWEEP_IDENTITY_H
#define PL_PROGRAMS_SWEEP_IDENTITY_H

#include "entrypoint/job/job.h"
#include "programs/sweep/space/space.h"

enum pl_status pl_sweep_identity_new(const struct pl_job *job, const struct pl_sweep_space *space,
                                     struct pl_python_json **ret_identity, struct pl_error *reterr) PL_MUST_CHECK;

/** A checksum of the first `count` trials, which are there. */
uint64_t pl_sweep_identity_trials(const struct pl_sweep_space *space, size_t count);

enum {
    PL_SWEEP_IDENTITY_TRIALS = 1, /* compare space, search, seed and seeds */
    PL_SWEEP_IDENTITY_METRIC = 2, /* compare metric and scheduler */
};

/** The first difference, in words: `hyperparameters.epochs was 9 and is 90`; false if there is none. */
bool pl_sweep_identity_differs(const struct pl_python_json *before, const struct pl_python_json *now, unsigned also,
                               struct pl_text *words);

#endif
