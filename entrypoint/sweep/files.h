/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A folder in pieces that fit into a frame of the control link, from one host to another: first all its directories and
 * files are listed, then each is read piece by piece, and the other side asks for the next when it has stored the last.
 * Links and special files are left out.
 *
 * Test  tests/unit/entrypoint/sweep/test_files.c
 */
#ifndef PL_ENTRYPOINT_SWEEP_FILES_H
#define PL_ENTRYPOINT_SWEEP_FILES_H

#include "base/text.h"

#include <stddef.h>
#include <sys/types.h>

enum {
    PL_FILES_PIECE_BYTES = 60 * 1024,
    PL_FILES_ENTRIES_MAX = 100000,
};

struct pl_files_piece {
    struct pl_text path; /* below the folder; "" : the end */
    mode_t mode;         /* a directory's, or the permissions of a file */
    size_t bytes;
    char data[PL_FILES_PIECE_BYTES];
};

struct pl_files_reader;
struct pl_files_writer;

/** A folder that is not there is an empty one. PL_LIMIT: too many entries. */
enum pl_status pl_files_reader_open(const char *folder, struct pl_files_reader **ret_reader,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The next piece; the one without a path is the last. Zero-initialise `piece`, then pl_files_piece_done(). */
enum pl_status pl_files_read(struct pl_files_reader *reader, struct pl_files_piece *piece,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_files_reader_free(struct pl_files_reader *reader);

/**
 * `in_place`: into `folder`, over what is there. Else into FOLDER.incoming, which takes the folder's place with the
 * last piece, or is removed with the writer without it.
 */
enum pl_status pl_files_writer_open(const char *folder, bool in_place, struct pl_files_writer **ret_writer,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID: a path that leads out of the folder. */
enum pl_status pl_files_write(struct pl_files_writer *writer, const struct pl_files_piece *piece,
                              struct pl_error *reterr) PL_MUST_CHECK;
void pl_files_writer_free(struct pl_files_writer *writer);

void pl_files_piece_done(struct pl_files_piece *piece);

/** Base64, as text and back. PL_CORRUPT: it is none, or more than a piece. */
void pl_files_encode(const char *data, size_t bytes, struct pl_text *text);
enum pl_status pl_files_decode(const char *text, struct pl_files_piece *piece, struct pl_error *reterr) PL_MUST_CHECK;

#endif
