/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the communication of one training step for a real model's gradients, in four ways in one run:
 *
 *   plan         gradients in the plan's shared buckets
 *   named        named tensors in the program's own memory
 *   named_arena  named tensors in the world's arena (here in the memory of the plan's gradients)
 *   packed       as Horovod does: copy into fusion buffers of 128 MiB, one MPI_Allreduce each, copy back and scale
 *
 * Every step writes all gradients in backward order (each is handed over as soon as it is written) and reads all sums.
 * The same loop without communication, over the same memory, is timed next to it and subtracted. The ways alternate; a
 * time is that of the slowest rank, and medians and ratios are of pairs from the same round. Results are checked.
 *
 *   mpirun -n 2 step_mpi [--rounds 7] [--milliseconds 60] [--small] MODEL.json...
 *
 * prints a JSON object per model and way: model, way, ranks, tensors, bytes, step_us, packed_us, ratio (packed / this).
 */
#include "base/clock.h"
#include "base/memory.h"
#include "examples/synthetic/gradient_list.h"
#include "runtime/paceline.h"
#include "tests/bench/median.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 51, PACKED_BYTES = 128 << 20 };

struct model {
    struct gradient_list list;
    float **private_gradients;
    float *private_memory;
    float *pack;
    struct pl_plan *plan;
    struct pl_service *named;
    struct pl_completion *completions;
    int rank, ranks;
    uint64_t step;
};

enum way { NONE_PRIVATE, NONE_ARENA, PLAN, NAMED, NAMED_ARENA, PACKED, WAYS };

static enum pl_status open_model(struct model *model, struct pl_world *world, struct pl_error *reterr)
{
    uint64_t at = 0, pack_elems = model->list.elems < PACKED_BYTES / sizeof(float) ? model->list.elems
                                                                                   : PACKED_BYTES / sizeof(float);

    for (size_t i = 0; i < model->list.count; i++) {
        pack_elems = model->list.counts[i] > pack_elems ? model->list.counts[i] : pack_elems;
    }
    model->private_gradients = pl_memory_new(model->list.count, sizeof(float *), reterr);
    model->completions = pl_memory_new(model->list.count, sizeof(*model->completions), reterr);
    model->private_memory = pl_memory_new_aligned(model->list.elems, sizeof(float), 4096, reterr);
    model->pack = pl_memory_new_aligned(pack_elems, sizeof(float), 4096, reterr);
    if (!model->private_gradients || !model->completions || !model->private_memory || !model->pack) {
        return PL_MEMORY;
    }
    PL_TRY(pl_service_new(world, NULL, &model->named, reterr));
    PL_TRY(pl_plan_new(world, NULL, &model->plan, reterr));
    for (size_t i = 0; i < model->list.count; i++) {
        size_t index;

        model->private_gradients[i] = model->private_memory + at;
        at += model->list.counts[i];
        PL_TRY(pl_plan_add(model->plan, model->list.names[i], 1, &model->list.counts[i], &index, reterr));
    }
    return pl_plan_seal(model->plan, reterr);
}

static void close_model(struct model *model)
{
    pl_service_free(model->named);
    pl_plan_free(model->plan);
    gradient_list_done(&model->list);
    free(model->private_gradients);
    free(model->completions);
    free(model->private_memory);
    free(model->pack);
}

static bool is_in_arena(enum way way)
{
    return way == NONE_ARENA || way == PLAN || way == NAMED_ARENA;
}

static float *gradient_of(const struct model *model, enum way way, size_t i)
{
    return is_in_arena(way) ? pl_plan_tensor(model->plan, i)->gradient : model->private_gradients[i];
}

/* The value that rank r writes into tensor i: small whole numbers, so that the average is exact enough to compare. */
static float value_of(const struct model *model, size_t i, int rank)
{
    return (float)((i + model->step) % 8) + (float)rank;
}

static void produce(const struct model *model, float *gradient, size_t i)
{
    float value = value_of(model, i, model->rank);

    for (uint64_t e = 0; e < model->list.counts[i]; e++) {
        gradient[e] = value;
    }
}

/* Reads every element, as an optimizer does. */
static float consume(const float *gradient, uint64_t count)
{
    float sums[16] = {0};
    uint64_t e = 0;

    for (; e + 16 <= count; e += 16) {
        for (int k = 0; k < 16; k++) {
            sums[k] += gradient[e + (uint64_t)k];
        }
    }
    for (; e < count; e++) {
        sums[0] += gradient[e];
    }
    for (int k = 1; k < 16; k++) {
        sums[0] += sums[k];
    }
    return sums[0];
}

static void reduce_packed(struct model *model)
{
    size_t first = model->list.count; /* tensors go from the last to the first */

    while (first > 0) {
        uint64_t elems = 0;
        size_t next = first;

        while (next > 0 && (next == first || (elems + model->list.counts[next - 1]) * sizeof(float) <= PACKED_BYTES)) {
            next--;
            memcpy(model->pack + elems, model->private_gradients[next], model->list.counts[next] * sizeof(float));
            elems += model->list.counts[next];
        }
        MPI_Allreduce(MPI_IN_PLACE, model->pack, (int)elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        elems = 0;
        for (size_t i = first; i-- > next;) {
            float factor = 1.0f / (float)model->ranks;

            for (uint64_t e = 0; e < model->list.counts[i]; e++) {
                model->private_gradients[i][e] = model->pack[elems + e] * factor;
            }
            elems += model->list.counts[i];
        }
        first = next;
    }
}

static enum pl_status step(struct model *model, enum way way, float *ret_sum, struct pl_error *reterr)
{
    for (size_t i = model->list.count; i-- > 0;) {
        float *gradient = gradient_of(model, way, i);

        produce(model, gradient, i);
        if (way == PLAN) {
            PL_TRY(pl_plan_ready(model->plan, i, reterr));
        } else if (way == NAMED || way == NAMED_ARENA) {
            struct pl_named_op op = {.name = model->list.names[i],
                                     .kind = PL_ALLREDUCE,
                                     .dtype = PL_FLOAT32,
                                     .op = PL_AVERAGE,
                                     .dims = 1,
                                     .shape = {model->list.counts[i]},
                                     .send = gradient,
                                     .recv = gradient};

            PL_TRY(pl_service_submit(model->named, 0, &op, &model->completions[i], reterr));
        }
    }
    if (way == PLAN) {
        PL_TRY(pl_plan_wait(model->plan, reterr));
    } else if (way == NAMED || way == NAMED_ARENA) {
        for (size_t i = model->list.count; i-- > 0;) {
            PL_TRY(pl_service_wait(model->named, &model->completions[i], reterr));
        }
    } else if (way == PACKED) {
        reduce_packed(model);
    }
    for (size_t i = model->list.count; i-- > 0;) {
        *ret_sum += consume(gradient_of(model, way, i), model->list.counts[i]);
    }
    model->step++;
    return PL_OK;
}

/* Checks that the first and last element of each tensor hold the average of the values that ranks wrote in the last
 * step. */
static enum pl_status check(const struct model *model, enum way way, struct pl_error *reterr)
{
    for (size_t i = 0; i < model->list.count; i++) {
        const float *gradient = gradient_of(model, way, i);
        float want = (float)((i + model->step - 1) % 8) + (float)(model->ranks - 1) / 2;

        for (int end = 0; end < 2; end++) {
            float got = gradient[end ? model->list.counts[i] - 1 : 0];

            if (got - want > 1e-4f || want - got > 1e-4f) {
                return pl_error_set(reterr, PL_CORRUPT, "%s: way %d, tensor '%s': %g, not %g", model->list.name,
                                    (int)way, model->list.names[i], (double)got, (double)want);
            }
        }
    }
    return PL_OK;
}

/* Times one step: microseconds on the slowest rank. */
static enum pl_status time_way(struct model *model, enum way way, int steps, double *ret_us, struct pl_error *reterr)
{
    float sum = 0;
    double us;
    int64_t start_ns;

    MPI_Barrier(MPI_COMM_WORLD);
    start_ns = pl_clock_now_ns();
    for (int i = 0; i < steps; i++) {
        PL_TRY(step(model, way, &sum, reterr));
    }
    us = (double)(pl_clock_now_ns() - start_ns) / (double)PL_NS_PER_US / steps;
    if (sum == 12345.678f) { /* never true, but the compiler cannot know that, so it keeps the loads */
        us = 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *ret_us = us;
    return PL_OK;
}

static enum pl_status bench_model(struct model *model, int rounds, double milliseconds, struct pl_error *reterr)
{
    static const char *const way_names[] = {"none", "none", "plan", "named", "named_arena", "packed"};
    double us[WAYS][MAX_ROUNDS], ratios[MAX_ROUNDS], costs[MAX_ROUNDS], packed_costs[MAX_ROUNDS], warm_us;
    int steps;

    for (enum way way = NONE_PRIVATE; way < WAYS; way++) { /* warm up, negotiate, check */
        PL_TRY(time_way(model, way, 3, &warm_us, reterr));
        if (way >= PLAN) {
            PL_TRY(check(model, way, reterr));
        }
    }
    steps = (int)(milliseconds * 1000 / warm_us) + 1; /* warm_us is the packed way's, the slowest: equal on all ranks */
    for (int round = 0; round < rounds; round++) {
        for (enum way way = NONE_PRIVATE; way < WAYS; way++) {
            PL_TRY(time_way(model, way, steps, &us[way][round], reterr));
        }
    }
    for (enum way way = PLAN; way < WAYS; way++) {
        for (int round = 0; round < rounds; round++) {
            costs[round] = us[way][round] - us[is_in_arena(way) ? NONE_ARENA : NONE_PRIVATE][round];
            packed_costs[round] = us[PACKED][round] - us[NONE_PRIVATE][round];
            ratios[round] = packed_costs[round] / (costs[round] > 0.01 ? costs[round] : 0.01);
        }
        PL_TRY(check(model, PACKED, reterr));
        if (model->rank == 0) {
            printf("{\"model\": \"%s\", \"way\": \"%s\", \"ranks\": %d, \"tensors\": %zu, \"bytes\": %llu, "
                   "\"step_us\": %.1f, \"packed_us\": %.1f, "
                   "\"ratio\": %.2f}\n",
                   model->list.name, way_names[way], model->ranks, model->list.count,
                   (unsigned long long)(model->list.elems * sizeof(float)), median(costs, (size_t)rounds),
                   median(packed_costs, (size_t)rounds), median(ratios, (size_t)rounds));
            fflush(stdout);
        }
    }
    return PL_OK;
}

/* Times blocking named operations of one element, one after the other: the cost of negotiation. The peer is MPI's
 * call. */
static enum pl_status bench_small(struct pl_world *world, int rounds, struct pl_error *reterr)
{
    enum { CALLS = 2000 };
    struct pl_completion completion = {0};
    struct pl_service *named = NULL;
    double us[2][MAX_ROUNDS];
    float value = 1;
    struct pl_named_op op = {
        .name = "small", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .send = &value, .recv = &value};

    PL_TRY(pl_service_new(world, NULL, &named, reterr));
    for (int round = -1; round < rounds; round++) { /* the first round warms up */
        for (int way = 0; way < 2; way++) {
            int64_t start_ns;
            double each_us;

            MPI_Barrier(MPI_COMM_WORLD);
            start_ns = pl_clock_now_ns();
            for (int i = 0; i < CALLS; i++) {
                if (way == 0) {
                    PL_TRY(pl_service_submit(named, 0, &op, &completion, reterr));
                    PL_TRY(pl_service_wait(named, &completion, reterr));
                } else {
                    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
                }
            }
            each_us = (double)(pl_clock_now_ns() - start_ns) / (double)PL_NS_PER_US / CALLS;
            MPI_Allreduce(MPI_IN_PLACE, &each_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            us[way][round < 0 ? 0 : round] = each_us;
        }
    }
    if (pl_world_rank(world) == 0) {
        printf("{\"model\": \"one element\", \"way\": \"named\", \"ranks\": %d, \"bytes\": 4, \"call_us\": %.2f, "
               "\"ten_dependent_us\": %.1f, "
               "\"mpi_us\": %.2f}\n",
               pl_world_size(world), median(us[0], (size_t)rounds), 10 * median(us[0], (size_t)rounds),
               median(us[1], (size_t)rounds));
        fflush(stdout);
    }
    pl_service_free(named);
    return PL_OK;
}

static enum pl_status run(int argc, char **argv, struct pl_error *reterr)
{
    struct pl_runtime *runtime = NULL;
    struct pl_world *world;
    int rounds = 7;
    double milliseconds = 60;

    PL_TRY(pl_runtime_start(&runtime, reterr));
    world = pl_runtime_world(runtime);
    for (int i = 1; i < argc; i++) {
        struct model model = {.rank = pl_world_rank(world), .ranks = pl_world_size(world)};

        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            rounds = atoi(argv[++i]);
            if (rounds < 1 || rounds > MAX_ROUNDS) {
                return pl_error_set(reterr, PL_INVALID, "--rounds: expected 1 to %d, found '%s'", MAX_ROUNDS, argv[i]);
            }
            continue;
        }
        if (strcmp(argv[i], "--milliseconds") == 0 && i + 1 < argc) {
            milliseconds = atof(argv[++i]);
            continue;
        }
        if (strcmp(argv[i], "--small") == 0) {
            PL_TRY(bench_small(world, rounds, reterr));
            continue;
        }
        PL_TRY(gradient_list_read(argv[i], &model.list, reterr));
        PL_TRY(open_model(&model, world, reterr));
        PL_TRY(bench_model(&model, rounds, milliseconds, reterr));
        close_model(&model);
    }
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;

    if (run(argc, argv, &error) != PL_OK) {
        pl_log_error(&error, "step_mpi");
        return EXIT_FAILURE; /* mpirun ends the other ranks */
    }
    return EXIT_SUCCESS;
}
