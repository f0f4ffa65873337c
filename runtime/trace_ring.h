/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The ring of a trace: its layout, and the functions that make it, record collectives in it, read it, and convert it to
 * a JSON trace; and the events of a JSON trace. Internal to runtime/ and to `paceline trace`.
 */
#ifndef PL_RUNTIME_TRACE_RING_H
#define PL_RUNTIME_TRACE_RING_H

#include "base/text.h"
#include "collectives/world_private.h"
#include "runtime/trace.h"

#include <stdatomic.h>

enum {
    PL_RING_PROGRAM = UINT16_MAX, /* `kind` of a span of the program */
    PL_RING_COLLECTIVE_NAME_BYTES = 16,
    PL_RING_HOST_NAME_BYTES = 32,
};

/** The first bytes of a ring's file; the records follow. Times are on the rank's CLOCK_MONOTONIC. */
struct pl_ring_head {
    char magic[8];
    uint32_t record_bytes;
    uint32_t records;
    int32_t rank, size, host, unused;
    int64_t realtime_minus_monotonic_ns; /* offset to the wall clock: aligns hosts as exactly as their clocks agree */
    _Atomic uint64_t written;
    /* the newest collective that this rank has posted in the world of all ranks; it may not have ended */
    _Atomic uint64_t posted_sequence; /* `sequence` of that collective; 0: none was posted */
    int64_t posted_ns;
    uint32_t posted_kind;
    char posted_name[PL_RING_COLLECTIVE_NAME_BYTES]; /* no NUL if the name fills it */
    char host_name[PL_RING_HOST_NAME_BYTES];         /* NUL-terminated; empty if the host's name is not known */
    char padding[12];
};

struct pl_ring_record {
    int64_t start_ns, end_ns;
    uint64_t bytes;
    int64_t waited_ns;
    int32_t waited_for;
    uint16_t kind;
    uint8_t status;
    uint8_t part; /* number of the world; all sub-worlds above the highest number share it */
    /* names are NUL-terminated only if they are shorter than the array */
    union {
        char span_name[PL_TRACE_NAME_BYTES];
        struct {
            char name[PL_RING_COLLECTIVE_NAME_BYTES];
            uint64_t sequence; /* number of the collective, the same on all ranks of its world */
        } collective;
    };
};

_Static_assert(sizeof(struct pl_ring_head) == 128 && sizeof(struct pl_ring_record) == 64, "the file's layout");

/** A copy of a ring. Record number i is at `records[i % head.records]`. */
struct pl_ring {
    struct pl_ring_head head;
    struct pl_ring_record *records; /* freed by the caller */
    uint64_t first;                 /* number of the first complete record before head.written */
};

/** Reads the ring in the file `path`. Errors: as pl_trace_merge(). */
enum pl_status pl_ring_read(const char *path, struct pl_ring *ring, struct pl_error *reterr) PL_MUST_CHECK;

/** Converts `ns` to the wall clock of the rank's host. Values of a damaged ring may overflow, and wrap around. */
int64_t pl_ring_wall_ns(const struct pl_ring_head *head, int64_t ns);

/** Options of pl_trace_new(). Zero-initialise. */
struct pl_trace_options {
    const char *path; /* the ring's file; NULL: memory */
    uint64_t records; /* number of records that are kept; 0: 16384 */
    int rank, size, host;
    const char *host_name; /* cut if it is too long for the ring; NULL: not known */
};

enum pl_status pl_trace_new(const struct pl_trace_options *options, struct pl_trace **ret_trace,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Frees the trace. The file remains. NULL is fine. */
void pl_trace_free(struct pl_trace *trace);

/** Records a collective. `trace_at` is the trace; the function fits an observer. */
void pl_trace_add_event(void *trace_at, const struct pl_event *event);

/** Records that a collective of the world of all ranks was posted. This function fits an observer, too. */
void pl_trace_note_posted(void *trace_at, const struct pl_posted *posted);

/**
 * Appends the rings in the `count` files as one JSON trace. Each rank is a process with one line each for its world,
 * each sub-world and the program. A collective shows its bytes, how long the rank waited and for which rank. Times are
 * in microseconds with three digits after the point, exact, from the midnight (UTC) in `otherData.ts_0`.
 * Errors  PL_NOT_FOUND; PL_CORRUPT, naming a file that is not a ring. From a ring that is being written, only complete
 *         records are read.
 */
enum pl_status pl_trace_merge(const char *const *paths, size_t count, struct pl_text *text,
                              struct pl_error *reterr) PL_MUST_CHECK;

/*
 * Events for chrome://tracing and Perfetto, appended to a text: begin, the event's fields, the fields of its arguments,
 * end. The caller writes "[" before the first event and "]" after the last one.
 *
 * Source  the trace event format of the Chromium project.
 * Test    tests/unit/runtime/test_trace.c, tests/unit/runtime/horovod/test_timeline.c
 */

struct pl_trace_events {
    struct pl_text *text;
    bool any;      /* an event was begun */
    bool has_args; /* the event's arguments were begun */
    bool comma;    /* the next field needs a comma before it */
};

/** Begins an event, without a name if `name` is NULL. Invalid UTF-8 in a name is replaced. */
void pl_trace_events_begin(struct pl_trace_events *events, const char *phase, const char *name, int pid, int tid);

/** Begins the event's arguments: the fields that follow belong to them. */
void pl_trace_events_args(struct pl_trace_events *events);

/** Writes a field with a time in nanoseconds, as microseconds with three digits after the point. */
void pl_trace_events_time(struct pl_trace_events *events, const char *key, int64_t ns);
void pl_trace_events_text(struct pl_trace_events *events, const char *key, const char *value);
void pl_trace_events_number(struct pl_trace_events *events, const char *key, int64_t value);

void pl_trace_events_end(struct pl_trace_events *events);

/** Writes the name of process `pid`, or of a thread in it. */
void pl_trace_events_process(struct pl_trace_events *events, int pid, const char *name);
void pl_trace_events_thread(struct pl_trace_events *events, int pid, int tid, const char *name);

#endif
