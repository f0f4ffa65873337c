/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The recent activity of a rank: a ring of small records, always written at very low cost. On request it becomes a
 * trace for chrome://tracing or Perfetto.
 *
 * With the knob `trace` (a path) a rank's ring is a mapped file, PATH.rank3.ring: it exists during the run and after
 * any end, even SIGKILL and crashes, without signal handlers. At an orderly end the ranks of a host merge their rings
 * into PATH (on several hosts PATH.host1 and so on); otherwise `paceline trace PATH.*.ring` merges them. The rings
 * stay: `paceline trace --summary PATH.*.ring` tells which rank delayed the others, and whether a span called "data" or
 * "save" was the reason. If a job is started again, later attempts have other names: trace-restart1.json instead of
 * trace.json. Without the knob the ring is pageable memory.
 *
 * Threads  any may write; others, and other processes, may read the file meanwhile.
 * Cost     64 bytes a record, no system call.
 * Source   the trace event format of the Chromium project.
 * Test     tests/unit/runtime/test_trace.c
 */
#ifndef PL_RUNTIME_TRACE_H
#define PL_RUNTIME_TRACE_H

#include <stdint.h>

struct pl_trace;

enum { PL_TRACE_NAME_BYTES = 24 }; /* longer names are cut, before the first UTF-8 character that does not fit */

/** Adds a span of the program, for example "forward". Times are on CLOCK_MONOTONIC. `trace` may be NULL. */
void pl_trace_add(struct pl_trace *trace, const char *name, int64_t start_ns, int64_t end_ns);

#endif
