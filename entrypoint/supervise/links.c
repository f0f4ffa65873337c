/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links of this host to others. The master opens an ssh session to each worker, repeatedly until it is up, and
 * keeps the reason of the last failure; a worker runs sshd for it.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/ssh/relay.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_AGAIN_NS (200 * PL_NS_PER_MS)
/* A host that does not answer after this time is tried less often while the program runs, because each try is a
 * process. */
#define OFTEN_NS (10 * PL_NS_PER_S)
#define TRY_SELDOM_NS (5 * PL_NS_PER_S)
/* A host that is not linked after this time is named in the log once, while the program runs. */
#define LATE_LINK_NS (60 * PL_NS_PER_S)
/* time between two lines about the hosts that this one waits for: on the master, on a worker */
#define MASTER_PROGRESS_NS (10 * PL_NS_PER_S)
#define WORKER_PROGRESS_NS (30 * PL_NS_PER_S)
/* How long sshd may take to end by itself. */
#define SSHD_GRACE_NS (PL_NS_PER_S)

enum { SHOWN_HOSTS = 5 };

bool pl_session_go(enum pl_session_state *state, enum pl_session_state next)
{
    static const bool may_follow[][PL_SESSION_LOST + 1] = {
        /* a master's result may come while this host prepares */
        [PL_SESSION_AWAY] = {[PL_SESSION_REFUSED] = true, [PL_SESSION_LINKED] = true, [PL_SESSION_DONE] = true},
        [PL_SESSION_REFUSED] = {false},
        [PL_SESSION_LINKED] = {[PL_SESSION_IDLE] = true, [PL_SESSION_DONE] = true, [PL_SESSION_LOST] = true},
        [PL_SESSION_IDLE] = {[PL_SESSION_DONE] = true, [PL_SESSION_LOST] = true},
        [PL_SESSION_DONE] = {[PL_SESSION_DONE] = true}, /* the result is sent again to a host that comes late */
        [PL_SESSION_LOST] = {false},
    };

    if (!may_follow[*state][next]) {
        return false;
    }
    *state = next;
    return true;
}

struct pl_connection *pl_links_master(const struct pl_supervisor *supervisor)
{
    const struct pl_session *master = supervisor->sessions.items;

    return supervisor->role != PL_HOST_MASTER && master && pl_session_was_linked(master) ? master->link : NULL;
}

static enum pl_status make_sessions(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct pl_launch_plan *plan = supervisor->plan;
    const bool is_worker = supervisor->role != PL_HOST_MASTER;
    struct pl_sessions *sessions = &supervisor->sessions;

    sessions->begun_ns = pl_clock_now_ns();
    sessions->items = pl_memory_new(plan->hosts.count + plan->outside_hosts.count, sizeof(*sessions->items), reterr);
    if (!sessions->items) {
        return PL_MEMORY;
    }
    for (size_t i = is_worker ? 0 : 1; i < (is_worker ? 1 : plan->hosts.count); i++) {
        sessions->items[sessions->count++] = (struct pl_session){.host = plan->hosts.items[i], .ssh_stderr_fd = -1};
    }
    for (size_t i = 0; i < plan->outside_hosts.count && !is_worker; i++) {
        sessions->items[sessions->count++] =
            (struct pl_session){.host = plan->outside_hosts.items[i], .ssh_stderr_fd = -1, .outside = true};
    }
    return PL_OK;
}

/* Finds the ssh keys of the job, or derives them from its secret, also while the job is being stopped. */
static enum pl_status open_ssh(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_launch_plan_step step;
    enum pl_status status = pl_sshd_plan_keys(supervisor->job, &supervisor->rundir, &step, reterr);

    if (status == PL_OK && step.what) {
        status = pl_supervise_step(supervisor, &step, pl_environment_strings(supervisor->environment), reterr);
    }
    if (status == PL_CANCELLED &&
        pl_supervise_step(supervisor, &step, pl_environment_strings(supervisor->environment), NULL) == PL_OK) {
        /* a stop ended the step like a program; but without keys the other hosts could not be notified of the stop */
        status = PL_OK;
    }
    pl_strv_done(&step.argv);
    PL_TRY(status);
    return pl_sshd_open(&supervisor->sshd, supervisor->job, &supervisor->rundir, reterr);
}

/* Find or make the keys, and write the files that ssh needs. */
static enum pl_status prepare_client(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv hosts = PL_STRV_NONE;

    PL_TRY(pl_needs_link(supervisor->job, supervisor->plan, reterr));
    PL_TRY(open_ssh(supervisor, reterr));
    PL_TRY(pl_sshd_prepare_client(&supervisor->sshd, &supervisor->rundir, reterr));
    pl_strv_add_all(&hosts, &supervisor->plan->hosts);
    pl_strv_add_all(&hosts, &supervisor->plan->outside_hosts);
    PL_TRY(pl_strv_check(&hosts, reterr));
    PL_TRY(pl_sshd_save_hosts(&supervisor->sshd, &supervisor->rundir, supervisor->job->current_host, &hosts, reterr));
    supervisor->sessions.begun_ns = pl_clock_now_ns();
    return PL_OK;
}

/* Start sshd, so that the master can link this host while it prepares. Where sshd cannot run, and the program needs the
 * link, a program in its place tells the master why. */
static enum pl_status start_sshd(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    enum pl_status status;

    PL_TRY(open_ssh(supervisor, reterr));
    PL_TRY(pl_sshd_save_hosts(&supervisor->sshd, &supervisor->rundir, supervisor->job->current_host,
                              &supervisor->plan->hosts, reterr));
    status = pl_needs_link(supervisor->job, supervisor->plan, reterr);
    status = status != PL_OK ? status
                             : pl_sshd_server(&supervisor->sshd, supervisor->job, &supervisor->rundir, &argv, reterr);
    if (status != PL_OK && supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE) {
        return status;
    }
    if (status != PL_OK) {
        pl_strv_done(&argv);
        PL_TRY(pl_disconnect_words(supervisor->job->self_path, supervisor->sshd.port, reterr->cause, &argv, NULL));
    }
    setup.argv = (const char *const *)argv.items;
    setup.environment =
        /* not the environment with the preloaded library of ranks, which has no openpty() */
        pl_environment_strings(supervisor->job->process);
    setup.cwd = "/";
    PL_TRY(pl_supervise_start(supervisor, PL_PROCESS_SSHD, &setup, NULL, reterr));
    return status;
}

enum pl_status pl_links_begin(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool can_run_alone = supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !supervisor->outcome.failed;
    enum pl_status status = make_sessions(supervisor, reterr);

    if (status == PL_OK && supervisor->role != PL_HOST_MASTER) {
        status = start_sshd(supervisor, reterr);
    } else if (status == PL_OK && supervisor->sessions.count > 0) {
        status = prepare_client(supervisor, reterr);
        supervisor->sessions.opens = status == PL_OK;
        if (status != PL_OK) {
            pl_links_close(supervisor);
        }
        PL_TIMER_WAKE(supervisor, SESSIONS);
    }
    return can_run_alone ? pl_supervise_without_link(supervisor, status, reterr) : status;
}

/* Open one ssh session, whose stdin and stdout are the link. */
static enum pl_status open_session(struct pl_supervisor *supervisor, struct pl_session *session,
                                   struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int far_fd = -1;
    enum pl_status status;
    char number[16];
    int pair[2];
    pid_t pid;

    PL_TRY(
        pl_sshd_client(&supervisor->sshd, supervisor->rundir.path, session->host, PL_SSHD_LINK_COMMAND, &argv, reterr));
    pl_file_close_at(&session->ssh_stderr_fd);
    session->ssh_stderr_fd = memfd_create("ssh", MFD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    far_fd = pair[1];
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.signals = supervisor->signals;
    setup.stdin_fd = setup.stdout_fd = far_fd;
    setup.stderr_fd = session->ssh_stderr_fd;
    /* its own group, so that it gets no signals that a terminal sends to the foreground group */
    setup.own_group = true;
    status = pl_process_spawn(&setup, &pid, reterr);
    if (status != PL_OK) {
        close(pair[0]);
        return status;
    }
    PL_TRY(pl_supervise_add(supervisor, PL_CONNECTION_WORKER, pair[0], &session->link, reterr));
    session->link->pid = pid;
    session->link->index = (int)(session - supervisor->sessions.items);
    session->next_try_ns = PL_DEADLINE_NEVER;
    snprintf(number, sizeof(number), "%d", pl_restart_number(supervisor));
    PL_TRY(PL_LINK_SEND(&session->link->link, PL_FRAME_HELLO, reterr, "master", supervisor->job->current_host, number));
    pl_supervise_forward_stop(supervisor, session->link); /* a host that still prepares takes it too */
    return PL_OK;
}

static void set_next_try(struct pl_supervisor *supervisor)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        if (!supervisor->sessions.items[i].link && supervisor->sessions.items[i].next_try_ns < next_ns) {
            next_ns = supervisor->sessions.items[i].next_try_ns;
        }
    }
    PL_TIMER_SET(supervisor, SESSIONS, next_ns);
}

/* A session that cannot be opened is tried again later, but is a failure while hosts wait for each other. */
void pl_links_open_due(struct pl_supervisor *supervisor)
{
    struct pl_sessions *sessions = &supervisor->sessions;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = PL_OK;

    if (!sessions->opens && supervisor->state != PL_HOST_LINKING) {
        return;
    }
    for (size_t i = 0; i < sessions->count && status == PL_OK; i++) {
        if (!sessions->items[i].link && pl_deadline_passed(sessions->items[i].next_try_ns)) {
            sessions->items[i].next_try_ns = pl_deadline_after_ns(TRY_SELDOM_NS); /* in case this try fails */
            status = open_session(supervisor, &sessions->items[i], &error);
        }
    }
    if (status != PL_OK && supervisor->state == PL_HOST_LINKING) {
        pl_supervise_fail_status(supervisor, status, &error);
    } else if (status != PL_OK && !sessions->failure_told) {
        pl_log_error(&error, "cannot link to another host yet; it is tried again");
        sessions->failure_told = true;
    }
    set_next_try(supervisor);
}

struct pl_session *pl_links_find(const struct pl_supervisor *supervisor, const struct pl_connection *connection)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        if (supervisor->sessions.items[i].link == connection) {
            return &supervisor->sessions.items[i];
        }
    }
    return NULL;
}

/*
 * Keep the last line that ssh wrote, without the names that the progress line has anyway. A server may close the
 * connection before its greeting: OpenSSH 9.8 does this to a client that has failed to log in a few times. Then the
 * message of an earlier session that got further remains the reason.
 */
static void read_reason(struct pl_session *session)
{
    char words[2048];
    ssize_t bytes = session->ssh_stderr_fd >= 0 ? pread(session->ssh_stderr_fd, words, sizeof(words) - 1, 0) : 0;
    const char *line, *given;
    bool connected = true;

    while (bytes > 0 && (words[bytes - 1] == '\n' || words[bytes - 1] == '\r')) {
        bytes--;
    }
    words[bytes > 0 ? bytes : 0] = '\0';
    given = strstr(words, PL_DISCONNECT_BEGIN);
    if (given) {
        pl_session_go(&session->state, PL_SESSION_REFUSED);
        given += strlen(PL_DISCONNECT_BEGIN);
        snprintf(session->reason, sizeof(session->reason), "%.*s", (int)strcspn(given, "\r\n"), given);
        return;
    }
    line = strrchr(words, '\n') ? strrchr(words, '\n') + 1 : words;
    if (session->reached && (line[0] == '\0' || strncmp(line, "kex_exchange_identification: ", 29) == 0)) {
        return;
    }
    if (strncmp(line, "ssh: connect to host ", 21) == 0 && strrchr(line, ':')) {
        connected = false;
        line = strrchr(line, ':') + 1;
        line += strspn(line, " ");
    }
    session->reached = connected && strncmp(line, "ssh: ", 5) != 0;
    snprintf(session->reason, sizeof(session->reason), "%.180s", line[0] != '\0' ? line : "the session ended");
}

void pl_links_try_again(struct pl_supervisor *supervisor, struct pl_session *session)
{
    const bool often = pl_clock_now_ns() - supervisor->sessions.begun_ns < OFTEN_NS;

    read_reason(session);
    session->next_try_ns = session->state == PL_SESSION_REFUSED
                               ? PL_DEADLINE_NEVER
                               : pl_deadline_after_ns(often ? TRY_AGAIN_NS : TRY_SELDOM_NS);
    set_next_try(supervisor);
}

size_t pl_links_count(const struct pl_supervisor *supervisor, unsigned states, bool outside)
{
    size_t count = 0;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        count += ((1U << session->state) & states) && (outside || !session->outside);
    }
    return count;
}

size_t pl_links_missing(const struct pl_supervisor *supervisor, bool outside, struct pl_text *text)
{
    size_t missing = 0;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (session->state == PL_SESSION_AWAY && (outside || !session->outside) && ++missing <= SHOWN_HOSTS && text) {
            pl_text_printf(text, "%s%s (%s)", missing > 1 ? ", " : "", session->host,
                           session->reason[0] != '\0' ? session->reason : "no answer yet");
        }
    }
    if (missing > SHOWN_HOSTS && text) {
        pl_text_append(text, ", ...");
    }
    return missing;
}

bool pl_links_await_all(struct pl_supervisor *supervisor)
{
    const unsigned there = (1U << PL_SESSION_LINKED) | (1U << PL_SESSION_IDLE);
    size_t linked = 0;

    if (pl_links_missing(supervisor, false, NULL) > 0) {
        pl_supervise_kill_all(supervisor, true);
    }
    while (supervisor->sessions.opens && pl_links_missing(supervisor, false, NULL) > 0 &&
           pl_restart_is_wanted(supervisor) &&
           pl_supervise_wait(supervisor, pl_supervise_notify_deadline(supervisor))) {
    }
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        linked += supervisor->sessions.items[i].link && ((1U << supervisor->sessions.items[i].state) & there);
    }
    return linked + 1 == supervisor->plan->hosts.count;
}

void pl_links_look(struct pl_supervisor *supervisor)
{
    struct pl_sessions *sessions = &supervisor->sessions;

    if (!sessions->opens || supervisor->state < PL_HOST_RUNNING) {
        return;
    }
    if (pl_links_missing(supervisor, true, NULL) == 0) {
        pl_log(PL_LOG_INFO, "all %zu hosts are linked", sessions->count + 1);
        sessions->opens = false;
        return;
    }
    PL_TIMER_WAKE(supervisor, LATE_HOSTS);
}

void pl_links_look_late(struct pl_supervisor *supervisor)
{
    struct pl_sessions *sessions = &supervisor->sessions;
    const int64_t late_ns = sessions->begun_ns + LATE_LINK_NS,
                  end_ns = sessions->begun_ns + supervisor->job->settings.peer_wait_ns;
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    if (!sessions->opens || pl_deadline_passed(end_ns)) {
        sessions->opens = false;
        return;
    }
    if (!sessions->late_told && pl_deadline_passed(late_ns)) {
        pl_links_missing(supervisor, true, &names);
        pl_log(PL_LOG_WARNING, "not linked to %s yet: a failure there is not noticed here. Read the log of that host",
               pl_text_string(&names));
        sessions->late_told = true;
    }
    PL_TIMER_SET(supervisor, LATE_HOSTS, sessions->late_told || end_ns < late_ns ? end_ns : late_ns);
}

static void set_sshds_waiter(struct pl_supervisor *supervisor, struct pl_waiter *waiter)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (supervisor->connections[i]->process_kind == PL_PROCESS_SSHD) {
            supervisor->connections[i]->waiter = waiter;
        }
    }
}

/* The master did not connect: end sshd. Returns its last line in `waiter`, which may give the reason, or "". */
static const char *end_sshd(struct pl_supervisor *supervisor, struct pl_waiter *waiter)
{
    char *tail = waiter->exit_report.tail, *line;
    size_t length;

    set_sshds_waiter(supervisor, waiter);
    pl_supervise_end(supervisor, PL_PROCESS_SET(SSHD), SIGTERM, SSHD_GRACE_NS);
    set_sshds_waiter(supervisor, NULL);
    length = strlen(tail);
    while (length > 0 && tail[length - 1] == '\n') {
        tail[--length] = '\0';
    }
    line = strrchr(tail, '\n');
    return line ? line + 1 : tail;
}

static enum pl_status await_failed(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const long long seconds = (long long)(supervisor->peer_wait_ns / PL_NS_PER_S);
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
    struct pl_waiter waiter = {.over = false};
    const char *line;
    size_t missing;

    if (supervisor->role != PL_HOST_MASTER) {
        line = end_sshd(supervisor, &waiter);
        return pl_error_set(reterr, PL_TIMEOUT,
                            "the master host %.150s did not connect within %lld s%s%.250s. " PL_SUPERVISE_LOST_ADVICE,
                            supervisor->sessions.items[0].host, seconds,
                            *line != '\0' ? "; sshd's last line here: " : "", line);
    }
    missing = pl_links_missing(supervisor, false, &names);
    return pl_error_set(reterr, PL_TIMEOUT,
                        "%zu of %zu hosts did not connect within %lld s: %.300s. " PL_SUPERVISE_LOST_ADVICE, missing,
                        supervisor->plan->hosts.count, seconds, pl_text_string(&names));
}

static void log_awaited(const struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
    const struct pl_session *first = supervisor->sessions.items;
    size_t missing;

    if (supervisor->role != PL_HOST_MASTER) {
        pl_log(PL_LOG_INFO, "waiting for the master host %s%s", first->host,
               pl_session_was_linked(first) ? ", which is waiting for other hosts or preparing its program" : "");
        return;
    }
    missing = pl_links_missing(supervisor, false, &names);
    pl_log(PL_LOG_INFO, "waiting for %zu of %zu hosts: %s", missing, supervisor->plan->hosts.count,
           pl_text_string(&names));
}

/* Whether this host must wait longer for others. The master tells a worker when all are linked. A worker that only
 * reports to the master needs no other host. If sshd has ended, the master cannot connect. */
static bool is_awaited(const struct pl_supervisor *supervisor)
{
    if (supervisor->role == PL_HOST_MASTER) {
        return pl_links_missing(supervisor, false, NULL) > 0;
    }
    return pl_session_was_linked(supervisor->sessions.items)
               ? supervisor->state == PL_HOST_LINKING && pl_supervise_may_go_on(supervisor) == PL_OK
               : pl_supervise_runs(supervisor, PL_PROCESS_SET(SSHD));
}

enum pl_status pl_links_await(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool report_only = supervisor->outcome.failed, is_worker = supervisor->role != PL_HOST_MASTER;
    struct pl_sessions *sessions = &supervisor->sessions;
    const int64_t period_ns = is_worker ? WORKER_PROGRESS_NS : MASTER_PROGRESS_NS;
    int64_t next_log_ns = pl_deadline_after_ns(period_ns);

    sessions->begun_ns = pl_clock_now_ns();
    if (sessions->count == 0 || (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !report_only)) {
        return PL_OK;
    }
    sessions->opens =
        !is_worker && supervisor->plan->outside_hosts.count > 0; /* hosts outside the launch need not be there */
    while (is_awaited(supervisor) && supervisor->outcome.failed == report_only) {
        const int64_t deadline_ns = is_worker && pl_session_was_linked(sessions->items)
                                        ? PL_DEADLINE_NEVER
                                        : pl_supervise_join_deadline(supervisor);

        if (pl_deadline_passed(deadline_ns)) {
            return report_only || supervisor->stop.number != 0 ? PL_OK : await_failed(supervisor, reterr);
        }
        if (pl_deadline_passed(next_log_ns)) {
            log_awaited(supervisor);
            next_log_ns = pl_deadline_after_ns(period_ns);
        }
        PL_TRY(pl_supervise_poll(supervisor, next_log_ns < deadline_ns ? next_log_ns : deadline_ns, reterr));
    }
    for (size_t i = 0; i < sessions->count && !is_worker && pl_supervise_may_go_on(supervisor) == PL_OK; i++) {
        if (pl_session_was_linked(&sessions->items[i])) {
            PL_SUPERVISE_SEND(supervisor, sessions->items[i].link, PL_FRAME_READY, supervisor->job->current_host);
        }
    }
    return PL_OK;
}

void pl_links_send_result(struct pl_supervisor *supervisor, struct pl_connection *link)
{
    const bool failed = supervisor->outcome.failed || supervisor->role != PL_HOST_MASTER;
    const char *how = pl_restart_follows(supervisor) ? "again" : failed ? "1" : "0";
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char number[16];

    if (failed) {
        pl_supervise_failure_text(supervisor, &text);
    }
    snprintf(number, sizeof(number), "%d", pl_restart_number(supervisor));
    PL_SUPERVISE_SEND(supervisor, link, PL_FRAME_RESULT, how, pl_text_string(&text), number);
}

void pl_links_send_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    struct pl_connection *master = pl_links_master(supervisor);

    if (master && pl_exit_report_send(exit_report, &master->link, NULL) != PL_OK) {
        pl_log(PL_LOG_WARNING, "the end of a program on this host was not reported to the master");
    }
}

void pl_links_send_quiet(struct pl_supervisor *supervisor)
{
    const bool quiet = supervisor->seen.watch.quiet;
    const enum pl_apart_state apart = pl_apart_state(&supervisor->seen.apart);
    struct pl_connection *master = pl_links_master(supervisor);
    char number[16];

    if (master && (quiet != supervisor->seen.watch.told || apart != supervisor->seen.apart.told)) {
        supervisor->seen.watch.told = quiet;
        supervisor->seen.apart.told = apart;
        snprintf(number, sizeof(number), "%d", (int)apart);
        PL_SUPERVISE_SEND(supervisor, master, PL_FRAME_QUIET, quiet ? "1" : "0", number);
    }
}

void pl_links_note_sshd(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const struct pl_session *master = supervisor->sessions.items;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TIMER_WAKE(supervisor, WAIT);
    if (master->state == PL_SESSION_DONE) {
        return;
    }
    if (supervisor->link_kind != PL_LAUNCH_PLAN_LINK_BESIDE) {
        pl_supervise_fail_exit(supervisor, exit_report);
    } else if (!pl_session_was_linked(master)) {
        pl_exit_report_print(exit_report, 0, PL_FAILURE_SHOWN_BYTES, &text);
        pl_log(PL_LOG_WARNING,
               "this host is not linked to the others: %s. If one fails, the others do not notice; fix the cause, or "
               "set PACELINE_LINK=0 to accept this",
               pl_text_string(&text));
    }
}

void pl_links_close(struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        pl_file_close_at(&supervisor->sessions.items[i].ssh_stderr_fd);
    }
    free(supervisor->sessions.items);
    supervisor->sessions = (struct pl_sessions){.items = NULL};
    pl_sshd_close(&supervisor->sshd);
}

void pl_links_drop(struct pl_supervisor *supervisor)
{
    if (supervisor->sessions.count > 0) {
        pl_supervise_kill_all(supervisor, false);
        pl_supervise_drop_kind(supervisor, PL_CONNECTION_WORKER);
        pl_supervise_drop_kind(supervisor, PL_CONNECTION_MASTER);
        pl_links_close(supervisor);
    }
}
