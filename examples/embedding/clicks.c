/* SPDX-License-Identifier: Apache-2.0 */
/* Draws ids by Zipf's law and clicks by a hidden model. */
#include "examples/embedding/clicks.h"

#include "base/random.h"

#include <math.h>

enum { FACTORS = 2 };

/* From 0 to below 1. */
static double uniform(uint64_t *random)
{
    return (double)(pl_random_next(random) >> 11) / 9007199254740992.0;
}

/* Number `which` of those that belong to `id`, from -1 to below 1. */
static double hidden(const struct clicks *clicks, int64_t id, uint64_t which)
{
    uint64_t random = clicks->seed;

    random = pl_random_next(&random) ^ (uint64_t)id;
    random = pl_random_next(&random) + which;
    return 2.0 * uniform(&random) - 1.0;
}

/* With u from 0 to 1, n^u has a density of 1 / (x ln n). */
static int64_t draw_id(uint64_t count, uint64_t *random)
{
    uint64_t rank = (uint64_t)exp(uniform(random) * log((double)count + 1.0));

    return (int64_t)(rank < 1 ? 0 : rank > count ? count - 1 : rank - 1);
}

void clicks_draw(const struct clicks *clicks, uint64_t number, struct clicks_sample *ret_sample)
{
    const uint64_t count = clicks->rows / CLICKS_FIELDS;
    uint64_t random = ~clicks->seed;
    double logit = -1.0;

    random = pl_random_next(&random) ^ number;
    random = pl_random_next(&random);

    for (uint64_t f = 0; f < CLICKS_FIELDS; f++) {
        ret_sample->ids[f] = (int64_t)(f * count) + draw_id(count, &random);
        logit += 1.5 * hidden(clicks, ret_sample->ids[f], 0);
    }
    for (int a = 0; a < CLICKS_FIELDS; a++) {
        for (int b = a + 1; b < CLICKS_FIELDS; b++) {
            for (uint64_t k = 1; k <= FACTORS; k++) {
                logit += hidden(clicks, ret_sample->ids[a], k) * hidden(clicks, ret_sample->ids[b], k);
            }
        }
    }
    ret_sample->probability = 1.0 / (1.0 + exp(-logit));
    ret_sample->is_clicked = uniform(&random) < ret_sample->probability;
}
