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
 * Queues one batch for `count` entries for which pl_named_device_packs() is true, and which differ only in buffers and
 * shapes: at most PL_NAMED_MOST_PIECES.
 */
enum pl_status pl_named_device_fuse(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Advances the batches: posts those that are queued, gives the device what follows a request, and ends what has ended.
 * `*ret_moved` is set if one of them has moved.
 */
enum pl_status pl_named_device_progress(struct pl_named *named, bool *ret_moved, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After a failure of the engine: ends what runs on the device. pl_named_device_progress() leaves it to run where a
 * stream of the program may follow it: the program must not go on with what it did not get.
 */
void pl_named_device_abort(struct pl_named *named);

/** Cancels all batches, and releases what the engine has on the device. It may be called twice. */
void pl_named_device_done(struct pl_named *named);

#endif
