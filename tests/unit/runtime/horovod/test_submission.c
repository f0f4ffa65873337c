/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/horovod/submission.c. */
/* Horovod's arguments of an operation; and factors of 16-bit elements, which are rounded one by one. */
#include "runtime/horovod/submission.h"

#include "base/half.h"
#include "runtime/horovod/horovod.h"
#include "tests/support/expect.h"
#include "tests/support/unit.h"

#include <string.h>

TEST(horovods_numbers_are_operations)
{
    static const enum pl_op expected[] = {PL_AVERAGE, PL_SUM, PL_ADASUM, PL_MIN, PL_MAX, PL_PRODUCT, PL_OP_COUNT};
    struct pl_named_op op = {0};

    for (int number = 0; number <= HOROVOD_PRODUCT + 1; number++) {
        pl_submission_reduce(&op, number, 1, 1);
        ck_assert_int_eq(op.op, expected[number]);
        ck_assert(!op.scaled);
    }
    pl_submission_reduce(&op, -1, 1, 0.5);
    ck_assert(op.op == PL_OP_COUNT && op.scaled && op.prescale == 1 && op.postscale == 0.5);
}

TEST(received_rows_are_told_where_they_fit)
{
    uint64_t rows[] = {3, INT32_MAX, UINT64_C(1) << 31};
    struct pl_named_result result = {.rows_of_rank = rows};
    struct pl_submission submission = {.completion.ranks = 2, .results = &result};
    int32_t narrow_rows[3] = {-1, -1, -1};
    int64_t wide[3];

    ck_ok(pl_submission_received, &submission, sizeof(int32_t), narrow_rows);
    ck_assert(narrow_rows[0] == 3 && narrow_rows[1] == INT32_MAX && narrow_rows[2] == -1);
    submission.completion.ranks = 3;
    ck_ok(pl_submission_received, &submission, sizeof(int64_t), wide);
    ck_assert(wide[0] == 3 && wide[2] == INT64_C(1) << 31);
    ck_fails(PL_LIMIT, "2147483648 rows came from rank 2 of the process set", pl_submission_received, &submission,
             sizeof(int32_t), narrow_rows);
}

TEST(more_dimensions_than_there_is_room_for_become_one)
{
    struct pl_named_op op = {0};

    for (uint64_t i = 1; i <= PL_NAMED_MAX_DIMS + 2; i++) {
        pl_submission_dimension(&op, i);
    }
    ck_assert_uint_eq(op.dims, PL_NAMED_MAX_DIMS);
    ck_assert_uint_eq(op.shape[0], 1);
    ck_assert_uint_eq(op.shape[PL_NAMED_MAX_DIMS - 1], 8 * 9 * 10);
}

TEST(splits_are_one_number_a_rank)
{
    static const int32_t narrow_splits[] = {3, 0, 5};
    static const int64_t wide[] = {4, 0, -1};
    static const struct {
        const void *splits;
        size_t bytes;
        int count, ranks;
        uint64_t first; /* 0: none */
        const char *cause;
    } cases[] = {
        {narrow_splits, sizeof(int32_t), 3, 3, 3, ""},
        {wide, sizeof(int64_t), 2, 2, 4, ""},
        {NULL, sizeof(int32_t), 0, 3, 0, ""},
        {wide, sizeof(int64_t), 3, 3, 0, "splits[2] is negative: -1"},
        {wide, sizeof(int64_t), 3, 2, 0,
         "expected one split for each of the ranks of process set 7, which has 2, found 3"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct pl_named_op op = {.kind = PL_ALLTOALL};
        struct pl_error error = PL_ERROR_NONE;
        struct pl_submission *submission = pl_submission_new(&op, 1, &error);
        enum pl_status status;

        submission->completion.ranks = cases[i].ranks;
        status = pl_submission_split(submission, 7, cases[i].splits, cases[i].bytes, (uint64_t)cases[i].count, &error);
        ck_assert_int_eq(status, *cases[i].cause ? PL_INVALID : PL_OK);
        ck_assert_str_eq(error.cause, cases[i].cause);
        ck_assert(cases[i].first ? submission->ops[0].splits[0] == cases[i].first && submission->ops[0].splits[1] == 0
                                 : !submission->ops[0].splits);
        ck_assert(pl_submission_free(submission));
    }
}

TEST(long_names_keep_their_end_and_differ_by_their_start)
{
    char first[PL_NAMED_MAX_NAME_BYTES], second[PL_NAMED_MAX_NAME_BYTES], text[400];

    ck_assert_str_eq(pl_submission_name("allreduce", "a/b more", 3, first), "allreduce.a/b");
    ck_assert_str_eq(pl_submission_name(NULL, "a", 1, first), "a");
    memset(text, 'x', sizeof(text));
    memcpy(text + sizeof(text) - 3, "end", 3);
    pl_submission_name(NULL, text, sizeof(text), first);
    text[0] = 'y';
    pl_submission_name(NULL, text, sizeof(text), second);
    ck_assert_str_ne(first, second);
    ck_assert_str_eq(first + strlen(first) - 4, "xend");
    ck_assert_str_eq(first + 16, second + 16); /* after the hash */
    /* The name of a group's member begins with the group's name. */
    ck_assert_uint_lt(strlen(first) + strlen(".123456789of123456789"), PL_NAMED_MAX_NAME_BYTES);
    pl_submission_name("grouped_reducescatter", text, sizeof(text), second);
    ck_assert_uint_eq(strlen(first), strlen(second));
    ck_assert_int_eq(strncmp(second, "grouped_reducescatter.", 22), 0);
}

static void roots_body(struct rank *self)
{
    const int members[] = {2, 0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    int set = -1, root = -1;

    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    expect_ok(pl_service_add_set(service, members, 2, &set, &error));
    expect_ok(pl_submission_root(service, 0, 1, &root, &error));
    expect(root == 1, "%d", root);
    expect_ok(pl_submission_root(service, set, 0, &root, &error));
    expect(root == 1, "%d", root);
    expect_ok(pl_submission_root(service, set, 2, &root, &error));
    expect(root == 0, "%d", root);
    expect(pl_submission_root(service, set, 1, &root, &error) == PL_INVALID, "%s", error.cause);
    expect(strstr(error.cause, "root rank 1 is not in process set 1"), "%s", error.cause);
    expect(pl_submission_root(service, 9, 0, &root, &error) == PL_INVALID, "%s", error.cause);
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

UNIT_TEST(a_roots_place_in_its_set_is_found, ck_assert_bodies(3, roots_body, NULL))

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
        struct pl_submission *submission;
        uint16_t send[ELEMS], recv[ELEMS], in_place[ELEMS];
        struct pl_named_op ops[] = {scaled_sum(PL_ALLREDUCE, dtype, send, recv),
                                    scaled_sum(PL_ALLREDUCE, dtype, in_place, in_place),
                                    scaled_sum(PL_REDUCE_SCATTER, dtype, send, NULL)};

        for (int i = 0; i < ELEMS; i++) {
            in_place[i] = send[i] = input(dtype, i);
        }
        expect_ok(pl_service_new(self->world, NULL, &service, &error));
        submission = pl_submission_new(ops, 3, &error);
        memcpy(submission->ops, ops, sizeof(ops));
        expect_ok(pl_submission_start(submission, service, 0, "group", true, &error));
        expect_ok(pl_service_wait(service, &submission->completion, &error));
        pl_submission_finish(submission);
        check(self, "an allreduce", dtype, recv, 0, ELEMS);
        check(self, "an allreduce in place", dtype, in_place, 0, ELEMS);
        check(self, "a reduce_scatter", dtype, submission->results[2].data, self->rank * ROWS, ROWS);
        for (int i = 0; i < ELEMS; i++) {
            expect(send[i] == input(dtype, i), "element %d of the input has changed", i);
        }
        expect(pl_submission_free(submission), "a leak");
        expect_ok(pl_service_shutdown(service, &error));
        pl_service_free(service);
    }
}

TEST(each_factor_is_rounded_on_its_own)
{
    int other = 0;

    for (int i = 0; i < ELEMS; i++) {
        other += expected(PL_FLOAT16, i) != rounded_once(PL_FLOAT16, i);
    }
    ck_assert_int_gt(other, 0); /* otherwise the test would show nothing */
    ck_assert_bodies(RANKS, group_body, NULL);
}

static void disagreement_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    struct pl_submission *submission;
    uint16_t data[ELEMS] = {0};
    struct pl_named_op op = scaled_sum(PL_ALLREDUCE, PL_FLOAT16, data, data);

    data[0] = input(PL_FLOAT16, 0);
    op.postscale = self->rank == 1 ? 0.5 : POST;
    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    submission = pl_submission_new(&op, 1, &error);
    expect_ok(pl_submission_start(submission, service, 0, NULL, false, &error));
    expect(pl_service_wait(service, &submission->completion, &error) == PL_MISMATCH, "%s", error.cause);
    expect(strstr(error.cause, "postscale 0.5"), "%s", error.cause);
    expect(data[0] == input(PL_FLOAT16, 0), "the input has changed");
    expect(pl_submission_free(submission), "a leak");
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

UNIT_TEST(ranks_that_disagree_about_a_factor_are_told_and_keep_their_input,
          ck_assert_bodies(RANKS, disagreement_body, NULL))

static void left_body(struct rank *self)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    uint16_t data[ELEMS] = {0};

    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    for (int turn = 0; turn < 3; turn++) {
        struct pl_named_op op = scaled_sum(PL_ALLREDUCE, turn == 0 ? PL_INT16 : PL_FLOAT16, data, data);
        struct pl_submission *submission;

        op.scaled = turn != 1;
        op.op = turn == 2 ? PL_ADASUM : PL_SUM;
        submission = pl_submission_new(&op, 1, &error);
        expect_ok(pl_submission_start(submission, service, 0, NULL, false, &error));
        expect(submission->ops[0].send == data && !submission->ops[0].is_scaled_by_caller, "turn %d", turn);
        expect_ok(pl_service_wait(service, &submission->completion, &error));
        expect(pl_submission_free(submission), "a leak");
    }
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

TEST(other_types_no_factors_and_adasum_are_left_to_the_library)
{
    ck_assert_bodies(2, left_body, NULL); /* Adasum takes a power of two */
}

UNIT_MAIN("runtime/horovod/submission")
