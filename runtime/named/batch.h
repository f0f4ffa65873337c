/* SPDX-License-Identifier: Apache-2.0 */
/** Requests for operations that ranks have agreed on: run.c starts them, batch.c ends them. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_BATCH_H
#define PL_RUNTIME_NAMED_BATCH_H

#include "runtime/named/engine.h"

/**
 * Returns the name of the entry's collective. Compression keeps residuals under that name, so it is NULL for an
 * automatic name, which is used only once.
 */
const char *pl_named_collective_name(const struct pl_named_entry *entry);

/** Fills the fields of a reduction over the tensors of `contributors` ranks, except the buffers. */
void pl_named_describe_sum(const struct pl_named *named, const struct pl_named_definition *definition, int contributors,
                           struct pl_collective *collective);

/** Makes a batch of `count` entries. The caller fills it and starts its requests. */
struct pl_named_batch *pl_named_batch_new(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                          struct pl_error *reterr);

/** Appends a batch whose requests are started. Its entries no longer take part in rounds. */
enum pl_status pl_named_batch_posted(struct pl_named *named, struct pl_named_batch *batch,
                                     struct pl_error *reterr) PL_MUST_CHECK;

void pl_named_batch_free(struct pl_named *named, struct pl_named_batch *batch);

/**
 * Ends one operation, which needs no round any more: counts it down at its submission, and drops an automatic name.
 * `failure` NULL means success.
 */
void pl_named_end_local(struct pl_named *named, struct pl_named_local *local, enum pl_status status,
                        const char *failure);

/**
 * Frees the name of an operation for the next one before this one ends: a stream of the program follows the end. The
 * entry must be known.
 */
void pl_named_detach_local(struct pl_named *named, struct pl_named_local *local);

/** Hands over the result of entry `at` of `batch`: when it is there, or before an operation is detached. */
void pl_named_batch_give(struct pl_named *named, struct pl_named_batch *batch, size_t at);

/** Call when the requests of `batch` have succeeded: hands over the results, and frees the batch. */
void pl_named_batch_end(struct pl_named *named, struct pl_named_batch *batch);

/** Ends the operations of `batch` with an error, and frees it. The engine goes on. */
void pl_named_batch_fail(struct pl_named *named, struct pl_named_batch *batch, enum pl_status status,
                         const char *failure);

/** Calls the observer if there is an active one. `rank` is a rank of the engine's world, for ANNOUNCED. */
void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first);

/** Runs the operations that the table has made ready. */
enum pl_status pl_named_run_ready(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

#endif
