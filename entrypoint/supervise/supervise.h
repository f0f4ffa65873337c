/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The supervisor: one thread and one poll(2) over signals, helpers on this host, and links to other hosts.
 *
 *   host.c                the job on this host, from its links to its end; the table of what the loop calls
 *   supervise.c           the loop, connections, timers, signals and the stop; holding.c: ranks that end during a stop
 *   supervise_start.c     programs, steps, uploads, what follows a hang: by shim.c, process.c, exit_report.c
 *   supervise_failure.c   why the job failed, and the files that say so (failure.c)
 *   restart.c             whether the job is started again, and what then stays
 *   links.c, frames.c     the links to other hosts, and what goes over them
 *   peers.c, ranks.c, watch.c, blas.c   names of hosts, ranks, whether anything happens, OpenBLAS's core
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
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/ranks.h"
#include "entrypoint/supervise/restart.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/supervise/watch.h"

enum pl_connection_kind {
    PL_CONNECTION_NEW,       /* connected, but HELLO has not arrived */
    PL_CONNECTION_SHIM,      /* the shim of a program on this host */
    PL_CONNECTION_RSH_AGENT, /* mpirun's rsh agent, which wants a daemon started */
    PL_CONNECTION_RESOLVER,  /* the process that looks up names */
    PL_CONNECTION_WORKER,    /* the master's link to a worker */
    PL_CONNECTION_MASTER,    /* a worker's link to the master */
    PL_CONNECTION_EXEC,      /* a client that wants a program run, see run_for_client() in frames.c */
};

/**
 * The states of the job on this host, of a connection, and of a link between two hosts (docs/internals/supervision.md).
 *
 * Test  tests/unit/entrypoint/supervise/test_stop_state.c, tests/models/hosts.pml
 */
enum pl_host_state {
    PL_HOST_PREPARING, /* steps run; a master that has connected waits for READY */
    PL_HOST_LINKING,   /* hosts wait for each other, to start the program or to report an earlier failure */
    PL_HOST_RUNNING,   /* the program runs, on this host or on others */
    PL_HOST_CLOSING,   /* this host tells the others how the job has ended, and ends its programs */
    PL_HOST_ENDED,     /* no program is left here, and the links end */
};

enum pl_host_role {
    PL_HOST_MASTER, /* decides how the job ends; also a host without a link, whatever its role in the plan */
    PL_HOST_WORKER, /* gets the result from the master; its program can run without the link */
    PL_HOST_LED,    /* a worker that decides nothing by itself, since no program runs without the link */
};

enum pl_connection_state {
    PL_CONNECTION_OPEN,
    PL_CONNECTION_READY,   /* a shim's program runs; hosts have exchanged READY */
    PL_CONNECTION_ENDED,   /* the exit report of a shim was handled */
    PL_CONNECTION_DROPPED, /* to be freed after this poll */
};

enum pl_session_state {
    PL_SESSION_AWAY,    /* the other host is not linked, or has not sent READY */
    PL_SESSION_REFUSED, /* the host cannot be linked: it has said why, or sshd does not run here */
    PL_SESSION_LINKED,  /* both hosts are prepared and linked */
    PL_SESSION_IDLE,    /* the worker's own program has ended */
    PL_SESSION_DONE,    /* the worker has no process left; the master has sent the result */
    PL_SESSION_LOST,    /* the link ended before the host was done */
};

/** Waits for the end of a step, or for the answer of the process that looks up names. */
struct pl_waiter {
    bool over;
    struct pl_exit_report exit_report;                        /* exit report of the step */
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES]; /* answer of the resolver; "": all names resolve */
};

/** A link and its peer. */
struct pl_connection {
    struct pl_link link;
    enum pl_connection_kind kind;
    enum pl_connection_state state;
    enum pl_process_kind process_kind; /* for a shim: kind of the process that it supervises */
    int rank;                          /* rank of a shim, or -1 */
    /* the number of the worker on which an agent's daemon is to start, or to which a link leads; else -1 */
    int index;
    pid_t pid;                /* the process at the other end if it is a child of this one, else 0 */
    struct pl_waiter *waiter; /* gets the result of this connection; NULL: the host handles it */
};

/** The timers, with what pl_supervise_poll() does when they are due, and not before. */
enum pl_timer {
    PL_TIMER_HEARTBEAT,  /* to send heartbeats, and to find links that are silent */
    PL_TIMER_SESSIONS,   /* to open sessions */
    PL_TIMER_LATE_HOSTS, /* to name the hosts that are not linked, and later to give them up */
    PL_TIMER_EARLY_END,  /* to log that ranks still run after one has ended */
    PL_TIMER_APART,      /* to look whether ranks are connected */
    PL_TIMER_WATCH,      /* to look whether this host is quiet */
    PL_TIMER_HOLDING,    /* to decide about the shims of ranks that have ended during a stop */
    PL_TIMER_LAUNCHER,   /* to tell the launcher to end, near the end of a stop's time */
    PL_TIMER_WAIT,       /* to end the wait for the program and the other hosts, or the grace of a failed job */
    PL_TIMER_OVERDUE,    /* to stop waiting for programs at the end of a stop's time: close_host() kills them */
    PL_TIMERS,
};

/** A link to another host: on the master the ssh session to a worker, on a worker the master's session with it. */
struct pl_session {
    const char *host;
    enum pl_session_state state;
    struct pl_connection *link; /* NULL while there is none */
    /* only the master uses the members below: */
    bool outside;              /* the host is not part of the launch; the launch does not wait for it */
    int processes;             /* the number of processes that the host has announced; 0 if it has not */
    bool quiet;                /* nothing happens on the host, see watch.h */
    enum pl_apart_state apart; /* state that the host has reported about its ranks */
    int ssh_stderr_fd;         /* a file in memory with ssh's stderr */
    int64_t next_try_ns;       /* PL_DEADLINE_NEVER while a session is up or is being opened */
    char reason[400];          /* why the last session failed */
    bool reached;              /* `reason` is from a session that got further than connecting */
};

struct pl_sessions {
    struct pl_session *items; /* master: hosts[1..] of the plan, then its outside_hosts; worker: the master */
    size_t count;
    bool opens;        /* sessions are opened while this host prepares, and while the program runs */
    bool failure_told; /* the log says that a session could not be opened */
    bool late_told;    /* the log names the hosts that are late */
    int64_t begun_ns;  /* time at which hosts began to wait for each other; set again once this host is prepared */
};

/** Why a job that may be started again is not. */
enum pl_not_again {
    PL_NOT_AGAIN_NONE,
    PL_NOT_AGAIN_OWN_WORDS, /* the program has written the failure file itself */
    PL_NOT_AGAIN_USED_UP,   /* the job was started again as often as it may be */
    PL_NOT_AGAIN_AS_BEFORE, /* the job failed as before, and has made no checkpoint since */
    PL_NOT_AGAIN_UNLINKED,  /* a host is not linked */
};

/** How the job ends. */
struct pl_outcome {
    bool failed;
    int64_t failed_ns;
    int exit_code;          /* valid if the job has failed */
    bool exit_report_known; /* `exit_report` holds the cause; otherwise `reason` does */
    bool hangs;             /* the reason is that the job hangs */
    bool own_words;         /* a program on another host has written the failure file itself */
    enum pl_not_again not_again;
    struct pl_exit_report exit_report;
    /* the reason of a failure without an exit report, or the reason that the master sent to a worker */
    char reason[PL_FAILURE_SHOWN_BYTES];
    struct { /* the last rank that a signal has stopped and that has not continued */
        char name[PL_EXIT_REPORT_HOST_BYTES + 64], how[64];
    } suspended;
};

/** The program of pl_supervise_start_main(), and the ranks below it. */
struct pl_main {
    bool started, ended;
    bool dismissed; /* the job has ended although the program has not */
    bool over;      /* this host waits no more for the program and for other hosts, also at the ordinary end */
    bool told;      /* the program was sent SIGTERM because the job has failed; mpirun is not, it ends its ranks */
    struct pl_exit_report exit_report;
    int ranks_ended; /* number of ranks that have ended, on all hosts */
    /* a rank that ended with 0 before any rank failed; `rank` is -1 if there is none */
    struct pl_exit_report left_early;
    int64_t early_end_ns; /* how long after that end the ranks that still run are logged */
};

enum { PL_HOLDING_HERE = -1 };

/** The answer of a rank's shim to the stop. */
struct pl_holding_rank {
    int rank;
    int host;     /* number of the session that reported it, or PL_HOLDING_HERE */
    bool catches; /* the rank's program has a handler for the signal */
    bool ended;
};

/** See holding.c. */
struct pl_holding {
    struct pl_holding_rank *ranks; /* freed with the supervisor */
    size_t count, capacity;
    int64_t asked_ns;  /* time at which the last host was asked, if that was after the stop */
    int unasked_ended; /* number of ranks that ended without an answer, also before the stop */
};

struct pl_host_stop {
    int number;        /* 0, or the signal that stops the job */
    int64_t ns;        /* the time of that signal */
    int64_t budget_ns; /* time from the signal to the end of this process */
    int64_t join_ns;   /* how long after the signal hosts that are not linked are awaited, to notify them */
    enum pl_stop_state state;
    int64_t released_ns;
    struct pl_holding holding;
};

/** What was observed on this host. */
struct pl_seen {
    int64_t begun_ns;
    struct pl_changes model_before; /* contents of the model's directory at the start */
    int64_t memory_kills;           /* number of processes killed at the memory limit, at the start */
    bool ranks;                     /* a rank has connected on this host */
    struct pl_placement placement;
    struct pl_apart apart;
    struct pl_watch watch;
};

/** The functions that the loop calls for events: pl_host_calls is the table of host.c. */
struct pl_loop_calls {
    /* pl_frames_take(): a frame other than heartbeats and the exit reports of shims */
    void (*take)(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame);
    /* pl_frames_lose(): a connection is over */
    void (*lose)(struct pl_supervisor *supervisor, const struct pl_connection *connection, const char *why);
    /* pl_host_note_end(): a program has ended */
    void (*ended)(struct pl_supervisor *supervisor, enum pl_process_kind kind, bool begun,
                  const struct pl_exit_report *exit_report);
    void (*due[PL_TIMERS])(struct pl_supervisor *supervisor);
};

extern const struct pl_loop_calls pl_host_calls;

struct pl_loop {
    const struct pl_loop_calls *calls;
    int64_t timers_ns[PL_TIMERS]; /* time at which each timer is due; PL_DEADLINE_NEVER: it is off */
};

struct pl_supervisor {
    const struct pl_job *job;
    struct pl_launch_plan *plan;
    /* the plan's values, as they hold now: no ranks before the program may start, no link if it could not be made */
    enum pl_launch_plan_ranks ranks;
    enum pl_launch_plan_link link_kind;
    struct pl_signals *signals;
    struct pl_failure *failure;
    struct pl_restarts *restarts; /* NULL: the job is never started again */
    struct pl_rundir rundir;
    struct pl_environment *environment; /* environment for programs of the plan; NULL without a plan */
    struct pl_sshd sshd;
    struct pl_connection **connections;
    size_t connections_count, connections_capacity;
    enum pl_host_state state;
    enum pl_host_role role;
    int64_t peer_wait_ns; /* how long hosts wait for each other */
    struct pl_sessions sessions;
    struct pl_main main;
    struct pl_host_stop stop;
    struct pl_outcome outcome;
    struct pl_seen seen;
    struct pl_loop loop;
};

/**
 * Parts of the stop budget, counted back from its end: the times at which mpirun is told to end, and at which
 * everything is killed.
 */
#define PL_SUPERVISE_STOP_LAUNCHER_NS (10 * PL_NS_PER_S)
#define PL_SUPERVISE_KILL_NS (2 * PL_NS_PER_S)

/** Advice for messages about a host that does not connect. */
#define PL_SUPERVISE_LOST_ADVICE "Read its log, and check that the security group lets all hosts reach each other"

/* How long the upload of intermediate output may take after its budget, to abort incomplete uploads on the server. */
#define PL_SUPERVISE_SYNC_GRACE_NS (15 * PL_NS_PER_S)

/**
 * Initialises the supervisor from the job's settings, and makes this process the parent of orphans. `failure` and
 * `signals` still belong to the caller.
 */
void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure, const struct pl_loop_calls *calls);
void pl_supervise_close(struct pl_supervisor *supervisor);

/**
 * Keeps the plan, which need not be complete, and begins to link its hosts, if there are others. This goes on while
 * this host is being prepared, so that a stop or failure in this time reaches the others, and no host prepares for a
 * job that has ended on another one. If a link cannot be made, a host that can run without it logs a warning and runs.
 */
enum pl_status pl_supervise_link(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Returns PL_FAILED if the job has failed, PL_CANCELLED if it is stopped, else PL_OK. */
enum pl_status pl_supervise_may_go_on(const struct pl_supervisor *supervisor) PL_MUST_CHECK;

/**
 * Takes the complete plan: its environment, and the run directory if ranks or other hosts will report. If that
 * directory cannot be made, and the job can do without it, the function warns, and there is no link and no report of
 * ranks.
 */
enum pl_status pl_supervise_set_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for events until `deadline_ns` or the next timer, handles them once, and does what is due. */
enum pl_status pl_supervise_poll(struct pl_supervisor *supervisor, int64_t deadline_ns,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_supervise_poll() for loops that end at `deadline_ns`. Returns false if the deadline has passed, or if waiting has
 * failed.
 */
bool pl_supervise_wait(struct pl_supervisor *supervisor, int64_t deadline_ns);

/** Adds a connection that owns `fd`. */
enum pl_status pl_supervise_add(struct pl_supervisor *supervisor, enum pl_connection_kind kind, int fd,
                                struct pl_connection **ret_connection, struct pl_error *reterr) PL_MUST_CHECK;

/** Go to the state `next`. A state that may not follow is a bug of ours. */
void pl_host_go(enum pl_host_state *state, enum pl_host_state next);
void pl_connection_go(enum pl_connection_state *state, enum pl_connection_state next);
/** pl_host_go() for a session, but returns false if `next` may not follow: another host's frames may ask for it. */
bool pl_session_go(enum pl_session_state *state, enum pl_session_state next);

/** Drops the connection, which is freed once the events of this poll are handled. */
void pl_supervise_drop(struct pl_connection *connection);

/** Makes a timer due at `due_ns`, or (PL_TIMER_WAKE) after this poll's events, because its facts have changed. */
#define PL_TIMER_SET(supervisor, timer, due_ns) ((supervisor)->loop.timers_ns[PL_TIMER_##timer] = (due_ns))
#define PL_TIMER_WAKE(supervisor, timer) PL_TIMER_SET(supervisor, timer, 0)

/** Sends a frame to a process of this host; a connection that takes no more bytes is dropped. */
void pl_supervise_notify(struct pl_connection *connection, enum pl_frame_type type, const char *field);

/**
 * Sends a frame to another host, if it is linked: `connection` may be NULL. If the host takes no more bytes it is lost.
 */
#define PL_SUPERVISE_SEND(supervisor, connection, type, ...)                                                           \
    pl_supervise_send((supervisor), (connection), (type), (const char *const[]){__VA_ARGS__},                          \
                      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_connection *connection, enum pl_frame_type type,
                       const char *const *fields, size_t count);

/** Starts a program under a shim. */
enum pl_status pl_supervise_start(struct pl_supervisor *supervisor, enum pl_process_kind kind,
                                  const struct pl_process_setup *setup, struct pl_connection **ret_connection,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Starts the plan's sidecars and its program on this host, if there are any. */
enum pl_status pl_supervise_start_main(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Sends `number`, unless it is 0, to the programs of these kinds here, and waits `grace_ns` at most for their end. */
void pl_supervise_end(struct pl_supervisor *supervisor, unsigned kinds, int number, int64_t grace_ns);

/**
 * Starts the upload of intermediate output, if the plan has one. If it cannot be started, the function warns, and the
 * job goes on without it.
 */
void pl_supervise_start_sync(struct pl_supervisor *supervisor);

/** Waits for the last uploads within their budget, and ends the upload. It cannot fail the job. */
void pl_supervise_end_sync(struct pl_supervisor *supervisor);

/** Returns true while a program of these kinds, a PL_PROCESS_SET, runs here under a shim. */
bool pl_supervise_runs(const struct pl_supervisor *supervisor, unsigned kinds);

/**
 * If the plan needs names, make this host's own name known to its programs: if it does not resolve, the host's address
 * and name become a line of /etc/hosts. With `others`, then wait for the names of the job's other hosts, for
 * PACELINE_PEER_WAIT_S or until the job is stopped. A child process does it, because the resolver blocks.
 *
 * Errors  PL_TIMEOUT names the host, the resolver's reason and the file to change. If another host's name leads to this
 *         host, the error comes at once and names it.
 * Test    tests/integration/host_names.sh
 */
enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, bool others, struct pl_error *reterr) PL_MUST_CHECK;

/** Takes the first answer of the child of pl_peers_resolve(): "", or what is wrong. */
void pl_peers_note_answer(const struct pl_connection *resolver, const char *answer);

/**
 * Runs a step to its end. Errors: PL_FAILED if the step fails (the report is kept), or if the job fails because of
 * another host; PL_NOT_FOUND if the step is a probe and the answer is no; PL_CANCELLED if the job is stopped meanwhile.
 */
enum pl_status pl_supervise_step(struct pl_supervisor *supervisor, const struct pl_launch_plan_step *step,
                                 char *const *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Runs the steps one after the other, each in `environment` with its own additions, until the job stops or fails. */
enum pl_status pl_supervise_steps(struct pl_supervisor *supervisor, const struct pl_launch_plan_steps *steps,
                                  const struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Decides whether the job hangs, and reports it once. A worker tells the master whether it is quiet. */
void pl_hang_decide(struct pl_supervisor *supervisor);

/** Call when the reporter, which is a program, has ended. Its last line says what the first program does. */
void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/** The link to the master, once this host, a worker, has sent READY; NULL while there is none, and on the master. */
struct pl_connection *pl_links_master(const struct pl_supervisor *supervisor);

/**
 * Begins to link this host: the master writes the files that ssh needs and opens sessions as they are due; a worker
 * starts sshd. It may run a step, whose end also ends every other program of this host.
 */
enum pl_status pl_links_begin(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for the hosts without which the program cannot start, or to which an earlier failure is to be reported. */
enum pl_status pl_links_await(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

/** On a worker that is prepared: answers the master that has connected already. */
void pl_frames_welcome(struct pl_supervisor *supervisor);

/**
 * Call when a host is linked, and just before the program starts: names the hosts in the log once all are linked, and
 * opens no more sessions then.
 */
void pl_links_look(struct pl_supervisor *supervisor);

/** Handles every frame but heartbeats and exit reports: of other hosts, of shims, of mpirun's agents and of clients. */
void pl_frames_take(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame);

/** Call when a connection that is not a shim's has ended. */
void pl_frames_lose(struct pl_supervisor *supervisor, const struct pl_connection *connection, const char *why);

/** Whether the hosts have exchanged READY, also if the link has ended since. */
static inline bool pl_session_was_linked(const struct pl_session *session)
{
    return session->state >= PL_SESSION_LINKED;
}

static inline int pl_links_number(const struct pl_supervisor *supervisor, const struct pl_session *session)
{
    return (int)(session - supervisor->sessions.items);
}

/** Returns the session over a connection; NULL if it leads to no other host. */
struct pl_session *pl_links_find(const struct pl_supervisor *supervisor, const struct pl_connection *connection);

/** The session has ended before the host was ready: keeps the reason, and tries again later unless the host refuses. */
void pl_links_try_again(struct pl_supervisor *supervisor, struct pl_session *session);

/** Sends a host how the job ended; a worker sends its own failure. */
void pl_links_send_result(struct pl_supervisor *supervisor, struct pl_connection *link);

/** On a worker: reports to the master how a program ended, and whether this host is quiet. */
void pl_links_send_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);
void pl_links_send_quiet(struct pl_supervisor *supervisor);

/** Call when sshd has ended here. */
void pl_links_note_sshd(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/** Returns how many hosts have a session in one of `states` (bits). `outside`: hosts outside the launch count too. */
size_t pl_links_count(const struct pl_supervisor *supervisor, unsigned states, bool outside);

/** Returns how many hosts are away. Appends the first of them and the reasons to `text`, which may be NULL. */
size_t pl_links_missing(const struct pl_supervisor *supervisor, bool outside, struct pl_text *text);

/**
 * Returns whether all hosts of the launch are linked, so that each gets the result. A program may fail before they are:
 * then the function kills all programs here, and waits for the hosts until pl_supervise_notify_deadline().
 */
bool pl_links_await_all(struct pl_supervisor *supervisor);

/** Ends the links if the plan has none, for example because its program survives the loss of hosts by itself. */
void pl_links_drop(struct pl_supervisor *supervisor);
void pl_links_close(struct pl_supervisor *supervisor);

/** The functions that the timers call: the table in host.c has which one. */
void pl_supervise_send_heartbeats(struct pl_supervisor *supervisor);
void pl_links_open_due(struct pl_supervisor *supervisor);
void pl_links_look_late(struct pl_supervisor *supervisor);
void pl_ranks_log_early_end(struct pl_supervisor *supervisor);
void pl_host_look_apart(struct pl_supervisor *supervisor);
void pl_host_look_wait(struct pl_supervisor *supervisor);
void pl_hang_look(struct pl_supervisor *supervisor);
void pl_supervise_stop_launcher(struct pl_supervisor *supervisor);
void pl_supervise_fail_overdue(struct pl_supervisor *supervisor);

/** Takes the exit report of a program of this host; unless `begun`, the program could not be started. */
void pl_host_note_end(struct pl_supervisor *supervisor, enum pl_process_kind kind, bool begun,
                      const struct pl_exit_report *exit_report);

/** Counts the end of a rank, on any host. */
void pl_host_note_rank(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/** Call when the hosts are linked, just before the program starts here; on a worker, when the master says READY. */
void pl_host_go_running(struct pl_supervisor *supervisor);

/** Takes a CATCHES frame of a rank on `host`. */
void pl_holding_note_answer(struct pl_supervisor *supervisor, const struct pl_frame *frame, int host);

/** Call when a host is linked during the stop, so that the answers of its ranks count too. */
void pl_holding_ask_again(struct pl_supervisor *supervisor);

/** Call when a host is lost: its ranks are not waited for. */
void pl_holding_lose_host(struct pl_supervisor *supervisor, int host);

/** Call when a rank has ended. */
void pl_holding_note_end(struct pl_supervisor *supervisor, int rank);

/** Ranks without a handler get the stop's signal now; the shims of this host's ranks may end, also those to come. */
void pl_holding_release(struct pl_supervisor *supervisor);

/** Returns true from the stop to the release, in a job with ranks: shims of ranks that end then wait. */
bool pl_holding_awaits_release(const struct pl_supervisor *supervisor);

/**
 * PL_TIMER_HOLDING calls it; only a host that decides acts. If a program has failed during the stop, or has no handler,
 * while others may still save, the failure file is written and the other hosts are notified (HOLD), because the
 * platform may kill all processes before the others have ended. When no rank saves any more, the shims are released,
 * here and on the other hosts (RELEASE).
 */
void pl_holding_update(struct pl_supervisor *supervisor);

/**
 * Records why the job failed. The first reason stays, but see pl_supervise_fail_exit(). The exit code becomes 1, or 128
 * + the number of the signal while the job is being stopped.
 */
void pl_supervise_fail(struct pl_supervisor *supervisor, const char *format, ...) PL_PRINTF(2, 3);

/** Records that a call failed: nothing for PL_OK, the stop for PL_CANCELLED, else the text of `error`. */
void pl_supervise_fail_status(struct pl_supervisor *supervisor, enum pl_status status, const struct pl_error *error);

/**
 * Keeps a SUSPENDED frame of this host or of a worker: the first line of the failure names the suspended rank that
 * others waited for.
 */
void pl_supervise_note_suspended(struct pl_supervisor *supervisor, const struct pl_frame *frame);

/**
 * Records that the job failed because a program ended. Shortly after the first exit report, one of higher severity may
 * replace it: mpirun and its daemons end because a rank did, and ranks are sent SIGTERM because another one failed.
 */
void pl_supervise_fail_exit(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

/**
 * Records that the job failed because another host was lost: `whose` is "host" or "the master host". Even if this is
 * recorded late, it replaces the report of a program that was only killed, because mpirun may know earlier and kill its
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
 * Passes `number` to this host's program, ranks or step, but not to mpirun and torchrun, which would end their ranks
 * (holding.c); records that the job is being stopped, and the first time notifies the other hosts.
 */
void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link);

/** Forwards the stop to another host, if the job is being stopped. */
void pl_supervise_forward_stop(struct pl_supervisor *supervisor, struct pl_connection *host);

/** Writes the failure file, which may be written again. Logs a failure to write it. */
void pl_supervise_write_failure(struct pl_supervisor *supervisor, const char *text);

/** Sends SIGNAL with `number` to every live shim of these kinds, a PL_PROCESS_SET. */
void pl_supervise_signal(struct pl_supervisor *supervisor, unsigned kinds, int number);

/**
 * Kills every process below this one, except the upload of intermediate output and, with `keep_links`, the ssh sessions
 * and the server that carry links to other hosts. Afterwards no other process is left.
 */
void pl_supervise_kill_all(struct pl_supervisor *supervisor, bool keep_links);

/** Drops every connection of `kind`. */
void pl_supervise_drop_kind(struct pl_supervisor *supervisor, enum pl_connection_kind kind);

/** Returns the end of the stop budget minus `early_ns` (below 55 s in proportion), or never while no stop has begun. */
int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns);

/**
 * Returns until when hosts wait for each other (if only a failure or a stop is left to report, not for long), and until
 * when a host that has failed by itself waits for late hosts, to report its failure to them.
 */
int64_t pl_supervise_join_deadline(const struct pl_supervisor *supervisor);
int64_t pl_supervise_notify_deadline(const struct pl_supervisor *supervisor);

/**
 * Executes the plan on this host; the result is the exit code, and the failure or success file is written. If the job
 * has failed already, or is stopped before its program starts, it only connects to the other hosts and notifies them.
 */
int pl_host_execute(struct pl_supervisor *supervisor);

/** Writes the failure or success file, and returns the exit code. */
int pl_supervise_write_result(struct pl_supervisor *supervisor);

#endif
