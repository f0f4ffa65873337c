/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The agent of a host: runs trials in its slots, each as a job of its own below a shim, as the coordinator asks, and
 * says what they report and how they end. Its standard input is the socket to the coordinator, whose end ends it and
 * all trials. MESSAGE frames:
 *
 *   slots N                                              to the coordinator, first of all
 *   failed WORDS                                         the agent cannot run here, and ends
 *   report TRIAL STEP VALUE                              it has printed this value of the metric
 *   unread TRIAL WORDS                                   its lines cannot be searched any more for the metric
 *   unseen TRIAL WORDS                                   this run, which has ended, has printed no value: why
 *   ended TRIAL 0|1 0|1 REASON                           it ended well (0), has left a model (1), or why not
 *   trial TRIAL SLOT PROCESSES FIRST LAST_STEP VALUES REGEX STEP METRIC    from the coordinator: run it; VALUES is a
 *                                                        JSON object; with FIRST 1 what its folders hold is archived
 *   signal TRIAL NUMBER                                  pass this signal to it
 *   forget TRIAL model|checkpoints                       they are of no use any more
 *
 * Test  tests/integration/sweep.py, sweep_hosts.sh
 */
#ifndef PL_PROGRAMS_SWEEP_AGENT_H
#define PL_PROGRAMS_SWEEP_AGENT_H

#include "entrypoint/job/job.h"
#include "entrypoint/ssh/exec.h"
#include "entrypoint/supervise/signals.h"

/** What a host needs to run a trial; the texts are the caller's. */
struct pl_trial_order {
    int trial, slot, processes;
    bool is_first;     /* nothing in its folders is its own yet */
    int64_t last_step; /* of its reports so far */
    const char *hyperparameters;
    const char *metric_name, *metric_regex;
    const char *step_regex; /* NULL: none */
};

/** The first word of a message, for a table of handlers. */
struct pl_sweep_message {
    const char *word;
    size_t fields; /* with the word, at least */
    void (*handle)(void *context, int host, const struct pl_frame *frame);
};

/** Call the handler of the frame's word; what has none, or too few fields, is ignored. */
void pl_sweep_message_handle(const struct pl_sweep_message *table, size_t count, void *context, int host,
                             const struct pl_frame *frame);

/** How long what is stopped with the job may take, so that the job itself still ends in time. */
double pl_sweep_stop_s(const struct pl_job *job);

/** Run the agent to its end; the result is the exit code. `job` is the job whose trials it runs. */
int pl_sweep_agent_run(const struct pl_job *job, struct pl_signals *signals);

#endif
