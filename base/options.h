/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The options of a program's command line: getopt_long(), and numbers. An error names the option, its value and what
 * was expected.
 *
 * Test  tests/unit/base/test_options.c, tests/integration/command_line.py
 */
#ifndef PL_BASE_OPTIONS_H
#define PL_BASE_OPTIONS_H

#include "base/status.h"

#include <getopt.h>

/* exit code of a program for a wrong command line, after a message that tells what is wrong and what was expected */
enum { PL_EXIT_USAGE = 2 };

/**
 * Returns the next option's code; its value is in `optarg`. PL_END (without a report) after the last option: the other
 * arguments begin at `optind`.
 *
 * Errors  PL_INVALID for an option that is neither in `letters` (without arguments) nor in `table`, or whose use
 *         differs from them.
 */
enum pl_status pl_options_next(int argc, char **argv, const char *letters, const struct option *table, int *ret_option,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Reads `text`, the value of --`name`, as a whole number from `least` to `most`. */
enum pl_status pl_options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** The same for a number that may have a fraction. */
enum pl_status pl_options_real(const char *name, const char *text, double least, double most, double *ret_number,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
