/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Batches in device memory: many small reductions are fused into one request. Nothing here waits for the device or for
 * other ranks. Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_DEVICE_H
#define PL_RUNTIME_NAMED_DEVICE_H

#include "runtime/named/engine.h"

/** Returns whether the entry is an allreduce small enough to be fused with others. */
bool pl_named_device_packs(const struct pl_named_entry *entry);

/** Returns how many bytes of a buffer the entry takes. */
uint64_t pl_named_device_packed_bytes(const struct pl_named_entry *entry);

/**
 * Queues a batch of one operation. `collective` is posted later; buffers that the engine provides are still missing in
 * it. Takes ownership of the array `*counts` unless it is NULL.
 */
enum pl_status pl_named_device_queue(struct pl_named *named, struct pl_operation *operation,
                                     const struct pl_collective *collective, uint64_t **counts,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Queues one batch for `count` entries, at most PL_NAMED_MOST_PIECES. pl_named_device_packs() must be true for each,
 * and they may differ only in buffers and shapes.
 */
enum pl_status pl_named_device_fuse(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Advances the batches; there must be at least one. Posts queued batches, queues on the device the work that follows a
 * request, and ends finished batches. Sets `*ret_moved` if a batch has moved.
 */
enum pl_status pl_named_device_progress(struct pl_named *named, bool *ret_moved, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After a failure of the engine: ends the work on the device. pl_named_device_progress() does not end work that a
 * stream of the program may follow, because the program must not continue without its data.
 */
void pl_named_device_abort(struct pl_named *named);

/** Cancels all batches, and releases the engine's objects on the device. It may be called twice. */
void pl_named_device_done(struct pl_named *named);

/*
 * The world that runs an engine's operations in device memory. It is separate from the engine's own world, where rounds
 * go on meanwhile. All ranks make it when they agree on the first such operation. A thread makes it, because two
 * engines may agree on their first such operations in different orders on two ranks.
 */

/**
 * Begins to make `device->world`, or continues. `*ret_there` tells whether it exists now. After a failure the next call
 * begins again.
 *
 * Errors   the same on all ranks: the error of the first rank that cannot make it.
 */
enum pl_status pl_named_device_world(struct pl_named *named, bool *ret_there, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Begins to make `device->arena` have at least `bytes`, or continues. `*ret_there` tells whether it has them now. Call
 * it before the same batch on all ranks, with no request of the world in flight here, until it is true. Data is lost.
 *
 * Errors   those of pl_arena_alloc().
 */
enum pl_status pl_named_device_arena(struct pl_named *named, uint64_t bytes, bool *ret_there,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Releases the world. If it is still being made, waits for that, at most for the world's timeout. */
void pl_named_device_world_done(struct pl_named_device *device);

#endif
