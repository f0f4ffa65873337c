/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a program's output line by line. */
#include "entrypoint/supervise/copier.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* how long a line waits for its end */
#define UNFINISHED_LINE_NS (PL_NS_PER_S / 10)

/* `bytes` have come after `end`: how much of it all may be written now? */
static void add(struct pl_copier *copier, size_t bytes)
{
    const char *newline = memrchr(copier->bytes + copier->end, '\n', bytes);

    if (newline != NULL || copier->end == 0) {
        copier->line_deadline_ns = pl_deadline_after_ns(UNFINISHED_LINE_NS);
    }
    copier->end += bytes;
    if (newline != NULL) {
        copier->ready = (size_t)(newline - copier->bytes) + 1;
    }
    if (!copier->by_line || (copier->ready == 0 && copier->end == sizeof(copier->bytes))) {
        copier->ready = copier->end;
    }
}

void pl_copier_read(struct pl_copier *copier)
{
    size_t kept = copier->end - copier->begin;
    ssize_t bytes;

    memmove(copier->bytes, copier->bytes + copier->begin, kept);
    copier->begin = copier->ready = 0;
    copier->end = kept;
    bytes = read(copier->fd, copier->bytes + kept, sizeof(copier->bytes) - kept);
    if (bytes > 0) {
        pl_tail_add(&copier->tail, copier->bytes + kept, (size_t)bytes);
        if (copier->line != NULL) {
            pl_metric_add(copier->line, copier->bytes + kept, (size_t)bytes);
        }
        if (!copier->broken) {
            add(copier, (size_t)bytes);
        }
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
        pl_file_close_at(&copier->fd);
        copier->ready = copier->end;
    }
}

/* What a pipe takes without blocking, and of that whole lines where there are any. */
static size_t next_part(const struct pl_copier *copier)
{
    const char *begin = copier->bytes + copier->begin;
    size_t part = copier->ready - copier->begin;
    const char *newline;

    if (part <= PL_COPIER_WRITE_BYTES) {
        return part;
    }
    newline = memrchr(begin, '\n', PL_COPIER_WRITE_BYTES);
    return newline != NULL ? (size_t)(newline - begin) + 1 : PL_COPIER_WRITE_BYTES;
}

/* Put as many lines as fit, each with its prefix, where they are written from; of a longer one a part. */
static void stage(struct pl_copier *copier)
{
    copier->staged_begin = copier->staged_end = 0;
    while (copier->begin < copier->ready) {
        const char *line = copier->bytes + copier->begin;
        const char *newline = memchr(line, '\n', copier->ready - copier->begin);
        size_t bytes = newline != NULL ? (size_t)(newline - line) + 1 : copier->ready - copier->begin;
        size_t prefix_bytes = copier->in_line ? 0 : strlen(copier->prefix);
        size_t room = sizeof(copier->staged) - copier->staged_end;

        if (prefix_bytes + bytes > room) {
            if (copier->staged_end > 0) {
                return;
            }
            bytes = room - prefix_bytes;
        }
        memcpy(copier->staged + copier->staged_end, copier->prefix, prefix_bytes);
        memcpy(copier->staged + copier->staged_end + prefix_bytes, line, bytes);
        copier->staged_end += prefix_bytes + bytes;
        copier->in_line = line[bytes - 1] != '\n';
        copier->begin += bytes;
    }
}

static void abort_output(struct pl_copier *copier)
{
    copier->broken = true;
    copier->begin = copier->ready = copier->end = 0;
    copier->staged_begin = copier->staged_end = 0;
}

void pl_copier_write(struct pl_copier *copier)
{
    const bool prefixed = copier->prefix[0] != '\0';
    ssize_t written;

    if (prefixed && copier->staged_begin == copier->staged_end) {
        stage(copier);
    }
    written = prefixed ? write(copier->out_fd, copier->staged + copier->staged_begin,
                               copier->staged_end - copier->staged_begin)
                       : write(copier->out_fd, copier->bytes + copier->begin, next_part(copier));
    if (written > 0 && prefixed) {
        copier->staged_begin += (size_t)written;
    } else if (written > 0) {
        copier->begin += (size_t)written;
    } else if (written < 0 && errno != EAGAIN && errno != EINTR) {
        abort_output(copier);
    }
}

bool pl_copier_has_to_write(const struct pl_copier *copier)
{
    return copier->begin < copier->ready || copier->staged_begin < copier->staged_end;
}

bool pl_copier_is_pending(const struct pl_copier *copier)
{
    struct pollfd wait = {.fd = copier->fd, .events = POLLIN};

    return pl_copier_has_to_write(copier) || copier->begin < copier->end ||
           (copier->fd >= 0 && poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN) != 0);
}
