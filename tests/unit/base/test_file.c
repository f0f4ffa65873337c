/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/file.c. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Replace functions of libc, to record their order: f a file synced, r a rename, d a directory synced. */
static char disk_calls[64];
static bool notes_disk_calls;

static void note_call(char call)
{
    if (notes_disk_calls) {
        disk_calls[strnlen(disk_calls, sizeof(disk_calls) - 2)] = call;
    }
}

int fsync(int fd)
{
    struct stat info;

    note_call(fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? 'd' : 'f');
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int old_fd, const char *old_name, int new_fd, const char *new_name)
{
    note_call('r');
    return (int)syscall(SYS_renameat2, old_fd, old_name, new_fd, new_name, 0);
}

/* Make a fresh directory the working directory of the test, which Check runs in a separate process. */
static void enter_scratch(void)
{
    static char path[] = "/tmp/pl-file-XXXXXX";

    strcpy(path + sizeof(path) - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
    ck_assert_int_eq(chdir(path), 0);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

static void leave_scratch(void)
{
    char path[PATH_MAX], command[PATH_MAX + 16];

    ck_assert_ptr_nonnull(getcwd(path, sizeof(path)));
    ck_assert_int_eq(strncmp(path, "/tmp/pl-file-", 13), 0);
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *path, const char *content)
{
    ck_ok(pl_file_write_atomic, path, content, strlen(content), 0644);
}

static void expect_content(const char *path, const char *content)
{
    PL_AUTO_FREE char *data = NULL;
    size_t bytes = 0;

    ck_ok(pl_file_read, path, 1 << 20, &data, &bytes);
    ck_assert_str_eq(data, content);
    ck_assert_uint_eq(bytes, strlen(content));
}

TEST(reading_is_bounded_exactly)
{
    PL_AUTO_FREE char *data = NULL;
    struct pl_error error = PL_ERROR_NONE;
    char *untouched = NULL;
    size_t bytes = 0;

    enter_scratch();
    put("five", "12345");
    ck_ok(pl_file_read, "five", 5, &data, &bytes);
    ck_assert_uint_eq(bytes, 5);
    ck_assert_int_eq(data[5], '\0');
    ck_assert_int_eq(pl_file_read("five", 4, &untouched, NULL, &error), PL_LIMIT);
    ck_assert(strstr(error.cause, "five"));
    ck_assert_int_eq(pl_file_read("five", 0, &untouched, NULL, &error), PL_LIMIT);
    ck_assert_ptr_null(untouched);
    put("empty", "");
    expect_content("empty", "");
    leave_scratch();
}

TEST(files_without_a_size_are_read_whole)
{
    PL_AUTO_FREE char *data = NULL;
    char *untouched = NULL;
    size_t bytes = 0;

    ck_ok(pl_file_read, "/proc/self/status", 1 << 20, &data, &bytes);
    ck_assert_uint_gt(bytes, 100);
    ck_assert_uint_eq(strlen(data), bytes);
    ck_fails(PL_LIMIT, "", pl_file_read, "/dev/zero", 100000, &untouched, NULL);
}

static void *write_later(void *argument)
{
    const int *fd = argument;
    bool ok = write(*fd, "half of ", 8) == 8 && write(*fd, "it", 2) == 2;

    close(*fd);
    return ok ? NULL : argument;
}

TEST(a_pipe_is_read_to_its_end_and_never_waited_for_without_one)
{
    PL_AUTO_FREE char *data = NULL;
    char *untouched = NULL;
    pthread_t thread;
    char path[40];
    int ends[2];

    enter_scratch();
    ck_assert_int_eq(mkfifo("fifo", 0600), 0);
    ck_fails_as(PL_INVALID, "'fifo' is a FIFO into which nobody writes: expected a file", pl_file_read, "fifo", 100,
                &untouched, NULL);
    ck_assert_ptr_null(untouched);

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_later, &ends[1]), 0);
    ck_ok(pl_file_read, path, 100, &data, NULL);
    ck_assert_str_eq(data, "half of it");
    pthread_join(thread, NULL);
    close(ends[0]);
    leave_scratch();
}

TEST(a_missing_file_is_distinguished_from_errors)
{
    struct pl_error error = PL_ERROR_NONE;
    char *data = NULL;

    enter_scratch();
    put("file", "x");
    ck_assert_int_eq(pl_file_read("absent", 10, &data, NULL, &error), PL_NOT_FOUND);
    ck_assert_int_eq(error.domain, PL_DOMAIN_ERRNO);
    ck_assert_int_eq((int)error.code, ENOENT);
    ck_assert(strstr(error.cause, "absent"));
    ck_assert_int_eq(pl_file_read("file/below", 10, &data, NULL, &error), PL_NOT_FOUND);
    ck_assert_int_eq(pl_file_read(".", 10, &data, NULL, &error), PL_SYSTEM);
    ck_assert_int_eq((int)error.code, EISDIR);
    ck_assert_ptr_null(data);
    leave_scratch();
}

TEST(atomic_writing_replaces_and_leaves_no_temporary)
{
    struct stat info;

    enter_scratch();
    umask(022);
    put("file", "old");
    ck_ok(pl_file_write_atomic, "file", "a\0b", 3, 0600);
    ck_assert_int_eq(stat("file", &info), 0);
    ck_assert_int_eq(info.st_size, 3);
    ck_assert_uint_eq(info.st_mode & 07777, 0600);
    ck_assert_int_eq(count_entries("."), 1);
    ck_assert_int_eq(mkdir("sub", 0755), 0);
    put("sub/file", "below");
    expect_content("sub/file", "below");
    leave_scratch();
}

TEST(a_link_at_the_target_is_replaced_not_followed)
{
    struct stat info;

    enter_scratch();
    put("victim", "safe");
    ck_assert_int_eq(symlink("victim", "file"), 0);
    put("file", "new");
    expect_content("victim", "safe");
    expect_content("file", "new");
    ck_assert_int_eq(lstat("file", &info), 0);
    ck_assert(S_ISREG(info.st_mode));
    leave_scratch();
}

TEST(names_that_are_not_one_component_are_refused)
{
    static const char *const names[] = {"", ".", "..", "a/b", "/", "../x"};
    PL_AUTO_CLOSE int dir_fd = -1;
    struct pl_error error = PL_ERROR_NONE;

    enter_scratch();
    dir_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        ck_assert_msg(pl_file_write_atomic_at(dir_fd, names[i], "x", 1, 0600, &error) == PL_INVALID, "'%s'", names[i]);
    }
    ck_assert_int_eq(pl_file_write_atomic("dir/", "x", 1, 0600, &error), PL_NOT_FOUND);
    ck_assert_int_eq(count_entries("."), 0);
    leave_scratch();
}

TEST(the_longest_name_is_written_and_a_longer_one_is_an_error)
{
    struct pl_error error = PL_ERROR_NONE;
    char name[NAME_MAX + 2];

    enter_scratch();
    memset(name, 'n', sizeof(name));
    name[NAME_MAX] = '\0';
    put(name, "long");
    expect_content(name, "long");
    name[NAME_MAX] = 'n';
    name[NAME_MAX + 1] = '\0';
    ck_assert_int_eq(pl_file_write_atomic(name, "x", 1, 0600, &error), PL_SYSTEM);
    ck_assert_int_eq((int)error.code, ENAMETOOLONG);
    ck_assert_int_eq(count_entries("."), 1);
    leave_scratch();
}

TEST(a_write_that_fails_keeps_the_old_content)
{
    struct pl_error error = PL_ERROR_NONE;

    enter_scratch();
    ck_assert_int_eq(mkdir("taken", 0755), 0);
    put("taken/file", "kept");
    /* a file cannot replace a directory */
    ck_assert_int_eq(pl_file_write_atomic("taken", "x", 1, 0600, &error), PL_SYSTEM);
    ck_assert_int_eq(count_entries("."), 1);
    expect_content("taken/file", "kept");
    ck_assert_int_eq(pl_file_write_atomic("absent/file", "x", 1, 0600, &error), PL_NOT_FOUND);
    ck_assert(strstr(error.cause, "absent"));
    leave_scratch();
}

struct writer {
    atomic_bool stop;
    char letter;
};

static void *write_again_and_again(void *argument)
{
    struct writer *writer = argument;
    char content[5000];

    memset(content, writer->letter, sizeof(content));
    while (!atomic_load(&writer->stop)) {
        if (pl_file_write_atomic("shared", content, sizeof(content), 0600, NULL) != PL_OK) {
            return writer; /* pthread_join() returns it */
        }
    }
    return NULL;
}

TEST(readers_see_one_version_whole_while_two_writers_race)
{
    struct writer writers[2] = {{.letter = 'a'}, {.letter = 'b'}};
    pthread_t threads[2];

    enter_scratch();
    put("shared", "");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_again_and_again, &writers[i]), 0);
    }
    for (int i = 0; i < 300; i++) {
        PL_AUTO_FREE char *data = NULL;
        size_t bytes = 0;

        ck_ok(pl_file_read, "shared", 1 << 20, &data, &bytes);
        ck_assert(bytes == 0 || bytes == 5000);
        ck_assert(bytes == 0 || (strspn(data, "a") == bytes) || (strspn(data, "b") == bytes));
    }
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;

        atomic_store(&writers[i].stop, true);
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ck_assert_int_eq(count_entries("."), 1);
    leave_scratch();
}

TEST(a_read_waits_until_its_deadline_and_can_go_on)
{
    struct pl_error error = PL_ERROR_NONE;
    char data[8];
    size_t bytes = 99;
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(
        pl_file_read_some(ends[0], data, sizeof(data), pl_deadline_after_ns(5 * PL_NS_PER_MS), "pipe", &bytes, &error),
        PL_TIMEOUT);
    ck_assert(strstr(error.cause, "pipe"));
    ck_assert_uint_eq(bytes, 99);
    ck_ok(pl_file_write_fd, ends[1], "abc", 3, "pipe");
    /* data that is there is returned at once */
    ck_ok(pl_file_read_some, ends[0], data, sizeof(data), 0, "pipe", &bytes);
    ck_assert_uint_eq(bytes, 3);
    ck_assert_mem_eq(data, "abc", 3);
    ck_ok(pl_file_set_nonblock, ends[0], true);
    ck_assert_int_eq(
        pl_file_read_some(ends[0], data, sizeof(data), pl_deadline_after_ns(PL_NS_PER_MS), "pipe", &bytes, &error),
        PL_TIMEOUT);
    close(ends[1]);
    ck_ok(pl_file_read_some, ends[0], data, sizeof(data), PL_DEADLINE_NEVER, "pipe", &bytes);
    ck_assert_uint_eq(bytes, 0);
    close(ends[0]);
    ck_assert_int_eq(pl_file_read_some(ends[0], data, sizeof(data), PL_DEADLINE_NEVER, "pipe", &bytes, &error),
                     PL_SYSTEM);
    ck_assert_int_eq((int)error.code, EBADF);
}

static void *drain(void *argument)
{
    static char block[4096];
    size_t total = 0, bytes = 0;
    const int *fd = argument;

    while (pl_file_read_some(*fd, block, sizeof(block), pl_deadline_after_ns(30 * PL_NS_PER_S), "pipe", &bytes, NULL) ==
               PL_OK &&
           bytes > 0) {
        total += bytes;
    }
    return (void *)total;
}

TEST(a_write_larger_than_the_pipe_goes_out_whole)
{
    PL_AUTO_FREE char *data = pl_memory_new(1 << 20, 1, NULL);
    pthread_t thread;
    void *total = NULL;
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, drain, &ends[0]), 0);
    ck_ok(pl_file_write_fd, ends[1], data, 1 << 20, "pipe");
    ck_ok(pl_file_write_fd, ends[1], data, 0, "pipe");
    close(ends[1]);
    pthread_join(thread, &total);
    ck_assert_uint_eq((size_t)total, 1 << 20);
    close(ends[0]);
}

TEST(a_full_device_is_named)
{
    PL_AUTO_CLOSE int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pl_file_write_fd(fd, "x", 1, "the model", &error), PL_SYSTEM);
    ck_assert_int_eq((int)error.code, ENOSPC);
    ck_assert_str_eq(error.cause, "cannot write 'the model': No space left on device");
}

TEST(nonblock_is_set_and_cleared)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_ok(pl_file_set_nonblock, ends[0], true);
    ck_assert(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
    ck_ok(pl_file_set_nonblock, ends[0], false);
    ck_assert(!(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
    close(ends[0]);
    close(ends[1]);
    ck_fails(PL_SYSTEM, "", pl_file_set_nonblock, -1, true);
}

TEST(directories_are_made_with_their_parents)
{
    static const char *const paths[] = {"a", "a/b/c", "a/b/c", "x//y///z/", "./q/../r", "/", "."};
    struct stat info;

    enter_scratch();
    for (size_t i = 0; i < PL_ARRAY_ITEMS(paths); i++) {
        ck_ok(pl_file_make_dirs, paths[i], 0755);
        ck_assert_int_eq(stat(paths[i], &info), 0);
        ck_assert(S_ISDIR(info.st_mode));
    }
    ck_assert_int_eq(symlink("a", "link"), 0);
    ck_ok(pl_file_make_dirs, "link/under", 0755);
    leave_scratch();
}

TEST(a_file_in_the_way_of_a_directory_is_said)
{
    struct pl_error error = PL_ERROR_NONE;

    enter_scratch();
    put("file", "x");
    ck_assert_int_eq(pl_file_make_dirs("file", 0755, &error), PL_INVALID);
    ck_assert_int_eq((int)error.code, ENOTDIR);
    ck_assert_int_ne(pl_file_make_dirs("file/below", 0755, &error), PL_OK);
    ck_assert_int_eq((int)error.code, ENOTDIR);
    ck_assert_int_ne(pl_file_make_dirs("", 0755, &error), PL_OK);
    leave_scratch();
}

TEST(a_tree_goes_with_its_closed_folders_and_without_what_its_links_name)
{
    const uid_t user = geteuid(), ordinary = user == 0 ? 4242 : user; /* no mode closes a folder to root */

    enter_scratch();
    ck_assert_int_eq(chown(".", ordinary, (gid_t)-1), 0);
    ck_assert_int_eq(seteuid(ordinary), 0);
    ck_assert_int_eq(mkdir("tree", 0755) + mkdir("tree/read", 0755) + mkdir("tree/read/shut", 0755), 0);
    ck_assert_int_eq(mkdir("kept", 0755), 0);
    put("kept/file", "x");
    put("tree/read/file", "x");
    put("tree/read/shut/file", "x");
    ck_assert_int_eq(symlink("../kept", "tree/link") + symlink("kept", "link"), 0);
    ck_assert_int_eq(chmod("tree/read/shut", 0) + chmod("tree/read", 0555) + chmod("kept", 0555), 0);
    pl_file_remove_tree("tree");
    pl_file_remove_tree("link");
    pl_file_remove_tree("missing");
    ck_assert_int_eq(count_entries("."), 1);
    expect_content("kept/file", "x");
    ck_assert_int_eq(seteuid(user), 0);
    leave_scratch();
}

TEST(closing_keeps_errno)
{
    int bad = 1 << 20;
    int none = -1;

    errno = ENOENT;
    pl_file_close_at(&bad);
    pl_file_close_at(&none);
    ck_assert_int_eq(errno, ENOENT);
}

TEST(a_closed_descriptor_is_forgotten)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int other;

    ck_assert_int_ge(fd, 0);
    pl_file_close_at(&fd);
    ck_assert_int_eq(fd, -1);
    other = open("/dev/null", O_RDONLY | O_CLOEXEC); /* another file has the number now */
    pl_file_close_at(&fd);
    ck_assert_int_ge(fcntl(other, F_GETFD), 0);
    ck_assert_int_eq(close(other), 0);
}

TEST(an_atomic_file_is_on_disk_before_it_gets_its_name_and_its_name_is_too)
{
    enter_scratch();
    notes_disk_calls = true;
    put("file", "content");
    ck_assert_str_eq(disk_calls, "frd");
    leave_scratch();
}

TEST(a_program_is_the_first_executable_file_along_the_path)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char first[PATH_MAX];
    char second[PATH_MAX];
    char list[3 * PATH_MAX];
    char *found = NULL;

    ck_assert_int_eq(mkdir(scratch_path(&scratch, "a", first), 0755), 0);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "b", second), 0755), 0);
    snprintf(list, sizeof(list), "/nowhere:%s:%s", first, second);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "a/tool", first), 0755), 0);
    scratch_write(&scratch, "b/tool", "x", 1);
    ck_assert_int_eq(pl_file_find_program("tool", list, &found, &error), PL_NOT_FOUND);
    ck_assert_int_eq(error.code, ENOENT);
    ck_assert_int_eq(chmod(scratch_path(&scratch, "b/tool", second), 0755), 0);
    ck_ok(pl_file_find_program, "tool", list, &found);
    ck_assert_str_eq(found, second);
    free(found);
    ck_ok(pl_file_find_program, "./no/such", list, &found);
    ck_assert_str_eq(found, "./no/such");
    free(found);
    ck_ok(pl_file_find_program, "sh", NULL, &found);
    free(found);
    ck_ok(pl_file_find_program, "sh", "", &found);
    free(found);
    ck_assert_int_eq(pl_file_find_program("", list, &found, &error), PL_NOT_FOUND);
}

UNIT_MAIN("base/file")
