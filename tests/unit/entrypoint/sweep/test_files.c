/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/sweep/files.c. */
#include "entrypoint/sweep/files.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <sys/syscall.h>

static bool writes_fail;

/* The C library's, but for network file systems, which may report a failed write at last. */
int close(int fd)
{
    (void)syscall(SYS_close, fd);
    errno = EIO;
    return writes_fail ? -1 : 0;
}

/* All of `from` to `to`, through the text of a frame. */
static enum pl_status move(const char *from, const char *to, bool in_place, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_files_piece *piece = pl_memory_new(1, sizeof(*piece), reterr);
    struct pl_files_reader *reader = NULL;
    struct pl_files_writer *writer = NULL;
    enum pl_status status = pl_files_reader_open(from, &reader, reterr);
    bool ended = false;

    ck_assert_ptr_nonnull(piece);
    status = status == PL_OK ? pl_files_writer_open(to, in_place, &writer, reterr) : status;
    while (status == PL_OK && !ended) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        status = pl_files_read(reader, piece, reterr);
        pl_files_encode(piece->data, piece->bytes, &text);
        memset(piece->data, 0, sizeof(piece->data));
        ck_assert_uint_lt(text.length, 100000); /* it fits into a frame */
        status = status == PL_OK ? pl_files_decode(pl_text_string(&text), piece, reterr) : status;
        status = status == PL_OK ? pl_files_write(writer, piece, reterr) : status;
        ended = piece->path.length == 0;
    }
    pl_files_reader_free(reader);
    pl_files_writer_free(writer);
    pl_files_piece_done(piece);
    return status;
}

static void check_same(const struct scratch *scratch, const char *name, const char *other)
{
    PL_AUTO_FREE char *left = NULL;
    PL_AUTO_FREE char *right = NULL;
    struct pl_error error = PL_ERROR_NONE;
    size_t left_bytes, right_bytes;
    char path[PATH_MAX];

    ck_assert_ok(pl_file_read(scratch_path(scratch, name, path), 1 << 24, &left, &left_bytes, &error), &error);
    ck_assert_ok(pl_file_read(scratch_path(scratch, other, path), 1 << 24, &right, &right_bytes, &error), &error);
    ck_assert_uint_eq(left_bytes, right_bytes);
    ck_assert_mem_eq(left, right, left_bytes);
}

static void make(const struct scratch *scratch, const char *name, size_t bytes)
{
    PL_AUTO_FREE char *data = pl_memory_new(bytes + 1, 1, NULL);

    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (char)(i * 31 + i / 251);
    }
    scratch_write(scratch, name, data, bytes);
}

START_TEST(a_folder_arrives_whole_and_takes_the_place_of_another)
{
    struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char from[PATH_MAX], to[PATH_MAX], path[PATH_MAX];
    struct stat info;

    ck_assert_ok(pl_file_make_dirs(scratch_path(&scratch, "from/deep/empty", path), 0755, &error), &error);
    ck_assert_ok(pl_file_make_dirs(scratch_path(&scratch, "to", path), 0755, &error), &error);
    make(&scratch, "to/old", 5);
    make(&scratch, "from/none", 0);
    make(&scratch, "from/one", 1);
    make(&scratch, "from/piece", PL_FILES_PIECE_BYTES);
    make(&scratch, "from/deep/more", PL_FILES_PIECE_BYTES * 2 + 2);
    ck_assert_int_eq(chmod(scratch_path(&scratch, "from/one", path), 0700), 0);
    ck_assert_int_eq(symlink("/etc/passwd", scratch_path(&scratch, "from/link", path)), 0);
    ck_assert_ok(move(scratch_path(&scratch, "from", from), scratch_path(&scratch, "to", to), false, &error), &error);
    check_same(&scratch, "from/none", "to/none");
    check_same(&scratch, "from/one", "to/one");
    check_same(&scratch, "from/piece", "to/piece");
    check_same(&scratch, "from/deep/more", "to/deep/more");
    ck_assert_int_eq(stat(scratch_path(&scratch, "to/one", path), &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0700);
    ck_assert_int_eq(stat(scratch_path(&scratch, "to/deep/empty", path), &info), 0);
    ck_assert_int_ne(lstat(scratch_path(&scratch, "to/link", path), &info), 0);
    ck_assert_int_ne(lstat(scratch_path(&scratch, "to/old", path), &info), 0);
    ck_assert_int_ne(lstat(scratch_path(&scratch, "to.incoming", path), &info), 0);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_folder_that_did_not_arrive_whole_takes_no_place)
{
    struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char from[PATH_MAX], to[PATH_MAX], path[PATH_MAX];

    ck_assert_int_eq(mkdir(scratch_path(&scratch, "from", from), 0755), 0);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "to", to), 0755), 0);
    make(&scratch, "from/only", 5);
    make(&scratch, "to/old", 5);
    writes_fail = true;
    ck_assert_int_eq(move(from, to, false, &error), PL_SYSTEM);
    writes_fail = false;
    ck_assert_ptr_nonnull(strstr(error.cause, "to.incoming/only"));
    ck_assert_int_eq(access(scratch_path(&scratch, "to/old", path), F_OK), 0);
    ck_assert_int_ne(access(scratch_path(&scratch, "to.incoming", path), F_OK), 0);
    scratch_done(&scratch);
}
END_TEST

START_TEST(in_place_what_is_there_stays)
{
    struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char from[PATH_MAX], to[PATH_MAX], path[PATH_MAX];
    struct stat info;

    ck_assert_int_eq(mkdir(scratch_path(&scratch, "from", path), 0755), 0);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "to", path), 0755), 0);
    make(&scratch, "from/new", 70000);
    make(&scratch, "to/old", 5);
    ck_assert_ok(move(scratch_path(&scratch, "from", from), scratch_path(&scratch, "to", to), true, &error), &error);
    check_same(&scratch, "from/new", "to/new");
    ck_assert_int_eq(stat(scratch_path(&scratch, "to/old", path), &info), 0);
    ck_assert_ok(move(scratch_path(&scratch, "no such folder", from), to, true, &error), &error); /* an empty one */
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_path_that_leads_out_of_the_folder_is_refused)
{
    static const char *const paths[] = {"../x", "/etc/x", "a/../../x", "a//x", ".", "a/.."};
    struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE struct pl_files_piece *piece = pl_memory_new(1, sizeof(*piece), &error);
    struct pl_files_writer *writer = NULL;
    char path[PATH_MAX];

    ck_assert_ptr_nonnull(piece);
    piece->mode = S_IFREG | 0644;
    ck_assert_ok(pl_files_writer_open(scratch_path(&scratch, "to", path), true, &writer, &error), &error);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(paths); i++) {
        pl_text_clear(&piece->path);
        pl_text_append(&piece->path, paths[i]);
        ck_assert_int_eq(pl_files_write(writer, piece, &error), PL_INVALID);
    }
    pl_files_writer_free(writer);
    pl_files_piece_done(piece);
    scratch_done(&scratch);
}
END_TEST

START_TEST(what_is_no_base64_is_refused)
{
    static const char *const texts[] = {"A", "AAA", "A===", "====", "AA=A", "AA==AAAA", "A*AA", "AA\nA"};
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE struct pl_files_piece *piece = pl_memory_new(1, sizeof(*piece), &error);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_ptr_nonnull(piece);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(texts); i++) {
        ck_assert_msg(pl_files_decode(texts[i], piece, &error) == PL_CORRUPT, "'%s' is taken", texts[i]);
    }
    for (size_t i = 0; i < PL_FILES_PIECE_BYTES + 3; i += 3) {
        pl_text_append(&text, "AAAA");
    }
    ck_assert_int_eq(pl_files_decode(pl_text_string(&text), piece, &error), PL_CORRUPT);
    pl_text_clear(&text);
    pl_files_encode("Many hands", 10, &text);
    ck_assert_str_eq(pl_text_string(&text), "TWFueSBoYW5kcw==");
    ck_assert_ok(pl_files_decode("", piece, &error), &error);
    ck_assert_uint_eq(piece->bytes, 0);
}
END_TEST

UNIT_MAIN("entrypoint/sweep/files", a_folder_arrives_whole_and_takes_the_place_of_another,
          a_folder_that_did_not_arrive_whole_takes_no_place, in_place_what_is_there_stays,
          a_path_that_leads_out_of_the_folder_is_refused, what_is_no_base64_is_refused)
