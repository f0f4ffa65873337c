/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/device_world.c, runtime/named/service_device.c. */
/* Worlds of devices for several sets of ranks. */
#include "base/knob.h"
#include "runtime/service.h"
#include "tests/scenarios/device_sets.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

enum { ROUNDS = 1 };

static void runs_sets(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    device_sets_run(world, *(int *)argument, ROUNDS, failure);
}

static void makes_both(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    device_sets_beside(world, *(int *)argument, failure);
}

START_TEST(a_program_makes_sub_worlds_while_a_world_of_devices_is_made)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        ck_assert_ranks(ranks, NULL, makes_both, &(int){8});
    }
}
END_TEST

START_TEST(sets_come_first_in_opposite_orders_on_two_ranks)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        for (int devices = 1; devices > 0; devices = device_next(devices, ranks)) {
            ck_assert_ranks(ranks, NULL, runs_sets, &devices);
        }
    }
}
END_TEST

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
START_TEST(two_sets_in_opposite_orders_need_room_for_a_kernel_of_each)
{
    run_pairs("2", true, "0");
}
END_TEST

START_TEST(without_that_room_every_rank_has_an_error_at_its_deadline)
{
    run_pairs("1", false, "10"); /* enough to make the worlds */
}
END_TEST

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

START_TEST(a_second_gpu_of_a_rank_is_refused_with_both_numbers)
{
    ck_assert_ranks(2, NULL, uses_two_devices, NULL);
}
END_TEST

UNIT_MAIN_AFTER("runtime/device_sets", device_prepare(), a_program_makes_sub_worlds_while_a_world_of_devices_is_made,
                two_sets_in_opposite_orders_need_room_for_a_kernel_of_each,
                without_that_room_every_rank_has_an_error_at_its_deadline,
                a_second_gpu_of_a_rank_is_refused_with_both_numbers, sets_come_first_in_opposite_orders_on_two_ranks)
