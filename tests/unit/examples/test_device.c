/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/nn/device.c. */
#include "examples/nn/device.h"

#include "tests/support/unit.h"

static const char *knob_of(const char *device)
{
    const char *knob;

    ck_ok(nn_device_parse, device, &knob);
    return knob;
}

TEST(words_for_a_device_are_the_runtimes_setting)
{
    const char *knob;

    ck_assert_ptr_null(knob_of("auto"));
    ck_assert_str_eq(knob_of("cpu"), "off");
    ck_assert_str_eq(knob_of("cuda"), "on");
    ck_assert_str_eq(knob_of("cuda:12"), "cuda:12");
    ck_fails_as(PL_INVALID, "--device is 'gpu', expected auto, cpu, cuda or cuda:N", nn_device_parse, "gpu", &knob);
    ck_fails(PL_INVALID, "", nn_device_parse, "", &knob);
}

TEST(words_for_a_precision_are_three)
{
    enum nn_precision precision;

    ck_ok(nn_precision_parse, "float32", &precision);
    ck_assert_int_eq(precision, NN_FLOAT32);
    ck_ok(nn_precision_parse, "tf32", &precision);
    ck_assert_int_eq(precision, NN_TF32);
    ck_ok(nn_precision_parse, "bf16", &precision);
    ck_assert_int_eq(precision, NN_BFLOAT16);
    ck_fails_as(PL_INVALID, "--precision is 'fp16', expected float32, tf32 or bf16", nn_precision_parse, "fp16",
                &precision);
}

UNIT_MAIN("examples/device")
