/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's event loop, which all roles share: signals, connections, heartbeats, failures, stopping. */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* If the same stop signal arrives again within this time, the platform and another host report the same stop. */
#define SAME_STOP_NS (5 * PL_NS_PER_S)
#define KILL_ALL_NS (5 * PL_NS_PER_S)
/* If a rank has ended with 0 and others still run after this time, a line is logged. */
#define EARLY_END_NS (60 * PL_NS_PER_S)

enum { SPARE_FILES = 256 };

/* How long a host whose preparation failed waits for the others to connect, to notify them. */
#define NOTIFY_FAILURE_NS (60 * PL_NS_PER_S)
/* A host that is stopped while hosts still wait for each other uses 1/12 of the stop budget to notify the others: most
 * of them know of the stop already, and the platform may not wait long. */
#define NOTIFY_STOP_DIVISOR 12
/*
 * The directory in which Open MPI 5 keeps its files. By default this is a directory in /tmp whose name has the host and
 * the process number, and Open MPI refuses to start if it exists. It exists if a container was killed and started
 * again, because its processes have the same numbers.
 */
#define OPENMPI5_FILES_VARIABLE "PRTE_MCA_prte_tmpdir_base"

void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure)
{
    *supervisor = (struct pl_supervisor){.job = job,
                                         .signals = signals,
                                         .failure = failure,
                                         .rundir = PL_RUNDIR_NONE,
                                         .exit_report = PL_EXIT_REPORT_NONE,
                                         .main_report = PL_EXIT_REPORT_NONE,
                                         .master = {.left_early = PL_EXIT_REPORT_NONE}};
    supervisor->heartbeat_timeout_ns = job->settings.silence_ns;
    supervisor->join_timeout_ns = job->settings.peer_wait_ns;
    supervisor->sync_budget_ns = job->settings.intermediate_ns;
    supervisor->stop_budget_ns = job->settings.stop_ns;
    supervisor->begun_ns = pl_clock_now_ns();
    pl_changes_look(job->paths.model, &supervisor->model_before);
    supervisor->early_end_ns = EARLY_END_NS;
    supervisor->watch.hang_ns = job->settings.hang_ns;
    supervisor->hang.ends = strcmp(job->settings.hang_action, "end") == 0;
    supervisor->memory_kills = pl_process_memory_kills();
    pl_apart_open(&supervisor->apart, job);
    pl_process_adopt_orphans();
}

static void free_connection(struct pl_connection *connection)
{
    pl_link_close(&connection->link);
    free(connection);
}

void pl_supervise_close(struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        free_connection(supervisor->connections[i]);
    }
    free(supervisor->connections);
    free(supervisor->holding.ranks);
    pl_watch_done(&supervisor->watch);
    pl_placement_done(&supervisor->placement);
    supervisor->connections = NULL;
    supervisor->connections_count = 0;
    pl_rundir_close(&supervisor->rundir);
    pl_environment_free(supervisor->environment);
    supervisor->environment = NULL;
}

/* Open the run directory and put into it what ranks need: the host's variables, and the name by which torchrun starts
 * ranks. */
static enum pl_status open_rundir(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                                  struct pl_error *reterr)
{
    char link[PL_RUNDIR_PATH_BYTES + sizeof(PL_RUNDIR_PYTHON)];

    if (supervisor->rundir.path[0] == '\0') {
        PL_TRY(pl_rundir_open(&supervisor->rundir, reterr));
    }
    PL_TRY(pl_rundir_save_environment(&supervisor->rundir, plan->environment, reterr));
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_TORCHRUN) {
        snprintf(link, sizeof(link), "%s/" PL_RUNDIR_PYTHON, supervisor->rundir.path);
        if (symlink(supervisor->job->self_path, link) != 0) {
            return pl_error_errno(reterr, "make the link '%s'", link);
        }
    }
    return PL_OK;
}

/* torchrun starts its ranks by the program in PYTHON_EXEC; the rank's shim finds the real interpreter. */
static enum pl_status use_own_python(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const char *before = pl_environment_get(supervisor->environment, "PYTHON_EXEC");
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (before) {
        PL_TRY(pl_environment_set(supervisor->environment, PL_RUNDIR_PYTHON_VARIABLE, before, reterr));
    }
    PL_TRY(pl_text_set(&path, reterr, "%s/" PL_RUNDIR_PYTHON, supervisor->rundir.path));
    return pl_environment_set(supervisor->environment, "PYTHON_EXEC", pl_text_string(&path), reterr);
}

/* A session needs two descriptors, a rank of this host at most two; the spare ones are for everything else. */
static void raise_files(struct pl_supervisor *supervisor)
{
    const size_t hosts = supervisor->plan->hosts.count + supervisor->plan->outside_hosts.count;
    const size_t programs = (size_t)supervisor->job->processes_per_host + 1;
    const size_t count = SPARE_FILES + 2 * (hosts + programs);

    if (!pl_signals_raise_files(supervisor->signals, count)) {
        pl_log(PL_LOG_WARNING,
               "process 1 may run out of descriptors: it needs about %zu for %zu hosts and %zu programs here, and the "
               "hard limit is lower; start the container with docker run --ulimit nofile=65536",
               count, hosts, programs);
    }
}

enum pl_status pl_supervise_use_hosts(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                      struct pl_error *reterr)
{
    enum pl_status status;

    supervisor->plan = plan;
    supervisor->link_kind = plan->link;
    if (plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        return PL_OK;
    }
    PL_TRY(pl_environment_new_copy(plan->environment, &supervisor->environment, reterr));
    raise_files(supervisor);
    status = pl_rundir_open(&supervisor->rundir, reterr);
    if (status == PL_OK || supervisor->failed || plan->link == PL_LAUNCH_PLAN_LINK_NEEDED) {
        return status;
    }
    supervisor->link_kind = PL_LAUNCH_PLAN_LINK_NONE; /* pl_supervise_set_plan() needs the directory too, and warns */
    return PL_OK;
}

enum pl_status pl_supervise_set_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                     struct pl_error *reterr)
{
    enum pl_status status;

    supervisor->plan = plan;
    supervisor->ranks = plan->ranks;
    supervisor->link_kind = plan->link;
    supervisor->watch.hang_ns = plan->runs_jobs ? 0 : supervisor->watch.hang_ns;
    raise_files(supervisor);
    pl_environment_free(supervisor->environment);
    supervisor->environment = NULL;
    PL_TRY(pl_environment_new_copy(plan->environment, &supervisor->environment, reterr));
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE && plan->link == PL_LAUNCH_PLAN_LINK_NONE &&
        supervisor->watch.hang_ns == 0) {
        return PL_OK;
    }
    status = open_rundir(supervisor, plan, reterr);
    if (status == PL_OK) {
        status = pl_watch_prepare(&supervisor->watch, supervisor->job, &supervisor->rundir,
                                  plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE, supervisor->environment, reterr);
    }
    if (status != PL_OK) {
        pl_rundir_close(&supervisor->rundir);
        if (plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN || plan->link == PL_LAUNCH_PLAN_LINK_NEEDED) {
            return status;
        }
        pl_log_error(reterr, "the job runs without a link between its hosts, without reports of its ranks, and without "
                             "a watch for hangs");
        supervisor->ranks = PL_LAUNCH_PLAN_RANKS_NONE;
        supervisor->link_kind = PL_LAUNCH_PLAN_LINK_NONE;
        supervisor->watch.hang_ns = 0;
        return PL_OK;
    }
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN) {
        PL_TRY(pl_environment_set(supervisor->environment, PL_RUNDIR_PIPES_VARIABLE, "1", reterr));
    }
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN && !pl_environment_get(plan->environment, OPENMPI5_FILES_VARIABLE)) {
        PL_TRY(pl_environment_set(supervisor->environment, OPENMPI5_FILES_VARIABLE, supervisor->rundir.path, reterr));
    }
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_TORCHRUN) {
        PL_TRY(use_own_python(supervisor, reterr));
    }
    return pl_environment_set(supervisor->environment, PL_RUNDIR_VARIABLE, supervisor->rundir.path, reterr);
}

enum pl_status pl_supervise_add(struct pl_supervisor *supervisor, enum pl_connection_kind kind, int fd,
                                struct pl_connection **ret_connection, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int owned_fd = fd;
    struct pl_connection *connection;
    enum pl_status status;

    PL_TRY(pl_memory_grow(&supervisor->connections, &supervisor->connections_capacity,
                          supervisor->connections_count + 1, sizeof(*supervisor->connections), reterr));
    PL_TRY(pl_memory_alloc(&connection, 1, sizeof(*connection), reterr));
    *connection = (struct pl_connection){.link = PL_LINK_NONE, .kind = kind, .rank = -1, .index = -1};
    status = pl_link_open(&connection->link, fd, reterr);
    if (status != PL_OK) {
        free(connection);
        return status;
    }
    owned_fd = -1;
    supervisor->connections[supervisor->connections_count++] = connection;
    if (ret_connection) {
        *ret_connection = connection;
    }
    return PL_OK;
}

/* Whether it is the live shim of a program of these kinds. */
static bool runs(const struct pl_connection *connection, unsigned sources)
{
    return connection->kind == PL_CONNECTION_SHIM && !connection->ended && !connection->dropped &&
           pl_exit_source_in(connection->source, sources);
}

static bool is_host_link(const struct pl_connection *connection)
{
    return (connection->kind == PL_CONNECTION_WORKER || connection->kind == PL_CONNECTION_MASTER) &&
           !connection->dropped && connection->ready;
}

static void send_stop(struct pl_connection *shim, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    shim->dropped = PL_LINK_SEND(&shim->link, PL_FRAME_STOP, NULL, text) != PL_OK;
}

void pl_supervise_signal(struct pl_supervisor *supervisor, unsigned sources, int number)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (runs(supervisor->connections[i], sources)) {
            send_stop(supervisor->connections[i], number);
        }
    }
}

static void send_release(struct pl_connection *shim)
{
    shim->dropped = PL_LINK_SEND(&shim->link, PL_FRAME_RELEASE, NULL, "") != PL_OK;
}

void pl_supervise_release(struct pl_supervisor *supervisor)
{
    pl_stop_go(&supervisor->holding.state, PL_STOP_RELEASED);
    supervisor->holding.released_ns = pl_clock_now_ns();
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && connection->source == PL_EXIT_SOURCE_RANK &&
            !connection->dropped) {
            send_release(connection);
        }
    }
    if (!supervisor->ranks_seen) {
        pl_supervise_signal(supervisor, PL_EXIT_SET(TORCHRUN), SIGTERM); /* the agent still looks for the others */
    }
}

void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link)
{
    const bool first = supervisor->stop_number == 0;
    int64_t early_ns;
    char name[16];

    if (!first) {
        if (from_link ||
            (number == supervisor->stop_number && pl_clock_now_ns() - supervisor->stop_ns < SAME_STOP_NS)) {
            return;
        }
    } else {
        pl_stop_go(&supervisor->holding.state, PL_STOP_SAVING);
        supervisor->stop_number = number;
        supervisor->stop_ns = pl_clock_now_ns();
        early_ns =
            supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE ? PL_SUPERVISE_STOP_LAUNCHER_NS : PL_SUPERVISE_KILL_NS;
        pl_log(PL_LOG_INFO, "%s: stopping, %lld s for the program to save and end", pl_signals_name(number, name),
               (long long)((pl_supervise_stop_deadline(supervisor, early_ns) - supervisor->stop_ns) / PL_NS_PER_S));
    }
    pl_supervise_signal(supervisor, PL_EXIT_SET(PROGRAM) | PL_EXIT_SET(RANK) | PL_EXIT_SET(STEP), number);
    for (size_t i = 0; first && i < supervisor->connections_count; i++) {
        /* a worker that still prepares gets it too */
        if (is_host_link(supervisor->connections[i]) || supervisor->connections[i]->kind == PL_CONNECTION_WORKER) {
            pl_supervise_forward_stop(supervisor, supervisor->connections[i]);
        }
    }
}

void pl_supervise_refuse(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    (void)supervisor;
    (void)frame;
    connection->dropped = true;
}

void pl_supervise_take_stop(struct pl_supervisor *supervisor, struct pl_connection *connection,
                            const struct pl_frame *frame)
{
    int64_t number;

    (void)connection;
    if (pl_link_frame_number(frame, 0, 1, 64, &number, NULL) == PL_OK) {
        pl_supervise_stop(supervisor, (int)number, true);
    }
}

void pl_supervise_forward_stop(struct pl_supervisor *supervisor, struct pl_connection *host)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", supervisor->stop_number);
    if (supervisor->stop_number != 0) {
        PL_SUPERVISE_SEND(supervisor, host, PL_FRAME_STOP, text);
    }
}

bool pl_supervise_runs(const struct pl_supervisor *supervisor, unsigned sources)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (runs(supervisor->connections[i], sources)) {
            return true;
        }
    }
    return false;
}

int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns)
{
    int64_t budget_ns = supervisor->stop_budget_ns;

    if (supervisor->stop_number == 0) {
        return PL_DEADLINE_NEVER;
    }
    /* A shorter budget keeps the proportions of the parts. */
    if (budget_ns < 55 * PL_NS_PER_S) {
        early_ns = (int64_t)((double)early_ns / 110e9 * (double)budget_ns * 2);
    }
    return supervisor->stop_ns + budget_ns - early_ns;
}

int64_t pl_supervise_join_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns)
{
    if (supervisor->stop_number != 0) {
        return supervisor->stop_ns + supervisor->stop_budget_ns / NOTIFY_STOP_DIVISOR;
    }
    return begun_ns + (supervisor->failed ? NOTIFY_FAILURE_NS : supervisor->join_timeout_ns);
}

int64_t pl_supervise_notify_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns)
{
    int64_t join_ns = pl_supervise_join_deadline(supervisor, begun_ns);
    int64_t late_ns = begun_ns + NOTIFY_FAILURE_NS;

    return join_ns < late_ns ? join_ns : late_ns;
}

static const struct pl_role *role_of(const struct pl_supervisor *supervisor, const struct pl_connection *connection)
{
    static const struct pl_role none = {.ended = NULL};

    return connection->role ? connection->role : supervisor->role ? supervisor->role : &none;
}

static void notify_ended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_exit_report *exit_report)
{
    if (role_of(supervisor, connection)->ended) {
        role_of(supervisor, connection)->ended(supervisor, connection, exit_report);
    }
}

static void notify_frame(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    const struct pl_role *role = role_of(supervisor, connection);

    for (size_t i = 0; i < role->frames_count && !connection->dropped; i++) {
        const struct pl_frame_rule *rule = &role->frames[i];

        if (rule->type == frame->type && rule->from == connection->kind && frame->count >= rule->fields) {
            rule->handle(supervisor, connection, frame);
        }
    }
}

static void notify_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    if (role_of(supervisor, connection)->gone) {
        role_of(supervisor, connection)->gone(supervisor, connection, why);
    }
}

static void handle_signal(struct pl_supervisor *supervisor, int number)
{
    switch (number) {
    case SIGINT:
    case SIGTERM:
        pl_supervise_stop(supervisor, number, false);
        break;
    case SIGHUP:
    case SIGQUIT:
    case SIGUSR1:
    case SIGUSR2:
    case SIGWINCH:
        pl_supervise_signal(supervisor, PL_EXIT_SET(PROGRAM) | PL_EXIT_SET(RANK), number);
        break;
    default:
        break;
    }
}

/* Returns whether this process still has children. */
static bool reap(struct pl_supervisor *supervisor)
{
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
        pl_watch_note_child_end(&supervisor->watch, pid);
    } while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid == 0;
}

static void handle_exit_report(struct pl_supervisor *supervisor, struct pl_connection *connection,
                               const struct pl_exit_report *exit_report)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (connection->ended) {
        return;
    }
    connection->ended = true;
    if (connection->source == PL_EXIT_SOURCE_RANK) {
        pl_apart_end(&supervisor->apart);
    }
    if (connection->source != PL_EXIT_SOURCE_SYNC) {
        notify_ended(supervisor, connection, exit_report);
    } else if (!pl_exit_report_ok(exit_report)) {
        pl_exit_report_sentence(exit_report, &text);
        pl_log(PL_LOG_WARNING, "%s", pl_text_string(&text));
    }
}

/* A shim that ends without a report was killed, and its program with it. The kernel's count of memory kills shows
 * whether that was the reason. */
static void handle_lost_shim(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;
    int64_t kills = pl_process_memory_kills();

    exit_report.out_of_memory = kills > supervisor->memory_kills;
    if (connection->source == PL_EXIT_SOURCE_RANK && supervisor->holding.state == PL_STOP_RELEASED &&
        !exit_report.out_of_memory) {
        snprintf(exit_report.note, sizeof(exit_report.note), "it had not ended when it was asked to");
    }
    exit_report.source = connection->source;
    exit_report.rank = connection->rank;
    exit_report.signalled = true;
    exit_report.code = SIGKILL;
    snprintf(exit_report.host, sizeof(exit_report.host), "%s", supervisor->job->current_host);
    handle_exit_report(supervisor, connection, &exit_report);
}

static void handle_shim_frame(struct pl_supervisor *supervisor, struct pl_connection *connection,
                              const struct pl_frame *frame)
{
    struct pl_exit_report exit_report;

    if (frame->type != PL_FRAME_ENDED) {
        connection->begun = connection->begun || frame->type == PL_FRAME_BEGUN;
        if (frame->type == PL_FRAME_SUSPENDED) {
            pl_supervise_note_suspended(supervisor, connection, frame);
        }
        notify_frame(supervisor, connection, frame);
    } else if (pl_exit_report_receive(frame, &exit_report, NULL) == PL_OK) {
        handle_exit_report(supervisor, connection, &exit_report);
    }
}

/* Start the frame's words as a program, with the environment of this container. */
static enum pl_status start_words(struct pl_supervisor *supervisor, struct pl_connection *connection,
                                  const struct pl_frame *frame, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    pid_t pid;
    struct pl_shim_options options = {.source = PL_EXIT_SOURCE_EXEC,
                                      .rank = -1,
                                      .host = supervisor->job->current_host,
                                      .progress_ns = PL_BARS_KEEP, /* the caller may be a terminal */
                                      .program_words = 1,
                                      .setup = PL_PROCESS_SETUP_NONE};

    for (size_t i = 0; i < frame->count; i++) {
        pl_strv_add(&argv, frame->fields[i]);
    }
    PL_TRY(pl_strv_check(&argv, reterr));
    PL_TRY(pl_environment_new_copy(supervisor->job->process, &environment, reterr));
    PL_TRY(pl_environment_set(environment, PL_RUNDIR_VARIABLE, supervisor->rundir.path, reterr));
    options.setup.argv = (const char *const *)argv.items;
    options.setup.environment = pl_environment_strings(environment);
    options.setup.cwd = supervisor->job->paths.base;
    PL_TRY(pl_shim_fork_for(&options, supervisor->signals, connection->link.fd, connection->link.fds,
                            connection->link.fds_count, &pid, reterr));
    pl_watch_note_exec(&supervisor->watch, argv.items[0], pid);
    return PL_OK;
}

/*
 * Run the program that an EXEC frame names, for another program of this host, under a shim of its own, and take
 * ownership of the connection. A connection whose EXEC frame is not complete is dropped. By it one program of the job
 * starts another on another host: `ssh HOST` leads to a relay there (ssh/relay.h), which asks the process 1 of that
 * host.
 *
 * The client sends HELLO "exec" and then one EXEC frame: the program's words, and with them one to three descriptors,
 * which become the program's first standard descriptors. The missing ones are those of process 1, so that the program
 * prints to this host's log. From then on the connection leads to the shim, which sends BEGUN and ENDED. STOP forwards
 * a signal, and the end of the connection kills the program. Process 1 carries none of the program's bytes, and never
 * waits for it. A stop of the job is sent to the program of the plan and not to these programs: their clients must end
 * them, and those that are left at the end of the job are killed.
 *
 * The socket lies in the run directory. Only this user and root can use it, and programs of another host that have the
 * job's key.
 *
 * Test  tests/integration/exec.sh
 */
static void run_for_client(struct pl_supervisor *supervisor, struct pl_connection *connection,
                           const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    if (frame->type == PL_FRAME_EXEC && frame->count > 0 && connection->link.fds_count > 0 &&
        start_words(supervisor, connection, frame, &error) != PL_OK) {
        pl_log_error(&error, "run '%s' for another program", frame->fields[0]);
    }
    /* the connection now belongs to the shim; or, after a failure, its client sees the end */
    connection->dropped = true;
}

static void handle_hello(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    const char *kind = frame->type == PL_FRAME_HELLO && frame->count >= 2 ? frame->fields[0] : "";
    int64_t rank;

    if (strcmp(kind, "shim") == 0 && pl_link_frame_number(frame, 2, 0, INT32_MAX, &rank, NULL) == PL_OK) {
        connection->kind = PL_CONNECTION_SHIM;
        connection->source = PL_EXIT_SOURCE_RANK;
        connection->rank = (int)rank;
        supervisor->ranks_seen = true;
        pl_placement_add(&supervisor->placement, frame);
        pl_apart_begin(&supervisor->apart, frame);
        if (supervisor->stop_number != 0) {
            send_stop(connection, supervisor->stop_number); /* it connected too late to get the stop with the others */
        }
        if (supervisor->holding.state == PL_STOP_RELEASED && !connection->dropped) {
            send_release(connection);
        }
    } else if (strcmp(kind, "agent") == 0) {
        connection->kind = PL_CONNECTION_RSH_AGENT;
    } else if (strcmp(kind, "exec") == 0) {
        connection->kind = PL_CONNECTION_EXEC;
    } else if (strcmp(kind, "master") == 0) {
        connection->kind = PL_CONNECTION_MASTER;
        notify_frame(supervisor, connection, frame);
    } else {
        connection->dropped = true;
    }
}

static void handle_frames(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&connection->link, &error);

    while (status == PL_OK && !connection->dropped) {
        status = pl_link_next(&connection->link, &frame, &error);
        if (status != PL_OK) {
            break;
        }
        if (connection->kind == PL_CONNECTION_NEW) {
            handle_hello(supervisor, connection, &frame);
        } else if (connection->kind == PL_CONNECTION_SHIM) {
            handle_shim_frame(supervisor, connection, &frame);
        } else if (connection->kind == PL_CONNECTION_EXEC) {
            run_for_client(supervisor, connection, &frame);
        } else if (frame.type != PL_FRAME_HEARTBEAT) {
            notify_frame(supervisor, connection, &frame);
        }
    }
    if (status == PL_OK || status == PL_END || connection->dropped) {
        return;
    }
    connection->dropped = true;
    if (connection->kind == PL_CONNECTION_SHIM) {
        handle_lost_shim(supervisor, connection);
    } else if (connection->kind != PL_CONNECTION_NEW) {
        notify_gone(supervisor, connection, status == PL_PEER ? "its connection closed" : error.cause);
    }
}

static void accept_connection(struct pl_supervisor *supervisor)
{
    int fd = accept4(supervisor->rundir.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pl_error error = PL_ERROR_NONE;

    if (fd >= 0 && pl_supervise_add(supervisor, PL_CONNECTION_NEW, fd, NULL, &error) != PL_OK) {
        pl_log_error(&error, "take a connection");
    }
}

void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_connection *connection, enum pl_frame_type type,
                       const char *const *fields, size_t count)
{
    if (connection && !connection->dropped && pl_link_send(&connection->link, type, fields, count, NULL) != PL_OK) {
        connection->dropped = true;
        notify_gone(supervisor, connection, "it takes no more messages");
    }
}

/* Send heartbeats, and find connections whose heartbeats time out. */
static void send_heartbeats(struct pl_supervisor *supervisor)
{
    int64_t now_ns = pl_clock_now_ns();
    bool due = now_ns >= supervisor->next_heartbeat_ns;
    char why[64];

    if (due) {
        supervisor->next_heartbeat_ns = now_ns + supervisor->heartbeat_timeout_ns / 6;
    }
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (!is_host_link(connection)) {
            continue;
        }
        if (now_ns - connection->link.received_ns > supervisor->heartbeat_timeout_ns) {
            snprintf(why, sizeof(why), "nothing was received from it for %lld s",
                     (long long)(supervisor->heartbeat_timeout_ns / PL_NS_PER_S));
            connection->dropped = true;
            notify_gone(supervisor, connection, why);
        } else if (due) {
            pl_supervise_send(supervisor, connection, PL_FRAME_HEARTBEAT, NULL, 0);
        }
    }
}

static void free_dropped(struct pl_supervisor *supervisor)
{
    size_t kept = 0;

    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (supervisor->connections[i]->dropped) {
            free_connection(supervisor->connections[i]);
        } else {
            supervisor->connections[kept++] = supervisor->connections[i];
        }
    }
    supervisor->connections_count = kept;
}

enum pl_status pl_supervise_poll(struct pl_supervisor *supervisor, int64_t deadline_ns, struct pl_error *reterr)
{
    size_t count = supervisor->connections_count;
    PL_AUTO_FREE struct pollfd *waits = NULL;
    bool linked = false;

    PL_TRY(pl_memory_alloc(&waits, count + 2, sizeof(*waits), reterr));
    waits[0] = (struct pollfd){.fd = supervisor->signals->fd, .events = POLLIN};
    waits[1] = (struct pollfd){.fd = supervisor->rundir.listen_fd, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        waits[2 + i] = (struct pollfd){.fd = supervisor->connections[i]->link.fd,
                                       .events = pl_link_events(&supervisor->connections[i]->link)};
        linked = linked || is_host_link(supervisor->connections[i]);
    }
    if (linked && supervisor->next_heartbeat_ns < deadline_ns) {
        deadline_ns = supervisor->next_heartbeat_ns;
    }
    if (poll(waits, (nfds_t)count + 2, pl_deadline_poll_ms(deadline_ns)) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "wait for events");
    }
    if (waits[0].revents != 0) {
        for (int number = pl_signals_next(supervisor->signals); number != 0;
             number = pl_signals_next(supervisor->signals)) {
            handle_signal(supervisor, number);
        }
        reap(supervisor);
    }
    for (size_t i = 0; i < count; i++) {
        if (waits[2 + i].revents != 0 && !supervisor->connections[i]->dropped) {
            pl_link_flush(&supervisor->connections[i]->link);
            handle_frames(supervisor, supervisor->connections[i]);
        }
    }
    if (waits[1].revents != 0) {
        accept_connection(supervisor);
    }
    if (linked) {
        send_heartbeats(supervisor);
    }
    free_dropped(supervisor);
    return PL_OK;
}

bool pl_supervise_wait(struct pl_supervisor *supervisor, int64_t deadline_ns)
{
    return !pl_deadline_passed(deadline_ns) && pl_supervise_poll(supervisor, deadline_ns, NULL) == PL_OK;
}

void pl_supervise_drop(struct pl_supervisor *supervisor, enum pl_connection_kind kind)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        supervisor->connections[i]->dropped =
            supervisor->connections[i]->dropped || supervisor->connections[i]->kind == kind;
    }
    free_dropped(supervisor);
}

/* Whether the process is not killed with the others: the upload of intermediate output, and with `links` the processes
 * that carry links to other hosts. */
static bool survives_kill(const struct pl_connection *connection, bool links)
{
    if (connection->kind == PL_CONNECTION_WORKER) {
        /* also a link that is being made: the host may have accepted it already */
        return links && !connection->dropped;
    }
    return runs(connection, PL_EXIT_SET(SYNC) | (links ? PL_EXIT_SET(SSHD) : 0));
}

void pl_supervise_kill_all(struct pl_supervisor *supervisor, bool keep_links)
{
    int64_t deadline_ns = pl_deadline_after_ns(KILL_ALL_NS);
    PL_AUTO_FREE pid_t *keep = pl_memory_new(supervisor->connections_count, sizeof(*keep), NULL);
    size_t keep_count = 0;

    for (size_t i = 0; i < supervisor->connections_count && keep; i++) {
        if (survives_kill(supervisor->connections[i], keep_links)) {
            keep[keep_count++] = supervisor->connections[i]->pid;
        }
    }
    /* The children of a killed process become ours, so every round reaches one more generation. */
    while (reap(supervisor) && pl_process_signal_children(SIGKILL, keep, keep_count) > 0) {
        if (pl_deadline_passed(deadline_ns)) {
            pl_log(PL_LOG_WARNING, "some processes do not end although they were killed");
            break;
        }
        pl_clock_nap(2 * PL_NS_PER_MS, deadline_ns);
    }
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        connection->dropped =
            connection->dropped || (connection->kind == PL_CONNECTION_SHIM && !survives_kill(connection, keep_links));
    }
    free_dropped(supervisor);
}
