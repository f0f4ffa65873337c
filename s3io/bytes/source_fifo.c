/* SPDX-License-Identifier: Apache-2.0 */
/* A FIFO as a byte source: waits for the path, for a writer and for data, each with a deadline. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "s3io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20, REPORT_BYTES = 4096 };

/* The longest wait for an inotify event before the path is tried again: some mounted file systems send no events. Also
 * the longest wait for data before the writer's report is read. */
#define POLL_AGAIN_NS (200 * PL_NS_PER_MS)

/* How long a stream that has begun may be silent after a stop request before it counts as ended. */
#define STOP_GRACE_NS (2 * PL_NS_PER_S)

struct fifo_source {
    struct pl_source head;
    int fd;          /* -1 until the path exists */
    int cancel_fd;   /* an eventfd that is readable after the source was cancelled */
    int stop_fd;     /* -1 if there is none */
    int64_t stop_ns; /* deadline after a stop request */
    bool writer_seen;
    char *report; /* the path of the writer's report, or NULL */
    struct stat report_info;
    enum pl_status told; /* error that the report with `report_info` tells */
    char told_text[PL_ERROR_CAUSE_BYTES];
    char *count_path; /* the file that gets `number` before the first byte is read, or NULL */
    uint64_t number;
};

static enum pl_status cancelled(const struct fifo_source *fifo, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "reading '%s' was cancelled", fifo->head.name);
}

static enum pl_status stopped(const struct fifo_source *fifo, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "stopped while waiting for %s FIFO '%s'",
                        fifo->writer_seen ? "more data from" : "a writer of", fifo->head.name);
}

/* Watches the directory of `path`. Returns -1 if that is impossible, for example because it does not exist yet. */
static int watch_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[4096];
    int fd, length;

    length = slash ? snprintf(directory, sizeof(directory), "%.*s", slash == path ? 1 : (int)(slash - path), path)
                   : snprintf(directory, sizeof(directory), ".");
    if (length < 0 || (size_t)length >= sizeof(directory)) {
        return -1;
    }
    fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd >= 0 && inotify_add_watch(fd, directory, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void drain(int fd)
{
    char events[4096];

    while (fd >= 0 && read(fd, events, sizeof(events)) > 0) {
    }
}

/*
 * Locks the FIFO against a second reader. Each of two readers would get only a part of the bytes, and if the parts are
 * whole records, nothing would detect it. On a file system without locks both can read.
 */
static enum pl_status lock_reader(int fd, const char *path, struct pl_error *reterr)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return pl_error_set(
            reterr, PL_INVALID,
            "FIFO '%s' has another reader: each of several ranks of one host reads a FIFO of its own, which `paceline "
            "train` names in SM_CHANNEL_<NAME>",
            path);
    }
    return PL_OK;
}

/* Opens the path, after waiting until it exists. The open itself never blocks, with or without a writer. */
static enum pl_status wait_and_open(struct fifo_source *fifo, int64_t deadline_ns, struct pl_error *reterr)
{
    const char *path = fifo->head.name;
    PL_AUTO_CLOSE int watch_fd = watch_directory(path);

    for (;;) {
        PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        int64_t look_ns = pl_deadline_after_ns(POLL_AGAIN_NS);
        struct pollfd fds[3] = {{.fd = fifo->cancel_fd, .events = POLLIN},
                                {.fd = fifo->stop_fd, .events = POLLIN},
                                {.fd = watch_fd, .events = POLLIN}};
        struct stat info;

        if (fd >= 0) {
            if (fstat(fd, &info) != 0) {
                return pl_error_errno(reterr, "fstat '%s'", path);
            }
            if (!S_ISFIFO(info.st_mode)) {
                return pl_error_set(reterr, PL_INVALID, "'%s' is not a FIFO", path);
            }
            PL_TRY(lock_reader(fd, path, reterr));
            /* This fails if the user's limit of pipe memory is reached; then the stream is slower, but correct. */
            fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
            fifo->fd = fd;
            fd = -1;
            return PL_OK;
        }
        if (errno != ENOENT && errno != ENOTDIR) {
            return pl_error_errno(reterr, "open FIFO '%s'", path);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(
                reterr, PL_TIMEOUT,
                "FIFO '%s' did not appear before the deadline: check the channel's name, and that its input mode is "
                "Pipe (input_mode in the SDK)",
                path);
        }
        if (poll(fds, 3, pl_deadline_poll_ms(look_ns < deadline_ns ? look_ns : deadline_ns)) < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "wait for FIFO '%s'", path);
        }
        if (fds[0].revents) {
            return cancelled(fifo, reterr);
        }
        if (fds[1].revents) {
            return stopped(fifo, reterr);
        }
        drain(watch_fd);
        if (watch_fd < 0) {
            watch_fd = watch_directory(path);
        }
    }
}

/* Reads the report that `info` describes. */
static void take_report(struct fifo_source *fifo, const struct stat *info)
{
    PL_AUTO_FREE char *text = NULL;

    fifo->told = PL_OK;
    fifo->report_info = *info;
    if (pl_file_read(fifo->report, REPORT_BYTES, &text, NULL, NULL) != PL_OK) {
        return;
    }
    for (enum pl_status status = PL_INVALID; status <= PL_FAILED; status++) {
        const size_t length = strlen(pl_status_name(status));

        if (strncmp(text, pl_status_name(status), length) == 0 && text[length] == ' ') {
            fifo->told = status;
            snprintf(fifo->told_text, sizeof(fifo->told_text), "%s", text + length + 1);
        }
    }
}

/* Returns the error that the writer's report tells: PL_TIMEOUT if the writer waits; PL_OK if it tells none. A report is
 * read once, because the watch for hangs takes each byte that a rank reads for a sign of life. */
static enum pl_status find_report(struct fifo_source *fifo, struct pl_error *reterr)
{
    const struct stat *before = &fifo->report_info;
    struct stat info;

    if (!fifo->report || stat(fifo->report, &info) != 0) {
        return PL_OK;
    }
    if (info.st_ino != before->st_ino || info.st_mtim.tv_sec != before->st_mtim.tv_sec ||
        info.st_mtim.tv_nsec != before->st_mtim.tv_nsec) {
        take_report(fifo, &info);
    }
    return fifo->told == PL_OK ? PL_OK : pl_error_set(reterr, fifo->told, "%s", fifo->told_text);
}

static enum pl_status wait_readable(struct fifo_source *fifo, int64_t deadline_ns, struct pl_error *reterr)
{
    for (;;) {
        int64_t look_ns = fifo->report ? pl_deadline_after_ns(POLL_AGAIN_NS) : PL_DEADLINE_NEVER;
        bool going_on = fifo->stop_ns == PL_DEADLINE_NEVER; /* after a stop request, stop_fd stays readable */
        struct pollfd fds[3] = {{.fd = fifo->fd, .events = POLLIN},
                                {.fd = fifo->cancel_fd, .events = POLLIN},
                                {.fd = going_on ? fifo->stop_fd : -1, .events = POLLIN}};
        int64_t until_ns = fifo->stop_ns < deadline_ns ? fifo->stop_ns : deadline_ns;
        int ready = poll(fds, 3, pl_deadline_poll_ms(look_ns < until_ns ? look_ns : until_ns));
        enum pl_status told;

        if (ready < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "poll FIFO '%s'", fifo->head.name);
        }
        if (ready > 0 && fds[1].revents) {
            return cancelled(fifo, reterr);
        }
        if (ready > 0 && fds[0].revents) {
            return PL_OK;
        }
        if (ready > 0) {
            fifo->stop_ns = fifo->writer_seen ? pl_deadline_after_ns(STOP_GRACE_NS) : 0;
        }
        if (pl_deadline_passed(fifo->stop_ns)) {
            return stopped(fifo, reterr);
        }
        told = find_report(fifo, reterr);
        if (told != PL_OK && told != PL_TIMEOUT && poll(fds, 1, 0) > 0) {
            return PL_OK; /* data from before the error */
        }
        if (told != PL_OK && (told != PL_TIMEOUT || pl_deadline_passed(deadline_ns))) {
            return told;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return fifo->writer_seen
                       ? pl_error_set(reterr, PL_TIMEOUT, "FIFO '%s': no data after byte %llu before the deadline",
                                      fifo->head.name, (unsigned long long)fifo->head.offset_bytes)
                       : pl_error_set(reterr, PL_TIMEOUT,
                                      "FIFO '%s': no writer came before the deadline: SageMaker writes it in Pipe "
                                      "Mode; on a machine of "
                                      "your own start `paceline feed`",
                                      fifo->head.name);
        }
    }
}

static enum pl_status write_number(const struct fifo_source *fifo, struct pl_error *reterr)
{
    char number[24];

    if (!fifo->count_path) {
        return PL_OK;
    }
    snprintf(number, sizeof(number), "%llu\n", (unsigned long long)fifo->number);
    return pl_file_write_atomic(fifo->count_path, number, strlen(number), 0600, reterr);
}

static enum pl_status fifo_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                size_t *ret_bytes, struct pl_error *reterr)
{
    struct fifo_source *fifo = (struct fifo_source *)source;

    if (fifo->fd < 0) {
        PL_TRY(wait_and_open(fifo, deadline_ns, reterr));
    }
    for (;;) {
        ssize_t got;

        /* Before the first writer, read() returns 0, as at the end. poll() reports nothing until a writer has written
         * or has closed the FIFO again. */
        if (!fifo->writer_seen) {
            PL_TRY(wait_readable(fifo, deadline_ns, reterr));
            PL_TRY(write_number(fifo, reterr));
            fifo->writer_seen = true;
        }
        got = read(fifo->fd, data, bytes);
        if (got >= 0) {
            fifo->stop_ns = PL_DEADLINE_NEVER;
            *ret_bytes = (size_t)got;
            return PL_OK;
        }
        if (errno == EAGAIN) {
            PL_TRY(wait_readable(fifo, deadline_ns, reterr));
        } else if (errno != EINTR) {
            return pl_error_errno(reterr, "read FIFO '%s' at byte %llu", source->name,
                                  (unsigned long long)source->offset_bytes);
        }
    }
}

static void fifo_cancel(struct pl_source *source)
{
    uint64_t one = 1;

    /* This fails only if the counter is full, and then the eventfd is readable already. */
    (void)!write(((struct fifo_source *)source)->cancel_fd, &one, sizeof(one));
}

static void fifo_close(struct pl_source *source)
{
    struct fifo_source *fifo = (struct fifo_source *)source;

    pl_file_close_at(&fifo->fd);
    pl_file_close_at(&fifo->cancel_fd);
    free(fifo->report);
    free(fifo->count_path);
    free(fifo);
}

void pl_source_stop_fifo(struct pl_source *source, int stop_fd)
{
    ((struct fifo_source *)source)->stop_fd = stop_fd;
}

enum pl_status pl_source_follow_report(struct pl_source *source, const char *path, struct pl_error *reterr)
{
    ((struct fifo_source *)source)->report = pl_memory_string(path, reterr);
    return ((struct fifo_source *)source)->report ? PL_OK : PL_MEMORY;
}

enum pl_status pl_source_count_fifo(struct pl_source *source, const char *path, uint64_t number,
                                    struct pl_error *reterr)
{
    struct fifo_source *fifo = (struct fifo_source *)source;

    fifo->number = number;
    fifo->count_path = pl_memory_string(path, reterr);
    return fifo->count_path ? PL_OK : PL_MEMORY;
}

static const struct pl_source_ops fifo_ops = {.read = fifo_read, .cancel = fifo_cancel, .close = fifo_close};

enum pl_status pl_source_open_fifo(const char *path, struct pl_source **ret_source, struct pl_error *reterr)
{
    struct fifo_source *fifo;

    PL_TRY(pl_memory_alloc(&fifo, 1, sizeof(*fifo), reterr));
    fifo->fd = fifo->stop_fd = -1;
    fifo->stop_ns = PL_DEADLINE_NEVER;
    fifo->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fifo->cancel_fd < 0) {
        enum pl_status status = pl_error_errno(reterr, "make an eventfd");

        free(fifo);
        return status;
    }
    if (pl_source_init(&fifo->head, &fifo_ops, path, reterr) != PL_OK) {
        fifo_close(&fifo->head);
        return PL_MEMORY;
    }
    *ret_source = &fifo->head;
    return PL_OK;
}
