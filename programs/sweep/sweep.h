/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A sweep: the program `paceline-sweep` on the job's master starts the trials of a specification, each by `paceline
 * trial` on its host: trial i on host i modulo the number of hosts, on other hosts over ssh. A link leads to each
 * trial: STOP frames are signals for it, its end kills it, and a MESSAGE has its result.
 *
 *   sweep.c    events, times, and how the sweep ends
 *   hosts.c    processes on hosts: trials, and what is started beside them
 *   record.c   trials.jsonl, from which a job that is started again continues
 *   result.c   the best trial, its model, the table, and which files nobody needs
 *
 * Source  docs/sweep.md
 * Test    tests/integration/sweep.py, sweep_hosts.sh
 */
#ifndef PL_PROGRAMS_SWEEP_SWEEP_H
#define PL_PROGRAMS_SWEEP_SWEEP_H

#include "base/clock.h"
#include "entrypoint/job/job.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/supervise/signals.h"
#include "programs/sweep/slots.h"
#include "programs/sweep/value.h"

enum pl_sweep_state {
    PL_SWEEP_WAITING,
    PL_SWEEP_COMPLETED, /* the program ended by itself, with exit code 0 */
    PL_SWEEP_FAILED,
    PL_SWEEP_STOPPED, /* the sweep's time was over */
    PL_SWEEP_STATES,
};

enum pl_sweep_why { PL_SWEEP_WHY_NONE, PL_SWEEP_WHY_TRIAL_TIME, PL_SWEEP_WHY_SWEEP_TIME, PL_SWEEP_WHY_DISK };

/** A trial: its row, and its run. */
struct pl_sweep_run {
    enum pl_sweep_state state;
    bool has_value; /* it has printed the metric; a value that is not finite is never the best */
    double value;   /* the last one */
    int code;
    double seconds; /* of its last run */
    bool has_model; /* it has left one */
    char *reason;   /* why it failed, or NULL */
    bool model_gone, checkpoints_gone;
    /* while it runs */
    bool runs;
    pid_t pid; /* `paceline trial`, or the ssh that leads to it; 0 after its end */
    int exit_code;
    struct pl_link link;
    int slot;
    int64_t begun_ns, limit_ns;   /* deadline of the trial's time */
    int64_t kill_ns;              /* when the trial is killed, after it was asked to end */
    enum pl_sweep_why why;        /* why it was asked to end */
    bool answered, failed, fresh; /* the result has come; fresh: it began without checkpoints */
};

/** The copy of the best model into the job's: one process, or two with a pipe between them. */
struct pl_sweep_placing {
    bool is_on, by_links;
    size_t trial;
    pid_t pids[2];
    int code; /* of the first that failed */
};

struct pl_sweep {
    const struct pl_job *job;
    const struct pl_signals *signals;
    struct pl_sweep_space *space;
    struct pl_slots slots;
    char *trial_program;
    struct pl_sshd sshd; /* access to other hosts */
    const char *run_dir;
    char *folder;    /* CHECKPOINTS/sweep */
    char id[24];     /* the name of the folder in it with the files of this sweep's trials */
    char *fresh;     /* the request for a new sweep that began this one, or NULL */
    double closed_s; /* the time at which no trial was started any more; 0 if that has not happened */
    int lock_fd;
    int room_fd; /* disk space for the record; -1 after its release */
    struct pl_sweep_run *runs;
    int *slot_trials; /* by host and slot: the trial in it, or -1 */
    pid_t *removing;  /* by host: what removes files there */
    size_t *next;     /* by host: no trial before this one waits */
    size_t hosts_count, running;
    bool untidy;     /* there may be files that nobody needs */
    int64_t end_ns;  /* deadline set by PACELINE_SWEEP_TIME_S */
    int64_t lost_ns; /* when the loss of a connection ends the sweep, unless process 1 does so before */
    int stop_number; /* the signal that stops the job, or 0 */
    int64_t stop_ns; /* until when the best model is waited for after it */
    bool finishing, over;
    bool full;             /* the disk is full: running trials are stopped, and the results so far are written */
    bool failed;           /* `reason` has the cause */
    char reason[2048];     /* the first cause */
    int first_failed;      /* -1 if no trial has failed */
    char *failure_in_stop; /* "trial N: REASON" of the first one that failed during a stop, or NULL */
    struct pl_sweep_placing placing;
};

/* sweep.c */
/** Runs the job's sweep to its end, on the job's master. Returns the exit code. */
int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals);
static inline bool pl_sweep_is_over(const struct pl_sweep_run *run)
{
    return run->state != PL_SWEEP_WAITING;
}

/* hosts.c */
/** Fails the sweep, and with it the job. Only the first reason is kept. */
void pl_sweep_fail(struct pl_sweep *sweep, const char *format, ...) PL_PRINTF(2, 3);
enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Ends all trials, and waits for what removes files. */
void pl_sweep_hosts_close(struct pl_sweep *sweep);
/** Starts a trial in a slot that is free. */
enum pl_status pl_sweep_hosts_start(struct pl_sweep *sweep, size_t trial, int slot,
                                    struct pl_error *reterr) PL_MUST_CHECK;
/** Appends the path of the trial's model, or of its checkpoints. */
void pl_sweep_hosts_path(const struct pl_sweep *sweep, size_t trial, bool model, struct pl_text *text);
/** Starts a program on a host; `output_fd` may be -1. */
enum pl_status pl_sweep_hosts_spawn(const struct pl_sweep *sweep, size_t host, const char *const *words, int output_fd,
                                    int error_fd, pid_t *ret_pid, struct pl_error *reterr) PL_MUST_CHECK;

/* record.c */
/** Reads trials.jsonl, or begins a new sweep. Errors: PL_INVALID: it is that of another sweep, or damaged. */
enum pl_status pl_sweep_record_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Reads its text, the sweep's own line first, and then the trials'; `text` is changed. */
enum pl_status pl_sweep_record_read(struct pl_sweep *sweep, char *text, struct pl_error *reterr) PL_MUST_CHECK;
/** Writes it whole. If the disk is full, the sweep is marked so. */
enum pl_status pl_sweep_record_write(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Appends a line for each trial. */
void pl_sweep_record_rows(const struct pl_sweep *sweep, struct pl_text *text);
/** Appends that the disk of the checkpoints is full, and what uses most of it; nothing if it is not full. */
void pl_sweep_record_full(const struct pl_sweep *sweep, struct pl_text *text);

/* result.c */
/** Returns the best trial so far: of those that completed with a finite value, with seeds of the best point. */
bool pl_sweep_result_best(const struct pl_sweep *sweep, size_t *ret_trial);
/** Removes models and checkpoints that nobody needs any more, as far as nothing is being removed on their hosts. */
void pl_sweep_result_tidy(struct pl_sweep *sweep);
/** Begins to copy the best model into place; then, or at once if there is none to copy, the sweep is over. */
void pl_sweep_result_begin(struct pl_sweep *sweep);
/** Notes the end of a process. Returns whether it was one of the copy. */
bool pl_sweep_result_note_end(struct pl_sweep *sweep, pid_t pid, int code);
/** Kills the copy: the job is stopped. */
void pl_sweep_result_abort(struct pl_sweep *sweep);
/** Writes trials.jsonl into the job's output, and the table into the log. */
void pl_sweep_result_write(struct pl_sweep *sweep);

#endif
