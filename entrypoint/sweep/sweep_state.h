/* SPDX-License-Identifier: Apache-2.0 */
/** What the parts of a sweep share; nobody else includes this. */
#ifndef PL_ENTRYPOINT_SWEEP_SWEEP_STATE_H
#define PL_ENTRYPOINT_SWEEP_SWEEP_STATE_H

#include "entrypoint/sweep/journal.h"
#include "entrypoint/sweep/sweep.h"
#include "entrypoint/sweep/trials_host.h"

/** Of the master: another host, or this one, which is number 0. */
struct pl_sweep_host {
    int slots;   /* 0: it has not said */
    int *trials; /* by slot: the trial that has it, -1 where it is free */
    int used;
};

enum pl_sweep_why { PL_SWEEP_WHY_NONE, PL_SWEEP_WHY_SCHEDULER, PL_SWEEP_WHY_TRIAL_TIME, PL_SWEEP_WHY_SWEEP_TIME };

/** A trial's run. */
struct pl_sweep_run {
    enum { PL_SWEEP_RUN_NONE, PL_SWEEP_RUN_MOVES, PL_SWEEP_RUN_RUNS } state;
    int host, slot;
    int from_host; /* where its checkpoints are, while it waits for them */
    int64_t begun_ns;
    int64_t limit_ns;      /* when it has taken too long */
    int64_t kill_ns;       /* when it is killed, after it was asked to end */
    enum pl_sweep_why why; /* it was asked to end */
    bool model_gone;       /* the trial's model was removed */
};

/** A folder on its way from one host to another, one at a time. */
struct pl_sweep_move {
    bool is_on, begins;
    bool is_over;      /* and the master has not taken note of it yet */
    char reason[1024]; /* why it did not get there; "": it did */
    bool due;          /* the next piece is to be asked for */
    bool last;         /* the piece on its way */
    int trial, from, to;
    enum pl_trials_host_kind kind;
};

struct pl_sweep {
    struct pl_supervisor *supervisor;
    const struct pl_launch_plan *plan;
    struct pl_sweep_space *space;
    struct pl_trials_host here;
    struct pl_files_piece piece;

    /* of the master: */
    bool started;
    struct pl_scheduler *scheduler;
    struct pl_sweep_journal *journal;
    struct pl_sweep_record *records; /* by trial */
    struct pl_sweep_run *runs;       /* by trial */
    struct pl_sweep_host *hosts;     /* as in the plan */
    size_t hosts_count;
    int running;
    int64_t end_ns;    /* of PACELINE_SWEEP_TIME_S */
    bool closed;       /* that time is over */
    bool finishing;    /* all trials are over, or the job has failed or is stopped */
    int first_failed;  /* -1: none */
    char *ended_badly; /* the first trial that did while the job was being stopped; NULL */
    struct pl_sweep_move move;
};

/* sweep_state.c */
/** The link to host number `host`, which is another; NULL: it is gone. */
struct pl_connection *pl_sweep_link(const struct pl_sweep *sweep, int host);
/** The number of the host of this name; -1. */
int pl_sweep_find_host(const struct pl_sweep *sweep, const char *name);

/* sweep_master.c */
void pl_sweep_master_tick(struct pl_supervisor *supervisor, int64_t *next_ns);
enum pl_status pl_sweep_master_start(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;
void pl_sweep_master_note_slots(struct pl_sweep *sweep, int host, int slots);
void pl_sweep_master_note_report(struct pl_sweep *sweep, int trial, int64_t step, double value);
void pl_sweep_master_note_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason);

/* sweep_move.c */
void pl_sweep_move_begin(struct pl_sweep *sweep, int trial, enum pl_trials_host_kind kind, int from, int to);
/** Move what can be moved now; `*next_ns` is made earlier where there is more. */
void pl_sweep_move_go_on(struct pl_sweep *sweep, int64_t *next_ns);
void pl_sweep_move_note_piece(struct pl_sweep *sweep, const struct pl_frame *frame);
void pl_sweep_move_note_stored(struct pl_sweep *sweep, const struct pl_frame *frame);
/* what other hosts do when they are asked */
void pl_sweep_move_answer_fetch(struct pl_sweep *sweep, struct pl_connection *connection, const struct pl_frame *frame);
void pl_sweep_move_answer_piece(struct pl_sweep *sweep, struct pl_connection *connection, const struct pl_frame *frame);

/* sweep_result.c */
/** All trials are over: bring the best one's model into place; then the result is written, and the job ends. */
void pl_sweep_result_begin(struct pl_sweep *sweep);
/** Its model is there, or not for the reason `error`. */
void pl_sweep_result_note_model(struct pl_sweep *sweep, const char *error);
/** trials.jsonl as it is now, and the table in the log. */
enum pl_status pl_sweep_result_write_trials(struct pl_sweep *sweep, struct pl_error *reterr) PL_MUST_CHECK;

#endif
