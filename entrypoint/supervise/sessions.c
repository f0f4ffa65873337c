/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the master's ssh sessions to the workers, repeatedly until each is up, and keeps the reason of the last
 * failure.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
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

enum { SHOWN_HOSTS = 5 };

enum pl_status pl_sessions_make(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct pl_launch_plan *plan = supervisor->plan;

    supervisor->sessions.begun_ns = pl_clock_now_ns();
    if (plan->link == PL_LAUNCH_PLAN_LINK_NONE || plan->hosts.count + plan->outside_hosts.count < 2) {
        return PL_OK;
    }
    supervisor->sessions.items =
        pl_memory_new(plan->hosts.count - 1 + plan->outside_hosts.count, sizeof(*supervisor->sessions.items), reterr);
    if (!supervisor->sessions.items) {
        return PL_MEMORY;
    }
    for (size_t i = 1; i < plan->hosts.count; i++) {
        supervisor->sessions.items[supervisor->sessions.count++] =
            (struct pl_session){.host = plan->hosts.items[i], .ssh_stderr_fd = -1};
    }
    for (size_t i = 0; i < plan->outside_hosts.count; i++) {
        supervisor->sessions.items[supervisor->sessions.count++] =
            (struct pl_session){.host = plan->outside_hosts.items[i], .ssh_stderr_fd = -1, .outside = true};
    }
    return PL_OK;
}

enum pl_status pl_sessions_prepare(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv hosts = PL_STRV_NONE;

    PL_TRY(pl_supervise_open_ssh(supervisor, reterr));
    PL_TRY(pl_sshd_prepare_client(&supervisor->sshd, &supervisor->rundir, reterr));
    pl_strv_add_all(&hosts, &supervisor->plan->hosts);
    pl_strv_add_all(&hosts, &supervisor->plan->outside_hosts);
    PL_TRY(pl_strv_check(&hosts, reterr));
    PL_TRY(pl_sshd_save_hosts(&supervisor->sshd, &supervisor->rundir, supervisor->job->current_host, &hosts, reterr));
    supervisor->sessions.begun_ns = pl_clock_now_ns();
    return PL_OK;
}

/* Open one ssh session, whose stdin and stdout are the link. */
static enum pl_status open_session(struct pl_supervisor *supervisor, struct pl_session *session,
                                   struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int far_fd = -1;
    enum pl_status status;
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
    PL_TRY(PL_LINK_SEND(&session->link->link, PL_FRAME_HELLO, reterr, "master", supervisor->job->current_host));
    pl_supervise_forward_stop(supervisor, session->link); /* a host that still prepares takes it too */
    return PL_OK;
}

enum pl_status pl_sessions_open_due(struct pl_supervisor *supervisor, int64_t *next_ns, struct pl_error *reterr)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        struct pl_session *session = &supervisor->sessions.items[i];

        if (!session->link && pl_deadline_passed(session->next_try_ns)) {
            session->next_try_ns = pl_deadline_after_ns(TRY_SELDOM_NS); /* in case that it fails */
            PL_TRY(open_session(supervisor, session, reterr));
        }
        if (session->next_try_ns < *next_ns) {
            *next_ns = session->next_try_ns;
        }
    }
    return PL_OK;
}

struct pl_session *pl_sessions_find(const struct pl_supervisor *supervisor, const struct pl_connection *connection)
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
        session->refused = true;
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

void pl_sessions_failed(const struct pl_supervisor *supervisor, struct pl_session *session)
{
    bool often = pl_clock_now_ns() - supervisor->sessions.begun_ns < OFTEN_NS;

    read_reason(session);
    session->next_try_ns =
        session->refused ? PL_DEADLINE_NEVER : pl_deadline_after_ns(often ? TRY_AGAIN_NS : TRY_SELDOM_NS);
}

size_t pl_sessions_missing(const struct pl_supervisor *supervisor, bool outside, struct pl_text *text)
{
    size_t missing = 0;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (!session->ready && !session->refused && (outside || !session->outside) && ++missing <= SHOWN_HOSTS &&
            text) {
            pl_text_printf(text, "%s%s (%s)", missing > 1 ? ", " : "", session->host,
                           session->reason[0] != '\0' ? session->reason : "no answer yet");
        }
    }
    if (missing > SHOWN_HOSTS && text) {
        pl_text_append(text, ", ...");
    }
    return missing;
}

void pl_sessions_close(struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        pl_file_close_at(&supervisor->sessions.items[i].ssh_stderr_fd);
    }
    free(supervisor->sessions.items);
    supervisor->sessions.items = NULL;
    supervisor->sessions.count = 0;
    pl_sshd_close(&supervisor->sshd);
}
