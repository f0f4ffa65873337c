/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/gpu/nccl_nccl.c, collectives/gpu/library_nccl.c, collectives/gpu/compare_calls.c,
 * collectives/gpu/stream_events.c. */
/* One GPU per rank, by NCCL. Driver and NCCL are fakes: the tests check our calls, their order, and how their
 * failures are reported. */
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "base/knob.h"
#include "collectives/core/types.h"
#include "collectives/gpu/library_nccl.h"
#include "collectives/world_private.h"
#include "device/kernel.h"
#include "tests/support/device_alloc_budget.h"
#include "tests/support/device_ranks.h"
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>

#ifdef NCCL_VERSION_CODE
#define SAME_VALUE(name, value) _Static_assert((int)(name) == (value), #name " is NCCL's");
PL_NCCL_CONSTANTS(SAME_VALUE)
/* all but the function that gets a configuration, which is of a version of its own */
#define SAME_TYPE(type, name, ...)                                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(nccl##name), type(__VA_ARGS__)) ||                          \
                       sizeof(#name) == sizeof("CommInitRankConfig"),                                                  \
                   #name " is NCCL's");
PL_NCCL_FUNCTIONS(SAME_TYPE)
#if NCCL_VERSION_CODE >= 21700
_Static_assert(offsetof(struct pl_nccl_config, blocking) == offsetof(ncclConfig_t, blocking) &&
                   offsetof(struct pl_nccl_config, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
                   offsetof(struct pl_nccl_config, net_name) == offsetof(ncclConfig_t, netName),
               "the configuration begins as NCCL's");
#endif
#endif

enum { COUNT = 1003 };

static const uint64_t counts[] = {0, 1, 17, 2003};

TEST(every_operation_is_right)
{
    ck_assert_ranks_on(2, 2, NULL, device_ranks_conform,
                       &((struct conformance){.counts = counts, .count_count = 3, .device = true}));
    ck_assert_ranks_on(
        3, 3, NULL, device_ranks_conform,
        &((struct conformance){.counts = counts + 2, .count_count = 1, .all_types = true, .device = true}));
    ck_assert_ranks_on(4, 4, NULL, device_ranks_conform,
                       &((struct conformance){.counts = counts + 3, .count_count = 1, .device = true}));
}

TEST(calls_agreed_before_are_right)
{
    ck_assert_ranks_on(3, 3, NULL, device_ranks_conform,
                       &((struct conformance){
                           .counts = counts + 2, .count_count = 1, .arena = true, .device = true, .flags = PL_AGREED}));
}

TEST(every_operation_is_right_in_the_order_of_gpu_indices)
{
    static const int order[] = {2, 0, 1};

    ck_assert_ranks_on(3, 3, &((struct pl_world_options){.gpu_indices = order, .gpu_count = 3}), device_ranks_conform,
                       &((struct conformance){.counts = counts + 3, .count_count = 1, .device = true}));
}

TEST(the_communicator_follows_gpu_indices)
{
    static const int order[] = {1, 0};
    char expected[] = "backend nccl: on\n  NCCL 2.";
    char places[] = "ranks 0 to 1 of its communicator: ranks 1 0\n";

    ck_assert_ranks_on(2, 2, NULL, device_ranks_say, expected);
    ck_assert_ranks_on(2, 2, &((struct pl_world_options){.gpu_indices = order, .gpu_count = 2}), device_ranks_say,
                       places);
}

static enum pl_status sum_on_device(struct pl_world *world, void *memory, unsigned flags, int64_t deadline_ns,
                                    const char *name, struct pl_error *reterr)
{
    return pl_collective_run(world,
                             &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                     .dtype = PL_FLOAT32,
                                                     .count = COUNT,
                                                     .send = memory,
                                                     .recv = memory,
                                                     .memory = PL_MEMORY_DEVICE,
                                                     .flags = flags,
                                                     .name = name,
                                                     .deadline_ns = deadline_ns},
                             reterr);
}

/* Compares factors and averages with the host's, within rounding; NaNs in minimum and maximum. */
static void compare_with_host(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const struct pl_collective cases[] = {
        {.kind = PL_ALLREDUCE, .op = PL_AVERAGE},
        {.kind = PL_ALLREDUCE, .op = PL_AVERAGE, .divisor = 49},
        {.kind = PL_ALLREDUCE, .op = PL_AVERAGE, .divisor = 2},
        {.kind = PL_ALLREDUCE, .op = PL_SUM, .scaled = true, .prescale = 0.3, .postscale = 3},
        {.kind = PL_ALLREDUCE, .op = PL_AVERAGE, .scaled = true, .prescale = 0.5, .postscale = 0.7},
        {.kind = PL_ALLREDUCE, .op = PL_PRODUCT, .scaled = true, .prescale = 1.25, .postscale = 0.5},
        {.kind = PL_ALLREDUCE, .op = PL_MAX},
        {.kind = PL_REDUCE, .op = PL_AVERAGE, .scaled = true, .prescale = 0.3, .postscale = 1},
        {.kind = PL_REDUCE_SCATTER, .op = PL_AVERAGE, .scaled = true, .prescale = 2, .postscale = 0.3, .count = 100},
        {.kind = PL_REDUCE_SCATTER, .op = PL_SUM, .scaled = true, .prescale = 0.3, .postscale = 1, .count = 100},
    };
    struct pl_device *device = pl_world_device(world);
    void *memory;

    RANKS_OK(pl_device_alloc(device, COUNT * sizeof(float), &memory, &error));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pl_collective c = cases[i];
        float host[COUNT];
        float back[COUNT];
        uint64_t count;

        for (int k = 0; k < COUNT; k++) {
            host[k] = sinf((float)(k + 11 * pl_world_rank(world)));
        }
        host[3] = pl_world_rank(world) == 1 && c.op == PL_MAX ? NAN : host[3];
        c.count = c.count ? c.count : COUNT;
        RANKS_OK(device_move(device, memory, host, sizeof(host), &error));
        c.send = c.recv = host;
        c.recv = c.kind == PL_REDUCE_SCATTER ? host + (size_t)pl_world_rank(world) * c.count : c.recv;
        RANKS_OK(pl_collective_run(world, &c, &error));
        c.memory = PL_MEMORY_DEVICE;
        c.send = c.recv = memory;
        c.recv = c.kind == PL_REDUCE_SCATTER ? (float *)memory + (size_t)pl_world_rank(world) * c.count : c.recv;
        RANKS_OK(pl_collective_run(world, &c, &error));
        RANKS_OK(device_move(device, back, memory, sizeof(back), &error));
        count = c.kind == PL_REDUCE && pl_world_rank(world) != 0 ? 0 : c.count;
        for (uint64_t k = 0; k < count; k++) {
            uint64_t at = k + (c.kind == PL_REDUCE_SCATTER ? (uint64_t)pl_world_rank(world) * c.count : 0);

            RANKS_NEED(fabsf(host[at] - back[at]) <= 1e-6F || (isnan(host[at]) && isnan(back[at])),
                       "case %zu, element %d: %.9g, the host has %.9g", i, (int)at, (double)back[at], (double)host[at]);
        }
    }
    pl_device_release(device, memory);
}

TEST(factors_averages_and_nans_are_those_of_host_memory)
{
    for (int size = 2; size <= 4; size++) {
        ck_assert_ranks_on(size, size, NULL, compare_with_host, NULL);
    }
}

/* Half-width sums that would be infinite. */
static void average_large_halves(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const uint16_t large = 0x7a00; /* 49152 as float16 */
    uint16_t half = large;
    void *memory;

    RANKS_OK(pl_device_alloc(pl_world_device(world), 2, &memory, &error));
    RANKS_OK(device_move(pl_world_device(world), memory, &half, 2, &error));
    RANKS_OK(pl_collective_run(world,
                               &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                        .dtype = PL_FLOAT16,
                                                        .op = PL_AVERAGE,
                                                        .count = 1,
                                                        .send = memory,
                                                        .recv = memory,
                                                        .memory = PL_MEMORY_DEVICE}),
                               &error));
    RANKS_OK(device_move(pl_world_device(world), &half, memory, 2, &error));
    RANKS_NEED(half == large, "the average of equal halves is %#x, not %#x", half, large);
    pl_device_release(pl_world_device(world), memory);
}

TEST(averages_of_halves_do_not_overflow)
{
    ck_assert_ranks_on(3, 3, NULL, average_large_halves, NULL);
    ck_assert_ranks_on(4, 4, NULL, average_large_halves, NULL);
}

/* A chain on the device: each sum uses the one before, and the host reads only the last. */
static void chain(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { LINKS = 20 };
    struct pl_device *device = pl_world_device(world);
    struct pl_request *requests[LINKS];
    float values[COUNT];
    uint64_t called;
    void *stream;
    void *memory;
    float expected = 1;

    for (int k = 0; k < COUNT; k++) {
        values[k] = 1;
    }
    RANKS_OK(pl_device_stream_new(device, &stream, &error));
    RANKS_OK(pl_device_alloc(device, sizeof(values), &memory, &error));
    called = world->host_world->sequence;
    RANKS_OK(pl_device_copy(device, memory, values, sizeof(values), stream, &error));
    for (int i = 0; i < LINKS; i++) {
        RANKS_OK(pl_collective_post(world,
                                    &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                             .dtype = PL_FLOAT32,
                                                             .count = COUNT,
                                                             .send = memory,
                                                             .recv = memory,
                                                             .memory = PL_MEMORY_DEVICE,
                                                             .stream = stream,
                                                             .flags = PL_AGREED}),
                                    &requests[i], &error));
        RANKS_OK(pl_request_stream_wait(requests[i], stream, &error));
        expected *= (float)pl_world_size(world);
    }
    RANKS_OK(pl_device_copy(device, values, memory, sizeof(values), stream, &error));
    for (int i = LINKS - 1; i >= 0; i--) {
        RANKS_OK(pl_request_wait(requests[i], &error));
    }
    RANKS_OK(pl_device_stream_finish(device, stream, pl_deadline_after_ns(60 * PL_NS_PER_S), &error));
    for (int k = 0; k < COUNT; k++) {
        RANKS_NEED(values[k] == expected, "element %d is %g, not %g", k, (double)values[k], (double)expected);
    }
    RANKS_NEED(world->host_world->sequence == called, "the hosts exchanged something about calls that were agreed");
    pl_device_release(device, memory);
    pl_device_stream_free(device, stream);
}

/* Kernels are loaded already: loading may wait for NCCL's kernels, which wait for other ranks. */
static void have_kernels(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    RANKS_NEED(device_calls("cuModuleLoadData") != 0, "the kernels are not loaded when the first collective may begin");
}

UNIT_TEST(kernels_are_loaded_before_nccl_runs, ck_assert_ranks_on(2, 2, NULL, have_kernels, NULL))

TEST(a_step_needs_no_host_between_its_collectives)
{
    ck_assert_ranks_on(2, 2, NULL, chain, NULL);
    ck_assert_ranks_on(3, 3, NULL, chain, NULL);
}

/* The second is posted after work that is held while NCCL still works on the first: the first ends all the same. */
static void second_waits_alone(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_device *device = pl_world_device(world);
    struct pl_collective c = {
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .count = COUNT, .memory = PL_MEMORY_DEVICE, .flags = PL_AGREED};
    struct pl_request *requests[2];
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status first;
    void *memory[2], *pinned, *stream;

    RANKS_OK(pl_device_stream_new(device, &stream, &error));
    RANKS_OK(pl_device_alloc_pinned(device, sizeof(float), &pinned, &error));
    for (int i = 0; i < 2; i++) {
        RANKS_OK(pl_device_alloc(device, COUNT * sizeof(float), &memory[i], &error));
    }
    c.stream = stream;
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            device_order("hold_copies");
            RANKS_OK(pl_device_copy(device, pinned, memory[1], sizeof(float), stream, &error));
        }
        c.send = c.recv = memory[i];
        c.deadline_ns = pl_deadline_after_ns((i == 0 ? 30 : 60) * PL_NS_PER_S);
        RANKS_OK(pl_collective_post(world, &c, &requests[i], &error));
    }
    first = pl_request_wait(requests[0], &told);
    device_order("let_copies_go");
    RANKS_NEED(first == PL_OK, "the first waits for what is before the second: %s: %s", pl_status_name(first),
               told.cause);
    RANKS_OK(pl_request_wait(requests[1], &error));
    for (int i = 0; i < 2; i++) {
        pl_device_release(device, memory[i]);
    }
    pl_device_release_pinned(device, pinned);
    pl_device_stream_free(device, stream);
}

UNIT_TEST(a_collective_waits_for_its_own_callers_work_only, ck_assert_ranks_on(2, 2, NULL, second_waits_alone, NULL))

/* Several collectives of NCCL, then some of other backends, then of NCCL again. */
static void mix(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { MEMBERS = 5 };
    struct pl_device *device = pl_world_device(world);
    struct pl_collective members[MEMBERS];
    struct pl_request *requests[MEMBERS];
    struct pl_request *average;
    struct pl_request *host;
    struct pl_request *last;
    int32_t values[MEMBERS * 8];
    int32_t on_host = 1;
    int32_t size = pl_world_size(world);
    void *memory;

    for (int k = 0; k < MEMBERS * 8; k++) {
        values[k] = k;
    }
    RANKS_OK(pl_device_alloc(device, sizeof(values), &memory, &error));
    RANKS_OK(device_move(device, memory, values, sizeof(values), &error));
    for (int i = 0; i < MEMBERS; i++) {
        int32_t *at = (int32_t *)memory + (ptrdiff_t)i * 8;

        members[i] = (struct pl_collective){
            .kind = PL_ALLREDUCE, .dtype = PL_INT32, .count = 8, .send = at, .recv = at, .memory = PL_MEMORY_DEVICE};
    }
    for (int i = 0; i < MEMBERS; i++) {
        RANKS_OK(pl_collective_post(world, &members[i], &requests[i], &error));
    }
    members[0].op = PL_AVERAGE; /* not served by NCCL; the result is the same number */
    RANKS_OK(pl_collective_post(world, &members[0], &average, &error));
    RANKS_OK(pl_collective_post(
        world,
        &((struct pl_collective){
            .kind = PL_ALLREDUCE, .dtype = PL_INT32, .count = 1, .send = &on_host, .recv = &on_host}),
        &host, &error));
    RANKS_OK(pl_collective_post(world, &members[1], &last, &error));
    for (int i = 0; i < MEMBERS; i++) {
        RANKS_OK(pl_request_stream_wait(requests[i], NULL, &error));
    }
    RANKS_OK(pl_request_stream_wait(average, NULL, &error));
    RANKS_OK(pl_request_wait(last, &error));
    RANKS_OK(pl_request_wait(host, &error));
    RANKS_OK(pl_request_wait(average, &error));
    for (int i = 0; i < MEMBERS; i++) {
        RANKS_OK(pl_request_wait(requests[i], &error));
    }
    RANKS_OK(device_move(device, values, memory, sizeof(values), &error));
    RANKS_NEED(on_host == size, "the host's sum is %d, not %d", on_host, size);
    for (int k = 0; k < MEMBERS * 8; k++) {
        int32_t expected = k * size * (k / 8 == 1 ? size : 1);

        RANKS_NEED(values[k] == expected, "element %d is %d, not %d", k, values[k], expected);
    }
    pl_device_release(device, memory);
}

TEST(nccl_and_other_backends_keep_the_order)
{
    ck_assert_ranks_on(2, 2, NULL, mix, NULL);
    ck_assert_ranks_on(3, 3, NULL, mix, NULL);
}

static void disagree(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    void *memory;

    RANKS_OK(pl_device_alloc(pl_world_device(world), COUNT * sizeof(float), &memory, &error));
    RANKS_OK(sum_on_device(world, memory, 0, 0, "weight", &error));
    RANKS_NEED(sum_on_device(world, memory, 0, 0, pl_world_rank(world) == 1 ? "bias" : "weight", &told) == PL_MISMATCH,
               "%s: %s", pl_status_name(told.status), told.cause);
    RANKS_NEED(strstr(told.cause, "rank 0 calls allreduce 'weight' of 1003 float32") &&
                   strstr(told.cause, "rank 1 calls allreduce 'bias'"),
               "%s", told.cause);
    RANKS_NEED(sum_on_device(world, memory, 0, 0, "weight", &told) == PL_MISMATCH,
               "the world goes on after a disagreement");
    pl_device_release(pl_world_device(world), memory);
}

UNIT_TEST(a_disagreement_is_reported_on_all_ranks, ck_assert_ranks_on(3, 3, NULL, disagree, NULL))

static void suffer_on_hosts(int ranks, int ranks_per_host, const char *nccl, const struct device_fault *fault)
{
    const struct pl_world_options options = {.pretend_ranks_per_host = ranks_per_host};

    ck_assert_int_eq(setenv("FAKE_NCCL_FAULT", nccl, 1), 0);
    ck_assert_ranks_on(ranks, ranks, &options, device_ranks_suffer, (void *)(uintptr_t)fault);
    ck_assert_int_eq(unsetenv("FAKE_NCCL_FAULT"), 0);
}

static void suffer(int ranks, const char *nccl, const struct device_fault *fault)
{
    suffer_on_hosts(ranks, 0, nccl, fault);
}

TEST(faults_of_nccl_end_all_ranks_with_rank_host_and_device)
{
    const char *network = "remote process exited or there was a network error: the test lets this call fail";
    const char *late = "collective number 3, allreduce, did not end before rank 1's deadline";

    for (int ranks = 2; ranks <= 4; ranks += 2) {
        for (unsigned flags = 0; flags <= PL_AGREED; flags += PL_AGREED) {
            suffer(ranks, "async:1:3",
                   &((struct device_fault){.text = network, .of_rank_1 = PL_LIBRARY, .flags = flags}));
            suffer(ranks, "ask:1:3",
                   &((struct device_fault){.text = "NCCL, allreduce: invalid argument: the test lets this call fail",
                                           .of_rank_1 = PL_LIBRARY,
                                           .flags = flags}));
            suffer(ranks, "hang:1:3",
                   &((struct device_fault){
                       .text = late, .of_rank_1 = PL_TIMEOUT, .flags = flags, .deadline_ns = PL_NS_PER_S / 4}));
        }
    }
}

TEST(a_lost_device_ends_all_ranks_with_rank_host_and_device)
{
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        for (unsigned flags = 0; flags <= PL_AGREED; flags += PL_AGREED) {
            suffer(ranks, "",
                   &((struct device_fault){
                       .order = "lost", .text = "CUDA_ERROR_UNKNOWN", .of_rank_1 = PL_LIBRARY, .flags = flags}));
            suffer(ranks, "",
                   &((struct device_fault){.order = "kernel_error",
                                           .text = "CUDA_ERROR_ILLEGAL_ADDRESS",
                                           .of_rank_1 = PL_LIBRARY,
                                           .flags = flags}));
        }
    }
}

/* Also if the ranks have compared their calls before, and only poll NCCL. */
TEST(the_ranks_of_other_hosts_report_a_fault_at_once)
{
    const char *late = "collective number 3, allreduce, did not end before rank 1's deadline";

    for (int per_host = 1; per_host <= 2; per_host++) {
        for (unsigned flags = 0; flags <= PL_AGREED; flags += PL_AGREED) {
            suffer_on_hosts(
                4, per_host, "hang:1:3",
                &((struct device_fault){
                    .text = late, .of_rank_1 = PL_TIMEOUT, .flags = flags, .deadline_ns = PL_NS_PER_S / 4}));
            suffer_on_hosts(
                4, per_host, "",
                &((struct device_fault){
                    .order = "lost", .text = "CUDA_ERROR_UNKNOWN", .of_rank_1 = PL_LIBRARY, .flags = flags}));
        }
    }
}

/* A call that advances the world launches the second when the first is in the stream; the program here does not
 * wait. */
static void look_on(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_device *device = pl_world_device(world);
    int64_t deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
    struct pl_request *requests[2];
    bool launched;
    void *memory;

    RANKS_OK(pl_device_alloc(device, COUNT * sizeof(float), &memory, &error));
    for (int i = 0; i < 2; i++) {
        struct pl_collective c = {.kind = PL_ALLREDUCE,
                                  .dtype = PL_FLOAT32,
                                  .count = COUNT,
                                  .send = memory,
                                  .recv = memory,
                                  .memory = PL_MEMORY_DEVICE,
                                  .flags = PL_AGREED};

        RANKS_OK(pl_collective_post(world, &c, &requests[i], &error));
    }
    while (!pl_request_launched(requests[1]) && !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    launched = pl_request_launched(requests[1]);
    RANKS_OK(pl_request_wait(requests[1], &error));
    RANKS_NEED(launched, "nobody gave the second to NCCL");
    RANKS_OK(pl_request_wait(requests[0], &error));
    pl_device_release(device, memory);
}

TEST(the_progress_thread_asks_nccl_for_this_device)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_PROGRESS, "on");

    ck_assert_ranks_on(2, 2, &((struct pl_world_options){.knobs = &knobs}), look_on, NULL);
}

static void say_and_conform(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    device_ranks_say(world, argument, failure);
    if (!failure[0]) {
        device_ranks_conform(world, &((struct conformance){.counts = counts + 2, .count_count = 1, .device = true}),
                             failure);
    }
}

TEST(ranks_that_cannot_join_leave_it_to_the_hosts)
{
    char why[] = "backend nccl: off, NCCL, joining: unhandled system error";
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    /* Half of the time is for the rank that does not come; the rest is for a busy machine. */
    ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, "8", "test");
    ck_assert_int_eq(setenv("FAKE_NCCL_FAULT", "init:0", 1), 0);
    ck_assert_ranks_on(2, 2, &((struct pl_world_options){.knobs = &knobs}), say_and_conform, why);
    ck_assert_int_eq(unsetenv("FAKE_NCCL_FAULT"), 0);
}

TEST(the_setting_backend_chooses_among_those_for_devices)
{
    char off[] = "backend nccl: off, the setting backend asks for device only";
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_BACKEND, "device");

    ck_assert_ranks_on(2, 2, &((struct pl_world_options){.knobs = &knobs}), say_and_conform, off);
}

/* The first operation fails in NCCL: no other backend served it. */
static void fails_in_nccl(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_device *device = pl_world_device(world);
    struct pl_collective sum = {
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .memory = PL_MEMORY_DEVICE, .count = 10};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;
    void *memory;

    RANKS_OK(pl_device_alloc(device, 40, &memory, &error));
    sum.send = sum.recv = memory;
    status = pl_collective_run(world, &sum, &told);
    RANKS_NEED(status == PL_LIBRARY && strstr(told.cause, "the test lets this call fail"), "%s: %s",
               pl_status_name(status), told.cause);
    pl_device_release(device, memory);
}

TEST(one_rank_uses_nccl_where_the_setting_backend_asks_for_it)
{
    char on[] = "backend nccl: on\n  NCCL 2.", off[] = "backend nccl: off, one rank alone";
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_ranks_on(1, 1, &((struct pl_world_options){.knobs = &knobs}), say_and_conform, off);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_BACKEND, "nccl", "test");
    ck_assert_ranks_on(1, 1, &((struct pl_world_options){.knobs = &knobs}), say_and_conform, on);
    ck_assert_int_eq(setenv("FAKE_NCCL_FAULT", "ask:0:1", 1), 0);
    ck_assert_ranks_on(1, 1, &((struct pl_world_options){.knobs = &knobs}), fails_in_nccl, NULL);
    ck_assert_int_eq(unsetenv("FAKE_NCCL_FAULT"), 0);
}

/* A collective on a stream that is captured into a CUDA graph is refused, and the world goes on. */
static void captures(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_device *device = pl_world_device(world);
    struct pl_collective sum = {
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .memory = PL_MEMORY_DEVICE, .count = 10};
    void *memory, *graph, *at = device_fake("cuStreamBeginCapture_v2");
    struct pl_error told[2] = {PL_ERROR_NONE, PL_ERROR_NONE};
    int (*begin)(void *stream, int mode) = NULL;
    int (*end)(void *stream, void **ret_graph) = NULL;
    struct pl_request *request = NULL;
    enum pl_status run, posted;

    memcpy(&begin, &at, sizeof(begin));
    at = device_fake("cuStreamEndCapture");
    memcpy(&end, &at, sizeof(end));
    RANKS_OK(pl_device_stream_new(device, &sum.stream, &error));
    RANKS_OK(pl_device_alloc(device, 40, &memory, &error));
    sum.send = sum.recv = memory;
    RANKS_OK(pl_collective_run(world, &sum, &error));
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(begin(sum.stream, 0) == 0, "no capture begins");
    run = pl_collective_run(world, &sum, &told[0]);
    posted = pl_collective_post(world, &sum, &request, &told[1]);
    RANKS_NEED(end(sum.stream, &graph) == 0, "the capture was ended by a call that is not a part of it");
    RANKS_NEED(run == PL_INVALID && strstr(told[0].cause, "captured into a CUDA graph"), "%s: %s", pl_status_name(run),
               told[0].cause);
    RANKS_NEED(posted == PL_INVALID && strstr(told[1].cause, "captured into a CUDA graph"), "%s: %s",
               pl_status_name(posted), told[1].cause);
    RANKS_OK(pl_barrier(world, &error));
    RANKS_OK(pl_collective_run(world, &sum, &error));
    RANKS_OK(pl_device_stream_finish(device, sum.stream, PL_DEADLINE_NEVER, &error));
    pl_device_release(device, memory);
    pl_device_stream_free(device, sum.stream);
}

TEST(a_captured_stream_is_refused)
{
    ck_assert_ranks_on(1, 1, NULL, captures, NULL);
    ck_assert_ranks_on(2, 1, NULL, captures, NULL);
    ck_assert_ranks_on(2, 2, NULL, captures, NULL);
}

/* A set of ranks has a communicator of few CTAs. Each counts on the device until it goes. */
static void make_subsets(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { SETS = 4 };
    static const int some[] = {0, 2};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), *found = dlsym(library, "fake_nccl_max_ctas");
    int (*max_ctas)(void) = NULL;
    struct pl_world *sets[SETS];
    struct conformance conformance = {.counts = counts + 2, .count_count = 1, .device = true};

    dlclose(library);
    memcpy(&max_ctas, &found, sizeof(found));
    RANKS_NEED(max_ctas() == INT_MIN, "%d CTAs for all ranks", max_ctas());
    RANKS_OK(pl_barrier(world, &error));
    for (int i = 0; i < SETS && pl_world_rank(world) != 1; i++) {
        RANKS_OK(pl_world_new_sub(world, some, 2, &sets[i], &error));
        RANKS_NEED(max_ctas() == 4, "%d CTAs for some ranks", max_ctas());
        RANKS_NEED(pl_device_subset_worlds(pl_world_device(world), 0) == i + 1, "the set does not count");
        device_ranks_say(sets[i], "ranks 0 1; at most 4 CTAs a kernel", failure);
        conformance_run(sets[i], &conformance);
        RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
    }
    RANKS_OK(pl_barrier(world, &error));
    for (int i = 0; i < SETS && pl_world_rank(world) != 1; i++) {
        pl_world_free(sets[i]);
    }
    RANKS_NEED(pl_device_subset_worlds(pl_world_device(world), 0) == 0, "a set still counts");
}

UNIT_TEST(sets_of_ranks_have_few_ctas, ck_assert_ranks_on(3, 3, NULL, make_subsets, NULL))

TEST(ranks_share_a_device_where_nccl_was_told_to)
{
    char on[] = "backend nccl: on\n", off[] = "backend nccl: off, ranks 0 and 1 share ";

    ck_assert_ranks_on(2, 1, NULL, device_ranks_say, off);
    ck_assert_int_eq(setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1), 0);
    ck_assert_ranks_on(2, 1, NULL, device_ranks_say, off); /* NCCL is too old for it */
    ck_assert_int_eq(setenv("FAKE_NCCL_VERSION", "23000", 1), 0);
    ck_assert_ranks_on(2, 1, NULL, say_and_conform, on);
    ck_assert_int_eq(unsetenv("NCCL_MULTI_RANK_GPU_ENABLE"), 0);
    ck_assert_ranks_on(2, 1, NULL, device_ranks_say, off);
    ck_assert_int_eq(unsetenv("FAKE_NCCL_VERSION"), 0);
}

UNIT_TEST(a_rank_without_memory_for_a_part_is_named_at_once, check_device_alloc_budget())

/*
 * The program's own kernel never ends on rank 1. NCCL's later work does not end either, nor does its abort, which
 * waits for that work.
 */
static void hang(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_device *device = pl_world_device(world);
    bool hangs = pl_world_rank(world) == 1;
    int64_t begin_ns = pl_clock_now_ns();
    struct pl_error told = PL_ERROR_NONE;
    void *memory;

    RANKS_OK(pl_device_alloc(device, COUNT * sizeof(float), &memory, &error));
    if (hangs) {
        device_ranks_order(world, "kernel_hangs");
        RANKS_OK(pl_device_scale(device, memory, PL_FLOAT32, memory, PL_FLOAT32, COUNT, 2.0, NULL, &error));
    }
    sum_on_device(world, memory, PL_AGREED, pl_deadline_after_ns(hangs ? PL_NS_PER_S / 4 : 60 * PL_NS_PER_S), NULL,
                  &told);
    pl_device_release(device, memory);
    device_ranks_check(
        world,
        &((struct device_fault){.text = "collective number 1, allreduce, did not end before rank 1's deadline",
                                .of_rank_1 = PL_TIMEOUT}),
        told.status, &told, begin_ns, failure);
}

/* The last test: its device is unusable in this process afterwards. */
UNIT_TEST(a_kernel_that_hangs_ends_all_ranks_in_time, ck_assert_ranks_on(2, 2, NULL, hang, NULL))

UNIT_MAIN("collectives/nccl")
