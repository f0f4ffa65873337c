/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The two files that tell SageMaker how a job ended: output/failure, whose first 1,024 characters people see, and
 * output/success. The directory is held open from the start, and space on its disk is reserved for the report. If the
 * program removes the directory or replaces it, the files go into the directory that its path leads to then. A
 * directory that has the name of one of the files is renamed, with a warning. There is also a warning if the disk is
 * full from the start.
 *
 * Source  docs/logs-and-failures.md, "How a job ends"
 * Test    tests/unit/entrypoint/supervise/test_failure.c
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_FAILURE_H
#define PL_ENTRYPOINT_SUPERVISE_FAILURE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    PL_FAILURE_SHOWN_BYTES = 1024,          /* number of characters that SageMaker shows */
    PL_FAILURE_RESERVE_BYTES = 16 * 1024,   /* disk space that is reserved for the report */
    PL_FAILURE_USER_MAX_BYTES = 256 * 1024, /* how much is kept of a program's own failure file */
    /* how much is kept on a full disk; it fits into the reserve together with the report */
    PL_FAILURE_USER_MIN_BYTES = 8 * 1024,
};

struct pl_failure {
    char *path;       /* path of the directory `output` */
    int directory_fd; /* descriptor of the directory `output`; -1 if it could not be opened */
    /* an unnamed file that reserves the disk space; -1 if the file system does not support it */
    int reserve_fd;
    struct pl_text written; /* the whole file as last written */
    size_t own_bytes;       /* number of bytes of `written` that the program wrote */
};

#define PL_FAILURE_NONE                                                                                                \
    ((struct pl_failure){.path = NULL, .directory_fd = -1, .reserve_fd = -1, .written = PL_TEXT_NONE})

/**
 * Make and open the directory `output`, and remove the two files if an earlier run left them. Call it before any
 * program of this job runs.
 *
 * Errors  PL_SYSTEM. If only an old file could not be removed, `failure` can still be used.
 */
enum pl_status pl_failure_open(struct pl_failure *failure, const char *output, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Write `text` to the failure file. If the program wrote a failure file itself and it is not empty, its text stays in
 * front: at most PL_FAILURE_USER_MAX_BYTES of it, or PL_FAILURE_USER_MIN_BYTES on a full disk. Links are replaced, not
 * followed. Names in `text` come from outside: control characters and bytes that are not UTF-8 become '?'. In a further
 * call `text` replaces the earlier text, and what the program has written meanwhile stays.
 */
enum pl_status pl_failure_write(struct pl_failure *failure, const char *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the program has written a failure file itself. */
bool pl_failure_has_own(const struct pl_failure *failure);

/** Takes our own text back from the failure file, and makes the empty file `success`. */
enum pl_status pl_failure_succeed(struct pl_failure *failure, struct pl_error *reterr) PL_MUST_CHECK;

void pl_failure_close(struct pl_failure *failure);

/** Writes to `text` which of the NULL-terminated `paths` lie on a full disk; "" if no path does. */
void pl_failure_full_disks(const char *const *paths, char *text, size_t text_bytes);

#endif
