/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One line to stderr per call, written with one write(2), so that lines of several processes do not mix. Libraries do
 * not log errors that a call can return, except at PL_LOG_DEBUG: programs report each problem once. Libraries warn of
 * problems that no call returns: a long wait, a call that succeeds although something is probably wrong, an end without
 * a status. Level, prefix and descriptor are the project's only global state. A line that cannot be written within a
 * second is dropped, because a log without a reader must not keep a program from reacting to signals. Later lines are
 * dropped at once until one can be written; a note before it says how many were dropped.
 */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

enum pl_log_level { PL_LOG_DEBUG, PL_LOG_INFO, PL_LOG_WARNING, PL_LOG_ERROR };

/** Lines below `level` are dropped (default PL_LOG_INFO). Call it before other threads start. */
void pl_log_set_level(enum pl_log_level level);

/** Returns true if lines of `level` are written. */
bool pl_log_shows(enum pl_log_level level);

/** Returns "debug", "info", "warning" or "error". */
const char *pl_log_level_text(enum pl_log_level level);

/** Reads the name of a level. If `word` is another text, returns false and `*ret_level` is unchanged. */
bool pl_log_level_read(const char *word, enum pl_log_level *ret_level);

/**
 * Prepares the log at the start of a program: sets the prefix, and the level from the variable PACELINE_LOG. A wrong
 * value causes a warning. Call it before other threads start.
 */
void pl_log_open(const char *prefix);

/** Sets the text before each line, "paceline" by default; cut at 63 bytes. Call it before other threads start. */
void pl_log_set_prefix(const char *prefix);

/**
 * Sets the descriptor for the lines, standard error by default. If it is a pipe with other writers, see
 * pl_file_open_own(). Call it before other threads start.
 */
void pl_log_set_fd(int fd);

void pl_log(enum pl_log_level level, const char *format, ...) PL_PRINTF(2, 3);

/** Logs `error` as "<what>: <cause> (<context>)". */
void pl_log_error(const struct pl_error *error, const char *what_format, ...) PL_PRINTF(2, 3);

#endif
