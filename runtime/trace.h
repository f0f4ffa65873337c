/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank did lately: a ring of small records that is always written and costs next to nothing, made into a trace
 * for chrome://tracing or Perfetto when somebody wants to look.
 *
 * With the knob `trace` (a path) a rank's ring is a mapped file, PATH.rank3.ring: it is there at any moment of the run
 * and after any end, SIGKILL and crashes included, without handlers. At an orderly end the ranks of a host merge their
 * rings into PATH (PATH.host1 and so on where there are several hosts); otherwise `paceline trace PATH.*.ring` does.
 * Without the knob the ring is ordinary memory.
 *
 * Threads  any may write; others, and other processes, may read the file meanwhile.
 * Cost     64 bytes a record, no system call.
 * Source   the trace event format of the Chromium project.
 * Test     tests/unit/runtime/test_trace.c
 */
#ifndef PL_RUNTIME_TRACE_H
#define PL_RUNTIME_TRACE_H

#include "base/text.h"
#include "collectives/world.h"

struct pl_trace;

enum { PL_TRACE_NAME_BYTES = 24 }; /* longer names are cut, before the UTF-8 character that does not fit */

/** Zero-initialise. */
struct pl_trace_options {
    const char *path; /* the ring's file; NULL: memory */
    uint64_t records; /* how many are kept; 0: 16384 */
    int rank, size, host;
};

enum pl_status pl_trace_new(const struct pl_trace_options *options, struct pl_trace **ret_trace,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** The file stays. NULL is fine. */
void pl_trace_free(struct pl_trace *trace);

/** Add a span of the program's own, "forward" for example. Times are on CLOCK_MONOTONIC. `trace` may be NULL. */
void pl_trace_add(struct pl_trace *trace, const char *name, int64_t start_ns, int64_t end_ns);

/** Add what a collective did; `trace_at` is the trace, so that this can be an observer's function. */
void pl_trace_add_event(void *trace_at, const struct pl_event *event);

/** Records written so far, including those that were overwritten. */
uint64_t pl_trace_count(const struct pl_trace *trace);

/**
 * Append the rings in the `count` files as one JSON trace: a process a rank, a line for collectives, one for those of
 * each sub-world, and one for the program. A collective shows its bytes, how long the rank waited and for which rank.
 * Times are in microseconds with three digits after the point, exact, from the midnight (UTC) in `otherData.ts_0`.
 * Errors  PL_NOT_FOUND; PL_CORRUPT, naming a file that is no ring. A ring that is being written is read as far as it is
 *         whole.
 */
enum pl_status pl_trace_merge(const char *const *paths, size_t count, struct pl_text *text,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
