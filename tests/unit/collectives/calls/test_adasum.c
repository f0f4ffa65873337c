/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/calls/adasum.c, collectives/calls/collective.c, collectives/core/request.c. */
/* Adasum against a model in double, over ranks, hosts, types and sizes; in the queue next to other collectives;
 * descriptors that fail. */
#include "base/checksum.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"
#include "tests/support/expect.h"
#include "tests/support/unit.h"

#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MOST_ELEMS = 70001 };

static const enum pl_dtype floats[] = {PL_FLOAT16, PL_BFLOAT16, PL_FLOAT32, PL_FLOAT64};

/* Half a unit in the last place, relative. */
static double precision_of(enum pl_dtype dtype)
{
    return dtype == PL_FLOAT16 ? 0x1p-11 : dtype == PL_BFLOAT16 ? 0x1p-8 : dtype == PL_FLOAT32 ? 0x1p-24 : 0x1p-53;
}

static double get(const void *data, enum pl_dtype dtype, size_t at)
{
    float value;

    if (dtype == PL_FLOAT64) {
        return ((const double *)data)[at];
    }
    if (dtype == PL_FLOAT32) {
        return (double)((const float *)data)[at];
    }
    pl_kernel_widen(pl_kernel_named("plain"), dtype, &value, (const uint16_t *)data + at, 1);
    return (double)value;
}

static void put(void *data, enum pl_dtype dtype, size_t at, double value)
{
    float narrow = (float)value;

    if (dtype == PL_FLOAT64) {
        ((double *)data)[at] = value;
    } else if (dtype == PL_FLOAT32) {
        ((float *)data)[at] = narrow;
    } else {
        pl_kernel_narrow(pl_kernel_named("plain"), dtype, (uint16_t *)data + at, &narrow, 1);
    }
}

/* Angle between the vectors of ranks. */
enum angle { ANY, PARALLEL, ORTHOGONAL, SOME_ZERO };

static double element(enum angle angle, int rank, int ranks, size_t at)
{
    double noise = (double)((at * 2654435761U + (angle == PARALLEL ? 0 : (unsigned)rank * 40503U)) % 1009) / 1009 - 0.4;

    switch (angle) {
    case ANY:
        return noise * (rank + 1);
    case PARALLEL:
        return noise * (rank + 1);
    case ORTHOGONAL:
        return at % (size_t)ranks == (size_t)rank ? noise : 0;
    case SOME_ZERO:
        return rank % 2 ? 0 : noise;
    }
    return 0;
}

static void fill(void *data, enum pl_dtype dtype, size_t count, enum angle angle, int rank, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        put(data, dtype, i, element(angle, rank, ranks, i));
    }
}

/* Computes the tree over all ranks' vectors, in `model` [ranks * count], into the first vector. */
static void walk(double *model, int ranks, size_t count)
{
    for (int distance = 1; distance < ranks; distance *= 2) {
        for (int rank = 0; rank < ranks; rank += 2 * distance) {
            double *a = model + (size_t)rank * count, *b = a + (size_t)distance * count;
            long double ab = 0, aa = 0, bb = 0;

            for (size_t i = 0; i < count; i++) {
                ab += (long double)a[i] * b[i];
                aa += (long double)a[i] * a[i];
                bb += (long double)b[i] * b[i];
            }
            for (size_t i = 0; i < count; i++) {
                a[i] = (double)((aa > 0 ? 1 - ab / aa / 2 : 1) * a[i] + (bb > 0 ? 1 - ab / bb / 2 : 1) * b[i]);
            }
        }
    }
}

struct shared {
    void *results[MOST_RANKS];
};

struct trial {
    enum pl_dtype dtype;
    size_t count;
    enum angle angle;
    bool in_place, scaled;
};

static void try(struct rank *self, const struct trial *trial, int number)
{
    struct shared *shared = self->data;
    size_t count = trial->count, bytes = count * pl_dtype_bytes(trial->dtype);
    double *model = calloc((size_t)self->size * count, sizeof(double)), error_square = 0, square = 0, factor = 1;
    void *send = malloc(bytes), *recv = trial->in_place ? send : malloc(bytes);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_collective adasum = {.kind = PL_ALLREDUCE,
                                   .dtype = trial->dtype,
                                   .op = PL_ADASUM,
                                   .count = count,
                                   .send = send,
                                   .recv = recv,
                                   .scaled = trial->scaled,
                                   .prescale = 0.5,
                                   .postscale = 4,
                                   .name = "gradient"};

    for (int rank = 0; rank < self->size; rank++) {
        fill(send, trial->dtype, count, trial->angle, rank, self->size);
        for (size_t i = 0; i < count; i++) {
            model[(size_t)rank * count + i] = get(send, trial->dtype, i);
        }
    }
    fill(send, trial->dtype, count, trial->angle, self->rank, self->size);
    walk(model, self->size, count);
    if (trial->scaled) {
        factor = 2;
    }
    expect_ok(pl_collective_run(self->world, &adasum, &error));
    for (size_t i = 0; i < count; i++) {
        double got = get(recv, trial->dtype, i), want = model[i] * factor;

        error_square += (got - want) * (got - want);
        square += want * want;
        if (trial->angle == PARALLEL) { /* the result is the mean */
            want = factor * element(PARALLEL, 0, self->size, i) * (self->size + 1) / 2;
            expect(fabs(got - want) <= 8 * precision_of(trial->dtype) * (fabs(want) + self->size), "%g, not %g", got,
                   want);
        }
    }
    expect(sqrt(error_square) <= (4 * precision_of(trial->dtype) + 0x1p-46) * sqrt(square),
           "trial %d of %zu %s: the values differ by %g, of %g", number, count, pl_dtype_text(trial->dtype),
           sqrt(error_square), sqrt(square));
    shared->results[self->rank] = recv;
    expect_ok(pl_barrier(self->world, &error));
    expect(memcmp(recv, shared->results[0], bytes) == 0, "trial %d: other bits than rank 0", number);
    expect_ok(pl_barrier(self->world, &error));
    free(model);
    if (recv != send) {
        free(recv);
    }
    free(send);
}

static void model_body(struct rank *self)
{
    static const size_t counts[] = {1, 3, 257, 9001, MOST_ELEMS};
    int number = 0;

    for (size_t type = 0; type < sizeof(floats) / sizeof(floats[0]); type++) {
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            enum angle angle = (enum angle)(number % 4);
            struct trial trial = {floats[type], counts[k], angle, number % 2, number % 3 == 0};

            try(self, &trial, number++);
        }
    }
}

static void over_hosts(int size, int ranks_per_host)
{
    struct shared shared = {{NULL}};
    struct rank_body body = {.body = model_body, .data = &shared};

    ck_assert_ranks(size, &(struct pl_world_options){.pretend_ranks_per_host = ranks_per_host}, expect_rank, &body);
}

TEST(results_are_the_models_on_one_host)
{
    for (int size = 1; size <= MOST_RANKS; size *= 2) {
        over_hosts(size, 0);
    }
}

TEST(results_are_the_models_between_hosts)
{
    over_hosts(2, 1);
    over_hosts(4, 1);
    over_hosts(4, 2);
    over_hosts(8, 3); /* hosts of different sizes */
}

static void bits_body(struct rank *self)
{
    /* CRC-32C of results on four ranks, by type: of one allgather, and of halving */
    static const uint32_t crcs[][2] = {
        {0xad8854dc, 0xa5e9ec3a}, {0x3d698c25, 0x7421ffa4}, {0x6571de2c, 0xaeb760aa}, {0xd9b2532f, 0xa270e3e5}};
    static const size_t counts[2] = {257, 9001 * 7};
    struct pl_error error = PL_ERROR_NONE;
    double *vector = malloc(counts[1] * sizeof(double));

    for (size_t type = 0; type < sizeof(floats) / sizeof(floats[0]); type++) {
        for (int k = 0; k < 2; k++) {
            uint32_t crc;

            fill(vector, floats[type], counts[k], ANY, self->rank, self->size);
            expect_ok(pl_allreduce(self->world, vector, vector, counts[k], floats[type], PL_ADASUM, &error));
            crc = pl_checksum_crc32c(0, vector, counts[k] * pl_dtype_bytes(floats[type]));
            expect(crc == crcs[type][k], "%zu %s: other bits, CRC %08x, not %08x", counts[k],
                   pl_dtype_text(floats[type]), crc, crcs[type][k]);
        }
    }
    free(vector);
}

TEST(results_have_the_bits_of_earlier_releases)
{
#ifndef __x86_64__
    return; /* compilers for other processors may fuse a product and a sum, which then round once */
#endif
    ck_assert_bodies(4, bits_body, NULL);
}

/* Chains are in the queue as one collective each, in any order of waits. */
static void queue_body(struct rank *self)
{
    enum { POSTS = 12, ELEMS = 40000 };
    struct pl_error error = PL_ERROR_NONE;
    struct pl_request *requests[POSTS];
    float *data = malloc((size_t)POSTS * ELEMS * sizeof(float));
    bool done = false;

    for (int i = 0; i < POSTS; i++) {
        float *vector = data + (size_t)i * ELEMS;
        uint64_t elems = i % 4 == 1 ? 5 : ELEMS;

        for (size_t k = 0; k < ELEMS; k++) {
            vector[k] = (float)(i + 1);
        }
        expect_ok(pl_collective_post(self->world,
                                     &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                             .dtype = PL_FLOAT32,
                                                             .op = i % 3 ? PL_ADASUM : PL_SUM,
                                                             .count = elems,
                                                             .send = vector,
                                                             .recv = vector},
                                     &requests[i], &error));
    }
    while (!done) {
        expect_ok(pl_request_test(requests[POSTS - 1], &done, &error));
    }
    for (int i = POSTS; i-- > 0;) {
        float want = (float)(i + 1) * (i % 3 ? 1.0F : (float)self->size);

        expect_ok(pl_request_wait(requests[i], &error));
        expect(fabsf(data[(size_t)i * ELEMS + 4] - want) <= 1e-5F * want, "%d: %g, not %g", i,
               (double)data[(size_t)i * ELEMS + 4], (double)want);
    }
    free(data);
}

UNIT_TEST(chains_and_other_collectives_share_the_queue, ck_assert_bodies(4, queue_body, NULL))

static void refused_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    int32_t numbers[4] = {0};
    float a[4] = {0}, b[4] = {0};

    expect(pl_allreduce(self->world, numbers, numbers, 4, PL_INT32, PL_ADASUM, &error) == PL_INVALID, "int32");
    expect(strstr(error.cause, "adasum takes floats, not int32"), "%s", error.cause);
    expect(pl_reduce(self->world, a, b, 4, PL_FLOAT32, PL_ADASUM, 0, &error) == PL_UNSUPPORTED, "reduce");
    expect(pl_reduce_scatter(self->world, numbers, b, 1, PL_FLOAT32, PL_ADASUM, &error) == PL_UNSUPPORTED, "rows");
    expect_ok(pl_allreduce(self->world, a, b, 0, PL_FLOAT32, PL_ADASUM, &error));
}

UNIT_TEST(what_is_no_adasum_is_refused, ck_assert_bodies(2, refused_body, NULL))

static void three_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    float value = 1;

    expect(pl_allreduce(self->world, &value, &value, 1, PL_FLOAT32, PL_ADASUM, &error) == PL_UNSUPPORTED, "3 ranks");
    expect(strstr(error.cause, "a power of two, not 3"), "%s", error.cause);
    expect_ok(pl_allreduce(self->world, &value, &value, 1, PL_FLOAT32, PL_SUM, &error));
}

UNIT_TEST(ranks_are_a_power_of_two, ck_assert_bodies(3, three_body, NULL))

/* A sum on one rank, an adasum on the other; then different factors. */
static void differ_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    float *vector = calloc(MOST_ELEMS, sizeof(float));
    bool first = self->rank == 0;
    struct pl_collective collective = {.kind = PL_ALLREDUCE,
                                       .dtype = PL_FLOAT32,
                                       .op = first || self->data ? PL_ADASUM : PL_SUM,
                                       .count = MOST_ELEMS,
                                       .send = vector,
                                       .recv = vector,
                                       .scaled = true,
                                       .prescale = first ? 1 : 2,
                                       .postscale = 1};

    expect(pl_collective_run(self->world, &collective, &error) == PL_MISMATCH, "%s", error.cause);
    expect(strstr(error.cause, "rank 0 calls allreduce of 70001 float32, adasum"), "%s", error.cause);
    expect(strstr(error.cause, self->data ? "factors" : "rank 1 calls allreduce of 70001 float32, sum"), "%s",
           error.cause);
    free(vector);
}

TEST(ranks_that_call_differently_are_named)
{
    ck_assert_bodies(2, differ_body, NULL);
    ck_assert_bodies(2, differ_body, &(int){1});
}

/* Rank 1 cancels a chain that rank 0 has not begun: all requests in the queues of both ranks are released. */
static void cancelled_body(struct rank *self)
{
    atomic_bool *cancelled = self->data;
    struct pl_error error = PL_ERROR_NONE;
    float *vectors = calloc(2 * MOST_ELEMS, sizeof(float));
    struct pl_request *requests[2] = {NULL};

    while (self->rank == 0 && !atomic_load(cancelled)) {
        sched_yield();
    }
    for (int i = 0; i < 2; i++) {
        struct pl_collective collective = {.kind = PL_ALLREDUCE,
                                           .dtype = PL_FLOAT32,
                                           .op = PL_ADASUM,
                                           .count = MOST_ELEMS,
                                           .send = vectors + (size_t)i * MOST_ELEMS,
                                           .recv = vectors + (size_t)i * MOST_ELEMS};
        enum pl_status status = pl_collective_post(self->world, &collective, &requests[i], &error);

        expect(status == PL_OK || self->rank == 0, "%s", error.cause);
    }
    if (self->rank == 1) {
        pl_request_cancel(requests[0]);
        requests[0] = NULL;
        atomic_store(cancelled, true);
    }
    for (int i = 0; i < 2; i++) {
        expect(!requests[i] || pl_request_wait(requests[i], &error) != PL_OK, "request %d succeeded", i);
    }
    if (!pl_world_has_leaked(self->world)) {
        free(vectors);
    }
}

TEST(a_cancelled_chain_is_released)
{
    atomic_bool cancelled = false;

    ck_assert_bodies(2, cancelled_body, &cancelled);
}

UNIT_MAIN("collectives/calls/adasum")
