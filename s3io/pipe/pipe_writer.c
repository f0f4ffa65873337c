/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a FIFO in chunks, whose pages it lends to the pipe where the reader allows it. */
#include "s3io/pipe/pipe_writer.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20 };

#define ALL_BYTES ((size_t)PL_PIPE_CHUNKS * PL_PIPE_CHUNK_BYTES)

enum pl_status pl_pipe_writer_init(struct pl_pipe_writer *writer, bool copy, struct pl_error *reterr)
{
    /* The chunks are mapped, not from the heap: after munmap(), pages that a pipe still holds stay as they are. */
    void *chunks = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *writer = (struct pl_pipe_writer){.fd = -1, .copy = copy};
    if (chunks == MAP_FAILED) {
        return pl_error_errno(reterr, "map the buffers of a FIFO");
    }
    writer->chunks = chunks;
    return PL_OK;
}

static enum pl_status take_other_pages(unsigned char *chunks, size_t bytes, struct pl_error *reterr)
{
    return madvise(chunks, bytes, MADV_DONTNEED) == 0 ? PL_OK : pl_error_errno(reterr, "empty the buffers of a FIFO");
}

enum pl_status pl_pipe_writer_open(struct pl_pipe_writer *writer, const char *path, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;

    if (fd < 0) {
        return errno == ENXIO || errno == EINTR      ? PL_TIMEOUT
               : errno == ENOENT || errno == ENOTDIR ? pl_error_set(reterr, PL_NOT_FOUND, "there is no FIFO '%s'", path)
                                                     : pl_error_errno(reterr, "open FIFO '%s' for writing", path);
    }
    if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a FIFO", path);
    }
    fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
    writer->closed = false;
    writer->filled = writer->sent = 0;
    writer->bytes = 0;
    memset(writer->lent_until, 0, sizeof(writer->lent_until));
    if (!writer->copy) { /* a reader may still have the pipe of an earlier epoch */
        PL_TRY(take_other_pages(writer->chunks, ALL_BYTES, reterr));
    }
    writer->fd = fd;
    fd = -1;
    return PL_OK;
}

/* Goes to the next chunk, whose pages may be changed from then on. */
static enum pl_status next_chunk(struct pl_pipe_writer *writer, struct pl_error *reterr)
{
    uint64_t lent_until;
    int unread = 0;

    writer->filled = writer->sent = 0;
    if (writer->copy) {
        return PL_OK;
    }
    writer->lent_until[writer->chunk] = writer->bytes;
    writer->chunk = (writer->chunk + 1) % PL_PIPE_CHUNKS;
    lent_until = writer->lent_until[writer->chunk];
    if (lent_until == 0 ||
        (ioctl(writer->fd, FIONREAD, &unread) == 0 && lent_until + (uint64_t)unread <= writer->bytes)) {
        return PL_OK;
    }
    return take_other_pages(writer->chunks + (size_t)writer->chunk * PL_PIPE_CHUNK_BYTES, PL_PIPE_CHUNK_BYTES, reterr);
}

enum pl_status pl_pipe_writer_push(struct pl_pipe_writer *writer, struct pl_error *reterr)
{
    while (writer->sent < writer->filled && !writer->closed) {
        struct iovec part = {.iov_base = writer->chunks + (size_t)writer->chunk * PL_PIPE_CHUNK_BYTES + writer->sent,
                             .iov_len = writer->filled - writer->sent};
        ssize_t put = writer->copy ? write(writer->fd, part.iov_base, part.iov_len)
                                   : vmsplice(writer->fd, &part, 1, SPLICE_F_NONBLOCK);

        if (put >= 0) {
            writer->sent += (size_t)put;
            writer->bytes += (uint64_t)put;
        } else if (errno == EAGAIN) {
            return PL_TIMEOUT;
        } else if ((errno == EPERM || errno == ENOSYS) && !writer->copy) {
            /* the seccomp profile of a container, for example podman's default, refuses vmsplice() */
            writer->copy = true;
        } else if (errno == EPIPE) {
            writer->closed = true;
        } else if (errno != EINTR) {
            return pl_error_errno(reterr, "write a FIFO");
        }
    }
    return writer->closed || writer->filled == PL_PIPE_CHUNK_BYTES ? next_chunk(writer, reterr) : PL_OK;
}

void pl_pipe_writer_close(struct pl_pipe_writer *writer)
{
    pl_file_close_at(&writer->fd);
}

void pl_pipe_writer_done(struct pl_pipe_writer *writer)
{
    pl_pipe_writer_close(writer);
    if (writer->chunks) {
        munmap(writer->chunks, ALL_BYTES);
        writer->chunks = NULL;
    }
}
