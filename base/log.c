/* SPDX-License-Identifier: Apache-2.0 */
/* One line to stderr per call, with a prefix, given up when nobody reads it for a second. */
#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_WAIT_NS PL_NS_PER_S /* for the reader of our stderr */

static _Atomic int log_level = PL_LOG_INFO;
static char log_prefix[64] = "paceline";

void pl_log_set_level(enum pl_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void pl_log_set_prefix(const char *prefix)
{
    snprintf(log_prefix, sizeof(log_prefix), "%s", prefix);
}

static const char *level_word(enum pl_log_level level)
{
    switch (level) {
    case PL_LOG_DEBUG:
        return "debug: ";
    case PL_LOG_INFO:
        return "";
    case PL_LOG_WARNING:
        return "warning: ";
    case PL_LOG_ERROR:
        return "error: ";
    }
    return "";
}

/* A reader that has stopped reading must not stop us: a pipe that polls as writable takes a line without blocking. */
static bool stderr_takes_more(int64_t deadline_ns)
{
    struct pollfd wait = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;

    do {
        ready = poll(&wait, 1, pl_deadline_poll_ms(deadline_ns));
    } while (ready < 0 && errno == EINTR && !pl_deadline_passed(deadline_ns)); /* a signal makes no room */
    return ready > 0 || (ready < 0 && errno != EINTR);
}

static void log_line(enum pl_log_level level, const char *format, va_list args)
{
    char line[4096];
    size_t used, room = sizeof(line) - 1; /* the newline always fits */
    int length;

    length = snprintf(line, room, "%s: %s", log_prefix, level_word(level));
    used = length > 0 ? (size_t)length : 0;
    length = vsnprintf(line + used, room - used, format, args);
    if (length > 0) {
        used = (size_t)length < room - used ? used + (size_t)length : room - 1;
    }
    line[used++] = '\n';
    for (size_t done = 0; done < used;) {
        ssize_t written;

        if (!stderr_takes_more(pl_deadline_after_ns(LONGEST_WAIT_NS))) {
            return;
        }
        written = write(STDERR_FILENO, line + done, used - done);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return; /* there is no other place to report it */
        }
        done += (size_t)written;
    }
}

void pl_log(enum pl_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    va_list args;

    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed)) {
        return;
    }
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
    errno = saved_errno;
}

void pl_log_error(const struct pl_error *error, const char *what_format, ...)
{
    char what[256], text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES + 8];
    va_list args;

    va_start(args, what_format);
    vsnprintf(what, sizeof(what), what_format, args);
    va_end(args);
    pl_log(PL_LOG_ERROR, "%s: %s", what, pl_error_text(error, text, sizeof(text)));
}
