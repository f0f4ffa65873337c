/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the names of all hosts in a child process, with retries until the join timeout. */
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/supervise.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "entrypoint/launch/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 2000 };

static const char hosts_path[] = "/etc/hosts";

/* A line is logged once per interval, not for each attempt. */
#define PROGRESS_NS (10 * PL_NS_PER_S)

/* Longest time from the start of a host until the DNS has its name. */
#define OWN_NAME_NS (60 * PL_NS_PER_S)

static int backoff_ms(int attempt)
{
    return attempt >= 5 ? LONGEST_WAIT_MS : FIRST_WAIT_MS << attempt; /* 100 x 2^5 is above the limit */
}

/* The addresses that a host name resolves to. */
struct owners {
    bool own, foreign;              /* own: at least one is of this host; foreign: at least one of another */
    char address[INET6_ADDRSTRLEN]; /* the first */
};

/* Returns 0 or the error of getaddrinfo(). */
static int resolve_once(const char *host, struct owners *ret_owners)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int reason = getaddrinfo(host, NULL, &hints, &found);

    *ret_owners = (struct owners){.own = false};
    if (found) {
        getnameinfo(found->ai_addr, found->ai_addrlen, ret_owners->address, sizeof(ret_owners->address), NULL, 0,
                    NI_NUMERICHOST);
    }
    for (const struct addrinfo *item = found; item; item = item->ai_next) {
        const bool own = pl_interface_has(item->ai_addr);

        ret_owners->own = ret_owners->own || own;
        ret_owners->foreign = ret_owners->foreign || !own;
    }
    if (found) {
        freeaddrinfo(found);
    }
    return reason;
}

/* Add the line "ADDRESS NAME" in one write, to the existing file: in a container the file is a mount. */
static enum pl_status add_line(const char *address, const char *host, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(hosts_path, O_RDWR | O_APPEND | O_CLOEXEC);
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    char last = '\n';

    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", hosts_path);
    }
    if (lseek(fd, -1, SEEK_END) >= 0 && read(fd, &last, 1) != 1) {
        return pl_error_errno(reterr, "read '%s'", hosts_path);
    }
    PL_TRY(pl_text_set(&line, reterr, "%s%s\t%s\n", last == '\n' ? "" : "\n", address, host));
    return pl_file_write_fd(fd, pl_text_string(&line), line.length, hosts_path, reterr);
}

/* Wait until the name resolves. */
static enum pl_status await_name(const char *host, int64_t deadline_ns, struct owners *ret_owners,
                                 struct pl_error *reterr)
{
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
    int reason;

    for (int attempt = 0; (reason = resolve_once(host, ret_owners)) != 0; attempt++) {
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT,
                                "host name '%.255s' does not resolve: %s. Its line belongs into %s, or its record into "
                                "the DNS",
                                host, gai_strerror(reason), hosts_path);
        }
        if (pl_deadline_passed(next_log_ns)) {
            pl_log(PL_LOG_INFO, "waiting for the name of host %s (%s)", host, gai_strerror(reason));
            next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
        }
        pl_clock_nap(backoff_ms(attempt) * PL_NS_PER_MS, deadline_ns);
    }
    return PL_OK;
}

/* Wait for another host's name. Linked hosts share no address: sshd has the same port on each. */
static enum pl_status await_other(const char *host, bool linked, int64_t deadline_ns, struct pl_error *reterr)
{
    struct owners owners;

    PL_TRY(await_name(host, deadline_ns, &owners, reterr));
    if (linked && !owners.foreign) {
        return pl_error_set(reterr, PL_INVALID,
                            "host name '%.255s' leads to %s, which is this host's own address: correct %s", host,
                            owners.address, hosts_path);
    }
    return PL_OK;
}

/* Programs look up their own host by its name, too, for example as MASTER_ADDR. If that name does not resolve, this
 * host adds it to /etc/hosts with its own address. If that fails, this waits for the DNS, which may only be late. */
static enum pl_status make_own_known(const struct pl_job *job, int64_t deadline_ns, struct pl_error *reterr)
{
    const char *host = job->hosts.items[job->host_index];
    const int64_t late_ns = pl_deadline_after_ns(OWN_NAME_NS);
    char address[INET6_ADDRSTRLEN], words[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    struct owners owners;
    const int reason = resolve_once(host, &owners);
    enum pl_status status;

    if (reason == 0 && !owners.own) {
        pl_log(PL_LOG_WARNING,
               "the name of this host, %s, leads to %s, which is none of its addresses: a program that looks for this "
               "host by its name may wait in vain. Correct %s or the DNS",
               host, owners.address, hosts_path);
    }
    if (reason == 0) {
        return PL_OK;
    }
    status = pl_interface_address(job, address, &error);
    if (status == PL_OK) {
        status = add_line(address, host, &error);
    }
    if (status == PL_OK) {
        pl_log(PL_LOG_INFO, "the name of this host, %s, did not resolve (%s): %s has now its address %s", host,
               gai_strerror(reason), hosts_path, address);
        return PL_OK;
    }
    pl_error_text(&error, words, sizeof(words));
    pl_log(PL_LOG_WARNING, "the name of this host, %s, does not resolve (%s) and cannot be added to %s: %s", host,
           gai_strerror(reason), hosts_path, words);
    status = await_name(host, late_ns < deadline_ns ? late_ns : deadline_ns, &owners, reterr);
    if (status != PL_OK) {
        pl_error_context(reterr, "it is this host's own name; %.300s", words);
    }
    return status;
}

/* Arguments of the child that looks up the names. */
struct search {
    const struct pl_supervisor *supervisor;
    bool others;
    int near_fd, far_fd; /* the supervisor's end of the link, and the child's */
};

static int resolve_all(void *search_at)
{
    const struct search *search = search_at;
    const struct pl_job *job = search->supervisor->job;
    const bool linked = search->supervisor->link_kind != PL_LAUNCH_PLAN_LINK_NONE;
    const int64_t deadline_ns = pl_deadline_after_ns(search->supervisor->peer_wait_ns);
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES] = "";
    struct pl_error error = PL_ERROR_NONE;
    struct pl_link link = PL_LINK_NONE;
    enum pl_status status;

    close(search->near_fd);
    if (pl_link_open(&link, search->far_fd, NULL) != PL_OK) {
        return 1;
    }
    status = make_own_known(job, deadline_ns, &error);
    for (size_t i = 0; search->others && i < job->hosts.count && status == PL_OK; i++) {
        if ((int)i != job->host_index) {
            status = await_other(job->hosts.items[i], linked, deadline_ns, &error);
        }
    }
    if (status != PL_OK) {
        pl_error_text(&error, text, sizeof(text));
    }
    if (PL_LINK_SEND(&link, PL_FRAME_RESULT, NULL, status == PL_OK ? "0" : "1", text) == PL_OK) {
        pl_link_drain(&link, pl_deadline_after_ns(PL_NS_PER_S));
    }
    return 0;
}

void pl_peers_note_answer(const struct pl_connection *resolver, const char *answer)
{
    struct pl_waiter *waiter = resolver->waiter;

    if (!waiter->over) {
        waiter->over = true;
        snprintf(waiter->text, sizeof(waiter->text), "%s", answer);
    }
}

/* Whether the hosts can be linked, as far as that can be known before the attempt. */
static bool may_link(const struct pl_supervisor *supervisor)
{
    struct pl_sshd sshd = PL_SSHD_NONE;
    bool has_keys;

    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_NONE) {
        return false;
    }
    has_keys = supervisor->job->settings.ssh_secret ||
               pl_sshd_open(&sshd, supervisor->job, &supervisor->rundir, NULL) == PL_OK;
    pl_sshd_close(&sshd);
    return has_keys;
}

enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, bool others, struct pl_error *reterr)
{
    struct search search = {.supervisor = supervisor, .others = others};
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    struct pl_waiter waiter = {.over = false};
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
    search.near_fd = pair[0];
    search.far_fd = pair[1];
    setup.argv = (const char *const[]){"the search for host names", NULL};
    setup.run = resolve_all;
    setup.context = &search;
    status = pl_process_spawn(&setup, &pid, reterr);
    close(pair[1]);
    if (status != PL_OK) {
        close(pair[0]);
        return status;
    }
    status = pl_supervise_add(supervisor, PL_CONNECTION_RESOLVER, pair[0], &resolver, reterr);
    if (status == PL_OK) {
        resolver->waiter = &waiter;
    }
    while (status == PL_OK && !waiter.over && pl_supervise_may_go_on(supervisor) == PL_OK) {
        status = pl_supervise_poll(supervisor, PL_DEADLINE_NEVER, reterr);
    }
    kill(pid, SIGKILL); /* the child holds no state, and is reaped with all others */
    pl_supervise_drop_kind(supervisor, PL_CONNECTION_RESOLVER);
    PL_TRY(status);
    return waiter.text[0] == '\0' ? PL_OK : pl_error_set(reterr, PL_TIMEOUT, "%s", waiter.text);
}
