/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The regular expressions that read numbers from a trial's lines: POSIX's extended ones, whose first group is the
 * number.
 *
 * Source  POSIX.1-2017, 9.4.
 * Test    tests/unit/programs/sweep/test_space.c
 */
#ifndef PL_PROGRAMS_SWEEP_METRIC_REGEX_H
#define PL_PROGRAMS_SWEEP_METRIC_REGEX_H

#include "programs/sweep/space/value.h"

/** Longer expressions are refused: compiling takes memory, by what is repeated in them. */
enum { PL_SWEEP_REGEX_BYTES_MAX = 1024 };

/**
 * The expression for the last number after NAME=, NAME: and NAME with blanks, also where NAME is in double quotes; of a
 * longer word that ends with NAME nothing is taken. NaN and infinities are numbers too.
 */
enum pl_status pl_metric_regex_of_name(const char *name, char **ret_regex, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A copy of the expression that `value` is, which compiles and has a group.
 *
 * Errors  PL_INVALID: also what is not POSIX's but often written (\d, .*?), with what to write instead; PL_MEMORY.
 */
enum pl_status pl_metric_regex_read(const struct pl_sweep_value *value, char **ret_regex,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
