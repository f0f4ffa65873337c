/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/dtype.c. */
#include "base/dtype.h"

#include "tests/support/unit.h"

TEST(every_type_is_found_by_its_text)
{
    for (unsigned i = 0; i < PL_DTYPE_COUNT; i++) {
        enum pl_dtype found = PL_DTYPE_COUNT;

        ck_assert(pl_dtype_find(pl_dtype_text((enum pl_dtype)i), &found));
        ck_assert_uint_eq(found, i);
        ck_assert_uint_gt(pl_dtype_bytes(found), 0);
    }
    ck_assert_uint_eq(pl_dtype_bytes(PL_DTYPE_COUNT), 0);
}

UNIT_MAIN("base/dtype")
