/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Batches in device memory: many small reductions are fused into one request. Nothing here waits for the device or for
 * other ranks. Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_DEVICE_H
#define PL_RUNTIME_NAMED_DEVICE_H

#include "runtime/named/engine.h"

/** Whether the entry is to be fused with others of its kind. */
bool pl_named_device_packs(const struct pl_named_entry *entry);

/** Returns how many bytes of a buffer the entry takes. */
uint64_t pl_named_device_packed_bytes(const struct pl_named_entry *entry);

/**
 * Queues a batch of one operation; `collective` is what is to be posted, without buffers that the engine provides.
 * Takes the memory `*counts`, if there is any.
 */
enum pl_status pl_named_device_queue(struct pl_named *named, struct pl_operation *operation,
                                     const struct pl_collective *collective, uint64_t **counts,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Queues one batch for `count` entries for which pl_named_device_packs() is true, and which differ only in buffers and
 * shapes: at most PL_NAMED_MOST_PIECES.
 */
enum pl_status pl_named_device_fuse(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Advances the batches, of which there are some: posts those that are queued, gives the device what follows a request,
 * and ends what has ended. `*ret_moved` is set if one of them has moved.
 */
enum pl_status pl_named_device_progress(struct pl_named *named, bool *ret_moved, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After a failure of the engine: ends what runs on the device. pl_named_device_progress() leaves it to run where a
 * stream of the program may follow it: the program must not go on with what it did not get.
 */
void pl_named_device_abort(struct pl_named *named);

/** Cancels all batches, and releases what the engine has on the device. It may be called twice. */
void pl_named_device_done(struct pl_named *named);

/*
 * The world that runs an engine's operations in device memory. It is apart from the engine's own, in which rounds go on
 * meanwhile. All ranks make it when they agree on the first such operation, in a thread: two engines may come to their
 * first ones in different orders on two ranks.
 */

/**
 * Goes on with the making of `device->world`, and begins it. `*ret_there` is whether it is there. After a failure the
 * next call begins once more.
 *
 * Errors   the same on all ranks: the first rank's that cannot make it.
 */
enum pl_status pl_named_device_world(struct pl_named *named, bool *ret_there, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Goes on with making `device->arena` have `bytes` at least, and begins it; `*ret_there` is whether it has. Call when
 * no request of the world is under way here, at the same batch on all ranks, until it is there. What it held is lost.
 *
 * Errors   those of pl_arena_alloc().
 */
enum pl_status pl_named_device_arena(struct pl_named *named, uint64_t bytes, bool *ret_there,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Releases the world. If its making is under way, waits for the end of that, at most for the world's timeout. */
void pl_named_device_world_done(struct pl_named_device *device);

#endif
