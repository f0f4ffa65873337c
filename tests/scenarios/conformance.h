/* SPDX-License-Identifier: Apache-2.0 */
/** Every operation x type x size x in and out of place on one world, with inputs whose right answers are exact. */
#ifndef PL_TESTS_SCENARIOS_CONFORMANCE_H
#define PL_TESTS_SCENARIOS_CONFORMANCE_H

#include "collectives/world.h"

#include <stddef.h>
#include <stdint.h>

struct conformance {
    const uint64_t *counts; /* size classes, in elements */
    size_t count_count;
    bool all_types; /* else float32, bfloat16, int8 and int64 */
    bool arena;     /* buffers from the world's arena; else private */
    bool device;    /* in the memory of the world's device; the host's otherwise */
    unsigned flags; /* of every descriptor */
    uint64_t cases; /* out: cases run */
    char failure[1200];
};

/** Collective. Stops at the first wrong answer, whose description goes to `failure`. */
void conformance_run(struct pl_world *world, struct conformance *conformance);

#endif
