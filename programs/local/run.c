/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job on its hosts: starts them, copies their output, passes stops on. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CATCH_NS (5 * PL_NS_PER_S)   /* how long a host's first process may take to handle SIGTERM */
#define OTHERS_NS (30 * PL_NS_PER_S) /* after a failure, how long the other hosts may take to end by themselves */
#define LOST_NS (120 * PL_NS_PER_S)  /* the same after --lose: a silent host counts as lost after some time */
#define NAP_NS (5 * PL_NS_PER_MS)
#define FEED_NS (10 * PL_NS_PER_S)

enum { MOST_READS = 4, MOST_STATUS_BYTES = 8192, COLOURS = 6 };

enum deadline { KILL, OTHERS, LIMIT, SPOT, STOP, LOSE, CUT, DEADLINES };

/* Why a job is stopped at a deadline. */
static const struct {
    enum pl_local_end end;
    const char *words;
} reasons[DEADLINES] = {[OTHERS] = {PL_LOCAL_FAILS, "a host has failed, and the others go on"},
                        [LIMIT] = {PL_LOCAL_LIMIT, "the job has run for its longest time"},
                        [SPOT] = {PL_LOCAL_SPOT, "simulating a spot stop"},
                        [STOP] = {PL_LOCAL_STOP, "simulating StopTrainingJob"}};

struct run {
    struct pl_local *local;
    int64_t due_ns[DEADLINES];
    unsigned stops; /* number of stops that the job got */
};

static void print_line(struct pl_local *local, struct pl_local_host *host, const char *line, size_t bytes)
{
    const int number = (int)(host - local->hosts);

    if (local->colour) {
        printf("\033[3%dm[%s]\033[0m ", 1 + number % COLOURS, host->name);
    } else {
        printf("[%s] ", host->name);
    }
    fwrite(line, 1, bytes, stdout);
    putchar('\n');
    fwrite(line, 1, bytes, host->log);
    putc('\n', host->log);
    pl_local_metrics_read(local->metrics, line, bytes);
    pl_local_spot_read(local, line, bytes);
}

/* Prints the whole lines, and a line that is too long in pieces. */
static void print_lines(struct pl_local *local, struct pl_local_host *host)
{
    const char *line = host->line, *end;
    size_t ready = host->ready;

    while ((end = memchr(line, '\n', ready))) {
        const size_t bytes = (size_t)(end - line);

        print_line(local, host, line, bytes > 0 && end[-1] == '\r' ? bytes - 1 : bytes);
        ready -= bytes + 1;
        line = end + 1;
    }
    if (ready == sizeof(host->line)) {
        print_line(local, host, line, ready);
        ready = 0;
    }
    memmove(host->line, line, ready);
    host->ready = ready;
}

/* Reads a few times only: a program that prints without a pause must not keep this from signals, deadlines and the
 * other hosts. poll() reports the remaining output. */
static void read_output(struct pl_local *local, struct pl_local_host *host)
{
    for (int i = 0; i < MOST_READS; i++) {
        const ssize_t bytes = read(host->output_fd, host->line + host->ready, sizeof(host->line) - host->ready);

        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (bytes <= 0) {
            if (host->ready > 0) {
                print_line(local, host, host->line, host->ready);
                host->ready = 0;
            }
            pl_file_close_at(&host->output_fd);
            break;
        }
        host->ready += (size_t)bytes;
        print_lines(local, host);
    }
    fflush(stdout);
    fflush(host->log);
}

/* Whether the process takes SIGTERM: Linux drops it if a host's first process neither handles nor blocks it. */
static bool takes_term(pid_t pid)
{
    const uint64_t bit = UINT64_C(1) << (SIGTERM - 1);
    size_t bytes = 0;
    PL_AUTO_FREE char *status = pl_proc_read(pid, "status", MOST_STATUS_BYTES, &bytes);

    return !status ||
           ((pl_text_field_number(status, "SigBlk", 16, 0) | pl_text_field_number(status, "SigCgt", 16, 0)) & bit) != 0;
}

static void signal_hosts(struct pl_local *local, int number)
{
    const int64_t deadline_ns = pl_deadline_after_ns(CATCH_NS);

    for (size_t i = 0; i < local->job->hosts; i++) {
        struct pl_local_host *host = &local->hosts[i];

        while (number == SIGTERM && host->pid > 0 && !takes_term(host->pid) && !pl_deadline_passed(deadline_ns)) {
            pl_clock_nap(NAP_NS, deadline_ns);
        }
        if (host->pid > 0) {
            if (number == SIGKILL && local->kind == PL_LOCAL_CONTAINERS) {
                pl_local_container_kill(local, i); /* the client ends with its container */
            } else {
                kill(host->pid, number);
            }
            host->killed = host->killed || number == SIGKILL;
        }
    }
}

static void kill_hosts(struct run *run)
{
    run->due_ns[KILL] = PL_DEADLINE_NEVER;
    signal_hosts(run->local, SIGKILL);
}

static void stop(struct run *run, enum pl_local_end why, const char *words)
{
    struct pl_local *local = run->local;

    if (local->end != PL_LOCAL_RUNS) {
        return;
    }
    pl_log(PL_LOG_INFO, "%s: SIGTERM to every host, SIGKILL after %.0f s", words,
           (double)local->stop_time_ns / (double)PL_NS_PER_S);
    local->end = why;
    local->stopped_ns = pl_clock_now_ns();
    if (why == PL_LOCAL_SPOT) {
        pl_local_spot_begin(local);
    }
    for (int i = OTHERS; i <= STOP; i++) {
        run->due_ns[i] = PL_DEADLINE_NEVER;
    }
    run->due_ns[KILL] = pl_deadline_after_ns((int64_t)local->stop_time_ns);
    signal_hosts(local, SIGTERM);
}

static void take_signals(struct run *run)
{
    struct pl_local *local = run->local;
    const unsigned stops = pl_local_stops(local);

    for (; run->stops < stops; run->stops++) {
        if (local->end == PL_LOCAL_RUNS) {
            stop(run, PL_LOCAL_STOP, "stopping the job; a second Control-C kills it");
        } else if (local->end == PL_LOCAL_SPOT) {
            pl_log(PL_LOG_INFO, "the job does not start again; a second Control-C kills it");
            local->end = PL_LOCAL_STOP;
            local->spot_ns = 0;
        } else {
            pl_log(PL_LOG_INFO, "killing the job");
            kill_hosts(run);
        }
    }
}

static void note_end(struct run *run, pid_t pid, int status)
{
    struct pl_local *local = run->local;

    for (size_t i = 0; i < local->job->hosts; i++) {
        struct pl_local_host *host = &local->hosts[i];

        if (host->pid == pid) {
            bool is_signal;
            const int code = pl_process_status_code(status, &is_signal);

            host->pid = 0;
            host->code = is_signal ? 128 + code : code;
            if (host->code != 0 && run->due_ns[OTHERS] == PL_DEADLINE_NEVER && local->end == PL_LOCAL_RUNS) {
                run->due_ns[OTHERS] = pl_deadline_after_ns(host->lost ? LOST_NS : OTHERS_NS);
            }
        }
    }
    for (size_t i = 0; i < local->feed_count; i++) {
        if (local->feeds[i] == pid) {
            pl_local_channels_ended(local, i, status);
        }
    }
}

/* Kills what a plain host has left, which would keep its output open. */
static void kill_left(struct pl_local *local)
{
    if (local->kind == PL_LOCAL_PLAIN && local->hosts[0].pid == 0) {
        pl_process_kill_children(local->feeds, local->feed_count, PL_PROCESS_SPARE_NOBODY);
    }
}

static void reap(struct run *run)
{
    int status;
    pid_t ended;

    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        note_end(run, ended, status);
    }
    kill_left(run->local);
}

static bool is_over(const struct pl_local *local)
{
    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].pid > 0 || local->hosts[i].output_fd >= 0) {
            return false;
        }
    }
    return true;
}

static void meet(struct run *run, enum deadline which)
{
    run->due_ns[which] = PL_DEADLINE_NEVER;
    if (which == KILL) {
        pl_log(PL_LOG_WARNING, "the job did not end within %.0f s: SIGKILL to every host",
               (double)run->local->stop_time_ns / (double)PL_NS_PER_S);
        kill_hosts(run);
    } else if (which == LOSE) {
        pl_local_simulate_lose(run->local);
    } else if (which == CUT) {
        run->due_ns[CUT] = pl_local_simulate_cut(run->local);
    } else {
        stop(run, reasons[which].end, reasons[which].words);
    }
}

static int64_t next_deadline(const struct run *run)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    for (int i = 0; i < DEADLINES; i++) {
        next_ns = run->due_ns[i] < next_ns ? run->due_ns[i] : next_ns;
    }
    return next_ns;
}

static void wait_for_end(struct run *run, struct pollfd *waits)
{
    struct pl_local *local = run->local;
    const size_t hosts = local->job->hosts;

    for (;;) {
        take_signals(run);
        reap(run);
        if (*local->unfed != '\0') {
            stop(run, PL_LOCAL_UNFED, "the feeder of a channel has failed");
        }
        if (is_over(local)) {
            return;
        }
        for (size_t i = 0; i < hosts; i++) {
            waits[i] = (struct pollfd){.fd = local->hosts[i].output_fd, .events = POLLIN};
        }
        waits[hosts] = (struct pollfd){.fd = local->signals.fd, .events = POLLIN};
        waits[hosts + 1] = (struct pollfd){.fd = local->reasons_fd, .events = POLLIN};
        poll(waits, hosts + 2, pl_deadline_poll_ms(next_deadline(run)));
        for (size_t i = 0; i < hosts; i++) {
            if (waits[i].fd >= 0 && waits[i].revents != 0) {
                read_output(local, &local->hosts[i]);
            }
        }
        if (waits[hosts + 1].revents != 0) {
            pl_local_channels_read_reasons(local);
        }
        for (int i = 0; i < DEADLINES; i++) {
            if (pl_deadline_passed(run->due_ns[i])) {
                meet(run, (enum deadline)i);
            }
        }
    }
}

/* Ends the feeders, which remove their FIFOs, and all that may still run. */
static void end_all(struct pl_local *local)
{
    const int64_t deadline_ns = pl_deadline_after_ns(FEED_NS);
    int status;
    pid_t ended;

    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].pid > 0) {
            kill(local->hosts[i].pid, SIGKILL);
        }
    }
    for (size_t i = 0; i < local->feed_count; i++) {
        kill(local->feeds[i], SIGTERM);
    }
    pl_local_network_close(local);
    while ((ended = waitpid(-1, &status, WNOHANG)) >= 0 || errno == EINTR) {
        if (ended == 0) {
            if (pl_deadline_passed(deadline_ns)) {
                pl_process_kill_children(NULL, 0, PL_PROCESS_SPARE_NOBODY);
            }
            pl_clock_nap(NAP_NS, PL_DEADLINE_NEVER);
        }
    }
    for (size_t i = 0; i < local->job->hosts; i++) {
        local->hosts[i].pid = 0;
        pl_file_close_at(&local->hosts[i].output_fd);
    }
    local->feed_count = 0;
}

/* Makes the words for the first process of each host: the image's entry point and its arguments, as in containers. */
static enum pl_status make_words(const struct pl_local *local, struct pl_strv *words, struct pl_error *reterr)
{
    const struct pl_local_job *job = local->job;
    PL_AUTO_FREE char *first = NULL;

    pl_strv_add_all(words, &job->entrypoint);
    if (job->entrypoint.count == 0) {
        pl_strv_add(words, local->paceline);
        if (job->arguments.count == 0) {
            pl_strv_add(words, "train");
        } else if (strcmp(job->arguments.items[0], "train") != 0 && strcmp(job->arguments.items[0], "--") != 0) {
            pl_strv_add(words, "--");
        }
    }
    pl_strv_add_all(words, &job->arguments);
    PL_TRY(pl_strv_check(words, reterr));
    if (local->kind != PL_LOCAL_CONTAINERS) { /* their program is the image's; execve() wants a path */
        PL_TRY(pl_file_find_program(words->items[0], pl_environment_get(local->environment, "PATH"), &first, reterr));
        pl_strv_set(words, 0, first);
    }
    return pl_strv_check(words, reterr);
}

static enum pl_status start_all(struct pl_local *local, const char *const *words, struct pl_error *reterr)
{
    if (local->kind == PL_LOCAL_NAMESPACES && local->job->hosts > 1) {
        PL_TRY(pl_local_network_open(local, reterr));
    }
    PL_TRY(pl_local_channels_feed(local, reterr));
    for (size_t i = 0; i < local->job->hosts; i++) {
        PL_TRY(pl_local_host_start(local, i, words, reterr));
    }
    return PL_OK;
}

static int64_t after(uint64_t ns)
{
    return ns > 0 ? pl_deadline_after_ns((int64_t)ns) : PL_DEADLINE_NEVER;
}

enum pl_status pl_local_run(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pollfd *waits = pl_memory_new(local->job->hosts + 2, sizeof(*waits), reterr);
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    struct run run = {.local = local};
    enum pl_status status;

    PL_TRY(waits ? PL_OK : PL_MEMORY);
    if (pl_local_stops(local) > 0) {
        return pl_error_set(reterr, PL_CANCELLED, "stopped before the program began");
    }
    PL_TRY(make_words(local, &words, reterr));
    local->end = PL_LOCAL_RUNS;
    local->run_ns = local->run_ns > 0 ? local->run_ns : pl_clock_now_ns(); /* with --spot: the time of the first run */
    status = start_all(local, (const char *const *)words.items, reterr);
    run.due_ns[KILL] = run.due_ns[OTHERS] = PL_DEADLINE_NEVER;
    run.due_ns[STOP] = after(local->stop_ns);
    run.due_ns[SPOT] = after(local->spot_ns);
    run.due_ns[LIMIT] = after(local->job->max_run_s * (uint64_t)PL_NS_PER_S);
    run.due_ns[LOSE] = after(local->lose.after_ns);
    run.due_ns[CUT] = after(local->cut.after_ns);
    if (status == PL_OK) {
        wait_for_end(&run, waits);
    }
    if (local->end == PL_LOCAL_RUNS) {
        local->end = PL_LOCAL_ENDS;
    }
    local->ended_ns = pl_clock_now_ns();
    end_all(local);
    return status;
}

int pl_local_run_code(const struct pl_local *local, const struct pl_local_host **ret_host)
{
    *ret_host = NULL;
    for (size_t i = 0; i < local->job->hosts; i++) {
        const struct pl_local_host *host = &local->hosts[i];

        /* The other hosts know why the job failed; a host that was switched off does not. */
        if (host->code != 0 && (!*ret_host || ((*ret_host)->lost && !host->lost))) {
            *ret_host = host;
        }
    }
    return *ret_host ? (*ret_host)->code : local->end == PL_LOCAL_UNFED ? EXIT_FAILURE : 0;
}
