/* SPDX-License-Identifier: Apache-2.0 */
/** Fusion of many reductions in device memory into one request. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_DEVICE_H
#define PL_RUNTIME_NAMED_DEVICE_H

#include "runtime/named/engine.h"

/** Whether the entry is to be fused with others of its kind. */
bool pl_named_device_packs(const struct pl_named_entry *entry);

/**
 * Starts one request for `count` entries for which pl_named_device_packs() is true, and which differ only in buffers
 * and shapes.
 */
enum pl_status pl_named_device_post(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Call when the request of a fused batch has ended: unpacks the results. */
enum pl_status pl_named_device_finish(struct pl_named *named, struct pl_named_batch *batch,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Allocates memory, in the operation's kind of memory, for a joined rank that takes part in an operation which it has
 * not submitted. `fill` gives the contents; NULL: zeros.
 */
enum pl_status pl_named_device_scratch(struct pl_named *named, uint64_t bytes, const void *fill, void **ret_scratch,
                                       struct pl_error *reterr) PL_MUST_CHECK;

void pl_named_device_done(struct pl_named_device *device);

#endif
