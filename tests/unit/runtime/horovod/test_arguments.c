/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/horovod/arguments.c. */
/* Horovod's arguments of an operation: numbers, dimensions, roots, splits, names. */
#include "runtime/horovod/arguments.h"

#include "runtime/horovod/horovod.h"
#include "tests/support/expect.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

START_TEST(horovods_numbers_are_operations)
{
    static const enum pl_op expected[] = {PL_AVERAGE, PL_SUM, PL_ADASUM, PL_MIN, PL_MAX, PL_PRODUCT, PL_OP_COUNT};
    struct pl_named_op op = {0};

    for (int number = 0; number <= HOROVOD_PRODUCT + 1; number++) {
        pl_arguments_reduce(&op, number, 1, 1);
        ck_assert_int_eq(op.op, expected[number]);
        ck_assert(!op.scaled);
    }
    pl_arguments_reduce(&op, -1, 1, 0.5);
    ck_assert(op.op == PL_OP_COUNT && op.scaled && op.prescale == 1 && op.postscale == 0.5);
}
END_TEST

START_TEST(received_rows_are_told_where_they_fit)
{
    const uint64_t rows[] = {3, INT32_MAX, UINT64_C(1) << 31};
    struct pl_error error = PL_ERROR_NONE;
    int32_t narrow[3] = {-1, -1, -1};
    int64_t wide[3];

    ck_assert_ok(pl_arguments_received(rows, 2, sizeof(int32_t), narrow, &error), &error);
    ck_assert(narrow[0] == 3 && narrow[1] == INT32_MAX && narrow[2] == -1);
    ck_assert_ok(pl_arguments_received(rows, 3, sizeof(int64_t), wide, &error), &error);
    ck_assert(wide[0] == 3 && wide[2] == INT64_C(1) << 31);
    ck_assert_int_eq(pl_arguments_received(rows, 3, sizeof(int32_t), narrow, &error), PL_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.cause, "2147483648 rows came from rank 2 of the process set"));
}
END_TEST

START_TEST(more_dimensions_than_there_is_room_for_become_one)
{
    struct pl_named_op op = {0};

    for (uint64_t i = 1; i <= PL_NAMED_MAX_DIMS + 2; i++) {
        pl_arguments_dimension(&op, i);
    }
    ck_assert_uint_eq(op.dims, PL_NAMED_MAX_DIMS);
    ck_assert_uint_eq(op.shape[0], 1);
    ck_assert_uint_eq(op.shape[PL_NAMED_MAX_DIMS - 1], 8 * 9 * 10);
}
END_TEST

START_TEST(splits_are_one_number_a_rank)
{
    const int32_t narrow[] = {3, 0, 5};
    const int64_t wide[] = {4, 0, -1};
    struct pl_error error = PL_ERROR_NONE;
    uint64_t *rows = NULL;

    ck_assert_ok(pl_arguments_splits(narrow, sizeof(int32_t), 3, 0, 3, &rows, &error), &error);
    ck_assert(rows[0] == 3 && rows[1] == 0 && rows[2] == 5);
    free(rows);
    ck_assert_ok(pl_arguments_splits(wide, sizeof(int64_t), 2, 0, 2, &rows, &error), &error);
    ck_assert(rows[0] == 4 && rows[1] == 0);
    free(rows);
    ck_assert_ok(pl_arguments_splits(NULL, sizeof(int32_t), 0, 0, 3, &rows, &error), &error);
    ck_assert_ptr_null(rows);
    ck_assert_int_eq(pl_arguments_splits(wide, sizeof(int64_t), 3, 0, 3, &rows, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "splits[2] is negative: -1");
    ck_assert_int_eq(pl_arguments_splits(narrow, sizeof(int32_t), 3, 7, 2, &rows, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "expected one split for each of the ranks of process set 7, which has 2, found 3");
    ck_assert_ptr_null(rows);
}
END_TEST

START_TEST(long_names_keep_their_end_and_differ_by_their_start)
{
    char first[PL_NAMED_MAX_NAME_BYTES], second[PL_NAMED_MAX_NAME_BYTES], text[400];

    ck_assert_str_eq(pl_arguments_name("allreduce", "a/b more", 3, first), "allreduce.a/b");
    ck_assert_str_eq(pl_arguments_name(NULL, "a", 1, first), "a");
    memset(text, 'x', sizeof(text));
    memcpy(text + sizeof(text) - 3, "end", 3);
    pl_arguments_name(NULL, text, sizeof(text), first);
    text[0] = 'y';
    pl_arguments_name(NULL, text, sizeof(text), second);
    ck_assert_str_ne(first, second);
    ck_assert_str_eq(first + strlen(first) - 4, "xend");
    ck_assert_str_eq(first + 16, second + 16); /* after the hash */
    /* The name of a group's member begins with the group's name. */
    ck_assert_uint_lt(strlen(first) + strlen(".123456789of123456789"), PL_NAMED_MAX_NAME_BYTES);
    pl_arguments_name("grouped_reducescatter", text, sizeof(text), second);
    ck_assert_uint_eq(strlen(first), strlen(second));
    ck_assert_int_eq(strncmp(second, "grouped_reducescatter.", 22), 0);
}
END_TEST

static void roots_body(struct rank *self)
{
    const int members[] = {2, 0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = NULL;
    int set = -1, root = -1;

    expect_ok(pl_service_new(self->world, NULL, &service, &error));
    expect_ok(pl_service_add_set(service, members, 2, &set, &error));
    expect_ok(pl_arguments_root(service, 0, 1, &root, &error));
    expect(root == 1, "%d", root);
    expect_ok(pl_arguments_root(service, set, 0, &root, &error));
    expect(root == 1, "%d", root);
    expect_ok(pl_arguments_root(service, set, 2, &root, &error));
    expect(root == 0, "%d", root);
    expect(pl_arguments_root(service, set, 1, &root, &error) == PL_INVALID, "%s", error.cause);
    expect(strstr(error.cause, "root rank 1 is not in process set 1"), "%s", error.cause);
    expect(pl_arguments_root(service, 9, 0, &root, &error) == PL_INVALID, "%s", error.cause);
    expect_ok(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

START_TEST(a_roots_place_in_its_set_is_found)
{
    ck_assert_bodies(3, roots_body, NULL);
}
END_TEST

UNIT_MAIN("runtime/horovod/arguments", horovods_numbers_are_operations,
          more_dimensions_than_there_is_room_for_become_one, received_rows_are_told_where_they_fit,
          splits_are_one_number_a_rank, long_names_keep_their_end_and_differ_by_their_start,
          a_roots_place_in_its_set_is_found)
