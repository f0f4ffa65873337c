/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread of a world: it advances requests while the program computes, and sleeps when there are no
 * requests. */

#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collectives/core/types.h"
#include "device/device_private.h"

#include <stdlib.h>
#include <string.h>

static const int64_t NAP_SHORTEST_NS = 50 * PL_NS_PER_US;
/* nap while data moves: the segments under way keep a link of 1 Gbit/s busy for some milliseconds */
static const int64_t NAP_MOVING_NS = 100 * PL_NS_PER_US;
static const int64_t NAP_LONGEST_NS = 10 * PL_NS_PER_MS;
/* How long the thread stays awake after the last request, so that a program that posts again soon need not wake it. */
static const int64_t LINGER_NS = 2 * PL_NS_PER_MS;

/* Progress of the queue's head: two equal marks mean that nothing moved in between. */
struct mark {
    uint64_t sequence;
    uint64_t progress_count;
};

static struct mark mark_of(const struct pl_world *world)
{
    return world->first ? (struct mark){world->first->signature.sequence, world->first->progress_count}
                        : (struct mark){0, 0};
}

/* The next sleep: shorter while data moves; otherwise up to a limit that grows with the time without progress. */
static int64_t next_nap_ns(int64_t nap_ns, bool moved, int64_t still_ns)
{
    int64_t most_ns = pl_clock_backoff_ns(still_ns, NAP_MOVING_NS, NAP_LONGEST_NS);

    nap_ns = moved ? nap_ns / 2 : nap_ns * 2;
    nap_ns = nap_ns < most_ns ? nap_ns : most_ns;
    return nap_ns > NAP_SHORTEST_NS ? nap_ns : NAP_SHORTEST_NS;
}

static void *advance_requests(void *progress_at)
{
    struct pl_progress *progress = progress_at;
    struct pl_world *world = progress->world;
    int64_t nap_ns = NAP_SHORTEST_NS;
    int64_t moved_ns = pl_clock_now_ns();

    if (world->device) {
        pl_device_pass_captures(world->device);
    }

    for (;;) {
        struct mark before, after;
        bool moved, asleep;

        /* Block for the lock only after many failed tries: its holder usually releases it soon, or waits for long and
         * advances the requests itself. */
        if (nap_ns == NAP_LONGEST_NS) {
            pthread_mutex_lock(&progress->lock);
        } else if (pthread_mutex_trylock(&progress->lock) != 0) {
            nap_ns = 2 * nap_ns < NAP_LONGEST_NS ? 2 * nap_ns : NAP_LONGEST_NS;
            pl_clock_nap(nap_ns, PL_DEADLINE_NEVER);
            continue;
        }
        if (progress->synced.stop) {
            pthread_mutex_unlock(&progress->lock);
            return NULL;
        }
        before = mark_of(world);
        pl_request_advance(world);
        after = mark_of(world);
        moved = before.sequence != after.sequence || before.progress_count != after.progress_count;
        moved_ns = moved ? pl_clock_now_ns() : moved_ns;
        asleep = !world->first && pl_clock_now_ns() - moved_ns > LINGER_NS;
        progress->synced.asleep = asleep;
        pthread_mutex_unlock(&progress->lock);
        while (asleep && sem_wait(&progress->wake) != 0) {
        }
        moved_ns = asleep ? pl_clock_now_ns() : moved_ns;
        nap_ns = next_nap_ns(nap_ns, moved || asleep, pl_clock_now_ns() - moved_ns);
        pl_clock_nap(nap_ns, PL_DEADLINE_NEVER);
    }
}

/* The reason why the world gets no thread; NULL if it gets one. */
static const char *why_not(const struct pl_world *world, bool forced)
{
    if (world->size == 1) {
        return "there is only one rank";
    }
    if (!world->bootstrap->any_thread) {
        return "only one thread may send messages here (MPI: not MPI_THREAD_MULTIPLE)";
    }
    return forced || world->topology.hosts > 1 ? NULL : "all ranks are on one host";
}

enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr)
{
    const char *wanted = pl_knob_text(&world->knobs, PL_KNOB_PROGRESS);
    bool forced = strcmp(wanted, "on") == 0;
    struct pl_progress *progress;

    world->no_progress = strcmp(wanted, "off") == 0 ? "the setting progress is off" : why_not(world, forced);
    if (world->no_progress) {
        return forced && world->size > 1
                   ? pl_error_set(reterr, PL_UNSUPPORTED,
                                  "the setting progress is on, but no progress thread can run: %s", world->no_progress)
                   : PL_OK;
    }
    PL_TRY(pl_memory_alloc(&progress, 1, sizeof(*progress), reterr));
    progress->world = world;
    pthread_mutex_init(&progress->lock, NULL);
    sem_init(&progress->wake, 0, 0);
    if (pl_thread_start(&progress->thread, advance_requests, progress, "the progress thread", reterr) != PL_OK) {
        free(progress);
        return PL_SYSTEM;
    }
    world->progress = progress;
    return PL_OK;
}

void pl_progress_stop(struct pl_world *world)
{
    struct pl_progress *progress = world->progress;

    if (!progress) {
        return;
    }
    pthread_mutex_lock(&progress->lock);
    progress->synced.stop = true;
    pl_core_wake_progress(progress);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    world->progress = NULL;
    sem_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
}
