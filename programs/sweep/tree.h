/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reads the folders of trials: whether a model can be copied to another place, and which folder fills a disk.
 *
 * Test  tests/unit/programs/sweep/test_tree.c
 */
#ifndef PL_PROGRAMS_SWEEP_TREE_H
#define PL_PROGRAMS_SWEEP_TREE_H

#include "base/status.h"
#include "base/text.h"

#include <sys/stat.h>

struct pl_sweep_tree_entry {
    const char *path; /* path below the root of the walk: "sub/file" */
    const char *name; /* name in `dir_fd` */
    int dir_fd;
    struct stat info; /* describes a symbolic link itself, not its target */
};

typedef enum pl_status (*pl_sweep_tree_visit)(void *context, const struct pl_sweep_tree_entry *entry,
                                              struct pl_error *reterr);

/**
 * Calls `visit` for everything below the folder `root`, a directory before its contents, until it returns an error. If
 * it returns PL_END for a directory, the walk leaves out its contents. A folder that does not exist counts as empty;
 * files that disappear during the walk are skipped.
 */
enum pl_status pl_sweep_tree_walk(const char *root, pl_sweep_tree_visit visit, void *context,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Checks that the model in the folder `path` can be the job's model. `*ret_empty` tells whether there is none. Symbolic
 * links may lead to files of the model, also by absolute paths below `seen_as`, the path of the model inside its trial.
 *
 * Errors  PL_INVALID with the name of a socket, a FIFO, a device, or a link that leads out of the folder.
 */
enum pl_status pl_sweep_tree_check_model(const char *path, const char *seen_as, bool *ret_empty,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/**
 * If the disk of `folder` has less than `least_bytes` free, appends that it is full, and which entry of the folder uses
 * most of it.
 */
void pl_sweep_tree_describe_full(const char *folder, int64_t least_bytes, struct pl_text *text);

#endif
