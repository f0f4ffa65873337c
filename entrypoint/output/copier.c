/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a program's output line by line, without the blocks of Open MPI 4 and 5 about the end of a rank. */
#include "entrypoint/output/copier.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* More lines than the longest block has, so that a block without an end is not left out for ever. */
enum { BLOCK_LINES_MOST = 12, DASHES_LEAST = 60 };

static bool is_dashes(const char *line, size_t bytes)
{
    return bytes > DASHES_LEAST && strspn(line, "-") == bytes - 1;
}

static bool begins_with(const char *text, size_t bytes, const char *beginning)
{
    return bytes >= strlen(beginning) && memcmp(text, beginning, strlen(beginning)) == 0;
}

/* "mpirun noticed that ...": the first word is the name by which it was started. */
static bool begins_block(const char *line, size_t bytes)
{
    static const char *const beginnings[] = {"Primary job  terminated normally, but ",
                                             "MPI_ABORT was invoked on rank "};
    static const char *const after_name[] = {" noticed that process rank ",
                                             " detected that one or more processes exited with non-zero status"};
    const size_t name = strcspn(line, " \n");

    for (size_t i = 0; i < PL_ARRAY_ITEMS(after_name); i++) {
        if (begins_with(line + name, bytes - name, after_name[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(beginnings); i++) {
        if (begins_with(line, bytes, beginnings[i])) {
            return true;
        }
    }
    return false;
}

static bool has_tag(const char *line)
{
    return line[0] == '[';
}

size_t pl_abort_blocks_remove(struct pl_abort_blocks *blocks, char *lines, size_t count, size_t *ret_held_bytes)
{
    size_t kept = 0, dashes = 0; /* dashes: bytes of a line of dashes at the end of the kept bytes */

    for (size_t at = 0, bytes; at < count; at += bytes) {
        const char *newline = memchr(lines + at, '\n', count - at);

        bytes = newline ? (size_t)(newline - lines) + 1 - at : count - at;
        if (blocks->lines_left > 0 && !has_tag(lines + at)) {
            blocks->lines_left = is_dashes(lines + at, bytes) ? 0 : blocks->lines_left - 1;
            continue;
        }
        if (dashes > 0 && begins_block(lines + at, bytes)) {
            kept -= dashes;
            dashes = 0;
            blocks->lines_left = BLOCK_LINES_MOST;
            continue;
        }
        dashes = is_dashes(lines + at, bytes) ? bytes : 0;
        memmove(lines + kept, lines + at, bytes);
        kept += bytes;
    }
    *ret_held_bytes = dashes;
    return kept;
}

/* How long an unfinished line waits for its end: two looks at the program. If a loaded machine keeps the program from
 * going on, the line waits for more looks, until the program has had enough CPU time to end the line. */
#define LOOK_NS (PL_NS_PER_S / 8)
#define ENOUGH_CPU_NS (LOOK_NS / 2)
enum { LOOKS_LEAST = 2, LOOKS_MOST = 80 };

void pl_copier_open_output(struct pl_copier *copier, int fd, bool tagged)
{
    const int own_fd = pl_file_open_own(fd);

    copier->stream = fd;
    copier->out_fd = own_fd >= 0 ? own_fd : fd;
    copier->tagged = tagged;
    copier->by_line = tagged || isatty(fd) == 0;
    /* A pipe of one page polls as writable only when it is empty. So the pipe never holds two writes, of which mpirun
     * would read one and a half. */
    if (tagged && fcntl(copier->out_fd, F_SETPIPE_SZ, PL_COPIER_WRITE_BYTES) < 0) {
        pl_log(PL_LOG_DEBUG, "mpirun may cut what is written to descriptor %d: %s", fd, strerror(errno));
    }
    if (own_fd < 0) {
        pl_log(PL_LOG_DEBUG, "descriptor %d could not be opened again, writing to it may block", fd);
    }
}

enum pl_status pl_copier_open_pipe(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    copier->fd = pair[0];
    *ret_fd = pair[1];
    return pl_file_set_nonblock(copier->fd, true, reterr);
}

/* Open a new terminal. Returns the program's end and sets `*ret_fd` to the other end; returns -1 with errno if it
 * fails. */
static int open_terminal(int *ret_fd)
{
    int program_fd = -1;
    struct termios attributes;
    char name[64];

    *ret_fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*ret_fd >= 0 && grantpt(*ret_fd) == 0 && unlockpt(*ret_fd) == 0 &&
        ptsname_r(*ret_fd, name, sizeof(name)) == 0) {
        program_fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (program_fd >= 0 && tcgetattr(program_fd, &attributes) == 0) {
        attributes.c_oflag &= ~(tcflag_t)OPOST;
        attributes.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
        if (tcsetattr(program_fd, TCSANOW, &attributes) == 0) {
            return program_fd;
        }
    }
    pl_file_close_at(&program_fd);
    pl_file_close_at(ret_fd);
    return -1;
}

enum pl_status pl_copier_open_terminal(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr)
{
    *ret_fd = open_terminal(&copier->fd);
    copier->terminal = *ret_fd >= 0;
    if (!copier->terminal) {
        pl_log(PL_LOG_DEBUG, "no terminal for the program's output, a pipe is used: %s", strerror(errno));
        return pl_copier_open_pipe(copier, ret_fd, reterr);
    }
    return PL_OK;
}

/* All bytes here are new, because nothing was ready to be written. */
static void remove_blocks(struct pl_copier *copier)
{
    size_t held, left = pl_abort_blocks_remove(&copier->blocks, copier->bytes, copier->ready, &held);

    memmove(copier->bytes + left, copier->bytes + copier->ready, copier->end - copier->ready);
    copier->end -= copier->ready - left;
    copier->in_tail = left;
    copier->ready = left - held;
}

/* Set `ready`: the bytes before it may be written. If no process reads them, they count as written. */
static void make_ready(struct pl_copier *copier, size_t ready)
{
    if (copier->keeps_tail) {
        pl_tail_add(&copier->tail, copier->bytes + copier->in_tail, ready - copier->in_tail);
    }
    copier->in_tail = copier->ready = ready;
    copier->begin = copier->broken ? ready : copier->begin;
}

/* Set `end`: the bytes before it were read, or made of bytes that were read. */
static void set_end(struct pl_copier *copier, size_t end)
{
    copier->end = end;
    if (end > 0) {
        copier->line_is_open = copier->bytes[end - 1] != '\n';
    }
}

/* Add `bytes` that have arrived after `end`, and decide how many of all bytes may be written now. */
static void add(struct pl_copier *copier, size_t bytes)
{
    const bool was_empty = copier->end == 0;
    const char *newline;

    set_end(copier, copier->by_line && copier->bars.interval_ns != PL_BARS_KEEP
                        ? pl_bars_pass(&copier->bars, copier->bytes, copier->end, bytes, pl_clock_now_ns())
                        : copier->end + bytes);
    newline = memrchr(copier->bytes + copier->in_tail, '\n', copier->end - copier->in_tail);
    if (newline || was_empty) {
        copier->line_deadline_ns = pl_deadline_after_ns(LOOK_NS);
        copier->line_looks = 0;
    }
    if (newline) {
        make_ready(copier, (size_t)(newline - copier->bytes) + 1);
    }
    if (newline && copier->without_blocks) {
        remove_blocks(copier);
    }
    if (!copier->by_line || (copier->ready == 0 && copier->end >= PL_COPIER_BYTES)) {
        make_ready(copier, copier->end);
    }
}

void pl_copier_end(struct pl_copier *copier)
{
    pl_file_close_at(&copier->fd);
    set_end(copier, copier->end + pl_bars_end(&copier->bars, copier->bytes + copier->end));
    if (copier->ends_line && copier->line_is_open) { /* one write with the line: nobody writes in between */
        copier->bytes[copier->end] = '\n';
        set_end(copier, copier->end + 1);
    }
    make_ready(copier, copier->end);
}

/* Call only when nothing is ready to be written. */
static void read_some(struct pl_copier *copier)
{
    const size_t kept = copier->end - copier->begin;
    size_t room = PL_COPIER_BYTES - kept;
    ssize_t bytes;

    if (copier->begin > 0) {
        copier->bars.is_open = copier->bytes[copier->begin - 1] != '\n';
        memmove(copier->bytes, copier->bytes + copier->begin, kept);
    }
    copier->in_tail -= copier->begin;
    copier->begin = copier->ready = 0;
    copier->end = kept;
    if (copier->terminal && kept < PL_COPIER_WRITE_BYTES) {
        /* a terminal delivers at most this at a time: this avoids a second write for a few bytes */
        room = PL_COPIER_WRITE_BYTES - kept;
    }
    bytes = read(copier->fd, copier->bytes + kept, room);
    if (bytes > 0) {
        if (copier->read_along) {
            copier->read_along(copier->context, copier->stream, copier->bytes + kept, (size_t)bytes);
        }
        add(copier, (size_t)bytes);
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) { /* EIO: no process has the terminal open any more */
        pl_copier_end(copier);
    }
}

/* Returns how many of `count` bytes mpirun can take at once. */
static size_t fit_tagged(const char *bytes, size_t count)
{
    size_t fits = 0, tagged = 0;

    while (fits < count) {
        const char *newline = memchr(bytes + fits, '\n', count - fits);
        const size_t line = newline ? (size_t)(newline - bytes) + 1 - fits : count - fits;

        tagged += PL_COPIER_TAG_BYTES + line;
        if (tagged > PL_COPIER_TAGGED_BYTES) {
            return fits;
        }
        fits += line;
    }
    return count;
}

/* Returns how many bytes to write next: at most what the pipe takes as a whole, and only whole lines if there are
 * any. */
static size_t next_part(const struct pl_copier *copier)
{
    const char *begin = copier->bytes + copier->begin;
    const size_t ready = copier->ready - copier->begin;
    size_t part = copier->is_alone ? ready : pl_number_min(ready, PL_COPIER_WRITE_BYTES);
    const char *newline;

    if (copier->tagged) {
        part = fit_tagged(begin, part);
    }
    newline = part < ready ? memrchr(begin, '\n', part) : NULL;
    return newline ? (size_t)(newline - begin) + 1 : part;
}

/* Whether the line has the prefix: torch itself puts a rank's tag before some lines, with or without a blank. */
static bool has_prefix(const struct pl_copier *copier, const char *line, size_t bytes)
{
    const size_t length = strcspn(copier->prefix, " ");

    return copier->keeps_prefix && bytes >= length && memcmp(line, copier->prefix, length) == 0;
}

/* Stage as many whole lines as fit, each with its prefix. Of a line that is too long, stage a part. */
static void stage(struct pl_copier *copier)
{
    copier->staged_begin = copier->staged_end = 0;
    while (copier->begin < copier->ready) {
        const char *line = copier->bytes + copier->begin;
        const char *newline = memchr(line, '\n', copier->ready - copier->begin);
        size_t bytes = newline ? (size_t)(newline - line) + 1 : copier->ready - copier->begin;
        size_t prefix_bytes = copier->in_line || has_prefix(copier, line, bytes) ? 0 : strlen(copier->prefix);
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
    copier->begin = copier->ready;
    copier->staged_begin = copier->staged_end = 0;
    if (copier->is_alone) {
        pl_file_close_at(&copier->fd);
    }
}

static void write_some(struct pl_copier *copier)
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
    } else if (written < 0 && errno == EAGAIN) {
        copier->write_ns = pl_deadline_after_ns(PL_FILE_RETRY_NS);
    } else if (written < 0 && errno != EINTR) {
        abort_output(copier);
    }
}

bool pl_copier_has_to_write(const struct pl_copier *copier)
{
    return copier->begin < copier->ready || copier->staged_begin < copier->staged_end;
}

/* Looks at the program, and returns whether its unfinished line must wait longer. */
static bool is_within_line(struct pl_copier *copier)
{
    const int64_t cpu_ns = copier->runnable_cpu_ns ? copier->runnable_cpu_ns(copier->reader) : -1;
    struct pollfd wait = {.fd = copier->fd, .events = POLLIN}; /* output that came before this look */

    copier->first_cpu_ns = copier->line_looks == 0 ? cpu_ns : copier->first_cpu_ns;
    copier->line_looks++;
    return copier->line_looks < LOOKS_LEAST ||
           (copier->line_looks < LOOKS_MOST && copier->first_cpu_ns >= 0 && cpu_ns >= 0 &&
            cpu_ns - copier->first_cpu_ns < ENOUGH_CPU_NS) ||
           poll(&wait, 1, 0) > 0;
}

/* Nothing is ready to be written and nothing has arrived. If the unfinished line has waited long enough, it becomes
 * ready, and so do states of progress bars. */
static void end_wait(struct pl_copier *copier)
{
    const int64_t late_ns = pl_clock_now_ns() - copier->line_deadline_ns;
    const size_t due = pl_bars_write_due(&copier->bars, copier->bytes + copier->end, pl_clock_now_ns());

    if (due > 0) {
        set_end(copier, copier->end + due);
        make_ready(copier, copier->end);
    }
    if (copier->ready == copier->end || late_ns < 0) {
        return;
    }
    /* if it is late, the machine has halted this process, and probably the program too */
    if (late_ns < LOOK_NS && !is_within_line(copier)) {
        make_ready(copier, copier->end);
    } else {
        copier->line_deadline_ns = pl_deadline_after_ns(LOOK_NS);
    }
}

void pl_copier_wait(const struct pl_copier *copier, struct pollfd waits[static 2], int64_t *ret_deadline_ns)
{
    const bool to_write = pl_copier_has_to_write(copier);
    int64_t deadline_ns = PL_DEADLINE_NEVER;

    waits[0] = (struct pollfd){.fd = to_write ? -1 : copier->fd, .events = POLLIN};
    waits[1] = (struct pollfd){.fd = to_write ? copier->out_fd : -1, .events = POLLOUT};
    if (to_write && !pl_deadline_passed(copier->write_ns)) {
        waits[1].fd = -1;
        deadline_ns = copier->write_ns;
    } else if (!to_write) {
        deadline_ns = pl_bars_deadline(&copier->bars);
        if (copier->ready < copier->end && copier->line_deadline_ns < deadline_ns) {
            deadline_ns = copier->line_deadline_ns;
        }
    }
    *ret_deadline_ns = deadline_ns < *ret_deadline_ns ? deadline_ns : *ret_deadline_ns;
}

void pl_copier_go_on(struct pl_copier *copier, const struct pollfd waits[static 2])
{
    if (waits[1].revents != 0) {
        write_some(copier);
        if (copier->fd >= 0 && !pl_copier_has_to_write(copier)) {
            read_some(copier); /* more has probably arrived meanwhile */
        }
    } else if (waits[0].revents != 0) {
        read_some(copier);
    } else if (!pl_copier_has_to_write(copier)) {
        end_wait(copier);
    }
}

bool pl_copier_is_pending(const struct pl_copier *copier)
{
    struct pollfd wait = {.fd = copier->fd, .events = POLLIN};

    return pl_copier_has_to_write(copier) || (copier->begin < copier->end && !copier->broken) ||
           (copier->fd >= 0 && poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN) != 0);
}
