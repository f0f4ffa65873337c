/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/gradient/plan.c, runtime/gradient/optimizer.c, runtime/named/named.c, runtime/named/service_sets.c. */
/* Training programs drawn from a seed, on worlds of any size and layout with any settings (tests/scenarios/seeded.h),
 * without and with a mistake. */
#include "tests/scenarios/seeded.h"
#include "tests/scenarios/training.h"
#include "tests/support/unit.h"

enum { STEPS = 12 };

static void train(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    _Static_assert((int)TRAINING_TEXT_BYTES <= (int)RANKS_TEXT_BYTES, "the text fits");
    training_run(world, *(const uint64_t *)argument, STEPS, failure);
}

UNIT_TEST(random_programs_on_random_worlds_are_right,
          seeded_run(&(struct seeded){.seed = 7, .worlds = 12, .least_size = 1, .most_size = 5, .body = train}))

static void err(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    training_err(world, *(const uint64_t *)argument, failure);
}

/* A busy machine may pass a short deadline before the mistake is made. */
static bool came_too_late(uint64_t seed, const char *failure)
{
    return strcmp(training_err_timeout(seed), TRAINING_LONG) != 0 && strstr(failure, "deadline");
}

UNIT_TEST(one_rank_that_makes_a_mistake_is_named_to_all, seeded_run(&(struct seeded){.seed = 0,
                                                                                     .worlds = TRAINING_MISTAKES,
                                                                                     .least_size = 2,
                                                                                     .most_size = 5,
                                                                                     .body = err,
                                                                                     .timeout = training_err_timeout,
                                                                                     .forgives = came_too_late}))

UNIT_MAIN("runtime/training")
