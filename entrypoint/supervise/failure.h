/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The two files that tell SageMaker how a job ended: output/failure, whose first 1,024 characters people see, and
 * output/success. The directory is held open from the start, and room on its disk is kept for the report. Where the
 * program has removed it, or put another in its place, the files go where its path leads then. A directory in the place
 * of one of the files is renamed, with a warning; a disk that has no room from the start is warned of too.
 *
 * Source  docs/supervision.md, "How a job ends"
 * Test    tests/unit/entrypoint/supervise/test_failure.c
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_FAILURE_H
#define PL_ENTRYPOINT_SUPERVISE_FAILURE_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

enum {
    PL_FAILURE_SHOWN_BYTES = 1024,          /* number of characters that SageMaker shows */
    PL_FAILURE_RESERVE_BYTES = 16 * 1024,   /* disk space that is reserved for the report */
    PL_FAILURE_USER_MAX_BYTES = 256 * 1024, /* how much is kept of a program's own failure file */
    /* the same on a full disk; it fits into the reserve together with the report */
    PL_FAILURE_USER_MIN_BYTES = 8 * 1024,
};

struct pl_failure {
    char *path;       /* path of the directory `output` */
    int directory_fd; /* of the directory `output`; -1 if it could not be opened */
    /* an unnamed file that reserves the disk space; -1 if the file system does not support it */
    int reserve_fd;
    struct pl_text written; /* the whole file as last written */
    size_t own_bytes;       /* number of its bytes that the program wrote */
};

#define PL_FAILURE_NONE                                                                                                \
    ((struct pl_failure){.path = NULL, .directory_fd = -1, .reserve_fd = -1, .written = PL_TEXT_NONE})

/**
 * Open (and make) the directory `output` and remove what an earlier run left of the two files. Call it before anything
 * of this job runs.
 *
 * Errors  PL_SYSTEM. Where only an old file could not be removed, `failure` is usable all the same.
 */
enum pl_status pl_failure_open(struct pl_failure *failure, const char *output, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Write `text` to the failure file. A file that the program wrote itself and that is not empty stays in front, its
 * first PL_FAILURE_USER_MAX_BYTES where it is longer, or on a full disk PL_FAILURE_USER_MIN_BYTES; links are
 * replaced, not followed. Bytes of `text` that are not UTF-8, and control characters, become '?': names come from
 * outside, and long ones are cut. Called again, `text` takes the place of the former one; what the program has
 * written meanwhile stays.
 */
enum pl_status pl_failure_write(struct pl_failure *failure, const char *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the empty file `success`. */
enum pl_status pl_failure_succeed(struct pl_failure *failure, struct pl_error *reterr) PL_MUST_CHECK;

void pl_failure_close(struct pl_failure *failure);

/** Writes to `text` which of the NULL-terminated `paths` lie on a full disk; "" if no path does. */
void pl_failure_full_disks(const char *const *paths, char *text, size_t text_bytes);

#endif
