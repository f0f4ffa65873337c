/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A trial's own /opt/ml: a mount namespace in which the job's folders for the model, checkpoints, output and
 * configuration are the trial's own. So programs with fixed paths are correct. The channels are read-only in it. If the
 * system allows no mounts, trials find their folders by variables alone, and the shared folders are checked for
 * changes.
 *
 * Source  mount_namespaces(7), user_namespaces(7)
 * Test    tests/integration/sweep_trials.py
 */
#ifndef PL_PROGRAMS_SWEEP_OWN_TREE_H
#define PL_PROGRAMS_SWEEP_OWN_TREE_H

#include "programs/sweep/trial_folder.h"

/**
 * Returns whether trials of this host can have a tree of their own. PL_SYSTEM has the system's reason if they cannot.
 */
enum pl_status pl_own_tree_probe(const struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the first part of a command: it runs the program that the caller appends, in the trial's tree. `self` is
 * paceline-sweep.
 */
enum pl_status pl_own_tree_words(const struct pl_job *job, const struct pl_trial_folder *folder, const char *self,
                                 struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Runs such a command: makes the mounts, then executes the program. `words` are the arguments after --in. Returns only
 * with an error.
 */
enum pl_status pl_own_tree_run(size_t count, char **words, struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_SHARED_FOLDERS = 3 };

/**
 * The contents of the folders that trials share if they have no trees of their own: the job's model and checkpoints.
 */
struct pl_shared_marks {
    uint64_t marks[PL_SHARED_FOLDERS];
};

/** Notes the present contents. */
void pl_shared_mark(const struct pl_job *job, struct pl_shared_marks *ret_marks);

/**
 * Returns PL_INVALID if somebody has changed a shared folder since. The error has the folder's name and the variable to
 * use.
 */
enum pl_status pl_shared_check(const struct pl_job *job, const struct pl_shared_marks *marks, int trial,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
