/* SPDX-License-Identifier: Apache-2.0 */
/** Tells whether anything was written into a directory between two looks at it. */
#ifndef PL_BASE_CHANGES_H
#define PL_BASE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/** Summary of a directory's contents. At most the first 10,000 entries are examined. */
struct pl_changes {
    size_t entries, files;
    struct timespec newest; /* latest time at which an entry was written, created or moved */
};

/** Looks through `directory`. A directory that does not exist counts as empty. */
void pl_changes_look(const char *directory, struct pl_changes *ret_changes);

/** Whether a file was written, created or moved between the two looks; true if there are too many entries to tell. */
bool pl_changes_since(const struct pl_changes *before, const struct pl_changes *now);

#endif
