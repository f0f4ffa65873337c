/* SPDX-License-Identifier: Apache-2.0 */
/** Many sums in device memory as one request. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_DEVICE_H
#define PL_RUNTIME_NAMED_DEVICE_H

#include "runtime/named/engine.h"

/** Whether the entry is to be fused with others of its kind. */
bool pl_named_device_packs(const struct pl_named_entry *entry);

/**
 * Post `count` entries that pl_named_device_packs() and that differ in nothing but buffers and shapes as one request.
 */
enum pl_status pl_named_device_post(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The request of a fused batch has ended: unpack the results. */
enum pl_status pl_named_device_finish(struct pl_named *named, struct pl_named_batch *batch,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Memory of a joined rank for something that it has not submitted, in the operation's kind of memory; `fill` gives its
 * contents, NULL: zeros.
 */
enum pl_status pl_named_device_scratch(struct pl_named *named, uint64_t bytes, const void *fill, void **ret_scratch,
                                       struct pl_error *reterr) PL_MUST_CHECK;

void pl_named_device_done(struct pl_named_device *device);

#endif
