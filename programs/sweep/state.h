/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A sweep: the program `paceline-sweep` on the job's master. The coordinator decides which trial runs where, keeps the
 * journal and writes the result. On every host an agent (agent.h) runs trials in the host's slots. Coordinator and
 * agents exchange MESSAGE frames: over a socket with the agent of this host, and through an EXEC of process 1 with the
 * others.
 *
 *   coordinator.c   events, times, and how the sweep ends
 *   trials.c        which trial is next, and what the end of a trial means
 *   hosts.c         the agents: starts them, handles their messages, sends them orders
 *   move.c          moves folders from one host to another
 *   result.c        trials.jsonl, the table, the best model
 *   room.c          reserves disk space for journal and result, and describes a full disk
 *
 * Source  docs/sweep.md
 * Test    tests/integration/sweep.py, sweep_hosts.sh
 */
#ifndef PL_PROGRAMS_SWEEP_STATE_H
#define PL_PROGRAMS_SWEEP_STATE_H

#include "base/clock.h"
#include "entrypoint/job/job.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/supervise/signals.h"
#include "programs/sweep/agent.h"
#include "programs/sweep/journal.h"

/** A host of the sweep. This host is number 0. */
struct pl_sweep_host {
    struct pl_link link; /* link to its agent */
    pid_t pid;           /* the agent, or the ssh that leads to it; 0 after its end */
    int64_t lost_ns;     /* when the link ended; 0 while it is open */
    int slots;           /* 0 until the agent has sent the number */
    int *trials;         /* by slot: the trial that uses it, -1 if it is free */
    int used;
};

enum pl_sweep_why {
    PL_SWEEP_WHY_NONE,
    PL_SWEEP_WHY_SCHEDULER,
    PL_SWEEP_WHY_TRIAL_TIME,
    PL_SWEEP_WHY_SWEEP_TIME,
    PL_SWEEP_WHY_DISK,   /* the disk is full; the trial continues when the job is started again */
    PL_SWEEP_WHY_UNREAD, /* the metric cannot be searched in its lines any more */
};

/** The current run of a trial. */
struct pl_sweep_run {
    enum { PL_SWEEP_RUN_NONE, PL_SWEEP_RUN_MOVES, PL_SWEEP_RUN_RUNS } state;
    int host, slot;
    int from_host; /* the host with its checkpoints, while the trial waits for them */
    int64_t begun_ns;
    int64_t limit_ns;                  /* deadline of the trial's time */
    int64_t kill_ns;                   /* when the trial is killed, after it was asked to end */
    enum pl_sweep_why why;             /* why the trial was asked to end */
    bool has_model;                    /* its agent has seen a model */
    bool model_gone, checkpoints_gone; /* whether these folders were removed */
    bool is_first;                     /* whether the run began without checkpoints */
    /* why it has printed no value, or why no value can be found any more; "" if neither */
    char words[600];
};

enum pl_sweep_folder {
    PL_SWEEP_CHECKPOINTS,
    PL_SWEEP_OWN_MODEL, /* the unfinished model of a trial that continues on another host */
    PL_SWEEP_MODEL,     /* the best model, which becomes the job's */
};

/**
 * A folder that is being moved from one host to another: one process sends it, another receives it. There is one move
 * at a time.
 */
struct pl_sweep_move {
    bool is_on;
    bool is_over; /* whether it has ended and the coordinator has not handled that yet */
    bool is_aborted;
    int trial, from, to;
    enum pl_sweep_folder folder;
    struct {
        pid_t pid; /* 0 after its end */
        int code;
        int words_fd; /* memory file with its standard error */
    } ends[2];
    int64_t begun_ns;
    char reason[1024]; /* why the move failed; "" if it succeeded */
};

/**
 * Disk space that is reserved for the journal and the result by unnamed files; -1 after its release, or if the file
 * system has no unnamed files.
 */
struct pl_sweep_room {
    int journal_fd, result_fd;
};

struct pl_sweep {
    const struct pl_job *job;
    const struct pl_signals *signals;
    struct pl_sweep_space *space;
    struct pl_sshd sshd; /* access to other hosts */
    const char *run_dir; /* NULL if there are no other hosts */
    struct pl_scheduler *scheduler;
    struct pl_sweep_journal *journal;
    struct pl_sweep_record *records; /* by trial */
    struct pl_sweep_run *runs;       /* by trial */
    struct pl_sweep_host *hosts;     /* in the order of the job's hosts */
    size_t hosts_count;
    int running;
    int64_t begin_ns;      /* when trials start even if a host has not sent its number of slots */
    int64_t end_ns;        /* deadline set by PACELINE_SWEEP_TIME_S */
    bool closed;           /* whether `end_ns` has passed */
    bool finishing;        /* all trials are over, or the sweep has failed or was stopped */
    bool over;             /* nothing is left to wait for */
    int stop_number;       /* the signal that stops the job, or 0 */
    bool failed;           /* `reason` has the cause */
    char reason[2048];     /* the first cause */
    int first_failed;      /* -1 if no trial has failed */
    char *failure_in_stop; /* "trial N: REASON" of the first one that failed during a stop, or NULL */
    struct pl_sweep_move move;
    struct pl_sweep_room room;
    bool full; /* the disk is full: running trials are stopped, and the results so far are written */
    bool full_handled;
    int64_t move_end_ns; /* after a stop: until when the best model is waited for */
};

/* state.c */
/** Fails the sweep, and with it the job. Only the first reason is kept. */
void pl_sweep_fail(struct pl_sweep *sweep, const char *format, ...) PL_PRINTF(2, 3);
/** Fails the sweep with the error of a call. Does nothing if `status` is PL_OK. */
void pl_sweep_fail_status(struct pl_sweep *sweep, enum pl_status status, const struct pl_error *error);
/** Returns the number of the host with this name, or -1. */
int pl_sweep_hosts_find(const struct pl_sweep *sweep, const char *name);
/** Appends to `argv` the command that runs `program` on host number `host`: on this host that is the program itself. */
enum pl_status pl_sweep_hosts_words(const struct pl_sweep *sweep, int host, enum pl_exec_kind kind,
                                    const struct pl_strv *program, struct pl_strv *argv,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* trials.c */
void pl_sweep_trials_note_slots(struct pl_sweep *sweep, int host, int slots);
bool pl_sweep_trials_is_over(const struct pl_sweep *sweep, size_t trial);
/** Assigns trials to free slots, until one or the other is used up. */
void pl_sweep_trials_fill(struct pl_sweep *sweep);
/** Begins the next move of checkpoints, if a trial waits for one. */
void pl_sweep_trials_begin_move(struct pl_sweep *sweep);
/** Starts a trial that has a slot. Its checkpoints, if it has any, must be on that host. */
void pl_sweep_trials_start(struct pl_sweep *sweep, int trial);
/** Asks the trial to end; it gets as much time as in a job that is stopped. */
void pl_sweep_trials_stop(struct pl_sweep *sweep, int trial, enum pl_sweep_why why);
void pl_sweep_trials_free_slot(struct pl_sweep *sweep, int trial);
void pl_sweep_trials_note_report(struct pl_sweep *sweep, int trial, int64_t step, double value);
void pl_sweep_trials_note_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason);
/** Removes the models and checkpoints of finished trials that nobody needs any more. */
void pl_sweep_trials_forget_beaten(struct pl_sweep *sweep);

/* coordinator.c */
/** Runs the job's sweep to its end, on the job's master. Returns the exit code. */
int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals);

/* hosts.c */
/** Starts the agents of all hosts. */
enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** Ends the agents. */
void pl_sweep_hosts_close(struct pl_sweep *sweep);
/**
 * Waits for events until `deadline_ns` and handles each of them once. The agents' messages go to the handlers in
 * `table`, with the sweep as their context.
 */
enum pl_status pl_sweep_hosts_poll(struct pl_sweep *sweep, const struct pl_sweep_message *table, size_t count,
                                   int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;
/**
 * Notes the processes that have ended. Call it after SIGCHLD was read, not before: otherwise an end could be missed.
 */
void pl_sweep_hosts_reap(struct pl_sweep *sweep);
/** Fails the sweep if an agent has ended although its host is alive. */
void pl_sweep_hosts_check(struct pl_sweep *sweep, int64_t *next_ns);
void pl_sweep_hosts_start_trial(struct pl_sweep *sweep, int host, const struct pl_trial_order *order);
void pl_sweep_hosts_signal_trial(struct pl_sweep *sweep, int host, int trial, int number);
/** Removes the trial's model, or its checkpoints, on all hosts. */
void pl_sweep_hosts_forget_trial(struct pl_sweep *sweep, int trial, bool model);

/* move.c */
void pl_sweep_move_begin(struct pl_sweep *sweep, int trial, enum pl_sweep_folder folder, int from, int to);
/** Notes that a process has ended. Returns whether it was one of the move. */
bool pl_sweep_move_note_end(struct pl_sweep *sweep, pid_t pid, int code);
void pl_sweep_move_done(struct pl_sweep *sweep);
/**
 * Ends the move because the job is stopped. With `at_once` both processes are killed; without it the receiver first
 * removes what it has received.
 */
void pl_sweep_move_abort(struct pl_sweep *sweep, bool at_once);

/* result.c */
/**
 * Begins the end of a sweep whose trials are all over: copies the best model into place. After that the result is
 * written, and the sweep is over.
 */
void pl_sweep_result_begin(struct pl_sweep *sweep);
/** Notes that the best model is in place, or why it is not: `error`. */
void pl_sweep_result_note_model(struct pl_sweep *sweep, const char *error);
/** Writes trials.jsonl with the present state, and the table to the log. */
enum pl_status pl_sweep_result_write_trials(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;

/* room.c */
/** Reserves disk space for the journal and the result. */
void pl_sweep_room_open(struct pl_sweep *sweep);
void pl_sweep_room_close(struct pl_sweep *sweep);
/**
 * Call it after a write has failed with `error`. If the disk was full, releases the journal's space and returns true:
 * try the write once more.
 */
bool pl_sweep_room_give_back(struct pl_sweep *sweep, const struct pl_error *error);
/** If the disk of the checkpoints is full, appends that, and which folders use most of it. */
void pl_sweep_room_describe(const struct pl_sweep *sweep, struct pl_text *text);

#endif
