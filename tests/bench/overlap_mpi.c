/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the backward pass hide the communication? A plan of a real model's gradients; the backward pass is simulated by
 * timers that give each tensor a share of the time by its size, in slices of a millisecond between which the runtime may
 * advance, as a program does that calls pl_plan_progress() between kernels.
 *
 *   mpirun --host algo-1:1,algo-2:1 -n 2 overlap_mpi [--backward-ms N] MODEL.json
 *
 * prints one JSON object: backward_ms and communication_ms alone, step_ms of both together, and ratio = step / the longer of the
 * two. Without --backward-ms the backward pass takes as long as the communication, which is the hardest case. Medians of 5.
 */
#include "base/clock.h"
#include "runtime/paceline.h"
#include "tests/bench/gradient_list.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };

static const int64_t SLICE_NS = PL_NS_PER_MS;

static enum pl_status step(struct pl_plan *plan, const struct gradient_list *list, int64_t backward_ns, bool communicate, struct pl_error *reterr)
{
    int64_t start_ns = pl_clock_now_ns();
    uint64_t done_elems = 0;

    for (size_t i = list->count; i-- > 0;) {
        int64_t end_ns;

        done_elems += list->counts[i];
        end_ns = start_ns + (int64_t)((double)backward_ns * (double)done_elems / (double)list->elems);
        while (pl_clock_now_ns() < end_ns) {
            pl_clock_nap(SLICE_NS, end_ns);
            if (communicate) {
                PL_TRY(pl_plan_progress(plan, reterr));
            }
        }
        if (communicate) {
            PL_TRY(pl_plan_ready(plan, i, reterr));
        }
    }
    return communicate ? pl_plan_wait(plan, reterr) : PL_OK;
}

static int compare_doubles(const void *left_at, const void *right_at)
{
    double left = *(const double *)left_at, right = *(const double *)right_at;

    return (left > right) - (left < right);
}

static enum pl_status median_ms(struct pl_plan *plan, const struct gradient_list *list, int64_t backward_ns, bool communicate, double *ret_ms,
                                struct pl_error *reterr)
{
    double ms[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns;

        MPI_Barrier(MPI_COMM_WORLD);
        start_ns = pl_clock_now_ns();
        PL_TRY(step(plan, list, backward_ns, communicate, reterr));
        ms[round] = (double)(pl_clock_now_ns() - start_ns) / (double)PL_NS_PER_MS;
        MPI_Allreduce(MPI_IN_PLACE, &ms[round], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    qsort(ms, ROUNDS, sizeof(double), compare_doubles);
    *ret_ms = ms[ROUNDS / 2];
    return PL_OK;
}

static enum pl_status run(const char *path, double backward_ms, struct pl_error *reterr)
{
    struct pl_runtime *runtime = NULL;
    struct gradient_list list;
    struct pl_plan *plan = NULL;
    double backward_alone_ms, communication_ms, both_ms;
    int64_t backward_ns;

    PL_TRY(gradient_list_read(path, &list, reterr));
    PL_TRY(pl_runtime_start(&runtime, reterr));
    PL_TRY(pl_plan_new(pl_runtime_world(runtime), NULL, &plan, reterr));
    for (size_t i = 0; i < list.count; i++) {
        size_t index;

        PL_TRY(pl_plan_add(plan, list.names[i], 1, &list.counts[i], &index, reterr));
    }
    PL_TRY(pl_plan_seal(plan, reterr));
    PL_TRY(median_ms(plan, &list, 0, true, &communication_ms, reterr));
    backward_ns = (int64_t)((backward_ms > 0 ? backward_ms : communication_ms) * (double)PL_NS_PER_MS);
    PL_TRY(median_ms(plan, &list, backward_ns, false, &backward_alone_ms, reterr));
    PL_TRY(median_ms(plan, &list, backward_ns, true, &both_ms, reterr));
    if (pl_world_rank(pl_runtime_world(runtime)) == 0) {
        double longer_ms = backward_alone_ms > communication_ms ? backward_alone_ms : communication_ms;

        printf("{\"model\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"backward_ms\": %.1f, \"communication_ms\": %.1f, \"step_ms\": %.1f, "
               "\"ratio\": %.3f}\n",
               list.name, pl_world_size(pl_runtime_world(runtime)), pl_world_cross_size(pl_runtime_world(runtime)), backward_alone_ms,
               communication_ms, both_ms, both_ms / longer_ms);
    }
    pl_plan_free(plan);
    gradient_list_done(&list);
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    double backward_ms = argc == 4 && strcmp(argv[1], "--backward-ms") == 0 ? atof(argv[2]) : 0;

    if (argc != 2 && backward_ms <= 0) {
        pl_log(PL_LOG_ERROR, "usage: overlap_mpi [--backward-ms N] MODEL.json");
        return 2;
    }
    if (run(argv[argc - 1], backward_ms, &error) != PL_OK) {
        pl_log_error(&error, "overlap_mpi");
        return EXIT_FAILURE; /* mpirun ends the other ranks */
    }
    return EXIT_SUCCESS;
}
