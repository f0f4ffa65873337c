/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A job that is started again after a failure (PACELINE_MAX_RESTARTS), by the same process 1 on every host. The job is
 * one attempt after the other. Each has a plan, a supervisor, links and programs of its own, and of an attempt that has
 * ended nothing is left but struct pl_restarts. The master decides: another attempt follows if a program, a rank or
 * what starts ranks has failed, or if the job hangs and is to end. It tells the workers by RESULT; a worker starts
 * again on that word alone. The next attempt begins when no process of the job is left on any host.
 *
 * Source  docs/stopping.md, "Starting again"
 * Test    tests/integration/faults.py (restarts), tests/unit/entrypoint/supervise/test_supervise.c,
 *         tests/models/hosts.pml
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_RESTART_H
#define PL_ENTRYPOINT_SUPERVISE_RESTART_H

#include "base/changes.h"
#include "base/text.h"
#include "entrypoint/ssh/link.h"

#include <stdbool.h>
#include <stdint.h>

/** Tells the programs how often the job was started again. */
#define PL_RESTART_VARIABLE "PACELINE_RESTART"

/** How long hosts that were linked wait for each other in a later attempt, at most. */
#define PL_RESTART_LINK_NS (60 * PL_NS_PER_S)

/* For how long a more severe cause may come. Then all programs are killed. */
#define PL_RESTART_GRACE_NS (PL_NS_PER_S / 2)

enum {
    PL_RESTART_CAUSE_BYTES = 256,   /* of one cause that is kept */
    PL_RESTART_EARLIER_BYTES = 480, /* of all, which the failure file repeats */
};

struct pl_connection;
struct pl_launch_plan;
struct pl_supervisor;

/** What one attempt of a job leaves for the next. It begins as {0}. */
struct pl_restarts {
    int number;                             /* of the attempt: how often the job was started again */
    bool again;                             /* at the end of an attempt: another one follows */
    bool without_optional;                  /* the plan's probe has answered no */
    int64_t begun_ns;                       /* when the first attempt began, */
    struct pl_changes model_before;         /* and what lay in this directory then, */
    struct pl_changes checkpoints_before;   /* and in this one when this attempt began */
    int kept_fd;                            /* the programs' memory (base/kept_head.h); 0: none */
    uint64_t kept_before;                   /* the step of its newest copy when this attempt began */
    int64_t failed_ns;                      /* since when no program runs; 0: one does */
    char cause[PL_RESTART_CAUSE_BYTES];     /* why the last attempt failed, in one line */
    char earlier[PL_RESTART_EARLIER_BYTES]; /* the latest causes, a line for each, the last first */
    char lost[PL_RESTART_CAUSE_BYTES];      /* why the next attempt can only report a failure; mostly "" */
    struct pl_connection *sync;             /* the upload of intermediate output, which runs on; NULL: none */
};

/**
 * Gives the programs of `plan` memory that outlives them, if the job may be started again: a file of this process,
 * which is empty until it is used.
 */
enum pl_status pl_restart_give_memory(struct pl_restarts *restarts, struct pl_launch_plan *plan,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call at the begin of an attempt, whose supervisor is open. In a later attempt the host is still in the state that it
 * had at the end of the one before.
 */
void pl_restart_enter(struct pl_supervisor *supervisor, struct pl_restarts *restarts);

/** Returns the number of the attempt; 0 also where the job is not started again. */
int pl_restart_number(const struct pl_supervisor *supervisor);

/** Whether the job failed by something that may be gone in the next attempt. */
bool pl_restart_is_possible(const struct pl_supervisor *supervisor);

/** Whether the job would be started again, as far as this host knows. */
bool pl_restart_is_wanted(const struct pl_supervisor *supervisor);

/** Whether another attempt follows this one, which ends. */
bool pl_restart_follows(const struct pl_supervisor *supervisor);

/**
 * Decides on the master whether another attempt follows, where that is possible, once the programs are not waited for
 * any more. `text` is that of the failure; `linked`: each host gets the result. If so, it logs that, and writes it to
 * output/data/restarts.jsonl.
 */
void pl_restart_decide(struct pl_supervisor *supervisor, const char *text, bool linked);

/** Takes the master's RESULT on a worker, which has failed by it: another attempt may follow. */
void pl_restart_take(struct pl_supervisor *supervisor, const struct pl_frame *frame);

/** Call on the master once no process of the attempt is left: hosts that have not said so are lost. */
void pl_restart_note_lost(struct pl_supervisor *supervisor);

/** Call when a program or rank of this host has begun: the master logs how long the job has not trained. */
void pl_restart_note_begun(struct pl_supervisor *supervisor);

/** Keeps the upload of intermediate output for the next attempt. */
void pl_restart_leave(struct pl_supervisor *supervisor);

/**
 * How many bytes pl_restart_explain() adds to the text of a failure, and the call itself: to the first line why the job
 * is not started again, and at the end the earlier causes.
 */
size_t pl_restart_words_bytes(const struct pl_supervisor *supervisor);
void pl_restart_explain(const struct pl_supervisor *supervisor, struct pl_text *text);

#endif
