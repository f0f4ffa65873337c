/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `paceline shell`: runs a shell, or one command, on another host of the job that runs on this host. ssh uses the
 * terminal and makes it raw. This process waits for ssh, and restores the terminal however ssh ends.
 *
 * paceline-shell --serve DIRECTORY is the far side; `paceline relay` executes it.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/verbs.h"
#include "programs/shell/request.h"
#include "programs/shell/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* Time from SIGTERM to SIGKILL for ssh, if this process must end. */
#define SSH_END_NS (5 * PL_NS_PER_S)

enum { SSH_FAILED = 255, SIGNAL_EXIT = 128 };

struct terminal {
    bool is_saved;
    struct termios before;
    int flags[3]; /* flags of the standard descriptors, which a killed ssh leaves non-blocking */
};

/* The run directory and the hosts of the job that runs here. */
struct place {
    char run_dir[PL_RUNDIR_PATH_BYTES];
    struct pl_sshd sshd;
    char *current_host;
    struct pl_strv hosts;
};

static void place_done(struct place *place)
{
    pl_sshd_close(&place->sshd);
    free(place->current_host);
    pl_strv_done(&place->hosts);
}

static enum pl_status refuse_host(const struct place *place, const char *host, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text others = PL_TEXT_NONE;

    for (size_t i = 1; i < place->hosts.count; i++) {
        pl_text_printf(&others, "%s%s", i > 1 ? ", " : "", place->hosts.items[i]);
    }
    return pl_error_set(reterr, PL_INVALID, "'%.100s' is %s: expected one of %.300s", host,
                        strcmp(host, place->current_host) == 0 ? "this host" : "not a host of this job",
                        pl_text_string(&others));
}

static enum pl_status find_host(struct place *place, const struct pl_environment *environment, const char *host,
                                struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(pl_rundir_find(environment, place->run_dir, reterr));
    status = pl_sshd_load_hosts(place->run_dir, &place->sshd, &place->current_host, &place->hosts, reterr);
    if (status == PL_NOT_FOUND) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "the job on this host has no link to other hosts: expected a started job on several hosts, "
                            "without PACELINE_LINK=0");
    }
    PL_TRY(status);
    if (strcmp(place->hosts.items[0], place->current_host) != 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "this host, %.100s, cannot reach the others: expected the job's master, %.100s",
                            place->current_host, place->hosts.items[0]);
    }
    return pl_strv_find(&place->hosts, host) > 0 ? PL_OK : refuse_host(place, host, reterr);
}

static enum pl_status ssh_words(const struct place *place, const char *host, const struct pl_strv *command,
                                bool has_terminal, struct pl_strv *argv, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv client = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_shell_request_print(command, &text, reterr));
    PL_TRY(pl_sshd_client(&place->sshd, place->run_dir, host, pl_text_string(&text), &client, reterr));
    /*
     * ssh closes the connection to a host that is silent for this long: the user cannot type meanwhile, and the job may
     * notice the loss later
     */
    PL_TRY(pl_strv_add_list(
        argv, (const char *const[]){"ssh", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", NULL},
        reterr));
    for (size_t i = 1; i < client.count; i++) {
        const bool is_about_terminal = strcmp(client.items[i], "-T") == 0;

        PL_TRY(pl_strv_add(argv, has_terminal && is_about_terminal ? "-tt" : client.items[i], reterr));
    }
    return PL_OK;
}

static void terminal_save(struct terminal *terminal, bool has_terminal)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        terminal->flags[fd] = fcntl(fd, F_GETFL);
    }
    terminal->is_saved = has_terminal && tcgetattr(STDIN_FILENO, &terminal->before) == 0;
}

/* Restores the terminal, also from the background, where changing the terminal would stop this process. */
static void terminal_restore(const struct terminal *terminal)
{
    sigset_t output;

    sigemptyset(&output);
    sigaddset(&output, SIGTTOU);
    sigprocmask(SIG_BLOCK, &output, NULL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (terminal->flags[fd] >= 0) {
            fcntl(fd, F_SETFL, terminal->flags[fd]);
        }
    }
    if (terminal->is_saved) {
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal->before);
    }
}

/* Blocks signals, so that no signal ends or stops this process while the terminal is raw. They are taken one by one. */
static void block_signals(sigset_t *ret_set, sigset_t *ret_before)
{
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE};

    sigemptyset(ret_set);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        sigaddset(ret_set, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, ret_set, ret_before);
    signal(SIGCHLD, SIG_DFL); /* if SIGCHLD were ignored, there would be no exit code */
}

static enum pl_status start_ssh(const struct pl_strv *argv, const struct pl_environment *environment,
                                const sigset_t *mask, pid_t *ret_pid, struct pl_error *reterr)
{
    posix_spawnattr_t attributes;
    int error = posix_spawnattr_init(&attributes);

    if (error == 0) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        posix_spawnattr_setsigmask(&attributes, mask);
        error =
            posix_spawnp(ret_pid, argv->items[0], NULL, &attributes, argv->items, pl_environment_strings(environment));
        posix_spawnattr_destroy(&attributes);
    }
    return error == 0 ? PL_OK : pl_error_raise(reterr, PL_SYSTEM, PL_DOMAIN_ERRNO, error, "start 'ssh'");
}

/* Returns the exit code of ssh if it has ended, else -1. */
static int ended_code(pid_t ssh)
{
    int status;

    if (waitpid(ssh, &status, WNOHANG) != ssh) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : SSH_FAILED;
}

/* Ends ssh because this process must end: ssh gets SIGTERM, and after some time SIGKILL. */
static void end_ssh(pid_t ssh, const sigset_t *set)
{
    int64_t deadline_ns = pl_deadline_after_ns(SSH_END_NS);

    kill(ssh, SIGTERM);
    while (ended_code(ssh) < 0) {
        int64_t left_ns = deadline_ns - pl_clock_now_ns();
        struct timespec wait = {.tv_sec = (time_t)(left_ns / PL_NS_PER_S), .tv_nsec = (long)(left_ns % PL_NS_PER_S)};

        if (left_ns <= 0) {
            kill(ssh, SIGKILL);
            waitpid(ssh, NULL, 0);
            return;
        }
        sigtimedwait(set, NULL, &wait);
    }
}

/* Waits for ssh without a deadline: a session lasts until the shell, the connection, the job or this process ends. */
static int wait_for_ssh(pid_t ssh, const sigset_t *set)
{
    int code = -1, number;

    while (code < 0) {
        number = sigwaitinfo(set, NULL);
        if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) {
            end_ssh(ssh, set);
            return SIGNAL_EXIT + number;
        }
        code = ended_code(ssh);
    }
    return code;
}

static enum pl_status run(const struct pl_environment *environment, char **words, size_t count, int *ret_code,
                          struct pl_error *reterr)
{
    __attribute__((cleanup(place_done))) struct place place = {.sshd = PL_SSHD_NONE, .hosts = PL_STRV_NONE};
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE, argv = PL_STRV_NONE;
    const bool has_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); /* both input and output are a terminal */
    struct terminal terminal = {.is_saved = false};
    enum pl_status status;
    sigset_t set, before;
    pid_t ssh;

    PL_TRY(find_host(&place, environment, words[0], reterr));
    for (size_t i = 1; i < count; i++) {
        PL_TRY(pl_strv_add(&command, words[i], reterr));
    }
    PL_TRY(ssh_words(&place, words[0], &command, has_terminal, &argv, reterr));
    block_signals(&set, &before);
    terminal_save(&terminal, has_terminal);
    status = start_ssh(&argv, environment, &before, &ssh, reterr);
    if (status == PL_OK) {
        *ret_code = wait_for_ssh(ssh, &set);
    }
    terminal_restore(&terminal);
    if (status == PL_OK && *ret_code == SSH_FAILED) {
        pl_log(PL_LOG_ERROR, "there is no connection to %s, or the command there exited with 255", words[0]);
    }
    return status;
}

/* Whether `word` asks for help: a command to run does not have such a name. */
static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_error error = PL_ERROR_NONE;
    const bool serves = argc == 3 && strcmp(argv[1], PL_RELAY_SHELL_OPTION) == 0;
    int code = SSH_FAILED;
    enum pl_status status;
    char text[1200];

    pl_log_open("paceline shell");
    if ((argc == 2 || argc == 3) && is_help(argv[argc - 1])) {
        pl_verbs_print_help("shell", stdout);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (argc < 2) {
        pl_verbs_print_help("shell", stderr);
        return PL_EXIT_USAGE;
    }
    if (!serves && (argv[1][0] == '-' || argv[1][0] == '\0')) {
        pl_log(PL_LOG_ERROR, "expected HOST, and a command where one is to be run, found '%s'; --help tells more",
               argv[1]);
        return PL_EXIT_USAGE;
    }
    status = pl_environment_new(&environment, &error);
    if (status == PL_OK) {
        status = serves ? pl_serve_shell(argv[2], environment, &code, &error)
                        : run(environment, argv + 1, (size_t)(argc - 1), &code, &error);
    }
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    return code;
}
