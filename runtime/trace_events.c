/* SPDX-License-Identifier: Apache-2.0 */
/* The trace event format of the Chromium project. */
#include "runtime/trace_events.h"

#include "base/json/python_json.h"

#include <inttypes.h>

static void begin_field(struct pl_trace_events *events, const char *key)
{
    pl_text_printf(events->text, "%s\"%s\":", events->comma ? "," : "", key);
    events->comma = true;
}

void pl_trace_events_text(struct pl_trace_events *events, const char *key, const char *value)
{
    begin_field(events, key);
    pl_python_json_print_string(value, events->text);
}

void pl_trace_events_number(struct pl_trace_events *events, const char *key, int64_t value)
{
    begin_field(events, key);
    pl_text_printf(events->text, "%" PRId64, value);
}

/* Prints digit by digit: a double of the time since 1970 has steps of 256 ns. */
void pl_trace_events_time(struct pl_trace_events *events, const char *key, int64_t ns)
{
    uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

    begin_field(events, key);
    pl_text_printf(events->text, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", size / 1000, (unsigned)(size % 1000));
}

void pl_trace_events_begin(struct pl_trace_events *events, const char *phase, const char *name, int pid, int tid)
{
    pl_text_append(events->text, events->any ? ",\n{" : "\n{");
    events->any = true;
    events->has_args = events->comma = false;
    pl_trace_events_text(events, "ph", phase);
    if (name) {
        pl_trace_events_text(events, "name", name);
    }
    pl_trace_events_number(events, "pid", pid);
    pl_trace_events_number(events, "tid", tid);
}

void pl_trace_events_args(struct pl_trace_events *events)
{
    pl_text_append(events->text, ",\"args\":{");
    events->has_args = true;
    events->comma = false;
}

void pl_trace_events_end(struct pl_trace_events *events)
{
    pl_text_append(events->text, events->has_args ? "}}" : "}");
}

static void name_line(struct pl_trace_events *events, const char *what, int pid, int tid, const char *name)
{
    pl_trace_events_begin(events, "M", what, pid, tid);
    pl_trace_events_args(events);
    pl_trace_events_text(events, "name", name);
    pl_trace_events_end(events);
}

void pl_trace_events_process(struct pl_trace_events *events, int pid, const char *name)
{
    name_line(events, "process_name", pid, 0, name);
}

void pl_trace_events_thread(struct pl_trace_events *events, int pid, int tid, const char *name)
{
    name_line(events, "thread_name", pid, tid, name);
}
