/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/device_none.c. */
#include "device/device_private.h"
#include "device/kernel.h"
#include "tests/support/unit.h"

START_TEST(a_build_without_cuda_says_so_in_one_sentence)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device *device = NULL;
    int count = -1;

    ck_assert_int_eq(pl_device_count(&count, &error), PL_UNSUPPORTED);
    ck_assert_str_eq(error.cause, "no GPU is used: this program was built without CUDA");
    ck_assert_int_eq(count, -1);
    ck_assert_int_eq(pl_device_open(0, &device, &error), PL_UNSUPPORTED);
    ck_assert_ptr_null(device);
}
END_TEST

UNIT_MAIN("device/device_none", a_build_without_cuda_says_so_in_one_sentence)
