/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/nn/device.h"

#include "tests/support/unit.h"

#include <string.h>

static struct nn_device_wish parsed(const char *device, const char *precision)
{
    struct pl_error error = PL_ERROR_NONE;
    struct nn_device_wish wish;

    ck_assert_ok(nn_device_parse(device, precision, &wish, &error), &error);
    return wish;
}

START_TEST(words_name_a_device_and_a_precision)
{
    ck_assert_int_eq(parsed("auto", "float32").kind, NN_DEVICE_AUTO);
    ck_assert_int_eq(parsed("cpu", "float32").kind, NN_DEVICE_CPU);
    ck_assert_int_eq(parsed("cuda", "tf32").kind, NN_DEVICE_CUDA);
    ck_assert_int_eq(parsed("cuda", "tf32").ordinal, -1);
    ck_assert_int_eq(parsed("cuda", "tf32").precision, NN_TF32);
    ck_assert_int_eq(parsed("cuda:0", "bf16").ordinal, 0);
    ck_assert_int_eq(parsed("cuda:12", "bf16").ordinal, 12);
    ck_assert_int_eq(parsed("cuda:0", "bf16").precision, NN_BFLOAT16);
}
END_TEST

static void refused(const char *device, const char *precision, const char *text)
{
    struct pl_error error = PL_ERROR_NONE;
    struct nn_device_wish wish;

    ck_assert_int_eq(nn_device_parse(device, precision, &wish, &error), PL_INVALID);
    ck_assert_msg(strstr(error.cause, text) != NULL, "'%s' is not in: %s", text, error.cause);
}

START_TEST(other_words_are_refused_with_what_was_expected)
{
    refused("gpu", "float32", "--device is 'gpu', expected auto, cpu, cuda or cuda:N");
    refused("cuda:", "float32", "--device is 'cuda:'");
    refused("cuda:-1", "float32", "--device is 'cuda:-1'");
    refused("cuda:1x", "float32", "--device is 'cuda:1x'");
    refused("cuda:99999999999", "float32", "--device is 'cuda:99999999999'");
    refused("", "float32", "--device is ''");
    refused("cpu", "fp16", "--precision is 'fp16', expected float32, tf32 or bf16");
}
END_TEST

UNIT_MAIN("examples/device", words_name_a_device_and_a_precision, other_words_are_refused_with_what_was_expected)
