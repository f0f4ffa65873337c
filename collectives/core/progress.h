/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The thread that advances a world's requests while the program computes. Internal to collectives/.
 *
 * A message between hosts needs a call into MPI every now and then, or the link is idle. Setting `progress`: `auto`
 * gives a thread to each world of several hosts if several threads may use the bootstrap at once (MPI:
 * MPI_THREAD_MULTIPLE), `on` gives one to each world of more than one rank, `off` gives none. The internal worlds of
 * backends have no thread.
 *
 * Threads  the program's and this one take turns: every entry of request.c, request_wait.c and arena.c holds the
 *          world's lock (lock.h). A program that waits keeps the lock and advances by itself.
 * Cost     20 ns per call for the lock. While requests are under way the thread advances them every 50 to 100 us, less
 *          often if nothing has moved for long; it sleeps while there are no requests.
 * Test     tests/unit/collectives/core/test_progress.c, examples/synthetic
 */
#ifndef PL_COLLECTIVES_CORE_PROGRESS_H
#define PL_COLLECTIVES_CORE_PROGRESS_H

#include "base/status.h"

struct pl_world;

/**
 * Start the thread of `world`, or set world->no_progress to the reason, for people, why it has none. PL_UNSUPPORTED if
 * the setting is `on` and no thread can run.
 */
enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** End the thread, before anything of the world is released. */
void pl_progress_stop(struct pl_world *world);

#endif
