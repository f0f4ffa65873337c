/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The world that runs an engine's operations in device memory. It is apart from the engine's own, in which rounds go on
 * meanwhile. All ranks make it when they agree on the first such operation, in a thread: two engines may come to their
 * first ones in different orders on two ranks. Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_DEVICE_WORLD_H
#define PL_RUNTIME_NAMED_DEVICE_WORLD_H

#include "runtime/named/engine.h"

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
