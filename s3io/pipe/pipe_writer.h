/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The writing side of a FIFO, which never blocks: it gathers bytes in chunks, and gives the pipe as many as it takes.
 *
 * Threads  one at a time. The process must ignore SIGPIPE.
 * Test     tests/unit/s3io/pipe/test_feeder.c, test_split.c
 */
#ifndef PL_S3IO_PIPE_PIPE_WRITER_H
#define PL_S3IO_PIPE_PIPE_WRITER_H

#include "base/status.h"

#include <stddef.h>

/*
 * Pages that vmsplice() lends to the pipe must not change until the reader has copied them. A chunk is used again after
 * CHUNKS - 1 others, which are more bytes than the pipe holds. But a reader may have enlarged the pipe, or may still
 * have the pipe of an earlier epoch. Then the chunk gets new pages, and the lent pages stay with the pipe.
 */
enum { PL_PIPE_CHUNK_BYTES = 256 << 10, PL_PIPE_CHUNKS = 16 };

struct pl_pipe_writer {
    int fd;      /* -1: not open */
    bool copy;   /* write copies instead of lending pages to the pipe; needed for readers that splice or tee */
    bool closed; /* the reader has left; further bytes are dropped */
    unsigned char *chunks;
    uint64_t lent_until[PL_PIPE_CHUNKS]; /* value of `bytes` after the chunk was lent; 0: not lent */
    unsigned chunk;                      /* the chunk that is being filled */
    size_t filled, sent;                 /* number of bytes in that chunk, and how many of them the pipe has taken */
    uint64_t bytes;                      /* number of bytes that the pipe has taken since the FIFO was opened */
};

enum pl_status pl_pipe_writer_init(struct pl_pipe_writer *writer, bool copy, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the FIFO at `path` if a reader has it open; its size is raised to 1 MiB if the system allows it.
 *
 * Errors  PL_TIMEOUT without a text: there is no reader. PL_NOT_FOUND: there is no FIFO. PL_INVALID: it is not a FIFO.
 */
enum pl_status pl_pipe_writer_open(struct pl_pipe_writer *writer, const char *path,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Returns where the next bytes go; there is room for `*ret_bytes`, at least 1. The caller adds them to `filled`. */
static inline unsigned char *pl_pipe_writer_room(const struct pl_pipe_writer *writer, size_t *ret_bytes)
{
    *ret_bytes = PL_PIPE_CHUNK_BYTES - writer->filled;
    return writer->chunks + (size_t)writer->chunk * PL_PIPE_CHUNK_BYTES + writer->filled;
}

/**
 * Gives the pipe the bytes of the chunk. It must be called when the chunk is full, and may be called before. PL_TIMEOUT
 * without a text: the pipe is full, call again when the FIFO is writable. After the reader has left it returns PL_OK.
 */
enum pl_status pl_pipe_writer_push(struct pl_pipe_writer *writer, struct pl_error *reterr) PL_MUST_CHECK;

/** Closes the FIFO; what the pipe has not taken is lost. */
void pl_pipe_writer_close(struct pl_pipe_writer *writer);

void pl_pipe_writer_done(struct pl_pipe_writer *writer);

#endif
