/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/world_new.c, collectives/core/request.c, collectives/core/topology.c,
 * collectives/core/request_check.c, collectives/p2p/check_calls.c. */
/* Worlds, sub-worlds and requests; ranks that disagree; invalid arguments. */
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"

#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void run_layouts(ranks_function *function, void *argument)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "20");

    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), function, argument);
    ck_assert_ranks(5, &((struct pl_world_options){.knobs = &knobs}), function, argument);
    ck_assert_ranks(4, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), function, argument);
    ck_assert_ranks(3, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), function, argument);
}

/* ---- one rank ---- */

/* Sums data in a read-only page: a write would end this process. */
static void sum_what_is_read_only(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    void *page = argument;
    unsigned char truth = 7;
    float half = 3;

    for (enum pl_dtype dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
        if (dtype != PL_BOOL) {
            RANKS_OK(pl_allreduce(world, page, page, 4096 / pl_dtype_bytes(dtype), dtype, PL_AVERAGE, &error));
        }
    }
    RANKS_OK(pl_allreduce(world, &truth, &truth, 1, PL_BOOL, PL_SUM, &error));
    RANKS_NEED(truth == 1, "true is %d", truth);
    RANKS_OK(pl_collective_run(world,
                               &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                       .dtype = PL_FLOAT32,
                                                       .count = 1,
                                                       .send = &half,
                                                       .recv = &half,
                                                       .scaled = true,
                                                       .prescale = 1,
                                                       .postscale = 0.5},
                               &error));
    RANKS_NEED(half == 1.5F, "half of 3 is %g", (double)half);
}

TEST(one_rank_leaves_its_sums_where_they_are)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(page, MAP_FAILED);
    ck_assert_ranks(1, NULL, sum_what_is_read_only, page);
    munmap(page, 4096);
}

/* ---- topology ---- */

static void know_their_place(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int per_host = *(const int *)argument;
    int rank = pl_world_rank(world);
    int first = rank / per_host * per_host,
        beyond = pl_world_size(world) < first + per_host ? pl_world_size(world) : first + per_host;

    RANKS_NEED(pl_world_local_rank(world) == rank % per_host, "local rank %d", pl_world_local_rank(world));
    RANKS_NEED(pl_world_local_size(world) == beyond - first, "local size %d", pl_world_local_size(world));
    RANKS_NEED(pl_world_cross_rank(world) == rank / per_host, "cross rank %d", pl_world_cross_rank(world));
    RANKS_NEED(pl_world_cross_size(world) == (pl_world_size(world) + per_host - 1) / per_host, "cross size %d",
               pl_world_cross_size(world));
    RANKS_NEED(pl_world_is_homogeneous(world) == (pl_world_size(world) % per_host == 0), "homogeneous %d",
               pl_world_is_homogeneous(world));
    RANKS_NEED(pl_world_host_of(world, 0) == 0, "host of rank 0 is %d", pl_world_host_of(world, 0));
}

TEST(local_and_cross_ranks_partition_the_world)
{
    ck_assert_ranks(6, &((struct pl_world_options){.pretend_ranks_per_host = 2}), know_their_place, &(int){2});
    ck_assert_ranks(5, &((struct pl_world_options){.pretend_ranks_per_host = 2}), know_their_place, &(int){2});
    ck_assert_ranks(4, NULL, know_their_place, &(int){4});
}

static void follow_order(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const int expected[] = {1, 0, 3, 2};
    float value = (float)pl_world_rank(world);

    for (int i = 0; i < 4; i++) {
        RANKS_NEED(world->topology.order[i] == expected[i], "place %d is rank %d", i, world->topology.order[i]);
    }
    RANKS_OK(pl_allreduce(world, &value, &value, 1, PL_FLOAT32, PL_SUM, &error));
    RANKS_NEED(value == 6.0F, "sum %g", (double)value);
}

TEST(rings_follow_gpu_indices_on_every_host)
{
    static const int indices[] = {1, 0};
    static const int bad[] = {1, 1};
    char failure[RANKS_TEXT_BYTES];

    ck_assert_ranks(4,
                    &((struct pl_world_options){.pretend_ranks_per_host = 2, .gpu_indices = indices, .gpu_count = 2}),
                    follow_order, NULL);
    ranks_run_on(4, 0, &(struct pl_world_options){.pretend_ranks_per_host = 2, .gpu_indices = bad, .gpu_count = 2},
                 follow_order, NULL, failure);
    ck_has(failure, "gpu_indices is not a permutation");
    ranks_run_on(4, 0, &(struct pl_world_options){.pretend_ranks_per_host = 2, .gpu_indices = indices, .gpu_count = 1},
                 follow_order, NULL, failure);
    ck_has(failure, "gpu_indices lists 1 local ranks");
}

/* A machine of 1,152 CPUs; each rank may run on one of them. */
static bool large_machine;
static _Atomic unsigned long next_cpu, cpu_step;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *cpus)
{
    memset(cpus, 0, bytes);
    if (!large_machine) {
        return syscall(SYS_sched_getaffinity, pid, bytes, cpus) < 0 ? -1 : 0;
    }
    CPU_SET_S(atomic_fetch_add(&next_cpu, cpu_step), bytes, cpus);
    errno = EINVAL;
    return bytes < 1152 / 8 ? -1 : 0;
}

static void expect_crowd(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    RANKS_NEED(world->topology.oversubscribed == *(const bool *)argument, "oversubscribed: %d",
               world->topology.oversubscribed);
}

TEST(ranks_and_cpus_are_compared_on_the_largest_machines)
{
    large_machine = true;
    next_cpu = 1022;
    cpu_step = 1;
    ck_assert_ranks(4, NULL, expect_crowd, &(bool){false});
    cpu_step = 0;
    ck_assert_ranks(4, NULL, expect_crowd, &(bool){true});
    large_machine = false;
}

/* ---- sub-worlds ---- */

static void split_in_two(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    int ranks[RANKS_MOST];
    int count = 0;
    int64_t value = rank;
    int64_t sum = 0;
    PL_AUTO_WORLD struct pl_world *half = NULL;

    for (int r = pl_world_size(world) - 1; r >= 0; r--) { /* descending: the list's order is the order of the new
                                                           * world */
        if (r % 2 == rank % 2) {
            ranks[count++] = r;
            sum += r;
        }
    }
    RANKS_OK(pl_world_new_sub(world, ranks, count, &half, &error));
    RANKS_NEED(pl_world_size(half) == count && ranks[pl_world_rank(half)] == rank, "rank %d of the half",
               pl_world_rank(half));
    for (int i = 0; i < 3; i++) {
        int64_t result = 0;

        RANKS_OK(pl_allreduce(half, &value, &result, 1, PL_INT64, PL_SUM, &error));
        RANKS_NEED(result == sum, "half sum %ld", (long)result);
    }
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(pl_world_new_sub(world, (int[]){rank, rank}, 2, &half, NULL) == PL_INVALID, "a rank twice was taken");
    RANKS_NEED(pl_world_new_sub(world, (int[]){rank, 99}, 2, &half, NULL) == PL_INVALID, "rank 99 was taken");
    RANKS_NEED(pl_world_new_sub(world, (int[]){(rank + 1) % pl_world_size(world)}, 1, &half, NULL) == PL_INVALID,
               "a stranger was taken");
    RANKS_NEED(pl_world_new_sub(world, ranks, 0, &half, NULL) == PL_INVALID, "an empty list was taken");
}

UNIT_TEST(sub_worlds_are_worlds, run_layouts(split_in_two, NULL))

/* ---- disagreement ---- */

struct dispute {
    struct pl_collective most; /* descriptor of all ranks but the last */
    struct pl_collective last;
    const char *words; /* text in the error of every rank */
};

static char dispute_room[2][RANKS_MOST][1 << 20];

static void disagree(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct dispute *dispute = argument;
    int rank = pl_world_rank(world);
    struct pl_collective c = rank == pl_world_size(world) - 1 ? dispute->last : dispute->most;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    c.send = dispute_room[0][rank];
    c.recv = dispute_room[1][rank];
    RANKS_NEED(pl_barrier(world, &error) == PL_OK, "%s", error.cause);
    status = pl_collective_run(world, &c, &error);
    RANKS_NEED(status == PL_MISMATCH, "%s: not refused, %s: %s", dispute->words, pl_status_name(status), error.cause);
    RANKS_NEED(strstr(error.cause, dispute->words), "'%s' is not in '%s'", dispute->words, error.cause);
    RANKS_NEED(strstr(error.cause, "collective number 2:"), "'%s' tells another number", error.cause);
    RANKS_NEED(pl_barrier(world, &error) == PL_MISMATCH, "the failure did not stay with the world");
    RANKS_NEED(pl_world_failure(world, NULL) == PL_MISMATCH, "the world does not know its failure");
}

TEST(ranks_that_disagree_report_it_by_name_on_all_ranks)
{
    const struct pl_collective sum = {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .count = 10};
    const struct pl_collective large = {.kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .count = 200000};
    static const uint64_t counts[2][RANKS_MOST] = {{4, 2, 1}, {2, 4, 1}};
    const struct pl_collective scaled = {
        .kind = PL_ALLREDUCE, .count = 10, .scaled = true, .prescale = 2.0, .postscale = 1.0};
    struct dispute disputes[21];
    size_t count = 0;

#define DISPUTE(base, field, value, text)                                                                              \
    do {                                                                                                               \
        disputes[count] = (struct dispute){.most = base, .last = base, .words = text};                                 \
        disputes[count++].last.field = value;                                                                          \
    } while (0)
    DISPUTE(sum, count, 11, "calls allreduce of 11 float32");
    DISPUTE(sum, count, 3000, "calls allreduce of 3000 float32");
    DISPUTE(sum, count, 100000, "calls allreduce of 100000 float32");
    DISPUTE(large, count, 7, "calls allreduce of 7 float32");
    DISPUTE(large, count, 200001, "calls allreduce of 200001 float32");
    DISPUTE(sum, dtype, PL_INT32, "calls allreduce of 10 int32");
    DISPUTE(sum, op, PL_MAX, "float32, max");
    DISPUTE(sum, kind, PL_BROADCAST, "calls broadcast of 10 float32, root 0");
    DISPUTE(large, kind, PL_BARRIER, "calls barrier");
    DISPUTE(sum, name, "momentum", "calls allreduce 'momentum' of 10");
    DISPUTE(sum, scaled, true, "scaled");
    disputes[count - 1].last.prescale = 2.0;
    disputes[count - 1].last.postscale = 1.0;
    DISPUTE(((struct pl_collective){.kind = PL_BROADCAST, .count = 10}), root, 1, "root 1");
    DISPUTE(((struct pl_collective){.kind = PL_BROADCAST, .count = 200000}), root, 1, "root 1");
    DISPUTE(((struct pl_collective){.kind = PL_REDUCE, .count = 10}), root, 1, "root 1");
    DISPUTE(((struct pl_collective){.kind = PL_ALLTOALL, .count = 10}), dtype, PL_INT8, "int8");
    DISPUTE(sum, flags, PL_REPRODUCIBLE, "the options differ");
    DISPUTE(scaled, postscale, 3.0, "the scale factors or divisors differ");
    DISPUTE(((struct pl_collective){.kind = PL_ALLREDUCE, .op = PL_AVERAGE, .count = 10}), divisor, 49,
            "the scale factors or divisors differ");
    DISPUTE(((struct pl_collective){.kind = PL_ALLREDUCE, .count = 10, .name = "gradient of layer 1"}), name,
            "gradient of layer 2", "the names differ");
    DISPUTE(((struct pl_collective){.kind = PL_REDUCE_SCATTER, .counts = counts[0]}), counts, counts[1],
            "the lists of counts differ");
    DISPUTE(((struct pl_collective){.kind = PL_ALLGATHER, .counts = counts[0]}), counts, counts[1],
            "the lists of counts differ");
#undef DISPUTE
    ck_assert_uint_le(count, sizeof(disputes) / sizeof(disputes[0]));
    for (size_t i = 0; i < count; i++) {
        run_layouts(disagree, &disputes[i]);
    }
}

/* Rank 0 sends fewer or more elements than rank 1 expects from it. */
struct misfit {
    uint64_t sent;
    uint64_t expected;
};

static void misfit(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct misfit *misfit = argument;
    uint64_t counts[RANKS_MOST];
    uint64_t recv_counts[RANKS_MOST];
    int rank = pl_world_rank(world);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_collective c = {.kind = PL_ALLTOALL,
                              .dtype = PL_INT8,
                              .counts = counts,
                              .recv_counts = recv_counts,
                              .send = dispute_room[0][rank],
                              .recv = dispute_room[1][rank],
                              .deadline_ns = pl_deadline_after_ns(10 * PL_NS_PER_S)};
    enum pl_status status;

    for (int r = 0; r < RANKS_MOST; r++) {
        counts[r] = recv_counts[r] = misfit->sent;
    }
    recv_counts[0] = rank == 1 ? misfit->expected : misfit->sent;
    status = pl_collective_run(world, &c, &error);
    RANKS_NEED(rank != 1 || (status == PL_MISMATCH && strstr(error.cause, "rank 0 sen")), "%s: %s",
               pl_status_name(status), error.cause);
}

/* Blocks so different that each rank would cut its messages differently if it used only its own counts. */
static void send_unlike(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const uint64_t table[3][3] = {{10, 200000, 18000}, {10, 10, 10}, {10, 10, 10}}; /* [from][to] */
    int rank = pl_world_rank(world);
    uint64_t counts[3];
    uint64_t recv_counts[3];
    uint64_t at = 0;

    for (int r = 0; r < 3; r++) {
        counts[r] = table[rank][r];
        recv_counts[r] = table[r][rank];
        memset(dispute_room[0][rank] + at, rank * 3 + r, counts[r]);
        at += counts[r];
    }
    RANKS_OK(pl_collective_run(world,
                               &((struct pl_collective){.kind = PL_ALLTOALL,
                                                        .dtype = PL_INT8,
                                                        .counts = counts,
                                                        .recv_counts = recv_counts,
                                                        .send = dispute_room[0][rank],
                                                        .recv = dispute_room[1][rank]}),
                               &error));
    at = 0;
    for (int r = 0; r < 3; r++) {
        for (uint64_t i = 0; i < recv_counts[r]; i++, at++) {
            RANKS_NEED(dispute_room[1][rank][at] == r * 3 + rank, "byte %llu from rank %d", (unsigned long long)i, r);
        }
    }
}

TEST(blocks_of_an_alltoall_may_be_as_unlike_as_they_like)
{
    ck_assert_ranks(3, NULL, send_unlike, NULL);
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), send_unlike, NULL);
}

TEST(a_block_of_another_length_than_expected_is_reported)
{
    /* 61440: whole messages between hosts */
    static struct misfit misfits[] = {{7, 6}, {7, 8}, {61440, 122880}, {122880, 61440}};

    for (size_t i = 0; i < sizeof(misfits) / sizeof(misfits[0]); i++) {
        ck_assert_ranks(2, NULL, misfit, &misfits[i]);
        ck_assert_ranks(5, NULL, misfit, &misfits[i]);
        ck_assert_ranks(2, &((struct pl_world_options){.pretend_ranks_per_host = 1}), misfit, &misfits[i]);
    }
}

/* Rank 1 sends rank 3 more than it expects, in a world of the two. */
static void send_too_much(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct pl_transport *transport;
    struct pl_transfer transfer = {.active = false};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status = PL_OK;
    struct pl_world *part;
    char bytes[8] = {0};
    size_t got;

    if (pl_world_rank(world) % 2 == 0) {
        return;
    }
    RANKS_OK(pl_world_new_internal(world, (int[]){1, 3}, 2, &part, &error));
    transport = pl_world_bootstrap(part)->transport;
    if (pl_world_rank(world) == 1) {
        status = transport->send(transport->context, bytes, 8, 1, PL_TAG_P2P, &transfer, &told);
    } else {
        status = transport->recv(transport->context, bytes, 4, 0, PL_TAG_P2P, &transfer, &told);
    }
    for (bool done = false; status == PL_OK && !done;) {
        status = transport->test(transport->context, &transfer, &done, &got, &told);
    }
    pl_world_free(part);
    RANKS_NEED(pl_world_rank(world) == 1 ||
                   strcmp(told.cause, "rank 1 sent 8 bytes where rank 3 expected at most 4") == 0,
               "%s: %s", pl_status_name(status), told.cause);
}

/* Rank 3 does not come to a world of ranks 1 and 3. */
static void stay_away(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    struct pl_world *part = NULL;
    char expected[PL_RANK_NAME_BYTES + 20], name[PL_RANK_NAME_BYTES];

    if (pl_world_rank(world) == 1) {
        RANKS_OK(pl_knob_set(&world->knobs, PL_KNOB_TIMEOUT_S, "0.1", "test", &error)); /* timeout of the sub-world */
        snprintf(expected, sizeof(expected), "%s did not answer", pl_world_rank_name(world, 3, name));
        RANKS_NEED(pl_world_new_internal(world, (int[]){1, 3}, 2, &part, &told) == PL_TIMEOUT, "%s", told.cause);
        RANKS_NEED(strstr(told.cause, expected), "%s", told.cause);
    }
}

TEST(failed_messages_call_ranks_by_their_numbers_in_the_whole)
{
    ck_assert_ranks(4, NULL, send_too_much, NULL);
    ck_assert_ranks(4, NULL, stay_away, NULL);
}

/* ---- requests ---- */

static void post_many(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { MANY = 40 };
    static float values[RANKS_MOST][MANY][300];
    struct pl_request *requests[MANY];
    int rank = pl_world_rank(world);
    int n = pl_world_size(world);

    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < 300; k++) {
            values[rank][i][k] = (float)(rank + i + k);
        }
        RANKS_OK(pl_collective_post(
            world,
            &((struct pl_collective){
                .kind = PL_ALLREDUCE, .count = 300, .send = values[rank][i], .recv = values[rank][i]}),
            &requests[i], &error));
    }
    RANKS_OK(pl_barrier(world, &error)); /* after all of them */
    for (int i = MANY - 1; i >= 0; i--) {
        bool done = false;

        RANKS_OK(pl_request_test(requests[i], &done, &error));
        RANKS_OK(pl_request_wait(requests[i], &error));
        for (int k = 0; k < 300; k++) {
            RANKS_NEED(values[rank][i][k] == (float)(n * (i + k) + n * (n - 1) / 2), "request %d element %d is %g", i,
                       k, (double)values[rank][i][k]);
        }
    }
}

UNIT_TEST(many_outstanding_requests_all_end_right, run_layouts(post_many, NULL))

/* The second sends the result of the first; the third sums the result of the second. */
static void hand_on(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { LONG = 20000 };
    static float values[RANKS_MOST][3][LONG];
    int n = pl_world_size(world);
    int rank = pl_world_rank(world);
    float(*own)[LONG] = values[rank];
    const struct pl_collective list[] = {
        {.kind = PL_ALLREDUCE, .count = LONG, .send = own[0], .recv = own[1]},
        {.kind = PL_BROADCAST, .count = LONG, .root = 1, .send = own[1], .recv = own[0]},
        {.kind = PL_ALLREDUCE, .count = LONG, .send = own[0], .recv = own[2]},
    };
    struct pl_request *requests[PL_ARRAY_ITEMS(list)];

    for (int i = 0; i < LONG; i++) {
        own[0][i] = (float)(rank + i % 7);
        own[1][i] = -1.0F;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        RANKS_OK(pl_collective_post(world, &list[i], &requests[i], &error));
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        RANKS_OK(pl_request_wait(requests[i], &error));
    }
    for (int i = 0; i < LONG; i++) {
        float sum = (float)(n * (n - 1) / 2 + n * (i % 7));

        RANKS_NEED(own[0][i] == sum && own[2][i] == sum * (float)n, "element %d: %g and %g, not %g and %g", i,
                   (double)own[0][i], (double)own[2][i], (double)sum, (double)(sum * (float)n));
    }
}

UNIT_TEST(requests_see_what_those_before_them_left, run_layouts(hand_on, NULL))

static void refuse(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    float a[8] = {0};
    float b[8] = {0};
    const struct pl_collective good = {.kind = PL_ALLREDUCE, .count = 4, .send = a, .recv = b};
    const uint64_t counts[2][RANKS_MOST] = {{1, 1, 1, 1, 1}, {0}};
    struct pl_collective bad[17];
    size_t count = 0;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(bad); i++) {
        bad[i] = good;
    }
    bad[count++].kind = (enum pl_kind)99;
    bad[count++].dtype = (enum pl_dtype)99;
    bad[count++].op = (enum pl_op)99;
    bad[count++].recv = a + 1; /* overlaps, but not in place */
    bad[count++].send = NULL;
    bad[count++].count = UINT64_MAX / 2;
    bad[count++].flags = 1U << 20;
    bad[count++].flags = PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16;
    bad[count++].flags = PL_WIRE_FLOAT16 | PL_WIRE_INT8;
    bad[count].scaled = true;
    bad[count].postscale = 1.0;
    bad[count++].prescale = (double)NAN;
    bad[count].kind = PL_BROADCAST;
    bad[count++].root = pl_world_size(world);
    bad[count].kind = PL_REDUCE;
    bad[count++].root = -1;
    bad[count].dtype = PL_BOOL;
    bad[count++].op = PL_AVERAGE;
    bad[count].kind = PL_ALLTOALL; /* the rank sends itself one element and expects none */
    bad[count].counts = counts[0];
    bad[count++].recv_counts = counts[1];
    bad[count].kind = PL_ALLTOALL; /* recv_counts is missing */
    bad[count++].counts = counts[0];
    bad[count].kind = PL_ALLGATHER; /* the sum of the ranks' blocks */
    bad[count++].count = UINT64_MAX / 8;
    bad[count].kind = PL_REDUCE_SCATTER;
    bad[count++].count = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        RANKS_NEED(pl_collective_run(world, &bad[i], NULL) == PL_INVALID, "bad descriptor %zu was taken", i);
    }
    RANKS_NEED(pl_allreduce(world, a, b, 4, PL_INT32, PL_ADASUM, NULL) == PL_INVALID, "adasum of integers was taken");
    RANKS_OK(pl_collective_run(world, &good, &error)); /* and the world still works */
}

UNIT_TEST(nonsense_is_refused_before_anything_starts, run_layouts(refuse, NULL))

/* Counts are given per rank, and ignored if a kind has no blocks. */
static void use_short_forms(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int32_t rank = pl_world_rank(world), size = pl_world_size(world);
    const uint64_t counts[RANKS_MOST] = {0};
    int32_t send[2 * RANKS_MOST], recv[2 * RANKS_MOST];
    struct pl_collective sum = {
        .kind = PL_ALLREDUCE, .dtype = PL_INT32, .count = 2, .send = send, .recv = recv, .counts = counts};

    for (int32_t i = 0; i < 2 * size; i++) {
        send[i] = 100 * rank + i;
    }
    RANKS_OK(pl_alltoall(world, send, recv, 2, PL_INT32, &error));
    for (int32_t i = 0; i < 2 * size; i++) {
        RANKS_NEED(recv[i] == 100 * (i / 2) + 2 * rank + i % 2, "element %d that came is %d", i, recv[i]);
    }
    RANKS_OK(pl_reduce_scatter(world, send, recv, 2, PL_INT32, PL_SUM, &error));
    for (int32_t i = 0; i < 2; i++) {
        RANKS_NEED(recv[i] == 50 * size * (size - 1) + size * (2 * rank + i), "sum %d is %d", i, recv[i]);
    }
    send[1]++;
    RANKS_OK(pl_collective_run(world, &sum, &error));
    RANKS_NEED(recv[1] == 50 * size * (size - 1) + 2 * size, "the sum of all is %d", recv[1]);
}

TEST(short_forms_give_each_rank_its_blocks)
{
    ck_assert_ranks(1, NULL, use_short_forms, NULL);
    run_layouts(use_short_forms, NULL);
}

static void abort_world(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    float value = 1.0F;
    struct pl_request *request;

    if (pl_world_rank(world) != 0) {
        return;
    }
    RANKS_OK(pl_collective_post(
        world, &((struct pl_collective){.kind = PL_ALLREDUCE, .count = 1, .send = &value, .recv = &value}), &request,
        &error));
    pl_request_cancel(request);
    RANKS_NEED(pl_barrier(world, NULL) == PL_CANCELLED, "the world goes on after a cancelled request");
}

UNIT_TEST(a_cancelled_request_ends_the_world, ck_assert_ranks(2, NULL, abort_world, NULL))

/* Some have ended, some wait for a rank that is gone: the leak checker of the sanitized build tests that. */
static void leave_requests(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    static const uint64_t counts[RANKS_MOST] = {3, 2, 1};
    static float values[RANKS_MOST][2][8];
    int rank = pl_world_rank(world);
    const struct pl_collective c = {
        .kind = PL_ALLGATHER, .counts = counts, .send = values[rank][0], .recv = values[rank][1]};
    struct pl_request *request;

    RANKS_OK(pl_collective_post(world, &c, &request, &error));
    RANKS_OK(pl_barrier(world, &error));
    if (rank == 0) {
        for (int i = 0; i < 3; i++) {
            RANKS_OK(pl_collective_post(world, &c, &request, &error));
        }
    }
}

UNIT_TEST(a_world_takes_its_requests_along, run_layouts(leave_requests, NULL))

/* ---- barrier ---- */

static bool last_has_come;

static void hold(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    bool is_last = pl_world_rank(world) == pl_world_size(world) - 1;

    if (is_last) {
        pl_clock_nap(100 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
        __atomic_store_n(&last_has_come, true, __ATOMIC_RELEASE);
    }
    RANKS_OK(pl_barrier(world, &error));
    RANKS_NEED(__atomic_load_n(&last_has_come, __ATOMIC_ACQUIRE), "left before the last rank came");
    RANKS_OK(pl_barrier(world, &error));
    if (is_last) { /* all have tested */
        __atomic_store_n(&last_has_come, false, __ATOMIC_RELEASE);
    }
}

UNIT_TEST(a_barrier_holds_early_ranks_until_the_last_comes, run_layouts(hold, NULL))

static void describe(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_world_describe(world, &text);
    RANKS_NEED(strstr(pl_text_string(&text), "backend self: off, there is more than one rank"), "%s",
               pl_text_string(&text));
    RANKS_NEED(strstr(pl_text_string(&text), "backend p2p: on"), "%s", pl_text_string(&text));
}

/* Name of the backend that serves an allreduce of `count` float32. */
static const char *taker(struct pl_world *world, uint64_t count)
{
    static float room[2][RANKS_MOST][8192];
    int rank = pl_world_rank(world);
    struct pl_request *request;
    const char *name;

    if (pl_collective_post(world,
                           &((struct pl_collective){
                               .kind = PL_ALLREDUCE, .count = count, .send = room[0][rank], .recv = room[1][rank]}),
                           &request, NULL) != PL_OK) {
        return "none";
    }
    name = request->backend->backend->name;
    return pl_request_wait(request, NULL) == PL_OK ? name : "none";
}

static void describe_sizes(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *said;
    uint64_t bytes;

    pl_world_describe(world, &text);
    said = strstr(pl_text_string(&text), "left to the backend p2p: barriers, allreduce up to ");
    RANKS_NEED(said, "%s", pl_text_string(&text));
    bytes = strtoull(strstr(said, "up to ") + strlen("up to "), NULL, 10);
    RANKS_NEED(strcmp(taker(world, bytes / sizeof(float)), "p2p") == 0, "%llu bytes are not left to p2p",
               (unsigned long long)bytes);
    RANKS_NEED(strcmp(taker(world, bytes / sizeof(float) + 1), "hier") == 0, "more than %llu bytes are",
               (unsigned long long)bytes);
    RANKS_NEED(strstr(said, "backend p2p: on\n  serves what the backends above do not"), "%s", said);
}

TEST(the_description_says_which_sizes_go_which_way_between_hosts)
{
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), describe_sizes, NULL);
    ck_assert_ranks(5, &((struct pl_world_options){.pretend_ranks_per_host = 2}), describe_sizes, NULL);
}

UNIT_TEST(a_world_tells_what_runs_and_why_not, run_layouts(describe, NULL))

UNIT_MAIN("collectives/world")
