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

/** The scale factors of one tensor. Keep it from before the submission until after the end. Zero-initialise. */
struct pl_factors {
    void *scaled;   /* scaled copy of the input, which is sent instead; NULL if there is none, or if it is in `recv` */
    bool has_after; /* the postscale is still to be applied, and the three fields below are set */
    void *recv;     /* result of an ALLREDUCE; NULL: the result is new memory */
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
