/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The factors before and after a reduction of float16 or bfloat16, as Horovod applies them: each is a pass of its own,
 * whose result is rounded to the tensor's type. The library would round once, after both. Other types, and Adasum, are
 * left to it.
 *
 * Threads  any; of one tensor one at a time.
 * Test     tests/unit/runtime/horovod/test_factors.c
 */
#ifndef PL_RUNTIME_HOROVOD_FACTORS_H
#define PL_RUNTIME_HOROVOD_FACTORS_H

#include "runtime/named.h"

/** Of one tensor, from before its submission until after its end. Zero-initialise. */
struct pl_factors {
    void *scaled;   /* what is sent in place of the input, where that is not in `recv`; NULL: nothing is */
    bool has_after; /* the three below, and the postscale is still to be applied */
    void *recv;     /* of an ALLREDUCE; NULL: the result is new memory */
    size_t count_elems;
    enum pl_dtype dtype;
    double postscale;
};

/**
 * Before `op` is submitted: multiply its input, which stays as it is, into memory that `op` sends from then on (an
 * ALLREDUCE's `recv`, where that is not the input). Without factors, nothing.
 */
enum pl_status pl_factors_before(struct pl_factors *factors, struct pl_named_op *op,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** After it has ended well: multiply its result. */
void pl_factors_after(const struct pl_factors *factors, const struct pl_named_result *result);

/** Release; after the operation has ended, or was not submitted. */
void pl_factors_done(struct pl_factors *factors);

#endif
