/* SPDX-License-Identifier: Apache-2.0 */
/** A temporary directory of one test, and files in it. Failures end the test. */
#ifndef PL_TESTS_SUPPORT_SCRATCH_H
#define PL_TESTS_SUPPORT_SCRATCH_H

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct scratch {
    char path[PATH_MAX / 4];
};

static inline struct scratch scratch_new(void)
{
    struct scratch scratch;
    const char *base = getenv("TMPDIR");

    snprintf(scratch.path, sizeof(scratch.path), "%s/paceline-test-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(scratch.path));
    return scratch;
}

/** Write "DIR/name" to the caller's buffer. */
static inline char *scratch_path(const struct scratch *scratch, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", scratch->path, name);
    return path;
}

static inline void scratch_write(const struct scratch *scratch, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    FILE *file = fopen(scratch_path(scratch, name, path), "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static inline int scratch_remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline void scratch_done(struct scratch *scratch)
{
    nftw(scratch->path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/** A directory that goes with its variable. */
#define AUTO_SCRATCH __attribute__((cleanup(scratch_done)))

#endif
