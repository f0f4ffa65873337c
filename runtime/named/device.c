/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors in device memory: tensor fusion. A kernel gathers many tensors into one buffer, one allreduce adds
 * them, a kernel scatters them back; the lists of buffers are cached, since a training step repeats them.
 */
#include "runtime/named/device.h"

#include "base/hash.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "runtime/named/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN_BYTES = 256,            /* each tensor is aligned for the kernels */
    MOST_PACKED_BYTES = 16 << 20, /* a longer tensor is reduced in place, not in a fusion buffer */
};

static const uint64_t most_kept_bytes = UINT64_C(256) << 20; /* bytes of all cached fusions together */

struct named_fusion {
    struct named_fusion *next;
    size_t count;
    uint64_t elems;
    enum pl_dtype dtype;
    bool joined; /* this rank has joined and has no tensors in it */
    bool busy;   /* a request is in flight */
    uint64_t last_use;
    void *flat;
    struct pl_device_pieces *pieces_in, *pieces_out;
    struct pl_device_piece *sources; /* [count]; these and `targets` are compared with the next use */
    struct pl_device_piece *targets;
};

static uint64_t flat_bytes(const struct named_fusion *fusion)
{
    return fusion->elems * pl_dtype_bytes(fusion->dtype);
}

static void fusion_free(struct pl_named_device *device, struct named_fusion *fusion)
{
    if (fusion->pieces_in) {
        pl_device_pieces_free(fusion->pieces_in);
    }
    if (fusion->pieces_out) {
        pl_device_pieces_free(fusion->pieces_out);
    }
    if (fusion->flat) {
        pl_device_release(device->device, fusion->flat);
    }
    free(fusion->sources);
    free(fusion->targets);
    free(fusion);
}

void pl_named_device_done(struct pl_named_device *device)
{
    for (struct named_fusion *fusion = device->fusions, *next; fusion; fusion = next) {
        next = fusion->next;
        fusion_free(device, fusion);
    }
    if (device->stream) {
        pl_device_stream_free(device->device, device->stream);
    }
}

static enum pl_status open_stream(struct pl_named_device *device, struct pl_error *reterr)
{
    return device->stream ? PL_OK : pl_device_stream_new(device->device, &device->stream, reterr);
}

enum pl_status pl_named_device_scratch(struct pl_named *named, uint64_t bytes, const void *fill, void **ret_scratch,
                                       struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    void *scratch = NULL;
    enum pl_status status = PL_OK;

    PL_TRY(open_stream(device, reterr));
    PL_TRY(pl_device_alloc(device->device, bytes, &scratch, reterr));
    if (fill) {
        status = pl_device_copy_now(device->device, scratch, fill, bytes, device->stream,
                                    pl_world_deadline_ns(named->world), reterr);
    }
    if (status != PL_OK) {
        pl_device_release(device->device, scratch);
        return status;
    }
    *ret_scratch = scratch;
    return PL_OK;
}

bool pl_named_device_packs(const struct pl_named_entry *entry)
{
    const struct pl_named_definition *definition = &entry->definition;
    uint64_t bytes = pl_named_definition_elems(definition) * pl_dtype_bytes((enum pl_dtype)definition->dtype);

    return definition->memory == PL_MEMORY_DEVICE && definition->kind == PL_ALLREDUCE && bytes > 0 &&
           bytes <= MOST_PACKED_BYTES;
}

/* Describes the fusion of `entries`, without allocating device memory. */
static struct named_fusion *describe_fusion(struct pl_named_entry *const *entries, size_t count,
                                            struct pl_error *reterr)
{
    struct named_fusion *fusion = pl_memory_new(1, sizeof(*fusion), reterr);
    uint64_t align_elems;

    if (!fusion) {
        return NULL;
    }
    fusion->count = count;
    fusion->dtype = (enum pl_dtype)entries[0]->definition.dtype;
    fusion->joined = !entries[0]->local;
    fusion->sources = pl_memory_new(count, sizeof(struct pl_device_piece), reterr);
    fusion->targets = pl_memory_new(count, sizeof(struct pl_device_piece), reterr);
    if (!fusion->sources || !fusion->targets) {
        free(fusion->sources);
        free(fusion->targets);
        free(fusion);
        return NULL;
    }
    align_elems = ALIGN_BYTES / pl_dtype_bytes(fusion->dtype);
    for (size_t i = 0; i < count; i++) {
        const struct pl_named_local *local = entries[i]->local;
        struct pl_device_piece piece = {.offset_elems = fusion->elems,
                                        .count_elems = pl_named_definition_elems(&entries[i]->definition)};

        fusion->sources[i] = fusion->targets[i] = piece;
        if (local) {
            fusion->sources[i].tensor = (void *)(uintptr_t)local->send; /* only read */
            fusion->targets[i].tensor = local->recv;
        }
        fusion->elems += (piece.count_elems + align_elems - 1) / align_elems * align_elems;
    }
    return fusion;
}

static bool is_same(const struct named_fusion *a, const struct named_fusion *b)
{
    return a->count == b->count && a->dtype == b->dtype && a->joined == b->joined &&
           memcmp(a->sources, b->sources, a->count * sizeof(*a->sources)) == 0 &&
           memcmp(a->targets, b->targets, a->count * sizeof(*a->targets)) == 0;
}

/* Evicts the least recently used fusions until `bytes` more fit. */
static void make_room(struct pl_named_device *device, uint64_t bytes)
{
    while (device->fusion_bytes + bytes > most_kept_bytes) {
        struct named_fusion **oldest = NULL;

        for (struct named_fusion **at = &device->fusions; *at; at = &(*at)->next) {
            if (!(*at)->busy && (!oldest || (*at)->last_use < (*oldest)->last_use)) {
                oldest = at;
            }
        }
        if (!oldest) {
            return;
        }
        struct named_fusion *fusion = *oldest;

        *oldest = fusion->next;
        device->fusion_bytes -= flat_bytes(fusion);
        fusion_free(device, fusion);
    }
}

static enum pl_status equip(struct pl_named_device *device, struct named_fusion *fusion, struct pl_error *reterr)
{
    PL_TRY(pl_device_alloc(device->device, flat_bytes(fusion), &fusion->flat, reterr));
    if (fusion->joined) {
        return PL_OK;
    }
    PL_TRY(pl_device_pieces_new(device->device, fusion->sources, fusion->count, &fusion->pieces_in, reterr));
    return pl_device_pieces_new(device->device, fusion->targets, fusion->count, &fusion->pieces_out, reterr);
}

/* Returns the fusion of these entries: a cached one, or a new one. */
static enum pl_status find_fusion(struct pl_named *named, struct pl_named_entry *const *entries, size_t count,
                                  struct named_fusion **ret_fusion, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    struct named_fusion *wanted = describe_fusion(entries, count, reterr);
    enum pl_status status;

    if (!wanted) {
        return PL_MEMORY;
    }
    for (struct named_fusion *known = device->fusions; known; known = known->next) {
        if (!known->busy && is_same(known, wanted)) {
            fusion_free(device, wanted);
            *ret_fusion = known;
            return PL_OK;
        }
    }
    make_room(device, flat_bytes(wanted));
    status = equip(device, wanted, reterr);
    if (status != PL_OK) {
        fusion_free(device, wanted);
        return status;
    }
    wanted->next = device->fusions;
    device->fusions = wanted;
    device->fusion_bytes += flat_bytes(wanted);
    *ret_fusion = wanted;
    return PL_OK;
}

/*
 * Lets the engine's stream wait for the submissions. Of the events of one stream the newest is enough: those before it
 * have been reached by then.
 */
static enum pl_status follow(struct pl_named_device *device, struct pl_named_entry *const *entries, size_t count,
                             struct pl_error *reterr)
{
    for (size_t i = 0; i < count; i++) {
        const struct pl_named_ready *ready = entries[i]->local->ready;
        bool is_newest = ready;

        for (size_t other = 0; other < count && is_newest; other++) {
            const struct pl_named_ready *others = entries[other]->local->ready;

            is_newest = !others || others->events != ready->events || others->stream != ready->stream ||
                        others->number < ready->number || (others == ready && other >= i);
        }
        if (is_newest) {
            PL_TRY(pl_device_stream_wait(device->device, device->stream, ready->event, reterr));
        }
    }
    return PL_OK;
}

/* Packs this rank's tensors into the fusion buffer, on the engine's stream. */
static enum pl_status fill_flat(struct pl_named *named, struct named_fusion *fusion,
                                struct pl_named_entry *const *entries, enum pl_op op, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    if (!fusion->joined) {
        PL_TRY(follow(device, entries, fusion->count, reterr));
        return pl_device_pack(fusion->pieces_in, fusion->dtype, fusion->flat, fusion->dtype, 1.0, device->stream,
                              reterr);
    }
    PL_AUTO_FREE void *neutral = pl_memory_new(fusion->elems, pl_dtype_bytes(fusion->dtype), reterr);

    if (!neutral) {
        return PL_MEMORY;
    }
    pl_named_fill_neutral(neutral, fusion->elems, fusion->dtype, op);
    return pl_device_copy_now(device->device, fusion->flat, neutral, flat_bytes(fusion), device->stream,
                              pl_world_deadline_ns(named->world), reterr);
}

enum { FUSED_NAME_BYTES = PL_NAMED_MAX_NAME_BYTES + 64 };

/*
 * Returns a name that no other fusion has, because compression keeps residuals of all its tensors under it. NULL if one
 * of the tensors has an automatic name.
 */
static const char *name_fused(struct pl_named_entry *const *entries, size_t count, char text[FUSED_NAME_BYTES])
{
    uint64_t hash = PL_HASH_START;

    for (size_t i = 0; i < count; i++) {
        if (!pl_named_collective_name(entries[i])) {
            return NULL;
        }
        hash = pl_hash(hash, &entries[i]->hash, sizeof(entries[i]->hash));
    }
    snprintf(text, FUSED_NAME_BYTES, "%s and %zu more, %016" PRIx64, entries[0]->name, count - 1, hash);
    return text;
}

static enum pl_status post(struct pl_named *named, struct pl_named_entry **entries, struct pl_named_batch *batch,
                           struct pl_error *reterr)
{
    char name[FUSED_NAME_BYTES];
    struct pl_collective collective = {.kind = PL_ALLREDUCE,
                                       .memory = PL_MEMORY_DEVICE,
                                       .name = name_fused(entries, batch->count, name),
                                       .flags = PL_AGREED};
    struct named_fusion *fusion;

    PL_TRY(open_stream(&named->device, reterr));
    PL_TRY(find_fusion(named, entries, batch->count, &fusion, reterr));
    pl_named_describe_sum(named, &entries[0]->definition, entries[0]->announced, &collective);
    PL_TRY(fill_flat(named, fusion, entries, collective.op, reterr));
    collective.dtype = fusion->dtype;
    collective.count = fusion->elems;
    collective.send = collective.recv = fusion->flat;
    collective.stream = named->device.stream;
    PL_TRY(pl_collective_post(named->world, &collective, &batch->request, reterr));
    fusion->busy = true;
    fusion->last_use = ++named->device.uses;
    batch->fusion = fusion;
    return PL_OK;
}

enum pl_status pl_named_device_post(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr)
{
    struct pl_named_batch *batch = pl_named_batch_new(named, entries, count, reterr);
    enum pl_status status;

    if (!batch) {
        return PL_MEMORY;
    }
    status = pl_world_check_device(named->world, post(named, entries, batch, reterr), reterr);
    if (status != PL_OK) {
        pl_named_batch_free(named, batch);
        return status;
    }
    return pl_named_batch_posted(named, batch, reterr);
}

/* Unpacks the sums into the tensors. */
static enum pl_status empty_flat(struct pl_named *named, const struct named_fusion *fusion, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    PL_TRY(
        pl_device_unpack(fusion->pieces_out, fusion->dtype, fusion->flat, fusion->dtype, 1.0, device->stream, reterr));
    return pl_device_stream_finish(device->device, device->stream, pl_world_deadline_ns(named->world), reterr);
}

enum pl_status pl_named_device_finish(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct named_fusion *fusion = batch->fusion;

    fusion->busy = false;
    return fusion->joined ? PL_OK : pl_world_check_device(named->world, empty_flat(named, fusion, reterr), reterr);
}
