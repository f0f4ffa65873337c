/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The file of a journal, below what its lines mean: JSON objects, one a line, each of which ends with
 * `, "crc": "89abcdef"}`: the CRC-32C of all lines up to this member, these members left out.
 *
 * Test  tests/unit/programs/sweep/test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_JOURNAL_FILE_H
#define PL_PROGRAMS_SWEEP_JOURNAL_FILE_H

#include "base/text.h"

#include <stdio.h>
#include <sys/types.h>

struct pl_journal_file {
    int fd;
    char *path;
    off_t bytes;  /* of whole lines */
    uint32_t crc; /* of them */
    bool broken;  /* a part of a line could not be taken back */
};

/** A line that is read. */
struct pl_journal_line {
    FILE *stream;
    char *text; /* a JSON object, without its crc */
    size_t capacity, bytes, number;
};

#define PL_AUTO_JOURNAL_LINE __attribute__((cleanup(pl_journal_line_done)))

/** Open and lock it, in place of one that is open; `flags` may be O_EXCL: it is not there. */
enum pl_status pl_journal_file_take(struct pl_journal_file *file, int flags, struct pl_error *reterr) PL_MUST_CHECK;

/** Bring its folder to disk: a new file must also be found after a crash. */
enum pl_status pl_journal_file_sync_folder(const struct pl_journal_file *file, struct pl_error *reterr) PL_MUST_CHECK;

/** `line` is an object that lacks its crc and its end, which it then has. */
enum pl_status pl_journal_file_write(struct pl_journal_file *file, struct pl_text *line, bool to_disk,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Begin to read at the beginning. */
enum pl_status pl_journal_line_open(struct pl_journal_file *file, struct pl_journal_line *line,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The next line, whose checksum is right; PL_END after the last whole one. Others are PL_INVALID with the place. */
enum pl_status pl_journal_line_next(struct pl_journal_file *file, struct pl_journal_line *line,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void pl_journal_line_done(struct pl_journal_line *line);

#endif
