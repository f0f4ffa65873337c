/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What an earlier sweep left is archived, in sweep-1, sweep-2, ... of the folder in which it lies, so that no trial
 * begins with another sweep's checkpoints and nothing is lost. What is archived is gathered in sweep.moving, which gets
 * its number last: after a kill the next start finishes it.
 *
 * Test  tests/unit/programs/sweep/test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_ARCHIVE_H
#define PL_PROGRAMS_SWEEP_ARCHIVE_H

#include "base/text.h"

/** Append the folder of the file at `path`. */
void pl_sweep_archive_folder_of(const char *path, struct pl_text *text);

/** Append the folder that is to be the next: ROOT/sweep-N. */
void pl_sweep_archive_next(const char *root, struct pl_text *text);

/** The first step: move the journal at `path`. */
enum pl_status pl_sweep_archive_journal(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** The others: move each trial-NNNN and trial-NNNN.model of `root`; nothing where there is nothing. */
enum pl_status pl_sweep_archive_trials(const char *root, struct pl_error *reterr) PL_MUST_CHECK;

/** Move the folder at `path`, where it holds something, to sweep-N/NAME beside it, the first that is free. */
enum pl_status pl_sweep_archive_one(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

#endif
