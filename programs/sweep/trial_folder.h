/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The folder of a trial, BASE/sweep/trial-NNNN, in which it finds everything that a job finds in /opt/ml: its own
 * configuration, the job's code and channels through links, and output. Files that must outlive the trial are
 * elsewhere: its checkpoints and its model are in the job's directory for checkpoints, which the platform keeps; the
 * files that it writes to output/data are in the job's output/data.
 *
 * Test  tests/unit/programs/sweep/test_trial_folder.c
 */
#ifndef PL_PROGRAMS_SWEEP_TRIAL_FOLDER_H
#define PL_PROGRAMS_SWEEP_TRIAL_FOLDER_H

#include "entrypoint/job/job.h"

struct pl_trial_folder {
    char *base;        /* BASE/sweep/trial-0003 */
    char *checkpoints; /* ROOT/trial-0003 */
    char *model;       /* ROOT/trial-0003.model */
    char *output_data; /* BASE/output/data/trial-0003 */
};

#define PL_TRIAL_FOLDER_NONE ((struct pl_trial_folder){.base = NULL})
#define PL_AUTO_TRIAL_FOLDER __attribute__((cleanup(pl_trial_folder_done)))

/**
 * Appends the directory of all trials' checkpoints: PACELINE_CHECKPOINT_DIR, else the path in checkpointconfig.json,
 * else BASE/checkpoints.
 */
void pl_trial_folder_root(const struct pl_job *job, struct pl_text *text);

/** Makes the paths, but no folders. */
enum pl_status pl_trial_folder_name(const struct pl_job *job, int trial, struct pl_trial_folder *ret_folder,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * How a trial runs. `hyperparameters` is a JSON object: the values that the space gives it. With `own_tree` the trial
 * sees its folders in place of the job's (own_tree.h), else through links.
 */
struct pl_trial_kind {
    int processes;
    bool own_tree;
    const char *hyperparameters;
};

/** Makes the folder again. Checkpoints and model of an earlier run stay. */
enum pl_status pl_trial_folder_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    const struct pl_trial_kind *kind, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends hyperparameters.json for a trial: `job_values`, the job's own file, without the sweep's settings, and with
 * the values of `own`. If `processes` is above 1, it also has the setting that starts that many.
 */
enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values,
                                               const struct pl_python_json *own, int processes, struct pl_text *text,
                                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends why the trial failed: the first line of its failure file, and the last one, which the program wrote. Appends
 * "" if there is no such file.
 */
void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text);

/**
 * After a run: removes what the trial does not need any more, its configuration, and output and checkpoints if they are
 * empty.
 */
void pl_trial_folder_remove(const struct pl_trial_folder *folder);

/** Removes the trial's model, or its checkpoints, and the rest of an aborted move. */
void pl_trial_folder_forget(const struct pl_trial_folder *folder, bool model);

void pl_trial_folder_done(struct pl_trial_folder *folder);

#endif
