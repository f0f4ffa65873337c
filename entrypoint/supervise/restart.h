/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A job that is started again after a failure (PACELINE_MAX_RESTARTS), by the same process 1 on every host. The job is
 * a sequence of attempts. Each has a plan, a supervisor, links and programs of its own; when it has ended, only struct
 * pl_restarts is left of it. The master decides: another attempt follows if a program, a rank or a launcher has failed,
 * or if the job hangs and is to end. The master tells the workers by RESULT, and a worker starts again only then. The
 * next attempt begins when no process of the job is left on any host.
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

/* How long a more severe cause may still arrive after a failure. Then all programs are killed. */
#define PL_RESTART_GRACE_NS (PL_NS_PER_S / 2)

enum {
    PL_RESTART_CAUSE_BYTES = 256,   /* bytes of one cause that are kept */
    PL_RESTART_EARLIER_BYTES = 480, /* bytes of all causes, which the failure file repeats */
};

struct pl_connection;
struct pl_exit_report;
struct pl_launch_plan;
struct pl_supervisor;

/** What one attempt of a job leaves for the next. It begins as {0}. */
struct pl_restarts {
    int number;                             /* number of the attempt: how often the job was started again */
    bool again;                             /* set at the end of an attempt: another attempt follows */
    bool without_optional;                  /* the probe found no mpi4py: leave the optional words out */
    int64_t begun_ns;                       /* time at which the first attempt began */
    struct pl_changes model_before;         /* contents of the model's directory at that time */
    struct pl_changes checkpoints_before;   /* contents of the checkpoint directory when this attempt began */
    int kept_fd;                            /* memory of the programs that outlives them (base/kept_head.h); 0: none */
    uint64_t kept_before;                   /* step of the newest copy in that memory when this attempt began */
    int64_t failed_ns;                      /* time since which no program runs; 0: a program runs */
    char cause[PL_RESTART_CAUSE_BYTES];     /* why the last attempt failed, in one line */
    int cause_code;                         /* the exit code of what failed then, or its signal below 0 */
    char earlier[PL_RESTART_EARLIER_BYTES]; /* the latest causes, one line each, the newest first */
    char lost[PL_RESTART_CAUSE_BYTES];      /* why the next attempt can only report a failure; mostly "" */
    struct pl_connection *sync;             /* upload of intermediate output, which goes on; NULL: none */
    struct pl_text opened; /* for each channel in Pipe Mode the line "COUNT NAME": so many of its FIFOs are used up */
};

/**
 * If the job may be started again, gives the programs of `plan` memory that outlives them: a file of this process. It
 * is empty until a program uses it.
 */
enum pl_status pl_restart_give_memory(struct pl_restarts *restarts, struct pl_launch_plan *plan,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call at the beginning of an attempt, when the supervisor is open. In a later attempt the host is still in the state
 * that it had at the end of the attempt before.
 */
void pl_restart_enter(struct pl_supervisor *supervisor, struct pl_restarts *restarts);

/** Returns the number of the attempt; 0 also if the job cannot be started again. */
int pl_restart_number(const struct pl_supervisor *supervisor);

/** Whether the job failed by something that may be gone in the next attempt. */
bool pl_restart_is_possible(const struct pl_supervisor *supervisor);

/**
 * Whether a program of another host has failed while this host still prepares the attempt. The failure is known then,
 * but counts only once this host is prepared: the next attempt does not prepare it again.
 */
bool pl_restart_must_wait(const struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/** Whether the job would be started again, as far as this host knows. */
bool pl_restart_is_wanted(const struct pl_supervisor *supervisor);

/** Whether another attempt follows after the end of this one. */
bool pl_restart_follows(const struct pl_supervisor *supervisor);

/**
 * Decides on the master whether another attempt follows, if one is possible, when the master does not wait for the
 * programs any more. `text` is the text of the failure; `linked`: each host gets the result. If an attempt follows, the
 * function logs that, and writes it to output/data/restarts.jsonl.
 */
void pl_restart_decide(struct pl_supervisor *supervisor, const char *text, bool linked);

/** On a worker: takes the master's RESULT that the job has failed. It says whether another attempt follows. */
void pl_restart_take(struct pl_supervisor *supervisor, const struct pl_frame *frame);

/** Call on the master once no process of the attempt is left: hosts that have not said so are lost. */
void pl_restart_note_lost(struct pl_supervisor *supervisor);

/** Call when a program or rank of this host has begun: the master logs how long the job has not trained. */
void pl_restart_note_begun(struct pl_supervisor *supervisor);

/** Keeps for the next attempt the upload of intermediate output, and how many FIFOs of each channel are used up. */
void pl_restart_leave(struct pl_supervisor *supervisor);

/**
 * Writes into the run directory how many FIFOs of each channel earlier attempts have used up, for `paceline split` and
 * for programs that read a channel by its name (s3io/dataset/channel.c).
 */
enum pl_status pl_restart_give_opened(const struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_restart_explain() adds to the first line of a failure's text why the job is not started again, and at the end the
 * earlier causes. pl_restart_words_bytes() returns how many bytes that takes.
 */
size_t pl_restart_words_bytes(const struct pl_supervisor *supervisor);
void pl_restart_explain(const struct pl_supervisor *supervisor, struct pl_text *text);

#endif
