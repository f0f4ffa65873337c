/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The file of a journal, without the meaning of its lines. Each line is a JSON object that ends with `, "crc":
 * "89abcdef"}`: the CRC-32C of all lines up to this member, without the crc members themselves.
 *
 * Test  tests/unit/programs/sweep/test_journal_file.c, test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_JOURNAL_FILE_H
#define PL_PROGRAMS_SWEEP_JOURNAL_FILE_H

#include "base/text.h"

#include <stdio.h>
#include <sys/types.h>

struct pl_journal_file {
    int fd;
    char *path;
    off_t bytes;  /* length of all complete lines */
    uint32_t crc; /* checksum of the complete lines */
    bool broken;  /* a part of a line could not be removed again */
};

/** The line that was read last. */
struct pl_journal_line {
    FILE *stream;
    char *text; /* JSON object without its crc */
    size_t capacity, bytes, number;
};

#define PL_AUTO_JOURNAL_LINE __attribute__((cleanup(pl_journal_line_done)))

/**
 * Opens and locks the file at `file->path`, and closes the one that was open. `flags` may be O_EXCL: then the file must
 * not exist.
 */
enum pl_status pl_journal_file_take(struct pl_journal_file *file, int flags, struct pl_error *reterr) PL_MUST_CHECK;

/** Syncs the file's folder to disk, so that a new file is still found after a crash. */
enum pl_status pl_journal_file_sync_folder(const struct pl_journal_file *file, struct pl_error *reterr) PL_MUST_CHECK;

/** Appends a line. `line` is an object without its crc and its closing brace: the function adds both. After an
 * error the line is not in the file. */
enum pl_status pl_journal_file_write(struct pl_journal_file *file, struct pl_text *line, bool to_disk,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Begins to read at the first line. */
enum pl_status pl_journal_line_open(struct pl_journal_file *file, struct pl_journal_line *line,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the next line and checks its checksum. Returns PL_END after the last complete line. Any other line is
 * PL_INVALID with the place.
 */
enum pl_status pl_journal_line_next(struct pl_journal_file *file, struct pl_journal_line *line,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void pl_journal_line_done(struct pl_journal_line *line);

#endif
