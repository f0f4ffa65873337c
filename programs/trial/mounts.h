/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A trial's own /opt/ml: a mount namespace in which the job's folders for the model, checkpoints, output and
 * configuration are the trial's own. So programs with fixed paths are correct. The channels are read-only in it. If the
 * system allows no mounts, trials find their folders by variables alone, and a change of a shared folder is reported.
 *
 * Source  mount_namespaces(7), user_namespaces(7)
 * Test    tests/integration/trial.py
 */
#ifndef PL_PROGRAMS_TRIAL_MOUNTS_H
#define PL_PROGRAMS_TRIAL_MOUNTS_H

#include "programs/trial/folder.h"

#include <time.h>

/**
 * Moves this process into a mount namespace of its own, and if it needs that, into a user namespace. The calling
 * process has one thread.
 *
 * Errors  PL_SYSTEM with the system's reason: it allows no mounts. Nothing that others see has changed.
 */
enum pl_status pl_trial_mounts_enter(const struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Mounts the trial's folders in place of the job's, after pl_trial_mounts_enter(). */
enum pl_status pl_trial_mounts_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** When the folders that trials share without mounts were changed: the job's model and checkpoints. */
struct pl_trial_shared {
    struct timespec times[2];
};

void pl_trial_shared_note(const struct pl_job *job, struct pl_trial_shared *ret_shared);

/** Returns PL_INVALID if one of them has other entries since. The error names the folder and the variable to use. */
enum pl_status pl_trial_shared_check(const struct pl_job *job, const struct pl_trial_shared *shared,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
