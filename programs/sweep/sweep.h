/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A sweep: the program `paceline-sweep` on the job's master starts the trials of a specification, each by `paceline
 * trial` on its host: trial i on host i modulo the number of hosts, on other hosts over ssh. A link leads to each
 * trial: SIGNAL frames carry signals for the trial, the link's end kills it, and a MESSAGE has its result.
 *
 *   space.c    the specification, and space_expand.c, its trials
 *   sweep.c    events, times, and how the sweep ends
 *   hosts.c    slots of hosts, and the processes in them
 *   record.c   trials.jsonl, from which a job that is started again continues
 *   result.c   the best trial, its model, the table, and which files nobody needs
 *
 * Source  docs/sweep.md
 * Test    tests/integration/sweep.py, sweep_trials.py, sweep_hosts.sh, sweep_hosts_storm.sh
 */
#ifndef PL_PROGRAMS_SWEEP_SWEEP_H
#define PL_PROGRAMS_SWEEP_SWEEP_H

#include "base/clock.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/supervise/process.h"
#include "programs/sweep/space.h"

enum pl_sweep_state {
    PL_SWEEP_WAITING,
    PL_SWEEP_COMPLETED, /* the program ended by itself, with exit code 0 */
    PL_SWEEP_FAILED,
    PL_SWEEP_STOPPED, /* the sweep's time was over */
    PL_SWEEP_STATES,
};

extern const char *const pl_sweep_states[PL_SWEEP_STATES]; /* words for the states in trials.jsonl */

enum pl_sweep_why { PL_SWEEP_WHY_NONE, PL_SWEEP_WHY_TRIAL_TIME, PL_SWEEP_WHY_SWEEP_TIME, PL_SWEEP_WHY_DISK };

/** A trial: its row, and its run. */
struct pl_sweep_run {
    enum pl_sweep_state state;
    bool has_value; /* the trial has printed the metric; a value that is not finite is never the best */
    double value;   /* the metric's last value */
    int code;
    double seconds;        /* duration of its last run */
    bool has_model;        /* the trial has left a model */
    struct pl_text reason; /* why the trial failed; empty if it did not */
    bool model_gone, checkpoints_gone;
    /* the members below hold while the trial runs */
    bool runs;
    pid_t pid;     /* `paceline trial`, or the ssh that leads to it; 0 after its end */
    int exit_code; /* exit code of that process */
    struct pl_link link;
    int64_t begun_ns, due_ns;     /* due_ns: when the trial is asked to end; after that, when it is killed */
    enum pl_sweep_why why;        /* why the trial was asked to end */
    bool answered, failed, fresh; /* answered: the result has come; fresh: the trial began without checkpoints */
};

/** A host's devices, GPUs if it has any, else CPUs, in equal parts (slots). Each slot runs one trial at a time. */
struct pl_slots {
    int count;      /* number of slots on each host */
    int cpus, gpus; /* devices of one slot; if there are more slots than GPUs, several slots share a GPU */
};

struct pl_sweep {
    const struct pl_job *job;
    const struct pl_signals *signals;
    struct pl_sweep_space *space;
    struct pl_slots slots;
    char *trial_program;
    struct pl_sshd sshd; /* access to other hosts */
    char *folder;        /* CHECKPOINTS/sweep */
    char id[24];         /* name of this sweep's own folder in `folder`: its trials' files */
    char *fresh;     /* the request for a new sweep by which this one began (paceline_sweep_fresh, job name), or "" */
    double closed_s; /* time from which on no trial was started; 0 if that has not happened */
    int lock_fd;
    int room_fd; /* disk space for the record; -1 after its release */
    struct pl_sweep_run *runs;
    struct pl_sweep_run **in_slot; /* for each slot, the first host's slots first: the run in it, or NULL */
    size_t slots_count;            /* number of slots of all hosts */
    pid_t *removing;               /* for each host: the process that removes files there, or 0 */
    size_t *next;                  /* for each host: number of the first trial that may still wait */
    size_t hosts_count, running;
    bool untidy;     /* some files may not be needed any more */
    int64_t end_ns;  /* deadline set by PACELINE_SWEEP_TIME_S */
    int64_t lost_ns; /* time at which a lost connection ends the sweep, unless process 1 does before; 0: none is lost */
    int stop_number; /* the signal that stops the job, or 0 */
    int64_t stop_ns; /* until when, after that signal, the sweep waits for the best model */
    bool finishing, over;
    bool full;         /* the disk is full: running trials are stopped, and the results so far are written */
    bool failed;       /* `reason` has the cause */
    char reason[2048]; /* the first cause */
    int first_failed;  /* -1 if no trial has failed */
    size_t placed;     /* the trial whose model is copied into the job's */
    pid_t placing;     /* the process that copies it, or 0 */
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
/**
 * Divides the devices of `host` among trials of `processes` each, into `wanted` slots, or if that is 0 into as many as
 * fit.
 *
 * Errors  PL_INVALID: there are fewer devices than `processes`.
 */
enum pl_status pl_slots_cut(const char *host, int cpus, int gpus, int processes, int wanted, struct pl_slots *ret_slots,
                            struct pl_error *reterr) PL_MUST_CHECK;
/** pl_slots_cut() for the CPUs that this process may use and the GPUs that it may see. */
enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Starts a trial in the free slot `slot` of its host. */
enum pl_status pl_sweep_hosts_start(struct pl_sweep *sweep, size_t trial, size_t slot,
                                    struct pl_error *reterr) PL_MUST_CHECK;
/** Appends the path of the trial's model, or of its checkpoints. */
void pl_sweep_hosts_path(const struct pl_sweep *sweep, size_t trial, bool model, struct pl_text *text);
/** Adds the command that runs `program` on a host. */
enum pl_status pl_sweep_hosts_words(const struct pl_sweep *sweep, size_t host, bool channel,
                                    const struct pl_strv *program, struct pl_strv *argv,
                                    struct pl_error *reterr) PL_MUST_CHECK;
/** Starts a program on this host, in a process group of its own. Descriptors that are -1 are this process's. */
enum pl_status pl_sweep_hosts_spawn(const struct pl_sweep *sweep, const struct pl_strv *argv, int input_fd,
                                    int output_fd, pid_t *ret_pid, struct pl_error *reterr) PL_MUST_CHECK;

/* record.c */
/** Reads trials.jsonl, or begins a new sweep. Errors: PL_INVALID: the file belongs to another sweep or is damaged. */
enum pl_status pl_sweep_record_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Reads the text of trials.jsonl: the sweep's own line, then the lines of the trials. `text` is changed. */
enum pl_status pl_sweep_record_read(struct pl_sweep *sweep, char *text, struct pl_error *reterr) PL_MUST_CHECK;
/** Writes the whole of trials.jsonl. If the disk is full, sweep->full is set. */
void pl_sweep_record_write(struct pl_sweep *sweep);
/** Appends a line for each trial. */
void pl_sweep_record_rows(const struct pl_sweep *sweep, struct pl_text *text);
/** Appends that the disk of the checkpoints is full, and what uses most of it. Appends nothing if it is not full. */
void pl_sweep_record_full(const struct pl_sweep *sweep, struct pl_text *text);

/* result.c */
/** Removes models and checkpoints that are not needed any more, on hosts where no such removal runs yet. */
void pl_sweep_result_tidy(struct pl_sweep *sweep);
/** Begins to copy the best model into place. After that, or at once if there is no model to copy, the sweep is over. */
void pl_sweep_result_begin(struct pl_sweep *sweep);
/** Moves the copy into place, after the process that made it has ended. */
void pl_sweep_result_note_end(struct pl_sweep *sweep, int code);
/** Writes trials.jsonl into the job's output, and the table into the log. */
void pl_sweep_result_write(struct pl_sweep *sweep);

#endif
