/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/load_cuda.c. */
#include "device/device_private.h"
#include "tests/support/unit.h"

TEST(a_build_without_kernels_says_so_in_one_sentence)
{
    struct pl_device *device = NULL;
    char reason[PL_DEVICE_REASON_BYTES];
    int count = -1;

    ck_fails_as(PL_UNSUPPORTED, "no GPU is used: this program was built without CUDA", pl_device_count, &count);
    ck_assert_int_eq(count, -1);
    ck_fails(PL_UNSUPPORTED, "", pl_device_open, 0, &device);
    ck_assert_ptr_null(device);
    ck_assert(!pl_device_is_loadable(reason));
    ck_assert_str_eq(reason, "this program was built without CUDA");
}

UNIT_MAIN("device/no_kernels")
