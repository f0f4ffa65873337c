/* SPDX-License-Identifier: Apache-2.0 */
/* The shim: runs one program, forwards signals, copies its stderr and reports how it ended. */
#include "entrypoint/supervise/watch.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "entrypoint/supervise/failure.h"
#include "entrypoint/supervise/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COPY_BYTES = 16 * 1024,
    WRITE_BYTES = 4096, /* what a pipe that polls as writable takes without blocking */
};

#define LAST_OUTPUT_NS (5 * PL_NS_PER_S)
#define LEFTOVERS_NS (2 * PL_NS_PER_S)

/* The copy of stderr: read from the program, kept in the tail, written to our own stderr. */
struct copier {
    int fd; /* from the program; -1 at its end */
    size_t begin, end;
    char bytes[COPY_BYTES];
    bool broken; /* nobody reads our stderr: keep the tail only */
    struct pl_tail tail;
};

struct watcher {
    const struct pl_watch *watch;
    const struct pl_signals *signals;
    struct pl_link *link;
    struct copier copier;
    pid_t pid; /* of the program and its group */
    bool exited;
    int wait_status;
};

static void copier_read(struct copier *copier)
{
    ssize_t bytes = read(copier->fd, copier->bytes, sizeof(copier->bytes));

    if (bytes > 0) {
        copier->begin = 0;
        copier->end = (size_t)bytes;
        pl_tail_add(&copier->tail, copier->bytes, (size_t)bytes);
        if (copier->broken) {
            copier->end = 0;
        }
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
        pl_file_close_at(&copier->fd);
    }
}

static void copier_write(struct copier *copier)
{
    size_t part = copier->end - copier->begin < WRITE_BYTES ? copier->end - copier->begin : WRITE_BYTES;
    ssize_t written = write(STDERR_FILENO, copier->bytes + copier->begin, part);

    if (written > 0) {
        copier->begin += (size_t)written;
    } else if (written < 0 && errno != EAGAIN && errno != EINTR) {
        copier->broken = true;
        copier->begin = copier->end;
    }
}

/* Control-Z at the terminal, whose foreground is the program alone: no shell could ever continue it, so it goes on, as
 * a container's process 1 would. */
static void refuse_suspension(const struct watcher *watcher, int stop_number)
{
    if (stop_number == SIGTSTP && watcher->watch->setup.foreground && isatty(STDIN_FILENO)) {
        kill(-watcher->pid, SIGCONT);
    }
}

static void reap(struct watcher *watcher)
{
    int status;
    pid_t pid;

    do {
        pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid == watcher->pid && WIFSTOPPED(status)) {
            refuse_suspension(watcher, WSTOPSIG(status));
        } else if (pid == watcher->pid) {
            watcher->exited = true;
            watcher->wait_status = status;
        }
    } while (pid > 0 || (pid < 0 && errno == EINTR));
}

static void pass_signal(const struct watcher *watcher, int number)
{
    if (!watcher->exited) {
        kill(-watcher->pid, number);
        kill(-watcher->pid, SIGCONT); /* a stopped program could not handle it */
    }
}

static void take_signals(struct watcher *watcher)
{
    for (int number = pl_signals_next(watcher->signals); number != 0; number = pl_signals_next(watcher->signals)) {
        switch (number) {
        case SIGCHLD:
            reap(watcher);
            break;
        case SIGHUP:
        case SIGINT:
        case SIGQUIT:
        case SIGTERM:
        case SIGUSR1:
        case SIGUSR2:
            pass_signal(watcher, number);
            break;
        default:
            break; /* job control and the like are not for us */
        }
    }
}

static void take_frames(struct watcher *watcher)
{
    struct pl_frame frame;
    int64_t number;
    enum pl_status status = pl_link_read(watcher->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(watcher->link, &frame, NULL);
        if (status == PL_OK && frame.type == PL_FRAME_STOP &&
            pl_frame_number(&frame, 0, 1, 64, &number, NULL) == PL_OK) {
            pass_signal(watcher, (int)number);
        }
    }
    if (status != PL_END) {
        /* The supervisor is gone: no program may outlive it. */
        pass_signal(watcher, SIGKILL);
        pl_link_close(watcher->link);
    }
}

/* Wait for events once; after the program's end only for the rest of its output. */
static void turn(struct watcher *watcher, int64_t deadline_ns)
{
    struct copier *copier = &watcher->copier;
    bool to_write = copier->begin < copier->end;
    struct pollfd waits[4] = {
        {.fd = watcher->signals->fd, .events = POLLIN},
        {.fd = watcher->link->fd, .events = POLLIN},
        {.fd = to_write ? -1 : copier->fd, .events = POLLIN},
        {.fd = to_write ? STDERR_FILENO : -1, .events = POLLOUT},
    };

    if (watcher->link->fd >= 0) {
        waits[1].events = pl_link_events(watcher->link);
    }
    if (poll(waits, 4, pl_deadline_poll_ms(deadline_ns)) < 0) {
        return;
    }
    if (waits[0].revents != 0) {
        take_signals(watcher);
    }
    if (waits[1].revents != 0) {
        pl_link_flush(watcher->link);
        take_frames(watcher);
    }
    if (waits[2].revents != 0) {
        copier_read(copier);
    }
    if (waits[3].revents != 0) {
        copier_write(copier);
    }
}

static bool output_waits(const struct copier *copier)
{
    struct pollfd wait = {.fd = copier->fd, .events = POLLIN};

    return copier->begin < copier->end || (copier->fd >= 0 && poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN) != 0);
}

/* What the kernel counts for this container's groups, in version 2 and 1. */
struct group_counter {
    const char *files[2];
    const char *name; /* with the blank after it */
};

static const struct group_counter memory_kills = {
    {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}, "oom_kill "};
static const struct group_counter refused_forks = {{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"},
                                                   "max "};

/* 0 when it cannot be known. */
static int64_t count_of(const struct group_counter *counter)
{
    char text[1024];

    for (size_t i = 0; i < sizeof(counter->files) / sizeof(counter->files[0]); i++) {
        PL_AUTO_CLOSE int fd = open(counter->files[i], O_RDONLY | O_CLOEXEC);
        ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        const char *found;

        if (bytes > 0) {
            text[bytes] = '\0';
            found = strstr(text, counter->name);
            return found != NULL ? strtoll(found + strlen(counter->name), NULL, 10) : 0;
        }
    }
    return 0;
}

/* The words that name the program. */
static void describe_program(const char *const *argv, size_t words, char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < words && argv[i] != NULL; i++) {
        int length = snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? " " : "", argv[i]);

        if (length < 0 || (size_t)length >= text_bytes - used) {
            memcpy(text + text_bytes - 4, "...", 4);
            return;
        }
        used += (size_t)length;
    }
}

static enum pl_status start(struct watcher *watcher, struct pl_error *reterr)
{
    struct pl_process_setup setup = watcher->watch->setup;
    PL_AUTO_CLOSE int write_fd = -1;
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    watcher->copier.fd = pair[0];
    write_fd = pair[1];
    PL_TRY(pl_fd_set_nonblock(watcher->copier.fd, true, reterr));
    setup.stderr_fd = write_fd;
    setup.own_group = true;
    setup.signals = watcher->signals;
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &watcher->pid, reterr);
}

/* A rank's number is sent first: when the shim is killed nothing else would report it. */
static void say_hello(const struct pl_watch *watch, struct pl_link *link)
{
    char rank[16];

    snprintf(rank, sizeof(rank), "%d", watch->rank);
    if (PL_LINK_SEND(link, PL_FRAME_HELLO, NULL, "watch", watch->host, rank) != PL_OK) {
        pl_link_close(link);
    }
}

static void say_begun(struct watcher *watcher)
{
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", (int)watcher->pid);
    if (PL_LINK_SEND(watcher->link, PL_FRAME_BEGUN, NULL, pid) != PL_OK) {
        pl_link_close(watcher->link);
    }
}

/* The program's orphans became our children: kill them, or mpirun would wait for whichever holds its output open.
 * */
static void end_leftovers(struct watcher *watcher)
{
    int64_t deadline_ns = pl_deadline_after_ns(LEFTOVERS_NS);

    while (pl_process_signal_children(SIGKILL, NULL, 0) > 0 && !pl_deadline_passed(deadline_ns)) {
        reap(watcher);
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
}

static void watch_to_end(struct watcher *watcher)
{
    int64_t deadline_ns;

    while (!watcher->exited) {
        turn(watcher, PL_DEADLINE_NEVER);
    }
    end_leftovers(watcher);
    deadline_ns = pl_deadline_after_ns(LAST_OUTPUT_NS);
    while (output_waits(&watcher->copier) && !pl_deadline_passed(deadline_ns)) {
        turn(watcher, deadline_ns);
    }
}

/* A progress bar has no line end; a message about the failure must begin a new line all the same. */
static void end_line(struct watcher *watcher)
{
    struct copier *copier = &watcher->copier;
    int64_t deadline_ns = pl_deadline_after_ns(LAST_OUTPUT_NS);

    if (copier->broken || copier->begin < copier->end || !pl_tail_line_is_open(&copier->tail)) {
        return;
    }
    copier->bytes[0] = '\n';
    copier->begin = 0;
    copier->end = 1;
    while (copier->begin < copier->end && !pl_deadline_passed(deadline_ns)) {
        turn(watcher, deadline_ns);
    }
}

static void add_note(struct pl_ending *ending, const char *text)
{
    size_t used = strlen(ending->note);

    snprintf(ending->note + used, sizeof(ending->note) - used, "%s%s", used > 0 ? ": " : "", text);
}

void pl_watch_run(const struct pl_watch *watch, const struct pl_signals *signals, struct pl_link *link,
                  struct pl_ending *ret_ending)
{
    struct watcher watcher = {.watch = watch, .signals = signals, .link = link, .copier = {.fd = -1}};
    struct pl_ending *ending = ret_ending;
    struct pl_error error = PL_ERROR_NONE;
    int64_t kills_before = count_of(&memory_kills), refused_before = count_of(&refused_forks);

    *ending = PL_ENDING_NONE;
    ending->of = watch->of;
    ending->rank = watch->rank;
    snprintf(ending->host, sizeof(ending->host), "%s", watch->host);
    describe_program(watch->setup.argv, watch->program_words, ending->program, sizeof(ending->program));
    say_hello(watch, link);
    pl_process_adopt_orphans();
    if (start(&watcher, &error) == PL_OK) {
        say_begun(&watcher);
        watch_to_end(&watcher);
        ending->code = pl_process_status_code(watcher.wait_status, &ending->signalled);
        pl_tail_lines(&watcher.copier.tail, ending->tail, sizeof(ending->tail));
    } else {
        ending->not_started = true;
        ending->code = error.status == PL_NOT_FOUND ? 127 : 126; /* as shells have it */
        pl_error_text(&error, ending->note, sizeof(ending->note));
    }
    pl_file_close_at(&watcher.copier.fd);
    if (watch->setup.foreground && isatty(STDIN_FILENO)) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    if (!pl_ending_ok(ending)) {
        end_line(&watcher);
        /* The program need not be the one that was killed: its shell, say, ends with 137. */
        ending->out_of_memory = count_of(&memory_kills) > kills_before;
        if (count_of(&refused_forks) > refused_before) {
            add_note(ending, "the container's limit of processes and threads was reached");
        }
        if (watch->disks != NULL && ending->note[0] == '\0') {
            pl_failure_full_disks(watch->disks, ending->note, sizeof(ending->note));
        }
    }
    if (pl_ending_send(ending, link, NULL) == PL_OK) {
        pl_link_drain(link, pl_deadline_after_ns(PL_NS_PER_S));
    }
}

/* In the child of a fork: keep nothing of the supervisor's but the link and the signal descriptor. */
static void keep_only(int link_fd, int signals_fd)
{
    int low_fd = link_fd < signals_fd ? link_fd : signals_fd;
    int high_fd = link_fd < signals_fd ? signals_fd : link_fd;

    pl_process_close_range(STDERR_FILENO + 1, low_fd - 1);
    pl_process_close_range(low_fd + 1, high_fd - 1);
    pl_process_close_range(high_fd + 1, INT_MAX);
}

enum pl_status pl_watch_fork(const struct pl_watch *watch, const struct pl_signals *signals, pid_t *ret_pid,
                             int *ret_fd, struct pl_error *reterr)
{
    struct pl_link link = PL_LINK_NONE;
    struct pl_ending ending;
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    pid = fork();
    if (pid < 0) {
        enum pl_status status = pl_error_errno(reterr, "fork");

        close(pair[0]);
        close(pair[1]);
        return status;
    }
    if (pid == 0) {
        if (!watch->setup.foreground) {
            /* a signal to the job's whole group (a shell's, timeout's) is for the supervisor alone: mpirun would kill
             * its ranks */
            setpgid(0, 0);
        }
        keep_only(pair[1], signals->fd);
        if (pl_link_open(&link, pair[1], NULL) != PL_OK) {
            _exit(126);
        }
        pl_watch_run(watch, signals, &link, &ending);
        _exit(pl_ending_ok(&ending) ? 0 : 1);
    }
    close(pair[1]);
    *ret_pid = pid;
    *ret_fd = pair[0];
    return PL_OK;
}
