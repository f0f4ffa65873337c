/* SPDX-License-Identifier: Apache-2.0 */
/** What this rank has submitted: handles with their operations, and those not yet announced. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_QUEUE_H
#define PL_RUNTIME_NAMED_QUEUE_H

#include "runtime/named/engine.h"

/** PL_OK where pl_named_submit() would take `op`, called `name`, as long as no operation of that name is under way. */
enum pl_status pl_named_check(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** The failure of the world, PL_CANCELLED after a shutdown, else PL_OK. */
enum pl_status pl_named_refuse_ended(const struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

void pl_named_local_free(struct pl_named_local *local);

/** A handle of `members` operations, all of them under way. */
enum pl_status pl_named_queue_open(struct pl_named *named, size_t members, size_t *ret_slot,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Forget the handle with its results; its number may be given out again. */
void pl_named_queue_close(struct pl_named *named, size_t slot);

/** What the program calls the slot, and the slot that it calls so; PL_INVALID: there is none. */
pl_named_handle pl_named_queue_handle(const struct pl_named *named, size_t slot);
enum pl_status pl_named_queue_find(const struct pl_named *named, pl_named_handle handle, size_t *ret_slot,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** From now on `handle` is among the engine's ended slots when it has ended; the caller empties that list. */
void pl_named_set_owner(struct pl_named *named, pl_named_handle handle, void *owner);

/** How many operations were submitted with `handle`; 0 where pl_named_wait() would not know it. */
size_t pl_named_members(const struct pl_named *named, pl_named_handle handle);

/**
 * The name of an operation of this rank that has not ended; NULL: there is none, or none will end any more as the world
 * has failed.
 */
const char *pl_named_under_way(const struct pl_named *named);

/** Let the next round announce `local`. */
void pl_named_queue_push(struct pl_named *named, struct pl_named_local *local);

/** This rank will not announce `local`, if it has not. */
void pl_named_queue_remove(struct pl_named *named, const struct pl_named_local *local);

/** Release handles and operations. */
void pl_named_queue_done(struct pl_named *named);

#endif
