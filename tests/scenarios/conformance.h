/* SPDX-License-Identifier: Apache-2.0 */
/** Runs every operation x type x size, in and out of place, on one world, with inputs whose results are exact. */
#ifndef PL_TESTS_SCENARIOS_CONFORMANCE_H
#define PL_TESTS_SCENARIOS_CONFORMANCE_H

#include "collectives/world.h"

#include <stddef.h>
#include <stdint.h>

struct conformance {
    const uint64_t *counts; /* sizes, in elements */
    size_t count_count;
    bool all_types; /* false: only float32, bfloat16, int8 and int64 */
    bool arena;     /* buffers from the world's arena; else private memory */
    bool device;    /* buffers in the memory of the world's device; else in host memory */
    unsigned flags; /* flags of every descriptor */
    uint64_t cases; /* out: number of cases run */
    char failure[1200];
};

/** Run all cases. Collective. Stops at the first wrong result and describes it in `failure`. */
void conformance_run(struct pl_world *world, struct conformance *conformance);

#endif
