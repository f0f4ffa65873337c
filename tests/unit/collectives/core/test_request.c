/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/request.c, collectives/core/world_new.c, collectives/core/signature.c,
 * collectives/p2p/check_calls.c. */
/* Random mixtures of collectives on worlds of any size and layout with any settings (tests/scenarios/seeded.h). */
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/seeded.h"
#include "tests/support/unit.h"

enum { STEPS = 8 };

static void mix(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    _Static_assert((int)MIXED_TEXT_BYTES <= (int)RANKS_TEXT_BYTES, "the text fits");
    mixed_run(world, *(const uint64_t *)argument, STEPS, failure);
}

UNIT_TEST(random_mixtures_on_random_worlds_are_right,
          seeded_run(&(struct seeded){.seed = 13, .worlds = 12, .least_size = 1, .most_size = 8, .body = mix}))

UNIT_MAIN("collectives/request")
