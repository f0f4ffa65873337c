/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Synthetic clicks. A sample is one id for each of a few fields (for example user, item, page, device) and whether it
 * was clicked. Ids are as frequent as in Zipf's law with exponent 1. The probability of a click is a function that a
 * factorization machine can learn: it has one part for each id and one for each pair of fields.
 */
#ifndef EXAMPLES_EMBEDDING_CLICKS_H
#define EXAMPLES_EMBEDDING_CLICKS_H

#include <stdbool.h>
#include <stdint.h>

enum { CLICKS_FIELDS = 4 };

struct clicks {
    uint64_t rows; /* number of ids of all fields; ids start at 0, with those of the first field */
    uint64_t seed; /* the same on all workers */
};

struct clicks_sample {
    int64_t ids[CLICKS_FIELDS];
    double probability; /* probability of a click; the model does not know it */
    bool is_clicked;
};

/** Draws sample `number` of an endless sequence. */
void clicks_draw(const struct clicks *clicks, uint64_t number, struct clicks_sample *ret_sample);

#endif
