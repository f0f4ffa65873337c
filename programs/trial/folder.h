/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The folder of a trial, BASE/sweep/trial-NNNN, in which it finds everything that a job finds in /opt/ml: its own
 * configuration, the job's code and channels through links, and output. Files that must outlive the trial are
 * elsewhere: its checkpoints and its model are in the job's directory for checkpoints, which the platform keeps; the
 * files that it writes to output/data are in the job's output/data.
 *
 * Test  tests/unit/programs/trial/test_folder.c
 */
#ifndef PL_PROGRAMS_TRIAL_FOLDER_H
#define PL_PROGRAMS_TRIAL_FOLDER_H

#include "entrypoint/job/job.h"

struct pl_trial_folder {
    char *base;        /* BASE/sweep/trial-0003 */
    char *checkpoints; /* CHECKPOINTS/trial-0003 */
    char *model;       /* CHECKPOINTS/trial-0003.model */
    char *output_data; /* BASE/output/data/trial-0003 */
};

#define PL_TRIAL_FOLDER_NONE ((struct pl_trial_folder){.base = NULL})
#define PL_AUTO_TRIAL_FOLDER __attribute__((cleanup(pl_trial_folder_done)))

/** Makes the paths, but no folders; `checkpoints` is the directory of the trials' checkpoints and models. */
enum pl_status pl_trial_folder_name(const struct pl_job *job, const char *checkpoints, int number,
                                    struct pl_trial_folder *ret_folder, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes the folder BASE/sweep/trial-NNNN this process's own, until `*ret_fd` is closed.
 *
 * Errors  PL_LIMIT: a trial with this number runs.
 */
enum pl_status pl_trial_folder_lock(const struct pl_trial_folder *folder, int *ret_fd,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * How a trial runs. `hyperparameters` are NAME=VALUE, where VALUE is what the platform's file has: the JSON text of a
 * value. With `own_tree` the trial sees its folders in place of the job's (mounts.h), else through links.
 */
struct pl_trial_kind {
    int processes;
    bool own_tree;
    const struct pl_strv *hyperparameters;
};

/** Makes the folder's content again. Checkpoints and model of an earlier run stay. */
enum pl_status pl_trial_folder_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    const struct pl_trial_kind *kind, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends hyperparameters.json for a trial: `job_values`, the job's own file, without the settings of a sweep and of a
 * launch, and with the trial's own values. If it has more than one process, it also has the setting that starts them.
 */
enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values,
                                               const struct pl_trial_kind *kind, struct pl_text *text,
                                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends why the trial failed: the first line of its failure file, and the last one, which the program wrote. Appends
 * "" if there is no such file.
 */
void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text);

void pl_trial_folder_done(struct pl_trial_folder *folder);

#endif
