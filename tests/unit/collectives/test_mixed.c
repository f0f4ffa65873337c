/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, drawn from a seed: worlds of any size and layout with any settings, and in them mixtures of collectives. The seed stays the
 * same unless PACELINE_TEST_SEED gives another one; PACELINE_TEST_WORLDS makes it run longer.
 */
#include "tests/support/mixed.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <inttypes.h>

enum { WORLDS = 12, STEPS = 8, MOST_SIZE = 8 };

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

static void mix(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    _Static_assert((int)MIXED_TEXT_BYTES <= (int)RANKS_TEXT_BYTES, "the text fits");
    mixed_run(world, *(const uint64_t *)argument, STEPS, failure);
}

START_TEST(random_mixtures_on_random_worlds_are_right)
{
    uint64_t seed = number_of("PACELINE_TEST_SEED", 13);
    uint64_t worlds = number_of("PACELINE_TEST_WORLDS", WORLDS);

    for (uint64_t i = 0; i < worlds; i++) {
        char failure[RANKS_TEXT_BYTES];
        struct pl_knobs knobs;
        struct pl_world_options options = {.knobs = &knobs};
        uint64_t world_seed = seed + i;
        uint64_t draws = world_seed;
        int size = 1 + (int)mixed_draw(&draws, MOST_SIZE);

        options.pretend_ranks_per_host = mixed_settings(&draws, size, &knobs);
        ranks_run(size, &options, mix, &world_seed, failure);
        ck_assert_msg(!failure[0], "PACELINE_TEST_SEED=%" PRIu64 " PACELINE_TEST_WORLDS=1, %d ranks, %d a host: %.1300s", world_seed, size,
                      options.pretend_ranks_per_host, failure);
    }
    printf("seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + worlds - 1);
}
END_TEST

UNIT_MAIN("collectives/mixed", random_mixtures_on_random_worlds_are_right)
