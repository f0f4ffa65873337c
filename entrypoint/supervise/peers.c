/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the names of all hosts in a child process, with retries until the join timeout. */
#include "entrypoint/supervise/peers.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 30000 };

/* A line is logged once per interval, not for each attempt. */
#define PROGRESS_NS (10 * PL_NS_PER_S)

static int backoff_ms(int attempt)
{
    return attempt >= 9 ? LONGEST_WAIT_MS : FIRST_WAIT_MS << attempt; /* 100 x 2^9 is above the limit */
}

/* Returns 0 or the error of getaddrinfo(). */
static int resolve_once(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int reason = getaddrinfo(host, NULL, &hints, &found);

    if (found) {
        freeaddrinfo(found);
    }
    return reason;
}

_Noreturn static void resolve_all(const struct pl_strv *hosts, int64_t deadline_ns, int fd)
{
    struct pl_link link = PL_LINK_NONE;
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
    char text[512] = "";

    if (pl_link_open(&link, fd, NULL) != PL_OK) {
        _exit(1);
    }
    for (size_t i = 0; i < hosts->count && text[0] == '\0'; i++) {
        int reason;

        for (int attempt = 0; (reason = resolve_once(hosts->items[i])) != 0; attempt++) {
            if (pl_deadline_passed(deadline_ns)) {
                snprintf(text, sizeof(text), "host name '%.255s' does not resolve: %s", hosts->items[i],
                         gai_strerror(reason));
                break;
            }
            if (pl_deadline_passed(next_log_ns)) {
                pl_log(PL_LOG_INFO, "waiting for the name of host %s (%s)", hosts->items[i], gai_strerror(reason));
                next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
            }
            pl_clock_nap(backoff_ms(attempt) * PL_NS_PER_MS, deadline_ns);
        }
    }
    if (PL_LINK_SEND(&link, PL_FRAME_RESULT, NULL, text[0] != '\0' ? "1" : "0", text) == PL_OK) {
        pl_link_drain(&link, pl_deadline_after_ns(PL_NS_PER_S));
    }
    _exit(0);
}

struct answer {
    bool known;
    char text[512];
};

static void answered(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct answer *answer = connection->state;

    (void)supervisor;
    answer->known = true;
    snprintf(answer->text, sizeof(answer->text), "%s", frame->fields[1]);
}

static void resolver_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    struct answer *answer = connection->state;

    (void)supervisor;
    (void)why;
    if (!answer->known) {
        answer->known = true;
        snprintf(answer->text, sizeof(answer->text), "the process that looks host names up was killed");
    }
}

/* Whether the hosts can be linked, as far as that can be known before the attempt. */
static bool may_link(const struct pl_supervisor *supervisor)
{
    struct pl_sshd sshd = PL_SSHD_NONE;
    bool has_keys;

    if (supervisor->plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        return false;
    }
    has_keys = supervisor->job->settings.ssh_secret ||
               pl_sshd_open(&sshd, supervisor->job, &supervisor->rundir, NULL) == PL_OK;
    pl_sshd_close(&sshd);
    return has_keys;
}

enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    static const struct pl_frame_rule frames[] = {{PL_FRAME_RESULT, PL_CONNECTION_RESOLVER, 2, answered}};
    static const struct pl_role role = {.frames = frames, .frames_count = 1, .gone = resolver_gone};
    struct answer answer = {.known = false};
    struct pl_connection *resolver;
    enum pl_status status;
    int pair[2];
    pid_t pid;

    if (!supervisor->plan->needs_names || (supervisor->plan->needs_no_peers && !may_link(supervisor))) {
        return PL_OK;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        resolve_all(&supervisor->job->hosts, pl_deadline_after_ns(supervisor->join_timeout_ns), pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return pl_error_errno(reterr, "fork");
    }
    status = pl_supervise_add(supervisor, PL_CONNECTION_RESOLVER, pair[0], &resolver, reterr);
    if (status == PL_OK) {
        resolver->role = &role;
        resolver->state = &answer;
    }
    while (status == PL_OK && !answer.known && supervisor->stop_number == 0 && !supervisor->failed) {
        status = pl_supervise_poll_preparing(supervisor, PL_DEADLINE_NEVER, reterr);
    }
    kill(pid, SIGKILL); /* it holds no state, and is reaped with all others */
    pl_supervise_drop(supervisor, PL_CONNECTION_RESOLVER);
    PL_TRY(status);
    return answer.text[0] == '\0' ? PL_OK : pl_error_set(reterr, PL_TIMEOUT, "%s", answer.text);
}
