/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for a file in the folders below the one in which it is expected. */
#include "entrypoint/launch/nearby.h"

#include "base/file.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 4, ENTRIES_MAX = 5000 };

enum { NAMES_MAX = 5, NAME_BYTES = 80, FAR_EDITS = 3 };

struct near {
    unsigned edits; /* the distance of its last name from the wanted one, at most FAR_EDITS + 1 */
    char path[NAME_BYTES];
};

struct search {
    const char *name;
    size_t entries;
    size_t found;
    char *path;
    struct near nearest[NAMES_MAX]; /* sorted */
    size_t nearest_count;
    bool is_cut; /* there are more */
};

/* Keep the file if it is one of the nearest. */
static void add_near(struct search *search, const char *name, const char *path, size_t path_bytes)
{
    struct near near = {.edits = pl_text_distance(search->name, name, FAR_EDITS)};
    size_t at = search->nearest_count;

    if (path_bytes >= NAME_BYTES) {
        return;
    }
    memcpy(near.path, path, path_bytes);
    while (at > 0 &&
           (search->nearest[at - 1].edits > near.edits ||
            (search->nearest[at - 1].edits == near.edits && strcmp(search->nearest[at - 1].path, near.path) > 0))) {
        at--;
    }
    search->is_cut = search->is_cut || search->nearest_count == NAMES_MAX;
    if (at == NAMES_MAX) {
        return;
    }
    search->nearest_count += search->nearest_count < NAMES_MAX;
    memmove(search->nearest + at + 1, search->nearest + at, (search->nearest_count - at - 1) * sizeof(near));
    search->nearest[at] = near;
}

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
        } else if (S_ISREG(info.st_mode)) {
            add_near(search, entry->d_name, path, (size_t)length - 1);
            if (strcmp(entry->d_name, search->name) == 0) {
                search->found++;
                memcpy(search->path, path, (size_t)length);
                search->path[length - 1] = '\0';
            }
        }
    }
}

void pl_nearby_describe(const char *directory, const char *wanted, struct pl_text *text)
{
    const char *slash = strrchr(wanted, '/');
    char path[PATH_MAX];
    struct search search = {.name = slash ? slash + 1 : wanted, .path = path};

    search_folder(&search, AT_FDCWD, directory, "", 0);
    if (search.found == 1 && search.entries < ENTRIES_MAX) {
        pl_text_printf(text, "the code directory has '%.200s': use that path", path);
        return;
    }
    for (size_t i = 0; i < search.nearest_count; i++) {
        pl_text_printf(text, "%s'%s'", i == 0 ? "the code directory has " : ", ", search.nearest[i].path);
    }
    pl_text_append(text, search.is_cut ? " and others" : "");
}
