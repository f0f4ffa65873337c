/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which collectives need all inputs at once, and which may be sent as narrower numbers. */
#include "collectives/p2p/eligible.h"

#include "collectives/core/backend.h"

bool pl_p2p_needs_direct(const struct pl_collective *c)
{
    bool whole = !pl_dtype_is_float(c->dtype);

    /* An exact integer average, or a scaled integer, cannot be computed from partial results of the same type. */
    return pl_kind_reduces(c->kind) && ((c->flags & PL_REPRODUCIBLE) || (whole && (c->op == PL_AVERAGE || c->scaled)));
}

bool pl_p2p_is_compressed(const struct pl_collective *c)
{
    return (c->flags & (PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16)) && c->kind == PL_ALLREDUCE && c->dtype == PL_FLOAT32 &&
           (c->op == PL_SUM || c->op == PL_AVERAGE) && !pl_p2p_needs_direct(c);
}
