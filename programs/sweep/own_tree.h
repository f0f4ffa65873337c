/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A trial's own /opt/ml: a mount namespace in which the job's folders for the model, checkpoints, output and
 * configuration are the trial's, so that programs with fixed paths are right, and the channels can only be read. Where
 * the system allows no mounts, trials find their folders by variables alone, and the shared ones are looked at.
 *
 * Source  mount_namespaces(7), user_namespaces(7)
 * Test    tests/integration/sweep_trials.py
 */
#ifndef PL_PROGRAMS_SWEEP_OWN_TREE_H
#define PL_PROGRAMS_SWEEP_OWN_TREE_H

#include "programs/sweep/trial_folder.h"

/** Whether trials of this host can have one: PL_SYSTEM says what is refused. */
enum pl_status pl_own_tree_probe(const struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Append the words that run in the trial's tree what is appended after them; `self` is paceline-sweep. */
enum pl_status pl_own_tree_words(const struct pl_job *job, const struct pl_trial_folder *folder, const char *self,
                                 struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/** What these words do, `words` after the first: mount all and become the program. Returns only with an error. */
enum pl_status pl_own_tree_run(size_t count, char **words, struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_SHARED_FOLDERS = 3 };

/** What was in the folders that trials share where they have no trees of their own: the job's model and checkpoints. */
struct pl_shared_marks {
    uint64_t marks[PL_SHARED_FOLDERS];
};

/** Look now. */
void pl_shared_mark(const struct pl_job *job, struct pl_shared_marks *ret_marks);

/** PL_INVALID, where somebody has changed a folder since, with its name and what to use in its place. */
enum pl_status pl_shared_check(const struct pl_job *job, const struct pl_shared_marks *marks, int trial,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
