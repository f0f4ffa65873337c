/* SPDX-License-Identifier: Apache-2.0 */
/* Draws ids by Zipf's law and clicks by a hidden model. */
#include "examples/embedding/clicks.h"

#include <math.h>

enum { FACTORS = 2 };

/* Returns the next number of splitmix64. The first number also serves as a hash of the state. */
static uint64_t next(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Returns a number from 0 to below 1. */
static double uniform(uint64_t *random)
{
    return (double)(next(random) >> 11) / 9007199254740992.0;
}

/* Returns hidden number `which` of `id`, from -1 to below 1. */
static double hidden(const struct clicks *clicks, int64_t id, uint64_t which)
{
    uint64_t random = clicks->seed;

    random = next(&random) ^ (uint64_t)id;
    random = next(&random) + which;
    return 2.0 * uniform(&random) - 1.0;
}

/* Draws an id: if u is uniform from 0 to 1, n^u has the density 1 / (x ln n). */
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

    random = next(&random) ^ number;
    random = next(&random);

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
