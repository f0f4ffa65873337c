/* SPDX-License-Identifier: Apache-2.0 */
/* Summarises a directory by its entries' times of change (ctime). */
#include "base/changes.h"

#include "base/file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_ENTRIES = 10000 };

static bool is_later(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec > than->tv_sec || (time->tv_sec == than->tv_sec && time->tv_nsec > than->tv_nsec);
}

/* Uses the time of the last change, which only the kernel sets: cp -p, tar and others set a file's other times. */
static void look_below(int parent_fd, const char *name, int flags, struct pl_changes *changes)
{
    PL_AUTO_DIRECTORY DIR *directory = pl_file_open_directory(parent_fd, name, flags);
    const struct dirent *entry;
    struct stat info;

    while (directory && changes->entries < MOST_ENTRIES && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        changes->entries++;
        if (S_ISDIR(info.st_mode)) {
            look_below(dirfd(directory), entry->d_name, O_NOFOLLOW, changes);
        } else if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) {
            changes->files++;
            changes->newest = is_later(&info.st_ctim, &changes->newest) ? info.st_ctim : changes->newest;
        }
    }
}

void pl_changes_look(const char *directory, struct pl_changes *ret_changes)
{
    *ret_changes = (struct pl_changes){.entries = 0};
    look_below(AT_FDCWD, directory, 0, ret_changes);
}

bool pl_changes_since(const struct pl_changes *before, const struct pl_changes *now)
{
    return now->entries >= MOST_ENTRIES || is_later(&now->newest, &before->newest);
}
