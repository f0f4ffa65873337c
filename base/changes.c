/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a directory, by the times that its file system keeps. */
#include "base/changes.h"

#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILES = 10000 };

static bool is_later(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec > than->tv_sec || (time->tv_sec == than->tv_sec && time->tv_nsec > than->tv_nsec);
}

/* The time of the last change is the kernel's: programs that set times, as cp -p and tar do, leave it alone. */
void pl_changes_look(const char *directory, struct pl_changes *ret_changes)
{
    char *copy = strdup(directory);
    FTS *walk =
        copy != NULL ? fts_open((char *const[]){copy, NULL}, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL) : NULL;
    const FTSENT *entry;

    *ret_changes = (struct pl_changes){.count = 0};
    while (walk != NULL && ret_changes->count < MOST_FILES && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info == FTS_F || entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE) {
            ret_changes->count++;
            if (is_later(&entry->fts_statp->st_ctim, &ret_changes->newest)) {
                ret_changes->newest = entry->fts_statp->st_ctim;
            }
        }
    }
    if (walk != NULL) {
        (void)fts_close(walk);
    }
    free(copy);
}

bool pl_changes_since(const struct pl_changes *before, const struct pl_changes *now)
{
    return now->count >= MOST_FILES || is_later(&now->newest, &before->newest);
}
