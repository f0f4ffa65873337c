/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a program prints, on its way through its shim.
 *
 * Test  tests/unit/entrypoint/supervise/test_shim.c
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_COPIER_H
#define PL_ENTRYPOINT_SUPERVISE_COPIER_H

#include "entrypoint/supervise/metric.h"
#include "entrypoint/supervise/tail.h"

enum {
    PL_COPIER_BYTES = 64 * 1024,  /* a full pipe */
    PL_COPIER_WRITE_BYTES = 4096, /* what a pipe that polls as writable takes without blocking */
};

/**
 * The copy of stderr, and of a trial's stdout: read from the program, kept in the tail, written to our own. Whole lines
 * are written: mpirun puts a tag before each piece that it reads, and lines of several programs mix in one log.
 */
struct pl_copier {
    int fd;                   /* from the program; -1 at its end */
    int out_fd;               /* our own */
    bool by_line;             /* false on a terminal, where people wait for what they type */
    size_t begin, ready, end; /* what may be written ends at `ready`; a line without its end follows */
    int64_t line_deadline_ns; /* when that line is written as it is */
    char bytes[PL_COPIER_BYTES];
    bool broken; /* nobody reads our stderr: keep the tail only */
    struct pl_tail tail;
    /* of a trial: */
    char prefix[32];
    bool in_line; /* the last byte that was staged ends no line */
    size_t staged_begin, staged_end;
    char staged[PL_COPIER_WRITE_BYTES]; /* lines with their prefix, which are written next */
    struct pl_metric_line *line;
};

/** Read what has come. Only where nothing is ready to be written. */
void pl_copier_read(struct pl_copier *copier);

/** Write what can be written without blocking. */
void pl_copier_write(struct pl_copier *copier);

bool pl_copier_has_to_write(const struct pl_copier *copier);

/** Whether anything that the program has printed is still on its way. */
bool pl_copier_is_pending(const struct pl_copier *copier);

#endif
