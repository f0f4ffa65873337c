/* SPDX-License-Identifier: Apache-2.0 */
/* Names a checkpoint's files and lists those of a directory. */
#include "runtime/checkpoint/checkpoint_names.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP_DIGITS = 12 };

void pl_checkpoint_name(char name[PL_CHECKPOINT_NAME_BYTES], uint64_t step, const char *suffix)
{
    snprintf(name, PL_CHECKPOINT_NAME_BYTES, "checkpoint-%0*llu.%s", STEP_DIGITS, (unsigned long long)step, suffix);
}

/*
 * Reads the step of a name: "checkpoint-000000000123.json" has step 123 and the suffix "json". A name with any other
 * spelling of the number belongs to the program.
 */
static bool step_of(const char *name, const char *suffix, uint64_t *ret_step)
{
    char ours[PL_CHECKPOINT_NAME_BYTES];

    if (strncmp(name, "checkpoint-", 11) != 0) {
        return false;
    }
    *ret_step = strtoull(name + 11, NULL, 10);
    pl_checkpoint_name(ours, *ret_step, suffix);
    return strcmp(name, ours) == 0;
}

/* Whether a checkpoint's data have no JSON file. The run was killed between writing or removing the two. */
static bool is_half(int dir_fd, const char *name)
{
    char record[PL_CHECKPOINT_NAME_BYTES];
    uint64_t step;

    if (!step_of(name, "safetensors", &step)) {
        return false;
    }
    pl_checkpoint_name(record, step, "json");
    return faccessat(dir_fd, record, F_OK, 0) != 0 && errno == ENOENT;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return left < right ? 1 : left > right ? -1 : 0;
}

enum pl_status pl_checkpoint_steps(const char *path, bool clean, uint64_t **ret_steps, size_t *ret_count,
                                   struct pl_error *reterr)
{
    DIR *directory = opendir(path);
    PL_AUTO_FREE uint64_t *steps = NULL;
    const struct dirent *entry;
    enum pl_status status = PL_OK;
    size_t count = 0, capacity = 0;

    if (!directory) {
        return pl_error_errno(reterr, "open directory '%s'", path);
    }
    while (status == PL_OK) {
        uint64_t step;

        errno = 0;
        entry = readdir(directory);
        if (!entry) {
            status = errno == 0 ? PL_OK : pl_error_errno(reterr, "read directory '%s'", path);
            break;
        }
        if (clean && (strncmp(entry->d_name, ".checkpoint-", 12) == 0 || is_half(dirfd(directory), entry->d_name))) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
        if (step_of(entry->d_name, "json", &step)) {
            status = pl_memory_grow(&steps, &capacity, count + 1, sizeof(*steps), reterr);
            if (status == PL_OK) {
                steps[count++] = step;
            }
        }
    }
    closedir(directory);
    if (status != PL_OK) {
        return status;
    }
    if (count > 0) {
        qsort(steps, count, sizeof(*steps), newest_first);
    }
    *ret_steps = PL_TAKE(steps);
    *ret_count = count;
    return PL_OK;
}
