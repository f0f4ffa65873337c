/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/tensorflow/tensorflow_api.c. */
/* The functions without TensorFlow; tests/integration/horovod_tensorflow.py tests them with it. */
#include "runtime/tensorflow/tensorflow_api.h"

#include "tests/support/unit.h"

#include <string.h>

TEST(a_process_without_tensorflow_is_told_so)
{
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_int_eq(pl_tensorflow_api_find(&error), PL_NOT_FOUND);
    ck_has(error.cause, "TF_NewStatus is neither in libtensorflow_framework.so.2");
    ck_assert_str_eq(pl_tensorflow_api_missing(), "TF_GetInputTensorFromVariable");
}

UNIT_MAIN("runtime/tensorflow/tensorflow_api")
