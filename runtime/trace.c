/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's trace ring, in memory or in a mapped file; merging rings into a JSON trace; the events of a JSON trace. */
#include "runtime/trace.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/trace_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_RECORDS = 16384,
    MAX_RECORDS = 1 << 24,
    LEAST_RECORDS = 3,
    PARTS = UINT8_MAX + 1,
};

/* Times are printed relative to the start of a day, so that a double holds them exactly to 1/1000 us. */
#define DAY_NS (24 * 3600 * PL_NS_PER_S)

static const char ring_magic[8] = {'P', 'L', 'T', 'R', 'A', 'C', 'E', '3'};

struct pl_trace {
    pthread_mutex_t lock;      /* held by writers */
    struct pl_ring_head *head; /* the records follow it */
    struct pl_ring_record *records;
    size_t bytes;
};

static int64_t realtime_minus_monotonic_ns(void)
{
    struct timespec real, monotonic;

    if (clock_gettime(CLOCK_REALTIME, &real) != 0 || clock_gettime(CLOCK_MONOTONIC, &monotonic) != 0) {
        return 0;
    }
    return ((int64_t)real.tv_sec - (int64_t)monotonic.tv_sec) * PL_NS_PER_S + (real.tv_nsec - monotonic.tv_nsec);
}

enum pl_status pl_trace_new(const struct pl_trace_options *options, struct pl_trace **ret_trace,
                            struct pl_error *reterr)
{
    uint64_t records = options->records ? options->records : DEFAULT_RECORDS;
    size_t bytes = sizeof(struct pl_ring_head) + records * sizeof(struct pl_ring_record);
    PL_AUTO_CLOSE int fd = -1;
    struct pl_trace *trace;
    void *memory;

    if (records < LEAST_RECORDS || records > MAX_RECORDS) {
        return pl_error_set(reterr, PL_INVALID, "a trace keeps %d to %d records, not %llu", LEAST_RECORDS, MAX_RECORDS,
                            (unsigned long long)records);
    }
    if (options->path) {
        fd = open(options->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0) {
            return pl_error_errno(reterr, "create the trace '%s'", options->path);
        }
        /* Allocates the blocks now, because a later store to a full disk would be a SIGBUS. */
        errno = pl_file_allocate(fd, 0, (off_t)bytes);
        if (errno != 0) {
            return pl_error_errno(reterr, "make room for the trace '%s'", options->path);
        }
    }
    PL_TRY(pl_memory_alloc(&trace, 1, sizeof(*trace), reterr));
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (memory == MAP_FAILED) {
        free(trace);
        return pl_error_errno(reterr, "map %zu bytes for a trace", bytes);
    }
    pthread_mutex_init(&trace->lock, NULL);
    trace->head = memory;
    trace->records = (struct pl_ring_record *)(trace->head + 1);
    trace->bytes = bytes;
    trace->head->record_bytes = sizeof(struct pl_ring_record);
    trace->head->records = (uint32_t)records;
    trace->head->rank = options->rank;
    trace->head->size = options->size;
    trace->head->host = options->host;
    if (options->host_name) {
        snprintf(trace->head->host_name, sizeof(trace->head->host_name), "%s", options->host_name);
    }
    trace->head->realtime_minus_monotonic_ns = realtime_minus_monotonic_ns();
    memcpy(trace->head->magic, ring_magic, sizeof(ring_magic));
    *ret_trace = trace;
    return PL_OK;
}

void pl_trace_free(struct pl_trace *trace)
{
    if (trace) {
        munmap(trace->head, trace->bytes);
        pthread_mutex_destroy(&trace->lock);
        free(trace);
    }
}

/* Returns the slot of the next record, for one writer at a time. publish() makes it visible. */
static struct pl_ring_record *next_record(struct pl_trace *trace)
{
    pthread_mutex_lock(&trace->lock);
    return &trace->records[atomic_load_explicit(&trace->head->written, memory_order_relaxed) % trace->head->records];
}

static void publish(struct pl_trace *trace)
{
    atomic_fetch_add_explicit(&trace->head->written, 1, memory_order_release);
    pthread_mutex_unlock(&trace->lock);
}

void pl_trace_add(struct pl_trace *trace, const char *name, int64_t start_ns, int64_t end_ns)
{
    struct pl_ring_record *record;

    if (!trace) {
        return;
    }
    record = next_record(trace);
    *record =
        (struct pl_ring_record){.start_ns = start_ns, .end_ns = end_ns, .waited_for = -1, .kind = PL_RING_PROGRAM};
    memcpy(record->span_name, name, strnlen(name, sizeof(record->span_name)));
    publish(trace);
}

/* The world's lock excludes other writers. A reader may see a mixture of two notes. */
void pl_trace_note_posted(void *trace_at, const struct pl_posted *posted)
{
    struct pl_ring_head *head = ((struct pl_trace *)trace_at)->head;

    head->posted_ns = posted->at_ns;
    head->posted_kind = (uint32_t)posted->kind;
    memcpy(head->posted_name, posted->name, sizeof(head->posted_name));
    atomic_store_explicit(&head->posted_sequence, posted->sequence, memory_order_release);
}

void pl_trace_add_event(void *trace_at, const struct pl_event *event)
{
    struct pl_trace *trace = trace_at;
    struct pl_ring_record *record = next_record(trace);

    *record = (struct pl_ring_record){
        .start_ns = event->started_ns,
        .end_ns = event->ended_ns,
        .bytes = event->bytes,
        .waited_ns = event->waited_ns,
        .waited_for = event->waited_for,
        .kind = (uint16_t)event->kind,
        .status = (uint8_t)event->status,
        .part = (uint8_t)(event->part < PARTS - 1 ? event->part : PARTS - 1),
    };
    memcpy(record->collective.name, event->name, strnlen(event->name, sizeof(record->collective.name)));
    record->collective.sequence = event->sequence;
    publish(trace);
}

static void print_head(struct pl_trace_events *events, const struct pl_ring_head *head)
{
    char name[64];

    if (*head->host_name) {
        snprintf(name, sizeof(name), "rank %d on %.*s", head->rank, PL_RING_HOST_NAME_BYTES - 1, head->host_name);
    } else {
        snprintf(name, sizeof(name), "rank %d on host %d", head->rank, head->host);
    }
    pl_trace_events_process(events, head->rank, name);
    pl_trace_events_thread(events, head->rank, 0, "program");
    pl_trace_events_thread(events, head->rank, 1, "collectives");
}

int64_t pl_ring_wall_ns(const struct pl_ring_head *head, int64_t ns)
{
    return (int64_t)((uint64_t)ns + (uint64_t)head->realtime_minus_monotonic_ns);
}

static void print_record(struct pl_trace_events *events, const struct pl_ring_head *head,
                         const struct pl_ring_record *record, int64_t midnight_ns)
{
    char name[PL_TRACE_NAME_BYTES + 1] = "", label[PL_TRACE_NAME_BYTES + 32];
    bool program = record->kind == PL_RING_PROGRAM;
    const char *kind = record->kind < PL_KIND_COUNT ? pl_kind_text((enum pl_kind)record->kind) : "collective";

    memcpy(name, record->span_name,
           pl_text_whole_bytes(
               record->span_name,
               strnlen(record->span_name, program ? PL_TRACE_NAME_BYTES : (size_t)PL_RING_COLLECTIVE_NAME_BYTES)));
    pl_text_mask_broken(name, strlen(name));
    snprintf(label, sizeof(label), "%s%s%s", program ? "" : kind, *name && !program ? " " : "", name);
    pl_trace_events_begin(events, "X", label, head->rank, program ? 0 : 1 + record->part);
    pl_trace_events_time(events, "ts",
                         (int64_t)((uint64_t)pl_ring_wall_ns(head, record->start_ns) - (uint64_t)midnight_ns));
    pl_trace_events_time(events, "dur", (int64_t)((uint64_t)record->end_ns - (uint64_t)record->start_ns));
    if (!program) {
        pl_trace_events_args(events);
        pl_trace_events_number(events, "bytes", (int64_t)record->bytes);
        pl_trace_events_time(events, "waited_us", record->waited_ns);
        if (record->waited_for >= 0) {
            pl_trace_events_number(events, "waited_for_rank", record->waited_for);
        }
        if (record->status != PL_OK) {
            pl_trace_events_text(events, "status", pl_status_name((enum pl_status)record->status));
        }
    }
    pl_trace_events_end(events);
}

/* Prints a name line for the collectives of each sub-world. */
static void print_parts(struct pl_trace_events *events, const struct pl_ring_head *head, const bool parts[PARTS])
{
    for (int part = 1; part < PARTS; part++) {
        if (parts[part]) {
            char name[64];

            snprintf(name, sizeof(name), "collectives of sub-world %d", part);
            pl_trace_events_thread(events, head->rank, 1 + part, name);
        }
    }
}

static enum pl_status no_ring(const char *path, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "'%s' is not a trace ring of this version", path);
}

static enum pl_status read_at(int fd, const char *path, off_t at, void *to, size_t bytes, struct pl_error *reterr)
{
    ssize_t got = pread(fd, to, bytes, at);

    if (got < 0 && errno == ESPIPE) {
        return pl_error_set(
            reterr, PL_INVALID,
            "'%s' is a pipe: expected the file of a trace ring, whose header is read again after the rest", path);
    }
    if (got < 0) {
        return pl_error_errno(reterr, "read '%s'", path);
    }
    return (size_t)got == bytes ? PL_OK : no_ring(path, reterr);
}

enum pl_status pl_ring_read(const char *path, struct pl_ring *ring, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: does not wait for a FIFO */
    PL_AUTO_FREE struct pl_ring_record *records = NULL;
    struct pl_ring_head head_after;

    if (fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "cannot open '%s'", path);
    }
    PL_TRY(read_at(fd, path, 0, &ring->head, sizeof(ring->head), reterr));
    if (memcmp(ring->head.magic, ring_magic, sizeof(ring_magic)) != 0 || ring->head.record_bytes != sizeof(*records) ||
        ring->head.records < LEAST_RECORDS || ring->head.records > MAX_RECORDS) {
        return no_ring(path, reterr);
    }
    PL_TRY(pl_memory_alloc(&records, ring->head.records, sizeof(*records), reterr));
    PL_TRY(read_at(fd, path, sizeof(ring->head), records, ring->head.records * sizeof(*records), reterr));
    PL_TRY(read_at(fd, path, 0, &head_after, sizeof(head_after), reterr));
    /* Skips the records that the writer may have overwritten during the read, and the one after them. */
    ring->first = head_after.written >= ring->head.records ? head_after.written - ring->head.records + 1 : 0;
    ring->records = records;
    records = NULL;
    return PL_OK;
}

/* Returns the start of the UTC day of the earliest record; 1970-01-01 if there are no records. */
static enum pl_status find_midnight(const char *const *paths, size_t count, int64_t *ret_ns, struct pl_error *reterr)
{
    *ret_ns = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        struct pl_ring ring;

        PL_TRY(pl_ring_read(paths[i], &ring, reterr));
        for (uint64_t at = ring.first; at < ring.head.written; at++) {
            int64_t ns = pl_ring_wall_ns(&ring.head, ring.records[at % ring.head.records].start_ns);

            *ret_ns = ns < *ret_ns ? ns : *ret_ns;
        }
        free(ring.records);
    }
    *ret_ns = *ret_ns < 0 || *ret_ns == INT64_MAX ? 0 : *ret_ns - *ret_ns % DAY_NS;
    return PL_OK;
}

static enum pl_status merge_one(const char *path, int64_t midnight_ns, struct pl_trace_events *events,
                                struct pl_error *reterr)
{
    bool parts[PARTS] = {false};
    struct pl_ring ring;

    PL_TRY(pl_ring_read(path, &ring, reterr));
    print_head(events, &ring.head);
    for (uint64_t at = ring.first; at < ring.head.written; at++) {
        const struct pl_ring_record *record = &ring.records[at % ring.head.records];

        print_record(events, &ring.head, record, midnight_ns);
        parts[record->part] = true;
    }
    print_parts(events, &ring.head, parts);
    free(ring.records);
    return PL_OK;
}

enum pl_status pl_trace_merge(const char *const *paths, size_t count, struct pl_text *text, struct pl_error *reterr)
{
    struct pl_trace_events events = {.text = text};
    char date[sizeof("2000-01-01T00:00:00Z")] = "";
    int64_t midnight_ns;
    struct tm parts;
    time_t seconds;

    PL_TRY(find_midnight(paths, count, &midnight_ns, reterr));
    seconds = (time_t)(midnight_ns / PL_NS_PER_S);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    pl_text_printf(text, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"ts_0\":\"%s\"},\"traceEvents\":[", date);
    for (size_t i = 0; i < count; i++) {
        PL_TRY(merge_one(paths[i], midnight_ns, &events, reterr));
    }
    pl_text_append(text, "\n]}\n");
    return pl_text_check(text, reterr);
}

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

/* Prints the digits itself, because a double of the time since 1970 has steps of 256 ns. */
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
