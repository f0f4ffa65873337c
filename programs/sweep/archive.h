/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Archives what an earlier sweep left, in sweep-1, sweep-2, ... of the folder that holds it. So no trial begins with
 * another sweep's checkpoints, and nothing is lost. The files are first moved into sweep.moving. The last step renames
 * that to sweep-N: if the process is killed earlier, the next start finishes the move.
 *
 * Test  tests/unit/programs/sweep/test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_ARCHIVE_H
#define PL_PROGRAMS_SWEEP_ARCHIVE_H

#include "base/text.h"

/** Appends the name of the folder that holds the file at `path`. */
void pl_sweep_archive_folder_of(const char *path, struct pl_text *text);

/** Appends the next archive's folder: ROOT/sweep-N with the lowest N that is free. */
void pl_sweep_archive_next(const char *root, struct pl_text *text);

/** The first step: moves the journal at `path` into ROOT/sweep.moving. */
enum pl_status pl_sweep_archive_journal(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The other steps: moves each trial-NNNN and trial-NNNN.model of `root`, and gives the archive its number. Does nothing
 * if there is nothing to archive.
 */
enum pl_status pl_sweep_archive_trials(const char *root, struct pl_error *reterr) PL_MUST_CHECK;

/** Moves the folder at `path`, unless it is empty, to sweep-N/NAME next to it, with the lowest N that is free. */
enum pl_status pl_sweep_archive_one(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

#endif
