/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The step of each optimizer for one element. The host's loops and the device's kernels use the same lines, and so get
 * the same bits, if neither contracts a product and a sum into one operation (-ffp-contract=off, nvcc --fmad=false).
 *
 * Source  see runtime/optimizer.h
 * Test    tests/unit/runtime/gradient/test_optimizer.c, tests/unit/device/test_kernel.c
 */
#ifndef PL_DEVICE_STEP_H
#define PL_DEVICE_STEP_H

#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* GCC's -std=c11 implies it */
#endif
#ifdef __CUDACC__
#define PL_STEP static __host__ __device__ __forceinline__
#else
#define PL_STEP static inline
#endif

/** The factors that all elements of a step share. */
struct pl_step_factors {
    float gradient; /* undoes the loss scale and applies clipping */
    float rate;
    float decay;  /* weight decay that is added to the gradient */
    float shrink; /* weight decay that is applied separately (AdamW) */
    float momentum;
    float beta1;
    float beta2;
    float epsilon;
    float correct1; /* 1 / (1 - beta^step) */
    float correct2;
};

PL_STEP float pl_step_gradient(const struct pl_step_factors *f, float value, float gradient)
{
    return gradient * f->gradient + f->decay * value;
}

PL_STEP void pl_step_sgd(const struct pl_step_factors *f, float *value, float gradient)
{
    *value -= f->rate * pl_step_gradient(f, *value, gradient);
}

PL_STEP void pl_step_momentum(const struct pl_step_factors *f, float *value, float gradient, float *velocity)
{
    *velocity = f->momentum * *velocity + pl_step_gradient(f, *value, gradient);
    *value -= f->rate * *velocity;
}

PL_STEP void pl_step_nesterov(const struct pl_step_factors *f, float *value, float gradient, float *velocity)
{
    float g = pl_step_gradient(f, *value, gradient);

    *velocity = f->momentum * *velocity + g;
    *value -= f->rate * (g + f->momentum * *velocity);
}

PL_STEP void pl_step_adagrad(const struct pl_step_factors *f, float *value, float gradient, float *squares)
{
    float g = pl_step_gradient(f, *value, gradient);

    *squares += g * g;
    *value -= f->rate * g / (sqrtf(*squares) + f->epsilon);
}

/** `shrink` is AdamW's weight decay, `decay` is Adam's, which is a part of the gradient. One of them is zero. */
PL_STEP void pl_step_adam(const struct pl_step_factors *f, float *value, float gradient, float *mean, float *variance)
{
    float g = pl_step_gradient(f, *value, gradient);

    *mean = f->beta1 * *mean + (1.0F - f->beta1) * g;
    *variance = f->beta2 * *variance + (1.0F - f->beta2) * g * g;
    *value -= f->shrink * *value + f->rate * (*mean * f->correct1) / (sqrtf(*variance * f->correct2) + f->epsilon);
}

#endif
