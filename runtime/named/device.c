/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors in device memory. A batch is one collective of one tensor, or of many tensors, which one kernel packs
 * into a buffer and another one unpacks. Batches are posted in the order in which ranks have agreed on them, and end in
 * that order; packing, the collective and unpacking of several of them overlap, on three streams.
 */
#include "runtime/named/device.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"
#include "runtime/named/operation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PACKED_BYTES = 16 << 20, /* longer tensors are not packed into a fusion buffer */
    MOST_FUSED = 2,               /* most fused batches with a buffer: one is packed while another is reduced */
    /*
     * Ranks that share a GPU without NCCL reduce in an arena. This takes 0.4 ms or more, because their processes take
     * turns on the GPU. Through host memory 1 MiB takes 0.4 ms.
     */
    LEAST_ARENA_BYTES = 1 << 20,
    MOST_PIECE_BYTES = 64 << 20, /* longest fusion in the arena; longer tensors are sent in pieces */
};

/* Time without progress after which the engine checks its peers, and the interval of these checks. */
static const int64_t LOOK_NS = 10 * PL_NS_PER_MS;
/* A peer may have left because it is done; then this rank's batches end soon, too. */
static const int64_t GRACE_NS = PL_NS_PER_S;
/* Longest wait at the end for work that reads or writes buffers. */
static const int64_t LAST_WORK_NS = 2 * PL_NS_PER_S;

/* ---- queueing ---- */

static uint64_t bytes_of(const struct pl_named_definition *definition)
{
    return pl_named_definition_elems(definition) * pl_dtype_bytes((enum pl_dtype)definition->dtype);
}

bool pl_named_device_packs(const struct pl_named_entry *entry)
{
    const struct pl_named_definition *definition = &entry->definition;

    return definition->memory == PL_MEMORY_DEVICE && definition->kind == PL_ALLREDUCE && bytes_of(definition) > 0 &&
           bytes_of(definition) <= MOST_PACKED_BYTES;
}

static uint64_t packed_elems(const struct pl_named_definition *definition)
{
    uint64_t align_elems = PL_NAMED_BUFFER_ALIGN_BYTES / pl_dtype_bytes((enum pl_dtype)definition->dtype);

    return (pl_named_definition_elems(definition) + align_elems - 1) / align_elems * align_elems;
}

uint64_t pl_named_device_packed_bytes(const struct pl_named_entry *entry)
{
    return packed_elems(&entry->definition) * pl_dtype_bytes((enum pl_dtype)entry->definition.dtype);
}

enum { FUSED_NAME_BYTES = PL_NAMED_MAX_NAME_BYTES + 64 };

/*
 * Makes a name that no other fusion has, because compression keeps the residuals of all its tensors under it. NULL if a
 * tensor has an automatic name.
 */
static enum pl_status name_fused(struct pl_named_entry *const *entries, size_t count, char **ret_name,
                                 struct pl_error *reterr)
{
    char text[FUSED_NAME_BYTES];
    uint64_t hash = PL_HASH_START;

    for (size_t i = 0; i < count; i++) {
        if (!pl_named_collective_name(entries[i])) {
            return PL_OK;
        }
        hash = pl_hash(hash, &entries[i]->hash, sizeof(entries[i]->hash));
    }
    snprintf(text, sizeof(text), "%s and %zu more, %016" PRIx64, entries[0]->name, count - 1, hash);
    *ret_name = pl_memory_string(text, reterr);
    return *ret_name ? PL_OK : PL_MEMORY;
}

/* Makes a batch of `count` operations, which the caller fills. */
static enum pl_status batch_new(size_t count, const struct pl_collective *collective, struct pl_named_batch **ret_batch,
                                struct pl_error *reterr)
{
    PL_TRY(pl_memory_alloc(ret_batch, 1, sizeof(**ret_batch) + count * sizeof(struct pl_operation *), reterr));
    (*ret_batch)->count = count;
    (*ret_batch)->collective = *collective;
    return PL_OK;
}

/* Appends the batch to the queue and marks its operations as running. */
static enum pl_status queue(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    *(device->last ? &device->last->next : &device->first) = batch;
    device->last = batch;
    for (size_t i = 0; i < batch->count; i++) {
        PL_TRY(pl_operation_set_running(named, batch->operations[i], reterr));
    }
    return PL_OK;
}

enum pl_status pl_named_device_queue(struct pl_named *named, struct pl_operation *operation,
                                     const struct pl_collective *collective, uint64_t **counts, struct pl_error *reterr)
{
    struct pl_named_batch *batch;

    PL_TRY(batch_new(1, collective, &batch, reterr));
    batch->name = collective->name ? pl_memory_string(collective->name, reterr) : NULL;
    if (collective->name && !batch->name) {
        free(batch);
        return PL_MEMORY;
    }
    batch->collective.name = batch->name;
    batch->counts = PL_TAKE(*counts);
    batch->operations[0] = operation;
    return queue(named, batch, reterr);
}

static void batch_free(struct pl_named *named, struct pl_named_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->operations[i] && !batch->operations[i]->submission) {
            pl_operation_end(named, batch->operations[i], PL_OK, NULL);
        }
    }
    if (batch->buffer) {
        batch->buffer->busy = false;
        named->device.fused -= batch->fused;
    }
    pl_device_event_release(batch->end);
    free(batch->counts);
    free(batch->name);
    free(batch);
}

enum pl_status pl_named_device_fuse(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                    struct pl_error *reterr)
{
    struct pl_collective sum = {.kind = PL_ALLREDUCE,
                                .dtype = (enum pl_dtype)entries[0]->definition.dtype,
                                .memory = PL_MEMORY_DEVICE,
                                .flags = PL_AGREED};
    struct pl_named_batch *batch;
    enum pl_status status;

    pl_named_describe_sum(named, &entries[0]->definition, entries[0]->announced, &sum);
    PL_TRY(batch_new(count, &sum, &batch, reterr));
    batch->fused = true;
    status = name_fused(entries, count, &batch->name, reterr);
    batch->collective.name = batch->name;
    for (size_t i = 0; i < count && status == PL_OK; i++) {
        struct pl_operation *own = entries[i]->local;

        batch->operations[i] = own ? own : pl_operation_stand_in(named, entries[i], reterr);
        batch->collective.count += packed_elems(&entries[i]->definition);
        pl_named_observed(named, PL_NAMED_AGREED, entries[i], named->rank, false);
        pl_named_observed(named, PL_NAMED_STARTED, entries[i], named->rank, false);
        status = batch->operations[i] ? PL_OK : PL_MEMORY;
    }
    if (status != PL_OK) {
        batch_free(named, batch);
        return status;
    }
    return queue(named, batch, reterr);
}

/* Hands over the result of an operation, when it is complete or before the operation is detached. */
static void give(struct pl_named *named, struct pl_named_batch *batch, struct pl_operation *operation)
{
    if (batch->buffer && pl_named_makes_memory(batch->collective.kind)) {
        pl_named_buffer_give(batch->buffer, named->world, operation->entry->name, &operation->result);
    }
    pl_operation_give_result(operation);
}

/* Removes the first batch from the list and ends its operations; `failure` NULL: with success. */
static void end_first(struct pl_named *named, enum pl_status status, const char *failure)
{
    struct pl_named_device *device = &named->device;
    struct pl_named_batch *batch = device->first;

    device->first = batch->next;
    if (!device->first) {
        device->last = NULL;
        device->moved_ns = 0;
    }
    named->moves++;
    for (size_t i = 0; i < batch->count; i++) {
        struct pl_operation *operation = batch->operations[i];

        if (operation->submission && !operation->is_detached && status == PL_OK) {
            pl_named_observed(named, PL_NAMED_ENDED, operation->entry, named->rank, false);
            give(named, batch, operation);
        }
        pl_operation_end(named, operation, status, failure);
        batch->operations[i] = NULL;
    }
    batch_free(named, batch);
}

/* ---- posting ---- */

static enum pl_status open_streams(struct pl_named_device *device, struct pl_error *reterr)
{
    if (!device->pack) {
        PL_TRY(pl_device_stream_new_urgent(device->device, &device->pack, reterr));
    }
    return device->unpack ? PL_OK : pl_device_stream_new_urgent(device->device, &device->unpack, reterr);
}

/*
 * Makes the stream that packs wait for the submissions' events. Of several events of one stream, the newest is enough.
 */
static enum pl_status follow(struct pl_named_device *device, const struct pl_named_batch *batch,
                             struct pl_error *reterr)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct pl_device_event *ready = batch->operations[i]->submission->ready;
        bool is_newest = ready;

        for (size_t other = 0; other < batch->count && is_newest; other++) {
            const struct pl_device_event *others = batch->operations[other]->submission->ready;

            is_newest = !others || others->stream != ready->stream || others->number < ready->number ||
                        (others == ready && other >= i);
        }
        if (is_newest) {
            PL_TRY(pl_device_stream_wait(device->device, device->pack, ready->event, reterr));
        }
    }
    return PL_OK;
}

/* Fills `pieces` with the tensors that a batch reads, or writes if `writes`, by a copy on `stream`. */
static enum pl_status list_tensors(const struct pl_named_batch *batch, bool writes, struct pl_device_pieces *pieces,
                                   void *stream, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_device_piece *list = NULL;
    uint64_t at = 0;

    PL_TRY(pl_memory_alloc(&list, batch->count, sizeof(*list), reterr));
    for (size_t i = 0; i < batch->count; i++) {
        const struct pl_operation *own = batch->operations[i];

        list[i] = (struct pl_device_piece){.tensor = writes ? own->recv : (void *)(uintptr_t)own->send,
                                           .offset_elems = at,
                                           .count_elems = pl_named_definition_elems(&own->definition)};
        at += packed_elems(&own->definition);
    }
    return pl_device_pieces_fill(pieces, list, batch->count, stream, reterr);
}

/* Packs this rank's tensors into the buffer. */
static enum pl_status pack(struct pl_named_device *device, struct pl_named_batch *batch, struct pl_error *reterr)
{
    enum pl_dtype dtype = batch->collective.dtype;

    PL_TRY(pl_named_buffer_equip(device->device, batch->buffer, reterr));
    PL_TRY(follow(device, batch, reterr));
    PL_TRY(list_tensors(batch, false, batch->buffer->in, device->pack, reterr));
    return pl_device_pack(batch->buffer->in, dtype, batch->buffer->memory, dtype, 1.0, device->pack, reterr);
}

/* Returns this rank's first operation of a batch; NULL: the rank has joined, and takes part in the others'. */
static struct pl_operation *own_of(const struct pl_named_batch *batch)
{
    return batch->operations[0]->submission ? batch->operations[0] : NULL;
}

/* Whether the engine has to provide memory: for fused tensors, for a joined rank, or for a result that it makes. */
static bool needs_buffer(const struct pl_named_batch *batch)
{
    return batch->fused || !own_of(batch) || pl_named_makes_memory(batch->collective.kind);
}

static uint64_t collective_bytes(const struct pl_named_batch *batch)
{
    return batch->collective.count * pl_dtype_bytes(batch->collective.dtype);
}

/* Gives a batch a buffer, unless it has a part of the arena already. */
static enum pl_status prepare(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    struct pl_collective *collective = &batch->collective;

    PL_TRY(open_streams(device, reterr));
    if (!batch->buffer) {
        PL_TRY(pl_named_buffer_take(device->device, &device->buffers,
                                    pl_named_makes_memory(collective->kind) ? batch->operations[0]->result.bytes
                                                                            : collective_bytes(batch),
                                    &batch->buffer, reterr));
    }
    device->fused += batch->fused;
    collective->stream = device->pack;
    collective->recv = batch->buffer->memory;
    if (collective->kind == PL_BROADCAST || pl_named_makes_memory(collective->kind)) {
        return PL_OK;
    }
    collective->send = collective->recv;
    return own_of(batch)
               ? pack(device, batch, reterr)
               : pl_named_buffer_fill(device->device, batch->buffer, collective->count, collective->dtype,
                                      collective->op, device->pack, pl_world_deadline_ns(named->world), reterr);
}

/* ---- sums through the arena ---- */

/*
 * Gives a batch a part of the arena. `*ret_there` is false while no part is free. It is true with no part if the ranks
 * cannot open each other's memory. Before the arena grows, all ranks must have ended the batches before this one.
 */
static enum pl_status take_part(struct pl_named *named, struct pl_named_batch *batch, bool *ret_there,
                                struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    uint64_t bytes = collective_bytes(batch);
    uint64_t part_bytes = pl_named_buffer_round_up(bytes < MOST_PIECE_BYTES ? bytes : MOST_PIECE_BYTES);

    *ret_there = false;
    if (!device->pieces || device->pieces->bytes < part_bytes) {
        if (batch != device->first) {
            return PL_OK;
        }
        PL_TRY(pl_named_device_arena(named, MOST_FUSED * part_bytes, ret_there, reterr));
        if (!*ret_there) {
            return PL_OK;
        }
        PL_TRY(pl_named_buffers_divide(device->device, &device->arena, MOST_FUSED, &device->pieces, reterr));
        if (!pl_world_shares_device_memory(device->world)) {
            return PL_OK;
        }
    }
    pl_named_buffer_take_part(device->pieces, &batch->buffer);
    *ret_there = batch->buffer;
    return PL_OK;
}

static bool goes_by_arena(const struct pl_named *named, const struct pl_named_batch *batch)
{
    return batch->collective.kind == PL_ALLREDUCE && collective_bytes(batch) >= LEAST_ARENA_BYTES &&
           pl_world_shares_device_memory(named->device.world);
}

/* Copies the piece at `at_elems` to the arena and posts its sum. */
static enum pl_status post_piece(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    struct pl_collective *collective = &batch->collective;
    const struct pl_operation *own = own_of(batch);
    uint64_t item_bytes = pl_dtype_bytes(collective->dtype), most_elems = batch->buffer->bytes / item_bytes;
    uint64_t left_elems = batch->whole_elems - batch->at_elems;

    collective->count = left_elems < most_elems ? left_elems : most_elems;
    collective->send = collective->recv = batch->buffer->memory;
    collective->stream = device->pack;
    collective->ready = NULL;
    if (own) {
        PL_TRY(pl_device_copy(device->device, batch->buffer->memory,
                              (const char *)own->send + batch->at_elems * item_bytes, collective_bytes(batch),
                              device->pack, reterr));
    } else {
        PL_TRY(pl_named_buffer_fill(device->device, batch->buffer, collective->count, collective->dtype, collective->op,
                                    device->pack, pl_world_deadline_ns(named->world), reterr));
    }
    return pl_collective_post(device->world, collective, &batch->request, reterr);
}

/* Posts the first piece of a tensor that is not packed. */
static enum pl_status begin_pieces(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    batch->whole_elems = batch->collective.count;
    PL_TRY(open_streams(&named->device, reterr));
    if (own_of(batch)) {
        PL_TRY(follow(&named->device, batch, reterr));
    }
    return post_piece(named, batch, reterr);
}

static bool has_more_pieces(const struct pl_named_batch *batch)
{
    return batch->whole_elems && batch->at_elems + batch->collective.count < batch->whole_elems;
}

/* Posts the queued batches while there are free buffers. */
static enum pl_status post_queued(struct pl_named *named, bool *ret_moved, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    for (struct pl_named_batch *batch = device->first; batch; batch = batch->next) {
        bool there = true;

        if (batch->stage != NAMED_QUEUED) {
            if (has_more_pieces(batch)) { /* all ranks post in the same order */
                break;
            }
            continue;
        }
        if (batch->fused && device->fused == MOST_FUSED) {
            break;
        }
        if (goes_by_arena(named, batch)) {
            PL_TRY(take_part(named, batch, &there, reterr));
        }
        if (!there) {
            break;
        }
        if (batch->buffer && !batch->fused) {
            PL_TRY(begin_pieces(named, batch, reterr));
        } else {
            if (needs_buffer(batch)) {
                PL_TRY(prepare(named, batch, reterr));
            }
            PL_TRY(pl_collective_post(device->world, &batch->collective, &batch->request, reterr));
        }
        batch->stage = NAMED_POSTED;
        *ret_moved = true;
    }
    return PL_OK;
}

/* ---- after the request ---- */

/* Records the event after the results: the tensors have their values when it is reached. */
static enum pl_status record_end(struct pl_named_device *device, struct pl_named_batch *batch, struct pl_error *reterr)
{
    PL_TRY(pl_device_event_take(device->device, &batch->end, reterr));
    return pl_device_event_record(device->device, batch->end->event, device->unpack, reterr);
}

/* Queues a copy of the finished piece to the tensor, and posts the next piece after it. */
static enum pl_status end_piece(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    const struct pl_operation *own = own_of(batch);
    bool has_more = has_more_pieces(batch);

    PL_TRY(pl_request_stream_wait(batch->request, device->unpack, reterr));
    if (own) {
        PL_TRY(pl_device_copy(device->device,
                              (char *)own->recv + batch->at_elems * pl_dtype_bytes(batch->collective.dtype),
                              batch->buffer->memory, collective_bytes(batch), device->unpack, reterr));
    }
    if (!batch->end) {
        PL_TRY(pl_device_event_take(device->device, &batch->end, reterr));
    }
    PL_TRY(pl_device_event_record(device->device, batch->end->event, device->unpack, reterr));
    if (has_more) {
        PL_TRY(pl_request_wait(PL_TAKE(batch->request), reterr));
        batch->ended = false;
        batch->at_elems += batch->collective.count;
        PL_TRY(pl_device_stream_wait(device->device, device->pack, batch->end->event, reterr));
        PL_TRY(post_piece(named, batch, reterr));
    }
    return PL_OK;
}

/* Unpacks the results into the tensors, after the request. */
static enum pl_status unpack(struct pl_named_device *device, struct pl_named_batch *batch, struct pl_error *reterr)
{
    enum pl_dtype dtype = batch->collective.dtype;

    PL_TRY(pl_request_stream_wait(batch->request, device->unpack, reterr));
    PL_TRY(list_tensors(batch, true, batch->buffer->out, device->unpack, reterr));
    PL_TRY(pl_device_unpack(batch->buffer->out, dtype, batch->buffer->memory, dtype, 1.0, device->unpack, reterr));
    return record_end(device, batch, reterr);
}

/* Whether a stream of the program may follow an operation: wait on the device for its end. */
static bool is_followed(const struct pl_operation *operation)
{
    return operation && operation->submission && operation->submission->lose && operation->entry->known;
}

static bool has_followed(const struct pl_named_batch *batch)
{
    bool has = false;

    for (size_t i = 0; i < batch->count && !has; i++) {
        has = is_followed(batch->operations[i]);
    }
    return has;
}

/* Records the end of a batch, after its request. */
static enum pl_status mark_end(struct pl_named_device *device, struct pl_named_batch *batch, struct pl_error *reterr)
{
    PL_TRY(open_streams(device, reterr));
    PL_TRY(pl_request_stream_wait(batch->request, device->unpack, reterr));
    return record_end(device, batch, reterr);
}

/*
 * For the operations that streams may follow: frees their names, and hands over their results, whose sizes are known
 * but whose data comes later. Lists the submissions of which all operations are queued now; the latest event on the
 * stream is their end.
 */
static void list_launched(struct pl_named *named, struct pl_named_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct pl_operation *operation = batch->operations[i];
        struct pl_named_submission *submission = operation->submission;

        if (!is_followed(operation)) {
            continue;
        }
        give(named, batch, operation);
        pl_operation_detach(named, operation);
        if (--submission->unlaunched == 0) {
            pl_device_event_share(batch->end);
            submission->end = batch->end;
            submission->next_launched = named->first_launched;
            named->first_launched = submission;
        }
    }
}

static enum pl_status launch(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    bool follows = has_followed(batch);

    if (batch->whole_elems) {
        bool was_last = !has_more_pieces(batch);

        PL_TRY(end_piece(named, batch, reterr));
        if (!was_last) {
            return PL_OK;
        }
    } else if (batch->fused && own_of(batch)) {
        PL_TRY(unpack(&named->device, batch, reterr));
    } else if (follows) {
        PL_TRY(mark_end(&named->device, batch, reterr));
    }
    if (follows) {
        list_launched(named, batch);
    }
    batch->stage = NAMED_LAUNCHED;
    return PL_OK;
}

/* Tests the first batch's request, which advances all requests. */
static enum pl_status launch_posted(struct pl_named *named, bool *ret_moved, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    for (struct pl_named_batch *batch = device->first; batch && batch->stage != NAMED_QUEUED; batch = batch->next) {
        if (batch == device->first && !batch->ended) {
            PL_TRY(pl_request_test(batch->request, &batch->ended, reterr));
        }
        if (batch->stage == NAMED_POSTED && (batch->ended || pl_request_launched(batch->request))) {
            PL_TRY(launch(named, batch, reterr));
            *ret_moved = true;
        }
    }
    return PL_OK;
}

/* Ends the batches whose results are complete. */
static enum pl_status end_launched(struct pl_named *named, bool *ret_moved, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    while (device->first && device->first->stage == NAMED_LAUNCHED) {
        struct pl_named_batch *batch = device->first;
        bool reached = true;

        if (!batch->ended) {
            PL_TRY(pl_request_test(batch->request, &batch->ended, reterr));
        }
        if (batch->ended && batch->end) {
            PL_TRY(pl_device_event_done(device->device, batch->end->event, &reached, reterr));
        }
        if (!batch->ended || !reached) {
            break;
        }
        PL_TRY(pl_request_wait(PL_TAKE(batch->request), reterr));
        *ret_moved = true;
        end_first(named, PL_OK, NULL);
    }
    return PL_OK;
}

/* ---- progress ---- */

/*
 * Ends the first batch because the world could not be made. All ranks do so, because the world was made for this batch.
 * If a rank did not come, the engine ends.
 */
static enum pl_status fail_first(struct pl_named *named, struct pl_error *error, struct pl_error *reterr)
{
    char text[1100];

    if (error->status == PL_TIMEOUT || error->status == PL_MEMORY || error->domain == PL_DOMAIN_MPI) {
        *reterr = *error;
        return error->status;
    }
    pl_world_place_error(named->world, named->device.device, error);
    end_first(named, error->status, pl_error_text(error, text, sizeof(text)));
    return PL_OK;
}

/* Checks for lost peers while nothing moves, because NCCL and kernels wait for them without end. */
static enum pl_status check_peers(struct pl_named *named, bool moved, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    int64_t now_ns = pl_clock_now_ns();
    enum pl_status status;
    bool left;

    if (moved || !device->moved_ns) {
        device->moved_ns = device->looked_ns = now_ns;
        device->left_ns = 0;
    }
    if (now_ns - device->looked_ns < LOOK_NS) {
        return PL_OK;
    }
    device->looked_ns = now_ns;
    status = pl_world_check_peers(named->world, &left, reterr);
    if (status != PL_OK && left) {
        device->left_ns = device->left_ns ? device->left_ns : now_ns;
        return now_ns - device->left_ns < GRACE_NS ? PL_OK : status;
    }
    return status;
}

/* Whether a stream of the program may follow a batch, and would continue without its data. */
static bool may_be_followed(const struct pl_named *named)
{
    bool may = false;

    for (const struct pl_named_batch *batch = named->device.first; batch && !may; batch = batch->next) {
        may = batch->stage == NAMED_LAUNCHED && has_followed(batch);
    }
    return may;
}

/*
 * Called when the device's world has failed. NCCL's abort takes up to seconds and lets the device continue without the
 * data. So before it, tell the other ranks, then the submissions that streams follow.
 */
static void lose_followed(void *named_at, const struct pl_error *why)
{
    struct pl_named *named = named_at;

    if (!may_be_followed(named)) {
        return;
    }
    pl_world_revoke(named->world, why);
    for (const struct pl_named_batch *batch = named->device.first; batch; batch = batch->next) {
        for (size_t i = 0; i < batch->count && batch->stage == NAMED_LAUNCHED; i++) {
            const struct pl_operation *operation = batch->operations[i];

            if (is_followed(operation)) {
                struct pl_error error = *why;

                pl_error_context(&error, "'%s' in device memory", operation->entry->name);
                operation->submission->lose(operation->submission, &error);
            }
        }
    }
}

static enum pl_status progress(struct pl_named *named, bool *ret_moved, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    bool there = false;

    if (pl_named_device_world(named, &there, &error) != PL_OK) {
        *ret_moved = true;
        return fail_first(named, &error, reterr);
    }
    if (there) {
        pl_world_on_failure(named->device.world, lose_followed, named);
        PL_TRY(post_queued(named, ret_moved, reterr));
        PL_TRY(launch_posted(named, ret_moved, reterr));
        PL_TRY(end_launched(named, ret_moved, reterr));
        if (*ret_moved) { /* a buffer may be free now */
            PL_TRY(post_queued(named, ret_moved, reterr));
        }
    }
    return check_peers(named, *ret_moved, reterr);
}

enum pl_status pl_named_device_progress(struct pl_named *named, bool *ret_moved, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    bool moved = false;
    int heeded;

    heeded = pl_device_pass_captures(device->device); /* the thread may belong to the program */
    status = progress(named, &moved, &error);
    pl_device_heed_captures(device->device, heeded);
    *ret_moved = *ret_moved || moved;
    if (status != PL_OK) {
        if (device->world) {
            status = pl_world_check_device(device->world, status, &error);
            if (!may_be_followed(named)) {
                pl_world_revoke(device->world, &error);
            }
        }
        if (device->first && device->first->operations[0]->entry) {
            pl_error_context(&error, "'%s' in device memory", device->first->operations[0]->entry->name);
        }
        pl_world_place_error(named->world, device->device, &error);
        pl_world_revoke(named->world, &error); /* other ranks may wait for this one in a round */
        *reterr = error;
    }
    return status;
}

void pl_named_device_abort(struct pl_named *named)
{
    if (named->device.world && named->failure.status != PL_OK) {
        pl_world_revoke(named->device.world, &named->failure);
    }
}

void pl_named_device_done(struct pl_named *named)
{
    struct pl_named_device *device = &named->device;

    if (device->world) { /* the engine ends: cancelled operations are not reported as lost */
        pl_world_on_failure(device->world, NULL, NULL);
    }
    for (struct pl_named_batch *batch = device->first, *next; batch; batch = next) {
        next = batch->next;
        if (batch->request) {
            pl_request_cancel(batch->request);
        }
    }
    for (void **stream = (void *[]){device->pack, device->unpack, NULL}; device->first && *stream; stream++) {
        /* if the device's work does not end, its memory is not released */
        (void)!pl_device_stream_finish(device->device, *stream, pl_deadline_after_ns(LAST_WORK_NS), NULL);
    }
    for (struct pl_named_batch *batch = device->first, *next; batch; batch = next) {
        next = batch->next;
        batch_free(named, batch);
    }
    device->first = device->last = NULL;
    pl_named_buffers_done(device->device, &device->buffers);
    pl_named_buffers_done(device->device, &device->pieces);
    pl_device_stream_free(device->device, PL_TAKE(device->pack));
    pl_device_stream_free(device->device, PL_TAKE(device->unpack));
    pl_named_device_world_done(device);
}
