/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A trial: `paceline train` with an /opt/ml, hyperparameters and devices of its own.
 *
 *   main.c     options, the run, and its result
 *   folder.c   its /opt/ml, and what is left of it
 *   devices.c  its GPUs
 *
 * Test  tests/unit/programs/trial/, tests/integration/trial.py, sweep_trials.py
 */
#ifndef PL_PROGRAMS_TRIAL_TRIAL_H
#define PL_PROGRAMS_TRIAL_TRIAL_H

#include "entrypoint/job/job.h"

#include <time.h>

/* folder.c */

/**
 * The folder of a trial, BASE/sweep/trial-NNNN, has its configuration and its output, and links to the job's code and
 * channels. Files that must outlive the trial are elsewhere: its checkpoints and its model are in the job's directory
 * for checkpoints, which the platform keeps; the files that it writes to output/data are in the job's output/data.
 */
struct pl_trial_folder {
    const struct pl_job *job;
    int number;
    int fd;                     /* descriptor of `base`: while it is open, the folder belongs to this process */
    char *base;                 /* BASE/sweep/trial-0003 */
    char *checkpoints;          /* CHECKPOINTS/trial-0003 */
    char *model;                /* CHECKPOINTS/trial-0003.model */
    char *output_data;          /* BASE/output/data/trial-0003 */
    char *base_checkpoints;     /* BASE/checkpoints, which may be the same */
    bool own_tree;              /* the trial sees its own folders at the job's paths; else through links */
    struct timespec changed[2]; /* unless own_tree: when the job's model and checkpoints were changed last */
};

#define PL_TRIAL_FOLDER_NONE ((struct pl_trial_folder){.fd = -1})
#define PL_AUTO_TRIAL_FOLDER __attribute__((cleanup(pl_trial_folder_done)))

/**
 * Takes the folder of trial `number`; -1: of the first number that has no files and whose trial does not run.
 * `checkpoints` is the directory of the trials' checkpoints and models; NULL: the job's.
 *
 * Errors  PL_LIMIT: a trial with this number runs.
 */
enum pl_status pl_trial_folder_take(const struct pl_job *job, const char *checkpoints, int number,
                                    struct pl_trial_folder *ret_folder, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes the folder's content again, for a trial of `processes` processes. `hyperparameters` are NAME=VALUE, where VALUE
 * is the JSON text of a value, as in the platform's file. Checkpoints and model of an earlier run stay.
 */
enum pl_status pl_trial_folder_make(const struct pl_trial_folder *folder, int processes,
                                    const struct pl_strv *hyperparameters, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_trial_folder_make() in a mount namespace of this process. There the trial's model, checkpoints, output and
 * configuration are at the job's paths, so that programs with fixed paths find them. The channels are read-only. If the
 * system allows no mounts, `folder->own_tree` stays false. The calling process must have one thread.
 *
 * Source  mount_namespaces(7), user_namespaces(7)
 */
enum pl_status pl_trial_folder_enter(struct pl_trial_folder *folder, int processes,
                                     const struct pl_strv *hyperparameters, struct pl_error *reterr) PL_MUST_CHECK;

/** Shows this process the job's folders again. Removes the folder, and what the trial has left empty. */
void pl_trial_folder_leave(const struct pl_trial_folder *folder);

/**
 * Appends hyperparameters.json for a trial: `job_values`, the job's own file, without the settings of a sweep and of a
 * launch, and with the trial's own values. If it has more than one process, it also has the setting that starts them.
 */
enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values, int processes,
                                               const struct pl_strv *hyperparameters, struct pl_text *text,
                                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Checks the job's folders for model and checkpoints, which trials share if they have no tree of their own. Returns
 * PL_INVALID if a folder has changed since the trial began. The error names the folder and the variable to use instead.
 */
enum pl_status pl_trial_folder_check_shared(const struct pl_trial_folder *folder,
                                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends why the trial failed: the first line of its failure file, and the last line, which the program wrote. Appends
 * "" if there is no such file.
 */
void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text);

/**
 * Checks that the trial's model can be copied. `*ret_empty` tells whether there is none. Symbolic links may lead to
 * files of the model. Absolute ones become relative unless `folder->own_tree`: the model will lie elsewhere.
 *
 * Errors  PL_INVALID with the name of a socket, a FIFO, a device, or a link that leads out of the folder.
 */
enum pl_status pl_trial_model_check(const struct pl_trial_folder *folder, bool *ret_empty,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void pl_trial_folder_done(struct pl_trial_folder *folder);

/* devices.c */

/**
 * Appends the value of CUDA_VISIBLE_DEVICES for `gpus` of the GPUs that this container sees. If `slot` is 0 or more,
 * these are the slot's GPUs: slots share GPUs if there are more slots than GPUs. If it is -1, these are GPUs that no
 * other trial uses, and they are this process's until it ends.
 *
 * Errors  PL_INVALID: the host has fewer GPUs. PL_LIMIT: other trials use too many of them.
 */
enum pl_status pl_trial_devices_take(const struct pl_job *job, int gpus, int slot, struct pl_text *visible,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
