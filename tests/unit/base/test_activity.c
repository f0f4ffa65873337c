/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/activity.c. */
#include "base/activity.h"

#include "tests/support/unit.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static void set_up(void)
{
    char folder[] = "/tmp/paceline-test-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/activity", folder);
}

static void tear_down(void)
{
    unlink(path);
    rmdir(dirname(path));
}

TEST(what_another_process_counts_is_seen)
{
    struct pl_activity activity = {.counters = NULL};
    pid_t child;
    int status;

    set_up();
    ck_assert_uint_eq(pl_activity_sum(&activity), 0);
    ck_ok(pl_activity_new, path, &activity);
    ck_assert_uint_eq(pl_activity_sum(&activity), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (setenv(PL_ACTIVITY_VARIABLE, path, 1) != 0) {
            _exit(1);
        }
        for (int i = 0; i < 5; i++) {
            pl_activity_start();
            pl_activity_note();
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(pl_activity_sum(&activity), 5);
    pl_activity_note(); /* the counter of this process, which has no file */
    ck_assert_uint_eq(pl_activity_sum(&activity), 5);
    pl_activity_done(&activity);
    tear_down();
}

TEST(a_file_that_is_none_is_refused)
{
    struct pl_activity activity = {.counters = NULL};
    FILE *file;

    set_up();
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fputs("short", file) >= 0 && fclose(file) == 0, 1);
    ck_fails(PL_CORRUPT, "5 bytes, expected 65536", pl_activity_use, path);
    /* a file that somebody else has made is never used */
    ck_fails(PL_SYSTEM, "", pl_activity_new, path, &activity);
    ck_assert_int_eq(unlink(path), 0);
    ck_fails(PL_SYSTEM, "", pl_activity_use, path);
    tear_down();
}

UNIT_MAIN("base/activity")
