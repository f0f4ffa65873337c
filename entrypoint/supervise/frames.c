/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the frames of other hosts, of shims, of mpirun's agents and of clients, and the end of a link. */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/ssh/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Find the agent that asked for the daemon of worker number `index`. */
static struct pl_connection *find_agent(struct pl_supervisor *supervisor, int index)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_RSH_AGENT && connection->index == index &&
            connection->state != PL_CONNECTION_DROPPED) {
            return connection;
        }
    }
    return NULL;
}

/* Log the reason: mpirun only sees that its agent exits with 1, and its own last lines do not give the reason. */
static void reject_start(struct pl_supervisor *supervisor, const char *host, const char *why)
{
    if (supervisor->stop.number == 0) {
        pl_supervise_fail(supervisor, "Open MPI's daemon on host '%.200s' does not start: %s", host, why);
    }
}

/* mpirun wants a daemon on a host. At most one agent asks for one host. */
static void forward_start(struct pl_supervisor *supervisor, struct pl_connection *agent, const struct pl_frame *frame)
{
    static const char not_ours[] = "this host is not a worker of the job";

    if (supervisor->role != PL_HOST_MASTER) { /* mpirun runs on the master */
        pl_supervise_drop(agent);
        return;
    }
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        struct pl_session *session = &supervisor->sessions.items[i];

        if (strcmp(session->host, frame->fields[0]) == 0 && session->link) {
            agent->index = (int)i;
            if (PL_LINK_SEND(&session->link->link, PL_FRAME_START, NULL, session->host, frame->fields[1]) != PL_OK) {
                pl_supervise_drop(agent);
            }
            return;
        }
    }
    pl_supervise_notify(agent, PL_FRAME_STARTED, not_ours);
    reject_start(supervisor, frame->fields[0], not_ours);
}

/* A worker that restarts more or less often than this host would be missing later, or would wait in vain. */
static void compare_restarts(struct pl_supervisor *supervisor, const struct pl_session *session,
                             const struct pl_frame *frame)
{
    const int64_t most = supervisor->job->settings.max_restarts;
    int64_t theirs;

    if (!session->outside && pl_link_frame_number(frame, 2, 0, INT32_MAX, &theirs, NULL) == PL_OK && theirs != most) {
        pl_supervise_fail(supervisor,
                          "host %.200s: PACELINE_MAX_RESTARTS is '%lld': expected %lld, the value of host %.200s",
                          session->host, (long long)theirs, (long long)most, supervisor->job->current_host);
    }
}

static void take_ready(struct pl_supervisor *supervisor, struct pl_session *session, const struct pl_frame *frame)
{
    int64_t processes;

    if (frame->count < 1 || strcmp(frame->fields[0], session->host) != 0) {
        pl_supervise_fail(
            supervisor,
            "the host name '%.200s' leads to a host whose own name is '%.200s': check the names in resourceconfig.json",
            session->host, frame->count > 0 ? frame->fields[0] : "");
        return;
    }
    compare_restarts(supervisor, session, frame);
    if (pl_link_frame_number(frame, 1, 1, PL_JOB_PROCESSES_MAX, &processes, NULL) == PL_OK) {
        session->processes = (int)processes;
    }
    if (!pl_session_go(&session->state, PL_SESSION_LINKED)) {
        return;
    }
    pl_connection_go(&session->link->state, PL_CONNECTION_READY);
    PL_TIMER_WAKE(supervisor, HEARTBEAT);
    pl_supervise_forward_stop(supervisor, session->link); /* the host connected too late to get the stop earlier */
    pl_holding_ask_again(supervisor);
    if (supervisor->state >= PL_HOST_CLOSING) {
        pl_links_send_result(supervisor, session->link);
    }
    pl_links_look(supervisor);
}

/* The end of a host outside the launch ends no other host: the result of the launch counts. */
static void warn_of_outside_end(const struct pl_session *session, const struct pl_exit_report *exit_report)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!pl_exit_report_ok(exit_report)) {
        pl_exit_report_sentence(exit_report, &text);
        pl_log(PL_LOG_WARNING, "%s; %s is outside the distribution, and only the result of the distribution counts",
               pl_text_string(&text), session->host);
    }
}

static void take_end(struct pl_supervisor *supervisor, struct pl_session *session, const struct pl_frame *frame)
{
    struct pl_exit_report exit_report;

    if (pl_exit_report_receive(frame, &exit_report, NULL) != PL_OK) {
        return;
    }
    if (exit_report.kind == PL_PROCESS_RANK) {
        pl_host_note_rank(supervisor, &exit_report);
        return;
    }
    if (exit_report.kind == PL_PROCESS_PROGRAM || exit_report.kind == PL_PROCESS_TORCHRUN) {
        pl_session_go(&session->state, PL_SESSION_IDLE);
        PL_TIMER_WAKE(supervisor, WAIT);
        pl_hang_decide(supervisor);
    }
    if (session->outside) {
        warn_of_outside_end(session, &exit_report);
    } else if (!pl_exit_report_ok(&exit_report)) {
        pl_supervise_fail_exit(supervisor, &exit_report);
    }
}

/* A worker itself cannot go on. Its message may already name the host, if the configuration is the reason. */
static void fail_worker(struct pl_supervisor *supervisor, const char *host, const char *words)
{
    const size_t length = strlen(host);
    const bool named = strncmp(words, "host ", 5) == 0 && strncmp(words + 5, host, length) == 0 &&
                       strncmp(words + 5 + length, ": ", 2) == 0;

    if (named) {
        pl_supervise_fail(supervisor, "%s", words);
    } else {
        pl_supervise_fail(supervisor, "host %.200s: %.700s", host, words);
    }
}

/* Tell the agent that waits for it whether the daemon of its host runs. */
static void take_started(struct pl_supervisor *supervisor, const struct pl_session *session, const char *why)
{
    struct pl_connection *agent = find_agent(supervisor, pl_links_number(supervisor, session));

    if (agent) {
        pl_supervise_notify(agent, PL_FRAME_STARTED, why);
    }
    if (*why != '\0') {
        reject_start(supervisor, session->host, why);
    }
}

static void take_quiet(struct pl_supervisor *supervisor, struct pl_session *session, const struct pl_frame *frame)
{
    int64_t number;

    session->quiet = strcmp(frame->fields[0], "1") == 0;
    if (pl_link_frame_number(frame, 1, PL_APART_UNKNOWN, PL_APART_CONNECTED, &number, NULL) == PL_OK) {
        session->apart = (enum pl_apart_state)number;
    }
    pl_apart_log_minute(supervisor);
    pl_hang_decide(supervisor);
}

static void take_stop(struct pl_supervisor *supervisor, const struct pl_frame *frame)
{
    int64_t number;

    if (pl_link_frame_number(frame, 0, 1, 64, &number, NULL) == PL_OK) {
        pl_supervise_stop(supervisor, (int)number, true);
    }
}

static void answer_start(struct pl_supervisor *supervisor, const char *text)
{
    PL_SUPERVISE_SEND(supervisor, pl_links_master(supervisor), PL_FRAME_STARTED, text);
}

/* Find `name` next to the file `program`, if it can be executed. */
static enum pl_status find_sibling(const char *program, const char *name, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_append_n(&path, program, (size_t)(strrchr(program, '/') - program) + 1);
    pl_text_append(&path, name);
    PL_TRY(pl_text_check(&path, reterr));
    if (access(pl_text_string(&path), X_OK) != 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "there is no %s next to '%.200s'", name, program);
    }
    return pl_text_take(&path, ret_path, reterr);
}

/* Find the daemon next to this host's own mpirun, by mpirun's name in PATH or by the file that the name leads to,
 * whatever path the command has. */
static enum pl_status find_daemon(const struct pl_supervisor *supervisor, const char *wanted, char **ret_path,
                                  struct pl_error *reterr)
{
    const char *slash = strrchr(wanted, '/');
    const char *name = slash ? slash + 1 : wanted;
    PL_AUTO_FREE char *mpirun = NULL;
    PL_AUTO_FREE char *real_mpirun = NULL;
    enum pl_status status;

    PL_TRY(pl_file_find_program("mpirun", pl_environment_get(supervisor->environment, "PATH"), &mpirun, reterr));
    status = find_sibling(mpirun, name, ret_path, reterr);
    real_mpirun = status != PL_OK ? realpath(mpirun, NULL) : NULL;
    return real_mpirun && find_sibling(real_mpirun, name, ret_path, NULL) == PL_OK ? PL_OK : status;
}

static enum pl_status start_daemon(struct pl_supervisor *supervisor, const char *text, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_FREE char *path = NULL;

    PL_TRY(pl_command_split_daemon(text, &command, reterr));
    PL_TRY(find_daemon(supervisor, command.items[0], &path, reterr));
    pl_strv_set(&command, 0, path);
    for (size_t i = 0; i + 1 < command.count; i++) { /* mpirun's directory is its own host's, and so is the daemon's */
        if (strcmp(command.items[i], PL_RUNDIR_MPIRUN_FILES) == 0 && pl_rundir_is_one(command.items[i + 1])) {
            pl_strv_set(&command, i, PL_RUNDIR_ALL_FILES);
            pl_strv_set(&command, i + 1, supervisor->rundir.path);
        }
    }
    PL_TRY(pl_strv_check(&command, reterr));
    setup.argv = (const char *const *)command.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = supervisor->plan->cwd;
    return pl_supervise_start(supervisor, PL_PROCESS_DAEMON, &setup, NULL, reterr);
}

/* Report the ends of programs that happened before the master connected. */
static void report_earlier_ends(struct pl_supervisor *supervisor)
{
    const struct pl_holding *holding = &supervisor->stop.holding;
    char number[16];

    if (supervisor->link_kind != PL_LAUNCH_PLAN_LINK_BESIDE) {
        return;
    }
    if (supervisor->outcome.failed && supervisor->outcome.exit_report_known) {
        pl_links_send_end(supervisor, &supervisor->outcome.exit_report);
    }
    if (supervisor->main.ended) {
        pl_links_send_end(supervisor, &supervisor->main.exit_report);
    }
    for (size_t i = 0; i < holding->count; i++) {
        if (!holding->ranks[i].ended) {
            snprintf(number, sizeof(number), "%d", holding->ranks[i].rank);
            PL_SUPERVISE_SEND(supervisor, pl_links_master(supervisor), PL_FRAME_CATCHES, number,
                              holding->ranks[i].catches ? "1" : "0");
        }
    }
}

void pl_frames_welcome(struct pl_supervisor *supervisor)
{
    struct pl_session *session = supervisor->sessions.items;
    char processes[16], restarts[24] = "";

    if (supervisor->sessions.count == 0 || !session->link) {
        return;
    }
    snprintf(processes, sizeof(processes), "%d", supervisor->job->processes_per_host);
    if (!supervisor->outcome.failed) { /* otherwise perhaps only the configuration could not be read */
        snprintf(restarts, sizeof(restarts), "%lld", (long long)supervisor->job->settings.max_restarts);
    }
    if (PL_LINK_SEND(&session->link->link, PL_FRAME_READY, NULL, supervisor->job->current_host, processes, restarts) !=
        PL_OK) {
        pl_supervise_drop(session->link);
        session->link = NULL;
        return;
    }
    pl_session_go(&session->state, PL_SESSION_LINKED);
    pl_connection_go(&session->link->state, PL_CONNECTION_READY);
    PL_TIMER_WAKE(supervisor, HEARTBEAT);
    pl_supervise_forward_stop(supervisor, session->link); /* the stop came before the master connected */
    report_earlier_ends(supervisor);
}

/* A client that has the job's key says that it is the master. The first one is accepted, unless this host continues
 * without the master already. */
static void accept_master(struct pl_supervisor *supervisor, struct pl_connection *connection,
                          const struct pl_frame *frame)
{
    struct pl_session *session = supervisor->sessions.items;
    int64_t attempt;

    if (pl_link_frame_number(frame, 2, pl_restart_number(supervisor), pl_restart_number(supervisor), &attempt, NULL) !=
            PL_OK || /* the master connects again when both hosts are in the same attempt */
        supervisor->role == PL_HOST_MASTER ||
        !session || supervisor->state >= PL_HOST_CLOSING || (!session->link && session->state != PL_SESSION_AWAY)) {
        pl_supervise_drop(connection);
        return;
    }
    if (connection == session->link) {
        return; /* the first frame of this connection was accepted already */
    }
    if (session->link || strcmp(frame->fields[1], session->host) != 0) {
        pl_log(PL_LOG_WARNING,
               "a connection from '%.100s' is refused: the first host of this job is '%s'. Check hosts in "
               "resourceconfig.json",
               frame->fields[1], session->host);
        pl_supervise_drop(connection);
        return;
    }
    session->link = connection;
    if (supervisor->state != PL_HOST_PREPARING) {
        pl_frames_welcome(supervisor);
    }
}

/* Start the frame's words as a program, with the environment of this container. */
static enum pl_status start_words(struct pl_supervisor *supervisor, struct pl_connection *connection,
                                  const struct pl_frame *frame, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    pid_t pid;
    struct pl_shim_options options = {.kind = PL_PROCESS_EXEC,
                                      .rank = -1,
                                      .host = supervisor->job->current_host,
                                      .progress_ns = PL_BARS_KEEP, /* the caller may print to a terminal */
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
    pl_watch_note_exec(&supervisor->seen.watch, argv.items[0], pid);
    return PL_OK;
}

/*
 * Run the program that an EXEC frame names, for another program of this host, under a shim of its own, and take
 * ownership of the connection. A connection whose EXEC frame is not complete is dropped. So one program of the job
 * starts another on another host: `ssh HOST` leads to a relay there (ssh/relay.h), which asks the process 1 of that
 * host.
 *
 * The client sends HELLO "exec" and then one EXEC frame: the program's words, and with them one to three descriptors,
 * which become the program's first standard descriptors. The missing ones are those of process 1, so that the program
 * prints to this host's log. From then on the connection leads to the shim, which sends BEGUN and ENDED. SIGNAL
 * forwards a signal, and the end of the connection kills the program. Process 1 carries none of the program's bytes,
 * and never waits for it. A stop of the job is sent to the program of the plan and not to these programs: their clients
 * must end them, and those that are left at the end of the job are killed.
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
        pl_log_error(&error, "cannot run '%s' for another program", frame->fields[0]);
    }
    /* the connection now belongs to the shim; or, after a failure, its client sees the end */
    pl_supervise_drop(connection);
}

/* Handle a frame of a worker. */
static void take_from_worker(struct pl_supervisor *supervisor, struct pl_session *session, const struct pl_frame *frame)
{
    switch (frame->type) {
    case PL_FRAME_READY:
        take_ready(supervisor, session, frame);
        break;
    case PL_FRAME_STARTED:
        take_started(supervisor, session, frame->fields[0]);
        break;
    case PL_FRAME_ENDED:
        take_end(supervisor, session, frame);
        break;
    case PL_FRAME_SIGNAL:
        take_stop(supervisor, frame);
        break;
    case PL_FRAME_RESULT:
        fail_worker(supervisor, session->host, frame->fields[1]);
        break;
    case PL_FRAME_DONE:
        pl_session_go(&session->state, PL_SESSION_DONE);
        PL_TIMER_WAKE(supervisor, WAIT);
        break;
    case PL_FRAME_CATCHES:
        pl_holding_note_answer(supervisor, frame, pl_links_number(supervisor, session));
        break;
    case PL_FRAME_SUSPENDED:
        pl_supervise_note_suspended(supervisor, frame);
        break;
    case PL_FRAME_QUIET:
        take_quiet(supervisor, session, frame);
        break;
    case PL_FRAME_OWN_WORDS:
        supervisor->outcome.own_words = true;
        break;
    default:
        break;
    }
}

/* Handle a frame of the master, which has been accepted. */
static void take_from_master(struct pl_supervisor *supervisor, struct pl_session *session, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    switch (frame->type) {
    case PL_FRAME_READY:
        if (supervisor->state == PL_HOST_LINKING) {
            pl_host_go_running(supervisor);
        }
        break;
    case PL_FRAME_START:
        if (start_daemon(supervisor, frame->fields[1], &error) != PL_OK) {
            answer_start(supervisor, error.cause);
        }
        break;
    case PL_FRAME_SIGNAL:
        take_stop(supervisor, frame);
        break;
    case PL_FRAME_HOLD:
        pl_supervise_write_failure(supervisor, frame->fields[0]);
        if (supervisor->stop.state == PL_STOP_SAVING) {
            pl_stop_go(&supervisor->stop.state, PL_STOP_HELD);
        }
        break;
    case PL_FRAME_RELEASE:
        if (supervisor->stop.state != PL_STOP_RUNNING) {
            pl_holding_release(supervisor);
        }
        break;
    case PL_FRAME_RESULT:
        pl_session_go(&session->state, PL_SESSION_DONE);
        PL_TIMER_WAKE(supervisor, WAIT);
        supervisor->main.dismissed = supervisor->plan->is_outside;
        if (strcmp(frame->fields[0], "0") != 0) {
            pl_supervise_fail_as(supervisor, frame->fields[1]);
            pl_restart_take(supervisor, frame);
        }
        break;
    default:
        break;
    }
}

/* Handle a frame of a local shim. What another host decides is passed on. HELLO of a forked shim says nothing new. */
static void take_from_shim(struct pl_supervisor *supervisor, const struct pl_connection *shim,
                           const struct pl_frame *frame)
{
    if (frame->type == PL_FRAME_BEGUN && shim->process_kind == PL_PROCESS_DAEMON) {
        answer_start(supervisor, "");
    } else if (frame->type == PL_FRAME_BEGUN &&
               pl_process_kind_in(shim->process_kind, PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(RANK))) {
        pl_restart_note_begun(supervisor);
    } else if (frame->type == PL_FRAME_CATCHES) {
        pl_holding_note_answer(supervisor, frame, PL_HOLDING_HERE);
    } else if (frame->type == PL_FRAME_SUSPENDED) {
        pl_supervise_note_suspended(supervisor, frame);
    }
    if (supervisor->role != PL_HOST_MASTER && (frame->type == PL_FRAME_CATCHES || frame->type == PL_FRAME_SUSPENDED)) {
        pl_supervise_send(supervisor, pl_links_master(supervisor), frame->type, frame->fields, frame->count);
    }
}

void pl_frames_take(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    /* a frame with fewer fields is ignored */
    static const size_t least[PL_FRAME_TYPES] = {
        [PL_FRAME_HELLO] = 2,   [PL_FRAME_START] = 2,     [PL_FRAME_STARTED] = 1,
        [PL_FRAME_SIGNAL] = 1,  [PL_FRAME_RESULT] = 2,    [PL_FRAME_HOLD] = 1,
        [PL_FRAME_CATCHES] = 2, [PL_FRAME_SUSPENDED] = 2, [PL_FRAME_QUIET] = 1};
    struct pl_session *session;

    if (frame->count < least[frame->type]) {
        return;
    }
    if (connection->kind == PL_CONNECTION_SHIM) {
        take_from_shim(supervisor, connection, frame);
    } else if (connection->kind == PL_CONNECTION_EXEC) {
        run_for_client(supervisor, connection, frame);
    } else if (connection->kind == PL_CONNECTION_RESOLVER && frame->type == PL_FRAME_RESULT) {
        pl_peers_note_answer(connection, frame->fields[1]);
    } else if (connection->kind == PL_CONNECTION_RSH_AGENT && frame->type == PL_FRAME_START) {
        forward_start(supervisor, connection, frame);
    } else if (connection->kind == PL_CONNECTION_MASTER && frame->type == PL_FRAME_HELLO) {
        accept_master(supervisor, connection, frame);
    } else if ((session = pl_links_find(supervisor, connection))) {
        (connection->kind == PL_CONNECTION_MASTER ? take_from_master : take_from_worker)(supervisor, session, frame);
    }
}

static void lose_master(struct pl_supervisor *supervisor, struct pl_session *session, const char *why)
{
    if (session->state != PL_SESSION_LINKED) {
        return; /* the master has sent the result, or will connect again */
    }
    pl_session_go(&session->state, PL_SESSION_LOST);
    PL_TIMER_WAKE(supervisor, HOLDING); /* now this host decides */
    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && supervisor->stop.number != 0) {
        pl_log(PL_LOG_WARNING, "the master host %s went away: %s; this host saves and ends by itself", session->host,
               why);
    } else {
        pl_supervise_fail_lost(supervisor, "the master host", session->host, why);
    }
}

static void lose_worker(struct pl_supervisor *supervisor, struct pl_session *session, const char *why)
{
    /* the worker's own program has succeeded, and it has nothing more to do */
    const bool has_left = (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE || session->outside) &&
                          session->state == PL_SESSION_IDLE && !supervisor->outcome.failed;

    pl_holding_lose_host(supervisor, pl_links_number(supervisor, session));
    if (session->state == PL_SESSION_AWAY) {
        pl_links_try_again(supervisor, session);
        if (session->state == PL_SESSION_REFUSED && supervisor->link_kind != PL_LAUNCH_PLAN_LINK_BESIDE &&
            !session->outside) {
            fail_worker(supervisor, session->host, session->reason);
        }
    } else if (has_left) {
        pl_session_go(&session->state, PL_SESSION_DONE);
    } else if (pl_session_go(&session->state, PL_SESSION_LOST)) {
        if (session->outside) {
            pl_log(PL_LOG_WARNING, "host %s, outside the distribution, is lost: %s", session->host, why);
        } else {
            pl_supervise_fail_lost(supervisor, "host", session->host, why);
        }
    }
}

void pl_frames_lose(struct pl_supervisor *supervisor, const struct pl_connection *connection, const char *why)
{
    struct pl_session *session = pl_links_find(supervisor, connection);

    if (connection->kind == PL_CONNECTION_RESOLVER) {
        pl_peers_note_answer(connection, "the process that looks host names up was killed");
    }
    if (session) {
        session->link = NULL;
        PL_TIMER_WAKE(supervisor, WAIT);
        (supervisor->role != PL_HOST_MASTER ? lose_master : lose_worker)(supervisor, session, why);
    }
}
