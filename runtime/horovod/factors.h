/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The scale factors before and after a reduction of float16 or bfloat16. Horovod applies each of them in a separate
 * pass and rounds the result to the tensor's type; the library would round only once, after both. The library handles
 * other types, and Adasum.
 *
 * Threads  any; one at a time for each tensor.
 * Test     tests/unit/runtime/horovod/test_factors.c
 */
#ifndef PL_RUNTIME_HOROVOD_FACTORS_H
#define PL_RUNTIME_HOROVOD_FACTORS_H

#include "runtime/named.h"

/** The scale factors of one tensor. Keep it from before the submission until after the end. Zero-initialise. */
struct pl_factors {
    void *scaled;   /* the postscale must still be applied, and the fields below are set */
    bool has_after; /* the postscale is still to be applied, and the three fields below are set */
    void *recv;     /* result of an ALLREDUCE; NULL if the result is new memory */
    size_t count_elems;
    enum pl_dtype dtype;
    double postscale;
};

/**
 * Call before `op` is submitted. Multiplies the input into memory that `op` then sends (the `recv` of an ALLREDUCE,
 * unless that is the input); the input itself does not change. Does nothing without factors.
 */
enum pl_status pl_factors_before(struct pl_factors *factors, struct pl_named_op *op,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Call after the operation has succeeded. Multiplies its result. */
void pl_factors_after(const struct pl_factors *factors, const struct pl_named_result *result);

/** Releases memory, after the operation has ended or was not submitted. */
void pl_factors_done(struct pl_factors *factors);

#endif
