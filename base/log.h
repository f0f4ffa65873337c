/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One line to stderr per call, written with one write(2) so that lines of several processes do not mix. Libraries do
 * not log errors that a call can return, except at PL_LOG_DEBUG: programs report each problem once. Libraries warn of
 * what no call returns: a wait that lasts, a call that goes well although something is likely wrong, an end that has no
 * status. The level, prefix and descriptor are the project's only global state. A line that cannot be written for a
 * second is dropped, and so at once are those after it until one passes again, which says how many there were: a log
 * that nobody reads must not keep a program from reacting to a signal.
 */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "base/status.h"

enum pl_log_level { PL_LOG_DEBUG, PL_LOG_INFO, PL_LOG_WARNING, PL_LOG_ERROR };

/** Lines below `level` are dropped (default PL_LOG_INFO). Call before other threads start. */
void pl_log_set_level(enum pl_log_level level);

/** The text before each line, "paceline" by default; cut at 63 bytes. Call before other threads start. */
void pl_log_set_prefix(const char *prefix);

/** Where lines go, standard error by default. Others may write into its pipe: see pl_file_open_own(). Call as above. */
void pl_log_set_fd(int fd);

void pl_log(enum pl_log_level level, const char *format, ...) PL_PRINTF(2, 3);

/** Log `error` as "<what>: <cause> (<context>)". */
void pl_log_error(const struct pl_error *error, const char *what_format, ...) PL_PRINTF(2, 3);

#endif
