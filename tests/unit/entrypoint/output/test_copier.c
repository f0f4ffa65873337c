/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/copier.c. */
#include "entrypoint/output/copier.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static struct pl_copier copier;
static int program_fd, log_fd; /* the program's end, and the end of the log's reader */

/* Open a copier between the two. With `tagged` mpirun reads the log, and the program has a terminal. */
static void open_copier(bool tagged)
{
    struct pl_error error = PL_ERROR_NONE;
    int pair[2];

    ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    log_fd = pair[0];
    copier = (struct pl_copier){.fd = -1, .bars.interval_ns = PL_BARS_KEEP};
    pl_copier_open_output(&copier, pair[1], tagged);
    close(pair[1]);
    ck_assert_ok(tagged ? pl_copier_open_terminal(&copier, &program_fd, &error)
                        : pl_copier_open_pipe(&copier, &program_fd, &error),
                 &error);
    ck_assert_int_eq(fcntl(program_fd, F_SETFL, O_NONBLOCK), 0);
}

/* One round of the shim's loop, without a wait. */
static void go_on(void)
{
    int64_t deadline_ns = PL_DEADLINE_NEVER;
    struct pollfd waits[2];

    pl_copier_wait(&copier, waits, &deadline_ns);
    ck_assert_int_ge(poll(waits, 2, 0), 0);
    pl_copier_go_on(&copier, waits);
}

/* Do one read(2) of the log, at most 4096 bytes as in mpirun. Returns 0 if there is nothing to read. */
static size_t read_log(char text[static PL_COPIER_WRITE_BYTES])
{
    const ssize_t bytes = read(log_fd, text, PL_COPIER_WRITE_BYTES);

    ck_assert(bytes >= 0 || errno == EAGAIN);
    return bytes > 0 ? (size_t)bytes : 0;
}

static char wanted[400000], found[sizeof(wanted)];

/* Write `bytes` of `wanted`, while the reader of the log is `rounds` rounds late, and get all of it in `found`. Each
 * piece that the reader gets must be whole lines, and must fit into mpirun's buffer with its tags. */
static void pass(size_t bytes, size_t rounds, bool by_line)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    char text[PL_COPIER_WRITE_BYTES];
    size_t written = 0, read_bytes = 0;

    for (size_t round = 0; read_bytes < bytes; round++) {
        ssize_t count = written < bytes ? write(program_fd, wanted + written, bytes - written) : 0;
        size_t part, tagged = 0;

        ck_assert(!pl_deadline_passed(end_ns));
        written += count > 0 ? (size_t)count : 0;
        if (written == bytes && program_fd >= 0) {
            pl_file_close_at(&program_fd); /* the bytes that are still in the pipe must arrive too */
        }
        go_on();
        part = round % rounds == 0 ? read_log(text) : 0;
        for (size_t i = 0; i < part && by_line; i++) {
            tagged += text[i] == '\n' ? 1 + PL_COPIER_TAG_BYTES : 1;
        }
        ck_assert_uint_le(tagged, PL_COPIER_TAGGED_BYTES);
        ck_assert(part == 0 || !by_line || text[part - 1] == '\n');
        ck_assert_uint_le(read_bytes + part, bytes);
        memcpy(found + read_bytes, text, part);
        read_bytes += part;
    }
    ck_assert_int_eq(memcmp(found, wanted, bytes), 0);
    go_on();
    ck_assert_int_eq(copier.fd, -1);
}

TEST(mpirun_reads_whole_lines_however_late_it_comes)
{
    for (size_t length = 1; length <= PL_COPIER_WRITE_BYTES; length = length * 3 + 1) {
        memset(wanted, 'x', sizeof(wanted));
        for (size_t at = length - 1; at < 100 * PL_COPIER_WRITE_BYTES / 2; at += 1 + at % length) {
            wanted[at] = '\n';
        }
        wanted[50 * PL_COPIER_WRITE_BYTES - 1] = '\n';
        open_copier(true);
        pass(50 * PL_COPIER_WRITE_BYTES, 7, true);
        close(log_fd);
        close(copier.out_fd);
    }
}

TEST(bytes_pass_as_they_are)
{
    for (int tagged = 0; tagged < 2; tagged++) {
        unsigned state = 1;

        for (size_t i = 0; i < sizeof(wanted); i++) {
            state = state * 1664525 + 1013904223;
            wanted[i] = (char)(state >> 24);
        }
        open_copier(tagged != 0);
        pass(sizeof(wanted), 3, false);
        close(log_fd);
        close(copier.out_fd);
    }
}

TEST(a_rank_of_mpirun_writes_to_a_terminal_that_changes_nothing)
{
    struct termios attributes;

    open_copier(true);
    ck_assert_int_eq(isatty(program_fd), 1);
    ck_assert_int_eq(tcgetattr(program_fd, &attributes), 0);
    ck_assert_uint_eq(attributes.c_oflag & OPOST, 0);
    ck_assert_uint_eq(attributes.c_lflag & ECHO, 0);
    ck_assert_int_eq(open("/dev/tty", O_RDWR | O_CLOEXEC), -1);
}

/* Whether a piece of a line, whose end is `late_ns` late, is to be written as it is. */
static bool goes_out(const char *piece, int64_t late_ns)
{
    ck_assert_int_eq(write(program_fd, piece, strlen(piece)), (ssize_t)strlen(piece));
    go_on();
    copier.line_deadline_ns = pl_clock_now_ns() - late_ns;
    go_on();
    return pl_copier_has_to_write(&copier);
}

TEST(an_unfinished_line_goes_out_in_time_and_not_because_this_machine_was_halted)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);

    open_copier(false);
    ck_assert(!goes_out("50%", -60 * PL_NS_PER_S));
    ck_assert(!goes_out(" 60%", 60 * PL_NS_PER_S));
    /* the line gets its waiting time again */
    ck_assert_int_gt(copier.line_deadline_ns, pl_clock_now_ns() - 10 * PL_NS_PER_S);
    while (!pl_copier_has_to_write(&copier)) {
        ck_assert(!pl_deadline_passed(end_ns));
        copier.line_deadline_ns = pl_clock_now_ns();
        go_on();
    }
    go_on();
    ck_assert_uint_eq(read_log(found), strlen("50% 60%"));
}

/* What the program does when a look is taken at it, and how much CPU time it has used then. */
static const char *writes_at_look = "";
static int64_t used_ns;

static int64_t runnable_cpu_ns(void *reader)
{
    ck_assert_ptr_eq(reader, &copier);
    ck_assert_int_eq(write(program_fd, writes_at_look, strlen(writes_at_look)), (ssize_t)strlen(writes_at_look));
    writes_at_look = "";
    return used_ns;
}

/* Takes `looks` looks at the unfinished line, less where this machine was halted; or as many as it is not written. */
static void look(size_t looks)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);

    for (size_t i = 0; i < looks && !pl_copier_has_to_write(&copier); i++) {
        ck_assert(!pl_deadline_passed(end_ns));
        copier.line_deadline_ns = pl_clock_now_ns();
        go_on();
    }
}

TEST(an_unfinished_line_waits_for_a_program_that_gets_no_cpu_time_but_not_for_ever)
{
    static const int64_t after_ns[] = {PL_NS_PER_S, -1, 0}; /* it computes, it waits, it still gets no time */

    open_copier(false);
    copier.runnable_cpu_ns = runnable_cpu_ns;
    copier.reader = &copier;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(after_ns); i++) {
        used_ns = 0;
        ck_assert_int_eq(write(program_fd, "rank", 4), 4);
        go_on();
        look(20);
        ck_assert(!pl_copier_has_to_write(&copier));
        used_ns = after_ns[i];
        look(SIZE_MAX);
        go_on();
        ck_assert_uint_eq(read_log(found), 4);
    }
}

TEST(what_a_program_wrote_before_it_was_seen_to_wait_is_of_its_line)
{
    open_copier(false);
    copier.runnable_cpu_ns = runnable_cpu_ns;
    copier.reader = &copier;
    used_ns = 0;
    ck_assert_int_eq(write(program_fd, "rank", 4), 4);
    go_on();
    look(20);
    used_ns = -1;
    writes_at_look = " 3\n";
    look(SIZE_MAX);
    go_on();
    ck_assert_uint_eq(read_log(found), strlen("rank 3\n"));
}

/* A line whose end arrived while the log's reader was late is a whole line. */
TEST(a_line_whose_end_has_come_is_not_cut_for_a_late_reader)
{
    open_copier(false);
    ck_assert_int_eq(write(program_fd, "one\ntw", 6), 6);
    go_on();
    copier.line_deadline_ns = pl_clock_now_ns();
    ck_assert_int_eq(write(program_fd, "o\n", 2), 2);
    for (int round = 0; round < 4; round++) {
        go_on();
    }
    ck_assert_uint_eq(read_log(found), strlen("one\ntwo\n"));
}

/* Get all that the program has written, after its end, in `found`, and close it. */
static void read_to_end(void)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    size_t bytes = 0;

    pl_file_close_at(&program_fd);
    while (copier.fd >= 0 || pl_copier_is_pending(&copier)) {
        ck_assert(!pl_deadline_passed(end_ns));
        go_on();
        bytes += read_log(found + bytes);
    }
    found[bytes] = '\0';
}

static void write_all(const char *text)
{
    ck_assert_int_eq(write(program_fd, text, strlen(text)), (ssize_t)strlen(text));
    go_on();
}

TEST(the_log_and_the_tail_have_the_last_state_of_a_bar)
{
    char text[256];

    open_copier(false);
    copier.bars.interval_ns = 3600 * PL_NS_PER_S;
    copier.keeps_tail = true;
    strcpy(copier.prefix, "[rank3]: ");
    write_all("one\ntw");
    write_all("o\n\r 10%");
    write_all("\r 20%");
    write_all("\r 30%\nValueError: x\n1/2\r2/2\r");
    read_to_end();
    ck_assert_str_eq(found, "[rank3]: one\n[rank3]: two\n[rank3]:  30%\n[rank3]: ValueError: x\n[rank3]: 2/2\n");
    pl_tail_lines(&copier.tail, text, sizeof(text));
    ck_assert_str_eq(text, "one\ntwo\n 30%\nValueError: x\n2/2\n");
}

TEST(a_bar_after_a_line_that_was_written_without_its_end_is_a_line)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);

    open_copier(false);
    copier.bars.interval_ns = 3600 * PL_NS_PER_S;
    write_all("loading");
    while (!pl_copier_has_to_write(&copier)) {
        ck_assert(!pl_deadline_passed(end_ns));
        copier.line_deadline_ns = pl_clock_now_ns();
        go_on();
    }
    go_on();
    ck_assert_uint_eq(read_log(found), strlen("loading"));
    write_all("\r 10%\r 20%");
    read_to_end();
    ck_assert_str_eq(found, "\n 20%\n");
}

TEST(a_state_goes_out_when_it_is_due_and_its_output_stays_open)
{
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    int64_t deadline_ns = PL_DEADLINE_NEVER;
    struct pollfd waits[2];

    open_copier(false);
    copier.bars.interval_ns = PL_NS_PER_MS;
    write_all("1/2\r2/2\r");
    pl_copier_wait(&copier, waits, &deadline_ns);
    ck_assert_int_lt(deadline_ns, pl_deadline_after_ns(PL_NS_PER_S));
    while (read_log(found) == 0) {
        ck_assert(!pl_deadline_passed(end_ns));
        go_on();
    }
    ck_assert_int_eq(memcmp(found, "2/2\n", 4), 0);
    write_all("3/3\r");
    pl_copier_end(&copier);
    ck_assert_int_eq(copier.fd, -1);
    while (pl_copier_has_to_write(&copier)) {
        go_on();
    }
    ck_assert_uint_eq(read_log(found), 4);
    ck_assert_int_eq(memcmp(found, "3/3\n", 4), 0);
}

/* Rows that have been held come with what follows them, in one buffer. */
TEST(nothing_of_lines_among_bars_is_lost)
{
    const size_t lines = 20000;
    size_t used = 0, at = 0, written = 0, found_bytes = 0;
    static char text[1 << 20], log[1 << 20];
    const int64_t end_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);

    for (size_t i = 0; i < lines; i++) {
        used +=
            (size_t)sprintf(text + used, i % 3 == 0 ? "\rbar %zu\r     \rline %zu\n" : "\rbar %zu\rline %zu\n", i, i);
    }
    open_copier(false);
    copier.bars.interval_ns = 0;
    while (copier.fd >= 0 || pl_copier_is_pending(&copier)) {
        ssize_t count = written < used ? write(program_fd, text + written, used - written) : 0;

        written += count > 0 ? (size_t)count : 0;
        if (written == used) {
            pl_file_close_at(&program_fd);
        }
        ck_assert(!pl_deadline_passed(end_ns));
        go_on();
        found_bytes += read_log(log + found_bytes);
    }
    for (size_t i = 0; i < lines; i++) {
        char pair[64];
        const size_t bytes = (size_t)sprintf(pair, "bar %zu\nline %zu\n", i, i);

        ck_assert_int_eq(memcmp(log + at, pair, bytes), 0);
        at += bytes;
    }
    ck_assert_uint_eq(at, found_bytes);
}

TEST(where_the_logs_reader_has_gone_the_tail_goes_on_and_a_program_that_is_alone_is_told)
{
    char text[64];

    ck_assert(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    for (int alone = 0; alone < 2; alone++) {
        open_copier(false);
        copier.keeps_tail = true;
        copier.is_alone = alone != 0;
        close(log_fd);
        write_all("one\n");
        go_on();
        ck_assert_int_eq(copier.broken, true);
        ck_assert_int_eq(write(program_fd, "two\nthree", 9), alone ? -1 : 9);
        while (copier.fd >= 0) {
            pl_file_close_at(&program_fd);
            go_on();
        }
        ck_assert(!pl_copier_is_pending(&copier));
        pl_tail_lines(&copier.tail, text, sizeof(text));
        ck_assert_str_eq(text, alone ? "one\n" : "one\ntwo\nthree\n");
        pl_file_close_at(&program_fd);
    }
}

/* If two writers see room for one write, the slower one must not block. */
TEST(a_writer_that_comes_second_does_not_block)
{
    int64_t deadline_ns = PL_DEADLINE_NEVER;
    struct pollfd waits[2];
    int own_fd;

    open_copier(false);
    own_fd = pl_file_open_own(copier.out_fd);
    ck_assert_int_ge(own_fd, 0);
    ck_assert_int_eq(write(program_fd, "line\n", 5), 5);
    go_on();
    pl_copier_wait(&copier, waits, &deadline_ns);
    ck_assert_int_eq(poll(waits, 2, 0), 1);
    while (write(own_fd, wanted, sizeof(wanted)) > 0) {
    }
    ck_assert_int_eq(errno, EAGAIN);
    pl_copier_go_on(&copier, waits);
    ck_assert(pl_copier_has_to_write(&copier));
    pl_copier_wait(&copier, waits, &deadline_ns);
    ck_assert_int_ne(deadline_ns, PL_DEADLINE_NEVER); /* the copier must not poll without a pause */
}

TEST(each_line_has_its_tag_once)
{
    static const char printed[] = "epoch=3 acc=0.5\n\n[rank3]: Traceback\n[rank3]:[W1126] x\n[rank30]: y\n[rank3",
                      logged[] = "[rank3]: epoch=3 acc=0.5\n[rank3]: \n[rank3]: Traceback\n[rank3]:[W1126] x\n"
                                 "[rank3]: [rank30]: y\n[rank3]: [rank3";

    open_copier(false);
    strcpy(copier.prefix, "[rank3]: ");
    copier.keeps_prefix = true;
    ck_assert_int_eq(write(program_fd, printed, strlen(printed)), (ssize_t)strlen(printed));
    read_to_end();
    ck_assert_str_eq(found, logged);
}

#define DASHES "--------------------------------------------------------------------------\n"
#define PRIMARY                                                                                                        \
    DASHES "Primary job  terminated normally, but 1 process returned\n"                                                \
           "a non-zero exit code. Per user-direction, the job has been aborted.\n" DASHES
#define NOTICED                                                                                                        \
    DASHES "mpirun noticed that process rank 1 with PID 0 on node algo-2 exited on signal 9 (Killed).\n" DASHES
#define DETECTED                                                                                                       \
    DASHES "mpirun detected that one or more processes exited with non-zero status, thus causing\n"                    \
           "the job to be terminated. The first process to do so was:\n\n"                                             \
           "  Process name: [[41215,1],1]\n  Exit code:    1\n" DASHES
#define ABORTED                                                                                                        \
    DASHES "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\n"                     \
           "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n"                                     \
           "You may or may not see output from other processes, depending on\n"                                        \
           "exactly when Open MPI kills them.\n" DASHES
#define ABORTED_5                                                                                                      \
    DASHES "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n  Proc: [[41215,1],3]\n  Errorcode: 1\n\n" \
           "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n" DASHES
#define SLOTS                                                                                                          \
    DASHES "There are not enough slots available in the system to satisfy the 20\nslots that were requested\n" DASHES

/* What stays of `text`, where `cut` bytes of it come first and the rest later; lines that are held come again. */
static void expect_left(const char *text, const char *left)
{
    const size_t count = strlen(text);

    for (size_t cut = 0; cut <= count; cut++) {
        struct pl_abort_blocks blocks = {0};
        char bytes[4096];
        size_t held, used;

        if (cut > 0 && cut < count && text[cut - 1] != '\n') {
            continue; /* only whole lines come */
        }
        memcpy(bytes, text, cut);
        used = pl_abort_blocks_remove(&blocks, bytes, cut, &held);
        memcpy(bytes + used, text + cut, count - cut);
        used = used - held + pl_abort_blocks_remove(&blocks, bytes + used - held, held + count - cut, &held);
        bytes[used] = '\0';
        ck_assert_str_eq(bytes, left);
    }
}

TEST(blocks_about_the_end_of_a_rank_are_left_out)
{
    expect_left(PRIMARY, "");
    expect_left("before\n" NOTICED "after\n", "before\nafter\n");
    expect_left("[1,3]<stderr>:ValueError: bad data\n" ABORTED "after\n",
                "[1,3]<stderr>:ValueError: bad data\nafter\n");
    expect_left(ABORTED_5, "");
    expect_left(PRIMARY "[1,0]<stderr>:last words\n" DETECTED, "[1,0]<stderr>:last words\n");
    expect_left(DASHES "prterun noticed that process rank 0 with PID 7 on node algo-1 exited\n" DASHES, "");
}

TEST(other_blocks_and_lines_of_ranks_stay)
{
    static const char *const texts[] = {SLOTS,
                                        DASHES,
                                        DASHES "\n" DASHES,
                                        "[1,0]<stderr>:" NOTICED,
                                        "-----\nPrimary job  terminated normally, but 1\n",
                                        "mpirun noticed that process rank 1 with PID 0\n",
                                        "[rank 0] " DASHES "[rank 0] mpirun noticed that process rank \n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        expect_left(texts[i], texts[i]);
    }
    expect_left(SLOTS PRIMARY SLOTS, SLOTS SLOTS);
}

TEST(lines_of_ranks_within_a_block_stay)
{
    expect_left(DASHES "mpirun noticed that process rank 1 with PID 0 on node\n[1,3]<stderr>:Traceback\n"
                       "algo-2 exited\n" DASHES "after\n",
                "[1,3]<stderr>:Traceback\nafter\n");
}

TEST(a_block_without_an_end_does_not_leave_out_all_that_follows)
{
    expect_left(DASHES "Primary job  terminated normally, but 1\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n", "13\n");
}

UNIT_MAIN("entrypoint/copier")
