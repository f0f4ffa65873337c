/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Worlds drawn from a seed: their size, layout and settings. For tests that look for faults that nobody has thought of.
 */
#ifndef PL_TESTS_SCENARIOS_SEEDED_H
#define PL_TESTS_SCENARIOS_SEEDED_H

#include "tests/support/ranks.h"

struct seeded {
    uint64_t seed;   /* seed of the first world, unless PACELINE_TEST_SEED is set */
    uint64_t worlds; /* number of worlds, with consecutive seeds, unless PACELINE_TEST_WORLDS is set */
    int least_size;
    int most_size;
    /* Runs on each rank; `argument` is a const uint64_t *, the world's seed. */
    void (*body)(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES]);
    const char *(*timeout)(uint64_t seed);                     /* the setting timeout_s; NULL: as drawn */
    bool (*forgives)(uint64_t seed, const char *failure_text); /* whether to ignore a failure; may be NULL */
};

/** Run the worlds; fails the Check test with the seed of a world whose body failed. */
void seeded_run(const struct seeded *seeded);

#endif
