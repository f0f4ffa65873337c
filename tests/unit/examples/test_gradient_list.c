/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/synthetic/gradient_list.c. */
#include "examples/synthetic/gradient_list.h"

#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static enum pl_status read_text(const char *text, struct gradient_list *ret_list, struct pl_error *reterr)
{
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    enum pl_status status;

    scratch_write(&scratch, "list.json", text, strlen(text));
    status = gradient_list_read(scratch_path(&scratch, "list.json", path), ret_list, reterr);
    scratch_done(&scratch);
    return status;
}

START_TEST(a_list_is_read_in_its_order)
{
    struct pl_error error = PL_ERROR_NONE;
    struct gradient_list list;

    ck_assert_ok(
        read_text("{\"model\": \"m\", \"source\": 1, \"tensors\": [{\"name\": \"a\", \"count\": 3, \"shape\": [3]},\n"
                  "{\"count\": 5000000000, \"name\": \"b\"}]}",
                  &list, &error),
        &error);
    ck_assert_str_eq(list.name, "m");
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.names[0], "a");
    ck_assert_str_eq(list.names[1], "b");
    ck_assert_uint_eq(list.counts[0], 3);
    ck_assert_uint_eq(list.counts[1], UINT64_C(5000000000));
    ck_assert_uint_eq(list.elems, UINT64_C(5000000003));
    gradient_list_done(&list);
}
END_TEST

START_TEST(the_list_that_comes_along_is_the_digit_classifier)
{
    struct pl_error error = PL_ERROR_NONE;
    struct gradient_list list;

    ck_assert_ok(gradient_list_default(&list, &error), &error);
    ck_assert_uint_eq(list.count, 8);
    ck_assert_uint_eq(list.elems, 1199882); /* as tests/integration/mnist.py counts them in model.safetensors */
    gradient_list_done(&list);
}
END_TEST

static void refused(const char *json, const char *text)
{
    struct pl_error error = PL_ERROR_NONE;
    struct gradient_list list;

    ck_assert_int_eq(read_text(json, &list, &error), PL_INVALID);
    ck_assert_msg(strstr(error.cause, text) != NULL, "'%s' is not in: %s", text, error.cause);
}

START_TEST(what_is_no_list_is_refused_with_its_path)
{
    refused("{\"model\": \"m\"}", "list.json: tensors: expected a list, found nothing");
    refused("{\"model\": \"m\", \"tensors\": []}", "list.json: tensors[0]: expected a tensor, found nothing");
    refused("{\"model\": 7, \"tensors\": [1]}", "list.json: model: expected a string, found the number 7");
    refused("{\"tensors\": [1]}", "list.json: model: expected a string, found nothing");
    refused("[1]", "list.json: expected an object, found a list");
    refused("{\"model\": \"m\", \"tensors\": {\"a\": 1}}", "list.json: tensors: expected a list, found an object");
    refused("{\"model\": \"m\", \"tensors\": [1]}", "list.json: tensors[0]: expected an object, found the number 1");
    refused("{\"model\": \"m\",\n\"tensors\": [\n{\"name\": \"a\"}]}",
            "list.json: tensors[0].count: expected a whole number from 1 to 1099511627776, found nothing");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": 1, \"count\": 2}]}",
            "list.json: tensors[0].name: expected a string, found the number 1");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": \"a\", \"count\": 1},\n{\"name\": \"b\", \"count\": 0}]}",
            "list.json: tensors[1].count: expected a whole number from 1 to 1099511627776, found the number 0");
    refused("{\"model\": \"m\", \"tensors\": [\n{\"name\": \"a\", \"count\": -4}]}", "found the number -4");
    refused("{\"model\": \"m\", \"tensors\": [\n{\"name\": \"a\", \"count\": 1.5}]}", "found the number 1.5");
    refused("{\"model\": \"m\", \"tensors\": [\n{\"name\": \"a\", \"count\": 007}]}",
            "list.json:2:24: expected a number, found '007'");
    refused("{\"model\": \"m\", \"model\": \"n\"}", "list.json: model: expected each name once, found it twice");
}
END_TEST

UNIT_MAIN("examples/gradient_list", a_list_is_read_in_its_order, the_list_that_comes_along_is_the_digit_classifier,
          what_is_no_list_is_refused_with_its_path)
