/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one line to stderr per call, with a prefix. A line that takes more than 1 s is dropped and counted. */
#include "base/log.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_WAIT_NS PL_NS_PER_S /* longest wait for room in stderr */

static _Atomic int log_level = PL_LOG_INFO;
static char log_prefix[64] = "paceline";
static int log_fd = STDERR_FILENO;
static _Atomic unsigned lines_lost; /* lines dropped since a line was last written */

void pl_log_set_level(enum pl_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool pl_log_shows(enum pl_log_level level)
{
    return (int)level >= atomic_load_explicit(&log_level, memory_order_relaxed);
}

static const char *const level_names[] = {
    [PL_LOG_DEBUG] = "debug", [PL_LOG_INFO] = "info", [PL_LOG_WARNING] = "warning", [PL_LOG_ERROR] = "error"};

const char *pl_log_level_text(enum pl_log_level level)
{
    return level_names[level];
}

bool pl_log_level_read(const char *word, enum pl_log_level *ret_level)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(level_names); i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum pl_log_level)i;
            return true;
        }
    }
    return false;
}

void pl_log_open(const char *prefix)
{
    const char *word = pl_environment_own("PACELINE_LOG");
    enum pl_log_level level = PL_LOG_INFO;

    pl_log_set_prefix(prefix);
    if (word && !pl_log_level_read(word, &level)) {
        pl_log(PL_LOG_WARNING, "PACELINE_LOG is '%.60s': expected debug, info, warning or error", word);
    }
    pl_log_set_level(level);
}

void pl_log_set_prefix(const char *prefix)
{
    snprintf(log_prefix, sizeof(log_prefix), "%s", prefix);
}

void pl_log_set_fd(int fd)
{
    log_fd = fd;
}

/*
 * Writes a line. A reader that has stopped must not block the program: only the first line waits; later lines are
 * dropped at once until a line can be written.
 */
static void write_line(const char *line, size_t bytes)
{
    const unsigned lost = atomic_exchange_explicit(&lines_lost, 0, memory_order_relaxed);
    const int64_t deadline_ns = pl_deadline_after_ns(lost == 0 ? LONGEST_WAIT_NS : 0);
    enum pl_status status = PL_OK;
    char note[160];

    if (lost > 0) {
        int length = snprintf(note, sizeof(note), "%s: warning: %u lines are missing here: nobody read the log\n",
                              log_prefix, lost);

        status = pl_file_write_by(log_fd, note, (size_t)length, deadline_ns, "the log", NULL);
        if (status != PL_OK) {
            atomic_fetch_add_explicit(&lines_lost, lost, memory_order_relaxed);
        }
    }
    if (status == PL_OK) {
        status = pl_file_write_by(log_fd, line, bytes, deadline_ns, "the log", NULL);
    }
    if (status == PL_TIMEOUT) { /* other failures cannot be reported anywhere */
        atomic_fetch_add_explicit(&lines_lost, 1, memory_order_relaxed);
    }
}

static void log_line(enum pl_log_level level, const char *format, va_list args)
{
    char line[4096];
    size_t used, room = sizeof(line) - 1; /* room for the newline stays free */
    int length;

    length = snprintf(line, room, "%s: %s%s", log_prefix, level == PL_LOG_INFO ? "" : level_names[level],
                      level == PL_LOG_INFO ? "" : ": ");
    used = length > 0 ? (size_t)length : 0;
    length = vsnprintf(line + used, room - used, format, args);
    if (length > 0) {
        used = (size_t)length < room - used ? used + (size_t)length : room - 1;
    }
    pl_text_mask(line, used);
    line[used++] = '\n';
    write_line(line, used);
}

void pl_log(enum pl_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    va_list args;

    if (!pl_log_shows(level)) {
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
