/* SPDX-License-Identifier: Apache-2.0 */
/** Threads of this process as the ranks of a world. Failures are texts, so that only the main thread calls Check. */
#ifndef PL_TESTS_SUPPORT_RANKS_H
#define PL_TESTS_SUPPORT_RANKS_H

#pragma GCC diagnostic ignored "-Wunused-parameter" /* callbacks take what all of their kind get */

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "device/device.h"
#include "device/device_private.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MOST = 35, RANKS_TEXT_BYTES = 1400 };

/** The function of one rank. A text in `failure` fails the test. */
typedef void ranks_function(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES]);

/** The settings' defaults, and one of another value. */
static inline struct pl_knobs ranks_knobs(enum pl_knob knob, const char *text)
{
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    PL_BUG_IF(pl_knob_set(&knobs, knob, text, "the test", NULL) != PL_OK);
    return knobs;
}

struct ranks_seat {
    struct pl_bootstrap *bootstrap;
    const struct pl_world_options *options;
    int ordinal; /* device of the rank; -1: none */
    ranks_function *function;
    void *argument;
    pthread_t thread;
    char failure[RANKS_TEXT_BYTES];
};

/** Returns "rank 1 on host H has given up: " and the words, in `text`, for rank `rank` of `world`. */
static inline const char *ranks_given_up(const struct pl_world *world, int rank, const char *words,
                                         char text[PL_ERROR_CAUSE_BYTES])
{
    char name[PL_RANK_NAME_BYTES];

    snprintf(text, PL_ERROR_CAUSE_BYTES, "%s has given up: %s", pl_world_rank_name(world, rank, name), words);
    return text;
}

static inline void *ranks_main(void *argument)
{
    struct ranks_seat *seat = argument;
    struct pl_world_options options = seat->options ? *seat->options : (struct pl_world_options){.knobs = NULL};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world *world = NULL;

    if (seat->ordinal >= 0 && pl_device_open(seat->ordinal, &options.device, &error) != PL_OK) {
        snprintf(seat->failure, sizeof(seat->failure), "pl_device_open: %s (%s)", error.cause, error.context);
    } else if (pl_world_new(seat->bootstrap, &options, &world, &error) != PL_OK) {
        snprintf(seat->failure, sizeof(seat->failure), "pl_world_new: %s (%s)", error.cause, error.context);
    } else {
        seat->function(world, seat->argument, seat->failure);
        if (seat->failure[0]) {
            /* printed now, in case freeing the world ends the process */
            fprintf(stderr, "a rank's test has failed: %s\n", seat->failure);
        }
        pl_world_free(world);
    }
    pl_device_close(options.device);
    pl_bootstrap_free(seat->bootstrap);
    return NULL;
}

/**
 * Run `function` on `size` ranks. `failure` gets the first failure's text, "" if there is none. Rank r gets device r
 * mod `devices`, or no device if that is 0.
 */
static inline void ranks_run_on(int size, int devices, const struct pl_world_options *options, ranks_function *function,
                                void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct ranks_seat seats[RANKS_MOST];
    struct pl_bootstrap *bootstraps[RANKS_MOST];
    struct pl_error error = PL_ERROR_NONE;

    failure[0] = '\0';
    memset(seats, 0, sizeof(seats));
    if (pl_bootstrap_new_threads(size, bootstraps, &error) != PL_OK) {
        snprintf(failure, RANKS_TEXT_BYTES, "bootstrap: %s", error.cause);
        return;
    }
    for (int r = 0; r < size; r++) {
        seats[r].bootstrap = bootstraps[r];
        seats[r].options = options;
        seats[r].ordinal = devices > 0 ? r % devices : -1;
        seats[r].function = function;
        seats[r].argument = argument;
        pthread_create(&seats[r].thread, NULL, ranks_main, &seats[r]);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(seats[r].thread, NULL);
    }
    for (int r = 0; r < size && !failure[0]; r++) {
        if (seats[r].failure[0]) {
            snprintf(failure, RANKS_TEXT_BYTES, "rank %d of %d: %.1300s", r, size, seats[r].failure);
        }
    }
}

/** Run, and fail the Check test with the text. */
#define ck_assert_ranks(size, options, function, argument) ck_assert_ranks_on(size, 0, options, function, argument)

#define ck_assert_ranks_on(size, devices, options, function, argument)                                                 \
    do {                                                                                                               \
        char ranks_failure_[RANKS_TEXT_BYTES];                                                                         \
                                                                                                                       \
        ranks_run_on((size), (devices), (options), (function), (argument), ranks_failure_);                            \
        ck_assert_msg(!ranks_failure_[0], "%s", ranks_failure_);                                                       \
    } while (0)

/* Print at once: objects that the function has not released may abort the process (fake_cuda.c counts memory) before
 * Check gets the text. */
static inline void ranks_say(const char *failure)
{
    fprintf(stderr, "a rank fails: %s\n", failure);
}

/** In a rank's function: fail unless `condition` is true. */
#define RANKS_NEED(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            snprintf(failure, RANKS_TEXT_BYTES, __VA_ARGS__);                                                          \
            ranks_say(failure);                                                                                        \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/** In a rank's function: fail unless the expression, which fills `error`, is PL_OK. */
#define RANKS_OK(expression)                                                                                           \
    do {                                                                                                               \
        struct pl_error error = PL_ERROR_NONE;                                                                         \
        if ((expression) != PL_OK) {                                                                                   \
            snprintf(failure, RANKS_TEXT_BYTES, "%s: %s (%s)", #expression, error.cause, error.context);               \
            ranks_say(failure);                                                                                        \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
