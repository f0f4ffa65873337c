/* SPDX-License-Identifier: Apache-2.0 */
/* A step of the leader: it hands operations over to the engines, advances them, and reports what has ended. */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/device.h"
#include "runtime/named/queue.h"
#include "runtime/named/rounds.h"
#include "runtime/named/service_private.h"

#include <stdlib.h>
#include <string.h>

/* How long ended operations are held back for others that end in the same round. */
static const int64_t KEEP_NS = PL_NS_PER_MS;

void pl_service_item_free(struct pl_service_item *item)
{
    pl_device_event_drop(item->ready);
    free(item->splits);
    free(item);
}

void pl_service_drop_name(struct pl_service_item *item)
{
    if (item->name) {
        *item->name_at = item->next_of_name;
        if (item->next_of_name) {
            item->next_of_name->name_at = item->name_at;
        }
        item->name = NULL;
    }
}

static void taken_append(struct pl_service *service, struct pl_service_item *item)
{
    item->next_taken = service->first_taken;
    item->previous_taken = NULL;
    if (service->first_taken) {
        service->first_taken->previous_taken = item;
    }
    service->first_taken = item;
}

static void taken_remove(struct pl_service *service, struct pl_service_item *item)
{
    *(item->previous_taken ? &item->previous_taken->next_taken : &service->first_taken) = item->next_taken;
    if (item->next_taken) {
        item->next_taken->previous_taken = item->previous_taken;
    }
}

/* Adds `item` to the ended items; its completion has the status. */
static void end(struct pl_service_item *item, struct pl_service_item ***end_at)
{
    item->next = NULL;
    **end_at = item;
    *end_at = &item->next;
}

/* From now on no stream can follow an item that fails; if one does, the caller is told. */
static void lose(struct pl_named_operation *operation, const struct pl_error *error)
{
    struct pl_service_item *item = PL_CONTAINER_OF(operation, struct pl_service_item, operation);
    struct pl_completion *completion = item->completion;
    bool is_followed;

    pthread_mutex_lock(&item->service->lock);
    completion->launched = NULL;
    is_followed = completion->is_followed;
    if (is_followed) {
        completion->status = error->status;
        completion->error = *error;
    }
    pthread_mutex_unlock(&item->service->lock);
    if (is_followed) {
        completion->lost(completion);
        pthread_mutex_lock(&item->service->lock);
        completion->is_followed = false; /* it was told */
        pthread_mutex_unlock(&item->service->lock);
    }
}

static enum pl_status hand_over(struct pl_service *service, struct pl_service_item *item)
{
    struct pl_error *error = &item->completion->error;

    if (pl_service_set_named(service, item->number, &item->named, NULL) != PL_OK) {
        return pl_error_set(error, PL_INVALID, "'%s': process set %d was removed before it began",
                            item->name ? item->name : "an operation", item->number);
    }
    switch (item->kind) {
    case SERVICE_OPERATIONS:
        item->service = service;
        item->operation.results = item->completion->results;
        item->operation.is_listed = true;
        item->operation.lose = item->completion->lost ? lose : NULL;
        return pl_named_enter(item->named, item->name, item->grouped, item->ops, item->count, &item->ready,
                              &item->operation, error);
    case SERVICE_JOIN:
        PL_TRY(pl_named_refuse_ended(item->named, error));
        item->named->joining = true;
        item->named->join_announced = false;
        service->join = item;
        return PL_OK;
    case SERVICE_ADD_SET:
    case SERVICE_REMOVE_SET:
        service->set_change = item; /* see begin_change() */
        return PL_OK;
    }
    PL_BUG_IF(true);
    return PL_INVALID;
}

/* Returns true if there was an item. */
static bool take(struct pl_service *service, struct pl_service_item ***end_at)
{
    struct pl_service_item *item, *next;
    bool leaving, any;

    pthread_mutex_lock(&service->lock);
    item = service->synced.first;
    service->synced.first = service->synced.last = NULL;
    service->synced.bytes = 0;
    service->synced.urgent = false;
    leaving = service->synced.leaving;
    pthread_mutex_unlock(&service->lock);
    any = item;
    for (; item; item = next) {
        next = item->next;
        item->completion->status = hand_over(service, item);
        if (item->completion->status != PL_OK && !item->operation.is_entered) {
            end(item, end_at);
        } else {
            taken_append(service, item);
        }
    }
    for (struct pl_named *named = service->all; named && leaving; named = named->next) {
        named->leaving = true;
    }
    return any;
}

static void end_taken(struct pl_service *service, struct pl_service_item *item, struct pl_service_item ***end_at)
{
    taken_remove(service, item);
    end(item, end_at);
}

/*
 * Call when the fence has ended, with or without an error: no round is in flight on any rank, and earlier operations
 * have ended.
 */
static void change_sets(struct pl_service *service, struct pl_service_item ***end_at)
{
    struct pl_service_item *item = service->set_change;
    struct pl_completion *completion = item->completion;

    completion->status = pl_named_operation_end(item->named, &item->operation, &completion->error);
    if (completion->status == PL_OK) {
        pthread_mutex_lock(&service->lock); /* other threads look up sets */
        completion->status =
            item->kind == SERVICE_ADD_SET
                ? pl_service_sets_add(service, item->ranks, item->rank_count, item->set, &completion->error)
                : pl_service_sets_remove(service, *item->set, &completion->error);
        pthread_mutex_unlock(&service->lock);
    }
    service->all->held = false;
    service->set_change = NULL;
    end_taken(service, item, end_at);
}

static void end_operations(struct pl_service *service, struct pl_service_item *item, struct pl_service_item ***end_at)
{
    /* From now on no stream can follow it. The set with its events may be removed before the item is reported. */
    pthread_mutex_lock(&service->lock);
    item->completion->launched = NULL;
    item->completion->status = pl_named_operation_end(item->named, &item->operation, &item->completion->error);
    pthread_mutex_unlock(&service->lock);
    item->completion->has_leaked = item->completion->status != PL_OK && pl_world_has_leaked(item->named->world);
    end_taken(service, item, end_at);
}

/* Collects the ended items of `named`; after a failure of the world, all items. */
static void collect(struct pl_service *service, struct pl_named *named, struct pl_service_item ***end_at)
{
    struct pl_named_operation *operation = PL_TAKE(named->first_ended), *ended = NULL;
    struct pl_service_item *next;

    if (named->failure.status != PL_OK) {
        for (struct pl_service_item *item = service->first_taken; item; item = next) {
            next = item->next_taken;
            if (item->kind == SERVICE_OPERATIONS && item->named == named) {
                end_operations(service, item, end_at);
            }
        }
        return;
    }
    while (operation) { /* the list begins with the last one */
        struct pl_named_operation *before = operation->next_ended;

        operation->next_ended = ended;
        ended = operation;
        operation = before;
    }
    for (; ended; ended = operation) {
        operation = ended->next_ended;
        end_operations(service, PL_CONTAINER_OF(ended, struct pl_service_item, operation), end_at);
    }
}

/* Lets threads that wait in pl_service_follow() go on. After a failure they learn of that. */
static void collect_launched(struct pl_service *service, struct pl_named *named)
{
    if (named->first_launched && named->failure.status == PL_OK) {
        pthread_mutex_lock(&service->lock);
        for (struct pl_named_operation *operation = named->first_launched; operation;
             operation = operation->next_launched) {
            struct pl_service_item *item = PL_CONTAINER_OF(operation, struct pl_service_item, operation);

            item->completion->launched = item;
            item->completion->is_launched = true;
        }
        pthread_cond_broadcast(&service->changed);
        pthread_mutex_unlock(&service->lock);
    }
    named->first_launched = NULL;
}

/*
 * Holds ended items back for a moment. If the many small operations of a round were reported one by one, each report
 * would wake a thread of a framework, which takes the processor from ranks that are still behind. A thread that waits
 * in the library is woken at once.
 */
static bool keeps_back(struct pl_service *service, const struct pl_named *named, bool block)
{
    if (block || !named->first_ended || !named->first_batch || named->failure.status != PL_OK) {
        return false;
    }
    service->kept_ns = service->kept_ns ? service->kept_ns : pl_clock_now_ns();
    return pl_clock_now_ns() - service->kept_ns < KEEP_NS;
}

/*
 * Submits the fence of a change of the sets. Before a set is removed, what streams of the program follow in it has to
 * end on this rank. No fence ends before every rank has submitted it, so then this is so on all ranks, and none of them
 * waits for another in pl_service_sets_remove() meanwhile.
 */
static void begin_change(struct pl_service *service, struct pl_service_item ***end_at)
{
    static const struct pl_named_op fence = {.name = "process sets", .kind = PL_BARRIER, .flags = NAMED_FENCE};
    struct pl_service_item *item = service->set_change;
    struct pl_named *removed = NULL;

    if (item->kind == SERVICE_REMOVE_SET && *item->set > 0 &&
        pl_service_set_named(service, *item->set, &removed, NULL) == PL_OK && pl_named_name_agreed(removed) &&
        service->all->failure.status == PL_OK) {
        return;
    }
    item->completion->status =
        pl_named_enter(item->named, fence.name, false, &fence, 1, &(struct pl_device_event *){NULL}, &item->operation,
                       &item->completion->error);
    if (!item->operation.is_entered) {
        service->set_change = NULL;
        end_taken(service, item, end_at);
    }
}

/* Collects ended joins and changes of the sets, which are not in an engine's list. */
static void collect_others(struct pl_service *service, struct pl_service_item ***end_at)
{
    struct pl_named *all = service->all;
    struct pl_service_item *join = service->join;

    if (join && (!all->joining || all->left || all->failure.status != PL_OK)) {
        join->completion->status = all->joining ? pl_named_refuse_ended(all, &join->completion->error) : PL_OK;
        join->completion->last_joined_rank = all->join_last_rank;
        all->joining = false;
        service->join = NULL;
        end_taken(service, join, end_at);
    }
    if (service->set_change && !service->set_change->operation.is_entered) {
        begin_change(service, end_at);
    }
    if (service->set_change && service->set_change->operation.is_entered &&
        pl_named_operation_has_ended(all, &service->set_change->operation) &&
        ((!all->first_batch && !all->device.first) || all->failure.status != PL_OK)) {
        change_sets(service, end_at);
    }
}

/* Reports the ended items. Call it without the lock, which it takes itself and releases for callbacks. */
static void report(struct pl_service *service, struct pl_service_item *ended)
{
    struct pl_service_item *calls = NULL, **call_at = &calls, *lost = NULL, **lost_at = &lost, *next;

    if (!ended) {
        return;
    }
    pthread_mutex_lock(&service->lock);
    for (struct pl_service_item *item = ended; item; item = next) {
        next = item->next;
        pl_service_drop_name(item);
        if (item->kind == SERVICE_JOIN) {
            service->synced.joining = false;
        } else if (item->kind != SERVICE_OPERATIONS) {
            service->synced.changing_sets = false;
        }
        service->synced.outstanding--;
        item->completion->launched = NULL;
        if (item->completion->call) {
            service->synced.calls--;
            end(item, &call_at);
        } else if (item->completion->is_followed && item->completion->status != PL_OK && !service->synced.stop) {
            end(item, &lost_at);
        } else {
            item->completion->done = item->completion->is_launched = true;
            pl_service_item_free(item);
        }
    }
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->lock);
    for (struct pl_service_item *item = calls; item; item = next) {
        next = item->next;
        item->completion->call(item->completion);
        pl_service_item_free(item);
    }
    for (struct pl_service_item *item = lost; item; item = next) {
        next = item->next;
        item->completion->lost(item->completion);
        pthread_mutex_lock(&service->lock);
        item->completion->done = item->completion->is_launched = true;
        pthread_cond_broadcast(&service->changed);
        pthread_mutex_unlock(&service->lock);
        pl_service_item_free(item);
    }
}

/* Returns whether the engine has ended. */
static bool advance(struct pl_named *named, bool block)
{
    if (pl_named_has_work(named) || pl_named_needs_round(named) || named->first_batch || named->device.first ||
        named->round.request) {
        pl_named_progress(named, block, NULL); /* `named` keeps a failure */
    }
    return named->failure.status != PL_OK || (named->left && !named->first_batch && !named->device.first);
}

bool pl_service_step(struct pl_service *service, bool block)
{
    struct pl_service_item *ended = NULL, **end_at = &ended;
    uint64_t moves = 0;
    bool left = true, kept = false, moved = take(service, &end_at);

    for (struct pl_named *named = service->all; named; named = named->next) {
        /*
         * With one engine a wait in it holds nothing up: whatever is submitted meanwhile needs its next round, which
         * begins after what is under way, except in device memory.
         */
        left = advance(named, block && !service->all->next && !ended && !named->device.first) && left;
        collect_launched(service, named);
        if (keeps_back(service, named, block)) {
            kept = true;
        } else {
            collect(service, named, &end_at);
        }
        moves += named->moves;
    }
    service->kept_ns = kept ? service->kept_ns : 0;
    collect_others(service, &end_at);
    moved = moved || ended || moves != service->moves;
    service->moves = moves;
    if (moved || !service->moved_ns) {
        service->moved_ns = pl_clock_now_ns();
        service->reported_ns = 0;
    }
    report(service, ended);
    for (struct pl_named *named = service->all; named; named = named->next) {
        pl_named_device_abort(named); /* what streams of the program follow was reported as lost */
    }
    if (left) {
        pthread_mutex_lock(&service->lock);
        service->synced.left = true;
        pthread_cond_broadcast(&service->changed);
        pthread_mutex_unlock(&service->lock);
    }
    return moved;
}

int64_t pl_service_idle_ns(struct pl_service *service)
{
    int64_t idle_ns = pl_clock_now_ns() - service->moved_ns;
    struct pl_named *named = service->all;

    while (named && !pl_named_has_work(named)) {
        named = named->next;
    }
    if (named) {
        pl_world_report_wait(named->world, idle_ns, &service->reported_ns,
                             &(struct pl_about){.append = pl_named_append_awaited, .subject = named});
    }
    return idle_ns;
}

void pl_service_end_all(struct pl_service *service, const struct pl_error *error)
{
    struct pl_service_item *ended = NULL, **end_at = &ended, *next;

    for (struct pl_service_item *item = service->first_taken; item; item = next) {
        next = item->next_taken;
        if (item->operation.is_entered) {
            (void)!pl_named_operation_end(item->named, &item->operation, NULL);
        }
        item->completion->status = error->status;
        item->completion->error = *error;
        end_taken(service, item, &end_at);
    }
    pthread_mutex_lock(&service->lock);
    *end_at = service->synced.first;
    service->synced.first = service->synced.last = NULL;
    pthread_mutex_unlock(&service->lock);
    for (struct pl_service_item *item = *end_at; item; item = item->next) {
        item->completion->status = error->status;
        item->completion->error = *error;
    }
    report(service, ended);
}
