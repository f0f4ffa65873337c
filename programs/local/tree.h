/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Writes the tree of a host as SageMaker lays out /opt/ml: the three files of input/config, and the folders.
 *
 * Source  docs/contract.md
 * Test    tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_TREE_H
#define PL_PROGRAMS_LOCAL_TREE_H

#include "programs/local/local.h"

/** Fills the names, trees and groups of all hosts. */
enum pl_status pl_local_tree_name_hosts(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** The name of the lock's file in FOLDER/NAME. */
#define PL_LOCAL_LOCK "lock"

/** Whether the file `name` of the folder `parent_fd` is the one that this call has locked. */
bool pl_local_tree_is_locked(const struct pl_local *local, int parent_fd, const char *name);

/**
 * Removes what an earlier job of this name left: the trees of the hosts and what was fetched. Errors: PL_SYSTEM if
 * something cannot be removed, which would be taken for a part of this job.
 */
enum pl_status pl_local_tree_clear(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the tree of every host. What an earlier run left there is removed; checkpoints stay. */
enum pl_status pl_local_tree_write(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the host `index` gets the channel. */
bool pl_local_tree_has_channel(const struct pl_local *local, size_t index, const struct pl_local_channel *channel);

/** Removes the trees and what the run alone needed. */
void pl_local_tree_remove(const struct pl_local *local);

/** Removes FOLDER/NAME; the lock goes last, so that another call never has it in a folder that goes. */
void pl_local_tree_remove_folder(const struct pl_local *local);

/**
 * Where root runs a job in a folder of another user, FOLDER/NAME becomes this user's, who could not remove it else.
 * Only what root owns is given, and neither devices nor files with a second name, which may lie elsewhere; links are
 * not followed.
 */
void pl_local_tree_give(const struct pl_local *local);

/** The same for the folder `path` alone, without what is in it. */
void pl_local_tree_give_folder(const struct pl_local *local, const char *path);

/**
 * Draws the secret from which several hosts derive their ssh keys. A host in namespaces has it in its own memory only;
 * for containers this writes the file FOLDER/NAME/secret, which they mount.
 */
enum pl_status pl_local_tree_make_secret(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes what calls that do not run any more left of that below `folder`, which holds the folders of all names. */
void pl_local_tree_remove_secrets(const char *folder);

#endif
