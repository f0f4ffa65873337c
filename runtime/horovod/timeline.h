/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Horovod's timeline: a file that rank 0 writes while the program runs, for chrome://tracing or Perfetto. It has a line
 * for each tensor: NEGOTIATE_ALLREDUCE from the first rank that is ready to the last one, with a tick for each rank,
 * then ALLREDUCE. CYCLE_START marks each round of announcements. A process has one timeline.
 *
 * Tensors in host memory are not fused (runtime/named/run.c): nothing is copied into a fusion buffer, and the file has
 * no such span. The trace of the run (runtime/trace.h) has every collective under the tensors, on every rank.
 *
 * Threads  any.
 * Cost     a test of a flag if the timeline is off; else a line of text per event, which a thread of its own writes.
 * Source   the trace event format of the Chromium project; Horovod's documentation, docs/timeline.rst.
 * Test     tests/unit/runtime/horovod/test_timeline.c
 */
#ifndef PL_RUNTIME_HOROVOD_TIMELINE_H
#define PL_RUNTIME_HOROVOD_TIMELINE_H

#include "runtime/named.h"

/** Returns the observer for struct pl_named_options. */
const struct pl_named_observer *pl_timeline_observer(void);

/**
 * Writes events from now on into a new file at `path`; with `mark_cycles` also the rounds. Closes the file that is
 * being written, if there is one. Errors: PL_SYSTEM with the path.
 */
enum pl_status pl_timeline_start(const char *path, bool mark_cycles, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the rest and closes the file. Has no effect if there is no file. */
void pl_timeline_stop(void);

#endif
