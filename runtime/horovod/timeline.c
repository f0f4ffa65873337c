/* SPDX-License-Identifier: Apache-2.0 */
/* Horovod's timeline: events become lines of JSON in a buffer, and a thread writes the buffer to the file. */
#include "runtime/horovod/state.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "runtime/trace_ring.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHAINS = 1024, WORD_BYTES = 64 };

/* A tensor has two threads in the file, because it may be announced again before its last operation has ended. */
enum { NEGOTIATION, OPERATION };

/* A name and the number of its line. */
struct line {
    struct line *next;
    int number;
    char name[];
};

static struct {
    pthread_mutex_t changing; /* held by start and stop, which must not overlap */
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct {
        int fd; /* -1: there is no file */
        bool mark_cycles, stop;
        int64_t start_ns;
        struct pl_text text; /* text that is not written yet */
        struct pl_trace_events events;
        struct line *lines[CHAINS];
        int line_count;
    } synced;
    pthread_t thread;
} timeline = {.changing = PTHREAD_MUTEX_INITIALIZER,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .work = PTHREAD_COND_INITIALIZER,
              .synced = {.fd = -1}};

/* Begins an event; the caller adds fields. `line` 0: the event is about the file. The caller holds the lock. */
static struct pl_trace_events *begin(const char *phase, const char *name, int line, int thread)
{
    struct pl_trace_events *events = &timeline.synced.events;

    pl_trace_events_begin(events, phase, name, line, thread);
    pl_trace_events_time(events, "ts", pl_clock_now_ns() - timeline.synced.start_ns);
    return events;
}

/* Adds an event about the file itself, with a number. */
static void add_head(const char *name, int line, const char *argument, int64_t number)
{
    struct pl_trace_events *events = &timeline.synced.events;

    pl_trace_events_begin(events, "M", name, line, 0);
    pl_trace_events_args(events);
    pl_trace_events_number(events, argument, number);
    pl_trace_events_end(events);
}

/* Returns the number of the line for `name`, and begins a new line if needed; 0 if memory is out. */
static int find_line(const char *name)
{
    size_t length = strlen(name);
    struct line **at = &timeline.synced.lines[pl_hash(PL_HASH_START, name, length) % CHAINS];

    while (*at && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    if (!*at) {
        char readable[PL_NAMED_MAX_NAME_BYTES + WORD_BYTES];
        struct line *line = pl_memory_new(1, sizeof(*line) + length + 1, NULL);

        if (!line) {
            return 0;
        }
        memcpy(line->name, name, length + 1);
        line->number = ++timeline.synced.line_count;
        *at = line;
        snprintf(readable, sizeof(readable), "%s", name);
        pl_text_mask_broken(readable, strlen(readable));
        pl_trace_events_process(&timeline.synced.events, line->number, readable);
        add_head("process_sort_index", line->number, "sort_index", line->number);
        pl_trace_events_thread(&timeline.synced.events, line->number, NEGOTIATION, "negotiation");
    }
    return (*at)->number;
}

/* Writes Horovod's name of a kind: "NEGOTIATE_ALLREDUCE" and so on. */
static const char *word_of(const char *before, enum pl_kind kind, char word[WORD_BYTES])
{
    snprintf(word, WORD_BYTES, "%s%s", before, kind == PL_REDUCE_SCATTER ? "reducescatter" : pl_kind_text(kind));
    for (char *at = word; *at; at++) {
        *at = (char)toupper((unsigned char)*at);
    }
    return word;
}

static void add_shape(struct pl_trace_events *events, const struct pl_named_event *event)
{
    char shape[PL_NAMED_MAX_DIMS * 24] = "";
    size_t used = 0;

    for (unsigned i = 0; i < event->dims; i++) {
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)event->shape[i]);
    }
    pl_trace_events_args(events);
    pl_trace_events_text(events, "dtype", pl_dtype_text(event->dtype));
    pl_trace_events_text(events, "shape", shape);
}

static void add_announced(const struct pl_named_event *event, int line)
{
    char word[WORD_BYTES], rank[16];
    struct pl_trace_events *events;

    if (event->first) {
        pl_trace_events_end(begin("B", word_of("negotiate_", event->kind, word), line, NEGOTIATION));
    }
    snprintf(rank, sizeof(rank), "%d", event->rank);
    events = begin("X", rank, line, NEGOTIATION);
    pl_trace_events_time(events, "dur", 0);
    pl_trace_events_end(events);
}

static void add(const struct pl_named_event *event)
{
    int line = event->phase == PL_NAMED_ROUND ? 0 : find_line(event->name);
    struct pl_trace_events *events = NULL;
    char word[WORD_BYTES];

    switch (event->phase) {
    case PL_NAMED_ANNOUNCED:
        add_announced(event, line);
        return;
    case PL_NAMED_AGREED:
        events = begin("E", NULL, line, NEGOTIATION);
        break;
    case PL_NAMED_STARTED:
        events = begin("B", word_of("", event->kind, word), line, OPERATION);
        add_shape(events, event);
        break;
    case PL_NAMED_ENDED:
        events = begin("E", NULL, line, OPERATION);
        break;
    case PL_NAMED_ROUND:
        if (!timeline.synced.mark_cycles) {
            return;
        }
        events = begin("i", "CYCLE_START", line, 0);
        pl_trace_events_text(events, "s", "g");
        break;
    }
    pl_trace_events_end(events);
}

static void happened(void *context, const struct pl_named_event *event)
{
    (void)context;
    pthread_mutex_lock(&timeline.lock);
    if (timeline.synced.fd >= 0 && !timeline.synced.stop) {
        add(event);
        pthread_cond_signal(&timeline.work);
    }
    pthread_mutex_unlock(&timeline.lock);
}

static struct pl_named_observer observer = {.happened = happened};

const struct pl_named_observer *pl_timeline_observer(void)
{
    return &observer;
}

/* Writes the buffered text, without the lock. The first failure is logged and ends the timeline. */
static void write_text(bool *failed)
{
    struct pl_text text = timeline.synced.text;
    struct pl_error error = PL_ERROR_NONE;
    int fd = timeline.synced.fd;

    timeline.synced.text = PL_TEXT_NONE;
    pthread_mutex_unlock(&timeline.lock);
    if (!*failed && (pl_text_check(&text, &error) != PL_OK ||
                     pl_file_write_fd(fd, text.data, text.length, "the timeline", &error) != PL_OK)) {
        pl_log_error(&error, "the timeline ends here, because it cannot be written");
        *failed = true;
        pl_named_observe(&observer, false);
    }
    pl_text_done(&text);
    pthread_mutex_lock(&timeline.lock);
}

static void *write_all(void *unused)
{
    bool failed = false;

    (void)unused;
    pthread_mutex_lock(&timeline.lock);
    while (!timeline.synced.stop || timeline.synced.text.length > 0) {
        if (timeline.synced.text.length > 0) {
            write_text(&failed);
        } else {
            pthread_cond_wait(&timeline.work, &timeline.lock);
        }
    }
    pthread_mutex_unlock(&timeline.lock);
    return NULL;
}

/* Stops the timeline. Only one thread at a time may start or stop it. */
static void stop(void)
{
    int fd;

    pthread_mutex_lock(&timeline.lock);
    fd = timeline.synced.fd;
    if (fd >= 0) {
        pl_named_observe(&observer, false);
        pl_text_append(&timeline.synced.text, "\n]\n");
        timeline.synced.stop = true;
        pthread_cond_signal(&timeline.work);
    }
    pthread_mutex_unlock(&timeline.lock);
    if (fd < 0) {
        return;
    }
    pthread_join(timeline.thread, NULL);
    pthread_mutex_lock(&timeline.lock);
    timeline.synced.fd = -1;
    for (size_t i = 0; i < CHAINS; i++) {
        while (timeline.synced.lines[i]) {
            struct line *line = timeline.synced.lines[i];

            timeline.synced.lines[i] = line->next;
            free(line);
        }
    }
    pthread_mutex_unlock(&timeline.lock);
    if (close(fd) != 0) {
        pl_log(PL_LOG_ERROR, "the timeline may be incomplete: closing its file failed");
    }
}

static enum pl_status start(const char *path, bool mark_cycles, struct pl_error *reterr)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    struct timespec now = {0};
    enum pl_status status;

    if (fd < 0) {
        return pl_error_errno(reterr, "open the timeline '%s'", path);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&timeline.lock);
    timeline.synced.fd = fd;
    timeline.synced.mark_cycles = mark_cycles;
    timeline.synced.stop = false;
    timeline.synced.start_ns = pl_clock_now_ns();
    timeline.synced.text = PL_TEXT_NONE;
    timeline.synced.events = (struct pl_trace_events){.text = &timeline.synced.text};
    timeline.synced.line_count = 0;
    pl_text_append(&timeline.synced.text, "[");
    add_head("start_time_since_epoch_in_micros", 0, "start_time_since_epoch_in_micros",
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    pl_named_observe(&observer, true); /* before the thread starts: its first write may fail and end it */
    status = pl_thread_start(&timeline.thread, write_all, NULL, "the thread of the timeline", reterr);
    if (status != PL_OK) {
        pl_named_observe(&observer, false);
        timeline.synced.fd = -1;
        pl_text_done(&timeline.synced.text);
        close(fd);
    }
    pthread_mutex_unlock(&timeline.lock);
    return status;
}

enum pl_status pl_timeline_start(const char *path, bool mark_cycles, struct pl_error *reterr)
{
    enum pl_status status;

    pthread_mutex_lock(&timeline.changing);
    stop();
    status = start(path, mark_cycles, reterr);
    pthread_mutex_unlock(&timeline.changing);
    return status;
}

void pl_timeline_stop(void)
{
    pthread_mutex_lock(&timeline.changing);
    stop();
    pthread_mutex_unlock(&timeline.changing);
}
