/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The folder of a trial, in which it finds what a job finds in /opt/ml: BASE/sweep/trial-NNNN, with configuration of
 * its own, the job's code and channels through links, and output. What is to outlive it lies elsewhere: its checkpoints
 * and its model in the job's directory for checkpoints, which the platform keeps, and what it writes to output/data in
 * the job's own.
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

/** Append the directory of all trials' checkpoints: PACELINE_CHECKPOINT_DIR, what checkpointconfig.json names, else
 * BASE/checkpoints. */
void pl_trial_folder_root(const struct pl_job *job, struct pl_text *text);

/** The paths; nothing is made. */
enum pl_status pl_trial_folder_name(const struct pl_job *job, int trial, struct pl_trial_folder *ret_folder,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** What a trial runs as; `hyperparameters` is what the space gives, an object. With `own_tree` it will see its folders
 * as the job's (own_tree.h), else through links. */
struct pl_trial_kind {
    int processes;
    bool own_tree;
    const char *hyperparameters;
};

/** Make it again; checkpoints and model of an earlier run stay. */
enum pl_status pl_trial_folder_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    const struct pl_trial_kind *kind, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append hyperparameters.json: `job_values`, a whole such file, without what is the sweep's, and in its place what
 * `own` names; with more than one process of a kind that asks for them.
 */
enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values,
                                               const struct pl_python_json *own, int processes, struct pl_text *text,
                                               struct pl_error *reterr) PL_MUST_CHECK;

/** Append why it failed: the first line of its failure file, and the last, which is the program's own; "" without. */
void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text);

/** Remove what the trial does not need any more once a run has ended: its configuration, and output where it is empty.
 */
void pl_trial_folder_remove(const struct pl_trial_folder *folder);

/** Remove its model, or its checkpoints, with what is left of a move. */
void pl_trial_folder_forget(const struct pl_trial_folder *folder, bool model);

void pl_trial_folder_done(struct pl_trial_folder *folder);

#endif
