/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One line to stderr per call, written with one write(2) so that lines of several processes do not mix. Libraries do
 * not log errors that a call can return, except at PL_LOG_DEBUG: programs report each problem once. Libraries warn of
 * what no call returns: a long wait, a call that succeeds although something is probably wrong, an end that has no
 * status. The level, prefix and descriptor are the project's only global state. A line that cannot be written within a
 * second is dropped, since a log that nobody reads must not keep a program from reacting to a signal. The lines after
 * it are dropped at once until one can be written; a note before that line tells how many were dropped.
 */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

enum pl_log_level { PL_LOG_DEBUG, PL_LOG_INFO, PL_LOG_WARNING, PL_LOG_ERROR };

/** Lines below `level` are dropped (default PL_LOG_INFO). Call before other threads start. */
void pl_log_set_level(enum pl_log_level level);

/** Returns true if lines of `level` are written. */
bool pl_log_shows(enum pl_log_level level);

/** Returns "debug", "info", "warning" or "error". */
const char *pl_log_level_text(enum pl_log_level level);

/** Reads one of these words; false, and `*ret_level` is unchanged, if `word` is another text. */
bool pl_log_level_read(const char *word, enum pl_log_level *ret_level);

/**
 * For the start of a program: sets the prefix, and the level from the variable PACELINE_LOG. If that has a wrong value,
 * a warning says so. Call before other threads start.
 */
void pl_log_open(const char *prefix);

/** Sets the text before each line, "paceline" by default; cut at 63 bytes. Call before other threads start. */
void pl_log_set_prefix(const char *prefix);

/**
 * Sets the descriptor for the lines, standard error by default. Other processes may write into its pipe: see
 * pl_file_open_own(). Call before other threads start.
 */
void pl_log_set_fd(int fd);

void pl_log(enum pl_log_level level, const char *format, ...) PL_PRINTF(2, 3);

/** Log `error` as "<what>: <cause> (<context>)". */
void pl_log_error(const struct pl_error *error, const char *what_format, ...) PL_PRINTF(2, 3);

#endif
