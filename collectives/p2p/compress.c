/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float32 sums that are sent in 16 bits. In a ring each rank narrows every block once: all but its own as partial
 * sums under way, its own when it is finished. The rounding error is kept, and added to the rank's input when a
 * collective of the same name and length comes again, so that over many steps nothing is lost (error feedback). Of NaN
 * and infinity nothing is kept: a program that skips such a step goes on with good numbers.
 */
#include "collectives/p2p/state.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pl_residual {
    struct pl_residual *next;
    uint64_t name_hash;
    uint64_t count;
    float residual[];
};

enum pl_status pl_compress_start(struct pl_p2p *p2p, struct pl_error *reterr)
{
    const struct pl_collective *c = &p2p->request->collective;
    uint64_t hash = p2p->request->signature.name_hash;
    struct pl_residual *residual = p2p->residuals;

    p2p->wire_dtype = c->flags & PL_WIRE_FLOAT16 ? PL_FLOAT16 : PL_BFLOAT16;
    p2p->residual = NULL;
    if (!hash) {
        return PL_OK; /* without a name there is no next call to add the error to */
    }
    while (residual && (residual->name_hash != hash || residual->count != c->count)) {
        residual = residual->next;
    }
    if (!residual) {
        residual = pl_memory_new(1, sizeof(*residual) + c->count * sizeof(float), reterr);
        if (!residual) {
            return PL_MEMORY;
        }
        residual->name_hash = hash;
        residual->count = c->count;
        residual->next = p2p->residuals;
        p2p->residuals = residual;
    }
    p2p->residual = residual->residual;
    return PL_OK;
}

void pl_compress_done(struct pl_p2p *p2p)
{
    while (p2p->residuals) {
        struct pl_residual *residual = p2p->residuals;

        p2p->residuals = residual->next;
        free(residual);
    }
}

void pl_compress_load(const struct pl_p2p *p2p, float *data, uint64_t at, uint64_t count)
{
    if (!p2p->residual) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        data[i] += p2p->residual[at + i];
    }
}

void pl_compress_pack(const struct pl_p2p *p2p, uint16_t *packed, float *data, uint64_t at, uint64_t count,
                      enum pl_compress_step step)
{
    float piece[256];

    pl_kernel_narrow(p2p->kernel, p2p->wire_dtype, packed, data, count);
    for (uint64_t done = 0; step != PL_COMPRESS_PASS && done < count; done += PL_ARRAY_ITEMS(piece)) {
        uint64_t length = count - done < PL_ARRAY_ITEMS(piece) ? count - done : PL_ARRAY_ITEMS(piece);

        pl_kernel_widen(p2p->kernel, p2p->wire_dtype, piece, packed + done, length);
        for (uint64_t i = 0; p2p->residual && i < length; i++) {
            float residual = data[done + i] - piece[i];

            p2p->residual[at + done + i] = isfinite(residual) ? residual : 0.0F;
        }
        if (step == PL_COMPRESS_FINISHED) {
            memcpy(data + done, piece, length * sizeof(*piece)); /* the bits that all others get */
        }
    }
}

void pl_compress_unpack(const struct pl_p2p *p2p, float *data, const uint16_t *packed, uint64_t count, bool combine)
{
    float piece[256];

    if (!combine) {
        pl_kernel_widen(p2p->kernel, p2p->wire_dtype, data, packed, count);
        return;
    }
    for (uint64_t done = 0; done < count; done += PL_ARRAY_ITEMS(piece)) {
        uint64_t length = count - done < PL_ARRAY_ITEMS(piece) ? count - done : PL_ARRAY_ITEMS(piece);

        pl_kernel_widen(p2p->kernel, p2p->wire_dtype, piece, packed + done, length);
        for (uint64_t i = 0; i < length; i++) {
            data[done + i] = piece[i] + data[done + i];
        }
    }
}
