/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the files below a folder. */
#include "programs/local/files.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_DEPTH = 64 }; /* a link to a folder above would never end */

enum pl_status pl_local_files_add(struct pl_local_files *files, const char *path, struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&files->paths, &files->capacity, files->count + 1, sizeof(*files->paths), reterr));
    files->paths[files->count] = pl_memory_string(path, reterr);
    PL_TRY(files->paths[files->count] ? PL_OK : PL_MEMORY);
    files->count++;
    return PL_OK;
}

static enum pl_status note_other(struct pl_local_files *files, const char *path, struct pl_error *reterr)
{
    if (files->others++ == 0) {
        files->other = pl_memory_string(path, reterr);
    }
    return files->other ? PL_OK : PL_MEMORY;
}

/* `path` is the folder, `below` the length of the part of it that the names do not have. */
static enum pl_status list(struct pl_text *path, size_t below, bool all, int depth, struct pl_local_files *files,
                           struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(path->data);
    const size_t length = path->length;
    const struct dirent *entry;

    if (!directory) {
        return pl_error_errno(reterr, "open the folder '%s'", path->data);
    }
    if (depth > MOST_DEPTH) {
        return pl_error_set(reterr, PL_LIMIT, "'%s' is more than %d folders deep; a symbolic link may lead back",
                            path->data, (int)MOST_DEPTH);
    }
    while ((entry = readdir(directory))) {
        struct stat info;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        pl_text_printf(path, "/%s", entry->d_name);
        PL_TRY(pl_text_check(path, reterr));
        if ((all ? lstat(path->data, &info) : stat(path->data, &info)) != 0) {
            return pl_error_errno(reterr, "read '%s'", path->data);
        }
        if (S_ISDIR(info.st_mode)) {
            if (all) {
                PL_TRY(pl_local_files_add(files, path->data + below, reterr));
            }
            PL_TRY(list(path, below, all, depth + 1, files, reterr));
        } else if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) {
            PL_TRY(pl_local_files_add(files, path->data + below, reterr));
        } else {
            PL_TRY(note_other(files, path->data + below, reterr));
        }
        path->length = length;
        path->data[length] = '\0';
    }
    return PL_OK;
}

static int by_bytes(const void *a, const void *b)
{
    char *const *first = a, *const *second = b;

    return strcmp(*first, *second);
}

enum pl_status pl_local_files_list(const char *folder, bool all, struct pl_local_files *files, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_append(&path, folder);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(list(&path, path.length + 1, all, 0, files, reterr));
    if (files->count > 0) {
        qsort(files->paths, files->count, sizeof(*files->paths), by_bytes);
    }
    return PL_OK;
}

void pl_local_files_done(struct pl_local_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->paths[i]);
    }
    free(files->paths);
    free(files->other);
    *files = PL_LOCAL_FILES_NONE;
}
