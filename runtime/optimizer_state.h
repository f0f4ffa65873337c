/* SPDX-License-Identifier: Apache-2.0 */
/** What of an optimizer has to be kept to go on later. Internal to runtime/. */
#ifndef PL_RUNTIME_OPTIMIZER_STATE_H
#define PL_RUNTIME_OPTIMIZER_STATE_H

#include "runtime/optimizer.h"

/** What has to be kept to go on later: counters and up to two arrays of pl_plan_elems() elements. */
struct pl_optimizer_state {
    uint64_t steps; /* applied */
    uint64_t skipped;
    uint64_t good_steps; /* since the loss scale last changed */
    double loss_scale;   /* 0: not scaled */
};

struct pl_optimizer_state pl_optimizer_state(const struct pl_optimizer *optimizer);
/** Where only one of the two runs scales its loss, the scale is what this optimizer's options say. */
void pl_optimizer_restore(struct pl_optimizer *optimizer, const struct pl_optimizer_state *state);

/** How many arrays there are, and array `slot` with its name ("momentum", "mean", "variance", "squares"). */
unsigned pl_optimizer_slots(const struct pl_optimizer *optimizer);
const char *pl_optimizer_slot_name(const struct pl_optimizer *optimizer, unsigned slot);
/* In the plan's kind of memory. */
float *pl_optimizer_slot(const struct pl_optimizer *optimizer, unsigned slot);

#endif
