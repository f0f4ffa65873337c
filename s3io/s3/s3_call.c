/* SPDX-License-Identifier: Apache-2.0 */
/* Runs operations from threads other than the engine's and waits for their end. */
#include "s3io/s3/s3_operation.h"

#include "base/clock.h"

#define ASK_NS (100 * PL_NS_PER_MS) /* how often a waiting thread calls go_on() */

struct call {
    pthread_mutex_t lock;
    pthread_cond_t ended_cond;
    struct {
        bool ended;
        enum pl_status status;
    } synced; /* under `lock` */
};

static void call_done(struct pl_s3_operation *operation, enum pl_status status)
{
    struct call *call = operation->context;

    pthread_mutex_lock(&call->lock);
    call->synced.ended = true;
    call->synced.status = status;
    pthread_cond_signal(&call->ended_cond);
    pthread_mutex_unlock(&call->lock); /* the waiter may end the call from here on */
}

static void start_posted(struct pl_http_task *task)
{
    pl_s3_operation_start((struct pl_s3_operation *)((char *)task - offsetof(struct pl_s3_operation, start_task)));
}

void pl_s3_operation_post(struct pl_s3_operation *operation)
{
    operation->start_task.run = start_posted;
    pl_http_post(operation->client->http, &operation->start_task);
}

struct giving_up {
    struct pl_http_task task;
    struct pl_s3_operation *operation;
};

static void give_up(struct pl_http_task *task)
{
    struct pl_s3_operation *operation = ((struct giving_up *)task)->operation;

    if (operation->state != PL_S3_IDLE) {
        pl_s3_operation_cancel(operation);
        (void)pl_error_set(&operation->error, PL_CANCELLED, "%s s3://%s/%s was given up", operation->method,
                           operation->bucket, operation->key);
        operation->handler->done(operation, PL_CANCELLED);
    }
}

void pl_s3_operation_give_up(struct pl_s3_operation *operation)
{
    struct giving_up giving_up = {.task = {.run = give_up}, .operation = operation};

    pl_http_run(operation->client->http, &giving_up.task);
}

void pl_s3_patience_wait(const struct pl_s3_patience *patience, pthread_cond_t *cond, pthread_mutex_t *lock)
{
    /* Never: the engine ends every operation at its deadline. */
    pl_deadline_wait(patience && patience->go_on ? pl_deadline_after_ns(ASK_NS) : PL_DEADLINE_NEVER, cond, lock);
}

enum pl_status pl_s3_call(struct pl_s3_client *client, struct pl_s3_operation *operation,
                          const struct pl_s3_patience *patience, struct pl_error *reterr)
{
    static const struct pl_s3_operation_handler handler = {.done = call_done};
    struct call call = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended_cond = PTHREAD_COND_INITIALIZER};

    operation->client = client;
    operation->handler = &handler;
    operation->context = &call;
    pl_s3_operation_post(operation);
    pthread_mutex_lock(&call.lock);
    while (!call.synced.ended) {
        if (pl_s3_patience_ends(patience)) {
            pthread_mutex_unlock(&call.lock);
            pl_s3_operation_give_up(operation);
            pthread_mutex_lock(&call.lock);
        } else {
            pl_s3_patience_wait(patience, &call.ended_cond, &call.lock);
        }
    }
    pthread_mutex_unlock(&call.lock);
    if (call.synced.status != PL_OK && reterr) {
        *reterr = operation->error;
    }
    return call.synced.status;
}
