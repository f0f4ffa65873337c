/* SPDX-License-Identifier: Apache-2.0 */
/** How far two names are from each other, to find which one a mistyped name was meant to be. */
#ifndef PL_ENTRYPOINT_JOB_SPELLING_H
#define PL_ENTRYPOINT_JOB_SPELLING_H

/** The edit distance: how many characters to insert, delete or change to turn `a` into `b`; at most `limit` + 1. */
unsigned pl_spelling_distance(const char *a, const char *b, unsigned limit);

#endif
