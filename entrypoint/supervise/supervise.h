/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The supervisor: one thread and one poll(2) over signals, helpers on this host and links to other hosts. This file is
 * the part that all roles share; master.c and worker.c are the two roles.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_SUPERVISE_H
#define PL_ENTRYPOINT_SUPERVISE_SUPERVISE_H

#include "base/changes.h"
#include "base/clock.h"
#include "base/text.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/supervise/apart.h"
#include "entrypoint/supervise/exit_report.h"
#include "entrypoint/supervise/failure.h"
#include "entrypoint/supervise/hang.h"
#include "entrypoint/supervise/holding.h"
#include "entrypoint/supervise/placement.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/supervise/signals.h"
#include "entrypoint/supervise/watch.h"

struct pl_role;

enum pl_connection_kind {
    PL_CONNECTION_NEW,      /* connected, has not sent HELLO */
    PL_CONNECTION_SHIM,     /* the shim of a program on this host */
    PL_CONNECTION_AGENT,    /* mpirun's request to start a daemon */
    PL_CONNECTION_RESOLVER, /* looks names up */
    PL_CONNECTION_WORKER,   /* the master's link to a worker */
    PL_CONNECTION_MASTER,   /* a worker's link to the master */
    PL_CONNECTION_EXEC,     /* who wants a program run, see exec.h */
};

/** A connection: what is at the other end of a link. */
struct pl_connection {
    struct pl_link link;
    enum pl_connection_kind kind;
    enum pl_exit_source source; /* of a shim */
    int rank;                   /* of a shim: its rank; -1 */
    int index;                  /* the worker that an agent's daemon is to start on, or that a link leads to; -1 */
    pid_t pid;                  /* the process at the other end when it is our child, else 0 */
    bool begun;                 /* a shim: its program runs; a link: the other host sent READY */
    bool ended;                 /* a shim: its exit report was handled */
    bool dropped;               /* to be freed */
    const struct pl_role *role; /* who waits for this one alone, in place of the supervisor's; NULL: nobody */
    void *state;                /* that role's */
};

struct pl_supervisor;

/** A frame that a role takes: one of another type, from another kind of connection, or with less fields is ignored. */
struct pl_frame_rule {
    enum pl_frame_type type;
    enum pl_connection_kind from;
    size_t fields; /* at least */
    void (*handle)(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame);
};

/**
 * What a role does about events. All are called from pl_supervise_poll(); where one is NULL, the event is ignored.
 * The end of the upload of intermediate output, which fails no job, is no event.
 */
struct pl_role {
    void (*ended)(struct pl_supervisor *supervisor, struct pl_connection *connection,
                  const struct pl_exit_report *exit_report);
    const struct pl_frame_rule *frames;
    size_t frames_count;
    void (*gone)(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why);
    /* while pl_supervise_wait_main() waits: what is due now; `*next_ns` becomes earlier where more is due before it */
    void (*tick)(struct pl_supervisor *supervisor, int64_t *next_ns);
    /* the same while the host is prepared */
    void (*prepare_tick)(struct pl_supervisor *supervisor, int64_t *next_ns);
    /* whether pl_supervise_wait_main() is to wait on although the main program has ended */
    bool (*waits)(const struct pl_supervisor *supervisor);
};

struct pl_supervisor {
    const struct pl_job *job;
    struct pl_launch_plan *plan; /* NULL while the code is fetched */
    struct pl_signals *signals;
    struct pl_failure *failure;
    struct pl_rundir rundir;
    struct pl_environment *environment; /* for what is started from the plan; NULL without one */
    const struct pl_role *role;
    void *state; /* the role's */
    /* what the role has done once it listens to the other hosts: code, plan, requirements; NULL: that is done */
    enum pl_status (*prepare)(struct pl_supervisor *supervisor, struct pl_error *reterr);
    void *preparation; /* its own */

    struct pl_connection **connections;
    size_t connections_count, connections_capacity;

    bool failed;
    int64_t failed_ns;
    int exit_code;                     /* when failed */
    struct pl_exit_report exit_report; /* the one that failed the job, when `exit_report_known` */
    bool exit_report_known;
    struct { /* the last that was stopped by a signal and has not gone on */
        char name[PL_EXIT_REPORT_HOST_BYTES + 64], how[64];
    } suspended;
    char reason[PL_FAILURE_SHOWN_BYTES]; /* of a failure without an exit report; also what the master sent a worker */

    bool main_dismissed;           /* the job has ended beside the main program, which need not have */
    bool main_started, main_ended; /* the program of pl_supervise_start_main() */
    struct pl_exit_report main_report;

    int stop_number; /* 0, or the signal that stops the job */
    int64_t stop_ns; /* when it came */
    int64_t begun_ns;
    struct pl_changes model_before; /* what was in the model's directory when this began */
    int64_t memory_kills;           /* that the kernel had counted when this began */
    struct pl_holding holding;
    bool ranks_seen; /* one has connected here */
    struct pl_placement placement;
    struct pl_watch watch;
    struct pl_hang hang;
    struct pl_apart apart;

    int64_t heartbeat_timeout_ns; /* the heartbeat timeout: a link that is silent for longer is dead */
    int64_t next_heartbeat_ns;
    int64_t join_timeout_ns; /* the join timeout: how long hosts wait for each other at the start */
    int64_t sync_budget_ns;  /* for the last uploads of intermediate output */
    int64_t stop_budget_ns;  /* from the signal to our own end */
    int64_t early_end_ns;    /* after a rank's end with 0 others that still run are told of */
};

/** Parts of the stop budget, counted back from its end: when mpirun is told to end, when everything is killed. */
#define PL_SUPERVISE_STOP_LAUNCHER_NS (10 * PL_NS_PER_S)
#define PL_SUPERVISE_KILL_NS (2 * PL_NS_PER_S)

/* How long the upload of intermediate output may take, once its time is over, to abort incomplete uploads on the server
 * too. */
#define PL_SUPERVISE_SYNC_GRACE_NS (15 * PL_NS_PER_S)

/** Read the options, become the parent of orphans. `failure` and `signals` stay the caller's. */
void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure);
void pl_supervise_close(struct pl_supervisor *supervisor);

/**
 * Take a plan that runs nothing, by which the hosts are linked while each prepares: so a stop or a failure in this time
 * reaches the others.
 */
enum pl_status pl_supervise_set_early_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Do what is left to do before the program can start. PL_CANCELLED: the job is stopped; PL_FAILED: it has failed. */
enum pl_status pl_supervise_prepare(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** pl_supervise_poll() while this host is prepared. */
enum pl_status pl_supervise_poll_preparing(struct pl_supervisor *supervisor, int64_t deadline_ns,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Take the plan: its environment, and the run directory when ranks or other hosts will report. Where that cannot be
 * made and the job can do without, a warning says so, and the plan has no link and no ranks any more.
 */
enum pl_status pl_supervise_set_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Wait for events until `deadline_ns`, handle them once. */
enum pl_status pl_supervise_poll(struct pl_supervisor *supervisor, int64_t deadline_ns,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The same in a loop that ends at `deadline_ns`: false when it has passed, or nothing can be waited for. */
bool pl_supervise_wait(struct pl_supervisor *supervisor, int64_t deadline_ns);

/** Add a connection that owns `fd`. */
enum pl_status pl_supervise_add(struct pl_supervisor *supervisor, enum pl_connection_kind kind, int fd,
                                struct pl_connection **ret_connection, struct pl_error *reterr) PL_MUST_CHECK;

/** Send a frame to another host; one that takes no more is lost, and the role's `gone` is called. */
#define PL_SUPERVISE_SEND(supervisor, connection, type, ...)                                                           \
    pl_supervise_send((supervisor), (connection), (type), (const char *const[]){__VA_ARGS__},                          \
                      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_connection *connection, enum pl_frame_type type,
                       const char *const *fields, size_t count);

/** Start a program under a shim. */
enum pl_status pl_supervise_start(struct pl_supervisor *supervisor, enum pl_exit_source source,
                                  const struct pl_process_setup *setup, struct pl_connection **ret_connection,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Start the plan's sidecars, where it has any. */
enum pl_status pl_supervise_start_sidecars(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Start what the plan runs on this host, when it runs anything itself. */
enum pl_status pl_supervise_start_main(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait until the main program has ended and the role waits for nobody else, or until waiting is useless: the job has
 * failed or is stopped, and the time that the programs then have is over.
 */
enum pl_status pl_supervise_wait_main(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Ask the sidecars to end and give them a moment. */
void pl_supervise_end_sidecars(struct pl_supervisor *supervisor);

/**
 * Start uploading intermediate output, when the plan says so. That it cannot be started is a warning: the job goes on
 * without.
 */
void pl_supervise_start_sync(struct pl_supervisor *supervisor);

/** Wait for the last uploads, for as long as they may take, and end the upload. It cannot fail the job. */
void pl_supervise_end_sync(struct pl_supervisor *supervisor);

/** True while a program of this kind runs here under a shim. */
bool pl_supervise_runs(const struct pl_supervisor *supervisor, enum pl_exit_source source);

/**
 * Run a step to its end: PL_FAILED when it fails (the report is kept), or the job does because of another host;
 * PL_NOT_FOUND when it is a probe and the answer is no, PL_CANCELLED when the job is stopped meanwhile.
 */
enum pl_status pl_supervise_step(struct pl_supervisor *supervisor, const struct pl_launch_plan_step *step,
                                 char *const *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Run the steps one after the other, each in `environment` with its own additions, until the job stops or fails. */
enum pl_status pl_supervise_steps(struct pl_supervisor *supervisor, const struct pl_launch_plan_steps *steps,
                                  const struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Find the ssh keys of the job, or make them from its secret, also when the job is stopped meanwhile. */
enum pl_status pl_supervise_open_ssh(struct pl_supervisor *supervisor, struct pl_sshd *sshd,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Record how the job failed; the first reason stays, but see pl_supervise_fail_exit(). The exit code is 1, or 128 +
 * the signal's number where the job is being stopped.
 */
void pl_supervise_fail(struct pl_supervisor *supervisor, const char *format, ...) PL_PRINTF(2, 3);

/** Keep a SUSPENDED frame of this host's or a worker's: the failure's first line tells of what others waited for. */
void pl_supervise_note_suspended(struct pl_supervisor *supervisor, const struct pl_frame *frame);

/** The same for what a call returned: nothing for PL_OK, the stop for PL_CANCELLED, else the text of `error`. */
void pl_supervise_fail_status(struct pl_supervisor *supervisor, enum pl_status status, const struct pl_error *error);

/**
 * The job failed because a program ended. Shortly after the first exit report one of higher severity may replace it:
 * mpirun and its daemons end because a rank did, and ranks are sent SIGTERM because another one failed.
 */
void pl_supervise_fail_exit(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/**
 * The job failed because another host was lost: `whose` is "host" or "the master host". However late that is seen, it
 * replaces the report of a program that was only killed, as mpirun, which may know earlier, kills its ranks; but not
 * while the job is being stopped.
 */
void pl_supervise_fail_lost(struct pl_supervisor *supervisor, const char *whose, const char *host, const char *why);

/** The master has said how the job failed: its words replace those of this host, whose exit code stays. */
void pl_supervise_fail_as(struct pl_supervisor *supervisor, const char *text);

/**
 * The link could not be made, and the job runs without: what went wrong is a warning now and no failure of the job.
 * Returns PL_OK, or `status` where that is not the link's: the job was stopped.
 */
enum pl_status pl_supervise_without_link(struct pl_supervisor *supervisor, enum pl_status status,
                                         const struct pl_error *error);

/**
 * True when a program ended badly while the job was being stopped: the others have the stop's time, unless they are
 * ranks, whose launcher ends them.
 */
bool pl_supervise_failed_in_stop(const struct pl_supervisor *supervisor);

/** Print how the job failed, at most PL_FAILURE_SHOWN_BYTES. */
void pl_supervise_failure_text(const struct pl_supervisor *supervisor, struct pl_text *text);

/**
 * Pass `number` to the program or the ranks of this host, remember that the job is being stopped, and the first time
 * notify the other hosts.
 */
void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link);

/** A STOP frame from another host: it is being stopped, and so is this one. */
void pl_supervise_take_stop(struct pl_supervisor *supervisor, struct pl_connection *connection,
                            const struct pl_frame *frame);

/** Forward the stop to another host, when the job is being stopped. */
void pl_supervise_forward_stop(struct pl_supervisor *supervisor, struct pl_connection *host);

/** Let the shims of this host's ranks end, those that come after this too. */
void pl_supervise_release(struct pl_supervisor *supervisor);

/** Write the failure file; one that cannot be written is logged. It may be written again. */
void pl_supervise_write_failure(struct pl_supervisor *supervisor, const char *text);

/** Send STOP with `number` to every live shim of `source`. */
void pl_supervise_signal(struct pl_supervisor *supervisor, enum pl_exit_source source, int number);

/**
 * End every process below this one but the upload of intermediate output and, with `keep_links`, the ssh sessions and
 * the server that links to other hosts run through; afterwards none of the others is left.
 */
void pl_supervise_kill_all(struct pl_supervisor *supervisor, bool keep_links);

/** Drop every connection of `kind`. */
void pl_supervise_drop(struct pl_supervisor *supervisor, enum pl_connection_kind kind);

/** The end of the stop budget less `early_ns`; never when the job is not being stopped. */
int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns);

/**
 * The deadline of hosts that began to wait for each other at `begun_ns`: short where all that is left is to
 * report a failure or a stop.
 */
int64_t pl_supervise_join_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns);

/**
 * The deadline of a host that has failed by itself for hosts that it began to link at `begun_ns` and that may be late:
 * it tells those that come.
 */
int64_t pl_supervise_notify_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns);

/**
 * The two roles: execute the plan; the result is the exit code, and the failure or success file is written. Where
 * the job has failed already, or is stopped before its program starts, they only connect to the other hosts and
 * notify them.
 */
int pl_master_run(struct pl_supervisor *supervisor);
int pl_worker_run(struct pl_supervisor *supervisor);

/** Write the failure or success file and return the exit code. */
int pl_supervise_finish(struct pl_supervisor *supervisor);

#endif
