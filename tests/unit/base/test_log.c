/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/log.c. */
#include "base/log.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Send stderr to a socket that keeps each write(2) apart. Returns the descriptor of its other end. */
static int capture(void)
{
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

/* Returns the next write, or "" if there was none. */
static const char *next_write(int fd)
{
    static char line[8192];
    ssize_t got = recv(fd, line, sizeof(line) - 1, MSG_DONTWAIT);

    line[got > 0 ? got : 0] = '\0';
    return line;
}

TEST(each_line_is_one_write)
{
    int fd = capture();

    pl_log(PL_LOG_INFO, "rank %d of %d", 1, 4);
    pl_log(PL_LOG_WARNING, "careful");
    pl_log(PL_LOG_ERROR, "broken");
    ck_assert_str_eq(next_write(fd), "paceline: rank 1 of 4\n");
    ck_assert_str_eq(next_write(fd), "paceline: warning: careful\n");
    ck_assert_str_eq(next_write(fd), "paceline: error: broken\n");
    ck_assert_str_eq(next_write(fd), "");
}

TEST(levels_below_are_dropped)
{
    int fd = capture();

    pl_log(PL_LOG_DEBUG, "hidden by default");
    pl_log_set_level(PL_LOG_DEBUG);
    pl_log(PL_LOG_DEBUG, "shown");
    pl_log_set_level(PL_LOG_ERROR);
    pl_log(PL_LOG_WARNING, "hidden");
    ck_assert_str_eq(next_write(fd), "paceline: debug: shown\n");
    ck_assert_str_eq(next_write(fd), "");
}

TEST(a_program_takes_its_level_from_the_environment)
{
    static const enum pl_log_level levels[] = {PL_LOG_DEBUG, PL_LOG_INFO, PL_LOG_WARNING, PL_LOG_ERROR};
    int fd = capture();

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        ck_assert_int_eq(setenv("PACELINE_LOG", pl_log_level_text(levels[i]), 1), 0);
        pl_log_open("paceline s3");
        ck_assert(pl_log_shows(levels[i]) && (i == 0 || !pl_log_shows(levels[i - 1])));
    }
    ck_assert_int_eq(setenv("PACELINE_LOG", "", 1), 0); /* as not set */
    pl_log_open("paceline s3");
    ck_assert(pl_log_shows(PL_LOG_INFO) && !pl_log_shows(PL_LOG_DEBUG));
    ck_assert_str_eq(next_write(fd), "");
    ck_assert_int_eq(setenv("PACELINE_LOG", "Debug", 1), 0);
    pl_log_open("paceline s3");
    ck_assert_str_eq(next_write(fd),
                     "paceline s3: warning: PACELINE_LOG is 'Debug': expected debug, info, warning or error\n");
    ck_assert(pl_log_shows(PL_LOG_INFO) && !pl_log_shows(PL_LOG_DEBUG));
}

TEST(a_long_line_is_cut_and_still_ends)
{
    static char big[10000];
    int fd = capture();
    const char *line;

    memset(big, 'x', sizeof(big) - 1);
    for (size_t length = 4060; length < 4110; length++) { /* across the end of the buffer, byte by byte */
        pl_log(PL_LOG_INFO, "%.*s", (int)length, big);
        line = next_write(fd);
        ck_assert_uint_ge(strlen(line), 4000);
        ck_assert_uint_le(strlen(line), 4096);
        ck_assert_int_eq(line[strlen(line) - 1], '\n');
        ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
    }
}

TEST(names_in_a_line_cannot_command_a_terminal)
{
    int fd = capture();

    pl_log(PL_LOG_INFO, "host '\x1b[2J\xc2\x9b"
                        "2J\xff\xc3\xa4'\tof 2\nmore");
    ck_assert_str_eq(next_write(fd), "paceline: host '?[2J??2J?\xc3\xa4'\tof 2\nmore\n");
}

TEST(the_prefix_is_cut_at_63_bytes)
{
    char prefix[200];
    int fd = capture();

    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    pl_log_set_prefix(prefix);
    pl_log(PL_LOG_INFO, "x");
    ck_assert_uint_eq(strcspn(next_write(fd), ":"), 63);
    pl_log_set_prefix("[rank %s]"); /* the prefix is data, not a format */
    pl_log(PL_LOG_INFO, "x");
    ck_assert_str_eq(next_write(fd), "[rank %s]: x\n");
}

TEST(an_error_is_logged_with_cause_and_context)
{
    struct pl_error error = PL_ERROR_NONE;
    int fd = capture();

    pl_error_set(&error, PL_CORRUPT, "bad magic 100%%");
    pl_error_context(&error, "record 7");
    pl_log_error(&error, "cannot read '%s'", "part-0");
    ck_assert_str_eq(next_write(fd), "paceline: error: cannot read 'part-0': bad magic 100% (record 7)\n");
}

TEST(errno_survives_a_line_and_a_closed_stderr_is_no_trouble)
{
    errno = ENOENT;
    ck_assert_int_eq(close(STDERR_FILENO), 0);
    pl_log(PL_LOG_ERROR, "nobody hears this");
    ck_assert_int_eq(errno, ENOENT);
}

/* Make stderr a full pipe that is not read: a write would block. Returns the reader's end. */
static int stop_reading(void)
{
    static const char block[4096];
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof(block)) > 0) {
    }
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    return ends[0];
}

TEST(a_reader_that_has_stopped_reading_stops_nobody)
{
    stop_reading();
    pl_log(PL_LOG_ERROR, "nobody reads this");
}

TEST(lines_that_nobody_read_are_counted)
{
    char text[4096];
    ssize_t bytes = sizeof(text);
    int fd = stop_reading();

    /* only the first line waits: a second for each would be too long for this test */
    for (int line = 0; line < 50; line++) {
        pl_log(PL_LOG_INFO, "nobody reads this");
    }
    while (bytes == (ssize_t)sizeof(text)) {
        bytes = read(fd, text, sizeof(text));
    }
    pl_log(PL_LOG_INFO, "this is read");
    pl_log(PL_LOG_INFO, "and this");
    bytes = read(fd, text, sizeof(text) - 1);
    ck_assert_int_gt(bytes, 0);
    text[bytes] = '\0';
    ck_assert_str_eq(text, "paceline: warning: 50 lines are missing here: nobody read the log\n"
                           "paceline: this is read\npaceline: and this\n");
}

static void ignore(int number)
{
}

TEST(a_reader_that_has_stopped_reading_stops_nobody_who_gets_signals)
{
    const struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    const struct itimerval often = {.it_interval.tv_usec = 10000, .it_value.tv_usec = 10000};

    stop_reading();
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    pl_log(PL_LOG_ERROR, "nobody reads this");
}

UNIT_MAIN("base/log")
