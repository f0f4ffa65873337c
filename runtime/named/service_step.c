/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of the leader: without the lock it hands operations over to the engines and advances them; under the lock it
 * collects and reports ended operations.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/device.h"
#include "runtime/named/operation.h"
#include "runtime/named/service_private.h"

#include <stdlib.h>
#include <string.h>

/* How long ended operations are held back, so that operations of the same round are reported together. */
static const int64_t KEEP_NS = PL_NS_PER_MS;

static void taken_prepend(struct pl_service *service, struct pl_named_submission *submission)
{
    submission->next_taken = service->first_taken;
    submission->previous_taken = NULL;
    if (service->first_taken) {
        service->first_taken->previous_taken = submission;
    }
    service->first_taken = submission;
}

/* Appends a submission to the list of ended ones; its completion has the status. */
static void end(struct pl_named_submission *submission, struct pl_named_submission ***end_at)
{
    submission->next = NULL;
    **end_at = submission;
    *end_at = &submission->next;
}

/* Ends a submission that was taken; its completion has the status. */
static void end_taken(struct pl_service *service, struct pl_named_submission *submission,
                      struct pl_named_submission ***end_at)
{
    *(submission->previous_taken ? &submission->previous_taken->next_taken : &service->first_taken) =
        submission->next_taken;
    if (submission->next_taken) {
        submission->next_taken->previous_taken = submission->previous_taken;
    }
    end(submission, end_at);
}

/* Prevents streams from following a failed submission. If one follows it already, calls the completion's `lost`. */
static void lose(struct pl_named_submission *submission, const struct pl_error *error)
{
    struct pl_completion *completion = submission->completion;
    struct pl_service *service = submission->service;
    bool is_followed;

    pthread_mutex_lock(&service->lock);
    completion->launched = NULL;
    is_followed = completion->is_followed;
    if (is_followed) {
        completion->status = error->status;
        completion->error = *error;
    }
    pthread_mutex_unlock(&service->lock);
    if (is_followed) {
        completion->lost(completion);
        pthread_mutex_lock(&service->lock);
        completion->is_followed = false; /* `lost` was called */
        pthread_mutex_unlock(&service->lock);
    }
}

static enum pl_status hand_over(struct pl_service *service, struct pl_named_submission *submission)
{
    struct pl_error *error = &submission->completion->error;

    if (!submission->named) {
        return pl_error_set(error, PL_INVALID, "'%s': process set %d was removed before it began",
                            submission->name ? submission->name : "an operation", submission->number);
    }
    switch (submission->kind) {
    case SUBMISSION_OPERATIONS:
        submission->lose = submission->completion->lost ? lose : NULL;
        return pl_named_enter(submission->named, submission, submission->of_name ? submission->of_name->entry : NULL,
                              error);
    case SUBMISSION_JOIN:
        PL_TRY(pl_named_refuse_ended(submission->named, error));
        submission->named->joining = true;
        submission->named->join_announced = false;
        service->join = submission;
        return PL_OK;
    case SUBMISSION_ADD_SET:
    case SUBMISSION_REMOVE_SET:
        service->set_change = submission; /* see begin_change() */
        return PL_OK;
    }
    PL_BUG_IF(true);
    return PL_INVALID;
}

/* Hands the new submissions over to their engines. */
static void take(struct pl_service *service, struct pl_named_submission *submitted,
                 struct pl_named_submission ***end_at)
{
    for (struct pl_named_submission *submission = submitted, *next; submission; submission = next) {
        next = submission->next;
        submission->completion->status = hand_over(service, submission);
        if (submission->completion->status != PL_OK) {
            end(submission, end_at);
        } else {
            taken_prepend(service, submission);
        }
    }
}

/*
 * Call it after the fence has ended, with or without an error: no round is in flight on any rank, and all earlier
 * operations have ended.
 */
static void change_sets(struct pl_service *service, struct pl_named_submission ***end_at)
{
    struct pl_named_submission *submission = service->set_change;
    struct pl_completion *completion = submission->completion;

    completion->status = pl_named_submission_end(submission->named, submission, &completion->error);
    if (completion->status == PL_OK) {
        completion->status = submission->kind == SUBMISSION_ADD_SET
                                 ? pl_service_sets_add(service, submission->ranks, submission->rank_count,
                                                       submission->set, &completion->error)
                                 : pl_service_sets_remove(service, *submission->set, &completion->error);
    }
    service->all->held = false;
    service->set_change = NULL;
    end_taken(service, submission, end_at);
}

/* Stores the entry of a name that all ranks know, so that the next submission needs no look-up in the engine. */
static void remember(struct pl_named_submission *submission)
{
    struct pl_named_entry *entry = submission->is_grouped ? NULL : submission->operations[0].entry;

    if (entry && entry->known) {
        submission->of_name->entry = entry;
    }
}

static void end_operations(struct pl_service *service, struct pl_named_submission *submission,
                           struct pl_named_submission ***end_at)
{
    struct pl_completion *completion = submission->completion;

    completion->launched = NULL; /* the set that owns the event may be removed before the submission is reported */
    if (submission->of_name && !submission->of_name->entry) {
        remember(submission);
    }
    completion->status = pl_named_submission_end(submission->named, submission, &completion->error);
    completion->has_leaked = completion->status != PL_OK && pl_world_has_leaked(submission->named->world);
    end_taken(service, submission, end_at);
}

/* Collects the ended submissions of `named`; if the world has failed, all submissions. */
static void collect(struct pl_service *service, struct pl_named *named, struct pl_named_submission ***end_at)
{
    struct pl_named_submission *ended = PL_TAKE(named->first_ended), *next;

    named->last_ended = NULL;
    for (; ended && named->failure.status == PL_OK; ended = next) {
        next = ended->next;
        end_operations(service, ended, end_at);
    }
    for (ended = service->first_taken; ended && named->failure.status != PL_OK; ended = next) {
        next = ended->next_taken;
        if (ended->kind == SUBMISSION_OPERATIONS && ended->named == named) {
            end_operations(service, ended, end_at);
        }
    }
}

/* Wakes the threads in pl_service_follow() whose submissions are launched; after a failure they get the error. */
static void collect_launched(struct pl_service *service, struct pl_named *named)
{
    struct pl_named_submission *launched = PL_TAKE(named->first_launched);

    for (; launched && named->failure.status == PL_OK; launched = launched->next_launched) {
        launched->completion->launched = launched;
        launched->completion->is_launched = true;
        if (launched->of_name && !launched->of_name->entry) {
            remember(launched);
        }
        pthread_cond_broadcast(&service->changed);
    }
}

/*
 * Returns whether to hold back ended submissions for a moment. If each small operation of a round were reported alone,
 * each report would wake a framework's thread, which takes the processor from ranks that are late. A thread
 * that waits in the library is woken at once.
 */
static bool keeps_back(struct pl_service *service, const struct pl_named *named)
{
    if (!named->first_ended || !named->first_running || named->failure.status != PL_OK) {
        return false;
    }
    service->kept_ns = service->kept_ns ? service->kept_ns : pl_clock_now_ns();
    return pl_clock_now_ns() - service->kept_ns < KEEP_NS;
}

/*
 * Submits the fence of a change of the sets. Before a set is removed, operations in it that streams follow must have
 * ended on this rank. The fence ends only after every rank has submitted it, so they have ended on all ranks, and no
 * rank waits for another in pl_service_sets_remove().
 */
static void begin_change(struct pl_service *service, struct pl_named_submission ***end_at)
{
    struct pl_named_submission *submission = service->set_change;
    struct pl_named *removed = NULL;

    if (submission->kind == SUBMISSION_REMOVE_SET && *submission->set > 0 &&
        pl_service_set_named(service, *submission->set, &removed, NULL) == PL_OK && pl_named_name_agreed(removed) &&
        service->all->failure.status == PL_OK) {
        return;
    }
    submission->completion->status =
        pl_named_enter(submission->named, submission, NULL, &submission->completion->error);
    if (submission->completion->status != PL_OK) {
        service->set_change = NULL;
        end_taken(service, submission, end_at);
    }
}

/* Collects ended joins and changes of the sets, which no engine lists. */
static void collect_others(struct pl_service *service, struct pl_named_submission ***end_at)
{
    struct pl_named *all = service->all;
    struct pl_named_submission *join = service->join;

    if (join && (!all->joining || all->left || all->failure.status != PL_OK)) {
        join->completion->status = all->joining ? pl_named_refuse_ended(all, &join->completion->error) : PL_OK;
        join->completion->last_joined_rank = all->join_last_rank;
        all->joining = false;
        service->join = NULL;
        end_taken(service, join, end_at);
    }
    if (service->set_change && !service->set_change->is_entered) {
        begin_change(service, end_at);
    }
    if (service->set_change && service->set_change->is_entered &&
        pl_named_submission_has_ended(all, service->set_change) &&
        ((!all->first_running && !all->device.first) || all->failure.status != PL_OK)) {
        change_sets(service, end_at);
    }
}

/* Reports the ended submissions. Releases the lock while it calls callbacks. */
static void report(struct pl_service *service, struct pl_named_submission *ended)
{
    struct pl_named_submission *calls = NULL, **call_at = &calls, *lost = NULL, **lost_at = &lost, *next;

    for (struct pl_named_submission *submission = ended; submission; submission = next) {
        struct pl_completion *completion = submission->completion;

        next = submission->next;
        pl_service_drop_name(service, submission);
        if (submission->kind == SUBMISSION_JOIN) {
            service->synced.joining = false;
        } else if (submission->kind != SUBMISSION_OPERATIONS) {
            service->synced.changing_sets = false;
        }
        service->synced.outstanding--;
        completion->launched = NULL;
        if (completion->call) {
            service->synced.calls--;
            end(submission, &call_at);
        } else if (completion->is_followed && completion->status != PL_OK && !service->synced.stop) {
            end(submission, &lost_at);
        } else {
            completion->done = completion->is_launched = true;
            pl_service_submission_free(submission);
        }
    }
    pthread_cond_broadcast(&service->changed);
    if (!calls && !lost) {
        return;
    }
    pthread_mutex_unlock(&service->lock);
    for (struct pl_named_submission *submission = calls; submission; submission = submission->next) {
        submission->completion->call(submission->completion);
    }
    for (struct pl_named_submission *submission = lost; submission; submission = submission->next) {
        submission->completion->lost(submission->completion);
    }
    pthread_mutex_lock(&service->lock);
    for (struct pl_named_submission *submission = lost; submission; submission = submission->next) {
        submission->completion->done = submission->completion->is_launched = true;
    }
    pthread_cond_broadcast(&service->changed);
    *call_at = lost;
    for (struct pl_named_submission *submission = calls; submission; submission = next) {
        next = submission->next;
        pl_service_submission_free(submission);
    }
}

/* Ends the device work of failed engines. Operations that streams follow there were reported as lost before. */
static void abort_failed(struct pl_service *service)
{
    for (struct pl_named *named = service->all; named; named = named->next) {
        if (named->failure.status != PL_OK) {
            pthread_mutex_unlock(&service->lock);
            pl_named_device_abort(named);
            pthread_mutex_lock(&service->lock);
        }
    }
}

bool pl_service_step(struct pl_service *service, bool block)
{
    struct pl_named_submission *submitted = PL_TAKE(service->synced.first), *ended = NULL, **end_at = &ended;
    bool leaving = service->synced.leaving, left = true, kept = false, failed = false, moved = submitted,
         under_way = false;
    uint64_t moves = 0;

    service->synced.last = NULL;
    service->synced.bytes = 0;
    service->synced.urgent = false;
    pthread_mutex_unlock(&service->lock);
    take(service, submitted, &end_at);
    for (struct pl_named *named = service->all; named; named = named->next) {
        named->leaving = named->leaving || leaving;
        /*
         * With one engine, waiting in it delays nothing: new submissions need its next round, which begins after the
         * operations in flight, except for those in device memory.
         */
        pl_named_progress(named, block && !service->all->next && !ended && !named->device.first, NULL);
        moves += named->moves;
        failed = failed || named->failure.status != PL_OK;
        under_way = under_way || named->first_queued || named->first_running;
        left =
            left && (named->failure.status != PL_OK || (named->left && !named->first_running && !named->device.first));
    }
    pthread_mutex_lock(&service->lock);
    service->synced.under_way = under_way;
    for (struct pl_named *named = service->all; named; named = named->next) {
        if (named->first_launched) {
            collect_launched(service, named);
        }
        if (!block && keeps_back(service, named)) {
            kept = true;
        } else {
            collect(service, named, &end_at);
        }
    }
    service->kept_ns = kept ? service->kept_ns : 0;
    if (service->join || service->set_change) {
        collect_others(service, &end_at);
    }
    moved = moved || ended || moves != service->moves;
    service->moves = moves;
    if (moved) {
        service->moved_ns = service->reported_ns = 0;
    }
    if (ended) {
        report(service, ended);
    }
    if (failed) {
        abort_failed(service);
    }
    if (left) {
        service->synced.left = true;
        pthread_cond_broadcast(&service->changed);
    }
    return moved;
}

int64_t pl_service_idle_ns(struct pl_service *service)
{
    int64_t now_ns = pl_clock_now_ns(), idle_ns;
    struct pl_named *named = service->all;

    service->moved_ns = service->moved_ns ? service->moved_ns : now_ns;
    idle_ns = now_ns - service->moved_ns;
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
    struct pl_named_submission *ended = NULL, **end_at = &ended, *next;

    for (struct pl_named_submission *submission = service->first_taken; submission; submission = next) {
        next = submission->next_taken;
        if (submission->is_entered) {
            (void)!pl_named_submission_end(submission->named, submission, NULL);
        }
        submission->completion->status = error->status;
        submission->completion->error = *error;
        end_taken(service, submission, &end_at);
    }
    *end_at = PL_TAKE(service->synced.first);
    service->synced.last = NULL;
    for (struct pl_named_submission *submission = *end_at; submission; submission = submission->next) {
        submission->completion->status = error->status;
        submission->completion->error = *error;
    }
    report(service, ended);
}
