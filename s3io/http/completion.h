/* SPDX-License-Identifier: Apache-2.0 */
/** An event that one thread waits for and the engine's thread completes. Internal to s3io/. */
#ifndef PL_S3IO_HTTP_COMPLETION_H
#define PL_S3IO_HTTP_COMPLETION_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>

struct pl_http_completion {
    pthread_mutex_t lock;
    pthread_cond_t changed_cond;
    struct {
        bool complete;
    } synced; /* under `lock` */
};

#define PL_HTTP_COMPLETION_NONE                                                                                        \
    ((struct pl_http_completion){.lock = PTHREAD_MUTEX_INITIALIZER, .changed_cond = PTHREAD_COND_INITIALIZER})

/** Completes the event. The waiting thread sees everything that was written before, and may destroy the completion. */
static inline void pl_http_completion_set(struct pl_http_completion *completion)
{
    pthread_mutex_lock(&completion->lock);
    completion->synced.complete = true;
    pthread_cond_signal(&completion->changed_cond);
    pthread_mutex_unlock(&completion->lock);
}

/** Waits once, until `deadline_ns` at most. Returns whether it is complete. */
static inline bool pl_http_completion_wait(struct pl_http_completion *completion, int64_t deadline_ns)
{
    bool complete;

    pthread_mutex_lock(&completion->lock);
    if (!completion->synced.complete) {
        pl_deadline_wait(deadline_ns, &completion->changed_cond, &completion->lock);
    }
    complete = completion->synced.complete;
    pthread_mutex_unlock(&completion->lock);
    return complete;
}

#endif
