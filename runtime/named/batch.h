/* SPDX-License-Identifier: Apache-2.0 */
/** Requests under way for operations that ranks have agreed on. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_BATCH_H
#define PL_RUNTIME_NAMED_BATCH_H

#include "runtime/named/engine.h"

/**
 * The name of its collective. Compression keeps residuals by that name, so NULL for an automatic name, which is used
 * once.
 */
const char *pl_named_collective_name(const struct pl_named_entry *entry);

/** `elems` elements that change nothing under `op`, in host memory. */
void pl_named_fill_neutral(void *data, uint64_t elems, enum pl_dtype dtype, enum pl_op op);

/** What a reduction of `contributors` ranks' tensors needs besides buffers. */
void pl_named_describe_sum(const struct pl_named *named, const struct pl_named_definition *definition, int contributors,
                           struct pl_collective *collective);

/** A batch of `count` entries; the caller fills and posts it. */
struct pl_named_batch *pl_named_batch_new(const struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                          struct pl_error *reterr);

/** Append a posted batch, whose entries no longer take part in rounds. */
enum pl_status pl_named_batch_posted(struct pl_named *named, struct pl_named_batch *batch,
                                     struct pl_error *reterr) PL_MUST_CHECK;

void pl_named_batch_free(struct pl_named *named, struct pl_named_batch *batch);

/** End this rank's operation: count it down at its handle, drop an automatic name. `failure` NULL means success. */
void pl_named_end_local(struct pl_named *named, struct pl_named_local *local, enum pl_status status,
                        const char *failure);

/** The requests of `batch` have ended well: hand results over and free it. */
void pl_named_batch_end(struct pl_named *named, struct pl_named_batch *batch);

/** Let the observer know, if one is there and active. `rank` is that of the engine's world, of ANNOUNCED. */
void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first);

#endif
