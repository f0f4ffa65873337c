/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/unpack/unpack.c. */
#include "base/file.h"
#include "base/memory.h"
#include "programs/unpack/unpack.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <archive.h>
#include <archive_entry.h>

static const struct pl_unpack_limits roomy = {.max_bytes = 1 << 20, .max_entries = 100};

struct item {
    const char *name;
    mode_t type;
    const char *content; /* content of a file, or target of a symbolic link */
    mode_t mode;
    const char *hard; /* the name that a hard link refers to */
};

/* Pack `items` with libarchive as tar.gz into `data`; returns its size. */
static size_t pack(const struct item *items, size_t count, char *data, size_t data_bytes)
{
    struct archive *archive = archive_write_new();
    size_t used = 0;

    archive_write_add_filter_gzip(archive);
    archive_write_set_format_pax_restricted(archive);
    ck_assert_int_eq(archive_write_open_memory(archive, data, data_bytes, &used), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        bool is_link = items[i].type == AE_IFLNK;
        size_t bytes = items[i].content && !is_link ? strlen(items[i].content) : 0;

        archive_entry_set_pathname(entry, items[i].name);
        archive_entry_set_filetype(entry, items[i].type);
        archive_entry_set_perm(entry, items[i].mode != 0 ? items[i].mode : 0644);
        archive_entry_set_size(entry, (int64_t)bytes);
        if (is_link) {
            archive_entry_set_symlink(entry, items[i].content);
        }
        if (items[i].hard) {
            archive_entry_set_hardlink(entry, items[i].hard);
        }
        ck_assert_int_eq(archive_write_header(archive, entry), ARCHIVE_OK);
        if (bytes > 0) {
            ck_assert_int_eq(archive_write_data(archive, items[i].content, bytes), (la_ssize_t)bytes);
        }
        archive_entry_free(entry);
    }
    ck_assert_int_eq(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    return used;
}

static enum pl_status unpack(const struct item *items, size_t count, const struct pl_unpack_limits *limits,
                             const struct scratch *scratch, struct pl_error *reterr)
{
    char data[16384], path[PATH_MAX];
    AUTO_SCRATCH struct scratch archive = scratch_new();
    PL_AUTO_CLOSE int fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum pl_status status;

    ck_assert_int_ge(fd, 0);
    scratch_write(&archive, "data", data, pack(items, count, data, sizeof(data)));
    status = pl_unpack_source(scratch_path(&archive, "data", path), true, fd, limits, reterr);
    return status;
}

static void ck_content(const struct scratch *scratch, const char *name, const char *expected)
{
    char path[PATH_MAX];
    PL_AUTO_FREE char *text = NULL;

    ck_ok(pl_file_read, scratch_path(scratch, name, path), 4096, &text, NULL);
    ck_assert_str_eq(text, expected);
}

TEST(files_directories_and_execute_bits_arrive)
{
    static const struct item items[] = {{"./", AE_IFDIR, NULL, 0755},   {"./train.py", AE_IFREG, "one", 0},
                                        {"sub/", AE_IFDIR, NULL, 0555}, {"sub/run.sh", AE_IFREG, "two", 0755},
                                        {"deep/er/x", AE_IFREG, "", 0}, {"train.py", AE_IFREG, "again", 0}};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    ck_ok(unpack, items, PL_ARRAY_ITEMS(items), &roomy, &scratch);
    ck_content(&scratch, "train.py", "again");
    ck_content(&scratch, "deep/er/x", "");
    ck_assert_int_eq(access(scratch_path(&scratch, "sub/run.sh", path), X_OK), 0);
}

TEST(hard_links_to_files_before_them_become_copies)
{
    static const struct item items[] = {{"sub/run.sh", AE_IFREG, "one", 0755},
                                        {"./copy.sh", AE_IFREG, NULL, 0755, "sub/run.sh"},
                                        {"other/again.sh", AE_IFREG, NULL, 0755, "./copy.sh"},
                                        {"sub/run.sh", AE_IFREG, NULL, 0755, "sub/run.sh"}};
    static const struct item to_directory[] = {{"sub", AE_IFDIR, NULL, 0755}, {"hard", AE_IFREG, NULL, 0, "sub"}};
    const struct pl_unpack_limits small = {.max_bytes = 5, .max_entries = 100};
    struct scratch scratch = scratch_new();
    struct scratch outside = scratch_new();
    char path[PATH_MAX];
    char target[PATH_MAX];

    ck_ok(unpack, items, PL_ARRAY_ITEMS(items), &roomy, &scratch);
    ck_content(&scratch, "copy.sh", "one");
    ck_content(&scratch, "other/again.sh", "one");
    ck_content(&scratch, "sub/run.sh", "one");
    ck_assert_int_eq(access(scratch_path(&scratch, "other/again.sh", path), X_OK), 0);
    ck_fails(PL_LIMIT, "", unpack, items, PL_ARRAY_ITEMS(items), &small, &scratch);
    ck_fails(PL_INVALID, "", unpack, to_directory, PL_ARRAY_ITEMS(to_directory), &roomy, &scratch);
    /* An existing link does not lead outside. */
    scratch_write(&outside, "secret", "x", 1);
    ck_assert_int_eq(symlink(scratch_path(&outside, "secret", target), scratch_path(&scratch, "leak", path)), 0);
    ck_fails(PL_INVALID, "", unpack, &(const struct item){"hard", AE_IFREG, NULL, 0, "leak"}, 1, &roomy, &scratch);
    scratch_done(&scratch);
    scratch_done(&outside);
}

TEST(what_could_leave_the_directory_is_refused)
{
    static const struct {
        struct item item;
        const char *why;
    } cases[] = {
        {{"/etc/evil", AE_IFREG, "x", 0}, "absolute"},
        {{"../evil", AE_IFREG, "x", 0}, "outside"},
        {{"a/../../evil", AE_IFREG, "x", 0}, "outside"},
        {{"a/..", AE_IFDIR, NULL, 0}, "outside"},
        {{"link", AE_IFLNK, "/etc", 0}, "symbolic link"},
        {{"link", AE_IFLNK, "train.py", 0}, "symbolic link"},
        {{"hard", AE_IFREG, NULL, 0, "/etc/passwd"}, "hard link to a name outside"},
        {{"hard", AE_IFREG, NULL, 0, "a/../../evil"}, "hard link to a name outside"},
        {{"hard", AE_IFREG, NULL, 0, "missing"}, "hard link to a name that no earlier file of the archive has"},
        {{"hard", AE_IFREG, NULL, 0, "no/such"}, "hard link to a name that no earlier file of the archive has"},
        {{"hard", AE_IFREG, NULL, 0, "hard"}, "hard link to a name that no earlier file of the archive has"},
        {{"fifo", AE_IFIFO, NULL, 0}, "neither a file nor"},
        {{"dev", AE_IFCHR, NULL, 0}, "neither a file nor"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct scratch scratch = scratch_new();
        struct pl_error error = PL_ERROR_NONE;
        char path[PATH_MAX];

        ck_assert_int_eq(unpack(&cases[i].item, 1, &roomy, &scratch, &error), PL_INVALID);
        ck_assert_msg(strstr(error.cause, cases[i].why), "%s: %s", cases[i].item.name, error.cause);
        ck_assert_int_ne(access(scratch_path(&scratch, "../evil", path), F_OK), 0);
        scratch_done(&scratch);
    }
}

TEST(links_that_are_there_already_are_not_followed)
{
    static const struct item through[] = {{"out/evil", AE_IFREG, "x", 0}};
    static const struct item onto[] = {{"file", AE_IFREG, "new", 0}};
    struct scratch scratch = scratch_new();
    struct scratch outside = scratch_new();
    char path[PATH_MAX];
    char target[PATH_MAX];

    ck_assert_int_eq(symlink(outside.path, scratch_path(&scratch, "out", path)), 0);
    ck_fails(PL_SYSTEM, "", unpack, through, 1, &roomy, &scratch);
    ck_assert_int_ne(access(scratch_path(&outside, "evil", path), F_OK), 0);
    scratch_write(&outside, "kept", "old", 3);
    ck_assert_int_eq(symlink(scratch_path(&outside, "kept", target), scratch_path(&scratch, "file", path)), 0);
    ck_ok(unpack, onto, 1, &roomy, &scratch);
    ck_content(&outside, "kept", "old");
    ck_content(&scratch, "file", "new");
    scratch_done(&scratch);
    scratch_done(&outside);
}

TEST(size_and_count_are_bounded)
{
    static const struct item items[] = {{"a", AE_IFREG, "12345", 0}, {"b", AE_IFREG, "12345", 0}};
    const struct pl_unpack_limits small = {.max_bytes = 9, .max_entries = 10};
    const struct pl_unpack_limits few = {.max_bytes = 100, .max_entries = 1};
    AUTO_SCRATCH struct scratch scratch = scratch_new();

    ck_fails(PL_LIMIT, "", unpack, items, 2, &small, &scratch);
    ck_fails(PL_LIMIT, "", unpack, items, 2, &few, &scratch);
}

TEST(files_and_directories_are_copied_and_a_dangling_link_is_an_error)
{
    struct scratch scratch = scratch_new();
    struct scratch dest = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char path[PATH_MAX];
    int fd = open(dest.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    scratch_write(&scratch, "train.py", "print(1)\n", 9);
    scratch_path(&scratch, "train.py", path);
    ck_assert_int_eq(pl_unpack_source(path, true, fd, &roomy, &error), PL_CORRUPT);
    ck_ok(pl_unpack_source, path, false, fd, &roomy);
    ck_content(&dest, "train.py", "print(1)\n");
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "sub", path), 0755), 0);
    scratch_write(&scratch, "sub/x", "deep", 4);
    ck_assert_int_eq(symlink("sub/x", scratch_path(&scratch, "linked", path)), 0);
    ck_ok(pl_unpack_source, scratch.path, false, fd, &roomy);
    ck_content(&dest, "sub/x", "deep");
    ck_content(&dest, "linked", "deep");
    ck_assert_int_eq(symlink("nowhere", scratch_path(&scratch, "broken", path)), 0);
    ck_assert_int_eq(pl_unpack_source(scratch.path, false, fd, &roomy, &error), PL_SYSTEM);
    ck_assert_int_eq(symlink(".", scratch_path(&scratch, "loop", path)), 0);
    ck_assert_int_ne(pl_unpack_source(scratch.path, false, fd, &roomy, &error), PL_OK);
    close(fd);
    scratch_done(&scratch);
    scratch_done(&dest);
}

UNIT_MAIN("programs/unpack/unpack")
