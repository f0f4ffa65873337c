/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What lies in a trial's folders: whether a model can be carried, and who has most of a disk.
 *
 * Test  tests/unit/programs/sweep/test_tree.c
 */
#ifndef PL_PROGRAMS_SWEEP_TREE_H
#define PL_PROGRAMS_SWEEP_TREE_H

#include "base/status.h"
#include "base/text.h"

#include <sys/stat.h>

struct pl_sweep_tree_entry {
    const char *path; /* from the walk's beginning: "sub/file" */
    const char *name; /* in `dir_fd` */
    int dir_fd;
    struct stat info; /* of a link itself */
};

typedef enum pl_status (*pl_sweep_tree_visit)(void *context, const struct pl_sweep_tree_entry *entry,
                                              struct pl_error *reterr);

/** Call `visit` for all that is below the folder `root`, a directory before what is in it, until it returns an error;
 * after PL_END not for what is in this directory. A folder that is not there has nothing; what goes away meanwhile is
 * passed over. */
enum pl_status pl_sweep_tree_walk(const char *root, pl_sweep_tree_visit visit, void *context,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether the model in the folder `path` can be the result; `*ret_empty`: there is none. Links may lead to what is in
 * it, by absolute paths below `seen_as`, the path under which its trial had it.
 *
 * Errors  PL_INVALID naming a socket, a FIFO, a device, or a link that leads outside.
 */
enum pl_status pl_sweep_tree_check_model(const char *path, const char *seen_as, bool *ret_empty,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/** Where the disk of `folder` has less than `least_bytes` free, append that it is full, and which entry of the folder
 * has most of it. */
void pl_sweep_tree_describe_full(const char *folder, int64_t least_bytes, struct pl_text *text);

#endif
