/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/shim.c, entrypoint/supervise/process.c. */
#include "entrypoint/supervise/shim.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "tests/support/refuse_call.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pl_signals signals;
static struct pl_link link_to_watch;
static pid_t watch_pid;
static int64_t most_stopped_ns;
static enum pl_shim_stdout stdout_as;
static char *plain_environment[] = {(char *)"PATH=/usr/bin:/bin", NULL};

static void start_kind(enum pl_process_kind kind, int rank, const char *const *argv, const char *cwd)
{
    struct pl_shim_options options = {
        .kind = kind, .rank = rank, .host = "algo-1", .program_words = 1, .setup = PL_PROCESS_SETUP_NONE};
    int fd;

    options.most_stopped_ns = most_stopped_ns;
    options.stdout_as = stdout_as;
    signals = PL_SIGNALS_NONE;
    ck_ok(pl_signals_open, &signals);
    options.setup.argv = argv;
    options.setup.environment = plain_environment;
    options.setup.cwd = cwd;
    ck_ok(pl_shim_fork, &options, &signals, &watch_pid, &fd);
    ck_ok(pl_link_open, &link_to_watch, fd);
}

static void start_rank(int rank, const char *const *argv, const char *cwd)
{
    start_kind(PL_PROCESS_RANK, rank, argv, cwd);
}

static void start_program(const char *const *argv, const char *cwd)
{
    start_kind(PL_PROCESS_PROGRAM, -1, argv, cwd);
}

static void start_watch(const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    start_program(argv, NULL);
}

/* Wait for the next frame of `type`, and skip others. */
static struct pl_frame await(enum pl_frame_type type)
{
    int64_t deadline_ns = pl_deadline_after_ns(20 * PL_NS_PER_S);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;

    for (;;) {
        struct pollfd wait = {.fd = link_to_watch.fd, .events = POLLIN};
        enum pl_status status = pl_link_next(&link_to_watch, &frame, &error);

        if (status == PL_OK && frame.type == type) {
            return frame;
        }
        ck_assert_msg(status == PL_OK || status == PL_END, "the shim ended without a %s frame",
                      pl_link_frame_name(type));
        ck_assert(!pl_deadline_passed(deadline_ns));
        if (status == PL_END) {
            ck_assert(poll(&wait, 1, pl_deadline_poll_ms(deadline_ns)) >= 0 || errno == EINTR);
            ck_ok(pl_link_read, &link_to_watch);
        }
    }
}

static struct pl_exit_report receive_exit_report(void)
{
    struct pl_frame frame = await(PL_FRAME_ENDED);
    struct pl_exit_report exit_report;

    ck_ok(pl_exit_report_receive, &frame, &exit_report);
    return exit_report;
}

static struct pl_exit_report await_exit_report(void)
{
    struct pl_exit_report exit_report = receive_exit_report();

    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
    return exit_report;
}

/* Wait until the program has made the file `name`; then send the supervisor's stop. */
static void stop_when(const struct scratch *scratch, const char *name)
{
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);
    char path[PATH_MAX];

    while (access(scratch_path(scratch, name, path), F_OK) != 0) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    ck_assert_int_eq(PL_LINK_SEND(&link_to_watch, PL_FRAME_SIGNAL, NULL, "15"), PL_OK);
}

TEST(the_program_gets_clean_signals)
{
    struct pl_exit_report exit_report;

    /* signals that this test inherited as ignored are not tested */
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL);
    }
    start_watch("grep -E 'SigBlk|SigIgn' /proc/self/status >&2");
    exit_report = await_exit_report();
    ck_has(exit_report.tail, "SigBlk:\t0000000000000000");
    ck_has(exit_report.tail, "SigIgn:\t0000000000000000");
}

TEST(an_inherited_ignored_sigchld_costs_no_exit_code)
{
    struct pl_exit_report exit_report;

    signal(SIGCHLD, SIG_IGN);
    start_watch("grep SigIgn /proc/self/status >&2; exit 7");
    exit_report = await_exit_report();
    ck_assert_int_eq(exit_report.code, 7);
    ck_assert_uint_eq(
        strtoull(strstr(exit_report.tail, "SigIgn:") + strlen("SigIgn:"), NULL, 16) & 1ULL << (SIGCHLD - 1), 0);
}

TEST(a_stop_reaches_the_whole_group)
{
    /* a copy of the shell that is not `sleep` yet would count as one that handles the signal */
    const char *const argv[] = {"sh", "-c",
                                "trap 'echo stopped >&2; exit 5' TERM; sleep 100 & "
                                "until read -r name </proc/$!/comm && [ \"$name\" = sleep ]; do :; done; "
                                ": >trapped; wait",
                                NULL};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_exit_report exit_report;

    start_program(argv, scratch.path);
    stop_when(&scratch, "trapped");
    exit_report = await_exit_report();
    ck_assert_int_eq(exit_report.code, 5);
    ck_assert_str_eq(exit_report.tail, "stopped\n");
}

/* Start a rank that runs `script`; when it has made the file `ready`, send the supervisor's stop. */
static void stop_rank(const char *script, const struct scratch *scratch, const char *catches)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct pl_frame frame;

    start_rank(7, argv, scratch->path);
    stop_when(scratch, "ready");
    frame = await(PL_FRAME_CATCHES);
    ck_assert_uint_eq(frame.count, 2);
    ck_assert_str_eq(frame.fields[0], "7");
    ck_assert_str_eq(frame.fields[1], catches);
}

static struct pl_exit_report await_report_of_waiting_shim(void)
{
    struct pl_exit_report exit_report = receive_exit_report();

    ck_assert_int_eq(waitpid(watch_pid, NULL, WNOHANG), 0);
    return exit_report;
}

static void await_suspended(const char *how)
{
    struct pl_frame frame = await(PL_FRAME_SUSPENDED);

    ck_assert_uint_eq(frame.count, 2);
    ck_assert_str_eq(frame.fields[0], "rank 7 on host algo-1");
    ck_assert_str_eq(frame.fields[1], how);
}

TEST(a_rank_that_is_stopped_by_a_signal_is_told_of_until_it_goes_on)
{
    static const char stopped[] = "was stopped by signal 19 (SIGSTOP)";
    const char *const argv[] = {"sh", "-c", "kill -STOP $$; sleep 100", NULL};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    pid_t pid;

    start_rank(7, argv, NULL);
    frame = await(PL_FRAME_BEGUN);
    pid = (pid_t)atoi(frame.fields[0]);
    await_suspended(stopped);
    kill(pid, SIGCONT);
    await_suspended("");
    kill(pid, SIGSTOP);
    await_suspended(stopped);
    kill(watch_pid, SIGTERM); /* as mpirun does: the end of the program by this signal is not reported */
    do {
        ck_ok(pl_link_read, &link_to_watch);
    } while (pl_link_next(&link_to_watch, &frame, &error) != PL_OK);
    ck_assert_int_eq(frame.type, PL_FRAME_ENDED);
}

TEST(a_program_that_stays_stopped_for_too_long_is_killed)
{
    const char *const argv[] = {"sh", "-c", "kill -STOP $$; sleep 100", NULL};
    struct pl_exit_report exit_report;

    most_stopped_ns = 20 * PL_NS_PER_MS;
    start_rank(7, argv, NULL);
    exit_report = await_exit_report();
    ck_assert(exit_report.signalled);
    ck_assert_int_eq(exit_report.code, SIGKILL);
    ck_assert_str_eq(exit_report.note, "it was stopped and did not go on within timeout_s");
}

TEST(a_rank_without_a_handler_gets_the_stop_with_the_release)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_exit_report exit_report;
    char path[PATH_MAX];

    /* it makes a file after the stop, which it could not do if it had died */
    stop_rank(": >ready; until [ -e stopped ]; do sleep 0.01; done; : >alive; exec sleep 100", &scratch, "0");
    close(open(scratch_path(&scratch, "stopped", path), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    scratch_path(&scratch, "alive", path);
    while (access(path, F_OK) != 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    ck_assert_int_eq(PL_LINK_SEND(&link_to_watch, PL_FRAME_RELEASE, NULL, ""), PL_OK);
    exit_report = receive_exit_report();
    ck_assert(exit_report.signalled);
    ck_assert_int_eq(exit_report.code, SIGTERM);
    ck_assert_str_eq(exit_report.note, "it has no handler for this signal");
    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
}

TEST(a_waiting_shim_ends_with_sigterm_and_with_its_supervisor)
{
    for (int link_ends = 0; link_ends < 2; link_ends++) {
        struct scratch scratch = scratch_new();

        stop_rank("trap 'exit 0' TERM; : >ready; while :; do sleep 0.01; done", &scratch, "1");
        ck_assert_int_eq(await_report_of_waiting_shim().code, 0);
        if (link_ends) {
            pl_link_close(&link_to_watch);
        } else {
            kill(watch_pid, SIGTERM);
        }
        ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
        pl_link_close(&link_to_watch);
        pl_signals_restore(&signals);
        close(signals.fd);
        scratch_done(&scratch);
    }
}

TEST(a_rank_that_ends_without_a_stop_is_not_held)
{
    const char *const argv[] = {"sh", "-c", "exit 3", NULL};

    start_rank(0, argv, NULL);
    ck_assert_int_eq(await_exit_report().code, 3);
}

TEST(a_signal_that_stops_nothing_holds_nobody)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    const char *const argv[] = {"sh", "-c", "trap 'exit 4' USR2; : >ready; while :; do sleep 0.01; done", NULL};

    start_rank(0, argv, scratch.path);
    scratch_path(&scratch, "ready", path);
    while (access(path, F_OK) != 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    ck_assert_int_eq(PL_LINK_SEND(&link_to_watch, PL_FRAME_SIGNAL, NULL, "12"), PL_OK);
    ck_assert_int_eq(await_exit_report().code, 4); /* the function also waits for the end of the shim */
}

/* Make stderr a socket that keeps the shim's writes apart. Returns its other end. */
static int take_writes(void)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(dup2(pair[1], STDERR_FILENO), STDERR_FILENO);
    close(pair[1]);
    return pair[0];
}

/* Copy the next write of the shim to the caller's buffer of `bytes`, with a NUL after it. */
static size_t next_write(int writes_fd, char *text, size_t bytes)
{
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);
    ssize_t count;

    ck_assert_int_eq(pl_file_poll(writes_fd, POLLIN, deadline_ns), 1);
    count = recv(writes_fd, text, bytes - 1, 0);
    ck_assert_int_ge(count, 0);
    text[count] = '\0';
    return (size_t)count;
}

/* Start a program that does nothing. Returns a descriptor that writes to its stderr. */
static int start_silent(void)
{
    const char *const argv[] = {"sleep", "100", NULL};
    char path[64];
    int fd;

    start_program(argv, NULL);
    snprintf(path, sizeof(path), "/proc/%s/fd/2", await(PL_FRAME_BEGUN).fields[0]);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Write `text` and wait until the shim has read it. */
static void write_piece(int fd, const char *text)
{
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);
    int unread = 1;

    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    for (;;) {
        ck_assert_int_eq(ioctl(fd, FIONREAD, &unread), 0);
        if (unread == 0) {
            return;
        }
        ck_assert(!pl_deadline_passed(deadline_ns));
        pl_clock_nap(PL_NS_PER_MS / 10, deadline_ns);
    }
}

/* If this machine halts for longer than a line waits, the line is written in pieces: then the test is repeated. */
TEST(a_line_that_comes_in_pieces_is_written_as_one)
{
    int64_t deadline_ns = pl_deadline_after_ns(120 * PL_NS_PER_S);
    int writes_fd = take_writes();
    int stderr_fd = start_silent();
    char text[64], whole[64];
    bool as_one = false;

    while (!as_one) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        write_piece(stderr_fd, "a line ");
        write_piece(stderr_fd, "in ");
        write_piece(stderr_fd, "pieces\n");
        next_write(writes_fd, text, sizeof(text));
        as_one = strcmp(text, "a line in pieces\n") == 0;
        snprintf(whole, sizeof(whole), "%s", text);
        while (!strchr(whole, '\n')) {
            next_write(writes_fd, whole + strlen(whole), sizeof(whole) - strlen(whole));
        }
        ck_assert_str_eq(whole, "a line in pieces\n");
    }
    pl_link_close(&link_to_watch);
    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
}

/* It is stopped for longer than an unfinished line waits. */
TEST(a_line_of_a_program_that_is_stopped_within_it_is_written_as_one)
{
    int64_t stopped_end_ns;
    int writes_fd = take_writes();
    char text[256] = "";
    pid_t pid;

    start_watch("printf 'a line ' >&2; kill -STOP $$; echo 'in pieces' >&2; sleep 100");
    pid = (pid_t)atoi(await(PL_FRAME_BEGUN).fields[0]);
    ck_assert_str_ne(await(PL_FRAME_SUSPENDED).fields[1], "");
    stopped_end_ns = pl_deadline_after_ns(PL_NS_PER_S * 6 / 10);
    pl_clock_nap(PL_NS_PER_S * 6 / 10, stopped_end_ns);
    kill(pid, SIGCONT);
    while (!strstr(text, "pieces\n")) {
        next_write(writes_fd, text, sizeof(text));
        ck_assert(!strstr(text, "a line ") || strcmp(text, "a line in pieces\n") == 0);
    }
    ck_assert_str_eq(text, "a line in pieces\n");
    pl_link_close(&link_to_watch);
    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
}

TEST(a_whole_line_waits_for_nothing_and_an_unfinished_one_not_for_ever)
{
    int writes_fd = take_writes();
    int stderr_fd = start_silent();
    char text[64];

    write_piece(stderr_fd, "one\ntwo\n50%");
    next_write(writes_fd, text, sizeof(text));
    if (strcmp(text, "one\ntwo\n50%") != 0) { /* it is written as it is if this machine has halted for long */
        ck_assert_str_eq(text, "one\ntwo\n");
        next_write(writes_fd, text, sizeof(text));
        ck_assert_str_eq(text, "50%");
    }
    pl_link_close(&link_to_watch);
    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
}

/* The program writes 100 lines of 1 to 100 numbers, and a line without an end that is longer than every buffer. */
TEST(nothing_of_long_lines_and_of_the_last_is_lost)
{
    static char wanted[600000], found[sizeof(wanted) + 1], text[8192];
    int writes_fd = take_writes();
    size_t wanted_bytes = 0, found_bytes = 0;

    for (int line = 1; line <= 100; line++) {
        for (int number = 1; number <= line; number++) {
            wanted_bytes += (size_t)snprintf(wanted + wanted_bytes, sizeof(wanted) - wanted_bytes, "%d%s", number,
                                             number < line ? " " : "\n");
        }
    }
    for (int number = 1; number <= 70000; number++) {
        wanted_bytes += (size_t)snprintf(wanted + wanted_bytes, sizeof(wanted) - wanted_bytes, "%d ", number);
    }
    start_watch("exec awk 'BEGIN { for (line = 1; line <= 100; line++) for (number = 1; number <= line; number++) "
                "printf \"%d%s\", number, number < line ? \" \" : \"\\n\" > \"/dev/stderr\"; "
                "for (number = 1; number <= 70000; number++) printf \"%d \", number > \"/dev/stderr\" }'");
    while (found_bytes < wanted_bytes) {
        size_t bytes = next_write(writes_fd, text, sizeof(text));

        ck_assert_uint_gt(bytes, 0);
        ck_assert_uint_le(found_bytes + bytes, wanted_bytes);
        memcpy(found + found_bytes, text, bytes);
        found_bytes += bytes;
    }
    ck_assert(memcmp(found, wanted, wanted_bytes) == 0);
    ck_assert_int_eq(await_exit_report().code, 0);
    ck_assert_int_eq(recv(writes_fd, text, sizeof(text), MSG_DONTWAIT), -1);
}

TEST(what_a_killed_rank_has_written_is_in_the_log)
{
    const char *const argv[] = {"sh", "-c",
                                "if [ -t 1 ]; then echo terminal; else echo pipe; fi; printf half; kill -9 $$", NULL};
    char text[64];
    int pair[2];

    for (stdout_as = PL_SHIM_STDOUT_LINES; stdout_as <= PL_SHIM_STDOUT_MPIRUN; stdout_as++) {
        size_t length = 0;
        ssize_t bytes;

        ck_assert_int_eq(pipe(pair), 0);
        ck_assert_int_eq(dup2(pair[1], STDOUT_FILENO), STDOUT_FILENO);
        close(pair[1]);
        start_rank(0, argv, NULL);
        ck_assert_int_eq(dup2(STDERR_FILENO, STDOUT_FILENO), STDOUT_FILENO); /* the shim is the last writer */
        do {
            bytes = read(pair[0], text + length, sizeof(text) - 1 - length);
            ck_assert_int_ge(bytes, 0);
            length += (size_t)bytes;
        } while (bytes > 0);
        text[length] = '\0';
        ck_assert(await_exit_report().signalled);
        ck_assert_str_eq(text, stdout_as != PL_SHIM_STDOUT_MPIRUN ? "pipe\nhalf\n" : "terminal\nhalf\n");
        close(pair[0]);
        pl_link_close(&link_to_watch);
        pl_signals_restore(&signals);
        close(signals.fd);
    }
}

TEST(what_mpiruns_daemon_prints_is_no_output_of_the_job)
{
    static const enum pl_process_kind kinds[] = {PL_PROCESS_PROGRAM, PL_PROCESS_DAEMON};
    const char *const argv[] = {"sh", "-c", "echo a map; echo a fault >&2; exit 3", NULL};
    char text[64];
    int pair[2];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(kinds); i++) {
        struct pl_exit_report exit_report;
        ssize_t bytes;

        ck_assert_int_eq(pipe(pair), 0);
        ck_assert_int_eq(dup2(pair[1], STDOUT_FILENO), STDOUT_FILENO);
        close(pair[1]);
        start_kind(kinds[i], -1, argv, NULL);
        exit_report = await_exit_report();
        ck_assert_int_eq(exit_report.code, 3);
        ck_assert_str_eq(exit_report.tail, "a fault\n");
        ck_assert_int_eq(dup2(STDERR_FILENO, STDOUT_FILENO), STDOUT_FILENO); /* the last writer has ended */
        bytes = read(pair[0], text, sizeof(text) - 1);
        ck_assert_int_ge(bytes, 0);
        text[bytes] = '\0';
        ck_assert_str_eq(text, kinds[i] == PL_PROCESS_DAEMON ? "" : "a map\n");
        close(pair[0]);
        pl_link_close(&link_to_watch);
        pl_signals_restore(&signals);
        close(signals.fd);
    }
}

TEST(a_daemon_that_holds_stderr_delays_nothing)
{
    int64_t start_ns = pl_clock_now_ns();

    start_watch("sleep 30 >/dev/null & exit 0"); /* stdout belongs to the test, and meson reads it to its end */
    ck_assert_int_eq(await_exit_report().code, 0);
    ck_assert(pl_clock_now_ns() - start_ns < 20 * PL_NS_PER_S);
}

TEST(a_program_without_stderr_costs_no_time)
{
    struct pl_exit_report exit_report;
    struct pl_frame frame;
    struct rusage used;

    start_watch("exec 2>/dev/null; sleep 1; exit 6");
    frame = await(PL_FRAME_ENDED);
    ck_ok(pl_exit_report_receive, &frame, &exit_report);
    ck_assert_int_eq(wait4(watch_pid, NULL, 0, &used), watch_pid);
    ck_assert_int_eq(exit_report.code, 6);
    ck_assert_int_eq(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 0);
    ck_assert_int_lt(used.ru_utime.tv_usec + used.ru_stime.tv_usec, 600000); /* spinning takes the second */
}

TEST(the_program_dies_with_its_supervisor)
{
    pid_t program;

    start_watch("sleep 100");
    program = (pid_t)atoi(await(PL_FRAME_BEGUN).fields[0]);
    pl_link_close(&link_to_watch);
    ck_assert_int_eq(waitpid(watch_pid, NULL, 0), watch_pid);
    ck_assert(kill(program, 0) != 0 && errno == ESRCH);
}

TEST(a_system_that_lets_nobody_adopt_orphans_runs_programs)
{
    const uint32_t adopt = PR_SET_CHILD_SUBREAPER;

    refuse_call(SYS_prctl, &adopt);
    start_watch("exit 3");
    ck_assert_int_eq(await_exit_report().code, 3);
}

/* A path almost as long as the part of a script's first line that Linux reads. */
#define LONG_PART "/nonexistent/directory/of/fifty/characters/is/here"
#define LONG_PATH LONG_PART LONG_PART LONG_PART LONG_PART

TEST(an_interpreters_fault_is_told_from_the_programs)
{
    static const struct {
        const char *text, *told;
    } scripts[] = {
        {"#!/bin/sh\r\nexit 0\r\n",
         "'./program': its interpreter '/bin/sh\\r' cannot be started: the script's lines end in CR LF"},
        {"#! /nonexistent/sh -e\nexit 0\n", "its interpreter '/nonexistent/sh' cannot be started: No such file"},
        {"#!/etc/passwd\nexit 0\n", "its interpreter '/etc/passwd' cannot be started: Permission denied"},
        {"#!" LONG_PATH " -e\nexit 0\n", "its interpreter '" LONG_PATH "' cannot be started: No such file"},
        {"#! \nexit 0\n", "its interpreter '' cannot be started: Exec format error"},
        {"\177ELF and no more\n", "neither a program for this machine nor a script"},
        {"#!/bin/sh\nexit 0\n", "may not execute it: run `chmod +x` on it, or start it as `sh ./program`"}};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_exit_report exit_report;
    char path[PATH_MAX];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(scripts); i++) {
        scratch_write(&scratch, "program", scripts[i].text, strlen(scripts[i].text));
        ck_assert_int_eq(chmod(scratch_path(&scratch, "program", path), i + 1 < PL_ARRAY_ITEMS(scripts) ? 0755 : 0644),
                         0);
        start_program((const char *const[]){"./program", NULL}, scratch.path);
        exit_report = await_exit_report();
        ck_assert_msg(exit_report.not_started && strstr(exit_report.note, scripts[i].told), "%s", exit_report.note);
        pl_link_close(&link_to_watch);
        pl_signals_restore(&signals);
        ck_assert_int_eq(close(signals.fd), 0);
    }
}

TEST(a_pipe_in_the_programs_place_is_refused_without_waiting_for_its_writer)
{
    const char *const argv[] = {"./program", NULL};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_exit_report exit_report;
    char path[PATH_MAX];

    ck_assert_int_eq(mkfifo(scratch_path(&scratch, "program", path), 0755), 0);
    start_program(argv, scratch.path);
    exit_report = await_exit_report();
    ck_assert(exit_report.not_started);
    ck_assert_int_eq(exit_report.code, 126);
}

/* The program itself needs descriptors too: `true` needs one for its libraries. */
TEST(few_descriptors_are_enough_or_the_exit_report_says_so)
{
    const char *const argv[] = {"true", NULL};
    struct pl_shim_options options = {
        .kind = PL_PROCESS_PROGRAM, .rank = -1, .host = "algo-1", .program_words = 1, .setup = PL_PROCESS_SETUP_NONE};
    struct pl_error error = PL_ERROR_NONE;
    struct rlimit limit;
    rlim_t before;
    bool ran = false;

    signals = PL_SIGNALS_NONE;
    ck_ok(pl_signals_open, &signals);
    options.setup.argv = argv;
    options.setup.environment = plain_environment;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    before = limit.rlim_cur;
    for (limit.rlim_cur = 4; !ran; limit.rlim_cur++) {
        struct pl_exit_report exit_report;
        int fd;

        ck_assert_uint_lt(limit.rlim_cur, 64);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (pl_shim_fork(&options, &signals, &watch_pid, &fd, &error) != PL_OK) {
            ck_assert_int_eq(error.code, EMFILE);
            continue;
        }
        ck_ok(pl_link_open, &link_to_watch, fd);
        exit_report = await_exit_report();
        ran = pl_exit_report_ok(&exit_report);
        ck_assert_msg(ran || strstr(exit_report.note, "Too many open files"), "'%s'", exit_report.note);
        pl_link_close(&link_to_watch);
    }
    limit.rlim_cur = before;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* What the shim's process has read, in memory that it shares with this one. */
struct shared {
    size_t length;
    char bytes[1 << 16];
};

static void read_bytes(void *context, int fd, const char *bytes, size_t count)
{
    struct shared *shared = context;

    if ((fd == STDOUT_FILENO || fd == STDERR_FILENO) && shared->length + count < sizeof(shared->bytes)) {
        memcpy(shared->bytes + shared->length, bytes, count);
        shared->length += count;
    }
}

/* Both outputs of a program that is read go to a file instead of this test's own. */
TEST(lines_of_a_program_that_is_read_have_its_tag)
{
    const char *const argv[] = {"sh", "-c",
                                "printf 'epoch=3 a'; printf 'cc=0.5\\nsecond\\n\\n'; echo word >&2; "
                                "head -c 9000 /dev/zero | tr '\\0' x; echo; printf 'acc=0.25 and no end'",
                                NULL};
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pl_shim_options options = {.kind = PL_PROCESS_PROGRAM,
                                      .rank = -1,
                                      .host = "algo-1",
                                      .program_words = 1,
                                      .setup = PL_PROCESS_SETUP_NONE,
                                      .read = read_bytes,
                                      .context = shared,
                                      .tag = "[trial 12] "};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_FREE char *text = NULL, *err_text = NULL;
    int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO), fd;
    char path[PATH_MAX], err_path[PATH_MAX];

    signals = PL_SIGNALS_NONE;
    ck_ok(pl_signals_open, &signals);
    options.setup.argv = argv;
    options.setup.environment = plain_environment;
    ck_assert_int_ge(dup2(creat(scratch_path(&scratch, "out", path), 0600), STDOUT_FILENO), 0);
    ck_assert_int_ge(dup2(creat(scratch_path(&scratch, "err", err_path), 0600), STDERR_FILENO), 0);
    ck_assert(shared != MAP_FAILED);
    ck_ok(pl_shim_fork, &options, &signals, &watch_pid, &fd);
    ck_assert_int_ge(dup2(saved_out, STDOUT_FILENO), 0);
    ck_assert_int_ge(dup2(saved_err, STDERR_FILENO), 0);
    ck_ok(pl_link_open, &link_to_watch, fd);
    ck_assert(pl_exit_report_ok(&(struct pl_exit_report){.code = await_exit_report().code}));
    ck_has(shared->bytes, "epoch=3 acc=0.5\nsecond\n");
    ck_has(shared->bytes, "acc=0.25 and no end");
    ck_has(shared->bytes, "word\n");
    munmap(shared, sizeof(*shared));
    ck_ok(pl_file_read, path, 1 << 20, &text, NULL);
    ck_has(text, "[trial 12] epoch=3 acc=0.5\n[trial 12] second\n[trial 12] \n");
    ck_has(text, "[trial 12] acc=0.25 and no end\n");
    ck_assert_uint_eq(strlen(text),
                      5 * strlen("[trial 12] ") + strlen("epoch=3 acc=0.5\nsecond\n\n\nacc=0.25 and no end\n") + 9000);
    ck_ok(pl_file_read, err_path, 1 << 20, &err_text, NULL);
    ck_assert_str_eq(err_text, "[trial 12] word\n");
}

UNIT_MAIN("entrypoint/shim")
