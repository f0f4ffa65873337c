/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Optimizers, as one loop over the buckets of a plan; a bucket is updated as soon as its allreduce has ended. All ranks
 * have the same gradients and so take the same step, bit for bit. In device memory, buckets that are complete at the
 * same time are updated by one kernel on the plan's stream (unscaling, widening, clipping and the step in one pass).
 * The host waits only with a scaled loss, because it must decide whether to take the step.
 *
 * Source  SGD with momentum in the form v = m v + g, w -= rate v (so that a change of the rate needs no correction of
 *         v); Nesterov: w -= rate (g + m v). Adam: Kingma and Ba, ICLR 2015. AdamW: Loshchilov and Hutter, ICLR 2019.
 *         Adagrad: Duchi et al., JMLR 2011.
 * Test    tests/unit/runtime/gradient/test_optimizer.c
 */
#ifndef PL_RUNTIME_OPTIMIZER_H
#define PL_RUNTIME_OPTIMIZER_H

#include "runtime/plan.h"

enum pl_optimizer_kind {
    PL_SGD,
    PL_ADAM,  /* weight decay is part of the gradient */
    PL_ADAMW, /* weight decay shrinks the weights directly */
    PL_ADAGRAD,
};

/** Zero-initialise: zero is each field's default. Must be equal on all ranks, as must each step's rate: not checked. */
struct pl_optimizer_options {
    enum pl_optimizer_kind kind;
    double momentum; /* SGD; 0: none */
    bool nesterov;
    double weight_decay;
    double beta1;          /* decay of Adam's mean; 0: 0.9 */
    double beta2;          /* decay of Adam's variance; 0: 0.999 */
    double epsilon;        /* Adam, Adagrad; 0: 1e-8 */
    double clip_norm;      /* longest global gradient norm; 0: no limit */
    double loss_scale;     /* first factor of the loss; 0: the loss is not scaled */
    unsigned growth_steps; /* number of good steps in a row after which the factor is doubled; 0: 2000 */
};

struct pl_optimizer;

/**
 * Makes an optimizer of all values of `plan`, which must outlive it.
 *
 * Collective  no.
 * Errors      PL_INVALID: the plan is not sealed; an option is negative or not finite; a beta is not below 1; unknown
 *             kind. PL_MEMORY. In device memory also PL_LIBRARY from the driver.
 */
enum pl_status pl_optimizer_new(struct pl_plan *plan, const struct pl_optimizer_options *options,
                                struct pl_optimizer **ret_optimizer, struct pl_error *reterr) PL_MUST_CHECK;
void pl_optimizer_free(struct pl_optimizer *optimizer);

/**
 * Waits for the step's gradients and applies them at the learning rate `rate`. With a scaled loss, if gradients are not
 * finite, all ranks skip the step and halve the factor, down to 1 (or to its first value if that is less).
 *
 * Collective  yes, as pl_plan_wait(): it completes and waits for the buckets' allreduces.
 * Errors      those of pl_plan_wait(): PL_TIMEOUT, PL_PEER, PL_MISMATCH, PL_LIBRARY; the values may then have been
 *             changed in part, and the world is unusable. In device memory also the driver's errors, and PL_TIMEOUT if
 *             the norm of the gradients does not arrive.
 */
enum pl_status pl_optimizer_step(struct pl_optimizer *optimizer, double rate, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the factor by which the program multiplies its loss (or its gradients); 1 if the loss is not scaled. */
double pl_optimizer_loss_scale(const struct pl_optimizer *optimizer);

/**
 * Returns the norm of the last step's gradients, before clipping, even if the step was skipped; 0 unless clip_norm or
 * loss_scale is set. In device memory call pl_plan_finish() first.
 */
double pl_optimizer_gradient_norm(const struct pl_optimizer *optimizer);

/**
 * Gives every rank the state and arrays of `root`.
 *
 * Collective  yes.
 * Errors      PL_INVALID: `root` is not a rank; those of pl_collective_run().
 */
enum pl_status pl_optimizer_broadcast(struct pl_optimizer *optimizer, int root, struct pl_error *reterr) PL_MUST_CHECK;

#endif
