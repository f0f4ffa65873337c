/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Horovod's timeline: a file that rank 0 writes while the program runs, for chrome://tracing or Perfetto, with a line
 * for each tensor: NEGOTIATE_ALLREDUCE from the first rank that is ready to the last, with a tick for each, then
 * ALLREDUCE; and CYCLE_START for each round of announcements. There is one in a process.
 *
 * Tensors in host memory are not fused (runtime/named/run.c), so that nothing is copied into a fusion buffer and no
 * such span is there. What each collective under the tensors did, and on every rank, is in the trace of the run
 * (runtime/trace.h).
 *
 * Threads  any.
 * Cost     a test of a flag while it is not written; else a line of text an event, written by a thread of its own.
 * Source   the trace event format of the Chromium project; Horovod's documentation, docs/timeline.rst.
 * Test     tests/unit/runtime/horovod/test_timeline.c
 */
#ifndef PL_RUNTIME_HOROVOD_TIMELINE_H
#define PL_RUNTIME_HOROVOD_TIMELINE_H

#include "runtime/named.h"

/** For struct pl_named_options. */
const struct pl_named_observer *pl_timeline_observer(void);

/**
 * Writes events from now on into a new file at `path`, with `mark_cycles` also the rounds. A file that is being written
 * is closed first. Errors: PL_SYSTEM names the path.
 */
enum pl_status pl_timeline_start(const char *path, bool mark_cycles, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the rest and closes the file. Has no effect if there is no file. */
void pl_timeline_stop(void);

#endif
