/* SPDX-License-Identifier: Apache-2.0 */
/** Tells whether a directory was written to between two looks at it. */
#ifndef PL_BASE_CHANGES_H
#define PL_BASE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/** Summary of a directory. It covers at most the first 10,000 entries. */
struct pl_changes {
    size_t entries, files;
    struct timespec newest; /* latest time at which an entry was written, created or moved */
};

/** Summarises `directory`. A missing directory counts as empty. */
void pl_changes_look(const char *directory, struct pl_changes *ret_changes);

/** Returns whether a file was written, created or moved between the two looks; true if there are too many entries. */
bool pl_changes_since(const struct pl_changes *before, const struct pl_changes *now);

#endif
