/* SPDX-License-Identifier: Apache-2.0 */
/** The ring of a trace: who makes it, fills it with collectives, and makes a JSON trace of it. Internal to runtime/. */
#ifndef PL_RUNTIME_TRACE_RING_H
#define PL_RUNTIME_TRACE_RING_H

#include "base/text.h"
#include "collectives/world_private.h"
#include "runtime/trace.h"

/** Zero-initialise. */
struct pl_trace_options {
    const char *path; /* the ring's file; NULL: memory */
    uint64_t records; /* number of records that are kept; 0: 16384 */
    int rank, size, host;
};

enum pl_status pl_trace_new(const struct pl_trace_options *options, struct pl_trace **ret_trace,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Frees the trace. The file remains. NULL is fine. */
void pl_trace_free(struct pl_trace *trace);

/** Records a collective. `trace_at` is the trace, so that this can be an observer's function. */
void pl_trace_add_event(void *trace_at, const struct pl_event *event);

/** Returns the number of records written so far, including those that were overwritten. */
uint64_t pl_trace_count(const struct pl_trace *trace);

/**
 * Append the rings in the `count` files as one JSON trace: a process a rank, a line for collectives, one for those of
 * each sub-world, and one for the program. A collective shows its bytes, how long the rank waited and for which rank.
 * Times are in microseconds with three digits after the point, exact, from the midnight (UTC) in `otherData.ts_0`.
 * Errors  PL_NOT_FOUND; PL_CORRUPT, naming a file that is not a ring. If a ring is being written, the complete records
 *         are read.
 */
enum pl_status pl_trace_merge(const char *const *paths, size_t count, struct pl_text *text,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
