/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/journal_file.c. */
#include "base/file.h"
#include "programs/sweep/journal_file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <sys/syscall.h>

static int failing_sync; /* the number of the next fdatasync() that fails, or 0 */

/* Stands for the C library's: syncs the data of a file, or fails as a disk quota or NFS does. */
int fdatasync(int fd)
{
    if (failing_sync > 0 && --failing_sync == 0) {
        errno = EDQUOT;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

static enum pl_status write_line(struct pl_journal_file *file, int number, bool to_disk, struct pl_error *error)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_printf(&line, "{\"line\": %d", number);
    return pl_journal_file_write(file, &line, to_disk, error);
}

START_TEST(a_line_whose_sync_fails_is_not_there_and_may_be_written_again)
{
    struct scratch scratch = scratch_new();
    char path[PATH_MAX], expected[64];
    struct pl_journal_file file = {.fd = -1, .path = path};
    struct pl_journal_line line = {.stream = NULL};
    struct pl_error error = PL_ERROR_NONE;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(pl_journal_file_take(&file, 0, &error), &error);
    ck_assert_ok(write_line(&file, 1, true, &error), &error);
    ck_assert_ok(write_line(&file, 2, false, &error), &error); /* a line that does not wait for the disk stays */
    failing_sync = 1;
    ck_assert_int_eq(write_line(&file, 3, true, &error), PL_SYSTEM);
    ck_assert_int_eq(error.code, EDQUOT);
    ck_assert_ok(write_line(&file, 3, true, &error), &error);
    ck_assert_ok(pl_journal_line_open(&file, &line, &error), &error);
    for (int i = 1; i <= 3; i++) {
        ck_assert_ok(pl_journal_line_next(&file, &line, &error), &error);
        snprintf(expected, sizeof(expected), "{\"line\": %d}", i);
        ck_assert_uint_eq(line.bytes, strlen(expected));
        ck_assert_int_eq(memcmp(line.text, expected, line.bytes), 0);
    }
    ck_assert_int_eq(pl_journal_line_next(&file, &line, &error), PL_END);
    pl_journal_line_done(&line);
    pl_file_close_at(&file.fd);
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/sweep/journal_file", a_line_whose_sync_fails_is_not_there_and_may_be_written_again)
