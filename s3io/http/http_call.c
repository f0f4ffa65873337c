/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a thread wait until a task, which the engine's thread runs, or the work that it has begun has ended. */
#include "s3io/http/http.h"

#include "base/clock.h"
#include "base/memory.h"

#define MEANWHILE_NS (100 * PL_NS_PER_MS) /* how often `meanwhile` is called */

void pl_http_call(struct pl_http *http, struct pl_http_call *call, void (*meanwhile)(struct pl_http_call *call))
{
    bool ended = false;

    call->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    call->ended_cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    call->synced.ended = false;
    pl_http_post(http, &call->task);
    while (!ended) {
        if (meanwhile) {
            meanwhile(call);
        }
        pthread_mutex_lock(&call->lock);
        if (!call->synced.ended) {
            /* without `meanwhile` this wait needs no limit: the engine runs all tasks and ends overdue requests */
            pl_deadline_wait(meanwhile ? pl_deadline_after_ns(MEANWHILE_NS) : PL_DEADLINE_NEVER, &call->ended_cond,
                             &call->lock);
        }
        ended = call->synced.ended;
        pthread_mutex_unlock(&call->lock);
    }
}

void pl_http_end(struct pl_http_call *call)
{
    pthread_mutex_lock(&call->lock);
    call->synced.ended = true;
    pthread_cond_signal(&call->ended_cond);
    pthread_mutex_unlock(&call->lock);
}

struct run_call {
    struct pl_http_call head;
    struct pl_http_task *task;
};

static void run_and_end(struct pl_http_task *task)
{
    struct run_call *run = PL_CONTAINER_OF(task, struct run_call, head.task);

    run->task->run(run->task);
    pl_http_end(&run->head);
}

void pl_http_run(struct pl_http *http, struct pl_http_task *task)
{
    struct run_call run = {.head = {.task = {.run = run_and_end}}, .task = task};

    pl_http_call(http, &run.head, NULL);
}
