/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/gpu/device.c, collectives/gpu/segments.c, collectives/gpu/self_gpu.c,
 * collectives/core/arena_gpu.c. */
/* Device memory through the hosts: ranks that share a GPU, and GPUs without NCCL. The driver is the fake one. */
#include "collectives/core/backend.h"
#include "collectives/world_private.h"
#include "tests/support/device_alloc_budget.h"
#include "tests/support/device_ranks.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

static const uint64_t counts[] = {0, 1, 17, 2003};

TEST(every_operation_is_right_on_a_shared_device)
{
    ck_assert_ranks_on(
        1, 1, NULL, device_ranks_conform,
        &((struct conformance){.counts = counts + 2, .count_count = 1, .all_types = true, .device = true}));
    ck_assert_ranks_on(2, 1, NULL, device_ranks_conform,
                       &((struct conformance){.counts = counts, .count_count = 3, .device = true}));
    ck_assert_ranks_on(3, 1, NULL, device_ranks_conform,
                       &((struct conformance){
                           .counts = counts + 2, .count_count = 1, .all_types = true, .arena = true, .device = true}));
    ck_assert_ranks_on(4, 1, NULL, device_ranks_conform,
                       &((struct conformance){.counts = counts + 3, .count_count = 1, .arena = true, .device = true}));
}

UNIT_TEST(every_operation_is_right_on_devices_without_nccl,
          ck_assert_ranks_on(3, 3, NULL, device_ranks_conform,
                             &((struct conformance){
                                 .counts = counts + 3, .count_count = 1, .arena = true, .device = true})))

UNIT_TEST(every_operation_is_right_across_hosts,
          ck_assert_ranks_on(4, 2, &((struct pl_world_options){.pretend_ranks_per_host = 2}), device_ranks_conform,
                             &((struct conformance){
                                 .counts = counts + 3, .count_count = 1, .arena = true, .device = true})))

/* More data than all segments under way hold, in blocks that end inside a segment; compared with the same in host
 * memory. */
static void compare_long(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { MOST = 3000017 };
    static const uint64_t ragged[2] = {1000003, MOST - 1000003};
    const uint64_t from_ranks[2][2] = {{1200007, 1500001}, {900001, 700001}}; /* [from][to] */
    int rank = pl_world_rank(world);
    const uint64_t to_all[2] = {from_ranks[rank][0], from_ranks[rank][1]};
    const uint64_t of_all[2] = {from_ranks[0][rank], from_ranks[1][rank]};
    const struct pl_collective cases[] = {
        {.kind = PL_ALLREDUCE, .count = MOST},
        {.kind = PL_REDUCE, .count = MOST, .root = 1},
        {.kind = PL_BROADCAST, .count = MOST, .root = 1},
        {.kind = PL_ALLGATHER, .counts = ragged},
        {.kind = PL_REDUCE_SCATTER, .counts = ragged},
        {.kind = PL_ALLTOALL, .counts = to_all, .recv_counts = of_all},
    };
    size_t bytes = MOST * sizeof(int32_t);
    int32_t *host[3] = {malloc(bytes), calloc(1, bytes), malloc(bytes)}; /* send, recv, recv from the device */
    void *memory[2];

    for (int i = 0; i < 2; i++) {
        RANKS_OK(pl_device_alloc(pl_world_device(world), bytes, &memory[i], &error));
    }
    for (int k = 0; k < MOST; k++) {
        host[0][k] = k * 31 + rank * 1000003;
    }
    RANKS_OK(device_move(pl_world_device(world), memory[0], host[0], bytes, &error));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pl_collective c = cases[i];

        c.dtype = PL_INT32;
        c.send = host[0];
        c.recv = host[1];
        RANKS_OK(pl_collective_run(world, &c, &error));
        c.send = memory[0];
        c.recv = memory[1];
        c.memory = PL_MEMORY_DEVICE;
        RANKS_OK(pl_collective_run(world, &c, &error));
        RANKS_OK(device_move(pl_world_device(world), host[2], memory[1], bytes, &error));
        RANKS_NEED((c.kind == PL_REDUCE && rank != c.root) || memcmp(host[1], host[2], bytes) == 0,
                   "%s: not the bits of host memory", pl_kind_text(c.kind));
        /* make the untouched part equal again */
        RANKS_OK(device_move(pl_world_device(world), memory[1], host[1], bytes, &error));
    }
    for (int i = 0; i < 3; i++) {
        free(host[i]);
    }
    for (int i = 0; i < 2; i++) {
        pl_device_release(pl_world_device(world), memory[i]);
    }
}

UNIT_TEST(long_vectors_go_through_in_segments, ck_assert_ranks_on(2, 1, NULL, compare_long, NULL))

/* Compares the same floats in host memory and in device memory, private and in the arena. */
static void compare_bits(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 5003 };
    struct pl_device *device = pl_world_device(world);
    struct pl_collective c = {.kind = PL_ALLREDUCE,
                              .dtype = PL_FLOAT32,
                              .op = PL_AVERAGE,
                              .count = COUNT,
                              .flags = PL_REPRODUCIBLE,
                              .scaled = true,
                              .prescale = 0.7,
                              .postscale = 1.3};
    struct pl_span span = {.data = NULL};
    float host[COUNT];
    float back[COUNT];
    void *memory;

    for (int i = 0; i < COUNT; i++) {
        host[i] = sinf((float)(i + 7 * pl_world_rank(world))) * powf(10.0F, (float)(i % 7));
    }
    RANKS_OK(pl_device_alloc(device, sizeof(host), &memory, &error));
    RANKS_OK(pl_arena_alloc(world, sizeof(host), PL_MEMORY_DEVICE, &span, &error));
    RANKS_OK(device_move(device, memory, host, sizeof(host), &error));
    RANKS_OK(device_move(device, span.data, host, sizeof(host), &error));
    c.send = c.recv = host;
    RANKS_OK(pl_collective_run(world, &c, &error));
    c.memory = PL_MEMORY_DEVICE;
    c.send = c.recv = memory;
    RANKS_OK(pl_collective_run(world, &c, &error));
    RANKS_OK(device_move(device, back, memory, sizeof(back), &error));
    RANKS_NEED(memcmp(host, back, sizeof(back)) == 0, "private device memory has other bits than host memory");
    c.send = c.recv = span.data;
    RANKS_OK(pl_collective_run(world, &c, &error));
    RANKS_OK(device_move(device, back, span.data, sizeof(back), &error));
    RANKS_NEED(memcmp(host, back, sizeof(back)) == 0, "the device arena has other bits than host memory");
    pl_device_release(device, memory);
}

/* An average by 49 of a number that double cannot hold, in device memory, private and in the arena. */
static void divide_integers(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const int64_t quotient = (INT64_C(1) << 56) + 1;
    int n = pl_world_size(world);
    int64_t given = pl_world_rank(world) == 0 ? -49 * quotient + n - 1 : -1;
    struct pl_device *device = pl_world_device(world);
    struct pl_collective c = {.kind = PL_ALLREDUCE,
                              .dtype = PL_INT64,
                              .op = PL_AVERAGE,
                              .divisor = 49,
                              .count = 1,
                              .memory = PL_MEMORY_DEVICE};
    struct pl_span span = {.data = NULL};
    void *memory;

    RANKS_OK(pl_device_alloc(device, sizeof(given), &memory, &error));
    RANKS_OK(pl_arena_alloc(world, sizeof(given), PL_MEMORY_DEVICE, &span, &error));
    for (int i = 0; i < 2; i++) {
        int64_t result;

        c.send = c.recv = i ? span.data : memory;
        RANKS_OK(device_move(device, c.recv, &given, sizeof(given), &error));
        RANKS_OK(pl_collective_run(world, &c, &error));
        RANKS_OK(device_move(device, &result, c.recv, sizeof(result), &error));
        RANKS_NEED(result == -quotient, "%s memory: %lld, not %lld", i ? "arena" : "private", (long long)result,
                   (long long)-quotient);
    }
    pl_device_release(device, memory);
}

TEST(integer_averages_are_exact_whatever_they_divide_by)
{
    for (int size = 1; size <= 4; size++) {
        ck_assert_ranks_on(size, 1, NULL, divide_integers, NULL);
    }
}

TEST(reproducible_sums_have_the_bits_of_host_memory)
{
    for (int size = 1; size <= 4; size++) {
        ck_assert_ranks_on(size, 1, NULL, compare_bits, NULL);
    }
}

TEST(why_nccl_is_off_is_said)
{
    char shared[] = "backend nccl: off, ranks 0 and 1 share GPU-";
    char missing[] = "backend nccl: off, NCCL cannot be loaded: ";
    char alone[] = "backend nccl: off, one rank alone";
    char none[] = "backend nccl: off, this world was given no device";

    ck_assert_ranks_on(2, 1, NULL, device_ranks_say, shared);
    ck_assert_ranks_on(2, 2, NULL, device_ranks_say, missing);
    ck_assert_ranks_on(1, 1, NULL, device_ranks_say, alone);
    ck_assert_ranks(2, NULL, device_ranks_say, none);
}

static void alloc_all_kinds(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum pl_memory kinds[] = {PL_MEMORY_HOST, PL_MEMORY_PINNED, PL_MEMORY_DEVICE};
    struct pl_span spans[3];
    char zero[64] = {0};
    char found[64];

    for (int i = 0; i < 3; i++) {
        RANKS_OK(pl_arena_alloc(world, 10000, kinds[i], &spans[i], &error));
        RANKS_NEED(spans[i].memory == kinds[i] && spans[i].bytes == 10000, "span %d is not what was asked for", i);
    }
    RANKS_OK(device_move(pl_world_device(world), found, spans[2].data, sizeof(found), &error));
    RANKS_NEED(memcmp(found, zero, sizeof(zero)) == 0, "device memory is not zeroed");
    for (int i = 0; i < 2; i++) {
        pl_arena_free(world, &spans[i]); /* the world frees the last one */
        RANKS_NEED(!spans[i].data, "a freed span has memory");
    }
}

static void alloc_unlike(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    struct pl_span span;

    RANKS_NEED(pl_arena_alloc(world, 4096, pl_world_rank(world) == 1 ? PL_MEMORY_DEVICE : PL_MEMORY_PINNED, &span,
                              &told) == PL_MISMATCH,
               "status %s", pl_status_name(told.status));
    RANKS_NEED(strstr(told.cause, "rank 0 asks for pinned memory, rank 1 for device"), "%s", told.cause);
}

static void alloc_without(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    struct pl_span span;

    RANKS_NEED(pl_arena_alloc(world, 4096, PL_MEMORY_DEVICE, &span, &told) == PL_UNSUPPORTED, "status %s",
               pl_status_name(told.status));
    RANKS_NEED(strstr(told.cause, "this world was given no device"), "%s", told.cause);
}

TEST(arenas_come_in_three_kinds)
{
    ck_assert_ranks_on(2, 1, NULL, alloc_all_kinds, NULL);
    ck_assert_ranks_on(1, 1, NULL, alloc_all_kinds, NULL);
    ck_assert_ranks_on(2, 1, NULL, alloc_unlike, NULL);
    ck_assert_ranks(2, NULL, alloc_without, NULL);
}

static void in_a_part(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_world *part;
    int ranks[] = {2, 0};
    struct conformance conformance = {.counts = counts + 2, .count_count = 1, .device = true};

    if (pl_world_rank(world) == 1) {
        return;
    }
    RANKS_OK(pl_world_new_sub(world, ranks, 2, &part, &error));
    conformance_run(part, &conformance);
    pl_world_free(part);
    RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
}

UNIT_TEST(parts_of_a_world_have_its_devices, ck_assert_ranks_on(3, 1, NULL, in_a_part, NULL))

static void disagree(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    struct pl_collective c = {.kind = PL_ALLREDUCE,
                              .dtype = PL_FLOAT32,
                              .count = pl_world_rank(world) == 1 ? 7 : 8,
                              .memory = PL_MEMORY_DEVICE,
                              .name = pl_world_rank(world) == 1 ? "bias" : "weight"};
    void *memory;

    RANKS_OK(pl_device_alloc(pl_world_device(world), 64, &memory, &error));
    c.send = c.recv = memory;
    RANKS_NEED(pl_collective_run(world, &c, &told) == PL_MISMATCH, "%s: %s", pl_status_name(told.status), told.cause);
    RANKS_NEED(strstr(told.cause, "rank 0 calls allreduce 'weight' of 8 float32") &&
                   strstr(told.cause, "rank 1 calls allreduce 'bias' of 7 float32"),
               "%s", told.cause);
    RANKS_NEED(strstr(told.context, " on host ") && strstr(told.context, "GPU-"), "the place is not told: %s",
               told.context);
    pl_device_release(pl_world_device(world), memory);
}

UNIT_TEST(a_disagreement_is_reported_on_all_ranks, ck_assert_ranks_on(3, 1, NULL, disagree, NULL))

static void leave_rank_alone(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    struct pl_collective c = {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .count = 8, .memory = PL_MEMORY_DEVICE};
    pthread_barrier_t *over = argument;
    enum pl_status status = PL_TIMEOUT;
    int64_t begin_ns = pl_clock_now_ns();
    void *memory = NULL;

    if (pl_world_rank(world) == 0) {
        status = pl_device_alloc(pl_world_device(world), 64, &memory, &told);
        c.send = c.recv = memory;
        /* the stream's event has to be reached before; then only rank 1 is missing */
        c.deadline_ns = pl_deadline_after_ns(2 * PL_NS_PER_S);
        status = status == PL_OK ? pl_collective_run(world, &c, &told) : status;
        pl_device_release(pl_world_device(world), memory);
    }
    pthread_barrier_wait(over); /* rank 1 is late, not gone */
    if (pl_world_rank(world) == 1) {
        return;
    }
    RANKS_NEED(status == PL_TIMEOUT, "%s: %s", pl_status_name(status), told.cause);
    RANKS_NEED(pl_clock_now_ns() - begin_ns < 20 * PL_NS_PER_S, "it took longer than 20 seconds");
    RANKS_NEED(strstr(told.context, "still waiting for rank 1") && strstr(told.context, "rank 0 on host ") &&
                   strstr(told.context, "device 0, GPU-"),
               "%s (%s)", told.cause, told.context);
}

TEST(a_late_rank_ends_in_the_deadline_with_the_place)
{
    pthread_barrier_t over;

    pthread_barrier_init(&over, NULL, 2);
    ck_assert_ranks_on(2, 1, NULL, leave_rank_alone, &over);
    pthread_barrier_destroy(&over);
}

TEST(a_lost_device_ends_all_ranks_with_rank_host_and_device)
{
    struct device_fault lost = {.order = "lost", .text = "CUDA_ERROR_UNKNOWN", .of_rank_1 = PL_LIBRARY};
    struct device_fault kernel = {.order = "kernel_error",
                                  .text = "CUDA_ERROR_ILLEGAL_ADDRESS",
                                  .of_rank_1 = PL_LIBRARY,
                                  .arena = true,
                                  .shared = true};

    for (int ranks = 2; ranks <= 4; ranks += 2) {
        lost.arena = false;
        ck_assert_ranks_on(ranks, ranks, NULL, device_ranks_suffer, &lost);
        lost.arena = true;
        ck_assert_ranks_on(ranks, ranks, NULL, device_ranks_suffer, &lost);
        ck_assert_ranks_on(ranks, 1, NULL, device_ranks_suffer, &kernel);
    }
}

TEST(a_lost_device_ends_the_ranks_of_other_hosts_in_the_same_words)
{
    struct device_fault lost = {.order = "lost", .text = "CUDA_ERROR_UNKNOWN", .of_rank_1 = PL_LIBRARY};

    ck_assert_ranks_on(4, 4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), device_ranks_suffer, &lost);
    lost.arena = true;
    ck_assert_ranks_on(4, 4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), device_ranks_suffer, &lost);
}

UNIT_TEST(a_rank_without_memory_for_a_part_is_named_at_once, check_device_alloc_budget())

UNIT_MAIN("collectives/device")
