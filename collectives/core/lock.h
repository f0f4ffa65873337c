/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The lock of a world. The program's threads and the progress thread take it in turns; a world without that thread has
 * no lock. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_LOCK_H
#define PL_COLLECTIVES_CORE_LOCK_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

struct pl_world;

struct pl_progress {
    struct pl_world *world;
    pthread_t thread;
    sem_t wake;
    pthread_mutex_t lock; /* guards requests, backends and failure of the world, and: */
    struct {
        bool asleep; /* the thread waits for `wake` */
        bool stop;
    } synced;
};

/**
 * Wake the thread if it sleeps; call with the lock held when a request is under way and the program goes on computing.
 * `progress` may be NULL.
 */
void pl_core_wake_progress(struct pl_progress *progress);

static inline struct pl_progress *pl_progress_hold(struct pl_progress *progress)
{
    if (progress) {
        pthread_mutex_lock(&progress->lock);
    }
    return progress;
}

static inline void pl_progress_release(struct pl_progress *const *held_at)
{
    if (*held_at) {
        pthread_mutex_unlock(&(*held_at)->lock);
    }
}

/** Hold the lock of `world`, if it has one, until the end of the block. */
#define PL_AUTO_HOLD(world)                                                                                            \
    __attribute__((cleanup(pl_progress_release), unused)) struct pl_progress *const held_ =                            \
        pl_progress_hold((world)->progress)

#endif
