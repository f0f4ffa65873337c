/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A regular expression that finds a number in a line: the first group is the number. The grammar is PCRE2's. A search
 * that takes too many steps is given up, so that no expression can hold its caller.
 *
 * Source  pcre2pattern(3)
 * Test    tests/unit/entrypoint/output/test_pattern.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_PATTERN_H
#define PL_ENTRYPOINT_OUTPUT_PATTERN_H

#include "base/status.h"

#include <stddef.h>

struct pl_pattern;

/** Errors: PL_INVALID if the expression does not compile, with the place in it, or has no group. */
enum pl_status pl_pattern_new(const char *expression, struct pl_pattern **ret_pattern,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Searches a line of `length` bytes. Errors: PL_NOT_FOUND: no number in it; PL_LIMIT: the search was given up. */
enum pl_status pl_pattern_number(struct pl_pattern *pattern, const char *line, size_t length, double *ret_number,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the text of the first group in the last search, inside the line; NULL if there was no match. */
const char *pl_pattern_group(const struct pl_pattern *pattern, size_t *ret_length);

void pl_pattern_free(struct pl_pattern *pattern);

#endif
