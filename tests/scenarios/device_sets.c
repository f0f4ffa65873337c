/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenarios/device_sets.h"

#include "base/memory.h"
#include "device/device_private.h"
#include "runtime/service.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"

#include <stdlib.h>

_Static_assert((int)DEVICE_SETS_TEXT_BYTES == (int)RANKS_TEXT_BYTES, "RANKS_NEED writes as much");

enum { SETS = 4, STEPS = 3, HOST_SUMS = 4, MOST_RANKS = 8 };

/* Ranks that share a GPU add up more than 1 MiB there. */
static const int elems_of_set[SETS] = {270001, 1500, 1500, 1500};

/* A set of ranks, this rank's tensors for it, and what is under way there. */
struct set {
    int number; /* -1: this rank is not a member */
    int size;
    int ranks[MOST_RANKS];
    float *send, *recv; /* in device memory */
    float *host;
    int elems;
    float values[HOST_SUMS];
    struct pl_completion on_device, on_host[HOST_SUMS];
};

struct bench {
    struct pl_service *service;
    struct pl_device *device;
    void *stream;
    int rank;
    struct set sets[SETS];
};

/* Set 0 is the whole world, set 1 has its ranks in the opposite order, and others have some of them. */
static int list_ranks(int set, int size, int ranks[MOST_RANKS])
{
    int count = 0;

    for (int r = 0; r < size; r++) {
        int rank = set == 1 ? size - 1 - r : r;

        if (set < 2 || (set == 2 && rank < size - 1) || (set == 3 && rank > 0)) {
            ranks[count++] = rank;
        }
    }
    return count;
}

static enum pl_status add_set(struct bench *bench, int size, int set, struct pl_error *reterr)
{
    struct set *own = &bench->sets[set];
    int number = 0;
    bool is_member = false;

    own->size = list_ranks(set, size, own->ranks);
    if (set > 0) {
        PL_TRY(pl_service_add_set(bench->service, own->ranks, own->size, &number, reterr));
    }
    for (int r = 0; r < own->size; r++) {
        is_member = is_member || own->ranks[r] == bench->rank;
    }
    own->number = is_member ? number : -1;
    return PL_OK;
}

static float given(int set, int step, int rank, int elem)
{
    return (float)(elem * 3 % 101 + set * 5 + step * 7 + rank * 11);
}

static float sum_of_set(const struct set *set, int index, int step, int elem)
{
    float sum = 0;

    for (int r = 0; r < set->size; r++) {
        sum += given(index, step, set->ranks[r], elem);
    }
    return sum;
}

/* Submits a sum in device memory and some in host memory. */
static enum pl_status submit(struct bench *bench, int index, int step, struct pl_error *reterr)
{
    struct set *set = &bench->sets[index];
    struct pl_named_op sum = {.name = "on the device",
                              .kind = PL_ALLREDUCE,
                              .dtype = PL_FLOAT32,
                              .op = PL_SUM,
                              .dims = 1,
                              .shape = {(uint64_t)set->elems},
                              .memory = PL_MEMORY_DEVICE,
                              .send = set->send,
                              .recv = set->recv,
                              .stream = bench->stream};

    for (int e = 0; e < set->elems; e++) {
        set->host[e] = given(index, step, bench->rank, e);
    }
    PL_TRY(pl_device_copy(bench->device, set->send, set->host, (uint64_t)set->elems * sizeof(float), bench->stream,
                          reterr));
    memset(&set->on_device, 0, sizeof(set->on_device));
    memset(set->on_host, 0, sizeof(set->on_host));
    PL_TRY(pl_service_submit(bench->service, set->number, &sum, &set->on_device, reterr));
    for (int i = 0; i < HOST_SUMS; i++) {
        char name[16];
        struct pl_named_op beside = {.name = name,
                                     .kind = PL_ALLREDUCE,
                                     .dtype = PL_FLOAT32,
                                     .op = PL_SUM,
                                     .dims = 1,
                                     .shape = {1},
                                     .send = &set->values[i],
                                     .recv = &set->values[i]};

        snprintf(name, sizeof(name), "host %d", i);
        set->values[i] = given(index, step, bench->rank, i);
        PL_TRY(pl_service_submit(bench->service, set->number, &beside, &set->on_host[i], reterr));
    }
    return PL_OK;
}

static void finish(struct bench *bench, int index, int step, char failure[RANKS_TEXT_BYTES])
{
    struct set *set = &bench->sets[index];
    float *got = set->host;

    for (int i = 0; i < HOST_SUMS; i++) {
        RANKS_OK(pl_service_wait(bench->service, &set->on_host[i], &error));
        RANKS_NEED(set->values[i] == sum_of_set(set, index, step, i), "set %d, step %d: sum %d in host memory differs",
                   index, step, i);
    }
    RANKS_OK(pl_service_wait(bench->service, &set->on_device, &error));
    RANKS_OK(
        pl_device_copy(bench->device, got, set->recv, (uint64_t)set->elems * sizeof(float), bench->stream, &error));
    RANKS_OK(pl_device_stream_finish(bench->device, bench->stream, PL_DEADLINE_NEVER, &error));
    for (int e = 0; e < set->elems; e++) {
        RANKS_NEED(got[e] == sum_of_set(set, index, step, e), "set %d, step %d: element %d differs: %g, not %g", index,
                   step, e, (double)got[e], (double)sum_of_set(set, index, step, e));
    }
}

/* Each step begins in all sets before it ends in one. */
static void run_steps(struct bench *bench, char failure[RANKS_TEXT_BYTES])
{
    for (int step = 0; step < STEPS && !failure[0]; step++) {
        for (int i = 0; i < SETS; i++) {
            int index = bench->rank % 2 ? SETS - 1 - i : i;

            if (bench->sets[index].number >= 0) {
                RANKS_OK(submit(bench, index, step, &error));
            }
        }
        for (int i = 0; i < SETS && !failure[0]; i++) {
            if (bench->sets[i].number >= 0) {
                finish(bench, i, step, failure);
            }
        }
    }
}

static void run_round(struct pl_world *world, struct bench *bench, char failure[RANKS_TEXT_BYTES])
{
    int size = pl_world_size(world);

    RANKS_OK(pl_service_new(world, NULL, &bench->service, &error));
    RANKS_OK(pl_service_use_device(bench->service, pl_device_info(bench->device)->ordinal, &error));
    for (int i = 0; i < SETS; i++) {
        RANKS_OK(add_set(bench, size, i, &error));
    }
    run_steps(bench, failure);
    if (!failure[0]) {
        RANKS_OK(pl_service_shutdown(bench->service, &error));
    }
}

void device_sets_run(struct pl_world *world, int devices, int rounds, char failure[DEVICE_SETS_TEXT_BYTES])
{
    struct bench bench = {.rank = pl_world_rank(world)};

    RANKS_OK(pl_device_open(bench.rank % devices, &bench.device, &error));
    RANKS_OK(pl_device_stream_new(bench.device, &bench.stream, &error));
    for (int i = 0; i < SETS; i++) {
        struct set *set = &bench.sets[i];
        uint64_t bytes = (uint64_t)elems_of_set[i] * sizeof(float);

        set->elems = elems_of_set[i];
        set->host = pl_memory_new(bytes, 1, NULL);
        RANKS_NEED(set->host, "no memory");
        RANKS_OK(pl_device_alloc(bench.device, bytes, (void **)&set->send, &error));
        RANKS_OK(pl_device_alloc(bench.device, bytes, (void **)&set->recv, &error));
    }
    for (int round = 0; round < rounds && !failure[0]; round++) {
        run_round(world, &bench, failure);
        pl_service_free(PL_TAKE(bench.service));
    }
    for (int i = 0; i < SETS; i++) {
        pl_device_release(bench.device, bench.sets[i].send);
        pl_device_release(bench.device, bench.sets[i].recv);
        free(bench.sets[i].host);
    }
    pl_device_stream_free(bench.device, bench.stream);
    pl_device_close(bench.device);
}

/* ---- a world of devices beside a sub-world ---- */

enum { TWIN, PART, WORLDS };

struct making {
    struct pl_world *parent, *worlds[WORLDS];
    enum pl_status status[WORLDS];
    struct pl_error errors[WORLDS];
    pthread_t thread;
    int in_thread; /* which one the thread makes */
};

static void make(struct making *making, int which)
{
    int ranks[MOST_RANKS];

    for (int r = 0; r < pl_world_size(making->parent); r++) {
        ranks[r] = r;
    }
    making->status[which] = which == TWIN ? pl_world_new_twin(making->parent, NULL, PL_DEADLINE_NEVER,
                                                              &making->worlds[TWIN], &making->errors[TWIN])
                                          : pl_world_new_sub(making->parent, ranks, pl_world_size(making->parent),
                                                             &making->worlds[PART], &making->errors[PART]);
}

static void *make_in_thread(void *making_at)
{
    struct making *making = making_at;

    make(making, making->in_thread);
    return NULL;
}

static void check_worlds(const struct making *making, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(making->parent), size = pl_world_size(making->parent);

    for (int i = 0; i < WORLDS; i++) {
        int sum = (rank + 1) * (i + 1);

        RANKS_NEED(making->status[i] == PL_OK, "world %d: %s: %s", i, pl_status_name(making->status[i]),
                   making->errors[i].cause);
        RANKS_OK(pl_allreduce(making->worlds[i], &sum, &sum, 1, PL_INT32, PL_SUM, &error));
        RANKS_NEED(sum == size * (size + 1) / 2 * (i + 1), "world %d: the sum differs: %d", i, sum);
    }
    for (int i = 0; i < WORLDS; i++) { /* before one of them is freed */
        RANKS_OK(pl_barrier(making->worlds[i], &error));
    }
}

void device_sets_beside(struct pl_world *world, int rounds, char failure[DEVICE_SETS_TEXT_BYTES])
{
    for (int round = 0; round < rounds && !failure[0]; round++) {
        struct making making = {.parent = world, .in_thread = pl_world_rank(world) % 2 ? TWIN : PART};

        RANKS_NEED(pthread_create(&making.thread, NULL, make_in_thread, &making) == 0, "no thread");
        make(&making, making.in_thread == TWIN ? PART : TWIN);
        pthread_join(making.thread, NULL);
        check_worlds(&making, failure);
        pl_world_free(making.worlds[TWIN]);
        pl_world_free(making.worlds[PART]);
    }
}
