/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A sweep, as the program `paceline-sweep` on the job's master: the coordinator decides which trial runs where, keeps
 * the journal and makes the result. On every host an agent (agent.h) runs trials in the host's slots. Between the two
 * go MESSAGE frames, over a socket to this host's agent, and through an EXEC of process 1 to the others'.
 *
 *   coordinator.c   events, times, and how the sweep ends
 *   trials.c        what is next, and what an end means
 *   hosts.c         the agents: starting them, what they say and are told
 *   move.c          folders from one host to another
 *   result.c        trials.jsonl, the table, the best model
 *   room.c          room on disks that is kept for these, and what is said where it was needed
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

/** A host of the sweep; this one is number 0. */
struct pl_sweep_host {
    struct pl_link link; /* to its agent */
    pid_t pid;           /* of the agent, or of the ssh that leads to it; 0: it has ended */
    int64_t lost_ns;     /* when the link had ended; 0: it has not */
    int slots;           /* 0: it has not said */
    int *trials;         /* by slot: the trial that has it, -1 where it is free */
    int used;
};

enum pl_sweep_why {
    PL_SWEEP_WHY_NONE,
    PL_SWEEP_WHY_SCHEDULER,
    PL_SWEEP_WHY_TRIAL_TIME,
    PL_SWEEP_WHY_SWEEP_TIME,
    PL_SWEEP_WHY_DISK,   /* it is full; the trial goes on when the job is started again */
    PL_SWEEP_WHY_UNREAD, /* its lines cannot be searched any more for the metric */
};

/** A trial's run. */
struct pl_sweep_run {
    enum { PL_SWEEP_RUN_NONE, PL_SWEEP_RUN_MOVES, PL_SWEEP_RUN_RUNS } state;
    int host, slot;
    int from_host; /* where its checkpoints are, while it waits for them */
    int64_t begun_ns;
    int64_t limit_ns;                  /* when it has taken too long */
    int64_t kill_ns;                   /* when it is killed, after it was asked to end */
    enum pl_sweep_why why;             /* it was asked to end */
    bool has_model;                    /* its agent has seen one */
    bool model_gone, checkpoints_gone; /* they were removed */
    bool is_first;                     /* it began without checkpoints */
    char words[600];                   /* why it has printed no value, or none can be found any more; "": neither */
};

enum pl_sweep_folder {
    PL_SWEEP_CHECKPOINTS,
    PL_SWEEP_OWN_MODEL, /* what a trial that goes on elsewhere has of it so far */
    PL_SWEEP_MODEL,     /* the best one, which becomes the job's */
};

/** A folder on its way from one host to another, one at a time: a process that sends it, and one that receives it. */
struct pl_sweep_move {
    bool is_on;
    bool is_over; /* and the coordinator has not taken note of it yet */
    bool is_aborted;
    int trial, from, to;
    enum pl_sweep_folder folder;
    struct {
        pid_t pid; /* 0: it has ended */
        int code;
        int words_fd; /* a memory file with its standard error */
    } ends[2];
    int64_t begun_ns;
    char reason[1024]; /* why it did not get there; "": it did */
};

/** Room for the journal and for the result, by unnamed files; -1: given back, or a file system has no such thing. */
struct pl_sweep_room {
    int journal_fd, result_fd;
};

struct pl_sweep {
    const struct pl_job *job;
    const struct pl_signals *signals;
    struct pl_sweep_space *space;
    struct pl_sshd sshd; /* the way to other hosts */
    const char *run_dir; /* NULL: there are none */
    struct pl_scheduler *scheduler;
    struct pl_sweep_journal *journal;
    struct pl_sweep_record *records; /* by trial */
    struct pl_sweep_run *runs;       /* by trial */
    struct pl_sweep_host *hosts;     /* as in the job */
    size_t hosts_count;
    int running;
    int64_t begin_ns;  /* when trials start although a host has not said how many it takes */
    int64_t end_ns;    /* of PACELINE_SWEEP_TIME_S */
    bool closed;       /* that time is over */
    bool finishing;    /* all trials are over, or the sweep has failed or is stopped */
    bool over;         /* there is nothing left to wait for */
    int stop_number;   /* 0, or the signal that stops the job */
    bool failed;       /* `reason` says why */
    char reason[2048]; /* the first */
    int first_failed;  /* -1: none */
    char *ended_badly; /* the first trial that did while the job was being stopped; NULL */
    struct pl_sweep_move move;
    struct pl_sweep_room room;
    bool full; /* the disk is: what runs is stopped, and what is known is written */
    bool full_handled;
    int64_t move_end_ns; /* with stop_number: when the best model is not waited for any more */
};

/* state.c */
/** The sweep has failed, and so does the job. The first reason stays. */
void pl_sweep_fail(struct pl_sweep *sweep, const char *format, ...) PL_PRINTF(2, 3);
/** The same for what a call returned; nothing for PL_OK. */
void pl_sweep_fail_status(struct pl_sweep *sweep, enum pl_status status, const struct pl_error *error);
/** The number of the host of this name; -1. */
int pl_sweep_hosts_find(const struct pl_sweep *sweep, const char *name);
/** The words that run `program` on host number `host`: itself on this one. */
enum pl_status pl_sweep_hosts_words(const struct pl_sweep *sweep, int host, enum pl_exec_kind kind,
                                    const struct pl_strv *program, struct pl_strv *argv,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* trials.c */
void pl_sweep_trials_note_slots(struct pl_sweep *sweep, int host, int slots);
bool pl_sweep_trials_is_over(const struct pl_sweep *sweep, size_t trial);
/** Trials into free slots, as long as there are both. */
void pl_sweep_trials_fill(struct pl_sweep *sweep);
/** Let the next trial's checkpoints move that are to. */
void pl_sweep_trials_begin_move(struct pl_sweep *sweep);
/** It has a slot, and its checkpoints, if it has any, are on that host. */
void pl_sweep_trials_start(struct pl_sweep *sweep, int trial);
/** Ask it to end; it has the time of a job that is stopped. */
void pl_sweep_trials_stop(struct pl_sweep *sweep, int trial, enum pl_sweep_why why);
void pl_sweep_trials_free_slot(struct pl_sweep *sweep, int trial);
void pl_sweep_trials_note_report(struct pl_sweep *sweep, int trial, int64_t step, double value);
void pl_sweep_trials_note_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason);
/** Have removed what trials that are over have left and nobody needs. */
void pl_sweep_trials_forget_beaten(struct pl_sweep *sweep);

/* coordinator.c */
/** Run the sweep of a job to its end, on its master; the result is the exit code. */
int pl_sweep_run(const struct pl_job *job, const struct pl_signals *signals);

/* hosts.c */
/** Start the agents of all hosts. */
enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
/** End them. */
void pl_sweep_hosts_close(struct pl_sweep *sweep);
/** Wait for events until `deadline_ns`, handle them once, and what agents say by `table`: its context is the sweep. */
enum pl_status pl_sweep_hosts_poll(struct pl_sweep *sweep, const struct pl_sweep_message *table, size_t count,
                                   int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;
/** Take note of processes that have ended. Call it after SIGCHLD was read, not before: else an end could be missed. */
void pl_sweep_hosts_reap(struct pl_sweep *sweep);
/** Fails the sweep where an agent is gone although its host is not. */
void pl_sweep_hosts_check(struct pl_sweep *sweep, int64_t *next_ns);
void pl_sweep_hosts_start_trial(struct pl_sweep *sweep, int host, const struct pl_trial_order *order);
void pl_sweep_hosts_signal_trial(struct pl_sweep *sweep, int host, int trial, int number);
/** Its model, or its checkpoints, are of no use any more, on any host. */
void pl_sweep_hosts_forget_trial(struct pl_sweep *sweep, int trial, bool model);

/* move.c */
void pl_sweep_move_begin(struct pl_sweep *sweep, int trial, enum pl_sweep_folder folder, int from, int to);
/** A process has ended: true where it is the move's. */
bool pl_sweep_move_note_end(struct pl_sweep *sweep, pid_t pid, int code);
void pl_sweep_move_done(struct pl_sweep *sweep);
/** End it, because the job is stopped; unless `at_once` its receiver may remove what has come, and ends then. */
void pl_sweep_move_abort(struct pl_sweep *sweep, bool at_once);

/* result.c */
/** All trials are over: bring the best one's model into place; then the result is written, and the sweep is over. */
void pl_sweep_result_begin(struct pl_sweep *sweep);
/** Its model is there, or not for the reason `error`. */
void pl_sweep_result_note_model(struct pl_sweep *sweep, const char *error);
/** trials.jsonl as it is now, and the table in the log. */
enum pl_status pl_sweep_result_write_trials(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;

/* room.c */
/** Keep room where the journal and the result will be. */
void pl_sweep_room_open(struct pl_sweep *sweep);
void pl_sweep_room_close(struct pl_sweep *sweep);
/** A write has failed with `error`: where a full disk was the reason give the journal's room back, and say that it may
 * be written once more. */
bool pl_sweep_room_give_back(struct pl_sweep *sweep, const struct pl_error *error);
/** Append that the disk of checkpoints is full, and whose bytes are on it; nothing where it is not. */
void pl_sweep_room_describe(const struct pl_sweep *sweep, struct pl_text *text);

#endif
