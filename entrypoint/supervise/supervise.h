/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The supervisor: one thread and one poll(2) over signals, helpers on this host, and links to other hosts. This file
 * declares what all roles share. master.c runs the master, and a host that is alone; worker.c runs every other host.
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
#include "entrypoint/supervise/exit_report.h"
#include "entrypoint/supervise/failure.h"
#include "entrypoint/supervise/holding.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/ranks.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/supervise/watch.h"

struct pl_role;

enum pl_connection_kind {
    PL_CONNECTION_NEW,       /* connected, but HELLO has not arrived */
    PL_CONNECTION_SHIM,      /* the shim of a program on this host */
    PL_CONNECTION_RSH_AGENT, /* mpirun's rsh agent, which wants a daemon started */
    PL_CONNECTION_RESOLVER,  /* the process that looks up names */
    PL_CONNECTION_WORKER,    /* the master's link to a worker */
    PL_CONNECTION_MASTER,    /* a worker's link to the master */
    PL_CONNECTION_EXEC,      /* a client that wants a program run, see run_for_client() in supervise.c */
};

/** A link and its peer. */
struct pl_connection {
    struct pl_link link;
    enum pl_connection_kind kind;
    enum pl_exit_source source; /* for a shim: the kind of program that it supervises */
    int rank;                   /* for a shim: its rank, or -1 */
    /* the number of the worker on which an agent's daemon is to start, or to which a link leads; else -1 */
    int index;
    pid_t pid;    /* the process at the other end if it is a child of this one, else 0 */
    bool begun;   /* for a shim: its program runs */
    bool ready;   /* for a link to a host: READY was exchanged */
    bool ended;   /* for a shim: its exit report was handled */
    bool dropped; /* the connection is to be freed */
    /* the role that takes the events of this connection instead of the supervisor's; NULL: the supervisor's role */
    const struct pl_role *role;
    void *state; /* the state of that role */
};

struct pl_supervisor;

/**
 * A frame that a role accepts. A frame of another type, from another kind of connection, or with fewer fields is
 * ignored.
 */
struct pl_frame_rule {
    enum pl_frame_type type;
    enum pl_connection_kind from;
    size_t fields; /* the least number of fields */
    void (*handle)(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame);
};

/**
 * A role's callbacks for events. pl_supervise_poll() calls all of them. A callback that is NULL ignores its event. The
 * end of the upload of intermediate output is not an event, because it cannot fail the job.
 */
struct pl_role {
    void (*ended)(struct pl_supervisor *supervisor, struct pl_connection *connection,
                  const struct pl_exit_report *exit_report);
    const struct pl_frame_rule *frames;
    size_t frames_count;
    void (*gone)(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why);
    /* called while pl_supervise_wait_main() waits, to do what is due; lowers `*next_ns` to the time of the next call */
    void (*tick)(struct pl_supervisor *supervisor, int64_t *next_ns);
    /* the same while the host is being prepared */
    void (*prepare_tick)(struct pl_supervisor *supervisor, int64_t *next_ns);
    /* whether pl_supervise_wait_main() must wait on although the main program has ended */
    bool (*waits)(const struct pl_supervisor *supervisor);
    /* begins to link the hosts, for pl_supervise_link() */
    enum pl_status (*link)(struct pl_supervisor *supervisor, struct pl_error *reterr);
    /* the parts of pl_supervise_run(): drops the links that the plan does not have; runs the program, or only reports
     * an earlier failure; tells the other hosts how the job ended, and ends all processes; ends the links */
    void (*unlink)(struct pl_supervisor *supervisor);
    enum pl_status (*run)(struct pl_supervisor *supervisor, struct pl_error *reterr);
    void (*finish)(struct pl_supervisor *supervisor);
    void (*close)(struct pl_supervisor *supervisor);
};

/**
 * If nothing has happened on any of the job's hosts for PACELINE_HANG_S, the job hangs: the master has `paceline
 * stacks` print to the log what each rank is doing. Then the job is left running, or, with PACELINE_HANG_ACTION=end, it
 * is ended. A worker tells the master whether it is quiet; hosts without a link decide for themselves.
 */
struct pl_hang {
    bool ends;     /* a hang ends the job */
    bool told;     /* the master was sent that this host is quiet */
    bool reported; /* this hang was reported */
};

/** The master's ssh sessions, one to each worker host, whose stdin and stdout are the control link. */
struct pl_session {
    const char *host;
    struct pl_connection *link; /* NULL while there is no session */
    int ssh_stderr_fd;          /* a file in memory with ssh's stderr */
    int64_t next_try_ns;        /* PL_DEADLINE_NEVER while a session is up or is being opened */
    bool outside;               /* the host is not part of the launch, which does not wait for it */
    bool ready;                 /* the host has confirmed its name, and is prepared */
    int processes;              /* the number of processes that the host has announced; 0 if it has not */
    bool program_ended;         /* the host's own program has ended */
    bool quiet;                 /* nothing happens on the host, see watch.h */
    enum pl_apart_state apart;  /* what the host has reported about its ranks */
    bool done;                  /* no process of the job is left on the host */
    char reason[400];           /* why the last session failed */
    bool refused;               /* the host itself gave `reason`: it cannot be linked */
    bool reached;               /* `reason` is from a session that got further than connecting */
};

struct pl_sessions {
    struct pl_session *items; /* hosts[1..] of the plan, then its outside_hosts */
    size_t count;
    int64_t begun_ns; /* time at which the first try was due */
};

/** What the master keeps. */
struct pl_master {
    bool can_link;     /* everything that sessions need is there */
    bool linking;      /* sessions are opened while this host prepares, and while the program runs */
    bool failure_told; /* the log says that a session could not be opened */
    bool late_told;    /* the log names the hosts that are late */
    bool result_sent;  /* a host that connects now gets the result at once */
    int ranks_ended;   /* on all hosts */
    /* a rank that ended with 0 before any rank failed; `rank` is -1 if there is none */
    struct pl_exit_report left_early;
    int64_t left_early_ns;
    bool left_early_told;
};

/** What a worker keeps. */
struct pl_worker {
    struct pl_connection *master;
    struct pl_connection *early; /* the master's connection, until this host is prepared */
    bool prepared;
    bool joined, result_known;
    bool all_ready; /* the master has reported that all hosts are linked */
    /* this host continues without the master: a master that connects now is not accepted */
    bool leaving;
    bool serving; /* sshd runs here, or */
    /* the program that runs in place of sshd and reports why sshd cannot run */
    bool refusing;
    int64_t begun_ns;                           /* when sshd was started */
    char sshd_words[PL_EXIT_REPORT_TAIL_BYTES]; /* the last lines of sshd, once it has ended */
};

struct pl_supervisor {
    const struct pl_job *job;
    struct pl_launch_plan *plan;
    /* what of the plan holds here: no ranks before the program may start, no link where it could not be made */
    enum pl_launch_plan_ranks ranks;
    enum pl_launch_plan_link link_kind;
    struct pl_signals *signals;
    struct pl_failure *failure;
    struct pl_rundir rundir;
    struct pl_environment *environment; /* for programs of the plan; NULL without a plan */
    const struct pl_role *role;
    struct pl_sshd sshd;
    struct pl_sessions sessions;
    struct pl_master master;
    struct pl_worker worker;

    struct pl_connection **connections;
    size_t connections_count, connections_capacity;

    bool failed;
    bool report_only; /* it has failed before its program could start */
    int64_t failed_ns;
    int exit_code;                     /* valid if the job has failed */
    struct pl_exit_report exit_report; /* the report that failed the job, if `exit_report_known` */
    bool exit_report_known;
    struct { /* the last rank that a signal has stopped and that has not continued */
        char name[PL_EXIT_REPORT_HOST_BYTES + 64], how[64];
    } suspended;
    /* the reason of a failure without an exit report, or the reason that the master sent to a worker */
    char reason[PL_FAILURE_SHOWN_BYTES];

    bool main_dismissed;           /* the job has ended although the main program has not */
    bool main_started, main_ended; /* of the program of pl_supervise_start_main() */
    struct pl_exit_report main_report;

    int stop_number; /* 0, or the signal that stops the job */
    int64_t stop_ns; /* the time of that signal */
    int64_t begun_ns;
    struct pl_changes model_before; /* contents of the model's directory at the start */
    int64_t memory_kills;           /* the kernel's count at the start */
    struct pl_holding holding;
    bool ranks_seen; /* a rank has connected on this host */
    struct pl_placement placement;
    struct pl_watch watch;
    struct pl_hang hang;
    struct pl_apart apart;

    int64_t heartbeat_timeout_ns; /* a link that is silent for longer counts as lost */
    int64_t next_heartbeat_ns;
    int64_t join_timeout_ns; /* how long hosts wait for each other at the start */
    int64_t sync_budget_ns;  /* time for the last uploads of intermediate output */
    int64_t stop_budget_ns;  /* time from the signal to the end of this process */
    int64_t early_end_ns;    /* how long after the end of a rank with code 0 the ranks that still run are logged */
};

/**
 * Parts of the stop budget, counted back from its end: the times at which mpirun is told to end, and at which
 * everything is killed.
 */
#define PL_SUPERVISE_STOP_LAUNCHER_NS (10 * PL_NS_PER_S)
#define PL_SUPERVISE_KILL_NS (2 * PL_NS_PER_S)

/** What to do if a host does not connect. */
#define PL_SUPERVISE_LOST_ADVICE "Read its log, and check that the security group lets all hosts reach each other"

/* How long the upload of intermediate output may take after its budget, to abort incomplete uploads on the server. */
#define PL_SUPERVISE_SYNC_GRACE_NS (15 * PL_NS_PER_S)

/**
 * Reads the options, and makes this process the parent of orphans. `failure` and `signals` still belong to the caller.
 */
void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure);
void pl_supervise_close(struct pl_supervisor *supervisor);

/** Takes the hosts of the plan, and opens what a link between them needs on this one. */
enum pl_status pl_supervise_use_hosts(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Begins to link the hosts of the plan, which need not be complete: this goes on while this host is being prepared, so
 * that a stop or failure in this time reaches the others, and no host prepares for a job that has ended on another one.
 * A host that can run without its link warns and does.
 */
enum pl_status pl_supervise_link(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Returns PL_FAILED if the job has failed, PL_CANCELLED if it is stopped, else PL_OK. */
enum pl_status pl_supervise_check(const struct pl_supervisor *supervisor) PL_MUST_CHECK;

/** As pl_supervise_poll(), while this host is being prepared. */
enum pl_status pl_supervise_poll_preparing(struct pl_supervisor *supervisor, int64_t deadline_ns,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Takes the complete plan: its environment, and the run directory if ranks or other hosts will report. If that
 * directory cannot be made, and the job can do without it, the function warns, and there is no link and no report of
 * ranks.
 */
enum pl_status pl_supervise_set_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for events until `deadline_ns`, and handles them once. */
enum pl_status pl_supervise_poll(struct pl_supervisor *supervisor, int64_t deadline_ns,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * For loops that end at `deadline_ns`: the same, but returns false if the deadline has passed, or if waiting has
 * failed.
 */
bool pl_supervise_wait(struct pl_supervisor *supervisor, int64_t deadline_ns);

/** Adds a connection that owns `fd`. */
enum pl_status pl_supervise_add(struct pl_supervisor *supervisor, enum pl_connection_kind kind, int fd,
                                struct pl_connection **ret_connection, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sends a frame to another host, if it is linked: `connection` may be NULL. If the host takes no more bytes it is lost,
 * and the role's `gone` is called.
 */
#define PL_SUPERVISE_SEND(supervisor, connection, type, ...)                                                           \
    pl_supervise_send((supervisor), (connection), (type), (const char *const[]){__VA_ARGS__},                          \
                      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_connection *connection, enum pl_frame_type type,
                       const char *const *fields, size_t count);

/** Starts a program under a shim. */
enum pl_status pl_supervise_start(struct pl_supervisor *supervisor, enum pl_exit_source source,
                                  const struct pl_process_setup *setup, struct pl_connection **ret_connection,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Starts the plan's sidecars, if it has any. */
enum pl_status pl_supervise_start_sidecars(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Starts the plan's program on this host, if there is one. */
enum pl_status pl_supervise_start_main(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits until the main program has ended and the role waits for no other host, or until waiting is useless: the job has
 * failed or is stopped, and the time that the programs then have is over.
 */
enum pl_status pl_supervise_wait_main(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Tells the sidecars to end, and gives them a moment. */
void pl_supervise_end_sidecars(struct pl_supervisor *supervisor);

/**
 * Starts the upload of intermediate output, if the plan has one. If it cannot be started, the function warns, and the
 * job goes on without it.
 */
void pl_supervise_start_sync(struct pl_supervisor *supervisor);

/** Waits for the last uploads within their budget, and ends the upload. It cannot fail the job. */
void pl_supervise_end_sync(struct pl_supervisor *supervisor);

/** Returns true while a program of these kinds, a PL_EXIT_SET, runs here under a shim. */
bool pl_supervise_runs(const struct pl_supervisor *supervisor, unsigned sources);

/**
 * If the plan needs names, make this host's own known to its programs: where it does not resolve, the host's address
 * and name become a line of /etc/hosts. With `others`, then wait for the names of the job's other hosts, until the
 * supervisor's join timeout is over or the job is stopped. A child process does it, because the resolver blocks.
 *
 * Errors  PL_TIMEOUT names the host, the resolver's reason and the file to change; PL_INVALID, at once, a name of
 *         another host that leads to this one.
 * Test    tests/integration/host_names.sh
 */
enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, bool others, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Runs a step to its end. Errors: PL_FAILED if the step fails (the report is kept), or if the job fails because of
 * another host; PL_NOT_FOUND if the step is a probe and the answer is no; PL_CANCELLED if the job is stopped meanwhile.
 */
enum pl_status pl_supervise_step(struct pl_supervisor *supervisor, const struct pl_launch_plan_step *step,
                                 char *const *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Runs the steps one after the other, each in `environment` with its own additions, until the job stops or fails. */
enum pl_status pl_supervise_steps(struct pl_supervisor *supervisor, const struct pl_launch_plan_steps *steps,
                                  const struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Finds the ssh keys of the job, or derives them from its secret. It also does so while the job is being stopped. */
enum pl_status pl_supervise_open_ssh(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Looks whether this host is quiet. */
void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** Decides whether the job hangs, and reports it once. `others_quiet`: nothing happens on any other host. */
void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet);

/** Call when the reporter, which is a program, has ended. Its last line says what the first program does. */
void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/** Makes a session for each worker of the plan; none without a link. Opens nothing. */
enum pl_status pl_sessions_make(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Finds or makes the keys, and writes the files that ssh needs. Runs a step, which ends every other program of this
 * host.
 */
enum pl_status pl_sessions_prepare(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the sessions that are due. `*next_ns` is lowered to the time of the next one. */
enum pl_status pl_sessions_open_due(struct pl_supervisor *supervisor, int64_t *next_ns,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the session over `connection`, or NULL. */
struct pl_session *pl_sessions_find(const struct pl_supervisor *supervisor, const struct pl_connection *connection);

/** Call when a session's connection is gone before the host was ready: keeps the reason, and tries again later. */
void pl_sessions_failed(const struct pl_supervisor *supervisor, struct pl_session *session);

/**
 * Returns how many hosts are not ready and may become so; hosts that are not part of the launch count only with
 * `outside`. Appends the first of them and the reasons to `text`, which may be NULL.
 */
size_t pl_sessions_missing(const struct pl_supervisor *supervisor, bool outside, struct pl_text *text);

void pl_sessions_close(struct pl_supervisor *supervisor);

/**
 * Records why the job failed. The first reason stays, but see pl_supervise_fail_exit(). The exit code becomes 1, or 128
 * + the number of the signal while the job is being stopped.
 */
void pl_supervise_fail(struct pl_supervisor *supervisor, const char *format, ...) PL_PRINTF(2, 3);

/** The same for the status of a call: nothing for PL_OK, the stop for PL_CANCELLED, else the text of `error`. */
void pl_supervise_fail_status(struct pl_supervisor *supervisor, enum pl_status status, const struct pl_error *error);

/**
 * Keeps a SUSPENDED frame of this host or of a worker: the first line of the failure names the suspended rank that
 * others waited for.
 */
void pl_supervise_note_suspended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                                 const struct pl_frame *frame);

/** Drops a connection: this host has not the role that its frame is for. */
void pl_supervise_refuse(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame);

/**
 * Records that the job failed because a program ended. Shortly after the first exit report, one of higher severity may
 * replace it: mpirun and its daemons end because a rank did, and ranks are sent SIGTERM because another one failed.
 */
void pl_supervise_fail_exit(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/**
 * Records that the job failed because another host was lost: `whose` is "host" or "the master host". However late that
 * is seen, it replaces the report of a program that was only killed, because mpirun may know earlier and kill its
 * ranks. It does not while the job is being stopped.
 */
void pl_supervise_fail_lost(struct pl_supervisor *supervisor, const char *whose, const char *host, const char *why);

/**
 * Records the master's words on how the job failed, which replace those of this host. The exit code of this host stays.
 */
void pl_supervise_fail_as(struct pl_supervisor *supervisor, const char *text);

/**
 * Call when the link could not be made, and the job runs without it: logs a warning. Returns PL_OK, or `status` if the
 * link is not the reason, because the job was stopped.
 */
enum pl_status pl_supervise_without_link(struct pl_supervisor *supervisor, enum pl_status status,
                                         const struct pl_error *error);

/**
 * Returns true if a program failed while the job was being stopped. The others then have the stop's time, unless they
 * are ranks, which their launcher ends.
 */
bool pl_supervise_failed_in_stop(const struct pl_supervisor *supervisor);

/** Prints how the job failed, at most PL_FAILURE_SHOWN_BYTES. */
void pl_supervise_failure_text(const struct pl_supervisor *supervisor, struct pl_text *text);

/**
 * Passes `number` to the program or the ranks of this host, records that the job is being stopped, and the first time
 * notifies the other hosts.
 */
void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link);

/** Takes a STOP frame of another host: the job is being stopped. */
void pl_supervise_take_stop(struct pl_supervisor *supervisor, struct pl_connection *connection,
                            const struct pl_frame *frame);

/** Forwards the stop to another host, if the job is being stopped. */
void pl_supervise_forward_stop(struct pl_supervisor *supervisor, struct pl_connection *host);

/** Lets the shims of this host's ranks end, also those that connect later. */
void pl_supervise_release(struct pl_supervisor *supervisor);

/** Writes the failure file, which may be written again. Logs a failure to write it. */
void pl_supervise_write_failure(struct pl_supervisor *supervisor, const char *text);

/** Sends STOP with `number` to every live shim of these kinds, a PL_EXIT_SET. */
void pl_supervise_signal(struct pl_supervisor *supervisor, unsigned sources, int number);

/**
 * Kills every process below this one, except the upload of intermediate output and, with `keep_links`, the ssh sessions
 * and the server that carry links to other hosts. Afterwards no other process is left.
 */
void pl_supervise_kill_all(struct pl_supervisor *supervisor, bool keep_links);

/** Drops every connection of `kind`. */
void pl_supervise_drop(struct pl_supervisor *supervisor, enum pl_connection_kind kind);

/** Returns the end of the stop budget minus `early_ns`, or never while the job is not being stopped. */
int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns);

/**
 * Returns the deadline of hosts that began to wait for each other at `begun_ns`. It is short if only a failure or a
 * stop is left to report.
 */
int64_t pl_supervise_join_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns);

/**
 * Returns how long a host that has failed by itself waits for late hosts that it began to link at `begun_ns`, to report
 * the failure to them.
 */
int64_t pl_supervise_notify_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns);

/**
 * Executes the plan in the role of this host; the result is the exit code, and the failure or success file is written.
 * Where the job has failed already, or is stopped before its program starts, it only connects to the other hosts and
 * notifies them.
 */
extern const struct pl_role pl_master_role;
int pl_supervise_run(struct pl_supervisor *supervisor);

/** Writes the failure or success file, and returns the exit code. */
int pl_supervise_finish(struct pl_supervisor *supervisor);

#endif
