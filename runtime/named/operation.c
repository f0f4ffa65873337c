/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's operations from the queue to their end: starts the collectives that ranks have agreed on (in device
 * memory one for many tensors), and reports ended operations to their submissions.
 */
#include "runtime/named/operation.h"

#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/device.h"

#include <stdlib.h>
#include <string.h>

enum { FUSED_BYTES = 64 << 20 }; /* bytes of the largest fusion of tensors in device memory */

/* ---- lists ---- */

static void take_out(struct pl_operation **first, struct pl_operation **last, struct pl_operation *operation)
{
    struct pl_operation **at = first, *before = NULL;

    while (*at != operation) {
        before = *at;
        at = &before->next;
    }
    *at = operation->next;
    *last = operation->next ? *last : before;
}

void pl_operation_unqueue(struct pl_named *named, struct pl_operation *operation)
{
    if (operation->state == OPERATION_QUEUED) {
        take_out(&named->first_queued, &named->last_queued, operation);
        operation->state = OPERATION_ANNOUNCED;
    }
}

/* ---- from the agreement to the end ---- */

struct pl_operation *pl_operation_stand_in(struct pl_named *named, struct pl_named_entry *entry,
                                           struct pl_error *reterr)
{
    struct pl_operation *operation = named->spare;

    if (operation) {
        named->spare = operation->next;
        memset(operation, 0, sizeof(*operation));
    } else {
        operation = pl_memory_new(1, sizeof(*operation), reterr);
    }
    if (operation) {
        operation->entry = entry;
        operation->state = OPERATION_ANNOUNCED;
    }
    return operation;
}

void pl_operation_agree(struct pl_named *named, struct pl_operation *operation)
{
    if (operation->submission) {
        operation->submission->unagreed--;
        named->unagreed--;
    }
}

enum pl_status pl_operation_set_running(struct pl_named *named, struct pl_operation *operation, struct pl_error *reterr)
{
    struct pl_named_entry *entry = operation->entry;

    operation->state = OPERATION_RUNNING;
    if (operation->request) { /* the engine cancels the request from now on */
        pl_operation_append(&named->first_running, &named->last_running, operation);
    }
    pl_operation_agree(named, operation);
    PL_TRY(pl_named_table_retire(&named->table, entry, true, reterr));
    if (!operation->request && !operation->submission) {
        /* device memory: others may use the name again before this operation has ended */
        pl_named_table_drop_idle(&named->table, entry);
        operation->entry = NULL;
    }
    return PL_OK;
}

void pl_operation_give_result(struct pl_operation *operation)
{
    struct pl_named_submission *submission = operation->submission;

    if (submission->results) {
        submission->results[operation - submission->operations] = operation->result;
        memset(&operation->result, 0, sizeof(operation->result));
    }
}

void pl_operation_detach(struct pl_named *named, struct pl_operation *operation)
{
    PL_BUG_IF(!operation->entry->known || operation->entry->local != operation);
    pl_named_observed(named, PL_NAMED_ENDED, operation->entry, named->rank, false); /* before the next one */
    operation->is_detached = true;
    operation->entry->local = NULL;
}

/* Releases the engine's memory of an operation. If the world has leaked, a message may still write to that memory. */
static void release(struct pl_named *named, struct pl_operation *operation)
{
    bool has_memory = operation->result.data || operation->result.rows_of_rank || operation->scratch;
    bool leaked = has_memory && pl_world_has_leaked(named->world);

    if (!has_memory) {
        return;
    }
    if (leaked) {
        operation->result.data = NULL;
    }
    pl_named_result_done(&operation->result);
    free(leaked ? NULL : PL_TAKE(operation->scratch));
}

void pl_operation_end(struct pl_named *named, struct pl_operation *operation, enum pl_status status,
                      const char *failure)
{
    struct pl_named_submission *submission = operation->submission;
    struct pl_named_entry *entry = operation->entry;
    bool is_detached = operation->is_detached;

    operation->state = OPERATION_ENDED;
    release(named, operation);
    operation->entry = entry && entry->known ? entry : NULL; /* an entry not known to all may be dropped at once */
    if (!submission) {
        operation->next = named->spare;
        named->spare = operation;
    } else if (!is_detached) {
        entry->local = NULL;
    }
    if (entry && !entry->known && !is_detached) {
        pl_named_table_drop_idle(&named->table, entry);
    }
    if (!submission) {
        return;
    }
    named->undone--;
    if (status != PL_OK && submission->status == PL_OK) {
        submission->status = status;
        submission->failure = failure ? strdup(failure) : NULL;
    }
    if (--submission->undone == 0) {
        pl_named_submission_list(named, submission);
    }
}

void pl_operation_finish(struct pl_named *named, struct pl_operation *operation)
{
    named->moves++;
    if (named->is_observed) {
        pl_named_observed(named, PL_NAMED_ENDED, operation->entry, named->rank, false);
    }
    if (operation->submission && operation->submission->results) {
        pl_operation_give_result(operation);
    }
    pl_operation_end(named, operation, PL_OK, NULL);
}

/* ---- starting operations that ranks have agreed on ---- */

/*
 * Finds the persistent request of a reduction in host memory: a name that all ranks have reduced before has one, while
 * they agree on the same definition. NULL: the operation needs a request of its own.
 */
static enum pl_status find_persistent(struct pl_named *named, struct pl_named_entry *entry,
                                      struct pl_request **ret_request, struct pl_error *reterr)
{
    const struct pl_named_definition *definition = &entry->definition;
    struct pl_collective collective;

    *ret_request = NULL;
    if (!entry->known || memcmp(definition, &entry->agreed, sizeof(*definition)) != 0) {
        pl_request_free(PL_TAKE(entry->request));
    } else if (definition->kind == PL_ALLREDUCE && definition->memory == PL_MEMORY_HOST &&
               definition->op != PL_ADASUM && entry->announced == named->ranks) {
        if (!entry->request) {
            PL_TRY(pl_named_describe(named, entry, entry->local, NULL, NULL, &collective, reterr));
            PL_TRY(pl_request_new(named->world, &collective, &entry->request, reterr));
        }
        *ret_request = entry->request;
    }
    return PL_OK;
}

/* Posts the collective of an operation that has no persistent request; in device memory it is queued. */
static enum pl_status post_once(struct pl_named *named, struct pl_operation *operation, struct pl_error *reterr)
{
    const struct pl_named_entry *entry = operation->entry;
    size_t ranks = (size_t)named->ranks;
    PL_AUTO_FREE uint64_t *counts = NULL;
    struct pl_collective collective;

    if (entry->definition.kind != PL_ALLREDUCE && entry->definition.kind != PL_BROADCAST) {
        PL_TRY(pl_memory_alloc(&counts, 2 * ranks, sizeof(uint64_t), reterr));
    }
    PL_TRY(pl_named_describe(named, entry, operation, counts, counts ? counts + ranks : NULL, &collective, reterr));
    if (collective.memory == PL_MEMORY_DEVICE) {
        return pl_named_device_queue(named, operation, &collective, &counts, reterr);
    }
    PL_TRY(pl_collective_post(named->world, &collective, &operation->request, reterr));
    return pl_operation_set_running(named, operation, reterr);
}

/* Starts the collective of an operation, which may end at once. */
static enum pl_status start(struct pl_named *named, struct pl_operation *operation, struct pl_error *reterr)
{
    struct pl_request *request;
    bool done = false;

    PL_TRY(find_persistent(named, operation->entry, &request, reterr));
    if (!request) {
        return post_once(named, operation, reterr);
    }
    PL_TRY(pl_request_start(request, operation->send, operation->recv, &done, reterr));
    done = done && !named->first_running; /* operations end in the order of their start */
    operation->request = done ? NULL : request;
    PL_TRY(pl_operation_set_running(named, operation, reterr));
    if (done) {
        pl_operation_finish(named, operation);
    }
    return PL_OK;
}

/* Starts the collective of one entry. */
static enum pl_status post(struct pl_named *named, struct pl_named_entry *entry, struct pl_error *reterr)
{
    struct pl_operation *operation = entry->local ? entry->local : pl_operation_stand_in(named, entry, reterr);
    enum pl_status status;

    if (!operation) {
        return PL_MEMORY;
    }
    if (named->is_observed) {
        pl_named_observed(named, PL_NAMED_AGREED, entry, named->rank, false);
        pl_named_observed(named, PL_NAMED_STARTED, entry, named->rank, false);
    }
    status = start(named, operation, reterr);
    if (status != PL_OK && !operation->submission && operation->state != OPERATION_RUNNING) {
        pl_operation_end(named, operation, status, NULL);
    }
    return status;
}

/* Ends a ready entry that needs no collective: ranks disagree, or the round itself was the barrier. */
static enum pl_status end_at_once(struct pl_named *named, struct pl_named_entry *entry, struct pl_error *reterr)
{
    PL_AUTO_FREE char *conflict = PL_TAKE(entry->conflict);
    struct pl_operation *operation = entry->local;

    pl_named_observed(named, PL_NAMED_AGREED, entry, named->rank, false);
    PL_TRY(pl_named_table_retire(&named->table, entry, !conflict, reterr));
    if (!operation) {
        pl_named_table_drop_idle(&named->table, entry);
        return PL_OK;
    }
    named->held = named->held || (!conflict && entry->definition.flags & NAMED_FENCE);
    pl_operation_agree(named, operation);
    pl_operation_end(named, operation, conflict ? PL_MISMATCH : PL_OK, conflict);
    return PL_OK;
}

/* Returns 0 for entries whose tensors may be packed together. Entries that are not packed come last, in their order. */
static int compare_packing(const struct pl_named_entry *one, const struct pl_named_entry *other)
{
    const struct pl_named_definition *a = &one->definition, *b = &other->definition;
    bool packs = pl_named_device_packs(one);
    int order = (int)pl_named_device_packs(other) - (int)packs;

    if (order || !packs) {
        return order;
    }
    order = (int)a->dtype - (int)b->dtype;
    order = order ? order : (int)a->op - (int)b->op;
    order = order ? order : (int)a->scaled - (int)b->scaled;
    order = order ? order : (int)a->is_scaled_by_caller - (int)b->is_scaled_by_caller;
    order = order ? order : (a->flags > b->flags) - (a->flags < b->flags);
    order = order ? order : (a->prescale > b->prescale) - (a->prescale < b->prescale);
    return order ? order : (a->postscale > b->postscale) - (a->postscale < b->postscale);
}

/*
 * An insertion sort keeps the order of equal entries, which qsort(3) does not, and takes one pass for the usual list of
 * one kind.
 */
static void sort_for_packing(struct pl_named_entry **entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct pl_named_entry *entry = entries[i];
        size_t at = i;

        for (; at > 0 && compare_packing(entries[at - 1], entry) > 0; at--) {
            entries[at] = entries[at - 1];
        }
        entries[at] = entry;
    }
}

/* Returns whether two entries can share a buffer: equal packing, and the same ranks had joined before each of them. */
static bool may_be_one(const struct pl_named_table *table, const struct pl_named_entry *a,
                       const struct pl_named_entry *b)
{
    return pl_named_device_packs(a) && compare_packing(a, b) == 0 && pl_named_table_same_ranks(table, a, b);
}

/* Starts the operations in device memory: sorts their entries, then fuses each run of entries that may be fused. */
static enum pl_status post_on_device(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                     struct pl_error *reterr)
{
    sort_for_packing(entries, count);
    for (size_t first = 0, end; first < count; first = end) {
        uint64_t bytes = 0;

        for (end = first; end < count && (end == first || may_be_one(&named->table, entries[first], entries[end]));
             end++) {
            bytes += pl_named_device_packed_bytes(entries[end]);
            if ((bytes > FUSED_BYTES && end > first) || end - first == PL_NAMED_MOST_PIECES) {
                break;
            }
        }
        PL_TRY(end - first == 1 ? post(named, entries[first], reterr)
                                : pl_named_device_fuse(named, &entries[first], end - first, reterr));
    }
    return PL_OK;
}

enum pl_status pl_named_run_ready(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_named_table *table = &named->table;
    size_t count = table->ready_count, on_device = 0;

    table->ready_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct pl_named_entry *entry = table->ready[i];

        if (entry->conflict || entry->definition.kind == PL_BARRIER) {
            PL_TRY(end_at_once(named, entry, reterr));
        } else if (entry->definition.memory == PL_MEMORY_DEVICE) {
            table->ready[on_device++] = entry;
        } else { /* host memory is not packed: two copies would cost as much as a message */
            PL_TRY(post(named, entry, reterr));
        }
    }
    return on_device > 0 ? post_on_device(named, table->ready, on_device, reterr) : PL_OK;
}

/* ---- results of a submission ---- */

/* Ends the operations that a submission still has in the engine: the engine has failed, or the program frees it. */
static void forget(struct pl_named *named, struct pl_named_submission *submission)
{
    for (size_t i = 0; i < submission->count; i++) {
        struct pl_operation *operation = &submission->operations[i];

        if (operation->state != OPERATION_ENDED) {
            pl_operation_unqueue(named, operation);
            if (operation->request) {
                take_out(&named->first_running, &named->last_running, operation);
                pl_request_cancel(PL_TAKE(operation->request));
            }
            release(named, operation);
            operation->state = OPERATION_ENDED;
            named->undone--;
        }
        if (operation->entry && operation->entry->local == operation) {
            operation->entry->local = NULL;
        }
    }
    named->unagreed -= submission->unagreed;
    for (struct pl_named_batch *batch = named->device.first; batch; batch = batch->next) {
        for (size_t i = 0; i < batch->count; i++) {
            if (batch->operations[i] && batch->operations[i]->submission == submission) {
                batch->operations[i] = NULL;
            }
        }
    }
}

enum pl_status pl_named_submission_end(struct pl_named *named, struct pl_named_submission *submission,
                                       struct pl_error *reterr)
{
    enum pl_status status = submission->status;
    bool fails = submission->undone > 0;

    if (fails) {
        status = pl_named_refuse_ended(named, reterr);
        forget(named, submission);
    } else if (status != PL_OK) {
        pl_error_set(reterr, status, "%s", submission->failure ? submission->failure : "failed");
    }
    fails = fails || status != PL_OK;
    for (size_t i = 0; fails && submission->results && submission->unlaunched > 0 && i < submission->count; i++) {
        pl_named_result_done(&submission->results[i]);
    }
    submission->is_entered = false;
    free(PL_TAKE(submission->failure));
    if (submission->ready) {
        pl_device_event_release(PL_TAKE(submission->ready));
    }
    if (submission->end) {
        pl_device_event_release(PL_TAKE(submission->end));
    }
    return status;
}

/* ---- an engine's beginning and end ---- */

/* Cancels the operations that stand in for others', and releases the unused ones and the persistent requests. */
static void operations_done(struct pl_named *named)
{
    for (struct pl_operation *operation = named->first_running, *next; operation; operation = next) {
        next = operation->next;
        pl_request_cancel(PL_TAKE(operation->request));
        operation->entry = NULL;
        pl_operation_end(named, operation, PL_OK, NULL);
    }
    for (struct pl_operation *operation = named->spare, *next; operation; operation = next) {
        next = operation->next;
        free(operation);
    }
    for (size_t i = 0; i < named->table.known_count; i++) {
        pl_request_free(named->table.known[i]->request);
    }
}

void pl_named_free(struct pl_named *named)
{
    if (!named) {
        return;
    }
    if (named->round.request) {
        pl_request_cancel(named->round.request);
    }
    pl_named_device_done(named);
    operations_done(named);
    pl_request_free(named->round.persistent);
    free(named->round.payload_bytes);
    pl_named_table_done(&named->table);
    if (pl_world_has_leaked(named->world)) {
        return; /* not freed, because messages of a round may still access it */
    }
    free(named->round.heads);
    free(named->round.received);
    pl_text_done(&named->round.payload);
    free(named);
}

enum pl_status pl_named_new(struct pl_world *world, const struct pl_named_options *options, struct pl_named **ret_named,
                            struct pl_error *reterr)
{
    struct pl_named *named;
    size_t ranks = (size_t)pl_world_size(world);

    PL_TRY(pl_memory_alloc(&named, 1, sizeof(*named), reterr));
    named->world = world;
    named->rank = pl_world_rank(world);
    named->ranks = pl_world_size(world);
    named->device.device = pl_world_device(world);
    if (options) {
        named->options = *options;
    }
    named->round.heads = pl_memory_new(ranks, sizeof(struct pl_named_head), reterr);
    named->round.payload_bytes = pl_memory_new(ranks, sizeof(uint64_t), reterr);
    if (!named->round.heads || !named->round.payload_bytes ||
        pl_named_table_init(&named->table, world, reterr) != PL_OK) {
        pl_named_free(named);
        return PL_MEMORY;
    }
    named->table.strict_join = named->options.strict_join;
    *ret_named = named;
    return PL_OK;
}
