/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a shell or a command for a session, with the session's own descriptors, which are a terminal if the client has
 * one. When the session or the client ends, the command gets SIGHUP.
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
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time from SIGHUP to SIGKILL when the client is gone. */
#define HANGUP_NS (2 * PL_NS_PER_S)

enum { EXIT_NOT_RUN = 126, EXIT_NOT_FOUND = 127, SIGNAL_EXIT = 128 };

struct command {
    struct pl_strv words; /* empty for the user's shell */
    struct pl_environment *environment;
    const char *const *argv;
    char *path; /* path of the program */
    char *cwd;
    int signal_fd;
    pid_t pid;
    bool ended;
    int code; /* exit code once it has ended */
};

static void command_done(struct command *command)
{
    pl_strv_done(&command->words);
    pl_environment_free(command->environment);
    free(command->path);
    free(command->cwd);
    pl_file_close_at(&command->signal_fd);
}

/* Returns the user's shell: from the container's environment, else from /etc/passwd. */
static const char *user_shell(const struct pl_environment *environment)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *shell = user && *user->pw_shell != '\0' ? user->pw_shell : "/bin/sh";

    return pl_environment_get_or(environment, "SHELL", shell);
}

static enum pl_status prepare(struct command *command, const char *run_dir, const char *term, const char **shell_argv,
                              struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text cwd = PL_TEXT_NONE;

    PL_TRY(pl_rundir_new_environment(run_dir, &command->environment, reterr));
    if (term) {
        PL_TRY(pl_environment_set(command->environment, "TERM", term, reterr));
    }
    /* the directory of the job's program */
    pl_text_append(&cwd, pl_environment_get_or(command->environment, "SM_SOURCE_DIR", ""));
    if (cwd.length == 0) {
        pl_text_printf(&cwd, "%s/code", pl_job_base_dir(command->environment));
    }
    PL_TRY(pl_text_take(&cwd, &command->cwd, reterr));
    shell_argv[0] = user_shell(command->environment);
    command->argv = command->words.count > 0 ? (const char *const *)command->words.items : shell_argv;
    return pl_file_find_program(command->argv[0], pl_environment_get(command->environment, "PATH"), &command->path,
                                reterr);
}

/* Opens a descriptor for signals. Signals that a terminal's keys send to the foreground are for the command only. */
static enum pl_status open_signals(int *ret_fd, struct pl_error *reterr)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* if SIGCHLD were ignored, there would be no exit code */
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return pl_error_errno(reterr, "block signals");
    }
    *ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *ret_fd >= 0 ? PL_OK : pl_error_errno(reterr, "wait for signals");
}

/* Runs the program in the child, whose descriptors are in place. */
static _Noreturn void run_program(const struct command *command)
{
    sigset_t none;

    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(command->cwd) == 0 || chdir("/") == 0) {
        execve(command->path, (char *const *)command->argv, pl_environment_strings(command->environment));
    }
    dprintf(STDERR_FILENO, "paceline shell: error: run '%s': %s\n", command->path, strerror(errno));
    _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN);
}

/* Takes the signals that have arrived; the command may have ended. False if this process must end. */
static bool take_signals(struct command *command)
{
    struct signalfd_siginfo info;
    bool stays = true;
    int status;

    while (read(command->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        stays = stays && info.ssi_signo != SIGTERM && info.ssi_signo != SIGHUP;
    }
    if (!command->ended && waitpid(command->pid, &status, WNOHANG) == command->pid) {
        command->ended = true;
        command->code = WIFEXITED(status) ? WEXITSTATUS(status) : SIGNAL_EXIT + WTERMSIG(status);
    }
    return stays;
}

/* Waits for the command, which has got SIGHUP at the session's end; then kills its process group. */
static void end_command(struct command *command)
{
    int64_t deadline_ns = pl_deadline_after_ns(HANGUP_NS);

    while (!command->ended && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = command->signal_fd, .events = POLLIN};

        if (poll(&wait, 1, pl_deadline_poll_ms(deadline_ns)) < 0 && errno != EINTR) {
            break;
        }
        take_signals(command);
    }
    if (!command->ended) {
        kill(-command->pid, SIGKILL);
        kill(command->pid, SIGKILL); /* in case it has no process group yet */
        waitpid(command->pid, NULL, 0);
        command->ended = true;
        command->code = SIGNAL_EXIT + SIGKILL;
    }
}

/*
 * Runs the command. On a terminal it stays in this process's group, which is in the foreground. In a group of its own,
 * which would not be orphaned, Ctrl-Z would stop it, and nobody could continue it.
 */
static enum pl_status run_command(struct command *command, bool has_terminal, struct pl_error *reterr)
{
    command->pid = fork();
    if (command->pid < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (command->pid == 0) {
        if (!has_terminal) {
            setpgid(0, 0);
        }
        run_program(command);
    }
    if (!has_terminal) {
        setpgid(command->pid, command->pid);
    }
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
        kill(has_terminal ? command->pid : -command->pid, SIGHUP);
    }
    end_command(command);
    return PL_OK;
}

enum pl_status pl_serve_shell(const char *run_dir, const struct pl_environment *environment, int *ret_code,
                              struct pl_error *reterr)
{
    __attribute__((cleanup(command_done))) struct command command = {.words = PL_STRV_NONE, .signal_fd = -1};
    const bool has_terminal = isatty(STDIN_FILENO);
    const char *term = has_terminal ? pl_environment_get_or(environment, "TERM", "dumb") : NULL;
    const char *shell_argv[2] = {NULL, NULL};
    enum pl_status status;

    PL_TRY(pl_shell_request_parse(pl_environment_get_or(environment, PL_RELAY_REQUEST_VARIABLE, ""), &command.words,
                                  reterr));
    status = prepare(&command, run_dir, term, shell_argv, reterr);
    if (status == PL_NOT_FOUND && command.argv) {
        *ret_code = EXIT_NOT_FOUND; /* the caller reports the error */
        return status;
    }
    PL_TRY(status);
    PL_TRY(open_signals(&command.signal_fd, reterr));
    PL_TRY(run_command(&command, has_terminal, reterr));
    *ret_code = command.code;
    return PL_OK;
}
