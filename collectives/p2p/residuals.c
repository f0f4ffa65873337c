/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float32 sums that are sent in fewer bytes (reduce/compress.h). In a ring each rank narrows every block once: its own
 * block when it is finished, all others as partial sums. The rounding error is kept, and added to the rank's input when
 * a collective of the same name and length comes again.
 */
#include "base/memory.h"
#include "collectives/p2p/state.h"
#include "collectives/reduce/compress.h"

#include <stdlib.h>

struct pl_residual {
    struct pl_residual *next;
    uint64_t name_hash;
    uint64_t count;
    float residual[];
};

enum pl_status pl_residuals_find(struct pl_p2p *p2p, struct pl_error *reterr)
{
    const struct pl_collective *c = &p2p->request->collective;
    uint64_t hash = p2p->request->signature.name_hash;
    struct pl_residual *residual = p2p->residuals;

    p2p->residual = NULL;
    if (!hash) {
        return PL_OK; /* without a name there is no next call to add the error to */
    }
    while (residual && (residual->name_hash != hash || residual->count != c->count)) {
        residual = residual->next;
    }
    if (!residual) {
        PL_TRY(pl_memory_alloc(&residual, 1, sizeof(*residual) + c->count * sizeof(float), reterr));
        residual->name_hash = hash;
        residual->count = c->count;
        residual->next = p2p->residuals;
        p2p->residuals = residual;
    }
    p2p->residual = residual->residual;
    return PL_OK;
}

void pl_residuals_done(struct pl_p2p *p2p)
{
    while (p2p->residuals) {
        struct pl_residual *residual = p2p->residuals;

        p2p->residuals = residual->next;
        free(residual);
    }
}

void pl_residuals_add(const struct pl_p2p *p2p, float *data, uint64_t at, uint64_t count)
{
    if (!p2p->residual) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        data[i] += p2p->residual[at + i];
    }
}

void pl_residuals_pack(const struct pl_p2p *p2p, void *packed, float *data, uint64_t at, uint64_t count, bool finished)
{
    float *residual = p2p->residual ? p2p->residual + at : NULL;

    pl_compress_pack(p2p->kernel, p2p->wire, packed, data, residual, PL_COMPRESS_REPLACE, count);
    if (finished) {
        pl_compress_unpack(p2p->kernel, p2p->wire, data, packed, false, count); /* the bits that all others get */
    }
}
