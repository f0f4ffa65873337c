/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenarios/seeded.h"

#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/scenarios/mixed.h"
#include "tests/support/unit.h"

#include <inttypes.h>

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

void seeded_run(const struct seeded *seeded)
{
    uint64_t seed = number_of("PACELINE_TEST_SEED", seeded->seed);
    uint64_t worlds = number_of("PACELINE_TEST_WORLDS", seeded->worlds);

    for (uint64_t i = 0; i < worlds; i++) {
        char failure[RANKS_TEXT_BYTES];
        struct pl_knobs knobs;
        struct pl_world_options options = {.knobs = &knobs};
        uint64_t world_seed = seed + i;
        uint64_t draws = world_seed;
        int size = seeded->least_size + (int)mixed_draw(&draws, (uint64_t)(seeded->most_size - seeded->least_size + 1));

        options.pretend_ranks_per_host = mixed_settings(&draws, size, &knobs);
        if (seeded->timeout) {
            ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, seeded->timeout(world_seed), "the test", NULL),
                             PL_OK);
        }
        ranks_run_on(size, 0, &options, seeded->body, &world_seed, failure);
        if (failure[0] && seeded->forgives && seeded->forgives(world_seed, failure)) {
            continue;
        }
        ck_assert_msg(!failure[0],
                      "PACELINE_TEST_SEED=%" PRIu64 " PACELINE_TEST_WORLDS=1, %d ranks, %d per host: %.1300s",
                      world_seed, size, options.pretend_ranks_per_host, failure);
    }
    printf("seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + worlds - 1);
}
