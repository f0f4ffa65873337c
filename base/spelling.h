/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the name that a mistyped name was probably meant to be.
 *
 * Test  tests/unit/base/test_spelling.c
 */
#ifndef PL_BASE_SPELLING_H
#define PL_BASE_SPELLING_H

#include <stddef.h>

enum { PL_SPELLING_EDITS = 2 }; /* the usual limit for the distance of two names */

/** The nearest of the candidates that were compared with `name` so far. */
struct pl_spelling {
    const char *name;
    const char *meant; /* borrowed; NULL: no candidate is near */
    unsigned edits;    /* its distance from `name` */
};

/** The edit distance: how many characters to insert, delete or change to turn `a` into `b`; at most `limit` + 1. */
unsigned pl_spelling_distance(const char *a, const char *b, unsigned limit);

/** Takes `candidate` if its distance is at most `limit` and less than that of the candidate before. */
void pl_spelling_compare(struct pl_spelling *spelling, const char *candidate, unsigned limit);

/** Writes " (did you mean 'PREFIXmeant'?)", or "" where no candidate is near. Returns `text`. */
const char *pl_spelling_question(const struct pl_spelling *spelling, const char *prefix, char *text, size_t bytes);

#endif
