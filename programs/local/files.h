/* SPDX-License-Identifier: Apache-2.0 */
/** The files below a folder, sorted as S3 sorts the keys of objects: by bytes. */
#ifndef PL_PROGRAMS_LOCAL_FILES_H
#define PL_PROGRAMS_LOCAL_FILES_H

#include "base/status.h"

#include <stddef.h>

struct pl_local_files {
    char **paths; /* below the folder: "sub/file" */
    size_t count, capacity;
    char *other; /* the first one that is neither of these, a FIFO for instance; NULL: none */
    size_t others;
};

#define PL_LOCAL_FILES_NONE ((struct pl_local_files){.paths = NULL})
#define PL_AUTO_LOCAL_FILES __attribute__((cleanup(pl_local_files_done)))

/**
 * Adds the regular files below `folder`; with `all` folders and symbolic links too, which are not followed then. A
 * folder precedes what is in it.
 */
enum pl_status pl_local_files_list(const char *folder, bool all, struct pl_local_files *files,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Adds one name. */
enum pl_status pl_local_files_add(struct pl_local_files *files, const char *path,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_local_files_done(struct pl_local_files *files);

#endif
