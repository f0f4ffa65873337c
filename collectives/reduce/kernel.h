/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reductions of several buffers into one or more, copies and casts: the arithmetic under every collective.
 *
 * Each instruction set has one table of loops (kernel_vector.inc, kernel_plain.c). pl_kernel_best() chooses by cpuid; a
 * setting may name another. All give the same bits as the table "plain" (a NaN stays a NaN, with any payload).
 *
 * Order       ((source[0] op source[1]) op source[2]) ...: ranks pass their buffers in rank order, so that every rank
 *             that computes an element gets the same bits.
 * Rules       float16 and bfloat16 are widened to float32 once, accumulated so over all sources and rounded once, to
 *             nearest even. Subnormals are kept, which is why AVX512-BF16 conversions (they flush) are not used.
 *             Integer sums and products wrap. An integer average is the exact sum divided, truncated toward zero.
 *             Scaled integers go through float64, truncate toward zero and saturate.
 *             min and max: a NaN in any source gives a NaN; -0 is smaller than +0.
 *             bool: nonzero is true, results are 0 or 1; sum and max are OR, product and min are AND.
 * Test        tests/unit/collectives/reduce/test_kernel.c
 */
#ifndef PL_COLLECTIVES_REDUCE_KERNEL_H
#define PL_COLLECTIVES_REDUCE_KERNEL_H

#include "base/dtype.h"

#include <stddef.h>
#include <stdint.h>

/** How results are stored; the results themselves do not depend on it. */
enum pl_kernel_store {
    PL_KERNEL_STORE_CACHED, /* ordinary stores: the destination is in this core's cache, or this core will read it
                             * soon */
    /* fetch destination lines for writing (PREFETCHW) ahead of use: they are modified in another core's cache */
    PL_KERNEL_STORE_MIGRATE,
    /* copies only: cached stores, but the source's lines are fetched for writing, since this core refills them next */
    PL_KERNEL_STORE_TAKE,
};

/** The computation of pl_kernel_reduce() for each element: post * ((pre * a) op (pre * b) op ...) / divisor. */
struct pl_reduction {
    enum pl_dtype dtype;
    enum pl_op op;    /* PL_AVERAGE acts as PL_SUM here: `divisor` is the number to divide by */
    int64_t divisor;  /* at least 1; used with PL_SUM and PL_AVERAGE only */
    double prescale;  /* applied to each source, in the type of the accumulator; 1 for none */
    double postscale; /* applied to the result before it is rounded; 1 for none */
    enum pl_kernel_store store;
};

struct pl_kernel {
    const char *name;
    void (*reduce)(const struct pl_reduction *reduction, void *const *dest, uint32_t dests, const void *const *source,
                   uint32_t sources, size_t count_elems);
    void (*copy)(void *dest, const void *source, size_t bytes, enum pl_kernel_store store);
    /* convert float32 to and from the two 16-bit types */
    void (*narrow)(enum pl_dtype dest_dtype, uint16_t *dest, const float *source, size_t count_elems);
    void (*widen)(enum pl_dtype source_dtype, float *dest, const uint16_t *source, size_t count_elems);
};

/** The fastest table that this CPU can run. */
const struct pl_kernel *pl_kernel_best(void);

/**
 * The table of that name: "plain", "avx2", "avx512", "neon", or "auto" for the best. NULL if the name is unknown, the
 * table is not compiled in, or this CPU cannot run it.
 */
const struct pl_kernel *pl_kernel_named(const char *name);

/**
 * Reduce `sources` buffers into each of `dests` buffers.
 *
 * Shapes      dest[j], source[k]: [count_elems] of the dtype, any alignment; a dest may be a source, no other overlap.
 * Threads     any; accesses only the buffers.
 * Cost        one pass: every source read once, every dest written once.
 */
static inline void pl_kernel_reduce(const struct pl_kernel *kernel, const struct pl_reduction *reduction,
                                    void *const *dest, uint32_t dests, const void *const *source, uint32_t sources,
                                    size_t count_elems)
{
    kernel->reduce(reduction, dest, dests, source, sources, count_elems);
}

/** Copy `bytes` bytes; the buffers do not overlap. */
static inline void pl_kernel_copy(const struct pl_kernel *kernel, void *dest, const void *source, size_t bytes,
                                  enum pl_kernel_store store)
{
    kernel->copy(dest, source, bytes, store);
}

/** Round float32 to PL_FLOAT16 or PL_BFLOAT16, to nearest even; too large values become infinity. */
static inline void pl_kernel_narrow(const struct pl_kernel *kernel, enum pl_dtype dest_dtype, uint16_t *dest,
                                    const float *source, size_t count_elems)
{
    kernel->narrow(dest_dtype, dest, source, count_elems);
}

/** Convert PL_FLOAT16 or PL_BFLOAT16 to float32, exactly. */
static inline void pl_kernel_widen(const struct pl_kernel *kernel, enum pl_dtype source_dtype, float *dest,
                                   const uint16_t *source, size_t count_elems)
{
    kernel->widen(source_dtype, dest, source, count_elems);
}

/**
 * The power of two by which the inputs of a half-width average over `ranks` are multiplied, so that their sum cannot
 * overflow. The sum is divided by it again. The result is exact except for the smallest numbers.
 */
double pl_kernel_guard(int ranks);

#endif
