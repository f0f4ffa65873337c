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

/** Writes the tree of every host. What an earlier run left there is removed; checkpoints stay. */
enum pl_status pl_local_tree_write(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the host `index` gets the channel. */
bool pl_local_tree_has_channel(const struct pl_local *local, size_t index, const struct pl_local_channel *channel);

/** Removes the trees and what the run alone needed. */
void pl_local_tree_remove(const struct pl_local *local);

#endif
