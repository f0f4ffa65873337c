/* SPDX-License-Identifier: Apache-2.0 */
/* The agents of a sweep: starts them, handles their messages, and sends them orders. */
#include "programs/sweep/state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long agents may take to end when the sweep is over. */
#define END_NS (10 * PL_NS_PER_S)
/* If a host is lost, process 1 reports it first: it has its own link to every host. If an agent's link has ended for
 * this much longer, only the agent is gone. */
#define LOST_SPARE_NS (15 * PL_NS_PER_S)

/* Makes the command of an agent: the same program is on all hosts. */
static enum pl_status agent_words(const struct pl_sweep *sweep, struct pl_strv *words, struct pl_error *reterr)
{
    PL_AUTO_FREE char *self = NULL;

    PL_TRY(pl_companion_find(sweep->job->self_path, "paceline-sweep", &self, reterr));
    PL_TRY(pl_strv_add_list(words, (const char *const[]){self, "--agent", sweep->job->self_path, "--", NULL}, reterr));
    return pl_strv_add_all(words, &sweep->job->command, reterr);
}

static enum pl_status start_agent(struct pl_sweep *sweep, int host, const struct pl_strv *words,
                                  struct pl_error *reterr)
{
    struct pl_sweep_host *there = &sweep->hosts[host];
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int theirs_fd = -1;
    enum pl_status status;
    int pair[2];

    PL_TRY(pl_sweep_hosts_words(sweep, host, PL_EXEC_CHANNEL, words, &argv, reterr));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "socketpair");
    }
    theirs_fd = pair[1];
    status = pl_link_open(&there->link, pair[0], reterr);
    if (status != PL_OK) {
        close(pair[0]);
        return status;
    }
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdin_fd = theirs_fd;
    /* ssh reads one and writes the other; this host's agent prints to the log */
    setup.stdout_fd = host > 0 ? theirs_fd : -1;
    setup.own_group = true;
    setup.signals = sweep->signals;
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &there->pid, reterr);
}

enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE, names = PL_STRV_NONE;
    PL_AUTO_FREE char *current_host = NULL;

    for (size_t i = 0; i < sweep->hosts_count; i++) {
        sweep->hosts[i].link = PL_LINK_NONE;
    }
    if (sweep->hosts_count > 1) {
        sweep->run_dir = pl_environment_get_or(sweep->job->process, PL_RUNDIR_VARIABLE, "");
        PL_TRY(pl_sshd_load_hosts(sweep->run_dir, &sweep->sshd, &current_host, &names, reterr));
    }
    PL_TRY(agent_words(sweep, &words, reterr));
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        PL_TRY(start_agent(sweep, (int)i, &words, reterr));
    }
    return PL_OK;
}

void pl_sweep_hosts_reap(struct pl_sweep *sweep)
{
    bool signalled;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        const int code = pl_process_status_code(status, &signalled);

        if (pl_sweep_move_note_end(sweep, pid, signalled ? 128 + code : code)) {
            continue;
        }
        for (size_t i = 0; i < sweep->hosts_count; i++) {
            sweep->hosts[i].pid = sweep->hosts[i].pid == pid ? 0 : sweep->hosts[i].pid;
        }
    }
}

/* Ends the agents: each handles its last orders, then finds the end of its socket, ends its trials and exits. */
static void end_agents(struct pl_sweep *sweep)
{
    const int64_t deadline_ns = pl_deadline_after_ns(END_NS);
    size_t left = 0;

    for (size_t i = 0; i < sweep->hosts_count; i++) {
        pl_link_drain(&sweep->hosts[i].link, deadline_ns);
        shutdown(sweep->hosts[i].link.fd, SHUT_WR);
        left += sweep->hosts[i].pid > 0;
    }
    while (left > 0 && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = sweep->signals->fd, .events = POLLIN};

        poll(&wait, 1, pl_deadline_poll_ms(deadline_ns));
        while (pl_signals_next(sweep->signals) != 0) {
        }
        pl_sweep_hosts_reap(sweep);
        left = 0;
        for (size_t i = 0; i < sweep->hosts_count; i++) {
            left += sweep->hosts[i].pid > 0;
        }
    }
}

void pl_sweep_hosts_close(struct pl_sweep *sweep)
{
    if (!sweep->hosts) {
        return;
    }
    end_agents(sweep);
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        pl_link_close(&sweep->hosts[i].link);
        free(sweep->hosts[i].trials);
    }
}

static void send_message(struct pl_sweep *sweep, int host, const char *const *fields, size_t count)
{
    struct pl_error error = PL_ERROR_NONE;

    if (host >= 0 && pl_link_send(&sweep->hosts[host].link, PL_FRAME_MESSAGE, fields, count, &error) != PL_OK) {
        pl_sweep_fail(sweep, "sending to the sweep's agent on host %s: %s", sweep->job->hosts.items[host], error.cause);
    }
}

#define SEND(sweep, host, ...)                                                                                         \
    send_message((sweep), (host), (const char *const[]){__VA_ARGS__},                                                  \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

void pl_sweep_hosts_start_trial(struct pl_sweep *sweep, int host, const struct pl_trial_order *order)
{
    char trial[16], slot[16], processes[16], last_step[32];

    snprintf(trial, sizeof(trial), "%d", order->trial);
    snprintf(slot, sizeof(slot), "%d", order->slot);
    snprintf(processes, sizeof(processes), "%d", order->processes);
    snprintf(last_step, sizeof(last_step), "%lld", (long long)order->last_step);
    SEND(sweep, host, "trial", trial, slot, processes, order->is_first ? "1" : "0", last_step, order->hyperparameters,
         order->metric_regex, order->step_regex ? order->step_regex : "", order->metric_name);
}

void pl_sweep_hosts_signal_trial(struct pl_sweep *sweep, int host, int trial, int number)
{
    char trial_text[16], number_text[16];

    snprintf(trial_text, sizeof(trial_text), "%d", trial);
    snprintf(number_text, sizeof(number_text), "%d", number);
    SEND(sweep, host, "signal", trial_text, number_text);
}

void pl_sweep_hosts_forget_trial(struct pl_sweep *sweep, int trial, bool model)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", trial);
    for (size_t host = 0; host < sweep->hosts_count; host++) {
        SEND(sweep, (int)host, "forget", text, model ? "model" : "checkpoints");
    }
}

static void read_agent(struct pl_sweep *sweep, int host, const struct pl_sweep_message *table, size_t count)
{
    struct pl_sweep_host *there = &sweep->hosts[host];
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&there->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(&there->link, &frame, NULL);
        if (status == PL_OK) {
            pl_sweep_message_handle(table, count, sweep, host, &frame);
        }
    }
    if (status != PL_END) {
        there->lost_ns = pl_clock_now_ns();
        pl_link_close(&there->link);
    }
}

enum pl_status pl_sweep_hosts_poll(struct pl_sweep *sweep, const struct pl_sweep_message *table, size_t count,
                                   int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pollfd *waits = pl_memory_new(sweep->hosts_count + 1, sizeof(*waits), reterr);

    if (!waits) {
        return PL_MEMORY;
    }
    waits[0] = (struct pollfd){.fd = sweep->signals->fd, .events = POLLIN};
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        waits[1 + i] = (struct pollfd){.fd = sweep->hosts[i].link.fd, .events = pl_link_events(&sweep->hosts[i].link)};
    }
    if (poll(waits, (nfds_t)sweep->hosts_count + 1, pl_deadline_poll_ms(deadline_ns)) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "poll");
    }
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        if (waits[1 + i].revents != 0) {
            pl_link_flush(&sweep->hosts[i].link);
            read_agent(sweep, (int)i, table, count);
        }
    }
    return PL_OK;
}

void pl_sweep_hosts_check(struct pl_sweep *sweep, int64_t *next_ns)
{
    const int64_t wait_ns = sweep->job->settings.silence_ns + LOST_SPARE_NS;

    for (size_t i = 0; i < sweep->hosts_count; i++) {
        const struct pl_sweep_host *there = &sweep->hosts[i];
        const int64_t due_ns = there->lost_ns + (i > 0 ? wait_ns : 0);

        if (there->lost_ns != 0 && pl_deadline_passed(due_ns)) {
            pl_sweep_fail(sweep,
                          "the sweep's agent on host %s has ended, and its trials with it: see whether it was killed",
                          sweep->job->hosts.items[i]);
        } else if (there->lost_ns != 0 && due_ns < *next_ns) {
            *next_ns = due_ns;
        }
    }
}
