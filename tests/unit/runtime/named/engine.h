/* SPDX-License-Identifier: Apache-2.0 */
/** The beginning of the tests of named tensors: an engine per rank, and the operation that most of them submit. */
#ifndef PL_TESTS_UNIT_RUNTIME_NAMED_ENGINE_H
#define PL_TESTS_UNIT_RUNTIME_NAMED_ENGINE_H

#include "tests/support/expect.h"
#include "tests/support/unit.h"
#include "tests/unit/runtime/named/blocking.h"

/** In a body of expect.h: `error`, and `named` on the rank's world. `options` may be NULL. */
#define ENGINE(options)                                                                                                \
    struct pl_error error = PL_ERROR_NONE;                                                                             \
    struct pl_named *named = NULL;                                                                                     \
    expect_ok(pl_named_new(self->world, (options), &named, &error))

/** Returns the sum of `data` [elems], in place. */
static inline struct pl_named_op sum_of(const char *name, float *data, uint64_t elems)
{
    return (struct pl_named_op){.name = name,
                                .kind = PL_ALLREDUCE,
                                .dtype = PL_FLOAT32,
                                .op = PL_SUM,
                                .dims = 1,
                                .shape = {elems},
                                .send = data,
                                .recv = data};
}

/** Runs `body` on one to four ranks. */
static inline void over_sizes(void (*body)(struct rank *rank))
{
    for (int size = 1; size <= 4; size++) {
        ck_assert_bodies(size, body, NULL);
    }
}

#endif
