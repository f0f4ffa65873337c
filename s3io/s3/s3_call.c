/* SPDX-License-Identifier: Apache-2.0 */
/* Runs operations from threads other than the engine's and waits for their end. */
#include "s3io/s3/s3_operation.h"

#include "base/clock.h"
#include "base/memory.h"

#define CANCEL_CHECK_NS (100 * PL_NS_PER_MS) /* how often a waiting thread calls go_on() */

struct call {
    struct pl_http_call head;
    struct pl_s3_operation *operation;
    const struct pl_s3_cancel_check *cancel_check;
    enum pl_status status; /* set at the end */
};

static void call_done(struct pl_s3_operation *operation, enum pl_status status)
{
    struct call *call = operation->context;

    call->status = status;
    pl_http_end(&call->head);
}

static void start_posted(struct pl_http_task *task)
{
    pl_s3_operation_start(PL_CONTAINER_OF(task, struct pl_s3_operation, start_task));
}

void pl_s3_operation_post(struct pl_s3_operation *operation)
{
    operation->start_task.run = start_posted;
    pl_http_post(operation->client->http, &operation->start_task);
}

struct cancelling {
    struct pl_http_task task;
    struct pl_s3_operation *operation;
};

static void cancel_posted(struct pl_http_task *task)
{
    struct pl_s3_operation *operation = ((struct cancelling *)task)->operation;

    if (operation->state != PL_S3_IDLE) {
        pl_s3_operation_cancel(operation);
        pl_error_set(&operation->error, PL_CANCELLED, "%s s3://%s/%s was cancelled", operation->method,
                     operation->bucket, operation->key);
        operation->handler->done(operation, PL_CANCELLED);
    }
}

void pl_s3_operation_cancel_wait(struct pl_s3_operation *operation)
{
    struct cancelling cancelling = {.task = {.run = cancel_posted}, .operation = operation};

    pl_http_run(operation->client->http, &cancelling.task);
}

/* Without a callback it waits for the end alone: the engine ends every operation at its deadline. */
void pl_s3_cancel_wait(const struct pl_s3_cancel_check *cancel_check, pthread_cond_t *cond, pthread_mutex_t *lock)
{
    pl_deadline_wait(cancel_check && cancel_check->go_on ? pl_deadline_after_ns(CANCEL_CHECK_NS) : PL_DEADLINE_NEVER,
                     cond, lock);
}

static void start_call(struct pl_http_task *task)
{
    pl_s3_operation_start(PL_CONTAINER_OF(task, struct call, head.task)->operation);
}

static void check_cancelled(struct pl_http_call *head)
{
    struct call *call = PL_CONTAINER_OF(head, struct call, head);

    if (pl_s3_is_cancelled(call->cancel_check)) {
        pl_s3_operation_cancel_wait(call->operation);
    }
}

enum pl_status pl_s3_call(struct pl_s3_client *client, struct pl_s3_operation *operation,
                          const struct pl_s3_cancel_check *cancel_check, struct pl_error *reterr)
{
    static const struct pl_s3_operation_handler handler = {.done = call_done};
    struct call call = {.head = {.task = {.run = start_call}}, .operation = operation, .cancel_check = cancel_check};

    operation->client = client;
    operation->handler = &handler;
    operation->context = &call;
    pl_http_call(client->http, &call.head, cancel_check && cancel_check->go_on ? check_cancelled : NULL);
    if (call.status != PL_OK && reterr) {
        *reterr = operation->error;
    }
    return call.status;
}
