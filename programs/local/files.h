/* SPDX-License-Identifier: Apache-2.0 */
/** The files below a folder, sorted as S3 sorts the keys of objects: by bytes. */
#ifndef PL_PROGRAMS_LOCAL_FILES_H
#define PL_PROGRAMS_LOCAL_FILES_H

#include "base/status.h"

#include <stddef.h>

struct pl_local_files {
    char **paths; /* below the folder: "sub/file" */
    size_t count, capacity;
};

#define PL_LOCAL_FILES_NONE ((struct pl_local_files){.paths = NULL})
#define PL_AUTO_LOCAL_FILES __attribute__((cleanup(pl_local_files_done)))

/** Adds the regular files below `folder`; with `links` symbolic links too, which are not followed then. */
enum pl_status pl_local_files_list(const char *folder, bool links, struct pl_local_files *files,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Adds one name. */
enum pl_status pl_local_files_add(struct pl_local_files *files, const char *path,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_local_files_done(struct pl_local_files *files);

#endif
