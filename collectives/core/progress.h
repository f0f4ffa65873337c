/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The thread that advances a world's requests while the program computes. Internal to collectives/.
 *
 * Between hosts a message needs a call into MPI every now and then, or the link is idle. Setting `progress`:
 * `auto` gives a thread to each world that spans hosts, where the bootstrap may be used by several threads at once
 * (MPI: MPI_THREAD_MULTIPLE), `on` to each world of more than one rank, `off` to none. The internal worlds of
 * backends have none.
 *
 * Threads  the program's and this one take turns: every entry of request.c, wait.c and arena.c holds the
 *          world's lock. A program that waits keeps the lock and advances by itself.
 * Cost     20 ns a call for the lock. While requests are under way the thread advances them every 50 to 100 us, less
 *          often where nothing has moved for long; it sleeps while there are none.
 * Test     tests/unit/collectives/core/test_progress.c, examples/synthetic
 */
#ifndef PL_COLLECTIVES_CORE_PROGRESS_H
#define PL_COLLECTIVES_CORE_PROGRESS_H

#include "base/status.h"

#include <pthread.h>
#include <semaphore.h>

struct pl_world;

struct pl_progress {
    struct pl_world *world;
    pthread_t thread;
    sem_t wake;
    pthread_mutex_t lock; /* requests, backends and failure of the world, and: */
    struct {
        bool asleep; /* the thread waits for `wake` */
        bool stop;
    } synced;
};

/**
 * Give `world` its thread, or note in world->no_progress, for people, why it has none. PL_UNSUPPORTED: `on` cannot be
 * had.
 */
enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** End the thread; the last that happens to a world before it is taken apart. */
void pl_progress_stop(struct pl_world *world);

/**
 * Something is under way and the program goes on computing: wake the thread if it sleeps. Under the lock. `progress`
 * may be NULL.
 */
void pl_progress_wake(struct pl_progress *progress);

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
