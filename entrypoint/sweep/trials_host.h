/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What every host of a sweep does: start a trial in one of its slots, as a job of its own below a shim, stop it, tell
 * how it ended, and hand its folders out and in. On the master it is called, on other hosts frames ask for it.
 */
#ifndef PL_ENTRYPOINT_SWEEP_TRIALS_HOST_H
#define PL_ENTRYPOINT_SWEEP_TRIALS_HOST_H

#include "entrypoint/supervise/supervise.h"
#include "entrypoint/sweep/files.h"
#include "entrypoint/sweep/slots.h"

/** What a host needs to run a trial; the texts are the caller's. */
struct pl_trial_order {
    int trial, slot, processes;
    int64_t last_step; /* of its reports so far */
    const char *hyperparameters;
    const char *metric_regex;
    const char *step_regex; /* NULL: none */
};

/** Which folder of a trial. */
enum pl_trials_host_kind { PL_TRIALS_HOST_CHECKPOINTS, PL_TRIALS_HOST_MODEL };

struct pl_trials_host {
    struct pl_supervisor *supervisor;
    struct pl_slots slots;
    struct pl_files_reader *reader; /* of the folder that is being handed out; NULL */
    struct pl_files_writer *writer;
};

void pl_trials_host_done(struct pl_trials_host *host);

enum pl_status pl_trials_host_start(struct pl_trials_host *host, const struct pl_trial_order *order,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Pass the signal to a trial that runs here; nothing happens where it does not. */
void pl_trials_host_signal(struct pl_trials_host *host, int trial, int number);

/** A trial's program has ended here: append why it failed, nothing where it did not, and tidy up. */
void pl_trials_host_end(struct pl_trials_host *host, const struct pl_exit_report *exit_report, struct pl_text *reason);

/** Its model is of no use any more. */
void pl_trials_host_forget(struct pl_trials_host *host, int trial);

/** The first (`begins`) or next piece of a folder; the one without a path is the last. */
enum pl_status pl_trials_host_fetch(struct pl_trials_host *host, int trial, enum pl_trials_host_kind kind, bool begins,
                                    struct pl_files_piece *piece, struct pl_error *reterr) PL_MUST_CHECK;

/** Store the first (`begins`) or next piece; of a model in the job's own directory for it. */
enum pl_status pl_trials_host_store(struct pl_trials_host *host, int trial, enum pl_trials_host_kind kind, bool begins,
                                    const struct pl_files_piece *piece, struct pl_error *reterr) PL_MUST_CHECK;

/** What was begun of either is given up. */
void pl_trials_host_abort(struct pl_trials_host *host);

/* TRIAL frames. */
void pl_trials_host_send_order(struct pl_supervisor *supervisor, struct pl_connection *connection,
                               const struct pl_trial_order *order);
enum pl_status pl_trials_host_read_order(const struct pl_frame *frame, struct pl_trial_order *ret_order,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
