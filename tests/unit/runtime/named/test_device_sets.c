/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/device_world.c, runtime/named/service_device.c, runtime/named/service_step.c. */
/* Worlds of devices for several sets of ranks. */
#include "base/knob.h"
#include "runtime/named/service_private.h"
#include "runtime/service.h"
#include "tests/scenarios/device_sets.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 1 };

static void runs_sets(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    device_sets_run(world, *(int *)argument, ROUNDS, failure);
}

static void makes_both(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    device_sets_beside(world, *(int *)argument, failure);
}

TEST(a_program_makes_sub_worlds_while_a_world_of_devices_is_made)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        ck_assert_ranks(ranks, NULL, makes_both, &(int){8});
    }
}

TEST(sets_come_first_in_opposite_orders_on_two_ranks)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        for (int devices = 1; devices > 0; devices = device_next(devices, ranks)) {
            ck_assert_ranks(ranks, NULL, runs_sets, &devices);
        }
    }
}

/* ---- kernels of two sets in opposite orders ---- */

enum { PAIRS = 2, SUMS = 3 }; /* sets, and the sums that each has under way */

struct pair_test {
    int (*begun)(int device); /* of the fake NCCL */
    int (*run)(void *stream, void (*work)(void *argument, bool runs), void *argument);
    const struct pl_world_options *options;
    bool has_room;
};

/* What a stream of the fake driver waits for: a kernel on the device after the first `begun`. */
struct held {
    const struct pair_test *test;
    int device, begun;
};

static void wait_for_kernel(void *held_at, bool runs)
{
    const struct held *held = held_at;

    while (runs && held->test->begun(held->device) == held->begun) {
        sched_yield();
    }
}

static enum pl_status submit_sum(struct pl_service *service, int set, int sum, float *data, void *stream,
                                 struct pl_completion *completion, struct pl_error *reterr)
{
    char name[16];
    struct pl_named_op op = {.name = name,
                             .kind = PL_ALLREDUCE,
                             .dtype = PL_FLOAT32,
                             .op = PL_SUM,
                             .dims = 1,
                             .shape = {1},
                             .memory = PL_MEMORY_DEVICE,
                             .send = data,
                             .recv = data,
                             .stream = stream};

    memset(completion, 0, sizeof(*completion));
    snprintf(name, sizeof(name), "sum %d", sum);
    return pl_service_submit(service, set, &op, completion, reterr);
}

/* Ends a sum of each set, so that the worlds of devices are there. */
static void make_worlds(struct pl_service *service, struct pl_device *gpu, float *data, void *const *streams,
                        const int *sets, char failure[RANKS_TEXT_BYTES])
{
    static const float none[PAIRS * SUMS];
    struct pl_completion completion;

    RANKS_OK(device_move(gpu, data, none, sizeof(none), &error));
    for (int s = 0; s < PAIRS; s++) {
        RANKS_OK(submit_sum(service, sets[s], 0, data, streams[s], &completion, &error));
        RANKS_OK(pl_service_wait(service, &completion, &error));
    }
}

/* The set whose kernel comes first on a rank occupies the device before that of the other set can begin. */
static void run_pair(struct pl_service *service, struct pl_device *gpu, const struct pair_test *test, int rank,
                     float *data, void *const *streams, const int *sets, char failure[RANKS_TEXT_BYTES])
{
    struct held held = {.test = test, .device = rank, .begun = test->begun(rank)};
    struct pl_completion completions[PAIRS][SUMS];
    float values[PAIRS][SUMS];
    int failed = 0;

    for (int s = 0; s < PAIRS; s++) {
        for (int i = 0; i < SUMS; i++) {
            values[s][i] = (float)(10 * s + i + rank);
        }
    }
    RANKS_OK(device_move(gpu, data, values, sizeof(values), &error));
    RANKS_NEED(test->run(streams[rank == 0], wait_for_kernel, &held) == 0, "the fake driver runs nothing");
    for (int s = 0; s < PAIRS; s++) {
        int set = rank ? PAIRS - 1 - s : s;

        for (int i = 0; i < SUMS; i++) {
            int sum = rank ? SUMS - 1 - i : i;

            RANKS_OK(submit_sum(service, sets[set], sum, data + set * SUMS + sum, streams[set], &completions[set][sum],
                                &error));
        }
    }
    for (int s = 0; s < PAIRS; s++) {
        for (int i = 0; i < SUMS; i++) {
            struct pl_error told = PL_ERROR_NONE;
            enum pl_status status = pl_service_wait(service, &completions[s][i], &told);
            char text[1100];

            pl_error_text(&told, text, sizeof(text));
            failed += status != PL_OK;
            RANKS_NEED(status == PL_OK || !test->has_room, "set %d, sum %d: %s: %s", s, i, pl_status_name(status),
                       text);
            RANKS_NEED(status == PL_OK || strstr(text, "rank 0") || strstr(text, "rank 1"), "no rank is named: %s",
                       text);
        }
    }
    /* without room one set may end, once the other's deadline has passed */
    RANKS_NEED(test->has_room || failed > 0, "kernels of two sets ran where there is room for one");
    if (test->has_room) {
        RANKS_OK(device_move(gpu, values, data, sizeof(values), &error));
        for (int s = 0; s < PAIRS; s++) {
            for (int i = 0; i < SUMS; i++) {
                RANKS_NEED(values[s][i] == (float)(20 * s + 2 * i + 1), "set %d, sum %d differs: %g", s, i,
                           (double)values[s][i]);
            }
        }
    }
    RANKS_OK(pl_device_stream_finish(gpu, streams[rank == 0], PL_DEADLINE_NEVER, &error)); /* it has `held` */
}

static void pairs(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), sets[PAIRS] = {0};
    struct pl_service *service = NULL;
    void *streams[PAIRS];
    struct pl_device *gpu;
    float *data;

    RANKS_OK(pl_device_open(rank, &gpu, &error));
    for (int s = 0; s < PAIRS; s++) {
        RANKS_OK(pl_device_stream_new(gpu, &streams[s], &error));
    }
    RANKS_OK(pl_device_alloc(gpu, PAIRS * SUMS * sizeof(float), (void **)&data, &error));
    RANKS_OK(pl_service_new(world, NULL, &service, &error));
    RANKS_OK(pl_service_use_device(service, rank, &error));
    RANKS_OK(pl_service_add_set(service, (int[]){1, 0}, 2, &sets[1], &error));
    if (!((const struct pair_test *)argument)->has_room) { /* if its making failed, it would wait for what is held */
        make_worlds(service, gpu, data, streams, sets, failure);
    }
    if (!failure[0]) {
        run_pair(service, gpu, argument, rank, data, streams, sets, failure);
    }
    pl_service_free(service);
    pl_device_release(gpu, data);
    for (int s = 0; s < PAIRS; s++) {
        pl_device_stream_free(gpu, streams[s]);
    }
    pl_device_close(gpu);
}

/* Returns false where no fake NCCL is. */
static bool find_fakes(struct pair_test *test)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *begun = library ? dlsym(library, "fake_nccl_begun") : NULL, *run = device_fake("fake_cuda_run");

    memcpy(&test->begun, &begun, sizeof(begun));
    memcpy(&test->run, &run, sizeof(run));
    if (library) {
        dlclose(library);
    }
    return begun && run;
}

static void run_pairs(const char *room, bool has_room, const char *timeout_s)
{
    struct pl_knobs knobs;
    struct pl_world_options options = {.knobs = &knobs};
    struct pair_test test = {.has_room = has_room};

    if (!find_fakes(&test)) {
        return;
    }
    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, timeout_s, "test", NULL), PL_OK);
    ck_assert_int_eq(setenv("FAKE_NCCL_ROOM", room, 1), 0);
    ck_assert_ranks(2, &options, pairs, &test);
    ck_assert_int_eq(unsetenv("FAKE_NCCL_ROOM"), 0);
}

/* Each set has one stream, and an order in which its ranks agree: one kernel of each is enough. */
TEST(two_sets_in_opposite_orders_need_room_for_a_kernel_of_each)
{
    run_pairs("2", true, "0");
}

TEST(without_that_room_every_rank_has_an_error_at_its_deadline)
{
    run_pairs("1", false, "10"); /* enough to make the worlds */
}

/* ---- the removal of a set whose operation a stream follows ---- */

enum { FOLLOWED = 1000, LATER = 8 };

/* The work before the followed operation goes on when the other thread has seen `LATER` barriers in set 0 end. */
struct removal {
    struct pl_service *service;
    struct pl_completion later[LATER];
    atomic_bool goes_on, is_lost;
    char failure[RANKS_TEXT_BYTES];
};

static void wait_to_go_on(void *removal_at, bool runs)
{
    struct removal *removal = removal_at;

    while (runs && !atomic_load(&removal->goes_on)) {
        sched_yield();
    }
}

static struct removal *lost_of; /* of rank 0 */

static void note_lost(struct pl_completion *completion)
{
    (void)completion;
    atomic_store(&lost_of->is_lost, true);
}

/* Lets the device go on a few rounds of set 0 after the other thread has begun to remove a set. */
static void *let_go_on(void *removal_at)
{
    struct removal *removal = removal_at;
    struct pl_service *service = removal->service;
    char *failure = removal->failure;
    const int64_t deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    bool begun = false;

    while (!begun) {
        pthread_mutex_lock(&service->lock);
        begun = service->synced.changing_sets;
        pthread_mutex_unlock(&service->lock);
        sched_yield();
    }
    for (int i = 0; i < LATER && !failure[0]; i++) {
        struct pl_completion *completion = &removal->later[i];
        struct pl_error error = PL_ERROR_NONE;
        struct pl_named_op op = {.name = "later", .kind = PL_BARRIER};

        if (pl_service_submit(service, 0, &op, completion, &error) != PL_OK) {
            snprintf(failure, RANKS_TEXT_BYTES, "barrier %d in set 0: %s", i, error.cause);
        }
        while (!failure[0] && !pl_service_poll(service, completion)) {
            if (pl_deadline_passed(deadline_ns)) {
                snprintf(failure, RANKS_TEXT_BYTES, "barrier %d in set 0 does not end", i);
            }
            sched_yield();
        }
    }
    atomic_store(&removal->goes_on, true);
    return NULL;
}

static void remove_followed(struct removal *removal, struct pl_device *gpu, const struct pair_test *test, int rank,
                            float *data, void *stream, char failure[RANKS_TEXT_BYTES])
{
    struct pl_service *service = removal->service;
    struct pl_completion completion;
    struct pl_named_op op = {.name = "followed",
                             .kind = PL_ALLREDUCE,
                             .dtype = PL_FLOAT32,
                             .op = PL_SUM,
                             .dims = 1,
                             .shape = {FOLLOWED},
                             .memory = PL_MEMORY_DEVICE,
                             .send = data,
                             .recv = data,
                             .stream = stream};
    float values[FOLLOWED];
    pthread_t thread;
    enum pl_status status;
    struct pl_error told = PL_ERROR_NONE;
    bool done = false;
    int set = 0;

    if (rank == 0) {
        lost_of = removal;
    }
    RANKS_OK(pl_service_add_set(service, (int[]){1, 0}, 2, &set, &error));
    for (int step = 0; step < 2; step++) { /* the first step makes the world of devices */
        for (int i = 0; i < FOLLOWED; i++) {
            values[i] = (float)(i + rank);
        }
        RANKS_OK(device_move(gpu, data, values, sizeof(values), &error));
        if (step == 1) {
            RANKS_NEED(test->run(stream, wait_to_go_on, removal) == 0, "the fake driver runs nothing");
        }
        completion = (struct pl_completion){.lost = note_lost};
        RANKS_OK(pl_service_submit(service, set, &op, &completion, &error));
        RANKS_OK(step == 0 ? pl_service_wait(service, &completion, &error)
                           : pl_service_follow(service, &completion, stream, &done, &error));
    }
    RANKS_NEED(!done, "the host waited for an operation that is held");
    RANKS_NEED(pthread_create(&thread, NULL, let_go_on, removal) == 0, "no thread");
    status = pl_service_remove_set(service, set, &told);
    pthread_join(thread, NULL);
    RANKS_NEED(status == PL_OK, "%s", told.cause);
    RANKS_NEED(!removal->failure[0], "%s", removal->failure);
    RANKS_NEED(pl_service_is_done(service, &completion), "the set was removed before its operation ended");
    RANKS_OK(pl_device_stream_finish(gpu, stream, PL_DEADLINE_NEVER, &error));
    RANKS_OK(device_move(gpu, values, data, sizeof(values), &error));
    for (int i = 0; i < FOLLOWED; i++) {
        RANKS_NEED(values[i] == (float)(2 * i + 1), "element %d differs: %g", i, (double)values[i]);
    }
    RANKS_NEED(rank != 0 || !atomic_load(&removal->is_lost), "the operation was lost");
}

static void removes_followed(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    struct removal removal = {.service = NULL};
    struct pl_service *service = NULL;
    struct pl_device *gpu;
    void *stream;
    float *data;

    RANKS_OK(pl_device_open(rank, &gpu, &error));
    RANKS_OK(pl_device_stream_new(gpu, &stream, &error));
    RANKS_OK(pl_device_alloc(gpu, FOLLOWED * sizeof(float), (void **)&data, &error));
    RANKS_OK(pl_service_new(world, NULL, &service, &error));
    RANKS_OK(pl_service_use_device(service, rank, &error));
    removal.service = service;
    remove_followed(&removal, gpu, argument, rank, data, stream, failure);
    atomic_store(&removal.goes_on, true);
    pl_service_free(service);
    pl_device_release(gpu, data);
    pl_device_stream_free(gpu, stream);
    pl_device_close(gpu);
}

TEST(a_set_is_removed_after_what_streams_follow_in_it)
{
    struct pair_test test = {.begun = NULL};

    if (find_fakes(&test)) { /* without NCCL the host takes part, and nothing can be followed that is held */
        ck_assert_ranks(2, NULL, removes_followed, &test);
    }
}

/* ---- another GPU ---- */

static void uses_two_devices(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world), count = 0;
    struct pl_service *service = NULL;
    struct pl_error told = PL_ERROR_NONE;
    char text[1100], wanted[128];

    (void)argument;
    RANKS_OK(pl_device_count(&count, &error));
    RANKS_OK(pl_service_new(world, NULL, &service, &error));
    if (count > rank + 1) {
        RANKS_OK(pl_service_use_device(service, rank, &error));
        RANKS_OK(pl_service_use_device(service, rank, &error));
        RANKS_NEED(pl_service_use_device(service, rank + 1, &told) == PL_INVALID, "a second GPU was taken");
        pl_error_text(&told, text, sizeof(text));
        snprintf(wanted, sizeof(wanted), "a tensor on GPU %d, but this rank's operations are on GPU %d", rank + 1,
                 rank);
        RANKS_NEED(strstr(text, wanted), "'%s' does not say '%s'", text, wanted);
        snprintf(wanted, sizeof(wanted), "rank %d", rank);
        RANKS_NEED(strstr(text, wanted), "'%s' does not say '%s'", text, wanted);
    }
    RANKS_OK(pl_service_shutdown(service, &error));
    pl_service_free(service);
}

TEST(a_second_gpu_of_a_rank_is_refused_with_both_numbers)
{
    ck_assert_ranks(2, NULL, uses_two_devices, NULL);
}

UNIT_MAIN_AFTER("runtime/device_sets", device_prepare())
