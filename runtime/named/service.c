/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of service.h: submission from any thread, waiting, and the thread that drives the engines if no other
 * thread does.
 */
#include "runtime/service.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/named/operation.h"
#include "runtime/named/service_private.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_START_BYTES = 1 << 20,
    SMALL_BYTES = 1 << 10, /* largest submission whose memory is reused: one operation with a name of 255 bytes */
};
_Static_assert(SMALL_BYTES >= sizeof(struct pl_named_submission) + sizeof(struct pl_operation) + 256, "too small");

/* How long the service's thread leaves a submission to a thread that may soon wait for it. It doubles with each look
 * that was not needed: a look takes the processor from a program. Between hosts a late start costs more. */
static const int64_t WATCH_SHORTEST_NS = PL_NS_PER_MS;
static const int64_t WATCH_LONGEST_NS = 8 * PL_NS_PER_MS;
/* How long a waiting thread polls before its first nap, and the shortest and longest naps. */
static const int64_t LOOK_NS = 160 * PL_NS_PER_US;
static const int64_t WAIT_NAP_SHORTEST_NS = 20 * PL_NS_PER_US;
static const int64_t WAIT_NAP_LONGEST_NS = 2 * PL_NS_PER_MS;
/*
 * The same for the service's thread, which runs beside a program that computes. It polls only while operations have
 * callbacks, because a thread often waits for one.
 */
static const int64_t THREAD_LOOK_NS = 100 * PL_NS_PER_US;
static const int64_t THREAD_NAP_SHORTEST_NS = 50 * PL_NS_PER_US;
static const int64_t THREAD_NAP_LONGEST_NS = 10 * PL_NS_PER_MS;

/*
 * Returns whether to poll again: true until nothing has moved for `look_ns`. Call it under the lock, which it releases
 * meanwhile for other threads.
 */
static bool looks_again(struct pl_service *service, int64_t idle_ns, int64_t look_ns)
{
    bool looks = idle_ns < look_ns;

    if (looks) {
        pthread_mutex_unlock(&service->lock);
        sched_yield();
        pthread_mutex_lock(&service->lock);
    }
    return looks;
}

/* Lets the service's thread nap after a step without progress. Call it under the lock, which it releases meanwhile. */
static void thread_nap(struct pl_service *service)
{
    int64_t idle_ns = pl_service_idle_ns(service);

    if (!looks_again(service, idle_ns, service->synced.calls > 0 ? THREAD_LOOK_NS : 0)) {
        pl_deadline_wait(pl_clock_now_ns() +
                             pl_clock_backoff_ns(idle_ns, THREAD_NAP_SHORTEST_NS, THREAD_NAP_LONGEST_NS),
                         &service->work, &service->lock);
    }
}

struct watch {
    uint64_t calls;   /* of the program until the last look */
    int64_t since_ns; /* time since when no other thread leads what is in flight; 0: one may, or nothing is */
    int64_t watch_ns; /* time until the next look */
};

/* Returns whether the service's thread is to lead now; sleeps if nothing is in flight. Call it under the lock. */
static bool thread_may_lead(struct pl_service *service, struct watch *watch)
{
    int64_t deadline_ns = PL_DEADLINE_NEVER;

    if (service->synced.outstanding == 0 || service->synced.leads || service->synced.waiters > 0) {
        watch->since_ns = 0;
        if (watch->calls != service->synced.calls_made) { /* a program that calls again need not wake this thread */
            deadline_ns = pl_clock_now_ns() + watch->watch_ns;
        }
        watch->calls = service->synced.calls_made;
    } else {
        watch->since_ns = watch->since_ns ? watch->since_ns : pl_clock_now_ns();
        watch->since_ns = watch->since_ns > service->synced.begun_ns ? watch->since_ns : service->synced.begun_ns;
        deadline_ns = watch->since_ns + watch->watch_ns;
        if (service->synced.urgent || service->synced.calls > 0 || pl_deadline_passed(deadline_ns)) {
            watch->watch_ns = WATCH_SHORTEST_NS;
            return true;
        }
    }
    if (2 * watch->watch_ns <= WATCH_LONGEST_NS && pl_world_cross_size(service->world) == 1) {
        watch->watch_ns *= 2;
    }
    service->synced.thread_sleeps = deadline_ns == PL_DEADLINE_NEVER;
    pl_deadline_wait(deadline_ns, &service->work, &service->lock);
    service->synced.thread_sleeps = false;
    return false;
}

static void *lead(void *service_at)
{
    struct pl_service *service = service_at;
    struct watch watch = {.watch_ns = WATCH_SHORTEST_NS};

    pthread_mutex_lock(&service->lock);
    while (!service->synced.stop) {
        bool moved;

        if (!thread_may_lead(service, &watch)) {
            continue;
        }
        service->synced.leads = true;
        moved = pl_service_step(service, false);
        service->synced.leads = false;
        if (service->synced.waiters > 0) {
            pthread_cond_broadcast(&service->changed);
        } else if (!moved && service->synced.outstanding > 0 && !service->synced.urgent && !service->synced.stop) {
            thread_nap(service);
        }
    }
    pthread_mutex_unlock(&service->lock);
    return NULL;
}

enum pl_status pl_service_new(struct pl_world *world, const struct pl_named_options *options,
                              struct pl_service **ret_service, struct pl_error *reterr)
{
    struct pl_service *service;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&service, 1, sizeof(*service), reterr));
    if (options) {
        service->options = *options;
    }
    if (service->options.start_bytes == 0) {
        service->options.start_bytes = DEFAULT_START_BYTES;
    }
    service->world = world;
    pthread_mutex_init(&service->lock, NULL);
    pthread_mutex_init(&service->opening, NULL);
    pthread_cond_init(&service->changed, NULL);
    pthread_cond_init(&service->work, NULL);
    status = pl_service_sets_new(service, reterr);
    if (status == PL_OK) {
        status = pl_thread_start(&service->thread, lead, service, "the thread of named tensors", reterr);
        service->has_thread = status == PL_OK;
    }
    if (status != PL_OK) {
        pl_service_free(service);
        return status;
    }
    *ret_service = service;
    return PL_OK;
}

static void stop_thread(struct pl_service *service)
{
    if (service->has_thread) {
        pthread_mutex_lock(&service->lock);
        service->synced.stop = true;
        pthread_cond_signal(&service->work);
        pthread_mutex_unlock(&service->lock);
        pthread_join(service->thread, NULL);
        service->has_thread = false;
    }
}

bool pl_service_take_lead(struct pl_service *service, bool stops, int64_t deadline_ns)
{
    bool leads = false;

    while (!leads && !pl_deadline_passed(deadline_ns)) {
        if (pthread_mutex_trylock(&service->lock) == 0) {
            leads = !service->synced.leads;
            service->synced.leads = true;
            service->synced.aborts_until_ns = deadline_ns;
            if (stops) {
                service->synced.stop = true;
                pthread_cond_signal(&service->work);
            }
            pthread_mutex_unlock(&service->lock);
        }
        if (!leads) {
            pl_clock_nap(WAIT_NAP_SHORTEST_NS, deadline_ns);
        }
    }
    return leads;
}

void pl_service_leave_lead(struct pl_service *service)
{
    pthread_mutex_lock(&service->lock);
    service->synced.leads = false;
    service->synced.aborts_until_ns = 0;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->lock);
}

/* Joins the service's own thread after it was told to end. */
static void join_thread(struct pl_service *service, int64_t deadline_ns)
{
    while (service->has_thread && !pl_deadline_passed(deadline_ns)) {
        service->has_thread = pthread_tryjoin_np(service->thread, NULL) != 0;
        if (service->has_thread) {
            pl_clock_nap(WAIT_NAP_SHORTEST_NS, deadline_ns);
        }
    }
}

void pl_service_revoke(struct pl_service *service, const struct pl_error *why)
{
    for (struct pl_named *named = service->all; named; named = named->next) {
        if (named->device.world) {
            pl_world_on_failure(named->device.world, NULL, NULL); /* the process ends with its own error */
            pl_world_revoke(named->device.world, why);
        }
        pl_world_revoke(named->world, why);
    }
}

void pl_service_abort(struct pl_service *service, const struct pl_error *why)
{
    const int64_t deadline_ns = pl_deadline_after_ns(PL_NS_PER_S);

    if (!pl_service_take_lead(service, true, deadline_ns)) {
        return;
    }
    pl_service_revoke(service, why);
    pl_service_leave_lead(service);
    join_thread(service, deadline_ns);
}

void pl_service_free(struct pl_service *service)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!service) {
        return;
    }
    stop_thread(service);
    pl_error_set(&error, PL_CANCELLED, "the named tensors were freed");
    pthread_mutex_lock(&service->lock);
    pl_service_end_all(service, &error);
    pthread_mutex_unlock(&service->lock);
    pl_service_sets_free(service);
    for (struct pl_named_submission *spare = service->synced.spare, *next; spare; spare = next) {
        next = spare->next;
        free(spare);
    }
    pl_device_close(service->device);
    pthread_mutex_destroy(&service->opening);
    pthread_cond_destroy(&service->work);
    pthread_cond_destroy(&service->changed);
    pthread_mutex_destroy(&service->lock);
    free(service);
}

/* Wakes the leader if it naps, or the service's thread if no thread leads. Call it under the lock. */
static void wake(struct pl_service *service)
{
    if (service->synced.naps) {
        pthread_cond_broadcast(&service->changed);
    } else if (!service->synced.leads && service->synced.waiters == 0 &&
               (service->synced.thread_sleeps || service->synced.urgent)) {
        pthread_cond_signal(&service->work);
    }
}

/* Queues a submission for the next leader. Call it under the lock. */
static void push(struct pl_service *service, struct pl_named_submission *submission, uint64_t bytes)
{
    struct pl_completion *completion = submission->completion;

    completion->done = completion->is_launched = completion->is_followed = false;
    completion->launched = NULL;
    completion->status = PL_OK;
    *(service->synced.last ? &service->synced.last->next : &service->synced.first) = submission;
    service->synced.last = submission;
    service->synced.outstanding++;
    service->synced.calls_made++;
    service->synced.bytes += bytes;
    service->synced.calls += completion->call ? 1 : 0;
    service->synced.urgent = service->synced.urgent || completion->call;
    wake(service);
}

/*
 * If at least start_bytes were submitted, or operations are under way, leads for one step: tensors are added up while
 * the cache has them. The service's thread would take the processor from a program that computes. Call it under the
 * lock, which it releases meanwhile.
 */
static void begin_much(struct pl_service *service)
{
    if (service->synced.leads || service->synced.calls > 0 || service->synced.aborts_until_ns ||
        (service->synced.bytes < service->options.start_bytes && !service->synced.under_way)) {
        return;
    }
    service->synced.leads = true;
    pl_service_step(service, false);
    service->synced.leads = false;
    service->synced.begun_ns = pl_clock_now_ns();
    if (service->synced.waiters > 0) {
        pthread_cond_broadcast(&service->changed);
    }
}

static enum pl_status refuse_left(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "the named tensors were shut down");
}

/*
 * Makes a submission in one block of memory: its operations, `row_counts` numbers, and a copy of `name`, which may be
 * NULL. A small submission reuses the memory of an earlier one. Call it under the lock.
 */
static struct pl_named_submission *submission_new(struct pl_service *service, enum pl_named_submission_kind kind,
                                                  const char *name, size_t count, size_t row_counts,
                                                  struct pl_completion *completion, struct pl_error *reterr)
{
    size_t bytes =
        sizeof(struct pl_named_submission) + count * sizeof(struct pl_operation) + row_counts * sizeof(uint64_t);
    size_t name_bytes = name ? strlen(name) + 1 : 0;
    bool is_small = bytes + name_bytes <= SMALL_BYTES;
    struct pl_named_submission *submission = is_small ? service->synced.spare : NULL;

    if (submission) {
        service->synced.spare = submission->next;
        memset(submission, 0, bytes);
    } else {
        submission = pl_memory_new(1, is_small ? SMALL_BYTES : bytes + name_bytes, reterr);
    }
    if (submission) {
        submission->name = name ? memcpy((char *)submission + bytes, name, name_bytes) : NULL;
        submission->is_small = is_small;
        submission->kind = kind;
        submission->count = count;
        submission->completion = completion;
        submission->service = service;
    }
    return submission;
}

void pl_service_submission_free(struct pl_named_submission *submission)
{
    if (submission->ready) {
        pl_device_event_drop(submission->ready);
    }
    if (submission->is_small) {
        submission->next = submission->service->synced.spare;
        submission->service->synced.spare = submission;
    } else {
        free(submission);
    }
}

static uint64_t bytes_of(const struct pl_named_op *op)
{
    uint64_t bytes = op->kind == PL_BARRIER ? 0 : pl_dtype_bytes(op->dtype);

    for (unsigned i = 0; i < op->dims; i++) {
        bytes *= op->shape[i]; /* the product was checked for overflow */
    }
    return bytes;
}

/*
 * Checks the operations to submit. `of_name`: the entry of their name; NULL: the name is new. `*ret_rows` becomes the
 * number of their rows and splits. Call it under the lock.
 */
static enum pl_status check(struct pl_service *service, const struct pl_named *named, const char *name,
                            const struct pl_service_name *of_name, const struct pl_named_op *ops, size_t count,
                            size_t *ret_rows, uint64_t *ret_bytes, struct pl_error *reterr)
{
    /* while the name is in flight, the leader may change its entry */
    const struct pl_named_entry *known = of_name && !of_name->submission ? of_name->entry : NULL;

    *ret_rows = 0;
    *ret_bytes = 0;
    if (named == service->all && service->synced.joining) {
        return pl_error_set(reterr, PL_INVALID, "'%s': this rank has joined, and not all ranks have", name);
    }
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == PL_BARRIER && ops[i].flags) {
            return pl_error_set(reterr, PL_INVALID, "'%s': a barrier has no flags", name);
        }
        PL_TRY(pl_named_check(named, &ops[i], name, known, reterr));
        *ret_rows += ops[i].kind == PL_ALLGATHER ? 1 : ops[i].kind == PL_ALLTOALL ? (size_t)named->ranks : 0;
        *ret_bytes += bytes_of(&ops[i]);
    }
    return PL_OK;
}

/* Checks the operations, and marks them and their names as in flight. Call it under the lock. */
static enum pl_status admit(struct pl_service *service, int set, const char *name, const struct pl_named_op *ops,
                            size_t count, bool grouped, struct pl_device_event **ready_at,
                            struct pl_completion *completion, struct pl_error *reterr)
{
    struct pl_service_name *of_name = name ? pl_service_find_name(service, set, name, grouped) : NULL;
    struct pl_named_submission *submission;
    uint64_t bytes, *row_counts;
    struct pl_named *named;
    enum pl_status status;
    size_t rows;

    if (service->synced.leaving) {
        return refuse_left(reterr);
    }
    PL_TRY(pl_service_set_named(service, set, &named, reterr));
    if (completion->ranks && completion->ranks != named->ranks) {
        return pl_error_set(reterr, PL_INVALID, "process set %d has %d ranks now, not %d", set, named->ranks,
                            completion->ranks);
    }
    PL_TRY(check(service, named, name ? name : "an operation", of_name, ops, count, &rows, &bytes, reterr));
    submission = submission_new(service, SUBMISSION_OPERATIONS, name, count, rows, completion, reterr);
    if (!submission) {
        return PL_MEMORY;
    }
    submission->named = named;
    submission->number = set;
    submission->is_grouped = grouped;
    status = name ? pl_service_claim_name(service, of_name, submission, reterr) : PL_OK;
    if (status != PL_OK) {
        pl_service_submission_free(submission);
        return status;
    }
    row_counts = (uint64_t *)(void *)&submission->operations[count];
    for (size_t i = 0; i < count; i++) {
        row_counts += pl_named_define(named, &ops[i], &submission->operations[i], row_counts);
    }
    submission->results = completion->results;
    submission->ready = PL_TAKE(*ready_at);
    push(service, submission, bytes);
    begin_much(service);
    return PL_OK;
}

/* Records the event before taking the lock, because the driver's call may take long and threads wait for the lock. */
static enum pl_status mark_and_admit(struct pl_service *service, int set, const char *name,
                                     const struct pl_named_op *ops, size_t count, bool grouped,
                                     struct pl_completion *completion, struct pl_error *reterr)
{
    struct pl_device_event *ready;
    enum pl_status status;

    status = pl_named_mark(service->all, ops, count, &ready, reterr);
    if (status != PL_OK) {
        pl_error_context(reterr, "submitting '%s'", name ? name : "an operation");
        pl_world_place_error(service->world, service->all->device.device, reterr);
        return status;
    }
    pthread_mutex_lock(&service->lock);
    status = admit(service, set, name, ops, count, grouped, &ready, completion, reterr);
    pthread_mutex_unlock(&service->lock);
    if (ready) {
        pl_device_event_drop(ready);
    }
    return status;
}

enum pl_status pl_service_submit(struct pl_service *service, int set, const struct pl_named_op *op,
                                 struct pl_completion *completion, struct pl_error *reterr)
{
    return mark_and_admit(service, set, op->name, op, 1, false, completion, reterr);
}

enum pl_status pl_service_submit_group(struct pl_service *service, int set, const char *base,
                                       const struct pl_named_op *ops, size_t count, struct pl_completion *completion,
                                       struct pl_error *reterr)
{
    return mark_and_admit(service, set, base, ops, count, true, completion, reterr);
}

/* Queues a join or a change of the sets, unless one is in flight already. Call it under the lock. */
static enum pl_status submit_other(struct pl_service *service, enum pl_named_submission_kind kind, const int *ranks,
                                   int rank_count, int *set, struct pl_completion *completion, struct pl_error *reterr)
{
    static const struct pl_named_op fence = {.kind = PL_BARRIER, .flags = NAMED_FENCE};
    bool joins = kind == SUBMISSION_JOIN,
         *under_way = joins ? &service->synced.joining : &service->synced.changing_sets;
    struct pl_named_submission *submission;

    if (service->synced.leaving) {
        return refuse_left(reterr);
    }
    if (*under_way) {
        return pl_error_set(reterr, PL_INVALID, "%s",
                            joins ? "this rank has joined, and not all ranks have"
                                  : "another thread of this rank is changing the process sets");
    }
    submission = submission_new(service, kind, joins ? NULL : "process sets", joins ? 0 : 1, 0, completion, reterr);
    if (!submission) {
        return PL_MEMORY;
    }
    if (!joins) {
        pl_named_define(service->all, &fence, &submission->operations[0], NULL);
    }
    submission->named = service->all;
    submission->ranks = ranks;
    submission->rank_count = rank_count;
    submission->set = set;
    *under_way = true;
    push(service, submission, 0);
    return PL_OK;
}

enum pl_status pl_service_submit_join(struct pl_service *service, struct pl_completion *completion,
                                      struct pl_error *reterr)
{
    enum pl_status status;

    pthread_mutex_lock(&service->lock);
    status = submit_other(service, SUBMISSION_JOIN, NULL, 0, NULL, completion, reterr);
    pthread_mutex_unlock(&service->lock);
    return status;
}

bool pl_service_poll(struct pl_service *service, const struct pl_completion *completion)
{
    bool done;

    pthread_mutex_lock(&service->lock);
    done = completion->done;
    if (!done && !service->synced.urgent) {
        service->synced.urgent = true;
        wake(service);
    }
    pthread_mutex_unlock(&service->lock);
    return done;
}

bool pl_service_is_done(struct pl_service *service, const struct pl_completion *completion)
{
    bool done;

    pthread_mutex_lock(&service->lock);
    done = completion->done;
    pthread_mutex_unlock(&service->lock);
    return done;
}

/* Naps after a step without progress. Call it under the lock, which it releases meanwhile. */
static void nap(struct pl_service *service)
{
    int64_t idle_ns = pl_service_idle_ns(service);

    if (looks_again(service, idle_ns, LOOK_NS)) {
        return;
    }
    service->synced.naps = true;
    pl_deadline_wait(pl_clock_now_ns() + pl_clock_backoff_ns(idle_ns, WAIT_NAP_SHORTEST_NS, WAIT_NAP_LONGEST_NS),
                     &service->changed, &service->lock);
    service->synced.naps = false;
}

/* Waits until `*done`, and leads if no other thread does. Call it under the lock, which it releases meanwhile. */
static void wait_until(struct pl_service *service, const bool *done)
{
    service->synced.waiters++;
    while (!*done) {
        if (service->synced.leads) {
            pl_deadline_wait(PL_DEADLINE_NEVER, &service->changed, &service->lock);
            continue;
        }
        if (service->synced.aborts_until_ns && !pl_deadline_passed(service->synced.aborts_until_ns)) {
            pl_deadline_wait(service->synced.aborts_until_ns, &service->changed, &service->lock);
            continue;
        }
        service->synced.leads = true;
        if (!pl_service_step(service, true) && !*done && !service->synced.first) {
            nap(service);
        }
        service->synced.leads = false;
    }
    service->synced.waiters--;
    service->synced.calls_made++;
    if (service->synced.waiters > 0) {
        pthread_cond_broadcast(&service->changed);
    } else if (service->synced.outstanding > 0 && service->synced.thread_sleeps) {
        pthread_cond_signal(&service->work);
    }
}

/* Waits for the end of the operation. Call it under the lock. */
static enum pl_status wait_for(struct pl_service *service, struct pl_completion *completion, struct pl_error *reterr)
{
    wait_until(service, &completion->done);
    if (completion->status != PL_OK && reterr) {
        *reterr = completion->error;
    }
    return completion->status;
}

enum pl_status pl_service_wait(struct pl_service *service, struct pl_completion *completion, struct pl_error *reterr)
{
    enum pl_status status;

    pthread_mutex_lock(&service->lock);
    status = wait_for(service, completion, reterr);
    pthread_mutex_unlock(&service->lock);
    return status;
}

enum pl_status pl_service_follow(struct pl_service *service, struct pl_completion *completion, void *stream,
                                 bool *ret_done, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&service->lock); /* the leader changes `launched` under the lock */
    wait_until(service, &completion->is_launched);
    if (completion->launched) {
        status = pl_device_stream_wait_outside(service->all->device.device, stream, completion->launched->end->event,
                                               reterr);
        completion->is_followed = status == PL_OK;
        if (status != PL_OK) {
            const char *name = completion->launched->name;

            pl_error_context(reterr, "a stream's wait for '%s'", name ? name : "an operation");
            pl_world_place_error(service->world, service->all->device.device, reterr);
        }
    }
    if (completion->is_followed) {
        pl_service_drop_name(service, completion->launched);
    }
    *ret_done = !completion->is_followed && status == PL_OK;
    if (*ret_done) {
        status = wait_for(service, completion, reterr);
    }
    pthread_mutex_unlock(&service->lock);
    return status;
}

static enum pl_status change_sets(struct pl_service *service, enum pl_named_submission_kind kind, const int *ranks,
                                  int count, int *set, struct pl_error *reterr)
{
    struct pl_completion completion = {0};
    enum pl_status status;

    pthread_mutex_lock(&service->lock);
    status = submit_other(service, kind, ranks, count, set, &completion, reterr);
    status = status == PL_OK ? wait_for(service, &completion, reterr) : status;
    pthread_mutex_unlock(&service->lock);
    return status;
}

enum pl_status pl_service_add_set(struct pl_service *service, const int *ranks, int count, int *ret_set,
                                  struct pl_error *reterr)
{
    return change_sets(service, SUBMISSION_ADD_SET, ranks, count, ret_set, reterr);
}

enum pl_status pl_service_remove_set(struct pl_service *service, int set, struct pl_error *reterr)
{
    return change_sets(service, SUBMISSION_REMOVE_SET, NULL, 0, &set, reterr);
}

enum pl_status pl_service_shutdown(struct pl_service *service, struct pl_error *reterr)
{
    pthread_mutex_lock(&service->lock);
    service->synced.leaving = true;
    wait_until(service, &service->synced.left);
    pthread_mutex_unlock(&service->lock);
    return service->all->left ? PL_OK : pl_named_refuse_ended(service->all, reterr);
}
