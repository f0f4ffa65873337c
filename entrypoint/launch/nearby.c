/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for a file in the folders below the one in which it is expected. */
#include "entrypoint/launch/nearby.h"

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 4, ENTRIES_MAX = 5000 };

struct search {
    const char *name;
    size_t entries;
    size_t found;
    char *path;
};

/* Search the folder `name` in `parent_fd`. `folder` is its path from the first folder, such as "src/". */
static void search_folder(struct search *search, int parent_fd, const char *name, const char *folder, int depth)
{
    PL_AUTO_DIRECTORY DIR *directory = pl_file_open_directory(parent_fd, name, O_NOFOLLOW);
    const struct dirent *entry;
    char path[PATH_MAX];
    struct stat info;

    while (directory && search->entries < ENTRIES_MAX && (entry = readdir(directory))) {
        int length = snprintf(path, sizeof(path), "%s%s/", folder, entry->d_name);

        search->entries++;
        if (entry->d_name[0] == '.' || length < 0 || length >= (int)sizeof(path) ||
            fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode) && depth < DEPTH_MAX) {
            search_folder(search, dirfd(directory), entry->d_name, path, depth + 1);
        } else if (S_ISREG(info.st_mode) && strcmp(entry->d_name, search->name) == 0) {
            search->found++;
            memcpy(search->path, path, (size_t)length);
            search->path[length - 1] = '\0';
        }
    }
}

bool pl_nearby_find(const char *directory, const char *wanted, char ret_path[PATH_MAX])
{
    const char *slash = strrchr(wanted, '/');
    struct search search = {.name = slash ? slash + 1 : wanted, .path = ret_path};

    search_folder(&search, AT_FDCWD, directory, "", 0);
    return search.found == 1 && search.entries < ENTRIES_MAX;
}
