/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/start.c, collectives/backends.c. */
/* A GPU for each rank: which rank gets which, and that all ranks end alike. On the fake driver, with four devices; each
 * test is a process of its own. */
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "runtime/start.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 6 };

struct seat {
    struct pl_bootstrap *bootstrap;
    const char *wanted;
    pthread_t thread;
    enum pl_status status;
    struct pl_error error;
    int ordinal; /* -1: on the CPU */
    bool world_knows;
};

static void *seat_main(void *argument)
{
    struct seat *seat = argument;
    struct pl_runtime *runtime = NULL;

    seat->ordinal = -1;
    seat->status = pl_runtime_start_on_device(seat->bootstrap, seat->wanted, &runtime, &seat->error);
    if (seat->status == PL_OK) {
        struct pl_device *device = pl_runtime_device(runtime);

        seat->ordinal = device ? pl_device_info(device)->ordinal : -1;
        seat->world_knows = pl_world_device(pl_runtime_world(runtime)) == device;
        pl_runtime_stop(runtime);
    }
    pl_bootstrap_free(seat->bootstrap);
    return NULL;
}

static void start_wanting(const char *wanted, int ranks, struct seat seats[MOST])
{
    struct pl_bootstrap *bootstraps[MOST];

    memset(seats, 0, MOST * sizeof(*seats));
    ck_ok(pl_bootstrap_new_threads, ranks, bootstraps);
    for (int r = 0; r < ranks; r++) {
        seats[r].bootstrap = bootstraps[r];
        seats[r].wanted = wanted;
        ck_assert_int_eq(pthread_create(&seats[r].thread, NULL, seat_main, &seats[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(seats[r].thread, NULL);
    }
}

static void start(int ranks, struct seat seats[MOST])
{
    start_wanting(NULL, ranks, seats);
}

TEST(each_rank_of_a_host_gets_a_device_of_its_own)
{
    struct seat seats[MOST];

    start(4, seats);
    for (int r = 0; r < 4; r++) {
        ck_assert_ok(seats[r].status, &seats[r].error);
        ck_assert_int_eq(seats[r].ordinal, r);
        ck_assert(seats[r].world_knows);
    }
}

TEST(more_ranks_than_devices_are_refused_unless_they_may_share)
{
    struct seat seats[MOST];

    start(6, seats);
    for (int r = 0; r < 6; r++) {
        ck_assert_int_eq(seats[r].status, PL_INVALID);
        ck_has(seats[r].error.cause, "4");
    }
    setenv("PACELINE_SHARE_DEVICE", "1", 1);
    start(6, seats);
    for (int r = 0; r < 6; r++) {
        ck_assert_ok(seats[r].status, &seats[r].error);
        ck_assert_int_ge(seats[r].ordinal, 0);
    }
    unsetenv("PACELINE_SHARE_DEVICE");
}

TEST(device_off_leaves_the_gpus_alone)
{
    struct seat seats[MOST];

    setenv("PACELINE_DEVICE", "off", 1);
    start(2, seats);
    for (int r = 0; r < 2; r++) {
        ck_assert_ok(seats[r].status, &seats[r].error);
        ck_assert_int_eq(seats[r].ordinal, -1);
    }
    setenv("PACELINE_DEVICE", "sometimes", 1);
    start(2, seats);
    ck_assert_int_eq(seats[1].status, PL_INVALID);
    ck_has(seats[1].error.cause, "sometimes");
    unsetenv("PACELINE_DEVICE");
}

TEST(what_the_program_wants_overrides_the_setting)
{
    struct seat seats[MOST];

    setenv("PACELINE_DEVICE", "off", 1);
    start_wanting("on", 2, seats);
    for (int r = 0; r < 2; r++) {
        ck_assert_ok(seats[r].status, &seats[r].error);
        ck_assert_int_eq(seats[r].ordinal, r);
    }
    start_wanting("cuda:3", 2, seats); /* both, although they do not share otherwise */
    for (int r = 0; r < 2; r++) {
        ck_assert_ok(seats[r].status, &seats[r].error);
        ck_assert_int_eq(seats[r].ordinal, 3);
    }
    start_wanting("cuda:4", 2, seats);
    ck_assert_int_eq(seats[1].status, PL_INVALID);
    unsetenv("PACELINE_DEVICE");
}

TEST(a_device_that_cannot_be_opened_ends_every_rank)
{
    struct seat seats[MOST];
    int own = 0, named = 0;

    setenv("FAKE_CUDA", "devices=4,fail=cuDevicePrimaryCtxRetain:2:2", 1);
    start(3, seats);
    for (int r = 0; r < 3; r++) {
        ck_assert_int_ne(seats[r].status, PL_OK);
        own += strstr(seats[r].error.cause, "CUDA_ERROR_OUT_OF_MEMORY") ? 1 : 0;
        named += strstr(seats[r].error.cause, "could not open a GPU") ? 1 : 0;
    }
    ck_assert_int_eq(own, 1);
    ck_assert_int_eq(named, 2);
}

UNIT_MAIN("runtime/start_device")
