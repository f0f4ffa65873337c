/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Process sets: numbered groups of ranks, each with a world and named tensors of its own. Set 0 is the whole world.
 * Sets can be added and removed at any time. There is no order between sets: a rank that waits for one set's operation
 * advances those of its other sets, so that ranks may wait for several sets in different orders; polling counts as
 * waiting.
 *
 * Threads one thread at a time for all sets together.
 * Source  Horovod's process sets, for the programming model.
 * Test    tests/unit/runtime/named/test_process_set.c
 */
#ifndef PL_RUNTIME_PROCESS_SET_H
#define PL_RUNTIME_PROCESS_SET_H

#include "runtime/named.h"

struct pl_process_sets;

/** A set, until it is removed. */
struct pl_process_set {
    int count;
    int *ranks; /* [count], ranks of the whole world in the set's order */
    /* Rank numbers in these, roots too, are those of the set. NULL: this rank is no member. */
    struct pl_world *world;
    struct pl_named *named;
};

/**
 * Start with set 0, which is `world`; `world` must outlive the sets. `options` are for every set's named tensors and
 * may be NULL.
 */
enum pl_status pl_process_sets_new(struct pl_world *world, const struct pl_named_options *options,
                                   struct pl_process_sets **ret_sets, struct pl_error *reterr) PL_MUST_CHECK;

/** Release all sets without waiting. NULL is fine. */
void pl_process_sets_free(struct pl_process_sets *sets);

/**
 * Add a set of the `count` ranks listed; rank i of the set is ranks[i]. The number is the lowest that is free, 1 at
 * least.
 *
 * Collective  over the whole world, members or not, while nothing is under way in set 0. All ranks give the same list.
 *             Other sets are not advanced in here: an operation of another set must be finished, before this call,
 *             either by all ranks of that set or by none.
 * Errors      on all ranks: PL_INVALID (empty list, unknown or repeated rank, a set of these ranks in this order exists
 *             and its number is named), PL_MISMATCH (different lists, naming two ranks), the failure of one rank,
 *             naming that rank (no memory, a sub-world that cannot be made). Nothing was added then.
 */
enum pl_status pl_process_sets_add(struct pl_process_sets *sets, const int *ranks, int count, int *ret_set,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Remove a set with its world, over which nothing may be left (plans, say); its number may be given out again.
 *
 * Collective  over the whole world as pl_process_sets_add().
 * Errors      PL_INVALID on all ranks: set 0, no such set, or an operation that is under way in it on some rank, naming
 *             both.
 */
enum pl_status pl_process_sets_remove(struct pl_process_sets *sets, int set, struct pl_error *reterr) PL_MUST_CHECK;

/** Numbers in use, ascending: up to `room` of them in `ret_sets`; returns how many there are. */
int pl_process_sets_list(const struct pl_process_sets *sets, int *ret_sets, int room);

/** The set of these ranks in this order; -1: there is none. */
int pl_process_sets_find(const struct pl_process_sets *sets, const int *ranks, int count);

/** Finds set `set`. PL_INVALID when there is no such set. Any rank may ask. */
enum pl_status pl_process_set_get(const struct pl_process_sets *sets, int set, const struct pl_process_set **ret_set,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** The set's named tensors. PL_INVALID: unknown set, or this rank is no member. */
enum pl_status pl_process_set_named(const struct pl_process_sets *sets, int set, struct pl_named **ret_named,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
