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
    float lost[];
};

enum pl_status pl_wire_start(struct pl_exchange *exchange, struct pl_error *reterr)
{
    const struct pl_collective *c = &exchange->request->collective;
    uint64_t hash = exchange->request->signature.name_hash;
    struct pl_residual *residual = exchange->residuals;

    exchange->wire = c->flags & PL_WIRE_FLOAT16 ? PL_FLOAT16 : PL_BFLOAT16;
    exchange->lost = NULL;
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
        residual->next = exchange->residuals;
        exchange->residuals = residual;
    }
    exchange->lost = residual->lost;
    return PL_OK;
}

void pl_wire_done(struct pl_exchange *exchange)
{
    while (exchange->residuals) {
        struct pl_residual *residual = exchange->residuals;

        exchange->residuals = residual->next;
        free(residual);
    }
}

void pl_wire_load(const struct pl_exchange *exchange, float *data, uint64_t at, uint64_t count)
{
    if (!exchange->lost) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        data[i] += exchange->lost[at + i];
    }
}

void pl_wire_pack(const struct pl_exchange *exchange, uint16_t *packed, float *data, uint64_t at, uint64_t count,
                  enum pl_wire_step step)
{
    float piece[256];

    pl_kernel_narrow(exchange->kernel, exchange->wire, packed, data, count);
    for (uint64_t done = 0; step != PL_WIRE_PASS && done < count; done += PL_ARRAY_ITEMS(piece)) {
        uint64_t length = count - done < PL_ARRAY_ITEMS(piece) ? count - done : PL_ARRAY_ITEMS(piece);

        pl_kernel_widen(exchange->kernel, exchange->wire, piece, packed + done, length);
        for (uint64_t i = 0; exchange->lost && i < length; i++) {
            float lost = data[done + i] - piece[i];

            exchange->lost[at + done + i] = isfinite(lost) ? lost : 0.0F;
        }
        if (step == PL_WIRE_FINISHED) {
            memcpy(data + done, piece, length * sizeof(*piece)); /* the bits that all others get */
        }
    }
}

void pl_wire_unpack(const struct pl_exchange *exchange, float *data, const uint16_t *packed, uint64_t count,
                    bool combine)
{
    float piece[256];

    if (!combine) {
        pl_kernel_widen(exchange->kernel, exchange->wire, data, packed, count);
        return;
    }
    for (uint64_t done = 0; done < count; done += PL_ARRAY_ITEMS(piece)) {
        uint64_t length = count - done < PL_ARRAY_ITEMS(piece) ? count - done : PL_ARRAY_ITEMS(piece);

        pl_kernel_widen(exchange->kernel, exchange->wire, piece, packed + done, length);
        for (uint64_t i = 0; i < length; i++) {
            data[done + i] = piece[i] + data[done + i];
        }
    }
}
