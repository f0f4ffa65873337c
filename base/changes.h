/* SPDX-License-Identifier: Apache-2.0 */
/** Whether anything was written into a directory between two looks at it. */
#ifndef PL_BASE_CHANGES_H
#define PL_BASE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/** What is below a directory, which is looked through as far as the first 10,000 entries. */
struct pl_changes {
    size_t entries, files;
    struct timespec newest; /* the latest time at which one was written, made or moved */
};

/** A directory that is not there has no files. */
void pl_changes_look(const char *directory, struct pl_changes *ret_changes);

/** Whether a file was written, made or moved between the two looks; true where there are too many to tell. */
bool pl_changes_since(const struct pl_changes *before, const struct pl_changes *now);

#endif
