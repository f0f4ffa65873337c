/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The rule of an optimizer: its options, the factors of a step, and the loops that take a step in host memory. Plans'
 * optimizers and parameter servers use it, so they take the same steps. Internal to runtime/.
 *
 * Test  tests/unit/runtime/gradient/test_optimizer.c
 */
#ifndef PL_RUNTIME_GRADIENT_OPTIMIZER_RULE_H
#define PL_RUNTIME_GRADIENT_OPTIMIZER_RULE_H

#include "device/kernel.h"
#include "device/kernel_private.h"
#include "runtime/optimizer.h"

enum { PL_OPTIMIZER_MOST_SLOTS = 2 };

/**
 * Checks `options` and replaces zeros by the defaults. Errors: PL_INVALID names the option, its value and its range.
 */
enum pl_status pl_optimizer_rule_check(struct pl_optimizer_options *options, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns how many arrays a step needs besides the values; the second function returns the name of array `slot`. */
unsigned pl_optimizer_rule_slots(const struct pl_optimizer_options *options);
const char *pl_optimizer_rule_slot_name(const struct pl_optimizer_options *options, unsigned slot);

/**
 * Returns the factors of step `number`, counted from 1, at the learning rate `rate`, with gradients multiplied by
 * `gradient_factor`.
 */
struct pl_device_step pl_optimizer_rule_step(const struct pl_optimizer_options *options, uint64_t number, double rate,
                                             double gradient_factor);

/**
 * Takes the step over `count` elements of host memory. The arrays do not overlap. `slot` [PL_OPTIMIZER_MOST_SLOTS] is
 * NULL for slots that the rule does not have.
 */
void pl_optimizer_rule_apply(const struct pl_device_step *step, uint64_t count, float *value, const float *gradient,
                             float *const *slot);

/* The state of an optimizer that checkpoints save. */

/** Counters; with up to two arrays of pl_plan_elems() elements they are an optimizer's whole state. */
struct pl_optimizer_state {
    uint64_t steps; /* number of steps that were applied */
    uint64_t skipped;
    uint64_t good_steps; /* number of good steps since the loss scale last changed */
    double loss_scale;   /* 0: the loss is not scaled */
};

struct pl_optimizer_state pl_optimizer_state(const struct pl_optimizer *optimizer);
/** Sets the state. If only one of the two runs scales its loss, the scale of this optimizer's options stays. */
void pl_optimizer_restore(struct pl_optimizer *optimizer, const struct pl_optimizer_state *state);

/** Return the number of arrays, and the name of array `slot` ("momentum", "mean", "variance", "squares"). */
unsigned pl_optimizer_slots(const struct pl_optimizer *optimizer);
const char *pl_optimizer_slot_name(const struct pl_optimizer *optimizer, unsigned slot);
/* Returns array `slot`, in the plan's kind of memory. */
float *pl_optimizer_slot(const struct pl_optimizer *optimizer, unsigned slot);

#endif
