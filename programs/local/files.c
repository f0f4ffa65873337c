/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the files below a folder. */
#include "programs/local/files.h"

#include "base/memory.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

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

static void close_walk(FTS **walk_at)
{
    if (*walk_at) {
        fts_close(*walk_at);
    }
}

static enum pl_status add_entry(const FTSENT *entry, size_t below, bool all, struct pl_local_files *files,
                                struct pl_error *reterr)
{
    switch (entry->fts_info) {
    case FTS_D:
        return all && entry->fts_level > 0 ? pl_local_files_add(files, entry->fts_path + below, reterr) : PL_OK;
    case FTS_DP:
        return PL_OK;
    case FTS_F:
    case FTS_SL:
        return pl_local_files_add(files, entry->fts_path + below, reterr);
    case FTS_DEFAULT:
        return note_other(files, entry->fts_path + below, reterr);
    case FTS_DC:
        return pl_error_set(reterr, PL_LIMIT, "'%s' is a symbolic link that leads back to a folder above it",
                            entry->fts_path);
    default:
        errno = entry->fts_errno ? entry->fts_errno : ENOENT; /* a link that leads nowhere has none */
        return pl_error_errno(reterr, "read '%s'", entry->fts_path);
    }
}

static int by_bytes(const void *a, const void *b)
{
    char *const *first = a, *const *second = b;

    return strcmp(*first, *second);
}

enum pl_status pl_local_files_list(const char *folder, bool all, struct pl_local_files *files, struct pl_error *reterr)
{
    char *const roots[] = {(char *)(uintptr_t)folder, NULL};
    __attribute__((cleanup(close_walk))) FTS *walk =
        fts_open(roots, FTS_NOCHDIR | FTS_COMFOLLOW | (all ? FTS_PHYSICAL : FTS_LOGICAL), NULL);

    if (!walk) {
        return pl_error_errno(reterr, "open the folder '%s'", folder);
    }
    errno = 0;
    for (const FTSENT *entry; (entry = fts_read(walk)); errno = 0) {
        PL_TRY(add_entry(entry, strlen(folder) + 1, all, files, reterr));
    }
    if (errno != 0) {
        return pl_error_errno(reterr, "read '%s'", folder);
    }
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
