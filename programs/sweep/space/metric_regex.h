/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The regular expressions that find numbers in a trial's lines: POSIX extended ones, whose first group is the number.
 *
 * Source  POSIX.1-2017, 9.4.
 * Test    tests/unit/programs/sweep/test_space.c
 */
#ifndef PL_PROGRAMS_SWEEP_METRIC_REGEX_H
#define PL_PROGRAMS_SWEEP_METRIC_REGEX_H

#include "programs/sweep/space/value.h"

/** Longer expressions are refused: the memory for compiling one grows with its repeated parts. */
enum { PL_SWEEP_REGEX_BYTES_MAX = 1024 };

/**
 * Makes the expression that finds the last number after NAME=, NAME: or NAME with blanks; NAME may be in double quotes.
 * A longer word that ends with NAME does not match. NaN and infinities are numbers too.
 */
enum pl_status pl_metric_regex_of_name(const char *name, char **ret_regex, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copies the expression in `value`, after checking that it compiles and has a group.
 *
 * Errors  PL_INVALID: for syntax that is not POSIX's but often used (\d, .*?) it names the replacement. PL_MEMORY.
 */
enum pl_status pl_metric_regex_read(const struct pl_sweep_value *value, char **ret_regex,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
