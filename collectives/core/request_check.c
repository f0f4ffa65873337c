/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a descriptor before anything starts, and writes its signature. */
#include "base/hash.h"
#include "base/memory.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Whether `elems` elements of `item` bytes are more than a pointer can span. */
static bool is_too_much(uint64_t elems, size_t item)
{
    uint64_t bytes;

    return __builtin_mul_overflow(elems, item, &bytes) || bytes > (uint64_t)PTRDIFF_MAX;
}

static enum pl_status sum_counts(const struct pl_world *world, const uint64_t *counts, uint64_t count,
                                 size_t item_bytes, const char *what, uint64_t *ret_sum, struct pl_error *reterr)
{
    uint64_t sum = 0;

    for (int i = 0; i < world->size; i++) {
        if (__builtin_add_overflow(sum, pl_counts_get(counts, count, i), &sum)) {
            return pl_error_set(reterr, PL_INVALID, "the sum of %s overflows", what);
        }
    }
    if (is_too_much(sum, item_bytes)) {
        return pl_error_set(reterr, PL_INVALID, "%" PRIu64 " elements of %zu bytes are more than memory can hold", sum,
                            item_bytes);
    }
    *ret_sum = sum;
    return PL_OK;
}

/* The start of the rank's own block, in elements. */
static uint64_t own_at(const struct pl_world *world, const struct pl_collective *c)
{
    uint64_t at = 0;

    for (int i = 0; i < world->rank; i++) {
        at += pl_counts_get(c->counts, c->count, i);
    }
    return at;
}

static enum pl_status check_buffer(const void *data, uint64_t elems, const char *what, struct pl_error *reterr)
{
    if (elems && !data) {
        return pl_error_set(reterr, PL_INVALID, "%s is NULL, but %" PRIu64 " elements are expected there", what, elems);
    }
    return PL_OK;
}

/* Element counts of the two buffers on this rank, and the one value of `send` at which they may overlap. */
struct extents {
    uint64_t send;
    uint64_t recv;
    uintptr_t in_place_send; /* in place if send == this */
};

static enum pl_status measure(const struct pl_world *world, const struct pl_collective *c, size_t item,
                              struct extents *ret, uint64_t *ret_total, struct pl_error *reterr)
{
    uint64_t total = 0;
    uint64_t own;

    *ret = (struct extents){.in_place_send = (uintptr_t)c->recv};
    switch (c->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
    case PL_BROADCAST:
        total = c->count;
        if (is_too_much(total, item)) {
            return pl_error_set(reterr, PL_INVALID, "%" PRIu64 " elements of %zu bytes are more than memory can hold",
                                total, item);
        }
        ret->send = c->kind == PL_BROADCAST && (world->rank != c->root || !c->send) ? 0 : total;
        ret->recv = c->kind == PL_REDUCE && world->rank != c->root ? 0 : total;
        break;
    case PL_ALLGATHER:
        PL_TRY(sum_counts(world, c->counts, c->count, item, "counts", &total, reterr));
        own = pl_counts_get(c->counts, c->count, world->rank);
        *ret =
            (struct extents){.send = own, .recv = total, .in_place_send = (uintptr_t)c->recv + own_at(world, c) * item};
        break;
    case PL_REDUCE_SCATTER:
        PL_TRY(sum_counts(world, c->counts, c->count, item, "counts", &total, reterr));
        own = pl_counts_get(c->counts, c->count, world->rank);
        *ret =
            (struct extents){.send = total, .recv = own, .in_place_send = (uintptr_t)c->recv - own_at(world, c) * item};
        break;
    case PL_ALLTOALL:
        if (!c->counts != !c->recv_counts) {
            return pl_error_set(reterr, PL_INVALID, "counts and recv_counts must be given together");
        }
        PL_TRY(sum_counts(world, c->counts, c->count, item, "counts", &ret->send, reterr));
        PL_TRY(sum_counts(world, c->recv_counts, c->count, item, "recv_counts", &ret->recv, reterr));
        if (c->counts && c->counts[world->rank] != c->recv_counts[world->rank]) {
            return pl_error_set(reterr, PL_INVALID, "counts and recv_counts differ for the rank itself");
        }
        ret->in_place_send = 0;
        total = c->counts ? 0 : ret->send; /* with lists, each rank's sums differ and the others do not know them */
        break;
    case PL_BARRIER:
        break;
    }
    *ret_total = total;
    return PL_OK;
}

static enum pl_status check_overlap(const struct pl_collective *c, size_t item, const struct extents *extents,
                                    struct pl_error *reterr)
{
    uintptr_t send = (uintptr_t)c->send;
    uintptr_t recv = (uintptr_t)c->recv;

    if (send == extents->in_place_send || !extents->send || !extents->recv) {
        return PL_OK;
    }
    if (send < recv + extents->recv * item && recv < send + extents->send * item) {
        return pl_error_set(reterr, PL_INVALID, "send and recv overlap in a way that is not the in-place form of %s",
                            pl_kind_text(c->kind));
    }
    return PL_OK;
}

static enum pl_status check_values(const struct pl_world *world, const struct pl_collective *c, size_t item,
                                   struct pl_error *reterr)
{
    if ((unsigned)c->kind >= PL_KIND_COUNT) {
        return pl_error_set(reterr, PL_INVALID, "%d is not a kind of collective", (int)c->kind);
    }
    if (!item) {
        return pl_error_set(reterr, PL_INVALID, "%d is not an element type", (int)c->dtype);
    }
    if (c->flags) {
        unsigned wire = c->flags & PL_WIRES;

        if (c->flags & ~(unsigned)(PL_REPRODUCIBLE | PL_WIRES | PL_AGREED)) {
            return pl_error_set(reterr, PL_INVALID, "unknown flags %#x", c->flags);
        }
        if (wire & (wire - 1)) {
            return pl_error_set(reterr, PL_INVALID, "the wire type can be float16, bfloat16 or int8, one of them");
        }
    }
    if ((c->kind == PL_BROADCAST || c->kind == PL_REDUCE) && (c->root < 0 || c->root >= world->size)) {
        return pl_error_set(reterr, PL_INVALID, "root %d is not a rank of this world of %d", c->root, world->size);
    }
    if (c->scaled && (!isfinite(c->prescale) || !isfinite(c->postscale))) {
        return pl_error_set(reterr, PL_INVALID, "a scale factor is not finite");
    }
    if (!pl_kind_reduces(c->kind)) {
        return PL_OK;
    }
    if ((unsigned)c->op >= PL_OP_COUNT) {
        return pl_error_set(reterr, PL_INVALID, "%d is not an operation", (int)c->op);
    }
    if (c->dtype == PL_BOOL && (c->op == PL_AVERAGE || c->scaled)) {
        return pl_error_set(reterr, PL_INVALID, "bool elements can be neither averaged nor scaled");
    }
    return PL_OK;
}

static void sign(const struct pl_world *world, const struct pl_collective *c, uint64_t total,
                 struct pl_signature *signature)
{
    bool agreed_counts = c->kind == PL_ALLGATHER || c->kind == PL_REDUCE_SCATTER;
    uint64_t what = (uint64_t)c->kind;

    if (c->kind != PL_BARRIER) {
        what |= (uint64_t)c->dtype << 8 | (uint64_t)c->flags << 24;
    }
    if (c->kind == PL_BROADCAST || c->kind == PL_REDUCE) {
        what |= (uint64_t)c->root << 32;
    }
    memset(signature, 0, sizeof(*signature));
    signature->count = total;
    if (pl_kind_reduces(c->kind)) {
        what |= (uint64_t)c->op << 16;
        if (c->scaled || (c->op == PL_AVERAGE && c->divisor != (uint32_t)world->size)) {
            signature->scale_hash =
                pl_hash(pl_hash(PL_HASH_START, &c->prescale, sizeof(c->prescale)), &c->postscale, sizeof(c->postscale));
            signature->scale_hash = pl_hash(signature->scale_hash, &c->divisor, sizeof(c->divisor));
        }
    }
    signature->what = what;
    if (agreed_counts && c->counts) {
        signature->counts_hash = pl_hash(PL_HASH_START, c->counts, (size_t)world->size * sizeof(*c->counts));
    }
    if (c->name) {
        signature->name_hash = pl_hash(PL_HASH_START, c->name, strlen(c->name));
        memcpy(signature->name, c->name, strnlen(c->name, sizeof(signature->name)));
    }
}

/* Copies both count lists for the request; copies nothing if the kind has no lists. */
static enum pl_status copy_counts(const struct pl_world *world, struct pl_request *request, struct pl_error *reterr)
{
    struct pl_collective *c = &request->collective;
    size_t n = (size_t)world->size;
    uint64_t *copy;

    if (c->kind != PL_ALLGATHER && c->kind != PL_REDUCE_SCATTER && c->kind != PL_ALLTOALL) {
        c->counts = NULL;
    }
    if (!c->counts) {
        c->recv_counts = NULL;
        return PL_OK;
    }
    PL_TRY(pl_memory_alloc(&copy, 2 * n, sizeof(*copy), reterr));
    memcpy(copy, c->counts, n * sizeof(*copy));
    c->counts = copy;
    if (c->kind == PL_ALLTOALL) {
        memcpy(copy + n, c->recv_counts, n * sizeof(*copy));
    }
    c->recv_counts = c->kind == PL_ALLTOALL ? copy + n : NULL;
    request->counts = copy;
    return PL_OK;
}

/* Checks everything; `*ret_total` must be equal on all ranks. */
static enum pl_status check(const struct pl_world *world, const struct pl_collective *c, uint64_t *ret_total,
                            struct pl_error *reterr)
{
    size_t item = pl_dtype_bytes(c->dtype);
    struct extents extents;

    PL_TRY(check_values(world, c, item, reterr));
    PL_TRY(measure(world, c, item, &extents, ret_total, reterr));
    PL_TRY(check_buffer(c->send, extents.send, "send", reterr));
    PL_TRY(check_buffer(c->recv, extents.recv, "recv", reterr));
    return check_overlap(c, item, &extents, reterr);
}

enum pl_status pl_request_check(const struct pl_world *world, const struct pl_collective *collective,
                                struct pl_error *reterr)
{
    uint64_t total;

    return check(world, collective, &total, reterr);
}

/* Checks the collective, and fills the request: its scales, divisor and flags, and the signature that other ranks
 * compare. Every post runs this, also that of the smallest collectives: `flatten` inlines all checks. */
__attribute__((flatten)) enum pl_status pl_request_prepare(struct pl_request *request, const struct pl_world *world,
                                                           const struct pl_collective *collective,
                                                           struct pl_error *reterr)
{
    struct pl_collective *c = &request->collective;
    uint64_t total = 0;

    PL_TRY(check(world, collective, &total, reterr));
    pl_copy_fresh(c, collective, sizeof(*c));
    if (!c->scaled) {
        c->prescale = 1.0;
        c->postscale = 1.0;
    }
    if (c->op != PL_AVERAGE || !pl_kind_reduces(c->kind)) {
        c->divisor = 1;
    } else if (c->divisor == 0) {
        c->divisor = (uint32_t)world->size;
    }
    c->flags |= world->always_flags;
    if (world->wire_flag && c->kind == PL_ALLREDUCE && c->dtype == PL_FLOAT32 && !(c->flags & PL_WIRES)) {
        c->flags |= world->wire_flag;
    }
    sign(world, c, total, &request->signature);
    c->name = NULL; /* it belongs to the caller; the signature has a copy of its start */
    if (c->counts || c->recv_counts) {
        PL_TRY(copy_counts(world, request, reterr));
    }
    if (c->kind == PL_BROADCAST && c->memory != PL_MEMORY_DEVICE &&
        (world->rank != c->root || c->send == c->recv || c->count == 0)) {
        c->send = NULL;
    }
    return PL_OK;
}

enum pl_status pl_request_sign_step(struct pl_request *request, const struct pl_world *world,
                                    const struct pl_collective *step, const struct pl_collective *of,
                                    struct pl_error *reterr)
{
    request->collective = *step;
    sign(world, of, of->count, &request->signature);
    request->collective.name = NULL;
    request->collective.prescale = request->collective.postscale = 1.0;
    request->collective.divisor = 1;
    return copy_counts(world, request, reterr);
}
