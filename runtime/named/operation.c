/* SPDX-License-Identifier: Apache-2.0 */
/* Operations from the queue to their end, and what a submission gets of that. */
#include "runtime/named/operation.h"

#include "base/memory.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

void pl_named_result_done(struct pl_named_result *result)
{
    if (result->buffer) {
        pl_named_buffer_return(result->buffer);
    } else {
        free(result->data);
    }
    free(result->rows_of_rank);
    memset(result, 0, sizeof(*result));
}

void pl_named_observe(struct pl_named_observer *observer, bool active)
{
    __atomic_store_n(&observer->active, active, __ATOMIC_RELAXED);
}

void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first)
{
    const struct pl_named_observer *observer = named->options.observer;
    struct pl_named_event event = {.phase = phase, .first = first};

    if (!observer || !__atomic_load_n(&observer->active, __ATOMIC_RELAXED)) {
        return;
    }
    if (entry) {
        event.name = entry->name;
        event.kind = (enum pl_kind)entry->definition.kind;
        event.dtype = (enum pl_dtype)entry->definition.dtype;
        event.dims = entry->definition.dims;
        event.shape = entry->definition.shape;
        event.rank = pl_world_global_rank(named->world, rank);
    }
    observer->happened(observer->context, &event);
}

enum pl_status pl_named_refuse_ended(const struct pl_named *named, struct pl_error *reterr)
{
    if (named->failure.status != PL_OK) {
        if (reterr) {
            *reterr = named->failure;
        }
        return named->failure.status;
    }
    if (named->left) {
        char name[PL_RANK_NAME_BYTES];

        return pl_error_set(reterr, PL_CANCELLED, "%s shut the named tensors down",
                            pl_world_rank_name(named->world, named->left_rank, name));
    }
    return PL_OK;
}

const char *pl_named_name_under_way(const struct pl_named *named)
{
    for (size_t i = 0; i < named->table.slot_count && named->failure.status == PL_OK; i++) {
        for (const struct pl_named_entry *entry = named->table.slots[i]; entry; entry = entry->next_in_slot) {
            if (entry->local) {
                return entry->name;
            }
        }
    }
    return NULL;
}

const char *pl_named_name_agreed(const struct pl_named *named)
{
    const struct pl_named_batch *batch = named->device.first;
    const struct pl_operation *operation = batch ? batch->operations[0] : named->first_running;

    if ((!batch && !operation) || named->failure.status != PL_OK) {
        return NULL;
    }
    return operation && operation->entry ? operation->entry->name : "an operation";
}

const char *pl_named_collective_name(const struct pl_named_entry *entry)
{
    return entry->anonymous ? NULL : entry->name;
}

void pl_named_describe_sum(const struct pl_named *named, const struct pl_named_definition *definition, int contributors,
                           struct pl_collective *collective)
{
    collective->op = (enum pl_op)definition->op;
    collective->flags |= definition->flags;
    collective->scaled = definition->scaled && !definition->is_scaled_by_caller;
    collective->prescale = definition->prescale;
    collective->postscale = definition->postscale;
    if (contributors < named->ranks && collective->op == PL_AVERAGE &&
        named->options.join_divisor == PL_NAMED_DIVIDE_BY_CONTRIBUTORS) {
        collective->divisor = (uint32_t)contributors;
    }
}

/* ---- lists ---- */

static void append(struct pl_operation **first, struct pl_operation **last, struct pl_operation *operation)
{
    operation->next = NULL;
    *(*last ? &(*last)->next : first) = operation;
    *last = operation;
}

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

void pl_operation_queue(struct pl_named *named, struct pl_operation *operation)
{
    operation->state = OPERATION_QUEUED;
    append(&named->first_queued, &named->last_queued, operation);
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

enum pl_status pl_operation_run(struct pl_named *named, struct pl_operation *operation, struct pl_error *reterr)
{
    struct pl_named_entry *entry = operation->entry;

    operation->state = OPERATION_RUNNING;
    if (operation->request) { /* from now on the engine cancels it */
        append(&named->first_running, &named->last_running, operation);
    }
    pl_operation_agree(named, operation);
    PL_TRY(pl_named_table_retire(&named->table, entry, true, reterr));
    if (!operation->request && !operation->submission) {
        /* in device memory rounds go on, and the others may use the name again before the end */
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

/* Releases what the engine has made for an operation. A message may still come to it if the world has leaked. */
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

void pl_named_submission_ended(struct pl_named *named, struct pl_named_submission *submission)
{
    if (submission->ready) {
        pl_device_event_release(PL_TAKE(submission->ready));
    }
    if (submission->kind != SUBMISSION_OPERATIONS) { /* the service looks after these */
        return;
    }
    submission->next = NULL;
    *(named->last_ended ? &named->last_ended->next : &named->first_ended) = submission;
    named->last_ended = submission;
}

void pl_operation_end(struct pl_named *named, struct pl_operation *operation, enum pl_status status,
                      const char *failure)
{
    struct pl_named_submission *submission = operation->submission;
    struct pl_named_entry *entry = operation->entry;
    bool is_detached = operation->is_detached;

    operation->state = OPERATION_ENDED;
    release(named, operation);
    operation->entry = entry && entry->known ? entry : NULL; /* another one may be gone at once */
    if (!submission) {
        operation->next = named->spare;
        named->spare = operation;
    } else if (!is_detached) {
        entry->local = NULL;
    }
    if (entry && !is_detached) {
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
        pl_named_submission_ended(named, submission);
    }
}

/* What is left of a submission in the engine ends without it: the engine has failed, or the program frees it. */
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

void pl_operations_done(struct pl_named *named)
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
}
