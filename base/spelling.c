/* SPDX-License-Identifier: Apache-2.0 */
/* Compares names character by character. */
#include "base/spelling.h"

#include <stdio.h>

unsigned pl_spelling_distance(const char *a, const char *b, unsigned limit)
{
    unsigned best = limit;

    for (; *a != '\0' && *a == *b; a++, b++) {
    }
    if (*a == '\0' && *b == '\0') {
        return 0;
    }
    if (limit == 0) {
        return 1;
    }
    for (unsigned way = 1; way <= 3; way++) { /* a character of `a` left out, one of `b`, one of each */
        if (((way & 1) == 0 || *a != '\0') && ((way & 2) == 0 || *b != '\0')) {
            unsigned rest = pl_spelling_distance(a + (way & 1), b + (way >> 1), limit - 1);

            best = rest < best ? rest : best;
        }
    }
    return best + 1;
}

void pl_spelling_compare(struct pl_spelling *spelling, const char *candidate, unsigned limit)
{
    unsigned edits = pl_spelling_distance(spelling->name, candidate, limit);

    if (edits <= limit && (!spelling->meant || edits < spelling->edits)) {
        spelling->meant = candidate;
        spelling->edits = edits;
    }
}

const char *pl_spelling_question(const struct pl_spelling *spelling, const char *prefix, char *text, size_t bytes)
{
    text[0] = '\0';
    if (spelling->meant) {
        snprintf(text, bytes, " (did you mean '%s%s'?)", prefix, spelling->meant);
    }
    return text;
}
