/* SPDX-License-Identifier: Apache-2.0 */
/** Run a test's body as N ranks, each a thread with a world of its own. */
#ifndef PL_TESTS_UNIT_RUNTIME_RANKS_H
#define PL_TESTS_UNIT_RUNTIME_RANKS_H

#include "base/memory.h"
#include "collectives/world.h"
#include "tests/support/unit.h"

#include <pthread.h>

enum { RANKS_MAX = 8 };

typedef void ranks_body(struct pl_world *world, void *context);

struct ranks_thread {
    pthread_t thread;
    struct pl_bootstrap *bootstrap;
    const struct pl_world_options *options;
    ranks_body *body;
    void *context;
};

static inline void *ranks_main(void *argument)
{
    struct ranks_thread *own = argument;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world *world = NULL;

    ck_assert_ok(pl_world_new(own->bootstrap, own->options, &world, &error), &error);
    own->body(world, own->context);
    pl_world_free(world);
    pl_bootstrap_free(own->bootstrap);
    return NULL;
}

static inline void ranks_run_with(int size, const struct pl_world_options *options, ranks_body *body, void *context)
{
    struct pl_error error = PL_ERROR_NONE;
    struct ranks_thread threads[RANKS_MAX];
    struct pl_bootstrap *bootstraps[RANKS_MAX];

    ck_assert_ok(pl_bootstrap_new_threads(size, bootstraps, &error), &error);
    for (int r = 0; r < size; r++) {
        threads[r] = (struct ranks_thread){.bootstrap = bootstraps[r], .options = options, .body = body, .context = context};
        ck_assert_int_eq(pthread_create(&threads[r].thread, NULL, ranks_main, &threads[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        ck_assert_int_eq(pthread_join(threads[r].thread, NULL), 0);
    }
}

static inline void ranks_run(int size, ranks_body *body, void *context)
{
    struct pl_world_options options = {0};
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, "20", "the test", NULL), PL_OK);
    options.knobs = &knobs;
    ranks_run_with(size, &options, body, context);
}

#endif
