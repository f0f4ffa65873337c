/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank did lately: a ring of small records that is always written and costs next to nothing, made into a trace
 * for chrome://tracing or Perfetto when somebody wants to look.
 *
 * With the knob `trace` (a path) a rank's ring is a mapped file, PATH.rank3.ring: it is there at any moment of the run
 * and after any end, SIGKILL and crashes included, without handlers. At an orderly end the ranks of a host merge their
 * rings into PATH (PATH.host1 and so on where there are several hosts); otherwise `paceline trace PATH.*.ring` does.
 * The rings stay: `paceline trace --summary PATH.*.ring` says which rank held up the others, and for "data" and "save",
 * two names of spans, that this was the reason.
 * A job that was started again has names of their own for its later attempts: trace-restart1.json for trace.json.
 * Without the knob the ring is pageable memory.
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

/** Adds a span of the program's own, for example "forward". Times are on CLOCK_MONOTONIC. `trace` may be NULL. */
void pl_trace_add(struct pl_trace *trace, const char *name, int64_t start_ns, int64_t end_ns);

#endif
