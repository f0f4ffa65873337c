/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Worlds drawn from a seed: their size, their layout and their settings. For tests that look for what nobody thought
 * of.
 */
#ifndef PL_TESTS_SCENARIOS_SEEDED_H
#define PL_TESTS_SCENARIOS_SEEDED_H

#include "tests/support/ranks.h"

struct seeded {
    uint64_t seed;   /* of the first world, unless PACELINE_TEST_SEED gives another one */
    uint64_t worlds; /* with this seed and those after it, unless PACELINE_TEST_WORLDS gives another number */
    int least_size;
    int most_size;
    /* What each rank does; `argument` is a const uint64_t *, the world's seed. */
    void (*body)(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES]);
    const char *(*timeout)(uint64_t seed);                     /* the setting timeout_s; NULL: as it is drawn */
    bool (*forgives)(uint64_t seed, const char *failure_text); /* a failure that says nothing; NULL: there is none */
};

/** Fails the Check test with the seed of a world whose body failed. */
void seeded_run(const struct seeded *seeded);

#endif
