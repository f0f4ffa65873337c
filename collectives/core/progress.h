/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The thread that advances a world's requests while the program computes. Internal to collectives/.
 *
 * Between hosts a message needs a call into MPI every now and then, or the link is idle. Setting `progress`:
 * `auto` gives a thread to each world that spans hosts, where the bootstrap may be used by several threads at once
 * (MPI: MPI_THREAD_MULTIPLE), `on` to each world of more than one rank, `off` to none. The internal worlds of
 * backends have none.
 *
 * Threads  the program's and this one take turns: every entry of request.c, request_wait.c and arena.c holds the
 *          world's lock (lock.h). A program that waits keeps the lock and advances by itself.
 * Cost     20 ns a call for the lock. While requests are under way the thread advances them every 50 to 100 us, less
 *          often where nothing has moved for long; it sleeps while there are none.
 * Test     tests/unit/collectives/core/test_progress.c, examples/synthetic
 */
#ifndef PL_COLLECTIVES_CORE_PROGRESS_H
#define PL_COLLECTIVES_CORE_PROGRESS_H

#include "base/status.h"

struct pl_world;

/**
 * Give `world` its thread, or note in world->no_progress, for people, why it has none. PL_UNSUPPORTED: `on` cannot be
 * had.
 */
enum pl_status pl_progress_start(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** End the thread; the last that happens to a world before it is taken apart. */
void pl_progress_stop(struct pl_world *world);

#endif
