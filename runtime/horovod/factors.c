/* SPDX-License-Identifier: Apache-2.0 */
/* Horovod's scale factors for elements of 16 bits: each factor is a separate pass with its own rounding. */
#include "runtime/horovod/factors.h"

#include "base/memory.h"
#include "collectives/reduce/kernel.h"

#include <stdlib.h>

/* Multiplies by a reduction with one source: the sum of one source is that source. */
static void multiply(enum pl_dtype dtype, double factor, void *dest, const void *source, size_t count_elems)
{
    const struct pl_reduction reduction = {
        .dtype = dtype, .op = PL_SUM, .divisor = 1, .prescale = factor, .postscale = 1};

    pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, &source, 1, count_elems);
}

enum pl_status pl_factors_before(struct pl_factors *factors, struct pl_named_op *op, struct pl_error *reterr)
{
    void *recv = op->kind == PL_ALLREDUCE ? op->recv : NULL;
    size_t count_elems = 1;

    if (!op->scaled || op->op == PL_ADASUM || (op->dtype != PL_FLOAT16 && op->dtype != PL_BFLOAT16)) {
        return PL_OK;
    }
    for (unsigned i = 0; i < op->dims; i++) {
        if (__builtin_mul_overflow(count_elems, op->shape[i], &count_elems)) {
            return pl_error_set(reterr, PL_INVALID, "a tensor has more elements than 64 bits can count");
        }
    }
    if (op->prescale != 1) {
        void *dest = recv;

        if (!dest || dest == op->send) { /* an operation in place must not change the input, in case it fails */
            factors->scaled = pl_memory_new(count_elems ? count_elems : 1, pl_dtype_bytes(op->dtype), reterr);
            if (!factors->scaled) {
                return PL_MEMORY;
            }
            dest = factors->scaled;
        }
        multiply(op->dtype, op->prescale, dest, op->send, count_elems);
        op->send = dest;
    }
    op->is_scaled_by_caller = true;
    factors->has_after = op->postscale != 1;
    factors->recv = recv;
    factors->count_elems = count_elems;
    factors->dtype = op->dtype;
    factors->postscale = op->postscale;
    return PL_OK;
}

void pl_factors_after(const struct pl_factors *factors, const struct pl_named_result *result)
{
    if (factors->has_after && factors->recv) {
        multiply(factors->dtype, factors->postscale, factors->recv, factors->recv, factors->count_elems);
    } else if (factors->has_after) {
        multiply(factors->dtype, factors->postscale, result->data, result->data,
                 result->bytes / pl_dtype_bytes(factors->dtype));
    }
}

void pl_factors_done(struct pl_factors *factors)
{
    free(factors->scaled);
    factors->scaled = NULL;
}
