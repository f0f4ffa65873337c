/* SPDX-License-Identifier: Apache-2.0 */
/** Kernels of a training step: squared norm and optimizers. Private to device/ and its tests. */
#ifndef PL_DEVICE_KERNEL_STEP_H
#define PL_DEVICE_KERNEL_STEP_H

#include "device/kernel_code.h"
#include "device/kernel_private.h"
#include "device/step.h"

/* ---- squared norm ---- */

struct pl_norm_args {
    const char *values;
    uint64_t count;
    double *partial; /* [blocks]: sum of each block */
    uint32_t vector; /* whether `values` is aligned to 16 bytes; the order of additions does not depend on it */
};

/* Adds the threads' sums in a fixed tree, and leaves the total in sum[0]. */
#define PL_SUM_BLOCK(sum)                                                                                              \
    PL_BARRIER();                                                                                                      \
    for (uint32_t half = PL_THREADS / 2; half > 0; half /= 2) {                                                        \
        PL_EACH_THREAD(thread)                                                                                         \
        {                                                                                                              \
            if (thread < half) {                                                                                       \
                (sum)[thread] += (sum)[thread + half];                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        PL_BARRIER();                                                                                                  \
    }

PL_CODE double load_double(const enum pl_dtype dtype, const char *at)
{
    return dtype == PL_FLOAT64 ? *(const pl_raw_double *)at : (double)load_float(dtype, at);
}

PL_CODE void load_doubles(const enum pl_dtype dtype, const uint32_t group, const char *at, const bool vector,
                          double *to)
{
    if (vector && dtype == PL_FLOAT64) {
        struct pl_raw_doubles raw = *(const struct pl_raw_doubles *)at;

        to[0] = raw.value[0];
        to[1] = raw.value[1];
    } else if (vector) {
        float value[8];

        load_floats(dtype, group, at, value);
        PL_UNROLL for (uint32_t i = 0; i < group; i++)
        {
            to[i] = (double)value[i];
        }
    } else {
        PL_UNROLL for (uint32_t i = 0; i < group; i++)
        {
            to[i] = load_double(dtype, at + i * bytes_of(dtype));
        }
    }
}

/*
 * Adds the squares of `run` groups, `stride` groups apart. All loads are issued before the first sum. fma() rounds
 * once, and a product of two floats is exact in double: so the result is that of a product and a sum.
 */
PL_CODE void sum_run(const enum pl_dtype dtype, const bool vector, const struct pl_norm_args *a, uint64_t at,
                     uint64_t stride, const uint32_t run, double *part)
{
    const uint32_t group = 16 / bytes_of(dtype);
    double value[4 * 8];

    PL_UNROLL for (uint32_t r = 0; r < run; r++)
    {
        load_doubles(dtype, group, a->values + (at + r * stride) * 16, vector, value + r * group);
    }
    PL_UNROLL for (uint32_t i = 0; i < run * group; i++)
    {
        part[i % 2] = fma(value[i], value[i], part[i % 2]);
    }
}

/* Returns one thread's sum. */
PL_CODE double sum_groups(const enum pl_dtype dtype, const bool vector, const struct pl_norm_args *a, uint64_t first,
                          uint64_t stride)
{
    const uint32_t group = 16 / bytes_of(dtype);
    uint64_t groups = a->count / group;
    uint64_t at = first;
    double part[2] = {0.0, 0.0};

    for (; at + 3 * stride < groups; at += 4 * stride) {
        sum_run(dtype, vector, a, at, stride, 4, part);
    }
    if (at + stride < groups) {
        sum_run(dtype, vector, a, at, stride, 2, part);
        at += 2 * stride;
    }
    if (at < groups) {
        sum_run(dtype, vector, a, at, stride, 1, part);
    }
    if (first < a->count - groups * group) { /* the first threads add the elements after the last group */
        double value = load_double(dtype, a->values + (groups * group + first) * bytes_of(dtype));

        part[0] = fma(value, value, part[0]);
    }
    return part[0] + part[1];
}

PL_CODE void code_norm(const enum pl_dtype dtype, const struct pl_norm_args *a, uint32_t block, uint32_t blocks)
{
    uint64_t stride = (uint64_t)blocks * PL_THREADS;
    PL_SHARED double sum[PL_THREADS];

    PL_EACH_THREAD(thread)
    {
        uint64_t first = (uint64_t)block * PL_THREADS + thread;

        sum[thread] =
            a->vector ? sum_groups(dtype, true, a, first, stride) : sum_groups(dtype, false, a, first, stride);
    }
    PL_SUM_BLOCK(sum)
    PL_EACH_THREAD(thread)
    {
        if (thread == 0) {
            a->partial[block] = sum[0];
        }
    }
}

struct pl_norm_end_args {
    const double *partial;
    uint32_t count;
    double *sum;
};

PL_CODE void code_norm_end(const struct pl_norm_end_args *a, uint32_t block, uint32_t blocks)
{
    PL_SHARED double sum[PL_THREADS];

    (void)block;
    (void)blocks;
    PL_EACH_THREAD(thread)
    {
        double part = 0.0;

        for (uint32_t i = thread; i < a->count; i += PL_THREADS) {
            part += a->partial[i];
        }
        sum[thread] = part;
    }
    PL_SUM_BLOCK(sum)
    PL_EACH_THREAD(thread)
    {
        if (thread == 0) {
            *a->sum = sum[0];
        }
    }
}

/* ---- optimizers ---- */

struct pl_step_args {
    struct pl_device_step step;
    uint64_t count;
    float *value;
    const char *gradient;
    float *slot0;
    float *slot1;
    uint32_t vector; /* whether all arrays are aligned for groups of four */
};

/* Returns the gradient's factor with clipping. */
PL_CODE float gradient_factor(const struct pl_device_step *step)
{
    double factor = (double)step->factors.gradient;

    if (step->squares) {
        double norm = sqrt(*step->squares) * factor;

        if (step->clip_norm > 0.0 && norm > step->clip_norm) {
            factor *= step->clip_norm / norm;
        }
    }
    return (float)factor;
}

PL_CODE void step_one(const enum pl_device_step_kind kind, const struct pl_step_factors *f, float *value,
                      float gradient, float *slot0, float *slot1)
{
    switch (kind) {
    case PL_DEVICE_SGD:
        pl_step_sgd(f, value, gradient);
        break;
    case PL_DEVICE_MOMENTUM:
        pl_step_momentum(f, value, gradient, slot0);
        break;
    case PL_DEVICE_NESTEROV:
        pl_step_nesterov(f, value, gradient, slot0);
        break;
    case PL_DEVICE_ADAGRAD:
        pl_step_adagrad(f, value, gradient, slot0);
        break;
    case PL_DEVICE_ADAM:
        pl_step_adam(f, value, gradient, slot0, slot1);
        break;
    }
}

PL_CODE void step_four(const enum pl_device_step_kind kind, const enum pl_dtype dtype, const struct pl_step_args *a,
                       const struct pl_step_factors *f, uint64_t at)
{
    float value[4];
    float gradient[4];
    float slot0[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    float slot1[4] = {0.0F, 0.0F, 0.0F, 0.0F};

    load_floats(PL_FLOAT32, 4, (const char *)(a->value + at), value);
    load_floats(dtype, 4, a->gradient + at * bytes_of(dtype), gradient);
    if (kind != PL_DEVICE_SGD) {
        load_floats(PL_FLOAT32, 4, (const char *)(a->slot0 + at), slot0);
    }
    if (kind == PL_DEVICE_ADAM) {
        load_floats(PL_FLOAT32, 4, (const char *)(a->slot1 + at), slot1);
    }
    PL_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        step_one(kind, f, &value[i], gradient[i], &slot0[i], &slot1[i]);
    }
    store_floats(PL_FLOAT32, 4, (char *)(a->value + at), value);
    if (kind != PL_DEVICE_SGD) {
        store_floats(PL_FLOAT32, 4, (char *)(a->slot0 + at), slot0);
    }
    if (kind == PL_DEVICE_ADAM) {
        store_floats(PL_FLOAT32, 4, (char *)(a->slot1 + at), slot1);
    }
}

PL_CODE void code_step(const enum pl_device_step_kind kind, const enum pl_dtype dtype, const struct pl_step_args *a,
                       uint32_t block, uint32_t blocks)
{
    uint64_t stride = (uint64_t)blocks * PL_THREADS;
    uint64_t fours = a->vector ? a->count / 4 : 0;
    PL_SHARED float factor[1]; /* one thread computes it, because double precision is slow on some devices */
    PL_SHARED bool skip[1];

    PL_EACH_THREAD(thread)
    {
        if (thread == 0) {
            factor[0] = gradient_factor(&a->step);
            skip[0] = a->step.squares && a->step.skip_not_finite && !isfinite(*a->step.squares);
        }
    }
    PL_BARRIER();
    if (skip[0]) {
        return;
    }
    PL_EACH_THREAD(thread)
    {
        struct pl_step_factors f = a->step.factors;

        f.gradient = factor[0];
        for (uint64_t g = (uint64_t)block * PL_THREADS + thread; g < fours; g += stride) {
            step_four(kind, dtype, a, &f, g * 4);
        }
        for (uint64_t i = fours * 4 + (uint64_t)block * PL_THREADS + thread; i < a->count; i += stride) {
            float slot0 = kind != PL_DEVICE_SGD ? a->slot0[i] : 0.0F;
            float slot1 = kind == PL_DEVICE_ADAM ? a->slot1[i] : 0.0F;

            step_one(kind, &f, &a->value[i], load_float(dtype, a->gradient + i * bytes_of(dtype)), &slot0, &slot1);
            if (kind != PL_DEVICE_SGD) {
                a->slot0[i] = slot0;
            }
            if (kind == PL_DEVICE_ADAM) {
                a->slot1[i] = slot1;
            }
        }
    }
}

#endif
