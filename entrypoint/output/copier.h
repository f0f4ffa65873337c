/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Copies the output of a program through its shim.
 *
 * Test  tests/unit/entrypoint/output/test_copier.c, ../supervise/test_shim.c, tests/integration/log_lines.py
 */
#ifndef PL_ENTRYPOINT_OUTPUT_COPIER_H
#define PL_ENTRYPOINT_OUTPUT_COPIER_H

#include "base/status.h"
#include "entrypoint/output/bars.h"
#include "entrypoint/output/tail.h"

#include <poll.h>

enum {
    PL_COPIER_BYTES = 64 * 1024, /* the capacity of a pipe */
    /* A pipe takes this much as a whole, even if others write into it; mpirun reads this much at a time. */
    PL_COPIER_WRITE_BYTES = 4096,
    /* How many bytes mpirun has room for, with a tag such as "[1,12]<stdout>:" and a time of day before each line.
     * Bytes above it are lost. PL_COPIER_TAG_BYTES is the longest tag. */
    PL_COPIER_TAGGED_BYTES = 8192,
    PL_COPIER_TAG_BYTES = 48,
};

/**
 * Removes the blocks between two lines of dashes in which mpirun's stderr says only that a rank has ended badly:
 * Paceline's own last line names the rank, its host and the cause. All other blocks stay, and so do lines of ranks,
 * which have a tag. Zero-initialise; holds no resources.
 */
struct pl_abort_blocks {
    unsigned lines_left; /* number of lines of the open block that have not arrived; 0: no block is open */
};

/**
 * Takes `count` bytes, which are whole lines, removes the blocks in place, and returns how many bytes stay. Of these
 * the last `*ret_held_bytes` are a line of dashes that may begin a block: give it again, before the next lines.
 */
size_t pl_abort_blocks_remove(struct pl_abort_blocks *blocks, char *lines, size_t count, size_t *ret_held_bytes);

/**
 * Copies stderr or stdout: reads what the program writes, keeps the tail, and writes to our own stream. Only whole
 * lines are written, because mpirun puts a tag before each piece that it reads, and one log mixes lines of several
 * programs. A line that is longer than PL_COPIER_WRITE_BYTES is written in pieces of that size. A line without an end
 * is written after 250 ms; but as long as the program gets no CPU time for more of it, only after 10 s. Progress bars
 * become lines. Zero-initialise except `fd` and `bars.interval_ns`.
 */
struct pl_copier {
    int fd;        /* the program's output; -1 after its end */
    int out_fd;    /* our own stream */
    bool by_line;  /* false if we write to a terminal, where people wait for the echo of what they type */
    bool tagged;   /* mpirun is the reader */
    bool terminal; /* the program writes to a terminal */
    bool keeps_tail;
    bool ends_line;    /* a last line without an end gets one, because others write to the same log */
    bool line_is_open; /* the last byte for the log does not end a line */
    /* No other program writes to the same log: writes may be larger, and if the log's reader has gone, the program's
     * writes fail. */
    bool is_alone;
    bool without_blocks; /* the program is mpirun, whose blocks about the end of a rank are not written */
    struct pl_abort_blocks blocks;
    struct pl_bars bars;
    size_t begin, ready, end; /* the bytes up to `ready` may be written; an unfinished line follows */
    size_t in_tail;           /* the tail has the bytes up to here */
    int64_t line_deadline_ns; /* time of the next look whether the unfinished line is written as it is */
    unsigned line_looks;      /* number of such looks so far */
    int64_t first_cpu_ns;     /* what `runnable_cpu_ns` returned at the first of these looks */
    int64_t write_ns;         /* time at which to try to write again */
    char bytes[PL_COPIER_BYTES + PL_BARS_HELD_BYTES];
    bool broken; /* the reader of our output has closed it: only the tail is kept */
    struct pl_tail tail;
    char prefix[32];   /* before each line; "" if there is no prefix */
    bool keeps_prefix; /* a line that already begins with the prefix gets no second one */
    bool in_line;      /* the last staged byte does not end a line */
    size_t staged_begin, staged_end;
    char staged[PL_COPIER_WRITE_BYTES]; /* lines with their prefix, to be written next */
    int stream;                         /* STDOUT_FILENO or STDERR_FILENO of the program */
    /* a function that also gets all bytes that arrive; may be NULL */
    void (*read_along)(void *context, int stream, const char *bytes, size_t count);
    void *context;
    /* Returns the CPU time that the program has used, if it can run or is stopped: it may be halted in the middle of
     * a line. Returns -1 if it waits for something, or has ended. May be NULL */
    int64_t (*runnable_cpu_ns)(void *reader);
    void *reader;
};

/**
 * From now on, until the process ends, write to a file description of our own for `fd`, which never blocks. If the
 * system gives none, write to `fd` itself. With `tagged`, mpirun is the reader: its pipe is made so short that mpirun
 * reads exactly what one call has written.
 */
void pl_copier_open_output(struct pl_copier *copier, int fd, bool tagged);

/** Make the pipe that the program writes to. `*ret_fd` is the program's end. */
enum pl_status pl_copier_open_pipe(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Make a terminal instead, as Open MPI's daemon does, so that C programs write line by line. It controls no process and
 * passes all bytes unchanged. If the system has no terminal, make a pipe, as that daemon does.
 */
enum pl_status pl_copier_open_terminal(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Set what poll(2) is to wait for, and lower `*ret_deadline_ns` to this copier's own deadline if that is earlier. */
void pl_copier_wait(const struct pl_copier *copier, struct pollfd waits[static 2], int64_t *ret_deadline_ns);

/** Read or write, without blocking, as poll(2) has found in `waits`. */
void pl_copier_go_on(struct pl_copier *copier, const struct pollfd waits[static 2]);

/**
 * Call when the program has ended: closes its output, and makes the remaining bytes ready. With `ends_line` a last line
 * without an end gets one, also if the line was written before.
 */
void pl_copier_end(struct pl_copier *copier);

bool pl_copier_has_to_write(const struct pl_copier *copier);

/** Whether some of the program's output is still to be read or written. */
bool pl_copier_is_pending(const struct pl_copier *copier);

#endif
