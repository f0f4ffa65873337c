/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/bytes/source.c, s3io/bytes/source_fifo.c, s3io/bytes/store.c,
 * s3io/bytes/store.c. */
#include "base/clock.h"
#include "s3io/source.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

static int64_t in_ms(int64_t milliseconds)
{
    return pl_deadline_after_ns(milliseconds * PL_NS_PER_MS);
}

TEST(memory_and_file_give_all_bytes_then_the_end_for_ever)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_source *sources[2];
    char path[PATH_MAX], data[16];
    size_t got;

    scratch_write(&scratch, "file", "hello world", 11);
    ck_ok(pl_source_open_memory, "memory", "hello world", 11, &sources[0]);
    ck_ok(pl_source_open_file, scratch_path(&scratch, "file", path), &sources[1]);
    for (int i = 0; i < 2; i++) {
        ck_ok(pl_source_read, sources[i], data, 5, in_ms(1000), &got);
        ck_assert_uint_eq(got, 5);
        ck_ok(pl_source_read, sources[i], data, sizeof(data), in_ms(1000), &got);
        ck_assert_uint_eq(got, 6);
        ck_assert_mem_eq(data, " world", 6);
        ck_assert_uint_eq(sources[i]->offset_bytes, 11);
        for (int again = 0; again < 2; again++) {
            ck_ok(pl_source_read, sources[i], data, 1, in_ms(0), &got);
            ck_assert_uint_eq(got, 0);
        }
        pl_source_close(sources[i]);
    }
}

TEST(missing_file_and_directory_are_named_errors)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_source *source = NULL;
    char path[PATH_MAX];

    ck_fails(PL_NOT_FOUND, "none", pl_source_open_file, scratch_path(&scratch, "none", path), &source);
    ck_fails(PL_INVALID, "", pl_source_open_file, scratch.path, &source);
    ck_assert_ptr_null(source);
}

TEST(fifo_that_never_appears_or_has_no_writer_is_a_timeout_that_says_which)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    char path[PATH_MAX], byte;
    size_t got;

    ck_ok(pl_source_open_fifo, scratch_path(&scratch, "training_0", path), &source);
    ck_fails(PL_TIMEOUT, "training_0' did not appear", pl_source_read, source, &byte, 1, in_ms(30), &got);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_fails(PL_TIMEOUT, "no writer came", pl_source_read, source, &byte, 1, in_ms(30), &got);
}

TEST(something_else_than_a_fifo_is_refused)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    char path[PATH_MAX], byte;
    size_t got;

    scratch_write(&scratch, "training_0", "x", 1);
    ck_ok(pl_source_open_fifo, scratch_path(&scratch, "training_0", path), &source);
    ck_fails(PL_INVALID, "", pl_source_read, source, &byte, 1, in_ms(1000), &got);
}

/* If ranks forgot to share a FIFO, each would train on the bytes that the other left. */
TEST(second_reader_of_a_fifo_is_refused_while_the_first_is_open)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_source *first, *second;
    char path[PATH_MAX], byte;
    size_t got;
    int fd;

    ck_assert_int_eq(mkfifo(scratch_path(&scratch, "training_0", path), 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ck_assert_int_eq(write(fd, "ab", 2), 2);
    ck_ok(pl_source_open_fifo, path, &first);
    ck_ok(pl_source_read, first, &byte, 1, in_ms(1000), &got);
    ck_ok(pl_source_open_fifo, path, &second);
    ck_fails(PL_INVALID, "training_0' has another reader", pl_source_read, second, &byte, 1, in_ms(1000), &got);
    pl_source_close(first);
    ck_ok(pl_source_read, second, &byte, 1, in_ms(1000), &got);
    ck_assert_int_eq(byte, 'b');
    pl_source_close(second);
    close(fd);
}

struct writer {
    char path[PATH_MAX];
    int64_t make_after_ns;  /* when the FIFO is created; 0: before the test */
    int64_t open_after_ns;  /* how much later it is opened */
    int64_t write_after_ns; /* how much later the first bytes are written */
    size_t bytes;
};

static void *write_late(void *argument)
{
    const struct writer *writer = argument;
    unsigned char block[4096];
    int fd;

    if (writer->make_after_ns) {
        pl_clock_nap(writer->make_after_ns, PL_DEADLINE_NEVER);
        ck_assert_int_eq(mkfifo(writer->path, 0600), 0);
    }
    pl_clock_nap(writer->open_after_ns, PL_DEADLINE_NEVER);
    fd = open(writer->path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    pl_clock_nap(writer->write_after_ns, PL_DEADLINE_NEVER);
    for (size_t done = 0; done < writer->bytes;) {
        size_t now = writer->bytes - done < sizeof(block) ? writer->bytes - done : sizeof(block);

        for (size_t i = 0; i < now; i++) {
            block[i] = (unsigned char)((done + i) * 7 >> 3);
        }
        ck_assert_int_eq(write(fd, block, now), (ssize_t)now);
        done += now;
    }
    close(fd);
    return NULL;
}

static void read_from(struct writer *writer)
{
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    unsigned char data[10000];
    size_t total = 0, right = 0, got;
    pthread_t thread;

    if (!writer->make_after_ns) {
        ck_assert_int_eq(mkfifo(writer->path, 0600), 0);
    }
    ck_ok(pl_source_open_fifo, writer->path, &source);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_late, writer), 0);
    for (;;) {
        ck_ok(pl_source_read, source, data, sizeof(data), in_ms(100000), &got);
        if (got == 0) {
            break;
        }
        for (size_t i = 0; i < got; i++) {
            right += data[i] == (unsigned char)((total + i) * 7 >> 3);
        }
        total += got;
        /* Check records every assertion in a file: one assertion per byte would take seconds */
        ck_assert_uint_eq(right, total);
    }
    ck_assert_uint_eq(total, writer->bytes);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

TEST(late_path_late_writer_and_late_data_are_waited_for)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct writer writer = {.make_after_ns = 30 * PL_NS_PER_MS,
                            .open_after_ns = 30 * PL_NS_PER_MS,
                            .write_after_ns = 30 * PL_NS_PER_MS,
                            .bytes = 3 << 20};

    scratch_path(&scratch, "training_0", writer.path);
    read_from(&writer);
}

TEST(writer_that_brings_nothing_is_an_empty_epoch)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct writer writer = {.open_after_ns = 30 * PL_NS_PER_MS, .bytes = 0};

    scratch_path(&scratch, "training_0", writer.path);
    read_from(&writer);
}

TEST(fifo_in_a_directory_that_appears_later_is_found)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    char path[PATH_MAX], directory[PATH_MAX], byte;
    size_t got;
    int fd;

    scratch_path(&scratch, "data", directory);
    scratch_path(&scratch, "data/training_0", path);
    ck_ok(pl_source_open_fifo, path, &source);
    ck_fails(PL_TIMEOUT, "", pl_source_read, source, &byte, 1, in_ms(10), &got);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "z", 1), 1);
    ck_ok(pl_source_read, source, &byte, 1, in_ms(5000), &got);
    ck_assert_int_eq(byte, 'z');
    close(fd);
}

static void *cancel_soon(void *argument)
{
    pl_clock_nap(30 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    pl_source_cancel(argument);
    return NULL;
}

TEST(cancel_wakes_a_reader_that_waits_for_the_path_or_for_data)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX], byte;
    size_t got;

    for (int with_path = 0; with_path < 2; with_path++) {
        struct pl_source *source;
        pthread_t thread;

        scratch_path(&scratch, "training_0", path);
        if (with_path) {
            ck_assert_int_eq(mkfifo(path, 0600), 0);
        }
        ck_ok(pl_source_open_fifo, path, &source);
        ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, source), 0);
        ck_fails(PL_CANCELLED, "", pl_source_read, source, &byte, 1, PL_DEADLINE_NEVER, &got);
        ck_fails(PL_CANCELLED, "", pl_source_read, source, &byte, 1, PL_DEADLINE_NEVER, &got);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        pl_source_close(source);
    }
}

TEST(a_stop_ends_the_wait_for_a_writer_at_once_and_one_for_more_soon)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    struct pl_source *source;
    char path[PATH_MAX], byte;
    size_t got;
    int stop_fd = eventfd(1, EFD_CLOEXEC), fd;

    ck_ok(pl_source_open_fifo, scratch_path(&scratch, "training_0", path), &source);
    pl_source_stop_fifo(source, stop_fd);
    ck_fails(PL_CANCELLED, "", pl_source_read, source, &byte, 1, PL_DEADLINE_NEVER, &got);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_fails(PL_CANCELLED, "stopped while waiting for a writer of FIFO", pl_source_read, source, &byte, 1,
             PL_DEADLINE_NEVER, &got);
    pl_source_close(source);
    /* Bytes that are there are read. Short waits, which ranks that share the stream do, do not restart the timeout. */
    ck_ok(pl_source_open_fifo, path, &source);
    pl_source_stop_fifo(source, stop_fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "z", 1), 1);
    ck_ok(pl_source_read, source, &byte, 1, in_ms(5000), &got);
    ck_assert_int_eq(byte, 'z');
    while (pl_source_read(source, &byte, 1, in_ms(100), &got, &error) == PL_TIMEOUT) {
    }
    ck_assert_int_eq(error.status, PL_CANCELLED);
    ck_has(error.cause, "stopped while waiting for more data from FIFO");
    close(fd);
    close(stop_fd);
    pl_source_close(source);
}

TEST(pipe_is_raised_to_one_mebibyte)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    char path[PATH_MAX], byte;
    size_t got;
    int fd;

    ck_assert_int_eq(mkfifo(scratch_path(&scratch, "training_0", path), 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ck_assert_int_eq(write(fd, "a", 1), 1);
    ck_ok(pl_source_open_fifo, path, &source);
    ck_ok(pl_source_read, source, &byte, 1, in_ms(1000), &got);
    ck_assert_int_eq(fcntl(fd, F_GETPIPE_SZ), 1 << 20);
    close(fd);
}

UNIT_MAIN("s3io/source")
