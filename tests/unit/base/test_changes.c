/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/changes.c. */
#include "base/changes.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <unistd.h>

/* Wait until the clock of the file system has advanced, so that the next write has a later time. */
static void pass_time(const struct scratch *scratch, const struct timespec *newest)
{
    struct stat info;
    char path[PATH_MAX];

    do {
        scratch_write(scratch, "clock", "", 0);
        ck_assert_int_eq(stat(scratch_path(scratch, "clock", path), &info), 0);
    } while (info.st_ctim.tv_sec == newest->tv_sec && info.st_ctim.tv_nsec == newest->tv_nsec);
}

TEST(only_what_was_written_made_or_moved_since_counts)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_changes before, now;
    char model[PATH_MAX], path[PATH_MAX], other[PATH_MAX];

    scratch_path(&scratch, "model", model);
    pl_changes_look(model, &before); /* not there */
    ck_assert_uint_eq(before.files, 0);
    ck_assert_int_eq(mkdir(model, 0700), 0);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "model/1", path), 0700), 0);
    pl_changes_look(model, &now);
    ck_assert_uint_eq(now.files, 0);
    ck_assert(!pl_changes_since(&before, &now));
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"model/1/weights", "model/1/weights", "moved"};

        pass_time(&scratch, &now.newest);
        scratch_write(&scratch, names[i], "bytes", 5);
        if (i == 2) { /* an old file that is moved to a new place */
            pass_time(&scratch, &now.newest);
            ck_assert_int_eq(rename(scratch_path(&scratch, "moved", path), scratch_path(&scratch, "model/2", other)),
                             0);
        }
        pl_changes_look(model, &now);
        ck_assert(pl_changes_since(&before, &now));
        before = now;
        pl_changes_look(model, &now);
        ck_assert(!pl_changes_since(&before, &now));
    }
    ck_assert_int_eq(unlink(other), 0);
    pl_changes_look(model, &now);
    ck_assert(now.files == 1 && !pl_changes_since(&before, &now));
}

UNIT_MAIN("base/changes")
