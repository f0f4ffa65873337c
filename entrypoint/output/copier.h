/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a program prints, on its way through its shim.
 *
 * Test  tests/unit/entrypoint/output/test_copier.c, ../supervise/test_shim.c, tests/integration/log_lines.py
 */
#ifndef PL_ENTRYPOINT_OUTPUT_COPIER_H
#define PL_ENTRYPOINT_OUTPUT_COPIER_H

#include "base/status.h"
#include "entrypoint/output/tail.h"

#include <poll.h>

enum {
    PL_COPIER_BYTES = 64 * 1024, /* a full pipe */
    /* What a pipe takes as a whole, whoever else writes into it; and what mpirun reads at a time. */
    PL_COPIER_WRITE_BYTES = 4096,
    /* What mpirun has room for once each line has its tag, such as "[1,12]<stdout>:" with a time of day in front, and
     * the longest tag. What is above it gets lost. */
    PL_COPIER_TAGGED_BYTES = 8192,
    PL_COPIER_TAG_BYTES = 48,
};

/**
 * The copy of stderr or stdout: read from the program, kept in the tail, written to our own. Whole lines are written:
 * mpirun puts a tag before each piece that it reads, and lines of several programs mix in one log. A line that is
 * longer than PL_COPIER_WRITE_BYTES goes out in pieces of that size.
 */
struct pl_copier {
    int fd;        /* from the program; -1 at its end */
    int out_fd;    /* our own */
    bool by_line;  /* false on a terminal, where people wait for what they type */
    bool tagged;   /* mpirun is the reader */
    bool terminal; /* the program writes to one */
    bool keeps_tail;
    size_t begin, ready, end; /* what may be written ends at `ready`; a line without its end follows */
    int64_t line_deadline_ns; /* when that line is written as it is */
    int64_t write_ns;         /* when writing is worth a try again */
    char bytes[PL_COPIER_BYTES];
    bool broken; /* nobody reads what we write: keep the tail only */
    struct pl_tail tail;
    char prefix[32];   /* before each line; "": none */
    bool keeps_prefix; /* a line that begins with it already gets no second one */
    bool in_line;      /* the last byte that was staged ends no line */
    size_t staged_begin, staged_end;
    char staged[PL_COPIER_WRITE_BYTES]; /* lines with their prefix, which are written next */
    void (*read_along)(void *reader, const char *bytes, size_t count); /* of what comes; NULL: nobody does */
    void *reader;
};

/**
 * Write to a description of our own of `fd` from now on, for the rest of the process, which never blocks; where the
 * system gives none, to `fd` itself. With `tagged` mpirun is the reader: its pipe is made so short that it reads what
 * one call has written, and nothing else.
 */
void pl_copier_open_output(struct pl_copier *copier, int fd, bool tagged);

/** Make the pipe that the program writes to, whose end is `*ret_fd`. */
enum pl_status pl_copier_open_pipe(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The same with a terminal, which no process is controlled by, as Open MPI's daemon makes one: C programs write line by
 * line then. It passes all bytes as they are. Where the system has none, as that daemon, a pipe.
 */
enum pl_status pl_copier_open_terminal(struct pl_copier *copier, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** What to wait for by poll(2), and until when: lowers `*ret_deadline_ns` to this copier's own deadline. */
void pl_copier_wait(const struct pl_copier *copier, struct pollfd waits[static 2], int64_t *ret_deadline_ns);

/** Read or write what poll(2) has found in `waits`, without blocking. */
void pl_copier_go_on(struct pl_copier *copier, const struct pollfd waits[static 2]);

bool pl_copier_has_to_write(const struct pl_copier *copier);

/** Whether anything that the program has printed is still on its way. */
bool pl_copier_is_pending(const struct pl_copier *copier);

#endif
