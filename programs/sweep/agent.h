/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The agent of a host. It runs trials in the host's slots as the coordinator asks, each as a job of its own below a
 * shim, and sends the coordinator their values and their ends. Its standard input is the socket to the coordinator:
 * when that is closed, the agent ends and so do its trials. MESSAGE frames:
 *
 *   slots N                                              to the coordinator: the first message
 *   failed REASON                                        the agent cannot run here, and ends
 *   report TRIAL STEP VALUE                              the trial has printed this value of the metric
 *   unread TRIAL REASON                                  the trial's lines cannot be searched for the metric any more
 *   unseen TRIAL REASON                                  why this run, which has ended, has printed no value
 *   ended TRIAL FAILED HAS_MODEL REASON                  the trial has ended; FAILED and HAS_MODEL are 0 or 1
 *   trial TRIAL SLOT PROCESSES FIRST LAST_STEP VALUES REGEX STEP METRIC    from the coordinator: run it. VALUES is a
 *                                                        JSON object. If FIRST is 1, the contents of the trial's
 *                                                        folders are archived
 *   signal TRIAL NUMBER                                  pass this signal to the trial
 *   forget TRIAL model|checkpoints                       remove that folder of the trial
 *
 * Test  tests/integration/sweep.py, sweep_hosts.sh
 */
#ifndef PL_PROGRAMS_SWEEP_AGENT_H
#define PL_PROGRAMS_SWEEP_AGENT_H

#include "entrypoint/job/job.h"
#include "entrypoint/ssh/exec.h"
#include "entrypoint/supervise/signals.h"

/** What a host needs to run a trial. The strings belong to the caller. */
struct pl_trial_order {
    int trial, slot, processes;
    bool is_first;     /* the trial has written nothing into its folders yet */
    int64_t last_step; /* the last step that it has reported so far */
    const char *hyperparameters;
    const char *metric_name, *metric_regex;
    const char *step_regex; /* NULL if there is none */
};

/** One row of a table of handlers: the first word of a message, and its handler. */
struct pl_sweep_message {
    const char *word;
    size_t fields; /* least number of fields, the word included */
    void (*handle)(void *context, int host, const struct pl_frame *frame);
};

/** Calls the handler of the frame's first word. Ignores a frame that has no handler or too few fields. */
void pl_sweep_message_handle(const struct pl_sweep_message *table, size_t count, void *context, int host,
                             const struct pl_frame *frame);

/**
 * Returns how many seconds a trial may take to end when the job is stopped, so that the job itself still ends in time.
 */
double pl_sweep_stop_s(const struct pl_job *job);

/** Runs the agent of `job` to its end. Returns the exit code. */
int pl_sweep_agent_run(const struct pl_job *job, struct pl_signals *signals);

#endif
