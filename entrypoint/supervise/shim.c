/* SPDX-License-Identifier: Apache-2.0 */
/* The shim: runs one program, forwards signals, copies its output, and reports how it ended. */
#include "entrypoint/supervise/shim.h"

#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/output/copier.h"
#include "entrypoint/output/tail.h"
#include "entrypoint/proc/delivery.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_OUTPUT_NS (5 * PL_NS_PER_S)
#define READERS_NS (2 * PL_NS_PER_S)
#define SHELLS_NS (PL_NS_PER_S / 10)
#define ORPHANS_NS (2 * PL_NS_PER_S)
#define LOOK_NS (PL_NS_PER_S / 10) /* time between two looks at which processes wait for a signal */

struct shim {
    const struct pl_shim_options *options;
    const struct pl_signals *signals;
    struct pl_link *link;
    struct pl_copier copier, stdout_copier; /* the second is used if stdout is not the shim's own */
    pid_t pid;                              /* the program, and its process group */
    bool exited;
    bool childless;           /* neither the program nor a process that it has left behind runs */
    bool suspended;           /* stopped by SIGSTOP or a similar signal */
    int64_t suspended_end_ns; /* time at which the program is killed if it is still stopped */
    bool suspended_too_long;
    bool sent_end; /* the program was sent a signal that ends programs */
    struct pl_delivery delivery;
    int64_t look_ns; /* time at which to look again which processes get the signal */
    int wait_status;
    /* only for ranks: */
    enum pl_stop_state state;
    int stop_number; /* 0, or the signal that the supervisor sent first while the program ran */
    bool catches;    /* a process of the program had a handler for that signal */
};

void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next)
{
    static const bool may_follow[][PL_STOP_RELEASED + 1] = {
        [PL_STOP_RUNNING] = {[PL_STOP_SAVING] = true, [PL_STOP_DEFERRED] = true},
        [PL_STOP_SAVING] = {[PL_STOP_SAVING] = true, [PL_STOP_HELD] = true, [PL_STOP_RELEASED] = true},
        [PL_STOP_HELD] = {[PL_STOP_SAVING] = true, [PL_STOP_RELEASED] = true},
        [PL_STOP_DEFERRED] = {[PL_STOP_RELEASED] = true},
        /* a host that connects later gets the stop too, and the master may repeat a decision that was made here */
        [PL_STOP_RELEASED] = {[PL_STOP_SAVING] = true, [PL_STOP_RELEASED] = true},
    };

    PL_BUG_IF(!may_follow[*state][next]);
    *state = next;
}

/* Handle Control-Z at a terminal whose foreground group is the program alone. No shell could ever continue it, so it is
 * continued at once: process 1 of a container ignores Control-Z as well. */
static bool continue_suspended(const struct shim *shim, int suspend_number)
{
    bool suspended = suspend_number == SIGTSTP && shim->options->setup.foreground && isatty(STDIN_FILENO);

    if (suspended) {
        kill(-shim->pid, SIGCONT);
    }
    return suspended;
}

/* Log that the program was stopped by signal `number`, because a stopped program looks as if it hangs; 0: that it
 * continues. */
static void log_suspended(struct shim *shim, int number)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    char signal_name[16], how[64] = "";

    if (number == 0 && (!shim->suspended || shim->sent_end)) {
        return; /* every such signal is followed by SIGCONT */
    }
    shim->suspended = number != 0;
    shim->suspended_end_ns =
        shim->options->most_stopped_ns > 0 ? pl_deadline_after_ns(shim->options->most_stopped_ns) : PL_DEADLINE_NEVER;
    pl_exit_report_name(shim->options->kind, shim->options->rank, shim->options->host, &name);
    if (number != 0) {
        snprintf(how, sizeof(how), "was stopped by signal %d (%s)", number, pl_signals_name(number, signal_name));
        pl_log(PL_LOG_WARNING, "%s %s: it does nothing until it gets SIGCONT", pl_text_string(&name), how);
    } else {
        pl_log(PL_LOG_INFO, "%s goes on", pl_text_string(&name));
    }
    if (PL_LINK_SEND(shim->link, PL_FRAME_SUSPENDED, NULL, pl_text_string(&name), how) != PL_OK) {
        pl_link_close(shim->link);
    }
}

static void reap(struct shim *shim)
{
    int status;
    pid_t pid;

    do {
        pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid == shim->pid && WIFSTOPPED(status)) {
            if (!continue_suspended(shim, WSTOPSIG(status))) {
                log_suspended(shim, WSTOPSIG(status));
            }
        } else if (pid == shim->pid && WIFCONTINUED(status)) {
            log_suspended(shim, 0);
        } else if (pid == shim->pid) {
            shim->exited = true;
            shim->wait_status = status;
        }
    } while (pid > 0 || (pid < 0 && errno == EINTR));
    shim->childless = pid < 0 && errno == ECHILD;
}

/* A program ends with its first process, but during a stop not before the processes that handle the signal. */
static bool has_ended(const struct shim *shim)
{
    return shim->exited && shim->delivery.handling == 0;
}

/* Whether the program starts ranks: mpirun, its daemon and torchrun end their ranks themselves. */
static bool starts_ranks(const struct shim *shim)
{
    const enum pl_process_kind kind = shim->options->kind;

    return kind == PL_PROCESS_LAUNCHER || kind == PL_PROCESS_DAEMON || kind == PL_PROCESS_TORCHRUN;
}

static void forward_signal(struct shim *shim, int number)
{
    const bool ends = number != SIGUSR1 && number != SIGUSR2 && number != SIGWINCH;
    struct pl_delivery once = {.waiting = 0};

    shim->sent_end = shim->sent_end || ends;
    if (has_ended(shim)) {
        return;
    }
    if (starts_ranks(shim)) {
        kill(shim->pid, number);
        kill(shim->pid, SIGCONT);
        return;
    }
    /* a signal that does not end programs is not kept for processes that must wait */
    pl_delivery_begin(ends ? &shim->delivery : &once, shim->pid, number);
    pl_delivery_done(&once);
    shim->look_ns = ends ? pl_deadline_after_ns(LOOK_NS) : shim->look_ns;
}

/* Whether to look again which processes get the signal: some wait for others, or the program ends with these. */
static bool must_look(const struct shim *shim)
{
    return shim->delivery.waiting > 0 || (shim->exited && shim->delivery.handling > 0);
}

static void handle_signals(struct shim *shim)
{
    for (int number = pl_signals_next(shim->signals); number != 0; number = pl_signals_next(shim->signals)) {
        switch (number) {
        case SIGCHLD:
            reap(shim);
            shim->look_ns = 0;
            break;
        case SIGHUP:
        case SIGINT:
        case SIGQUIT:
        case SIGTERM:
            forward_signal(shim, number);
            if (has_ended(shim) && shim->state != PL_STOP_RUNNING) {
                pl_stop_go(&shim->state, PL_STOP_RELEASED); /* mpirun ends its ranks itself */
            }
            break;
        case SIGUSR1:
        case SIGUSR2:
            forward_signal(shim, number);
            break;
        default:
            break; /* signals of job control and the like are not for us */
        }
    }
}

/*
 * Handle the first signal that is to stop a rank: report whether its program handles the signal, because this cannot be
 * seen later. A program without a handler would die of it, and its connections would close: under Open MPI 5 this ends
 * the ranks that save. It gets the signal with the release instead. A second stop and all other signals are forwarded.
 */
static void handle_stop(struct shim *shim, int number)
{
    const bool is_stop = number == SIGTERM || number == SIGINT;
    char rank[16];

    if (!is_stop || shim->options->kind != PL_PROCESS_RANK || shim->state != PL_STOP_RUNNING) {
        forward_signal(shim, number);
        return;
    }
    if (shim->exited) {
        pl_stop_go(&shim->state, PL_STOP_SAVING); /* other ranks may still save */
        return;
    }
    shim->stop_number = number;
    shim->catches = pl_delivery_begin_if_caught(&shim->delivery, number);
    if (shim->catches) {
        shim->sent_end = true;
        shim->look_ns = pl_deadline_after_ns(LOOK_NS);
    }
    snprintf(rank, sizeof(rank), "%d", shim->options->rank);
    if (PL_LINK_SEND(shim->link, PL_FRAME_CATCHES, NULL, rank, shim->catches ? "1" : "0") != PL_OK) {
        pl_link_close(shim->link);
    }
    pl_stop_go(&shim->state, shim->catches ? PL_STOP_SAVING : PL_STOP_DEFERRED);
}

static void handle_release(struct shim *shim)
{
    if (shim->state == PL_STOP_DEFERRED) {
        forward_signal(shim, shim->stop_number);
    }
    if (shim->state != PL_STOP_RUNNING) {
        pl_stop_go(&shim->state, PL_STOP_RELEASED);
    }
}

static void handle_frames(struct shim *shim)
{
    struct pl_frame frame;
    int64_t number;
    enum pl_status status = pl_link_read(shim->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(shim->link, &frame, NULL);
        if (status == PL_OK && frame.type == PL_FRAME_SIGNAL &&
            pl_link_frame_number(&frame, 0, 1, 64, &number, NULL) == PL_OK) {
            handle_stop(shim, (int)number);
        } else if (status == PL_OK && frame.type == PL_FRAME_RELEASE) {
            handle_release(shim);
        }
    }
    if (status != PL_END) {
        /* The supervisor has ended: no program may outlive it. */
        forward_signal(shim, SIGKILL);
        pl_link_close(shim->link);
    }
}

/* Wait for events once. After the program's end, wait only for its remaining output. */
static void poll_once(struct shim *shim, int64_t deadline_ns)
{
    struct pl_copier *copiers[] = {&shim->stdout_copier, &shim->copier};
    struct pollfd waits[2 + 2 * PL_ARRAY_ITEMS(copiers)] = {{.fd = shim->signals->fd, .events = POLLIN},
                                                            {.fd = shim->link->fd, .events = POLLIN}};

    if (shim->link->fd >= 0) {
        waits[1].events = shim->link->events;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(copiers); i++) {
        pl_copier_wait(copiers[i], waits + 2 + 2 * i, &deadline_ns);
    }
    if (poll(waits, PL_ARRAY_ITEMS(waits), pl_deadline_poll_ms(deadline_ns)) < 0) {
        return;
    }
    if (waits[0].revents != 0) {
        handle_signals(shim);
    }
    if (waits[1].revents != 0) {
        pl_link_flush(shim->link);
        handle_frames(shim);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(copiers); i++) {
        pl_copier_go_on(copiers[i], waits + 2 + 2 * i);
    }
}

/* Write the words that name the program to `text`. */
static void describe_program(const char *const *argv, size_t words, char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < words && argv[i]; i++) {
        int length = snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? " " : "", argv[i]);

        if (length < 0 || (size_t)length >= text_bytes - used) {
            memcpy(text + text_bytes - 4, "...", 4);
            return;
        }
        used += (size_t)length;
    }
}

/* See pl_copier's runnable_cpu_ns. */
static int64_t runnable_cpu_ns(void *shim_at)
{
    const struct shim *shim = shim_at;
    struct pl_proc_stat stat;

    if (pl_proc_read_stat(shim->pid, 0, &stat, NULL) != PL_OK || !strchr("RTt", stat.state)) {
        return -1;
    }
    return (int64_t)stat.cpu_ticks * (PL_NS_PER_S / sysconf(_SC_CLK_TCK));
}

/* Open the program's stdout. If `*ret_fd` stays -1, it is our own. */
static enum pl_status open_stdout(struct shim *shim, int *ret_fd, struct pl_error *reterr)
{
    if (shim->options->read) {
        return pl_copier_open_pipe(&shim->stdout_copier, ret_fd, reterr);
    }
    switch (shim->options->stdout_as) {
    case PL_SHIM_STDOUT_OWN:
        return PL_OK;
    case PL_SHIM_STDOUT_LINES:
    case PL_SHIM_STDOUT_ALONE:
        return shim->stdout_copier.by_line ? pl_copier_open_pipe(&shim->stdout_copier, ret_fd, reterr) : PL_OK;
    case PL_SHIM_STDOUT_MPIRUN:
        break;
    }
    return pl_copier_open_terminal(&shim->stdout_copier, ret_fd, reterr);
}

/* A terminal gets the program's output as it is, without a tag. */
static void set_tag(const struct shim *shim, struct pl_copier *copier)
{
    if (shim->options->tag && copier->by_line) {
        snprintf(copier->prefix, sizeof(copier->prefix), "%s", shim->options->tag);
        copier->keeps_prefix = true;
    }
}

static void open_outputs(struct shim *shim)
{
    const bool tagged = shim->options->stdout_as == PL_SHIM_STDOUT_MPIRUN;
    const bool shares_log = shim->options->stdout_as != PL_SHIM_STDOUT_OWN || shim->options->read;

    pl_copier_open_output(&shim->copier, STDERR_FILENO, tagged);
    pl_log_set_fd(shim->copier.out_fd);
    shim->copier.without_blocks = shim->options->without_blocks;
    shim->copier.by_line = shim->copier.by_line || shim->options->without_blocks;
    shim->copier.ends_line = shim->stdout_copier.ends_line = shares_log;
    shim->stdout_copier.is_alone = shim->options->stdout_as == PL_SHIM_STDOUT_ALONE;
    shim->copier.bars.interval_ns = shim->stdout_copier.bars.interval_ns = shim->options->progress_ns;
    shim->copier.reader = shim->stdout_copier.reader = shim;
    shim->copier.runnable_cpu_ns = shim->stdout_copier.runnable_cpu_ns = runnable_cpu_ns;
    if (shares_log) {
        pl_copier_open_output(&shim->stdout_copier, STDOUT_FILENO, tagged);
    }
    if (shim->options->read) {
        shim->copier.by_line = shim->stdout_copier.by_line = true;
        shim->copier.read_along = shim->stdout_copier.read_along = shim->options->read;
        shim->copier.context = shim->stdout_copier.context = shim->options->context;
    }
    set_tag(shim, &shim->copier);
    set_tag(shim, &shim->stdout_copier);
}

static enum pl_status start(struct shim *shim, struct pl_error *reterr)
{
    struct pl_process_setup setup = shim->options->setup;
    PL_AUTO_CLOSE int write_fd = -1, stdout_fd = -1, null_fd = -1;

    PL_TRY(pl_copier_open_pipe(&shim->copier, &write_fd, reterr));
    setup.stderr_fd = write_fd;
    PL_TRY(open_stdout(shim, &stdout_fd, reterr));
    setup.stdout_fd = stdout_fd >= 0 ? stdout_fd : setup.stdout_fd;
    if (shim->options->kind == PL_PROCESS_DAEMON) {
        /* A daemon prints only the map of the job to stdout, two lines for each rank, which mpirun prints too. The
         * output of the daemon's ranks goes to mpirun. */
        null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null_fd < 0) {
            return pl_error_errno(reterr, "open '/dev/null'");
        }
        setup.stdout_fd = null_fd;
    }
    setup.own_group = true;
    setup.signals = shim->signals;
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &shim->pid, reterr);
}

/* Send a rank's number first: if the shim is killed, nothing else reports it. ranks.c also needs the number of
 * connections that the host had accepted before the program began; "" if it is not known. */
static void send_hello(const struct pl_shim_options *options, struct pl_link *link)
{
    PL_AUTO_TEXT struct pl_text cpus = PL_TEXT_NONE;
    char rank[16], local_size[16], accepted[24] = "";
    uint64_t count;

    snprintf(rank, sizeof(rank), "%d", options->rank);
    snprintf(local_size, sizeof(local_size), "%d", options->local_size);
    pl_cpus_print_own(&cpus);
    if (pl_proc_accepted(&count, NULL) == PL_OK) {
        snprintf(accepted, sizeof(accepted), "%" PRIu64, count);
    }
    if (PL_LINK_SEND(link, PL_FRAME_HELLO, NULL, "shim", options->host, rank, local_size, pl_text_string(&cpus),
                     accepted) != PL_OK) {
        pl_link_close(link);
    }
}

static void send_begun(struct shim *shim)
{
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", (int)shim->pid);
    if (PL_LINK_SEND(shim->link, PL_FRAME_BEGUN, NULL, pid) != PL_OK) {
        pl_link_close(shim->link);
    }
}

/*
 * A process that reads from a pipe may still have to write the program's output, such as `tee` after `exec > >(tee
 * log.txt)`. It ends when no process writes to the pipe any more. A shell may be about to start one.
 */
static void wait_for_readers(struct shim *shim)
{
    const int64_t shells_end_ns = pl_deadline_after_ns(SHELLS_NS), readers_end_ns = pl_deadline_after_ns(READERS_NS);

    while (!shim->childless && !pl_deadline_passed(readers_end_ns)) {
        const bool spares_shells = !pl_deadline_passed(shells_end_ns);

        pl_process_kill_children(NULL, 0,
                                 spares_shells ? PL_PROCESS_SPARE_READERS_AND_SHELLS : PL_PROCESS_SPARE_READERS);
        /* the end of each child ends this wait */
        poll_once(shim, spares_shells ? shells_end_ns : readers_end_ns);
    }
}

/* The program's orphans are now our children. Kill them: otherwise mpirun waits for each one that holds the output
 * open. A launcher's orphans are shims, which must have no time to report ends that the launcher's end has caused. */
static void end_orphans(struct shim *shim)
{
    int64_t deadline_ns;

    if (shim->options->kind == PL_PROCESS_RANK || shim->options->kind == PL_PROCESS_PROGRAM) {
        wait_for_readers(shim);
    }
    deadline_ns = pl_deadline_after_ns(ORPHANS_NS);
    while (!shim->childless && pl_process_kill_children(NULL, 0, PL_PROCESS_SPARE_NOBODY) > 0 &&
           !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
        reap(shim);
    }
}

/* Write the remaining output. Another process may hold it open. */
static void end_output(struct shim *shim)
{
    const int64_t deadline_ns = pl_deadline_after_ns(LAST_OUTPUT_NS);
    struct pl_copier *const copiers[] = {&shim->copier, &shim->stdout_copier};

    while ((pl_copier_is_pending(&shim->copier) || pl_copier_is_pending(&shim->stdout_copier)) &&
           !pl_deadline_passed(deadline_ns)) {
        poll_once(shim, deadline_ns);
    }
    /* a message about the failure must begin a new line */
    shim->copier.ends_line = shim->copier.ends_line || shim->wait_status != 0;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(copiers); i++) {
        pl_copier_end(copiers[i]);
        while (pl_copier_has_to_write(copiers[i]) && !pl_deadline_passed(deadline_ns)) {
            poll_once(shim, deadline_ns);
        }
    }
}

static void run_to_end(struct shim *shim)
{
    int64_t deadline_ns;

    while (!has_ended(shim)) {
        deadline_ns = shim->suspended ? shim->suspended_end_ns : PL_DEADLINE_NEVER;
        poll_once(shim, must_look(shim) && shim->look_ns < deadline_ns ? shim->look_ns : deadline_ns);
        if (must_look(shim) && pl_deadline_passed(shim->look_ns)) {
            pl_delivery_go_on(&shim->delivery);
            shim->look_ns = pl_deadline_after_ns(LOOK_NS);
        }
        if (shim->suspended && pl_deadline_passed(shim->suspended_end_ns)) {
            shim->suspended_end_ns = PL_DEADLINE_NEVER;
            shim->suspended_too_long = true;
            forward_signal(shim, SIGKILL);
        }
    }
    pl_delivery_done(&shim->delivery);
    end_orphans(shim);
    end_output(shim);
}

/* Set the folders of the program's own files: its folder, once by its name and once without links in the path. */
static void set_folders(const char *cwd, struct pl_cause *cause, char real[static PATH_MAX])
{
    cause->folders[0] = cwd;
    if (realpath(cwd ? cwd : ".", real)) {
        cause->folders[1] = real;
    }
}

static void add_note(struct pl_exit_report *exit_report, const char *text)
{
    size_t used = strlen(exit_report->note);

    snprintf(exit_report->note + used, sizeof(exit_report->note) - used, "%s%s", used > 0 ? ": " : "", text);
}

/*
 * mpirun ends all ranks when one has failed or has left without MPI_Finalize(). During a stop another rank may be
 * saving, so the shim of an ended rank waits until it is released. The supervisor releases it, because it knows all
 * ranks and has the deadline.
 */
static void wait_for_release(struct shim *shim)
{
    while ((shim->state == PL_STOP_SAVING || shim->state == PL_STOP_DEFERRED) && shim->link->fd >= 0) {
        poll_once(shim, PL_DEADLINE_NEVER);
    }
}

void pl_shim_run(const struct pl_shim_options *options, const struct pl_signals *signals, struct pl_link *link,
                 struct pl_exit_report *ret_report)
{
    struct shim shim = {.options = options,
                        .signals = signals,
                        .link = link,
                        .copier = {.fd = -1, .keeps_tail = true, .tail.cause.lines = options->searched},
                        .stdout_copier = {.fd = -1}};
    struct pl_exit_report *exit_report = ret_report;
    struct pl_error error = PL_ERROR_NONE;
    int64_t kills_before = pl_process_memory_kills(), refused_before = pl_process_refused_forks();
    char folder[PATH_MAX];

    set_folders(options->setup.cwd, &shim.copier.tail.cause, folder);
    *exit_report = PL_EXIT_REPORT_NONE;
    exit_report->kind = options->kind;
    exit_report->rank = options->rank;
    snprintf(exit_report->host, sizeof(exit_report->host), "%s", options->host);
    describe_program(options->setup.argv, options->program_words, exit_report->program, sizeof(exit_report->program));
    send_hello(options, link);
    open_outputs(&shim);
    pl_process_adopt_orphans();
    if (start(&shim, &error) == PL_OK) {
        send_begun(&shim);
        run_to_end(&shim);
        exit_report->code = pl_process_status_code(shim.wait_status, &exit_report->signalled);
        pl_tail_lines(&shim.copier.tail, exit_report->tail, sizeof(exit_report->tail));
        pl_tail_cause(&shim.copier.tail, exit_report->cause);
        pl_tail_place(&shim.copier.tail, options->rank < 0, exit_report->place);
    } else {
        exit_report->not_started = true;
        exit_report->code = error.status == PL_NOT_FOUND ? 127 : 126; /* the exit codes of shells */
        pl_error_text(&error, exit_report->note, sizeof(exit_report->note));
    }
    pl_file_close_at(&shim.copier.fd); /* if the program has not started */
    pl_file_close_at(&shim.stdout_copier.fd);
    if (options->setup.foreground && isatty(STDIN_FILENO)) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    if (!pl_exit_report_ok(exit_report)) {
        /* The killed process may be another one: for example, a shell whose child was killed ends with 137. */
        exit_report->out_of_memory = pl_process_memory_kills() > kills_before;
        if (pl_process_refused_forks() > refused_before) {
            add_note(exit_report, "the container's limit of processes and threads was reached: raise it (docker run "
                                  "--pids-limit), or start fewer loader threads");
        }
        if (shim.stop_number != 0 && exit_report->signalled && exit_report->code == shim.stop_number && !shim.catches) {
            add_note(exit_report, "it has no handler for this signal");
        }
        if (shim.suspended_too_long) {
            add_note(exit_report, "it was stopped and did not go on within timeout_s");
        }
        if (shim.stop_number != 0 && exit_report->signalled && exit_report->code == SIGKILL) {
            add_note(exit_report, "it had not ended when it was asked to");
        }
        if (options->disks && exit_report->note[0] == '\0') {
            pl_failure_full_disks(options->disks, exit_report->note, sizeof(exit_report->note));
        }
    }
    if (pl_exit_report_send(exit_report, link, NULL) == PL_OK) {
        pl_link_drain(link, pl_deadline_after_ns(PL_NS_PER_S));
    }
    wait_for_release(&shim);
}

/* Arguments of the child of a fork. */
struct child {
    const struct pl_shim_options *options;
    const struct pl_signals *signals;
    int link_fd;
};

/* Close every descriptor of the supervisor except the link and the signals. */
static void close_others(int link_fd, int signals_fd)
{
    int low_fd = link_fd < signals_fd ? link_fd : signals_fd;
    int high_fd = link_fd < signals_fd ? signals_fd : link_fd;

    pl_process_close_range(STDERR_FILENO + 1, low_fd - 1);
    pl_process_close_range(low_fd + 1, high_fd - 1);
    pl_process_close_range(high_fd + 1, INT_MAX);
}

static int run_in_child(void *child_at)
{
    const struct child *child = child_at;
    struct pl_link link = PL_LINK_NONE;
    struct pl_exit_report exit_report;

    close_others(child->link_fd, child->signals->fd);
    if (pl_link_open(&link, child->link_fd, NULL) != PL_OK) {
        return 126;
    }
    pl_shim_run(child->options, child->signals, &link, &exit_report);
    return pl_exit_report_ok(&exit_report) ? 0 : 1;
}

enum pl_status pl_shim_fork_for(const struct pl_shim_options *options, const struct pl_signals *signals, int link_fd,
                                const int *fds, size_t fds_count, pid_t *ret_pid, struct pl_error *reterr)
{
    struct child child = {.options = options, .signals = signals, .link_fd = link_fd};
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    int *const wanted[] = {&setup.stdin_fd, &setup.stdout_fd, &setup.stderr_fd};

    for (size_t i = 0; i < fds_count; i++) {
        *wanted[i] = fds[i];
    }
    setup.argv = options->setup.argv;
    setup.run = run_in_child;
    setup.context = &child;
    /* A signal to the job's whole group (from a shell or timeout) is only for the supervisor: mpirun would kill its
     * ranks. */
    setup.own_group = !options->setup.foreground;
    return pl_process_spawn(&setup, ret_pid, reterr);
}

enum pl_status pl_shim_fork(const struct pl_shim_options *options, const struct pl_signals *signals, pid_t *ret_pid,
                            int *ret_fd, struct pl_error *reterr)
{
    enum pl_status status;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    status = pl_shim_fork_for(options, signals, pair[1], NULL, 0, ret_pid, reterr);
    close(pair[1]);
    if (status != PL_OK) {
        close(pair[0]);
        return status;
    }
    *ret_fd = pair[0];
    return PL_OK;
}
