/* SPDX-License-Identifier: Apache-2.0 */
/* Searches lines for a metric in a thread of its own, and measures the thread's CPU time. */
#include "programs/sweep/metric_reader.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "programs/sweep/metric.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Limits of the thread's CPU time, so that a busy machine makes no expression look slow. */
#define LINE_NS (10 * PL_NS_PER_S)
#define TOLD_NS (PL_NS_PER_S / 10)
#define LEAST_NS (PL_NS_PER_S / 4) /* CPU time before which the rate does not count */

enum {
    RATE_BYTES = 64 * 1024, /* least bytes per second while lines wait */
    LINE_COST_BYTES = 64,   /* cost of a line in addition to its bytes */
    SHOWN_BYTES = 200,
};

struct report {
    int64_t step;
    double value;
};

struct pl_metric_reader {
    char *name, *value_regex, *step_regex; /* `step_regex` may be NULL */
    int event_fd;
    struct pl_text lines[PL_METRIC_STREAMS]; /* the incomplete line of each stream */
    bool has_thread;
    bool cut; /* a line was too long */
    bool cut_told, slow_told;
    char *failure;
    pthread_t thread;
    struct pl_metric metric; /* belongs to the thread while it runs */
    pthread_mutex_t lock;
    pthread_cond_t more; /* signalled after more lines, and at the end */
    pthread_cond_t less; /* signalled when the thread has taken the waiting lines, or has searched them */
    struct {
        struct pl_text waiting; /* lines, each of which ends with a NUL */
        bool works, ended;
        bool in_step;        /* the thread searches for the step */
        size_t line_bytes;   /* length of the line that the thread searches */
        int64_t line_ns;     /* the thread's CPU time when it began with that line */
        uint64_t done_bytes; /* bytes of all searched lines, with LINE_COST_BYTES for each */
        int64_t slowest_ns;  /* CPU time of the slowest line */
        size_t slowest_bytes;
        bool slowest_in_step;
        struct report *reports;
        size_t reports_count, reports_taken, reports_capacity;
        bool lost; /* there was no memory for a report */
    } synced;
};

enum pl_status pl_metric_reader_new(const char *name, const char *value_regex, const char *step_regex,
                                    int64_t last_step, struct pl_metric_reader **ret_reader, struct pl_error *reterr)
{
    struct pl_metric_reader *reader = pl_memory_new(1, sizeof(*reader), reterr);
    enum pl_status status = PL_MEMORY;

    if (!reader) {
        return PL_MEMORY;
    }
    reader->event_fd = -1;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->more, NULL);
    pthread_cond_init(&reader->less, NULL);
    reader->name = pl_memory_string(name, reterr);
    reader->value_regex = pl_memory_string(value_regex, reterr);
    reader->step_regex = step_regex ? pl_memory_string(step_regex, reterr) : NULL;
    if (reader->name && reader->value_regex && (reader->step_regex || !step_regex)) {
        status = pl_metric_open(&reader->metric, reader->name, value_regex, step_regex, last_step, reterr);
    }
    if (status != PL_OK) {
        pl_metric_reader_free(reader);
        return status;
    }
    *ret_reader = reader;
    return PL_OK;
}

int pl_metric_reader_open(struct pl_metric_reader *reader)
{
    reader->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return reader->event_fd;
}

/* Makes the descriptor readable. */
static void wake(const struct pl_metric_reader *reader)
{
    const uint64_t one = 1;

    if (write(reader->event_fd, &one, sizeof(one)) < 0) {
        return; /* it is readable already */
    }
}

static int64_t own_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * PL_NS_PER_S + now.tv_nsec;
}

static void set_in_step(struct pl_metric_reader *reader, bool in_step)
{
    pthread_mutex_lock(&reader->lock);
    reader->synced.in_step = in_step;
    pthread_mutex_unlock(&reader->lock);
}

/* Searches a line. Runs in the thread. */
static void search(struct pl_metric_reader *reader, const char *line, size_t bytes, int64_t begun_ns)
{
    struct report report;
    bool found, tells;
    int64_t step_ns = 0, taken_ns;

    pthread_mutex_lock(&reader->lock);
    reader->synced.line_bytes = bytes;
    reader->synced.line_ns = begun_ns;
    reader->synced.in_step = reader->step_regex;
    pthread_mutex_unlock(&reader->lock);
    if (reader->step_regex) {
        pl_metric_find_step(&reader->metric, line);
        step_ns = own_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns;
        set_in_step(reader, false);
    }
    found = pl_metric_find_value(&reader->metric, line, &report.step, &report.value);
    taken_ns = own_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns;
    pthread_mutex_lock(&reader->lock);
    reader->synced.done_bytes += bytes + LINE_COST_BYTES;
    tells = taken_ns > TOLD_NS && reader->synced.slowest_ns <= TOLD_NS;
    if (taken_ns > reader->synced.slowest_ns) {
        reader->synced.slowest_ns = taken_ns;
        reader->synced.slowest_bytes = bytes;
        reader->synced.slowest_in_step = 2 * step_ns > taken_ns;
    }
    if (found && pl_memory_grow(&reader->synced.reports, &reader->synced.reports_capacity,
                                reader->synced.reports_count + 1, sizeof(report), NULL) == PL_OK) {
        tells = tells || reader->synced.reports_count == reader->synced.reports_taken;
        reader->synced.reports[reader->synced.reports_count++] = report;
    } else if (found) {
        tells = reader->synced.lost = true;
    }
    pthread_mutex_unlock(&reader->lock);
    if (tells) {
        wake(reader);
    }
}

static void *run(void *context)
{
    struct pl_metric_reader *reader = context;
    struct pl_text lines = PL_TEXT_NONE;

    for (;;) {
        struct pl_text empty;

        pthread_mutex_lock(&reader->lock);
        reader->synced.works = false;
        pthread_cond_signal(&reader->less);
        while (reader->synced.waiting.length == 0 && !reader->synced.ended) {
            pthread_cond_wait(&reader->more, &reader->lock);
        }
        if (reader->synced.waiting.length == 0) {
            break;
        }
        reader->synced.works = true;
        pl_text_clear(&lines);
        empty = lines;
        lines = reader->synced.waiting;
        reader->synced.waiting = empty;
        pthread_cond_signal(&reader->less);
        pthread_mutex_unlock(&reader->lock);
        for (size_t at = 0; at < lines.length;) {
            const size_t bytes = strlen(lines.data + at);

            search(reader, lines.data + at, bytes, own_ns(CLOCK_THREAD_CPUTIME_ID));
            at += bytes + 1;
        }
    }
    pthread_mutex_unlock(&reader->lock);
    pl_text_done(&lines);
    return NULL;
}

static void fail(struct pl_metric_reader *reader, struct pl_text *words)
{
    reader->failure = pl_text_check(words, NULL) == PL_OK ? words->data : NULL;
    if (reader->failure) {
        *words = PL_TEXT_NONE;
    }
    wake(reader);
}

static const char *regex_of(const struct pl_metric_reader *reader, bool in_step)
{
    return in_step ? reader->step_regex : reader->value_regex;
}

static void append_cost(const struct pl_metric_reader *reader, bool in_step, int64_t ns, size_t bytes,
                        struct pl_text *words)
{
    pl_text_printf(words, "the regular expression '%.*s' took %.1f s for a line of %zu bytes", SHOWN_BYTES,
                   regex_of(reader, in_step), (double)ns / (double)PL_NS_PER_S, bytes);
}

/* Fails the reader if the thread takes too long. `waits` says whether lines wait for it. The caller holds the lock. */
static void check_cost(struct pl_metric_reader *reader, bool waits)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    int64_t now_ns, line_ns;
    clockid_t clock;

    if (reader->failure || !reader->synced.works || pthread_getcpuclockid(reader->thread, &clock) != 0) {
        return;
    }
    now_ns = own_ns(clock);
    line_ns = now_ns - reader->synced.line_ns;
    if (line_ns > LINE_NS ||
        (waits && now_ns > LEAST_NS &&
         (double)reader->synced.done_bytes * (double)PL_NS_PER_S < (double)RATE_BYTES * (double)now_ns)) {
        const bool is_slowest = line_ns > reader->synced.slowest_ns;

        append_cost(reader, is_slowest ? reader->synced.in_step : reader->synced.slowest_in_step,
                    is_slowest ? line_ns : reader->synced.slowest_ns,
                    is_slowest ? reader->synced.line_bytes : reader->synced.slowest_bytes, &words);
        pl_text_append(&words, ", too slow for the program's output: write an expression without nested repeats");
        fail(reader, &words);
    }
}

/* Waits at most 0.1 s for the thread. The caller holds the lock. */
static void await_less(struct pl_metric_reader *reader)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PL_NS_PER_S / 10;
    until.tv_sec += until.tv_nsec / PL_NS_PER_S;
    until.tv_nsec %= PL_NS_PER_S;
    pthread_cond_timedwait(&reader->less, &reader->lock, &until);
}

static void start_thread(struct pl_metric_reader *reader)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (reader->has_thread || reader->failure) {
        return;
    }
    reader->has_thread = pl_thread_start(&reader->thread, run, reader, "the reader of the metric", &error) == PL_OK;
    if (!reader->has_thread) {
        pl_text_append(&words, error.cause);
        fail(reader, &words);
    }
}

/* Gives a complete line to the thread. */
static void pass_line(struct pl_metric_reader *reader, struct pl_text *line)
{
    if (line->length == 0) {
        return;
    }
    start_thread(reader);
    pthread_mutex_lock(&reader->lock);
    while (!reader->failure && reader->synced.waiting.length > PL_METRIC_WAITING_BYTES) {
        check_cost(reader, true);
        await_less(reader);
    }
    if (!reader->failure) {
        pl_text_append_n(&reader->synced.waiting, line->data, line->length);
        pl_text_append_char(&reader->synced.waiting, '\0');
        reader->synced.lost = reader->synced.lost || reader->synced.waiting.failed || line->failed;
        pthread_cond_signal(&reader->more);
    }
    pthread_mutex_unlock(&reader->lock);
    pl_text_clear(line);
}

void pl_metric_reader_add(struct pl_metric_reader *reader, size_t stream, const char *bytes, size_t count)
{
    struct pl_text *line = &reader->lines[stream];

    if (reader->failure) {
        return;
    }
    for (size_t at = 0; at < count;) {
        size_t length = 0, kept;

        while (at + length < count && bytes[at + length] != '\n' && bytes[at + length] != '\r') {
            length++;
        }
        kept = line->length + length > PL_METRIC_LINE_BYTES ? PL_METRIC_LINE_BYTES - line->length : length;
        pl_text_append_n(line, bytes + at, kept);
        for (size_t i = line->length - (line->failed ? 0 : kept); i < line->length; i++) {
            line->data[i] = (char)(line->data[i] != '\0' ? line->data[i] : '?');
        }
        if (kept < length && !reader->cut) {
            reader->cut = true;
            wake(reader);
        }
        at += length;
        if (at < count) {
            pass_line(reader, line);
            at++;
        }
    }
    pthread_mutex_lock(&reader->lock);
    check_cost(reader, false);
    pthread_mutex_unlock(&reader->lock);
}

void pl_metric_reader_end(struct pl_metric_reader *reader)
{
    for (size_t i = 0; i < PL_METRIC_STREAMS; i++) {
        pass_line(reader, &reader->lines[i]);
    }
    pthread_mutex_lock(&reader->lock);
    reader->synced.ended = true;
    pthread_cond_signal(&reader->more);
    while (reader->has_thread && !reader->failure && (reader->synced.works || reader->synced.waiting.length > 0)) {
        check_cost(reader, true);
        await_less(reader);
    }
    pthread_mutex_unlock(&reader->lock);
}

bool pl_metric_reader_next(struct pl_metric_reader *reader, int64_t *ret_step, double *ret_value)
{
    uint64_t count;
    bool found;

    pthread_mutex_lock(&reader->lock);
    found = reader->synced.reports_taken < reader->synced.reports_count;
    if (found) {
        *ret_step = reader->synced.reports[reader->synced.reports_taken].step;
        *ret_value = reader->synced.reports[reader->synced.reports_taken++].value;
    } else {
        reader->synced.reports_count = reader->synced.reports_taken = 0;
        if (read(reader->event_fd, &count, sizeof(count)) < 0) {
            count = 0; /* it was not readable */
        }
    }
    pthread_mutex_unlock(&reader->lock);
    return found;
}

const char *pl_metric_reader_failure(struct pl_metric_reader *reader)
{
    bool lost;

    pthread_mutex_lock(&reader->lock);
    lost = reader->synced.lost;
    pthread_mutex_unlock(&reader->lock);
    return reader->failure ? reader->failure : lost ? "out of memory reading the metric" : NULL;
}

void pl_metric_reader_warn(struct pl_metric_reader *reader, struct pl_text *words)
{
    if (reader->cut && !reader->cut_told) {
        reader->cut_told = true;
        pl_text_printf(words, "a line has more than %d bytes: the rest of it is not searched for the metric",
                       PL_METRIC_LINE_BYTES);
    }
    pthread_mutex_lock(&reader->lock);
    if (reader->synced.slowest_ns > TOLD_NS && !reader->slow_told) {
        reader->slow_told = true;
        pl_text_append(words, words->length > 0 ? "; " : "");
        append_cost(reader, reader->synced.slowest_in_step, reader->synced.slowest_ns, reader->synced.slowest_bytes,
                    words);
    }
    pthread_mutex_unlock(&reader->lock);
}

void pl_metric_reader_why_not(struct pl_metric_reader *reader, struct pl_text *words)
{
    if (!reader->failure && !reader->metric.has_reported) {
        pl_metric_why_not(&reader->metric, words);
    }
}

void pl_metric_reader_free(struct pl_metric_reader *reader)
{
    if (!reader) {
        return;
    }
    if (reader->has_thread) {
        pthread_join(reader->thread, NULL);
    }
    pl_metric_close(&reader->metric);
    pl_text_done(&reader->lines[0]);
    pl_text_done(&reader->lines[1]);
    pl_text_done(&reader->synced.waiting);
    free(reader->synced.reports);
    free(reader->failure);
    free(reader->name);
    free(reader->value_regex);
    free(reader->step_regex);
    pl_file_close_at(&reader->event_fd);
    free(reader);
}
