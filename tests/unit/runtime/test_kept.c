/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/kept.c, base/memory.c. The job's memory is a memory file of this process, as of process 1. */
#include "runtime/kept.h"

#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 100, HEAD_BYTES = 40, PAGE = 65536 };

static int memory_new(void)
{
    char path[64];
    int fd = pl_fd_new_memory("kept", 0);

    ck_assert_int_ge(fd, 0);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    ck_assert_int_eq(setenv("PACELINE_KEPT", path, 1), 0);
    return fd;
}

static struct pl_kept *kept_open(void)
{
    struct pl_kept *kept;

    ck_ok(pl_kept_open, &kept);
    ck_assert_ptr_nonnull(kept);
    return kept;
}

/* Each byte follows from the step, so that a mixed copy is seen. */
static unsigned char byte_of(uint64_t step, size_t at)
{
    return (unsigned char)((step * 2654435761U) >> (at % 4 * 8) ^ at);
}

static void end_step(struct pl_kept *kept, uint64_t step, unsigned char *place, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        place[i] = byte_of(step, i);
    }
    pl_kept_end(kept, step);
}

static void write_step(struct pl_kept *kept, uint64_t step, size_t bytes)
{
    void *place;

    ck_ok(pl_kept_begin, kept, bytes, &place);
    end_step(kept, step, place, bytes);
}

/* Returns the step of the newest copy, 0 if there is none, and sees that it is whole. */
static uint64_t read_step(struct pl_kept *kept, size_t *ret_bytes)
{
    uint64_t step = 0;
    const void *data;
    const unsigned char *at;

    pl_kept_read(kept, &step, &data, ret_bytes);
    at = data;
    for (size_t i = 0; at && i < *ret_bytes; i++) {
        if (at[i] != byte_of(step, i)) { /* ck_assert() would take long */
            ck_abort_msg("byte %zu of step %d differs", i, (int)step);
        }
    }
    return at ? step : 0;
}

static void expect_step(uint64_t step, size_t bytes)
{
    struct pl_kept *kept = kept_open();
    size_t found = 0;

    ck_assert_uint_eq(read_step(kept, &found), step);
    ck_assert(step == 0 || found == bytes);
    pl_kept_close(kept);
}

TEST(without_a_path_there_is_no_kept_memory)
{
    struct pl_kept *kept = (void *)&kept;

    unsetenv("PACELINE_KEPT");
    ck_ok(pl_kept_open, &kept);
    ck_assert_ptr_null(kept);
    pl_kept_close(kept);
    setenv("PACELINE_KEPT", "/nonexistent/kept", 1);
    ck_fails(PL_SYSTEM, "/nonexistent/kept", pl_kept_open, &kept);
}

TEST(a_file_that_is_no_memory_file_is_left_alone)
{
    struct scratch scratch = scratch_new();
    struct pl_kept *kept;
    struct stat info;
    char path[PATH_MAX];

    ck_ok(pl_file_write_atomic, scratch_path(&scratch, "log", path), "line\n", 5, 0600);
    setenv("PACELINE_KEPT", path, 1);
    ck_fails(PL_SYSTEM, "is not a memory file", pl_kept_open, &kept);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_size, 5);
    scratch_done(&scratch);
}

TEST(the_newest_of_all_copies_is_read_again)
{
    PL_AUTO_CLOSE int fd = memory_new();
    struct pl_kept *kept = kept_open();
    size_t bytes;

    ck_assert_uint_eq(read_step(kept, &bytes), 0);
    for (uint64_t step = 1; step <= 5; step++) {
        write_step(kept, step, BYTES);
        ck_assert_uint_eq(read_step(kept, &bytes), step);
        pl_kept_close(kept);
        kept = kept_open();
        ck_assert_uint_eq(read_step(kept, &bytes), step);
    }
    write_step(kept, 3, BYTES); /* the last written is the newest, whatever its step */
    pl_kept_close(kept);
    expect_step(3, BYTES);
}

TEST(sizes_may_change_and_memory_that_no_copy_has_goes_back)
{
    static const size_t sizes[] = {1, 70000, 100, 1 << 20, 3, 5 << 20, 90000, 4 << 20, 17, 17};
    PL_AUTO_CLOSE int fd = memory_new();
    struct pl_kept *kept = kept_open();
    struct stat info;
    size_t bytes = 0;

    for (uint64_t step = 1; step <= 3 * PL_ARRAY_ITEMS(sizes); step++) {
        write_step(kept, step, sizes[step % PL_ARRAY_ITEMS(sizes)]);
        ck_assert_uint_eq(read_step(kept, &bytes), step);
        ck_assert_uint_eq(bytes, sizes[step % PL_ARRAY_ITEMS(sizes)]);
        if (step % 4 == 0) {
            pl_kept_close(kept);
            kept = kept_open();
            ck_assert_uint_eq(read_step(kept, &bytes), step);
        }
    }
    ck_assert_int_eq(fstat(fd, &info), 0);
    ck_assert_int_le(info.st_size, 4 * (5 << 20));
    ck_fails(PL_INVALID, "0 bytes", pl_kept_write, kept, 1, "", 0);
    ck_ok(pl_kept_write, kept, 7, "abc", 3);
    pl_kept_close(kept);
}

TEST(only_one_may_have_it_open)
{
    PL_AUTO_CLOSE int fd = memory_new();
    struct pl_kept *kept = kept_open(), *second = NULL;

    ck_fails(PL_INVALID, "is in use", pl_kept_open, &second);
    pl_kept_close(kept);
    second = kept_open();
    pl_kept_close(second);
}

/* What is not whole is not read: the copy before is there. */
TEST(a_copy_that_is_not_ended_or_has_other_bytes_is_not_read)
{
    PL_AUTO_CLOSE int fd = memory_new();
    struct pl_kept *kept = kept_open();
    unsigned char *memory;
    void *place;

    write_step(kept, 1, BYTES);
    write_step(kept, 2, BYTES);
    ck_ok(pl_kept_begin, kept, BYTES, &place);
    pl_kept_close(kept);
    expect_step(2, BYTES);
    kept = kept_open();
    write_step(kept, 3, BYTES);
    pl_kept_close(kept);
    memory = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(memory != MAP_FAILED);
    for (unsigned newest = 0; newest < 2; newest++) {
        const unsigned char *head = memory + newest * HEAD_BYTES;
        uint64_t step, offset;

        memcpy(&step, head + 8, sizeof(step));
        memcpy(&offset, head + 16, sizeof(offset));
        for (size_t at = 0; at < HEAD_BYTES + BYTES; at++) {
            unsigned char *byte = memory + (at < HEAD_BYTES ? newest * HEAD_BYTES + at : offset + at - HEAD_BYTES);

            for (unsigned bit = 0; bit < 8; bit++) {
                *byte ^= (unsigned char)(1U << bit);
                expect_step(5 - step, BYTES); /* 2 and 3 are there */
                *byte ^= (unsigned char)(1U << bit);
            }
        }
        expect_step(3, BYTES);
    }
    munmap(memory, 3 * PAGE);
}

/* A writer that tells each step after it is kept, and is killed at any instant: no half message of Check's may stay. */
static void write_until_killed(uint64_t first, _Atomic uint64_t *kept_step)
{
    struct pl_kept *kept = NULL;
    uint64_t random = first;
    size_t bytes = 1;
    void *place;

    if (pl_kept_open(&kept, NULL) != PL_OK) {
        _exit(1);
    }
    for (uint64_t step = first; pl_kept_begin(kept, bytes, &place, NULL) == PL_OK; step++) {
        end_step(kept, step, place, bytes);
        atomic_store(kept_step, step);
        bytes = 1 + pl_random_next(&random) % 300000;
    }
    _exit(1);
}

TEST(a_writer_that_is_killed_at_any_instant_leaves_the_newest_whole_copy)
{
    const char *wanted = getenv("PACELINE_TEST_KILLS");
    const int kills = wanted ? atoi(wanted) : 50;
    PL_AUTO_CLOSE int fd = memory_new();
    _Atomic uint64_t *kept_step =
        mmap(NULL, sizeof(*kept_step), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t last = 0;

    ck_assert(kept_step != MAP_FAILED);
    for (int i = 0; i < kills; i++) {
        struct pl_kept *kept;
        size_t bytes = 0;
        uint64_t step;
        int status, pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            write_until_killed(last + 1, kept_step);
        }
        /* no time is right or wrong here: it draws the instant */
        usleep((unsigned)(rand() % 3000));
        kill(pid, SIGKILL);
        ck_assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        kept = kept_open();
        step = read_step(kept, &bytes);
        ck_assert_msg(step == atomic_load(kept_step) || step == atomic_load(kept_step) + 1,
                      "the newest copy is of step %d, and step %d was kept", (int)step, (int)atomic_load(kept_step));
        last = step;
        pl_kept_close(kept);
    }
    munmap((void *)kept_step, sizeof(*kept_step));
}

static void write_tree(const struct scratch *scratch, const char *name, const char *text)
{
    char path[PATH_MAX];
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_msg(pl_file_make_parents(scratch_path(scratch, name, path), 0777, &error) == PL_OK, "%s", error.cause);
    scratch_write(scratch, name, text, strlen(text));
}

TEST(the_room_is_what_the_limit_and_the_machine_leave_with_files_as_free)
{
    struct scratch scratch = scratch_new();

    ck_assert_int_eq(pl_memory_room(scratch.path), -1);
    write_tree(&scratch, "proc/meminfo", "MemTotal:  2000 kB\nMemAvailable:    1000 kB\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 1000 * 1024);
    write_tree(&scratch, "sys/fs/cgroup/memory.current", "700000\n");
    write_tree(&scratch, "sys/fs/cgroup/memory.max", "max\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 1000 * 1024);
    write_tree(&scratch, "sys/fs/cgroup/memory.max", "800000\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 100000);
    write_tree(&scratch, "sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 2000\nactive_file 30\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 102030);
    write_tree(&scratch, "sys/fs/cgroup/memory.max", "600000\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 0);
    write_tree(&scratch, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_tree(&scratch, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    ck_assert_int_eq(pl_memory_room(scratch.path), 0);
    scratch_done(&scratch);
}

TEST(a_copy_without_room_is_refused_and_the_one_before_stays)
{
    PL_AUTO_CLOSE int fd = memory_new();
    struct pl_kept *kept = kept_open();
    size_t bytes = 0;
    void *place;

    write_step(kept, 1, BYTES);
    ck_fails(PL_LIMIT, "two kept copies of ", pl_kept_begin, kept, (size_t)1 << 50, &place);
    ck_assert_uint_eq(read_step(kept, &bytes), 1);
    write_step(kept, 2, BYTES);
    ck_assert_uint_eq(read_step(kept, &bytes), 2);
    pl_kept_close(kept);
}

UNIT_MAIN("runtime/kept")
