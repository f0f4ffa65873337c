/* SPDX-License-Identifier: Apache-2.0 */
/* Adasum's chain: the collectives that it consists of, and the computations of a rank between them. */
#include "collectives/calls/adasum.h"

#include "base/memory.h"
#include "collectives/core/types.h"
#include "collectives/reduce/kernel.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATHERED_BYTES = 256 << 10, /* size of all ranks' vectors up to which one allgather is faster */
    DOTS = 3,                   /* a.b, a.a, b.b */
    ALIGNMENT = 64,             /* alignment of vectors in the scratch memory */
    SUMS = 8,                   /* partial sums of a dot product, so that additions do not wait for each other */
};

struct adasum {
    struct pl_chain chain;           /* must be first */
    struct pl_collective collective; /* the program's descriptor */
    int rank, ranks, levels;
    bool gathers;        /* the chain is one allgather */
    enum pl_dtype dtype; /* type of the computation: float32 or float64 */
    uint64_t *counts;    /* [2 n]: counts of the step that describe() returned last */
    /* in the scratch memory of the chain */
    double *own_dots, *dots; /* [DOTS], [n * DOTS] */
    char *other;             /* received data */
    char *work; /* this rank's vector, from the first step on; if `gathers`, [n] vectors. May be the program's output */
};

enum pl_status pl_adasum_check(const struct pl_world *world, const struct pl_collective *collective,
                               struct pl_error *reterr)
{
    struct pl_collective sum = *collective;

    sum.op = PL_SUM;
    if (collective->kind != PL_ALLREDUCE) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "adasum is for allreduce, not %s", pl_kind_text(collective->kind));
    }
    if (!pl_dtype_is_float(collective->dtype)) {
        return pl_error_set(reterr, PL_INVALID, "adasum takes floats, not %s", pl_dtype_text(collective->dtype));
    }
    if (collective->memory == PL_MEMORY_DEVICE) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "adasum takes host memory, not device memory");
    }
    if (world->size & (world->size - 1)) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "adasum needs a number of ranks that is a power of two, not %d",
                            world->size);
    }
    return pl_request_check(world, &sum, reterr);
}

/* Finds the part of the vector that `rank` holds after `levels` halvings. */
static void find_part(uint64_t count, int rank, int levels, uint64_t *ret_at, uint64_t *ret_length)
{
    uint64_t at = 0, length = count;

    for (int level = 0; level < levels; level++) {
        uint64_t low = length - length / 2;

        if (rank >> level & 1) {
            at += low;
            length -= low;
        } else {
            length = low;
        }
    }
    *ret_at = at;
    *ret_length = length;
}

static bool is_last(const struct adasum *adasum, int step)
{
    return step == adasum->chain.steps - 1;
}

static struct pl_collective describe(struct pl_chain *chain, int step)
{
    struct adasum *adasum = (struct adasum *)chain;
    const struct pl_collective *c = &adasum->collective;
    struct pl_collective described = {.kind = PL_ALLGATHER,
                                      .dtype = adasum->gathers ? c->dtype : adasum->dtype,
                                      .flags = c->flags & PL_AGREED,
                                      .name = c->name,
                                      .deadline_ns = c->deadline_ns,
                                      .about = c->about,
                                      .counts = adasum->counts};
    int level = step / 2, partner = adasum->rank ^ 1 << level;
    uint64_t at;

    memset(adasum->counts, 0, 2 * (size_t)adasum->ranks * sizeof(uint64_t));
    if (adasum->gathers) {
        described.counts = NULL;
        described.count = c->count;
    } else if (is_last(adasum, step)) {
        for (int rank = 0; rank < adasum->ranks; rank++) {
            find_part(c->count, rank, adasum->levels, &at, &adasum->counts[rank]);
        }
    } else if (step % 2) {
        described.dtype = PL_FLOAT64;
        described.counts = NULL;
        described.count = DOTS;
    } else {
        described.kind = PL_ALLTOALL;
        described.recv_counts = adasum->counts + adasum->ranks;
        find_part(c->count, partner, level + 1, &at, &adasum->counts[partner]);
        find_part(c->count, adasum->rank, level + 1, &at, &adasum->counts[adasum->ranks + partner]);
    }
    return described;
}

/* Whether the computed vector lies in the program's output. The scratch memory holds dot products, received data
 * and, if this is false, the computed vectors. */
static bool works_in_recv(const struct adasum *adasum)
{
    return !adasum->gathers && adasum->dtype == adasum->collective.dtype;
}

static size_t dots_bytes(const struct adasum *adasum)
{
    return (((size_t)adasum->ranks + 1) * DOTS * sizeof(double) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static size_t vectors_bytes(const struct adasum *adasum)
{
    return (adasum->gathers ? (size_t)adasum->ranks : 1) * adasum->collective.count * pl_dtype_bytes(adasum->dtype);
}

static void lay_out(struct adasum *adasum, char *scratch)
{
    adasum->own_dots = (double *)(void *)scratch;
    adasum->dots = adasum->own_dots + DOTS;
    adasum->other = scratch + dots_bytes(adasum);
    adasum->work = works_in_recv(adasum) ? adasum->collective.recv : adasum->other + vectors_bytes(adasum);
}

#define FOR_FLOATS(X) X(float) X(double)

#define ARITHMETIC(type)                                                                                               \
    static void scale_##type(type *to, const type *from, uint64_t count, double factor)                                \
    {                                                                                                                  \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            to[i] = (type)((double)from[i] * factor);                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void dot_##type(const type *a, const type *b, uint64_t count, double dots[DOTS])                            \
    {                                                                                                                  \
        double sums[DOTS][SUMS] = {{0}};                                                                               \
        uint64_t i = 0;                                                                                                \
                                                                                                                       \
        for (; i + SUMS <= count; i += SUMS) {                                                                         \
            for (int k = 0; k < SUMS; k++) {                                                                           \
                double x = (double)a[i + (unsigned)k], y = (double)b[i + (unsigned)k];                                 \
                                                                                                                       \
                sums[0][k] += x * y;                                                                                   \
                sums[1][k] += x * x;                                                                                   \
                sums[2][k] += y * y;                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            double x = (double)a[i], y = (double)b[i];                                                                 \
                                                                                                                       \
            sums[0][0] += x * y;                                                                                       \
            sums[1][0] += x * x;                                                                                       \
            sums[2][0] += y * y;                                                                                       \
        }                                                                                                              \
        for (int k = 0; k < DOTS; k++) {                                                                               \
            dots[k] = 0;                                                                                               \
            for (int j = 0; j < SUMS; j++) {                                                                           \
                dots[k] += sums[k][j];                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void combine_##type(type *to, const type *a, const type *b, uint64_t count, double of_a, double of_b)       \
    {                                                                                                                  \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            to[i] = (type)(of_a * (double)a[i] + of_b * (double)b[i]);                                                 \
        }                                                                                                              \
    }
FOR_FLOATS(ARITHMETIC)

/* The factor of a vector: `square` is its product with itself, `dot` its product with the other vector. */
static double factor_of(double dot, double square)
{
    return square < DBL_MIN ? 1 : 1 - dot / square / 2;
}

static void dot(const struct adasum *adasum, const void *a, const void *b, uint64_t count, double dots[DOTS])
{
    if (adasum->dtype == PL_FLOAT64) {
        dot_double(a, b, count, dots);
    } else {
        dot_float(a, b, count, dots);
    }
}

static void combine(const struct adasum *adasum, void *to, const void *a, const void *b, uint64_t count,
                    const double dots[DOTS])
{
    double of_a = factor_of(dots[0], dots[1]), of_b = factor_of(dots[0], dots[2]);

    if (adasum->dtype == PL_FLOAT64) {
        combine_double(to, a, b, count, of_a, of_b);
    } else {
        combine_float(to, a, b, count, of_a, of_b);
    }
}

/* Converts the program's elements to the type of the computation; narrow() converts back. */
static void widen(const struct adasum *adasum, void *to, const void *from, uint64_t count)
{
    double factor = adasum->collective.scaled ? adasum->collective.prescale : 1;

    if (to == from && factor == 1) {
        return;
    }
    if (adasum->dtype == PL_FLOAT64) {
        scale_double(to, from, count, factor);
        return;
    }
    if (adasum->collective.dtype != PL_FLOAT32) {
        pl_kernel_widen(pl_kernel_best(), adasum->collective.dtype, to, from, count);
        from = to;
    }
    scale_float(to, from, count, factor);
}

static void narrow(const struct adasum *adasum, void *to, void *from, uint64_t count)
{
    double factor = adasum->collective.scaled ? adasum->collective.postscale : 1;

    if (adasum->dtype == PL_FLOAT64) {
        scale_double(to, from, count, factor);
    } else if (adasum->collective.dtype == PL_FLOAT32) {
        scale_float(to, from, count, factor);
    } else {
        scale_float(from, from, count, factor);
        pl_kernel_narrow(pl_kernel_best(), adasum->collective.dtype, to, from, count);
    }
}

/* Computes the whole tree over all ranks' vectors. */
static void walk_tree(struct adasum *adasum)
{
    uint64_t count = adasum->collective.count, bytes = count * pl_dtype_bytes(adasum->dtype);
    double dots[DOTS];

    for (int rank = 0; rank < adasum->ranks; rank++) {
        widen(adasum, adasum->work + (uint64_t)rank * bytes,
              adasum->other + (uint64_t)rank * count * pl_dtype_bytes(adasum->collective.dtype), count);
    }
    for (int distance = 1; distance < adasum->ranks; distance *= 2) {
        for (int rank = 0; rank < adasum->ranks; rank += 2 * distance) {
            char *a = adasum->work + (uint64_t)rank * bytes, *b = a + (uint64_t)distance * bytes;

            dot(adasum, a, b, count, dots);
            combine(adasum, a, a, b, count, dots);
        }
    }
    narrow(adasum, adasum->collective.recv, adasum->work, count);
}

/* Finds this rank's part of the vectors a and b that are combined at `level`; a is the vector of the lower ranks. */
static void find_pair(const struct adasum *adasum, int level, char **ret_own, const char **ret_a, const char **ret_b,
                      uint64_t *ret_length)
{
    uint64_t at;

    find_part(adasum->collective.count, adasum->rank, level + 1, &at, ret_length);
    *ret_own = adasum->work + at * pl_dtype_bytes(adasum->dtype);
    *ret_a = adasum->rank >> level & 1 ? adasum->other : *ret_own;
    *ret_b = adasum->rank >> level & 1 ? *ret_own : adasum->other;
}

/* Combines the two vectors of `level`. Each dot product is the sum of the parts' dot products, in rank order. */
static void end_level(struct adasum *adasum, int level)
{
    int ranks = 2 << level, first = adasum->rank & ~(ranks - 1);
    double dots[DOTS] = {0};
    const char *a, *b;
    uint64_t length;
    char *own;

    for (int rank = first; rank < first + ranks; rank++) {
        for (int k = 0; k < DOTS; k++) {
            dots[k] += adasum->dots[rank * DOTS + k];
        }
    }
    find_pair(adasum, level, &own, &a, &b, &length);
    combine(adasum, own, a, b, length, dots);
}

/* Computes what a step sends and sets the step's buffers. */
static void start(struct pl_chain *chain, int step, void *scratch, struct pl_collective *c)
{
    struct adasum *adasum = (struct adasum *)chain;
    int level = step / 2;
    size_t item = pl_dtype_bytes(adasum->dtype);
    uint64_t at, length;
    const char *a, *b;
    char *own;

    if (step == 0) {
        lay_out(adasum, scratch);
        if (adasum->gathers) {
            c->send = adasum->collective.send;
            c->recv = adasum->other;
            return;
        }
        widen(adasum, adasum->work, adasum->collective.send, adasum->collective.count);
    }
    if (step % 2) {
        find_pair(adasum, level, &own, &a, &b, &length);
        dot(adasum, a, b, length, adasum->own_dots);
        c->send = adasum->own_dots;
        c->recv = adasum->dots;
        return;
    }
    if (step > 0) {
        end_level(adasum, level - 1);
    }
    find_part(adasum->collective.count, is_last(adasum, step) ? adasum->rank : adasum->rank ^ 1 << level,
              is_last(adasum, step) ? adasum->levels : level + 1, &at, &length);
    c->send = adasum->work + at * item;
    c->recv = adasum->other;
}

/* Writes the result to the program's buffer after the last step. */
static void finish(struct pl_chain *chain)
{
    struct adasum *adasum = (struct adasum *)chain;
    size_t item = pl_dtype_bytes(adasum->collective.dtype), work_item = pl_dtype_bytes(adasum->dtype);
    uint64_t from = 0, at, length;

    if (adasum->gathers) {
        walk_tree(adasum);
        return;
    }
    for (int rank = 0; rank < adasum->ranks; rank++) {
        find_part(adasum->collective.count, rank, adasum->levels, &at, &length);
        narrow(adasum, (char *)adasum->collective.recv + at * item, adasum->other + from * work_item, length);
        from += length;
    }
}

static void free_chain(struct pl_chain *chain)
{
    struct adasum *adasum = (struct adasum *)chain;

    free(adasum->counts);
    free(adasum);
}

static enum pl_status new_chain(const struct pl_world *world, const struct pl_collective *collective,
                                struct pl_chain **ret_chain, struct pl_error *reterr)
{
    struct adasum *adasum;
    size_t ranks = (size_t)world->size;

    PL_TRY(pl_memory_alloc(&adasum, 1, sizeof(*adasum), reterr));
    adasum->counts = pl_memory_new(2 * ranks, sizeof(uint64_t), reterr);
    if (!adasum->counts) {
        free(adasum);
        return PL_MEMORY;
    }
    adasum->collective = *collective;
    adasum->rank = world->rank;
    adasum->ranks = world->size;
    adasum->dtype = collective->dtype == PL_FLOAT64 ? PL_FLOAT64 : PL_FLOAT32;
    adasum->gathers = collective->count <= GATHERED_BYTES / ranks / pl_dtype_bytes(collective->dtype);
    while (1 << adasum->levels < world->size) {
        adasum->levels++;
    }
    adasum->chain = (struct pl_chain){.steps = adasum->gathers ? 1 : 2 * adasum->levels + 1,
                                      .describe = describe,
                                      .start = start,
                                      .finish = finish,
                                      .free = free_chain};
    adasum->chain.scratch_bytes = dots_bytes(adasum) + (works_in_recv(adasum) ? 1 : 2) * vectors_bytes(adasum);
    *ret_chain = &adasum->chain;
    return PL_OK;
}

enum pl_status pl_adasum_enqueue(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_request **ret_request, struct pl_error *reterr)
{
    struct pl_chain *chain = NULL;

    PL_TRY(pl_adasum_check(world, collective, reterr));
    if (world->size == 1 || collective->count == 0) { /* the result is a plain sum */
        struct pl_collective sum = *collective;

        sum.op = PL_SUM;
        return pl_request_enqueue(world, &sum, 0, ret_request, reterr);
    }
    PL_TRY(new_chain(world, collective, &chain, reterr));
    return pl_request_enqueue_chain(world, collective, chain, ret_request, reterr);
}
