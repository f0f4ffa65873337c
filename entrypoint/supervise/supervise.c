/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's event loop: signals, connections, timers, heartbeats, stopping. */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* If the same stop signal arrives again within this time, the platform and another host have reported the same stop. */
#define SAME_STOP_NS (5 * PL_NS_PER_S)
#define KILL_ALL_NS (5 * PL_NS_PER_S)
#define WHOLE_PARTS_NS (55 * PL_NS_PER_S) /* from this stop budget on its parts have their whole length */
/* If a rank has ended with 0 and others still run after this time, a line is logged. */
#define EARLY_END_NS (60 * PL_NS_PER_S)

/* How long a host whose preparation failed waits for the others to connect, to notify them. */
#define NOTIFY_FAILURE_NS (60 * PL_NS_PER_S)
/* The part of a stop's time for notifying hosts that are not linked yet: most of them know of the stop already. */
#define NOTIFY_STOP_DIVISOR 12

void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure, const struct pl_loop_calls *calls)
{
    *supervisor = (struct pl_supervisor){
        .job = job,
        .signals = signals,
        .failure = failure,
        .rundir = PL_RUNDIR_NONE,
        .loop.calls = calls,
        .stop = {.budget_ns = job->settings.stop_ns, .join_ns = job->settings.stop_ns / NOTIFY_STOP_DIVISOR},
        .outcome.exit_report = PL_EXIT_REPORT_NONE,
        .main = {.exit_report = PL_EXIT_REPORT_NONE, .left_early = PL_EXIT_REPORT_NONE}};
    for (size_t i = 0; i < PL_TIMERS; i++) {
        supervisor->loop.timers_ns[i] = PL_DEADLINE_NEVER;
    }
    supervisor->peer_wait_ns = job->settings.peer_wait_ns;
    supervisor->seen.begun_ns = pl_clock_now_ns();
    pl_changes_look(job->paths.model, &supervisor->seen.model_before);
    supervisor->main.early_end_ns = EARLY_END_NS;
    supervisor->seen.watch.hang_ns = job->settings.hang_ns;
    supervisor->seen.watch.ends = strcmp(job->settings.hang_action, "end") == 0;
    supervisor->seen.memory_kills = pl_process_memory_kills();
    pl_apart_open(&supervisor->seen.apart, job);
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
    free(supervisor->stop.holding.ranks);
    pl_watch_done(&supervisor->seen.watch);
    pl_placement_done(&supervisor->seen.placement);
    supervisor->connections = NULL;
    supervisor->connections_count = 0;
    pl_rundir_close(&supervisor->rundir);
    pl_environment_free(supervisor->environment);
    supervisor->environment = NULL;
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

void pl_connection_go(enum pl_connection_state *state, enum pl_connection_state next)
{
    static const bool may_follow[][PL_CONNECTION_DROPPED + 1] = {
        /* a program that cannot be started ends without having begun */
        [PL_CONNECTION_OPEN] =
            {[PL_CONNECTION_READY] = true, [PL_CONNECTION_ENDED] = true, [PL_CONNECTION_DROPPED] = true},
        [PL_CONNECTION_READY] = {[PL_CONNECTION_ENDED] = true, [PL_CONNECTION_DROPPED] = true},
        [PL_CONNECTION_ENDED] = {[PL_CONNECTION_DROPPED] = true},
        [PL_CONNECTION_DROPPED] = {false},
    };

    PL_BUG_IF(!may_follow[*state][next]);
    *state = next;
}

void pl_supervise_drop(struct pl_connection *connection)
{
    if (connection->state != PL_CONNECTION_DROPPED) {
        pl_connection_go(&connection->state, PL_CONNECTION_DROPPED);
    }
}

void pl_supervise_notify(struct pl_connection *connection, enum pl_frame_type type, const char *field)
{
    if (connection->state != PL_CONNECTION_DROPPED && PL_LINK_SEND(&connection->link, type, NULL, field) != PL_OK) {
        pl_supervise_drop(connection);
    }
}

/* Whether the connection leads to a live shim of a program of these kinds. */
static bool runs(const struct pl_connection *connection, unsigned kinds)
{
    return connection->kind == PL_CONNECTION_SHIM && connection->state <= PL_CONNECTION_READY &&
           ((1U << connection->process_kind) & kinds);
}

static bool is_host_link(const struct pl_connection *connection)
{
    return (connection->kind == PL_CONNECTION_WORKER || connection->kind == PL_CONNECTION_MASTER) &&
           connection->state == PL_CONNECTION_READY;
}

static void send_signal(struct pl_connection *shim, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    pl_supervise_notify(shim, PL_FRAME_SIGNAL, text);
}

void pl_supervise_signal(struct pl_supervisor *supervisor, unsigned kinds, int number)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (runs(supervisor->connections[i], kinds)) {
            send_signal(supervisor->connections[i], number);
        }
    }
}

/* The job is asked to stop for the first time: set the timers for the time that it has. */
static void begin_stop(struct pl_supervisor *supervisor, int number)
{
    const int64_t early_ns =
        supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE ? PL_SUPERVISE_STOP_LAUNCHER_NS : PL_SUPERVISE_KILL_NS;
    /* a worker that the master leads waits for the result, which says more */
    const int64_t kill_ns = supervisor->role == PL_HOST_LED ? PL_SUPERVISE_KILL_NS / 2 : PL_SUPERVISE_KILL_NS;
    char name[16];

    if (supervisor->state < PL_HOST_CLOSING && pl_restart_is_wanted(supervisor)) {
        supervisor->outcome.exit_code = 128 + number; /* the failure alone would not have ended the job */
    }
    pl_stop_go(&supervisor->stop.state, PL_STOP_SAVING);
    supervisor->stop.number = number;
    supervisor->stop.ns = pl_clock_now_ns();
    pl_log(PL_LOG_INFO, "%s: stopping, %lld s for the program to save and end", pl_signals_name(number, name),
           (long long)((pl_supervise_stop_deadline(supervisor, early_ns) - supervisor->stop.ns) / PL_NS_PER_S));
    PL_TIMER_SET(supervisor, LAUNCHER, pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_STOP_LAUNCHER_NS));
    PL_TIMER_SET(supervisor, OVERDUE, pl_supervise_stop_deadline(supervisor, kill_ns));
    PL_TIMER_WAKE(supervisor, HOLDING);
    PL_TIMER_WAKE(supervisor, WAIT);
    if (supervisor->main.started) {
        supervisor->sessions.opens = false; /* each host that is not linked yet saves and ends on its own */
    }
}

void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link)
{
    const bool first = supervisor->stop.number == 0;

    if (!first &&
        (from_link || (number == supervisor->stop.number && pl_clock_now_ns() - supervisor->stop.ns < SAME_STOP_NS))) {
        return;
    }
    if (first) {
        begin_stop(supervisor, number);
    }
    pl_supervise_signal(supervisor, PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(RANK) | PL_PROCESS_SET(STEP), number);
    for (size_t i = 0; first && i < supervisor->connections_count; i++) {
        /* a worker that still prepares gets it too */
        if (is_host_link(supervisor->connections[i]) || supervisor->connections[i]->kind == PL_CONNECTION_WORKER) {
            pl_supervise_forward_stop(supervisor, supervisor->connections[i]);
        }
    }
}

void pl_supervise_forward_stop(struct pl_supervisor *supervisor, struct pl_connection *host)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", supervisor->stop.number);
    if (supervisor->stop.number != 0) {
        PL_SUPERVISE_SEND(supervisor, host, PL_FRAME_SIGNAL, text);
    }
}

void pl_supervise_stop_launcher(struct pl_supervisor *supervisor)
{
    if (supervisor->state == PL_HOST_RUNNING && supervisor->role != PL_HOST_LED) {
        pl_supervise_signal(supervisor, PL_PROCESS_SET(LAUNCHER) | PL_PROCESS_SET(TORCHRUN), SIGTERM);
    }
}

void pl_supervise_fail_overdue(struct pl_supervisor *supervisor)
{
    const long long seconds = (long long)(supervisor->stop.budget_ns / PL_NS_PER_S);

    if (supervisor->state != PL_HOST_RUNNING || supervisor->main.over) {
        return;
    }
    supervisor->main.over = true;
    if (supervisor->role == PL_HOST_LED) {
        pl_supervise_fail(supervisor, "the job did not end within %lld s after it was asked to stop", seconds);
    } else {
        pl_supervise_fail(supervisor,
                          "the program did not end within %lld s after it was asked to stop: handle SIGTERM, or give "
                          "it more time by PACELINE_STOP_S",
                          seconds);
    }
}

bool pl_supervise_runs(const struct pl_supervisor *supervisor, unsigned kinds)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (runs(supervisor->connections[i], kinds)) {
            return true;
        }
    }
    return false;
}

int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns)
{
    int64_t budget_ns = supervisor->stop.budget_ns;

    if (supervisor->stop.number == 0) {
        return PL_DEADLINE_NEVER;
    }
    if (budget_ns < WHOLE_PARTS_NS) { /* the parts of a shorter one are shorter alike */
        early_ns = (int64_t)((double)early_ns * (double)budget_ns / (double)WHOLE_PARTS_NS);
    }
    return supervisor->stop.ns + budget_ns - early_ns;
}

int64_t pl_supervise_join_deadline(const struct pl_supervisor *supervisor)
{
    if (supervisor->stop.number != 0) {
        return supervisor->stop.ns + supervisor->stop.join_ns;
    }
    return supervisor->sessions.begun_ns + (supervisor->outcome.failed ? NOTIFY_FAILURE_NS : supervisor->peer_wait_ns);
}

int64_t pl_supervise_notify_deadline(const struct pl_supervisor *supervisor)
{
    const int64_t join_ns = pl_supervise_join_deadline(supervisor);
    const int64_t late_ns = supervisor->sessions.begun_ns + NOTIFY_FAILURE_NS;

    return join_ns < late_ns ? join_ns : late_ns;
}

static void handle_signal(struct pl_supervisor *supervisor, int number)
{
    if (number == SIGINT || number == SIGTERM) {
        pl_supervise_stop(supervisor, number, false);
    } else if (number == SIGHUP || number == SIGQUIT || number == SIGUSR1 || number == SIGUSR2 || number == SIGWINCH) {
        pl_supervise_signal(supervisor, PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(RANK), number);
    }
}

/* Returns whether this process still has children. */
static bool reap(struct pl_supervisor *supervisor)
{
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid > 0 && pl_watch_note_child_end(&supervisor->seen.watch, pid)) {
            PL_TIMER_WAKE(supervisor, WATCH);
        }
    } while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid == 0;
}

static void handle_exit_report(struct pl_supervisor *supervisor, struct pl_connection *connection,
                               const struct pl_exit_report *exit_report)
{
    const bool begun = connection->state == PL_CONNECTION_READY;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (connection->state == PL_CONNECTION_ENDED) {
        return;
    }
    pl_connection_go(&connection->state, PL_CONNECTION_ENDED);
    if (connection->process_kind == PL_PROCESS_RANK) {
        pl_apart_end(&supervisor->seen.apart);
    }
    if (connection->waiter) {
        connection->waiter->over = true;
        connection->waiter->exit_report = *exit_report;
    } else if (connection->process_kind != PL_PROCESS_SYNC) {
        supervisor->loop.calls->ended(supervisor, connection->process_kind, begun, exit_report);
    } else if (!pl_exit_report_ok(exit_report)) { /* a failed upload cannot fail the job */
        pl_exit_report_sentence(exit_report, &text);
        pl_log(PL_LOG_WARNING, "%s", pl_text_string(&text));
    }
}

/* A shim that ends without a report was killed, and its program with it. The kernel's count of memory kills shows
 * whether that was the reason. */
static void handle_lost_shim(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;

    if (connection->state == PL_CONNECTION_ENDED) {
        return;
    }
    exit_report.out_of_memory = pl_process_memory_kills() > supervisor->seen.memory_kills;
    if (connection->process_kind == PL_PROCESS_RANK && supervisor->stop.state == PL_STOP_RELEASED &&
        !exit_report.out_of_memory) {
        snprintf(exit_report.note, sizeof(exit_report.note), "it had not ended when it was asked to");
    }
    exit_report.kind = connection->process_kind;
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

    if (frame->type == PL_FRAME_BEGUN && connection->state == PL_CONNECTION_OPEN) {
        pl_connection_go(&connection->state, PL_CONNECTION_READY);
    }
    if (frame->type != PL_FRAME_ENDED) {
        supervisor->loop.calls->take(supervisor, connection, frame);
    } else if (pl_exit_report_receive(frame, &exit_report, NULL) == PL_OK) {
        handle_exit_report(supervisor, connection, &exit_report);
    }
}

/* The first frame of a connection; a shim's comes from pl_shim_run() in `paceline rank`. */
static void handle_hello(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    const char *kind = frame->type == PL_FRAME_HELLO && frame->count >= 2 ? frame->fields[0] : "";
    int64_t rank;

    if (strcmp(kind, "shim") == 0 && pl_link_frame_number(frame, 2, 0, INT32_MAX, &rank, NULL) == PL_OK) {
        connection->kind = PL_CONNECTION_SHIM;
        connection->process_kind = PL_PROCESS_RANK;
        connection->rank = (int)rank;
        supervisor->seen.ranks = true;
        pl_placement_add(&supervisor->seen.placement, frame);
        pl_apart_begin(&supervisor->seen.apart, frame);
        PL_TIMER_SET(supervisor, APART, supervisor->seen.apart.next_look_ns);
        if (supervisor->stop.number != 0) {
            send_signal(connection,
                        supervisor->stop.number); /* this shim connected too late to get the stop with the others */
        }
        if (supervisor->stop.state == PL_STOP_RELEASED) {
            pl_supervise_notify(connection, PL_FRAME_RELEASE, "");
        }
    } else if (strcmp(kind, "agent") == 0) {
        connection->kind = PL_CONNECTION_RSH_AGENT;
    } else if (strcmp(kind, "exec") == 0) {
        connection->kind = PL_CONNECTION_EXEC;
    } else if (strcmp(kind, "master") == 0) {
        connection->kind = PL_CONNECTION_MASTER;
        supervisor->loop.calls->take(supervisor, connection, frame);
    } else {
        pl_supervise_drop(connection);
    }
}

/* The connection is over; if it leads to another host, this host is lost, or has left. */
static void lose(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    pl_supervise_drop(connection);
    supervisor->loop.calls->lose(supervisor, connection, why);
}

static void handle_frames(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    enum pl_status status;

    pl_link_flush(&connection->link);
    status = pl_link_read(&connection->link, &error);
    while (status == PL_OK && connection->state != PL_CONNECTION_DROPPED) {
        status = pl_link_next(&connection->link, &frame, &error);
        if (status != PL_OK) {
            break;
        }
        if (connection->kind == PL_CONNECTION_NEW) {
            handle_hello(supervisor, connection, &frame);
        } else if (connection->kind == PL_CONNECTION_SHIM) {
            handle_shim_frame(supervisor, connection, &frame);
        } else if (frame.type != PL_FRAME_HEARTBEAT) {
            supervisor->loop.calls->take(supervisor, connection, &frame);
        }
    }
    if (status == PL_OK || status == PL_END || connection->state == PL_CONNECTION_DROPPED) {
        return;
    }
    if (connection->kind == PL_CONNECTION_SHIM) {
        handle_lost_shim(supervisor, connection);
        pl_supervise_drop(connection);
        return;
    }
    lose(supervisor, connection, status == PL_PEER ? "its connection closed" : error.cause);
}

static void accept_connection(struct pl_supervisor *supervisor)
{
    int fd = accept4(supervisor->rundir.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pl_error error = PL_ERROR_NONE;

    if (fd >= 0 && pl_supervise_add(supervisor, PL_CONNECTION_NEW, fd, NULL, &error) != PL_OK) {
        pl_log_error(&error, "cannot accept a connection");
    }
}

void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_connection *connection, enum pl_frame_type type,
                       const char *const *fields, size_t count)
{
    if (connection && connection->state != PL_CONNECTION_DROPPED &&
        pl_link_send(&connection->link, type, fields, count, NULL) != PL_OK) {
        lose(supervisor, connection, "it takes no more messages");
    }
}

/* Send heartbeats, and find links whose heartbeats do not come. Without a link to a host the timer stays off. */
void pl_supervise_send_heartbeats(struct pl_supervisor *supervisor)
{
    const int64_t now_ns = pl_clock_now_ns();
    char why[64];

    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (!is_host_link(connection)) {
            continue;
        }
        PL_TIMER_SET(supervisor, HEARTBEAT, now_ns + supervisor->job->settings.silence_ns / 6);
        if (now_ns - connection->link.received_ns > supervisor->job->settings.silence_ns) {
            snprintf(why, sizeof(why), "nothing was received from it for %lld s",
                     (long long)(supervisor->job->settings.silence_ns / PL_NS_PER_S));
            lose(supervisor, connection, why);
        } else {
            pl_supervise_send(supervisor, connection, PL_FRAME_HEARTBEAT, NULL, 0);
        }
    }
}

/* Do what is due. A timer that does not set itself again is off. */
static void ring(struct pl_supervisor *supervisor)
{
    const int64_t now_ns = pl_clock_now_ns();

    for (size_t i = 0; i < PL_TIMERS; i++) {
        if (supervisor->loop.timers_ns[i] <= now_ns) {
            supervisor->loop.timers_ns[i] = PL_DEADLINE_NEVER;
            supervisor->loop.calls->due[i](supervisor);
        }
    }
}

static void free_dropped(struct pl_supervisor *supervisor)
{
    size_t kept = 0;

    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (supervisor->connections[i]->state == PL_CONNECTION_DROPPED) {
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

    PL_TRY(pl_memory_alloc(&waits, count + 2, sizeof(*waits), reterr));
    waits[0] = (struct pollfd){.fd = supervisor->signals->fd, .events = POLLIN};
    waits[1] = (struct pollfd){.fd = supervisor->rundir.listen_fd, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        waits[2 + i] = (struct pollfd){.fd = supervisor->connections[i]->link.fd,
                                       .events = supervisor->connections[i]->link.events};
    }
    for (size_t i = 0; i < PL_TIMERS; i++) {
        deadline_ns = supervisor->loop.timers_ns[i] < deadline_ns ? supervisor->loop.timers_ns[i] : deadline_ns;
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
        if (waits[2 + i].revents != 0 && supervisor->connections[i]->state != PL_CONNECTION_DROPPED) {
            handle_frames(supervisor, supervisor->connections[i]);
        }
    }
    if (waits[1].revents != 0) {
        accept_connection(supervisor);
    }
    ring(supervisor);
    free_dropped(supervisor);
    return PL_OK;
}

bool pl_supervise_wait(struct pl_supervisor *supervisor, int64_t deadline_ns)
{
    return !pl_deadline_passed(deadline_ns) && pl_supervise_poll(supervisor, deadline_ns, NULL) == PL_OK;
}

void pl_supervise_drop_kind(struct pl_supervisor *supervisor, enum pl_connection_kind kind)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (supervisor->connections[i]->kind == kind) {
            pl_supervise_drop(supervisor->connections[i]);
        }
    }
    free_dropped(supervisor);
}

/* Whether the process is not killed with the others: the upload of intermediate output, and with `links` the processes
 * that carry links to other hosts. */
static bool survives_kill(const struct pl_connection *connection, bool links)
{
    if (connection->kind == PL_CONNECTION_WORKER) {
        /* also a link that is being made: the host may have accepted it already */
        return links && connection->state != PL_CONNECTION_DROPPED;
    }
    return runs(connection, PL_PROCESS_SET(SYNC) | (links ? PL_PROCESS_SET(SSHD) : 0));
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
    while (reap(supervisor) && pl_process_kill_children(keep, keep_count, PL_PROCESS_SPARE_NOBODY) > 0) {
        if (pl_deadline_passed(deadline_ns)) {
            pl_log(PL_LOG_WARNING, "some processes do not end although they were killed");
            break;
        }
        pl_clock_nap(2 * PL_NS_PER_MS, deadline_ns);
    }
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && !survives_kill(connection, keep_links)) {
            pl_supervise_drop(connection);
        }
    }
    free_dropped(supervisor);
}
