/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Synthetic clicks: a sample is one id of each of a few fields (say user, item, page, device), as frequent as Zipf's
 * law with exponent 1 has it, and whether it was clicked. The chance of that is a function of the ids that a
 * factorization machine can learn: a part of each id's own, and one of each two fields.
 */
#ifndef EXAMPLES_EMBEDDING_CLICKS_H
#define EXAMPLES_EMBEDDING_CLICKS_H

#include <stdbool.h>
#include <stdint.h>

enum { CLICKS_FIELDS = 4 };

struct clicks {
    uint64_t rows; /* of all fields: the ids are 0 to below it, the first field's first */
    uint64_t seed; /* the same on all workers */
};

struct clicks_sample {
    int64_t ids[CLICKS_FIELDS];
    double probability; /* of a click; a model does not know it */
    bool is_clicked;
};

/** Sample `number` of an endless sequence. */
void clicks_draw(const struct clicks *clicks, uint64_t number, struct clicks_sample *ret_sample);

#endif
