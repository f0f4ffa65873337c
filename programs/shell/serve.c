/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a shell or a command for a session: with a pseudo terminal, between which and the session bytes are copied, or
 * with the session's own descriptors. The session's end, be it the client's, ends the command by SIGHUP.
 */
#include "programs/shell/serve.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/ssh/rundir.h"
#include "programs/shell/request.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* After its end: how long its last output may take to come out of the terminal and through the session. */
#define DRAIN_NS (5 * PL_NS_PER_S)
/* From SIGHUP to SIGKILL, when the client has gone. */
#define HANGUP_NS (2 * PL_NS_PER_S)

enum { EXIT_NOT_RUN = 126, EXIT_NOT_FOUND = 127, SIGNAL_EXIT = 128 };

/* One direction of the session. */
struct stream {
    int from, to;
    char bytes[16384];
    size_t filled, sent;
    bool ended;
};

struct command {
    const struct pl_shell_request *request;
    struct pl_environment *environment;
    const char *const *argv;
    char *path; /* of the program */
    char *cwd;
    int signal_fd;
    pid_t pid;
    bool ended;
    int code; /* when it has ended */
};

static void command_done(struct command *command)
{
    pl_environment_free(command->environment);
    free(command->path);
    free(command->cwd);
    pl_file_close_at(&command->signal_fd);
}

/* The shell of the user: as the container says, else as /etc/passwd does. */
static const char *user_shell(const struct pl_environment *environment)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *shell = user != NULL && *user->pw_shell != '\0' ? user->pw_shell : "/bin/sh";

    return pl_environment_get_or(environment, "SHELL", shell);
}

static enum pl_status prepare(struct command *command, const char *run_dir, const char **shell_argv,
                              struct pl_error *reterr)
{
    const struct pl_shell_request *request = command->request;
    const char *name;
    PL_AUTO_TEXT struct pl_text cwd = PL_TEXT_NONE;

    PL_TRY(pl_rundir_new_environment(run_dir, &command->environment, reterr));
    if (request->has_terminal) {
        PL_TRY(pl_environment_set(command->environment, "TERM", request->term, reterr));
    }
    /* as the job's program */
    pl_text_append(&cwd, pl_environment_get_or(command->environment, "SM_SOURCE_DIR", ""));
    if (cwd.length == 0) {
        pl_text_printf(&cwd, "%s/code", pl_job_base_dir(command->environment));
    }
    PL_TRY(pl_text_take(&cwd, &command->cwd, reterr));
    shell_argv[0] = user_shell(command->environment);
    command->argv = request->command.count > 0 ? (const char *const *)request->command.items : shell_argv;
    name = command->argv[0];
    return pl_file_find_program(name, pl_environment_get(command->environment, "PATH"), &command->path, reterr);
}

static enum pl_status open_signals(int *ret_fd, struct pl_error *reterr)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* where it was ignored, no exit code could be had */
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return pl_error_errno(reterr, "block signals");
    }
    *ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *ret_fd >= 0 ? PL_OK : pl_error_errno(reterr, "wait for signals");
}

/* In the child, with its descriptors in place. */
static _Noreturn void run_program(const struct command *command)
{
    sigset_t none;

    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(command->cwd) == 0 || chdir("/") == 0) {
        (void)execve(command->path, (char *const *)command->argv, pl_environment_strings(command->environment));
    }
    (void)dprintf(STDERR_FILENO, "paceline shell: error: run '%s': %s\n", command->path, strerror(errno));
    _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN);
}

/* Take the signals that have come: the command may have ended. False when this process is to end. */
static bool take_signals(struct command *command)
{
    struct signalfd_siginfo info;
    bool stays = true;
    int status;

    while (read(command->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        stays = stays && info.ssi_signo == SIGCHLD;
    }
    if (!command->ended && waitpid(command->pid, &status, WNOHANG) == command->pid) {
        command->ended = true;
        command->code = WIFEXITED(status) ? WEXITSTATUS(status) : SIGNAL_EXIT + WTERMSIG(status);
    }
    return stays;
}

/* The session is over and the command has got SIGHUP: wait for it, then kill its process group. */
static void end_command(struct command *command)
{
    int64_t deadline_ns = pl_deadline_after_ns(HANGUP_NS);

    while (!command->ended && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = command->signal_fd, .events = POLLIN};

        if (poll(&wait, 1, pl_deadline_poll_ms(deadline_ns)) < 0 && errno != EINTR) {
            break;
        }
        (void)take_signals(command);
    }
    if (!command->ended) {
        (void)kill(-command->pid, SIGKILL);
        (void)kill(command->pid, SIGKILL); /* should it have no group yet */
        (void)waitpid(command->pid, NULL, 0);
        command->ended = true;
        command->code = SIGNAL_EXIT + SIGKILL;
    }
}

static bool is_empty(const struct stream *stream)
{
    return stream->sent == stream->filled;
}

static void stream_read(struct stream *stream)
{
    ssize_t bytes;

    if (!is_empty(stream) || stream->ended) {
        return;
    }
    bytes = read(stream->from, stream->bytes, sizeof(stream->bytes));
    stream->sent = 0;
    stream->filled = bytes > 0 ? (size_t)bytes : 0;
    /* a terminal that nobody has open any more says EIO */
    stream->ended = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

/* False when the other side takes no more. */
static bool stream_write(struct stream *stream)
{
    while (!is_empty(stream)) {
        ssize_t bytes = write(stream->to, stream->bytes + stream->sent, stream->filled - stream->sent);

        if (bytes < 0 && errno != EINTR) {
            return errno == EAGAIN;
        }
        stream->sent += bytes > 0 ? (size_t)bytes : 0;
    }
    return true;
}

/* What the command has printed before its end. Something that it has started may keep the terminal open for ever. */
static void drain(struct stream *output)
{
    int64_t deadline_ns = pl_deadline_after_ns(DRAIN_NS);

    while (!(output->ended && is_empty(output)) && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = is_empty(output) ? output->from : output->to,
                              .events = is_empty(output) ? POLLIN : POLLOUT};

        if (poll(&wait, 1, pl_deadline_poll_ms(deadline_ns)) < 0 && errno != EINTR) {
            return;
        }
        stream_read(output);
        if (!stream_write(output)) {
            return;
        }
    }
}

/* Copy both ways until the command or the session ends: the user decides how long that takes, and the job's end. */
static void copy(struct command *command, struct stream *input, struct stream *output)
{
    while (!command->ended && !input->ended) {
        const short master_events =
            (short)((is_empty(output) && !output->ended ? POLLIN : 0) | (is_empty(input) ? 0 : POLLOUT));
        struct pollfd waits[] = {
            {.fd = command->signal_fd, .events = POLLIN},
            {.fd = is_empty(input) ? input->from : -1, .events = POLLIN},
            {.fd = master_events != 0 ? input->to : -1, .events = master_events},
            {.fd = output->to, .events = is_empty(output) ? 0 : POLLOUT},
        };

        if (poll(waits, PL_ARRAY_ITEMS(waits), -1) < 0 && errno != EINTR) {
            return;
        }
        if ((waits[0].revents != 0 && !take_signals(command)) ||
            (waits[3].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
            return;
        }
        if (waits[1].revents != 0) {
            stream_read(input);
        }
        if (waits[2].revents != 0) {
            stream_read(output);
        }
        if (!stream_write(input) || !stream_write(output)) {
            return;
        }
    }
}

static enum pl_status open_terminal(const struct pl_shell_request *request, int *ret_master_fd, int *ret_slave_fd,
                                    struct pl_error *reterr)
{
    struct winsize size = {.ws_row = (unsigned short)request->rows, .ws_col = (unsigned short)request->columns};
    char name[64];

    *ret_master_fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_master_fd < 0 || grantpt(*ret_master_fd) != 0 || unlockpt(*ret_master_fd) != 0 ||
        ptsname_r(*ret_master_fd, name, sizeof(name)) != 0) {
        return pl_error_errno(reterr, "make a pseudo terminal");
    }
    *ret_slave_fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_slave_fd < 0 || ioctl(*ret_slave_fd, TIOCSWINSZ, &size) != 0) {
        return pl_error_errno(reterr, "open the pseudo terminal '%s'", name);
    }
    return pl_file_set_nonblock(*ret_master_fd, true, reterr);
}

static enum pl_status run_in_terminal(struct command *command, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int master_fd = -1;
    PL_AUTO_CLOSE int slave_fd = -1;
    struct stream input = {.from = STDIN_FILENO}, output = {.to = STDOUT_FILENO};

    PL_TRY(open_terminal(command->request, &master_fd, &slave_fd, reterr));
    PL_TRY(pl_file_set_nonblock(STDOUT_FILENO, true, reterr));
    input.to = output.from = master_fd;
    command->pid = fork();
    if (command->pid < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (command->pid == 0) {
        (void)setsid();
        (void)ioctl(slave_fd, TIOCSCTTY, 0);
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
            (void)dup2(slave_fd, fd);
        }
        run_program(command);
    }
    pl_file_close_at(&slave_fd);
    copy(command, &input, &output);
    if (command->ended) {
        drain(&output);
    }
    pl_file_close_at(&master_fd); /* the terminal is gone: SIGHUP to the session in it */
    end_command(command);
    return PL_OK;
}

static enum pl_status run_plainly(struct command *command, struct pl_error *reterr)
{
    command->pid = fork();
    if (command->pid < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (command->pid == 0) {
        (void)setpgid(0, 0);
        run_program(command);
    }
    (void)setpgid(command->pid, command->pid);
    while (!command->ended) {
        struct pollfd waits[] = {{.fd = command->signal_fd, .events = POLLIN}, {.fd = STDOUT_FILENO, .events = 0}};

        if (poll(waits, PL_ARRAY_ITEMS(waits), -1) < 0 && errno != EINTR) {
            break;
        }
        if ((waits[0].revents != 0 && !take_signals(command)) || (!command->ended && waits[1].revents != 0)) {
            break;
        }
    }
    if (!command->ended) {
        (void)kill(-command->pid, SIGHUP);
    }
    end_command(command);
    return PL_OK;
}

enum pl_status pl_serve_shell(const char *run_dir, const struct pl_environment *environment, int *ret_code,
                              struct pl_error *reterr)
{
    PL_AUTO_SHELL_REQUEST struct pl_shell_request request = PL_SHELL_REQUEST_NONE;
    __attribute__((cleanup(command_done))) struct command command = {.request = &request, .signal_fd = -1};
    const char *shell_argv[2] = {NULL, NULL};
    enum pl_status status;

    PL_TRY(pl_shell_request_parse(pl_environment_get_or(environment, PL_RELAY_REQUEST_VARIABLE, ""), &request, reterr));
    status = prepare(&command, run_dir, shell_argv, reterr);
    if (status == PL_NOT_FOUND && command.argv != NULL) {
        *ret_code = EXIT_NOT_FOUND; /* the caller says why */
        return status;
    }
    PL_TRY(status);
    PL_TRY(open_signals(&command.signal_fd, reterr));
    PL_TRY(request.has_terminal ? run_in_terminal(&command, reterr) : run_plainly(&command, reterr));
    *ret_code = command.code;
    return PL_OK;
}
