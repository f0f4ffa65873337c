/* SPDX-License-Identifier: Apache-2.0 */
/** Tensors in device memory whose sums over ranks are known, for tests of named tensors. */
#ifndef PL_TESTS_UNIT_RUNTIME_NAMED_DEVICE_BENCH_H
#define PL_TESTS_UNIT_RUNTIME_NAMED_DEVICE_BENCH_H

#include "base/memory.h"
#include "collectives/world_private.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/named/blocking.h"

#include <stdlib.h>

enum { TENSORS = 24, STEPS = 3, MOST_BYTES = 64 << 10 };

static _Thread_local struct pl_device *device; /* this rank's */

/* Tensor `t`: its type in turn, and a size that is often odd; the last one is too long to be packed on some. */
static inline enum pl_dtype dtype_of(size_t t)
{
    static const enum pl_dtype types[] = {PL_FLOAT32, PL_INT64, PL_BFLOAT16};

    return types[t % PL_ARRAY_ITEMS(types)];
}

static inline uint64_t elems_of(size_t t)
{
    return t == 5 ? 1 : (t * 37) % 1000 + 1;
}

/* What rank `rank` gives in element `e`: a small number, which floats halve. */
static inline int small_of(size_t t, uint64_t e, int rank, int step)
{
    return (int)((e * 3 + t + (uint64_t)step * 5 + (uint64_t)rank * 7) % 11) - 5;
}

/* Element `e` of tensor `t` as the sum over ranks `first`..`ranks` - 1: floats whose sums are exact, and whole numbers
 * beyond what a double holds. */
static inline void put(void *data, size_t t, uint64_t e, int first, int ranks, int step)
{
    int small = 0;

    for (int r = first; r < ranks; r++) {
        small += small_of(t, e, r, step);
    }
    float single = (float)small * 0.5F;
    int64_t whole = ((INT64_C(1) << 57) + (INT64_C(1) << 54)) * (ranks - first) + small;
    uint32_t bits;
    uint16_t half;

    memcpy(&bits, &single, sizeof(bits));
    half = (uint16_t)(bits >> 16);
    switch (dtype_of(t)) {
    case PL_FLOAT32:
        memcpy((char *)data + e * 4, &single, 4);
        break;
    case PL_INT64:
        memcpy((char *)data + e * 8, &whole, 8);
        break;
    default:
        memcpy((char *)data + e * 2, &half, 2);
        break;
    }
}

static inline void expect(void *data, size_t t, int first, int ranks, int step)
{
    for (uint64_t e = 0; e < elems_of(t); e++) {
        put(data, t, e, first, ranks, step);
    }
}

struct bench {
    struct pl_named *named;
    void *stream;
    void *send[TENSORS];
    void *recv[TENSORS];
    unsigned char *host[TENSORS]; /* what is being uploaded */
};

static inline enum pl_status bench_open(struct pl_world *world, struct bench *bench, struct pl_error *reterr)
{
    struct pl_named_options options = {.start_bytes = 8192};

    PL_TRY(pl_device_stream_new(device, &bench->stream, reterr));
    for (size_t t = 0; t < TENSORS; t++) {
        PL_TRY(pl_device_alloc(device, MOST_BYTES, &bench->send[t], reterr));
        PL_TRY(pl_device_alloc(device, MOST_BYTES, &bench->recv[t], reterr));
        bench->host[t] = pl_memory_new(MOST_BYTES, 1, reterr);
        if (!bench->host[t]) {
            return PL_MEMORY;
        }
    }
    return pl_named_new(world, &options, &bench->named, reterr);
}

static inline void bench_close(struct bench *bench)
{
    engine_free(bench->named);
    for (size_t t = 0; t < TENSORS; t++) {
        pl_device_release(device, bench->send[t]);
        pl_device_release(device, bench->recv[t]);
        free(bench->host[t]);
    }
    pl_device_stream_free(device, bench->stream);
}

static inline struct pl_named_op op_of(struct bench *bench, size_t t, const char *name)
{
    return (struct pl_named_op){.name = name,
                                .kind = PL_ALLREDUCE,
                                .dtype = dtype_of(t),
                                .op = PL_SUM,
                                .dims = 1,
                                .shape = {elems_of(t)},
                                .memory = PL_MEMORY_DEVICE,
                                .send = bench->send[t],
                                .recv = t % 2 ? bench->recv[t] : bench->send[t],
                                .stream = bench->stream};
}

/* Does not wait: the engine has to. */
static inline enum pl_status upload(struct bench *bench, size_t t, int rank, int step, struct pl_error *reterr)
{
    expect(bench->host[t], t, rank, rank + 1, step);
    return pl_device_copy(device, bench->send[t], bench->host[t], elems_of(t) * pl_dtype_bytes(dtype_of(t)),
                          bench->stream, reterr);
}

/* Whether tensor `t` came out as the sum over ranks from `first` on. */
static inline enum pl_status is_right(struct bench *bench, size_t t, int first, int ranks, int step, bool *ret_right,
                                      struct pl_error *reterr)
{
    unsigned char got[MOST_BYTES], wanted[MOST_BYTES];
    uint64_t bytes = elems_of(t) * pl_dtype_bytes(dtype_of(t));

    expect(wanted, t, first, ranks, step);
    PL_TRY(pl_device_copy(device, got, t % 2 ? bench->recv[t] : bench->send[t], bytes, bench->stream, reterr));
    PL_TRY(pl_device_stream_finish(device, bench->stream, PL_DEADLINE_NEVER, reterr));
    *ret_right = memcmp(got, wanted, bytes) == 0;
    return PL_OK;
}

static inline void run(int ranks, ranks_function *function)
{
    for (int devices = 1; devices > 0; devices = device_next(devices, ranks)) {
        ck_assert_ranks_on(ranks, devices, NULL, function, NULL);
    }
}

#endif
