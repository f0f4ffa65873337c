/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Events for chrome://tracing and Perfetto, written into a text one after the other: begin, the event's fields, the
 * fields of its arguments, end. Who writes puts "[" before the first event and "]" after the last one. Internal to
 * runtime/.
 *
 * Source  the trace event format of the Chromium project.
 * Test    tests/unit/runtime/test_trace.c, tests/unit/runtime/horovod/test_timeline.c
 */
#ifndef PL_RUNTIME_TRACE_EVENTS_H
#define PL_RUNTIME_TRACE_EVENTS_H

#include "base/text.h"

struct pl_trace_events {
    struct pl_text *text;
    bool any;      /* an event was begun */
    bool has_args; /* the event's arguments were begun */
    bool comma;    /* before the next field */
};

/** Begins an event, without a name if `name` is NULL. Invalid UTF-8 in a name is replaced. */
void pl_trace_events_begin(struct pl_trace_events *events, const char *phase, const char *name, int pid, int tid);

/** Begins the event's arguments: the fields that follow belong to them. */
void pl_trace_events_args(struct pl_trace_events *events);

/** Writes a field. Times are nanoseconds, and are written as microseconds with three digits after the point. */
void pl_trace_events_time(struct pl_trace_events *events, const char *key, int64_t ns);
void pl_trace_events_text(struct pl_trace_events *events, const char *key, const char *value);
void pl_trace_events_number(struct pl_trace_events *events, const char *key, int64_t value);

void pl_trace_events_end(struct pl_trace_events *events);

/** Writes the name of process `pid`, or of a thread in it. */
void pl_trace_events_process(struct pl_trace_events *events, int pid, const char *name);
void pl_trace_events_thread(struct pl_trace_events *events, int pid, int tid, const char *name);

#endif
