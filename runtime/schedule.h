/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The learning rate of a step, as a function without state: a resumed run gets the same rates as an uninterrupted one.
 *
 * Source  linear scaling with gradual warm-up: Goyal et al., "Accurate, Large Minibatch SGD", 2017; cosine: Loshchilov
 *         and Hutter, "SGDR", ICLR 2017 (without restarts).
 * Test    tests/unit/runtime/gradient/test_optimizer.c
 */
#ifndef PL_RUNTIME_SCHEDULE_H
#define PL_RUNTIME_SCHEDULE_H

#include <stdint.h>

enum pl_schedule_kind {
    PL_SCHEDULE_CONSTANT,
    PL_SCHEDULE_STEP,       /* after the warm-up, multiplied by `gamma` every `every_steps` steps */
    PL_SCHEDULE_COSINE,     /* half a cosine from the full rate to `end_rate` at `total_steps` */
    PL_SCHEDULE_POLYNOMIAL, /* end_rate + (rate - end_rate) (1 - t) ^ power; t goes from 0 to 1 */
};

/** Zero-initialise; unused fields stay zero. */
struct pl_schedule {
    enum pl_schedule_kind kind;
    double base_rate;      /* learning rate for one rank */
    double scale;          /* the full rate is base_rate * scale; usually the number of ranks; 0: 1 */
    uint64_t warmup_steps; /* steps of the linear rise from base_rate to the full rate */
    /* needed for COSINE and POLYNOMIAL; 0: the rate is end_rate right after the warm-up */
    uint64_t total_steps;
    uint64_t every_steps;
    double gamma;
    double power; /* exponent for POLYNOMIAL; 0: 1 */
    double end_rate;
};

/** Returns the rate for step `step`, counted from 0. */
double pl_schedule_rate(const struct pl_schedule *schedule, uint64_t step);

#endif
