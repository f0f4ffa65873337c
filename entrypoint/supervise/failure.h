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
    PL_FAILURE_SHOWN_BYTES = 1024,          /* what SageMaker shows */
    PL_FAILURE_RESERVE_BYTES = 16 * 1024,   /* room kept for the report */
    PL_FAILURE_USER_MAX_BYTES = 256 * 1024, /* what is kept of a program's own failure file */
    PL_FAILURE_USER_MIN_BYTES = 8 * 1024,   /* the same where the disk is full: it fits into the room with the report */
};

struct pl_failure {
    char *path;             /* of output */
    int directory_fd;       /* of output; -1 when it could not be opened */
    int reserve_fd;         /* an unnamed file that holds the room; -1 when the file system has no such thing */
    struct pl_text written; /* the whole file as it was written last */
    size_t own_bytes;       /* how much of it is the program's own */
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

/** Make the empty file `success`. */
enum pl_status pl_failure_succeed(struct pl_failure *failure, struct pl_error *reterr) PL_MUST_CHECK;

void pl_failure_close(struct pl_failure *failure);

/** Write to `text` which of the NULL-terminated `paths` lie on a full disk, "" when none does. */
void pl_failure_full_disks(const char *const *paths, char *text, size_t text_bytes);

#endif
