/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The lock of a world. The program's threads and the progress thread take it in turns; a world without that thread has
 * no lock. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_PROGRESS_H
#define PL_COLLECTIVES_CORE_PROGRESS_H

#include "base/status.h"

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
static inline void pl_core_wake_progress(struct pl_progress *progress)
{
    if (progress && progress->synced.asleep) {
        progress->synced.asleep = false;
        sem_post(&progress->wake);
    }
}

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

/*
 * The thread that advances a world's requests while the program computes.
 *
 * A message between hosts needs a call into MPI every now and then, or the link is idle. Setting `progress`: `auto`
 * gives a thread to each world of several hosts if several threads may use the bootstrap at once (MPI:
 * MPI_THREAD_MULTIPLE), `on` gives one to each world of more than one rank, `off` gives none. The internal worlds of
 * backends have no thread.
 *
 * Threads  the program's and this one take turns: every entry of request.c, request_wait.c and arena.c holds the
 *          world's lock. A program that waits keeps the lock and advances by itself.
 * Cost     20 ns per call for the lock. While requests are under way the thread advances them every 50 to 100 us, less
 *          often if nothing has moved for long; it sleeps while there are no requests.
 * Test     tests/unit/collectives/core/test_progress.c, examples/synthetic
 */

/**
 * Start the thread of `world`, or set world->no_progress to the reason, for people, why it has none. PL_UNSUPPORTED if
 * the setting is `on` and no thread can run.
 */
enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** End the thread, before anything of the world is released. */
void pl_progress_stop(struct pl_world *world);

#endif
