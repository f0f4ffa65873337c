/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/horovod/factors.c. */
/* Factors of 16-bit elements are rounded one by one, on three ranks, which have equal tensors. */
#include "runtime/horovod/factors.h"

#include "base/half.h"
#include "runtime/service.h"
#include "tests/support/expect.h"
#include "tests/support/unit.h"

#include <string.h>

enum { RANKS = 3, ROWS = 16, ELEMS = RANKS * ROWS };

static const double PRE = 0.3, POST = 0.7;

static float widen(enum pl_dtype dtype, uint16_t bits)
{
    return dtype == PL_FLOAT16 ? pl_half_float16_to_float(bits) : pl_half_bfloat16_to_float(bits);
}

static uint16_t narrow(enum pl_dtype dtype, float value)
{
    return dtype == PL_FLOAT16 ? pl_half_float16_from_float(value) : pl_half_bfloat16_from_float(value);
}

/* Returns the input of element `at`, Horovod's result for it, or the result with one rounding. */
static uint16_t input(enum pl_dtype dtype, int at)
{
    return narrow(dtype, (float)(at * 37 % 100 - 50) / 7);
}

static uint16_t expected(enum pl_dtype dtype, int at)
{
    float before = widen(dtype, narrow(dtype, widen(dtype, input(dtype, at)) * (float)PRE));
    float sum = widen(dtype, narrow(dtype, before + before + before));

    return narrow(dtype, sum * (float)POST);
}

static uint16_t rounded_once(enum pl_dtype dtype, int at)
{
    float before = widen(dtype, input(dtype, at)) * (float)PRE;

    return narrow(dtype, (before + before + before) * (float)POST);
}

static struct pl_named_op scaled_sum(enum pl_kind kind, enum pl_dtype dtype, const void *send, void *recv)
{
    return (struct pl_named_op){.kind = kind,
                                .dtype = dtype,
                                .op = PL_SUM,
                                .scaled = true,
                                .prescale = PRE,
                                .postscale = POST,
                                .dims = 1,
                                .shape = {ELEMS},
                                .send = send,
                                .recv = recv};
}

/* Checks that the `count` elements at `got` are the expected ones, from element `first` on. */
static void check(struct rank *self, const char *what, enum pl_dtype dtype, const void *got, int first, int count)
{
    const uint16_t *elems = got;

    for (int i = 0; i < count; i++) {
        expect(elems[i] == expected(dtype, first + i), "%s of %s: element %d is %g, not %g", what, pl_dtype_text(dtype),
               first + i, (double)widen(dtype, elems[i]), (double)widen(dtype, expected(dtype, first + i)));
    }
}

/* Out of place, in place and scattered, as one group. */
static void group_body(struct rank *self)
{
    for (int turn = 0; turn < 2; turn++) {
        enum pl_dtype dtype = turn == 0 ? PL_FLOAT16 : PL_BFLOAT16;
        struct pl_error error = PL_ERROR_NONE;
        struct pl_service *service = NULL;
        struct pl_named_result results[3] = {0};
        struct pl_completion completion = {.results = results};
        struct pl_factors factors[3] = {0};
        uint16_t send[ELEMS], recv[ELEMS], in_place[ELEMS];
        struct pl_named_op ops[] = {scaled_sum(PL_ALLREDUCE, dtype, send, recv),
                                    scaled_sum(PL_ALLREDUCE, dtype, in_place, in_place),
                                    scaled_sum(PL_REDUCE_SCATTER, dtype, send, NULL)};

        for (int i = 0; i < ELEMS; i++) {
            send[i] = input(dtype, i);
        }
        memcpy(in_place, send, sizeof(send));
        expect_ok(pl_service_new(self->world, NULL, &service, &error));
        for (int i = 0; i < 3; i++) {
            expect_ok(pl_factors_before(&factors[i], &ops[i], &error));
        }
        expect_ok(pl_service_submit_group(service, 0, "group", ops, 3, &completion, &error));
        expect_ok(pl_service_wait(service, &completion, &error));
        for (int i = 0; i < 3; i++) {
            pl_factors_after(&factors[i], &results[i]);
        }
        check(self, "an allreduce", dtype, recv, 0, ELEMS);
        check(self, "an allreduce in place", dtype, in_place, 0, ELEMS);
        check(self, "a reduce_scatter", dtype, results[2].data, self->rank * ROWS, ROWS);
        for (int i = 0; i < ELEMS; i++) {
            expect(send[i] == input(dtype, i), "element %d of the input has changed", i);
        }
        for (int i = 0; i < 3; i++) {
            pl_factors_done(&factors[i]);
            pl_named_result_done(&results[i]);
        }
        expect_ok(pl_service_shutdown(service, &error));
        pl_service_free(service);
    }
}

START_TEST(each_factor_is_rounded_on_its_own)
{
    int other = 0;

    for (int i = 0; i < ELEMS; i++) {
        other += expected(PL_FLOAT16, i) != rounded_once(PL_FLOAT16, i);
    }
    ck_assert_int_gt(other, 0); /* otherwise the test would show nothing */
    ck_assert_bodies(RANKS, group_body, NULL);
}
END_TEST

static void disagreement_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    struct pl_completion completion = {0};
    struct pl_factors factors = {0};
    uint16_t data[ELEMS] = {0};
    struct pl_named_op op = scaled_sum(PL_ALLREDUCE, PL_FLOAT16, data, data);

    data[0] = input(PL_FLOAT16, 0);
    op.postscale = self->rank == 1 ? 0.5 : POST;
    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    expect_ok(pl_factors_before(&factors, &op, &error));
    expect_ok(pl_service_submit(service, 0, &op, &completion, &error));
    expect(pl_service_wait(service, &completion, &error) == PL_MISMATCH, "%s", error.cause);
    expect(strstr(error.cause, "postscale 0.5"), "%s", error.cause);
    expect(data[0] == input(PL_FLOAT16, 0), "the input has changed");
    pl_factors_done(&factors);
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

START_TEST(ranks_that_disagree_about_a_factor_are_told_and_keep_their_input)
{
    ck_assert_bodies(RANKS, disagreement_body, NULL);
}
END_TEST

START_TEST(other_types_no_factors_and_adasum_are_left_to_the_library)
{
    struct pl_error error = PL_ERROR_NONE;
    uint16_t data[ELEMS] = {0};

    for (int turn = 0; turn < 3; turn++) {
        struct pl_named_op op = scaled_sum(PL_ALLREDUCE, turn == 0 ? PL_INT16 : PL_FLOAT16, data, data);
        struct pl_factors factors = {0};

        op.scaled = turn != 1;
        op.op = turn == 2 ? PL_ADASUM : PL_SUM;
        ck_assert_ok(pl_factors_before(&factors, &op, &error), &error);
        ck_assert(op.send == data && !op.is_scaled_by_caller && !factors.scaled && !factors.has_after);
    }
}
END_TEST

UNIT_MAIN("runtime/horovod/factors", each_factor_is_rounded_on_its_own,
          ranks_that_disagree_about_a_factor_are_told_and_keep_their_input,
          other_types_no_factors_and_adasum_are_left_to_the_library)
