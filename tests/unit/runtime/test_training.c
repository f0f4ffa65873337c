/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training programs drawn from a seed, on worlds of any size and layout with any settings, without and with a mistake. The seed stays the same unless
 * PACELINE_TEST_SEED gives another one; PACELINE_TEST_WORLDS makes it run longer.
 */
#include "tests/support/mixed.h"
#include "tests/support/ranks.h"
#include "tests/support/training.h"
#include "tests/support/unit.h"

#include <inttypes.h>

enum { WORLDS = 12, STEPS = 12, MOST_SIZE = 5 };

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

static void train(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    _Static_assert((int)TRAINING_TEXT_BYTES <= (int)RANKS_TEXT_BYTES, "the text fits");
    training_run(world, *(const uint64_t *)argument, STEPS, failure);
}

START_TEST(random_programs_on_random_worlds_are_right)
{
    uint64_t seed = number_of("PACELINE_TEST_SEED", 7);
    uint64_t worlds = number_of("PACELINE_TEST_WORLDS", WORLDS);

    for (uint64_t i = 0; i < worlds; i++) {
        char failure[RANKS_TEXT_BYTES];
        struct pl_knobs knobs;
        struct pl_world_options options = {.knobs = &knobs};
        uint64_t world_seed = seed + i;
        uint64_t draws = world_seed;
        int size = 1 + (int)mixed_draw(&draws, MOST_SIZE);

        options.pretend_ranks_per_host = mixed_settings(&draws, size, &knobs);
        ranks_run(size, &options, train, &world_seed, failure);
        ck_assert_msg(!failure[0], "PACELINE_TEST_SEED=%" PRIu64 " PACELINE_TEST_WORLDS=1, %d ranks, %d a host: %.1300s", world_seed, size,
                      options.pretend_ranks_per_host, failure);
    }
    printf("seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + worlds - 1);
}
END_TEST

static void err(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    training_err(world, *(const uint64_t *)argument, failure);
}

START_TEST(one_rank_that_makes_a_mistake_is_named_to_all)
{
    uint64_t seed = number_of("PACELINE_TEST_SEED", 0);
    uint64_t worlds = number_of("PACELINE_TEST_WORLDS", TRAINING_MISTAKES);

    for (uint64_t i = 0; i < worlds; i++) {
        char failure[RANKS_TEXT_BYTES];
        struct pl_knobs knobs;
        struct pl_world_options options = {.knobs = &knobs};
        uint64_t world_seed = seed + i;
        uint64_t draws = world_seed;
        int size = 2 + (int)mixed_draw(&draws, MOST_SIZE - 1);

        options.pretend_ranks_per_host = mixed_settings(&draws, size, &knobs);
        ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, training_err_timeout(world_seed), "the test", NULL), PL_OK);
        ranks_run(size, &options, err, &world_seed, failure);
        if (strcmp(training_err_timeout(world_seed), TRAINING_LONG) != 0 && strstr(failure, "deadline")) {
            continue; /* a busy machine may pass a short one before the mistake is made */
        }
        ck_assert_msg(!failure[0], "PACELINE_TEST_SEED=%" PRIu64 " PACELINE_TEST_WORLDS=1, %d ranks, %d a host: %.1300s", world_seed, size,
                      options.pretend_ranks_per_host, failure);
    }
}
END_TEST

UNIT_MAIN("runtime/training", one_rank_that_makes_a_mistake_is_named_to_all, random_programs_on_random_worlds_are_right)
