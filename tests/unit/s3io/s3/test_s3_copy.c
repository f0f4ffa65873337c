/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/s3_copy.c. */
#include "base/clock.h"
#include "base/environment.h"
#include "s3io/s3/s3_get.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <stdatomic.h>
#include <sys/file.h>
#include <sys/syscall.h>

static atomic_bool wild_inodes;
static char part_path[PATH_MAX]; /* the path that was looked up last */

/* Replaces lstat() of the C library, for file systems on which a file gets another number each time. */
int lstat(const char *restrict path, struct stat *restrict info)
{
    static atomic_uint calls;
    int code = fstatat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);

    snprintf(part_path, sizeof(part_path), "%s", path);
    info->st_ino += atomic_load(&wild_inodes) ? atomic_fetch_add(&calls, 1) + 1 : 0;
    return code;
}

static void (*before_rename)(void), (*before_lock)(void); /* called once */

static void call_once(void (**function)(void))
{
    void (*call)(void) = *function;

    *function = NULL;
    if (call) {
        call();
    }
}

/* Replaces rename() of the C library: between two calls it does what another process may do. */
int rename(const char *from, const char *to)
{
    call_once(&before_rename);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int flock(int fd, int operation)
{
    call_once(&before_lock);
    return (int)syscall(SYS_flock, fd, operation);
}

/* Downloads an object without bytes, which needs no request, to `path`. */
static enum pl_status download_nothing(const char *path, struct pl_error *error)
{
    const struct pl_s3_options options = {.endpoint_url = "http://127.0.0.1:1", .credentials = {.anonymous = true}};
    struct pl_s3_fetch fetch = {
        .object = {.bucket = "bkt", .key = "key", .etag = "\"e\""}, .path = path, .modified_s = -1};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;

    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_s3_client_new, environment, &options, &client);
    return pl_s3_download(client, &fetch, 1, NULL, false, 10 * PL_NS_PER_S, NULL, error);
}

TEST(a_name_may_be_as_long_as_the_file_system_has_it)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX], name[256] = "";

    for (size_t bytes = 240; bytes <= 255; bytes++) {
        memset(name, 'n', bytes);
        ck_ok(download_nothing, scratch_path(&scratch, name, path));
        ck_assert_int_eq(access(path, F_OK), 0);
    }
}

TEST(a_long_name_is_cut_between_characters)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    for (size_t begin = 0; begin < 4; begin++) {
        char name[256] = "nnn";
        const char *part;
        size_t same = 0;

        name[begin] = '\0';
        while (strlen(name) + 4 <= 255) {
            strcat(name, "\xf0\x9d\x84\x9e");
        }
        ck_ok(download_nothing, scratch_path(&scratch, name, path));
        part = strrchr(part_path, '/') + 1;
        while (part[same] == name[same]) {
            same++;
        }
        ck_assert_uint_eq((same - begin) % 4, 0);
        ck_assert_uint_le(strlen(part), 255);
        ck_assert_uint_gt(strlen(part), 251);
    }
}

TEST(long_names_that_begin_alike_are_told_apart)
{
    /* Two contents with the same CRC-32C. Their ETags are made equal too. */
    static const char *const ends[] = {"ccaoacux", "wcjifoae"};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX], name[256] = "", parts[2][PATH_MAX];

    for (size_t i = 0; i < 2; i++) {
        memset(name, 'n', 241);
        strcpy(name + 241, ends[i]);
        ck_ok(download_nothing, scratch_path(&scratch, name, path));
        memcpy(parts[i], part_path, sizeof(part_path));
    }
    ck_assert_str_ne(parts[0], parts[1]);
}

TEST(a_file_that_is_never_the_same_is_not_waited_for)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    atomic_store(&wild_inodes, true);
    ck_fails(PL_FAILED, "inode numbers", download_nothing, scratch_path(&scratch, "file", path));
    ck_assert_int_eq(access(path, F_OK), -1);
    atomic_store(&wild_inodes, false);
}

static char shared_path[PATH_MAX], other_path[PATH_MAX];

static void be_refused(void)
{
    ck_fails(PL_FAILED, "is being written by another download", download_nothing, shared_path);
}

TEST(a_file_is_locked_until_it_has_its_name)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();

    before_rename = be_refused;
    ck_ok(download_nothing, scratch_path(&scratch, "file", shared_path));
    ck_assert(!before_rename);
    ck_assert_int_eq(access(shared_path, F_OK), 0);
}

static void download_first(void)
{
    int fd;

    ck_ok(download_nothing, shared_path);
    fd = open(shared_path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "whole", 5), 5);
    ck_assert_int_eq(linkat(AT_FDCWD, shared_path, AT_FDCWD, other_path, 0), 0);
    ck_assert_int_eq(close(fd), 0);
}

TEST(a_file_that_got_its_name_before_it_was_locked_is_not_cut)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct stat info;

    scratch_path(&scratch, "other", other_path);
    before_lock = download_first;
    ck_ok(download_nothing, scratch_path(&scratch, "file", shared_path));
    ck_assert(!before_lock);
    ck_assert_int_eq(access(shared_path, F_OK), 0);
    ck_assert_int_eq(stat(other_path, &info), 0);
    ck_assert_int_eq(info.st_size, 5);
}

TEST(keys_lead_nowhere_else)
{
    static const char *const good[] = {"a", "a/b", "...", "a/..b", ".hidden", "a b+%2f"};
    static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/./b"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, want = PL_TEXT_NONE;

        pl_text_printf(&want, "dir/%s", good[i]);
        ck_ok(pl_s3_local_path, "dir", good[i], &path);
        ck_assert_str_eq(path.data, want.data);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        struct pl_error error = PL_ERROR_NONE;

        ck_assert_msg(pl_s3_local_path("dir", bad[i], &path, &error) == PL_INVALID, "'%s'", bad[i]);
    }
}

UNIT_MAIN("s3io/s3_copy")
