/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/synthetic/gradient_list.c. */
#include "examples/synthetic/gradient_list.h"

#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static enum pl_status read_text(const char *text, struct gradient_list *ret_list, struct pl_error *reterr)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    enum pl_status status;

    scratch_write(&scratch, "list.json", text, strlen(text));
    status = gradient_list_read(scratch_path(&scratch, "list.json", path), ret_list, reterr);
    return status;
}

TEST(a_list_is_read_in_its_order)
{
    struct gradient_list list;

    ck_ok(read_text,
          "{\"model\": \"m\", \"source\": 1, \"tensors\": [{\"name\": \"a\", \"count\": 3, \"shape\": [3]},\n"
          "{\"count\": 5000000000, \"name\": \"b\"}]}",
          &list);
    ck_assert_str_eq(list.name, "m");
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.names[0], "a");
    ck_assert_str_eq(list.names[1], "b");
    ck_assert_uint_eq(list.counts[0], 3);
    ck_assert_uint_eq(list.counts[1], UINT64_C(5000000000));
    ck_assert_uint_eq(list.elems, UINT64_C(5000000003));
    gradient_list_done(&list);
}

TEST(the_list_that_comes_along_is_the_digit_classifier)
{
    struct gradient_list list;

    ck_ok(gradient_list_default, &list);
    ck_assert_uint_eq(list.count, 8);
    ck_assert_uint_eq(list.elems, 1199882); /* as tests/integration/mnist.py counts them in model.safetensors */
    gradient_list_done(&list);
}

static void refused(const char *json, const char *text)
{
    struct gradient_list list;

    ck_fails(PL_INVALID, text, read_text, json, &list);
}

TEST(what_is_no_list_is_refused_with_its_path)
{
    refused("{\"model\": \"m\"}", "list.json: expected a list of tensors");
    refused("{\"model\": \"m\", \"tensors\": []}", "list.json: expected a list of tensors");
    refused("{\"model\": \"m\", \"tensors\": {\"a\": 1}}", "list.json: expected a list of tensors");
    refused("{\"model\": 7, \"tensors\": [1]}", "list.json: expected {\"model\": NAME");
    refused("{\"model\": \"a\\\"b\", \"tensors\": [1]}", "without quotes");
    refused("[1]", "list.json: expected {\"model\": NAME");
    refused("{\"model\": \"m\"", "list.json: expected JSON");
    refused("{\"model\": \"m\", \"tensors\": [1]}", "list.json: tensors[0]: expected a name and a count");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": \"a\"}]}", "tensors[0]: expected a name and a count");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": 1, \"count\": 2}]}", "tensors[0]");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": \"a\", \"count\": 1}, {\"name\": \"b\", \"count\": 0}]}",
            "tensors[1]: expected a name and a count from 1 to 1099511627776");
    refused("{\"model\": \"m\", \"tensors\": [{\"name\": \"a\", \"count\": 1.5}]}", "tensors[0]");
}

UNIT_MAIN("examples/gradient_list")
